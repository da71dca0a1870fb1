"""Builds that are not shipped: of changed sources, or of changed instructions, which need no compiler."""

import struct
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from arpguard.dataplane.build import Build, Program, read_build

BPF = Path(__file__).parents[3] / "bpf"
_LINES = 10
_ONE_MORE = struct.pack("=BBhi", 0xB7, 0, 0, 0)  # r0 = 0


def compiled_text(source: Path) -> str:
    """What `make programs` would write of the sources in a folder; RuntimeError where they do not compile."""
    with tempfile.TemporaryDirectory(prefix="arpguard-compiled-") as folder:
        file = Path(folder, "programs.json")
        command = [sys.executable, "-m", "arpguard_build", "--source", str(source), "--output", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode != 0:
            raise RuntimeError("\n".join(done.stderr.splitlines()[-_LINES:]))
        return file.read_text(encoding="ascii")


def compiled(source: Path) -> Build:
    """The programs in a folder, compiled."""
    return build_of(compiled_text(source))


def build_of(text: str) -> Build:
    """The build that a text describes."""
    with tempfile.NamedTemporaryFile("w", prefix="arpguard-compiled-", encoding="ascii") as file:
        file.write(text)
        file.flush()
        return read_build(path=Path(file.name))


def another_build(build: Build) -> Build:
    """The same programs with an instruction more, which does nothing: another digest, the same maps."""
    return replace(build, programs={name: _longer(program) for name, program in build.programs.items()})


def _longer(program: Program) -> Program:
    map_loads = {name: tuple(number + 1 for number in numbers) for name, numbers in program.map_loads.items()}
    return replace(program, code=_ONE_MORE + program.code, map_loads=map_loads)
