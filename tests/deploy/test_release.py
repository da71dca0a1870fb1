"""What `make release` makes: the parts that are quick. tests/release has the rest, and installs all of it."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from deploy.locks import ROOT, locked
from deploy.releasing import (
    Release,
    a_work,
    charts,
    deb,
    krew,
    man,
    notes,
    release_of,
    sha256,
    stamped,
    sums,
    wheels,
    write_sums,
)
from support.kube.manifests import built, parsed, tool

PURPOSE = ("agent", "deploy", "docs", "proto", "bpf")
NO_COPY = {"release.env", "CHANGELOG.md"}
DOCS = "https://docs.example.org"


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> list[dict[str, Path]]:
    """The same release, from two folders."""
    found = []
    for name in ("one", "another/place"):
        work = a_work(tmp_path_factory.mktemp("release") / name)
        files: dict[str, Path] = {}
        for artefact in wheels.make(work):
            files |= {each.name: each for each in (artefact.path, artefact.write_bill(work.release))}
        write_sums(work.out, files.values())
        found.append(files)
    return found


# ---- the one place for repository and version ----------------------------------------------------------------------


def as_the_file_says(monkeypatch):
    for name in ("IMAGE", "DOCS"):
        monkeypatch.delenv(name, raising=False)


def test_everything_says_what_the_one_place_says(monkeypatch):
    as_the_file_says(monkeypatch)
    for path, text in stamped(ROOT, release_of(ROOT)):
        assert path.read_text(encoding="utf-8") == text, f"{path}: `make stamp` writes it"


def test_nothing_else_names_repository_or_version(monkeypatch):
    as_the_file_says(monkeypatch)
    named = release_of(ROOT)
    others = dict(stamped(ROOT, Release("registry.example.net/other", "9.8.7", "https://docs.example.net")))
    pattern = re.compile(
        rf"{re.escape(named.image)}|(?<![\d.]){re.escape(named.version)}(?![\d.])|{re.escape(named.docs)}(?=/docs/)"
    )
    files = [path for folder in PURPOSE for path in (ROOT / folder).rglob("*") if path.is_file()]
    texts = {path: others.get(path) or path.read_bytes().decode(errors="replace") for path in files}
    texts |= {path: path.read_text(encoding="utf-8") for path in (ROOT / "README.md", ROOT / "Makefile")}

    again = [path for path, text in texts.items() if path.name not in NO_COPY and pattern.search(text)]
    assert not [path for path in again if not {"lock", "__pycache__"} & set(path.parts)]


@pytest.mark.parametrize("image", ["arpguard", "registry.example.org/arpguard:0.1.0", "https://registry/arpguard", ""])
def test_repository_that_is_none_is_refused(image):
    with pytest.raises(SystemExit, match=re.escape(f"IMAGE={image}: write it as")):
        Release(image, "0.1.0", DOCS)


@pytest.mark.parametrize("version", ["0.1", "v0.1.0", "0.1.0-rc1", ""])
def test_version_that_is_not_three_numbers_is_refused(version):
    with pytest.raises(SystemExit, match=re.escape(f"VERSION={version}: write three numbers")):
        Release("registry.example.org:5000/arpguard", version, DOCS)


@pytest.mark.parametrize(
    "docs", ["docs.example.org", "https://docs.example.org/", "https://docs.example.org/#arpguard", ""]
)
def test_address_that_no_page_can_follow_is_refused(docs):
    with pytest.raises(SystemExit, match=re.escape(f"DOCS={docs}: write it as")):
        Release("registry.example.org/arpguard", "0.1.0", docs)


# ---- wheel and sdist -----------------------------------------------------------------------------------------------


def test_the_same_commit_gives_the_same_bytes_in_any_folder(made):
    one, other = ({name: sha256(path) for name, path in files.items()} for files in made)
    assert one == other
    version = release_of(ROOT).version
    assert {f"arpguard-{version}-py3-none-any.whl", f"arpguard-{version}.tar.gz"} < one.keys()


def test_sums_are_those_that_sha256sum_checks(made):
    folder = next(iter(made[0].values())).parent
    done = subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folder, check=False)
    assert done.returncode == 0
    assert sums(folder).keys() == made[0].keys()


def test_each_file_has_a_bill_of_its_own_content(made):
    bills = {name: path for name, path in made[0].items() if name.endswith(".cdx.json")}
    assert len(bills) * 2 == len(made[0])
    for name, path in bills.items():
        subject = json.loads(path.read_text(encoding="utf-8"))["metadata"]["component"]
        assert subject["hashes"] == [{"alg": "SHA-256", "content": sha256(made[0][name.removesuffix(".cdx.json")])}]


def test_bill_names_the_packages_that_the_agent_runs_with(made):
    for name, path in made[0].items():
        if name.endswith(".cdx.json"):
            found = {each["purl"] for each in json.loads(path.read_text(encoding="utf-8"))["components"]}
            assert found == {f"pkg:pypi/{package}@{version}" for package, (version, _) in locked("run").items()}


# ---- for Kubernetes ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def for_kubernetes(tmp_path_factory) -> list[dict[str, Path]]:
    """The same release twice: what each file is called, and where it is."""
    tool("helm")
    tool("kustomize")
    works = [a_work(tmp_path_factory.mktemp("kubernetes") / name) for name in ("one", "other")]
    made = [[each if isinstance(each, Path) else each.path for each in charts.make(work)] for work in works]
    return [{path.name: path for path in paths} for paths in made]


def test_chart_index_and_manifest_are_the_same_each_time(for_kubernetes):
    one, other = ({name: sha256(path) for name, path in files.items()} for files in for_kubernetes)
    assert one == other
    assert one.keys() == {f"arpguard-{release_of(ROOT).version}.tgz", "index.yaml", "install.yaml"}


def test_manifest_is_the_base(for_kubernetes):
    assert parsed(for_kubernetes[0]["install.yaml"].read_text(encoding="utf-8")) == parsed(built("base"))


def test_chart_is_complete_and_the_index_knows_it(for_kubernetes, tmp_path):
    files = for_kubernetes[0]
    (chart,) = (path for name, path in files.items() if name.endswith(".tgz"))
    shutil.unpack_archive(chart, tmp_path / "unpacked")
    folder, source = tmp_path / "unpacked/arpguard", ROOT / "deploy/helm/arpguard"
    there = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert there == {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()}
    assert f"digest: {sha256(chart)}" in files["index.yaml"].read_text(encoding="utf-8")


# ---- notes, manual pages, Debian package ---------------------------------------------------------------------------

CHANGELOG = (
    "# Changelog\n\n## Unreleased\n\n- new\n\n## [1.2.3] - 2026-01-31\n\n### Added\n\n- a\n\n## 1.2.2\n\n- old\n"
)


@pytest.mark.parametrize(
    ("version", "text"), [("1.2.3", "### Added\n\n- a"), ("1.2.2", "- old"), ("1.3.0", "- new")], ids=str
)
def test_notes_are_the_section_of_the_version_or_what_is_unreleased(version, text):
    assert notes.section(CHANGELOG, version) == text


def test_release_of_which_the_changelog_says_nothing_is_refused():
    with pytest.raises(SystemExit, match=r"has no section for 1\.3\.0: add a section"):
        notes.section(CHANGELOG.replace("- new", ""), "1.3.0")


@pytest.mark.parametrize(
    ("program", "some"),
    [
        ("arpguard", {"arpguard", "arpguard-agent", "arpguard-config-check", "arpguard-lab"}),
        ("kubectl-arpguard", {"kubectl-arpguard", "kubectl-arpguard-watch", "kubectl-arpguard-bundle"}),
    ],
)
def test_every_command_has_a_page_with_all_its_options(program, some):
    commands = list(man.commands(program))
    names = [command.name for command in commands]
    assert some <= set(names)
    assert program in deb.COMMANDS, "the package has the program"
    for command in commands:
        text = man.page(command, names, "1.2.3", "2026-01-31")
        plain = text.replace("\\-", "-").replace("\\:", "")
        assert f".SH NAME\n{command.name} - " in plain
        assert [f"- {code}" for code in re.findall(r"^[.]B (\d)$", text, re.MULTILINE)] == ["- 0", "- 1", "- 2", "- 3"]
        for option in re.findall(r"(?<![\w-])--?[a-z][\w-]*", command.parser.format_usage()):
            assert f"\\fB{option}\\fR" in plain, (command.name, option)


@pytest.mark.parametrize("script", ["postinst", "prerm", "postrm"])
def test_scripts_of_the_deb_are_for_any_shell(script):
    assert subprocess.run(["sh", "-n", deb.HERE / script], check=False).returncode == 0


def test_deb_asks_for_a_python_that_it_has_modules_for():
    assert deb.python_needed() == "python3 (>= 3.11~), python3 (<< 3.15~)"
    assert deb.PYTHONS[0] in (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("requires-python")[2][:20]


# ---- krew ----------------------------------------------------------------------------------------------------------

PLUGIN = """\
import os, sys
def main():
    print(*sys.argv[1:], "json" in sys.modules or __import__("json").__file__, os.environ["PYTHONPATH"])
