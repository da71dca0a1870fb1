"""A release is made again, from another clone in another folder: `make release` runs it."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from deploy.locks import ROOT
from deploy.releasing import sums

FETCHED = ("amd64", "arm64")  # of .cache/image: packages of Debian's and Python's
pytestmark = [
    pytest.mark.timeout(7200),
    pytest.mark.skipif(
        "ARPGUARD_TEST_RELEASE" not in os.environ,
        reason="ARPGUARD_TEST_RELEASE names no folder: `make release` fills one and tests it",
    ),
]


def test_another_clone_in_another_folder_gives_the_same_bytes():
    made = sums(Path(os.environ["ARPGUARD_TEST_RELEASE"]))
    with tempfile.TemporaryDirectory(prefix="again-", dir=ROOT / ".cache", ignore_cleanup_errors=True) as folder:
        clone = Path(folder, "a clone")
        subprocess.run(["git", "clone", "--quiet", "--no-local", ROOT, clone], check=True)
        cache = clone / ".cache/image"
        cache.mkdir(parents=True)
        subprocess.run(["cp", "-al", *(ROOT / ".cache/image" / name for name in FETCHED), cache], check=True)

        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((f"{clone}/agent", f"{clone}/deploy/image"))}
        subprocess.run([sys.executable, clone / "deploy/release/build.py"], env=environment, check=True)
        assert sums(clone / "dist") == made
