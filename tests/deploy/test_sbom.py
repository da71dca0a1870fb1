"""The bill of materials that the image carries, made of this machine's packages."""

import json
import subprocess
import sysconfig
from importlib.metadata import version

from deploy.locks import ROOT, locked


def made() -> str:
    words = ["/usr/bin/python3", str(ROOT / "deploy/image/sbom.py"), "1.2.3", sysconfig.get_path("purelib")]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_every_package_is_named_with_its_version():
    found = {each["purl"].partition("?")[0] for each in json.loads(made())["components"]}
    assert {f"pkg:pypi/{name}@{version(name)}" for name in locked("run")} <= found
    debian = subprocess.run(["dpkg-query", "-Wf", "${Version}", "libbpf1"], capture_output=True, text=True, check=True)
    assert f"pkg:deb/debian/libbpf1@{debian.stdout.replace(':', '%3A').replace('+', '%2B')}" in found


def test_the_same_packages_give_the_same_bytes():
    assert made() == made()


def test_document_says_what_it_is():
    document = json.loads(made())
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    assert document["metadata"]["component"]["version"] == "1.2.3"
    assert len({each["bom-ref"] for each in document["components"]}) == len(document["components"])
