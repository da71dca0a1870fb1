"""The wheel of a checkout."""

import subprocess
import sys
import zipfile
from pathlib import Path

from deploy.locks import ROOT


def files_of_wheel(folder: Path) -> set[str]:
    """Its metadata left out."""
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def test_wheel_has_the_lab_and_not_what_compiles_the_programs(tmp_path):
    assert {name.partition("/")[0] for name in files_of_wheel(tmp_path)} == {"arpguard", "arpguard_lab"}


def test_wheel_has_the_programs_and_not_their_sources(tmp_path):
    files = files_of_wheel(tmp_path)
    assert "arpguard/dataplane/programs.json" in files
    assert not [name for name in files if name.endswith((".c", ".h"))]
