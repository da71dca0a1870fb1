"""What `make neighbours` builds with, and what it installs first; a name states the fact."""

import subprocess
from pathlib import Path

import pytest

from neighbours import build

ROOT = Path(__file__).parents[2]


def steps(*words: str) -> str:
    """What make would do, if the Go that is fixed here had to be installed."""
    asked = ["make", "-n", "-W", "tests/tools/install_go.py", *words]
    return subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def homes(tmp_path, monkeypatch) -> tuple[Path, Path]:
    """The folder of the project's own Go, and one in PATH."""
    own, other = tmp_path / "own", tmp_path / "other"
    for folder in (own, other):
        folder.mkdir()
    monkeypatch.setattr(build, "OWN_GO", str(own))
    monkeypatch.setenv("PATH", str(other))
    return own, other


def put_go(folder: Path) -> str:
    path = folder / "go"
    path.touch(mode=0o755)
    return str(path)


def test_own_go_is_found_though_it_is_not_in_path(homes):
    own = put_go(homes[0])
    assert build.find_go() == own


def test_own_go_comes_before_another_that_may_be_too_old(homes):
    own, _ = put_go(homes[0]), put_go(homes[1])
    assert build.find_go() == own


def test_another_go_does_where_the_own_one_could_not_be_fetched(homes):
    other = put_go(homes[1])
    assert build.find_go() == other


def test_own_go_is_where_the_makefile_installs_it():
    said = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f"GO := {Path(build.OWN_GO).relative_to(ROOT)}/go\n" in said


@pytest.mark.parametrize(
    ("target", "module"), [("neighbours", "neighbours.build"), ("kernels", "neighbours.build"), ("kernels", "kernels")]
)
def test_own_go_is_installed_before_anything_is_built(target, module):
    said = steps(target)
    assert 0 < said.find("install_go.py .cache/go") < said.find(f"-m {module}")


def test_packages_that_kubelets_need_are_installed_for_them_alone():
    said = steps("neighbours", "NEIGHBOURS=shipped")
    assert "buildah containernetworking-plugins" in said
    assert "buildah" not in steps("neighbours")


def test_stub_adds_the_types_for_bgp_that_an_older_version_lacks(tmp_path):
    types = tmp_path / "source" / "api" / "v1beta1" / "frrconfiguration_types.go"
    types.parent.mkdir(parents=True)
    types.write_text("package v1beta1\n\ntype Advertise struct {\n\tAllowed string\n}\n", encoding="ascii")
    types.chmod(0o444)
    build.stub_frr_k8s(tmp_path / "source", tmp_path / "copy")
    assert (tmp_path / "copy" / types.relative_to(tmp_path / "source")).read_text(encoding="ascii") == (
        "package v1beta1\n\n"
        "type Advertise struct {\n\tPrefixesWithAsPathPrepend []AsPathPrependPrefixes\n\tAllowed string\n}\n\n"
        "type AsPathPrependPrefixes struct {\n\tAsPathPrepend uint8\n\tPrefixes []string\n}\n"
    )


def test_stub_of_a_version_that_looks_otherwise_is_refused(tmp_path):
    types = tmp_path / "source" / "api" / "v1beta1" / "frrconfiguration_types.go"
    types.parent.mkdir(parents=True)
    types.write_text("package v1beta1\n", encoding="ascii")
    with pytest.raises(ValueError, match="type Advertise struct"):
        build.stub_frr_k8s(tmp_path / "source", tmp_path / "copy")
