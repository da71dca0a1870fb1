"""The wheel and the sdist. Neither depends on the architecture: the BPF programs are in them, compiled."""

import sys
from collections.abc import Iterator
from pathlib import Path

from artefacts import Artefact, Work


def make(work: Work) -> Iterator[Artefact]:
    """By hatchling, in the version that deploy/lock fixes; both say which packages they need, and bring none."""
    version = work.release.version
    for kind, qualifier in {"wheel": "", "sdist": f"?file_name=arpguard-{version}.tar.gz"}.items():
        path = build(work, work.out, kind)
        yield Artefact(path, f"pkg:pypi/arpguard@{version}{qualifier}", tuple(work.locked()), "library")


def build(work: Work, folder: Path, kind: str) -> Path:
    """The wheel, or the sdist."""
    work.run(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder))
    name = {"wheel": "py3-none-any.whl", "sdist": "tar.gz"}[kind]
    return folder / f"arpguard-{work.release.version}{'-' if kind == 'wheel' else '.'}{name}"
