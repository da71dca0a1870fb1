"""The wheel: whole from a checkout, and without the lab from what the image is built of."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from deploy.locks import ROOT

PARTS = ("LICENSE", "README.md", "pyproject.toml", "agent")
LAB = "agent/arpguard_lab"


def files_of_wheel(top: Path) -> set[str]:
    """Of a wheel that is built of the files there; its metadata left out."""
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(top / "dist")]
    subprocess.run(words, cwd=top, capture_output=True, text=True, check=True)
    (wheel,) = (top / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def folders_of_wheel(top: Path) -> set[str]:
    """Its folders at the top."""
    return {name.partition("/")[0] for name in files_of_wheel(top)}


def copied(folder: Path, *, without: frozenset[str]) -> Path:
    for name in PARTS:
        part = ROOT / name
        if part.is_file():
            shutil.copy(part, folder)
        else:
            shutil.copytree(part, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in without:
        shutil.rmtree(folder / name)
    return folder


def left_out_of_the_image() -> frozenset[str]:
    """What the build of the image does not see of the folders that it takes."""
    lines = (ROOT / "deploy/image/containerignore").read_text(encoding="utf-8").split()
    return frozenset(line for line in lines if not line.startswith(("!", "*")))


def test_wheel_of_a_checkout_has_the_lab(tmp_path):
    assert folders_of_wheel(copied(tmp_path, without=frozenset())) == {"arpguard", "arpguard_lab"}


def test_wheel_of_the_image_has_no_lab(tmp_path):
    assert LAB in left_out_of_the_image()
    assert folders_of_wheel(copied(tmp_path, without=left_out_of_the_image())) == {"arpguard"}


def test_wheel_has_the_programs_and_not_their_sources(tmp_path):
    files = files_of_wheel(copied(tmp_path, without=frozenset()))
    assert "arpguard/dataplane/programs.json" in files
    assert not [name for name in files if name.endswith((".c", ".h"))]
