"""The container image for all architectures, as deploy/image builds it."""

import json
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from artefacts import Work
from stamp import TOP


def make(work: Work) -> Iterator[Path]:
    """Built, but where it is there, of the same commit; with a bill of materials for each architecture."""
    archive = archive_of(work)
    if not archive.exists() or revision(archive) != work.commit:
        script = str(TOP / "deploy/image/build.sh")
        work.run(script, work.release.image, work.release.version, DIST=str(work.out), PYTHON=sys.executable)
    yield from sorted(work.out.glob(f"{archive.name.removesuffix('.oci.tar')}.*"))


def archive_of(work: Work) -> Path:
    """Where the image lies: an OCI layout, packed."""
    return work.out / f"arpguard-{work.release.version}-image.oci.tar"


def digest(archive: Path) -> str:
    """Of the index of all architectures, such as sha256:0123..."""
    with tarfile.open(archive) as layout:
        return _named(layout)


def revision(archive: Path) -> str:
    """The commit that it was built from, as its label says; empty if it says none."""
    with tarfile.open(archive) as layout:
        manifest = _blob(layout, _blob(layout, _named(layout))["manifests"][0]["digest"])
        labels = _blob(layout, manifest["config"]["digest"])["config"].get("Labels") or {}
    return str(labels.get("org.opencontainers.image.revision", ""))


def _named(layout: tarfile.TarFile) -> str:
    (index,) = _json(layout, "index.json")["manifests"]
    return str(index["digest"])


def _blob(layout: tarfile.TarFile, named: str) -> Any:
    return _json(layout, f"blobs/{named.replace(':', '/')}")


def _json(layout: tarfile.TarFile, name: str) -> Any:
    file = layout.extractfile(name)
    assert file is not None  # noqa: S101 - the layout has no links
    return json.load(file)
