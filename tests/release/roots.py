"""Clean systems: Debian's minbase in a folder, entered as a machine that has just started."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from fresh.run import a_system, enter


@dataclass(frozen=True)
class Clean:
    """A root that has nothing but minbase, git and make; `folder` is where the machine sees it."""

    folder: Path

    def put(self, *files: Path) -> None:
        """Copies files to /srv."""
        for file in files:
            shutil.copy(file, self.folder / "srv")

    def run(self, script: str) -> str:
        """Runs a shell script in it, in /srv; what it printed, its errors too. It has to succeed."""
        words = enter(self.folder, "/srv", f"set -euo pipefail\n{script}")
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    @property
    def name(self) -> str:
        """The distribution's own, such as "Debian 12"."""
        text = (self.folder / "etc/os-release").read_text(encoding="utf-8")
        return " ".join(re.search(rf'^{key}="?(\w+)', text, re.MULTILINE)[1] for key in ("NAME", "VERSION_ID"))


@contextmanager
def a_clean(suite: str) -> Iterator[Clean]:
    """One of a Debian release; removed in the end."""
    if shutil.which("debootstrap") is None:
        pytest.skip("debootstrap is not installed (Debian: debootstrap)")
    with a_system(suite) as folder:
        yield Clean(folder)