"""


@pytest.fixture
def archive(tmp_path) -> Path:
    site = tmp_path / "site"
    (site / "arpguard/cli/kubectl").mkdir(parents=True)
    (site / "arpguard/cli/kubectl/main.py").write_text(PLUGIN)
    krew.pack(tmp_path / "one.tar.gz", site, b"licence", 1_700_000_000)
    krew.pack(tmp_path / "two.tar.gz", site, b"licence", 1_700_000_000)
    return tmp_path / "one.tar.gz"


def test_archive_for_krew_is_the_same_each_time(archive):
    assert sha256(archive) == sha256(archive.with_name("two.tar.gz"))


def test_plugin_runs_where_krew_links_to_it_with_its_own_modules(archive, tmp_path):
    """What plugins for credentials inherit stays as the user has it, and nothing of it is imported here."""
    store, theirs = tmp_path / "store", tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "json.py").write_text("raise SystemExit('not ours')")
    shutil.unpack_archive(archive, store)
    (tmp_path / "kubectl-arpguard").symlink_to(store / krew.BIN)
    environment = {**os.environ, "PYTHONPATH": str(theirs)}
    done = subprocess.run(
        [tmp_path / "kubectl-arpguard", "vips", "a b"], env=environment, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("vips a b ")
    assert done.stdout.endswith(f" {theirs}\n")


def test_manifest_for_krew_has_the_sums_of_its_archives(archive, tmp_path):
    path = krew.write_manifest(tmp_path / "krew.yaml", "1.2.3", {"amd64": archive})
    (manifest,) = parsed(path.read_text(encoding="utf-8"))
    (platform,) = manifest["spec"]["platforms"]

    assert (manifest["metadata"]["name"], manifest["spec"]["version"]) == ("arpguard", "v1.2.3")
    assert platform == {
        "selector": {"matchLabels": {"os": "linux", "arch": "amd64"}},
        "uri": "https://example.org/arpguard/one.tar.gz",
        "sha256": sha256(archive),
        "bin": "kubectl-arpguard",
    }
