"""The bill of materials that the image carries: Python's packages as they are installed here, and two of Debian's."""

import json
import subprocess
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

import pytest

from deploy.locks import ROOT, locked

PARAGRAPHS = {
    "libbpf1": "Package: libbpf1\nSource: libbpf (1.1.2-0+deb12u1)\nVersion: 1:1.1.2-0+deb12u1\nArchitecture: arm64\n",
    "zlib1g": "Package: zlib1g\nVersion: 1:1.2.13.dfsg-1\nArchitecture: arm64\nDescription: words\n Source: none\n",
}


@pytest.fixture
def root(tmp_path) -> Path:
    folder = tmp_path / "var/lib/dpkg/status.d"
    folder.mkdir(parents=True)
    for name, text in PARAGRAPHS.items():
        (folder / name).write_text(text, encoding="utf-8")
    (tmp_path / "usr/lib").mkdir(parents=True)
    (tmp_path / "usr/lib/os-release").write_text('NAME="Debian"\nID=debian\nVERSION_ID="12"\n', encoding="utf-8")
    return tmp_path


def made(root: Path) -> str:
    words = [sys.executable, str(ROOT / "deploy/image/sbom.py"), "1.2.3", str(root), sysconfig.get_path("purelib")]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_every_package_is_named_with_its_version(root):
    found = {each["purl"] for each in json.loads(made(root))["components"]}
    assert {f"pkg:pypi/{name}@{version(name)}" for name in locked("run")} <= found
    where = "arch=arm64&distro=debian-12&upstream="
    assert f"pkg:deb/debian/libbpf1@1%3A1.1.2-0%2Bdeb12u1?{where}libbpf" in found
    assert f"pkg:deb/debian/zlib1g@1%3A1.2.13.dfsg-1?{where}zlib1g" in found


def test_the_same_packages_give_the_same_bytes(root):
    assert made(root) == made(root)


def test_document_says_what_it_is(root):
    document = json.loads(made(root))
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    assert document["metadata"]["component"]["version"] == "1.2.3"
    assert len({each["bom-ref"] for each in document["components"]}) == len(document["components"])
