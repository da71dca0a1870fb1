"""A software bill of materials of an image's root folder, as CycloneDX 1.6 JSON.

    sbom.py VERSION ROOT SITE_PACKAGES

Debian's packages as ROOT/var/lib/dpkg/status.d says, Python's as their metadata in SITE_PACKAGES say. The same image
gives the same bytes: there is no time and no random number in it.
"""

import json
import re
import sys
import uuid
from collections.abc import Iterable
from importlib.metadata import distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote

Component = dict[str, Any]


def debian_packages(folder: Path, release: str) -> Iterable[Component]:
    """Those whose control files are in a folder."""
    for file in folder.iterdir():
        fields = dict(re.findall(r"^([\w-]+): *(.*)$", file.read_text(encoding="utf-8"), re.MULTILINE))
        name, version = fields["Package"], fields["Version"]
        source = fields.get("Source", name).partition(" ")[0]
        where = f"arch={fields['Architecture']}&distro={quote(release)}&upstream={quote(source)}"
        yield component(name, version, f"pkg:deb/debian/{quote(name)}@{quote(version, safe='')}?{where}")


def python_packages(folder: Path) -> Iterable[Component]:
    """Those in a folder of site packages."""
    for each in distributions(path=[str(folder)]):
        found = python_package(each.metadata["Name"], each.version)
        license_text = each.metadata.get("License-Expression")
        yield found | ({"licenses": [{"expression": license_text}]} if license_text else {})


def python_package(name: str, version: str) -> Component:
    """One of Python's packages."""
    name = name.lower().replace("_", "-")
    return component(name, version, f"pkg:pypi/{quote(name)}@{quote(version)}")


def component(name: str, version: str, purl: str) -> Component:
    """One package."""
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def document(subject: Component, components: Iterable[Component]) -> str:
    """The whole document: what it is about, and what is in that or needed by it."""
    parts = sorted(components, key=lambda each: each["purl"])
    content = json.dumps([subject, parts])
    whole = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}",
        "version": 1,
        "metadata": {"component": subject},
        "components": parts,
    }
    return json.dumps(whole, indent=1) + "\n"


def release_of(text: str) -> str:
    """The distribution's name and release, as os-release(5) has them."""
    pairs = dict(line.partition("=")[::2] for line in text.splitlines())
    return f"{pairs.get('ID', 'debian')}-{pairs.get('VERSION_ID', '')}".replace('"', "")


def text(version: str, root: Path, site_packages: Path) -> str:
    """The document of a root folder."""
    release = release_of((root / "usr/lib/os-release").read_text(encoding="utf-8"))
    packages = debian_packages(root / "var/lib/dpkg/status.d", release)
    subject = {"type": "container", "bom-ref": "arpguard", "name": "arpguard", "version": version}
    return document(subject, [*packages, *python_packages(site_packages)])


if __name__ == "__main__":
    sys.stdout.write(text(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))
