"""What `make release` makes: the parts that are quick. tests/release has the rest, and installs all of it."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from deploy.locks import ROOT, locked
from deploy.releasing import a_work

import wheels  # isort: skip - deploy.releasing makes them importable
from artefacts import sha256, sums, write_sums  # isort: skip
from stamp import Release, release_of, stamped  # isort: skip

PURPOSE = ("agent", "deploy", "docs", "proto", "bpf")
NO_COPY = {"release.env", "CHANGELOG.md"}


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> list[dict[str, Path]]:
    """The same release, from two folders."""
    found = []
    for name in ("one", "another/place"):
        work = a_work(tmp_path_factory.mktemp("release") / name)
        files = {}
        for artefact in wheels.make(work):
            files |= {each.name: each for each in (artefact.path, artefact.write_bill(work.release))}
        write_sums(work.out, files.values())
        found.append(files)
    return found


# ---- the one place for repository and version ----------------------------------------------------------------------


def test_everything_says_what_the_one_place_says(monkeypatch):
    monkeypatch.delenv("IMAGE", raising=False)
    for path, text in stamped(ROOT, release_of(ROOT)):
        assert path.read_text(encoding="utf-8") == text, f"{path}: `make stamp` writes it"


def test_nothing_else_names_repository_or_version(monkeypatch):
    monkeypatch.delenv("IMAGE", raising=False)
    named = release_of(ROOT)
    others = dict(stamped(ROOT, Release("registry.example.net/other", "9.8.7")))
    pattern = re.compile(rf"{re.escape(named.image)}|(?<![\d.]){re.escape(named.version)}(?![\d.])")
    files = [path for folder in PURPOSE for path in (ROOT / folder).rglob("*") if path.is_file()]
    texts = {path: others.get(path) or path.read_bytes().decode(errors="replace") for path in files}
    texts |= {path: path.read_text(encoding="utf-8") for path in (ROOT / "README.md", ROOT / "Makefile")}

    again = [path for path, text in texts.items() if path.name not in NO_COPY and pattern.search(text)]
    assert not [path for path in again if not {"lock", "__pycache__"} & set(path.parts)]


@pytest.mark.parametrize("image", ["arpguard", "registry.example.org/arpguard:0.1.0", "https://registry/arpguard", ""])
def test_repository_that_is_none_is_refused(image):
    with pytest.raises(SystemExit, match=re.escape(f"IMAGE={image}: write it as")):
        Release(image, "0.1.0")


@pytest.mark.parametrize("version", ["0.1", "v0.1.0", "0.1.0-rc1", ""])
def test_version_that_is_not_three_numbers_is_refused(version):
    with pytest.raises(SystemExit, match=re.escape(f"VERSION={version}: write three numbers")):
        Release("registry.example.org:5000/arpguard", version)


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
