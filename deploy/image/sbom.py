"""Writes a software bill of materials of the image that it runs in, as CycloneDX 1.6 JSON, to standard output.

    sbom.py VERSION SITE_PACKAGES

Debian's packages as dpkg knows them, Python's as their metadata in SITE_PACKAGES say. The same image gives the same
bytes: there is no time and no random number in it.
"""

import json
import subprocess
import sys
import uuid
from collections.abc import Iterable
from importlib.metadata import distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote

Component = dict[str, Any]
_FORMAT = "${db:Status-Abbrev}\t${binary:Package}\t${Version}\t${Architecture}\t${source:Package}\n"


def debian_packages(release: str) -> Iterable[Component]:
    """Those that are installed."""
    words = ["/usr/bin/dpkg-query", "--show", "--showformat", _FORMAT]
    listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout  # noqa: S603 - our own words
    for line in listed.splitlines():
        status, name, version, architecture, source = line.split("\t")
        if status.startswith("ii"):
            plain = name.partition(":")[0]
            where = f"arch={architecture}&distro={quote(release)}&upstream={quote(source)}"
            yield component(plain, version, f"pkg:deb/debian/{quote(plain)}@{quote(version, safe='')}?{where}")


def python_packages(folder: Path) -> Iterable[Component]:
    """Those in a folder of site packages."""
    for each in distributions(path=[str(folder)]):
        name = each.metadata["Name"].lower().replace("_", "-")
        found = component(name, each.version, f"pkg:pypi/{quote(name)}@{quote(each.version)}")
        license_text = each.metadata.get("License-Expression")
        yield found | ({"licenses": [{"expression": license_text}]} if license_text else {})


def component(name: str, version: str, purl: str) -> Component:
    """One package."""
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def bill(version: str, components: Iterable[Component]) -> dict[str, Any]:
    """The whole document."""
    parts = sorted(components, key=lambda each: each["purl"])
    content = json.dumps([version, parts])
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}",
        "version": 1,
        "metadata": {"component": {"type": "container", "bom-ref": "arpguard", "name": "arpguard", "version": version}},
        "components": parts,
    }


def release_of(text: str) -> str:
    """The distribution's name and release, as os-release(5) has them."""
    pairs = dict(line.partition("=")[::2] for line in text.splitlines())
    return f"{pairs.get('ID', 'debian')}-{pairs.get('VERSION_ID', '')}".replace('"', "")


def main() -> None:
    """Entry point."""
    version, folder = sys.argv[1], Path(sys.argv[2])
    release = release_of(Path("/etc/os-release").read_text(encoding="utf-8"))
    whole = bill(version, [*debian_packages(release), *python_packages(folder)])
    json.dump(whole, sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
