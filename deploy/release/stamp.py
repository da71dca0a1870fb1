"""Writes what deploy/release.env says wherever it is needed: the image's repository, the version, the site's address.

    stamp.py [FOLDER]

FOLDER is a checkout (default: this one). IMAGE and DOCS in the environment take precedence over the file.
"""

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
WHERE = "deploy/release.env"
ALERTS = (
    "deploy/monitoring/alerts.yaml",
    "deploy/monitoring/alerts.test.yaml",
    "deploy/helm/arpguard/files/alerts.yaml",
)
# File; what is replaced there, between what stands before it and after it; by what.
PLACES = (
    ("agent/arpguard/__init__.py", r'(?<=^__version__ = ").*?(?="$)', "{version}"),
    ("deploy/components/image/kustomization.yaml", r"(?<=newName: ).*$", "{image}"),
    ("deploy/components/image/kustomization.yaml", r"(?<=newTag: ).*$", "{version}"),
    ("deploy/helm/arpguard/Chart.yaml", r"(?<=^version: ).*$", "{version}"),
    ("deploy/helm/arpguard/Chart.yaml", r"(?<=^appVersion: ).*$", "{version}"),
    ("deploy/helm/arpguard/values.yaml", r"(?<=^  repository: )\S+", "{image}"),
    ("deploy/README.md", r"(?<=^images: \[\{name: )\S+(?=,)", "{image}"),
    ("deploy/README.md", r"(?<=newTag: )[^}\s]+", "{version}"),
    (".github/ISSUE_TEMPLATE/config.yml", r"(?<=url: ).*(?=/(?:SECURITY|docs/faq)\.html)", "{docs}"),
    *((alerts, r"(?<=runbook_url: ).*(?=/docs/runbooks\.html#)", "{docs}") for alerts in ALERTS),
)
_VERSION = re.compile(r"\d+\.\d+\.\d+")
_IMAGE = re.compile(r"[a-z0-9.-]+(:\d+)?(/[a-z0-9._-]+)+")
_DOCS = re.compile(r"https?://[^\s#?]*[^\s#?/]")


@dataclass(frozen=True)
class Release:
    """What is released: the image's repository, the version, such as 1.2.3, and where the documentation is served."""

    image: str
    version: str
    docs: str

    def __post_init__(self) -> None:
        if not _IMAGE.fullmatch(self.image):
            raise SystemExit(f"IMAGE={self.image}: write it as registry.example.org/arpguard, without a tag")
        if not _VERSION.fullmatch(self.version):
            raise SystemExit(f"VERSION={self.version}: write three numbers, such as 1.2.3")
        if not _DOCS.fullmatch(self.docs):
            raise SystemExit(
                f"DOCS={self.docs}: write it as https://docs.example.org/arpguard, without a slash at the end"
            )


def release_of(checkout: Path) -> Release:
    """What deploy/release.env of a checkout says, and the environment."""
    lines = (checkout / WHERE).read_text(encoding="utf-8").splitlines()
    said = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    image, docs = (os.environ.get(name) or said[name] for name in ("IMAGE", "DOCS"))
    return Release(image, said["VERSION"], docs)


def stamped(checkout: Path, release: Release) -> Iterator[tuple[Path, str]]:
    """Each file that names one of them, and its text as it has to be."""
    texts: dict[str, str] = {}
    for name, pattern, value in PLACES:
        before = texts.get(name) or (checkout / name).read_text(encoding="utf-8")
        word = value.format(image=release.image, version=release.version, docs=release.docs)
        texts[name], times = re.subn(pattern, word, before, flags=re.MULTILINE)
        if not times:
            raise SystemExit(f"{name}: nothing there is like {pattern}")
    for name, text in texts.items():
        yield checkout / name, text


def stamp(checkout: Path, release: Release) -> None:
    """Writes them all."""
    for path, text in stamped(checkout, release):
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    _checkout = Path(sys.argv[1]) if len(sys.argv) > 1 else TOP
    stamp(_checkout, release_of(_checkout))
