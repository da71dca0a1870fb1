"""The scripts that make a release, and a checkout's files to make it from."""

import subprocess
import sys
from pathlib import Path

from deploy.locks import ROOT

for _folder in ("deploy/image", "deploy/release"):  # scripts, which import each other from there
    sys.path.append(str(ROOT / _folder))

from artefacts import Work  # noqa: E402 - found by the above
from stamp import release_of  # noqa: E402 - as above

NEEDED = ("agent", "deploy", "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", ".gitignore")
AT = 1_700_000_000  # seconds since 1970


def a_work(folder: Path) -> Work:
    """A release of this checkout as it is, with all that is not committed."""
    stage, out = folder / "stage", folder / "out"
    stage.mkdir(parents=True)
    out.mkdir()
    subprocess.run(["cp", "-r", *(ROOT / name for name in NEEDED), stage], check=True)
    return Work(stage, out, release_of(ROOT), "0" * 40, AT)
