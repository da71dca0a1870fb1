"""The scripts that make a release, and a checkout's files to make it from."""

import subprocess
import sys
from pathlib import Path

from deploy.locks import ROOT

for _folder in ("deploy/image", "deploy/release"):  # scripts, which import each other from there
    sys.path.append(str(ROOT / _folder))

import charts  # noqa: E402 - found by the above
import deb  # noqa: E402
import krew  # noqa: E402
import man  # noqa: E402
import notes  # noqa: E402
import wheels  # noqa: E402
from artefacts import Work, sha256, sums, write_sums  # noqa: E402
from stamp import Release, release_of, stamped  # noqa: E402

__all__ = [
    "Release",
    "Work",
    "a_work",
    "charts",
    "deb",
    "krew",
    "man",
    "notes",
    "release_of",
    "sha256",
    "stamped",
    "sums",
    "wheels",
    "write_sums",
]
NEEDED = ("agent", "deploy", "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", ".gitignore")
AT = 1_700_000_000  # seconds since 1970


def a_work(folder: Path) -> Work:
    """A release of this checkout as it is, with all that is not committed."""
    stage, out = folder / "stage", folder / "out"
    stage.mkdir(parents=True)
    out.mkdir()
    subprocess.run(["cp", "-r", *(ROOT / name for name in NEEDED), stage], check=True)
    return Work(stage, out, release_of(ROOT), "0" * 40, AT)
