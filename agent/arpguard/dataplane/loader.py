"""Programs and maps of this node: reopened from their pins, or compiled when the pins are not of this source.

<pin_dir>/maps-<geometry>/<map>          survive the agent, and every upgrade that keeps their layout
<pin_dir>/programs-<digest>/<program>    one folder per build
<pin_dir>/links/<ifindex>-<hook>         see attach.py
"""

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from arpguard.dataplane import bpffs, layout, privileges, syscall
from arpguard.dataplane.headers import find_headers
from arpguard.dataplane.source import MAPS, PROGRAMS, ProgramSource
from arpguard.dataplane.syscall import Fd
from arpguard.errors import DataPlaneError

_MAP_SIZES = {
    "entries": (ctypes.sizeof(layout.EntryKeyStruct), ctypes.sizeof(layout.EntryStruct)),
    "ranges": (ctypes.sizeof(layout.RangeKeyStruct), ctypes.sizeof(layout.EntryStruct)),
    "counters": (4, ctypes.sizeof(layout.CountersStruct)),
    "totals": (4, ctypes.sizeof(layout.Totals)),
    "control": (4, ctypes.sizeof(layout.ControlStruct)),
}


@dataclass(frozen=True, slots=True)
class Loaded:
    """Open programs and maps by name. `warm`: reopened, not compiled; `digest` is the build's."""

    programs: dict[str, Fd]
    maps: dict[str, Fd]
    digest: str
    warm: bool


def load(pin_dir: Path, source: ProgramSource) -> Loaded:
    """Opens the pinned programs of `source`, or compiles and pins them (in a child process).

    Other builds stay pinned until `discard_others`. Raises DataPlaneError.
    """
    maps_dir, programs_dir = _folders(pin_dir, source)
    reopened = _reopen(maps_dir, programs_dir, source)
    if reopened is not None:
        return reopened
    maps_dir.mkdir(mode=0o700, exist_ok=True)
    with bpffs.wait_for(maps_dir):  # an agent in standby compiles beside the one that runs
        reopened = _reopen(maps_dir, programs_dir, source)
        if reopened is None:
            bpffs.remove(programs_dir)
            _compile(maps_dir, programs_dir, source)
    return reopened or _open(maps_dir, programs_dir, source.digest(), warm=False)


def _reopen(maps_dir: Path, programs_dir: Path, source: ProgramSource) -> Loaded | None:
    """What is pinned of this source; None where that is not all of it."""
    try:
        return _open(maps_dir, programs_dir, source.digest(), warm=True)
    except FileNotFoundError:
        return None
    except PermissionError:
        raise DataPlaneError(privileges.refusal()) from None


def keep_pinned(pin_dir: Path, source: ProgramSource, loaded: Loaded) -> int:
    """Pins again what somebody has unpinned, and says how much that was: by its pins the next agent finds it."""
    maps_dir, programs_dir = _folders(pin_dir, source)
    pins = {maps_dir / name: fd for name, fd in loaded.maps.items()}
    pins |= {programs_dir / name: fd for name, fd in loaded.programs.items()}
    missing = [path for path in pins if not path.exists()]
    if missing:
        bpffs.prepare(pin_dir)  # it may be gone itself, or made anew for a link's pin, with the mode of any folder
    for path in missing:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        syscall.obj_pin(pins[path], str(path))
    return len(missing)


def open_maps(pin_dir: Path) -> dict[str, Fd]:
    """The maps that an agent on `pin_dir` has pinned, for reading; DataPlaneError when there are none.

    While an upgrade is under way the newest are taken.
    """
    return _open_newest(pin_dir, "maps-*", MAPS)


def open_programs(pin_dir: Path) -> dict[str, Fd]:
    """The programs that an agent on `pin_dir` has pinned, and their twins; DataPlaneError when there are none."""
    return _open_newest(pin_dir, "programs-*", PROGRAMS)


def _open_newest(pin_dir: Path, pattern: str, names: Sequence[str]) -> dict[str, Fd]:
    try:
        # Not by glob, to which a folder that may not be read is an empty one.
        folders = [path for path in pin_dir.iterdir() if path.match(pattern)]
        newest = max(folders, key=lambda path: path.stat().st_mtime)
        return {name: syscall.obj_get(str(newest / name)) for name in names}
    except (FileNotFoundError, ValueError):  # max() of none
        reason = "nothing is pinned there"
    except PermissionError:
        raise DataPlaneError(f"{pin_dir} may not be read: run as root") from None
    except OSError as error:
        reason = error.strerror or "unreadable"
    raise DataPlaneError(f"no arpguard data plane under {pin_dir} ({reason}): start `arpguard agent`, as root")


def has_other_maps(pin_dir: Path, source: ProgramSource) -> bool:
    """Whether another build has left maps, and so programs, perhaps as filters, which are not pinned."""
    own, _ = _folders(pin_dir, source)
    return any(folder != own for folder in pin_dir.glob("maps-*"))


def discard_others(pin_dir: Path, source: ProgramSource) -> None:
    """Unpins programs and maps of other builds, once no link uses them."""
    keep = _folders(pin_dir, source)
    for pattern in ("maps-*", "programs-*"):
        for folder in pin_dir.glob(pattern):
            if folder not in keep:
                bpffs.remove(folder)


def _folders(pin_dir: Path, source: ProgramSource) -> tuple[Path, Path]:
    return pin_dir / f"maps-{source.geometry()}", pin_dir / f"programs-{source.digest()}"


def _open(maps_dir: Path, programs_dir: Path, digest: str, *, warm: bool) -> Loaded:
    maps = {name: syscall.obj_get(str(maps_dir / name)) for name in MAPS}
    for name, sizes in _MAP_SIZES.items():
        info = syscall.map_info(maps[name])
        if (info.key_size, info.value_size) != sizes:
            raise DataPlaneError(
                f"{maps_dir / name} is no map of this arpguard (sizes {info.key_size}, {info.value_size} instead of "
                f"{sizes[0]}, {sizes[1]}): run `arpguard cleanup` and start the agent again"
            )
    programs = {name: syscall.obj_get(str(programs_dir / name)) for name in PROGRAMS}
    return Loaded(programs, maps, digest, warm)


def _compile(maps_dir: Path, programs_dir: Path, source: ProgramSource) -> None:
    headers = find_headers()
    building = programs_dir.with_name(programs_dir.name + "-building")
    bpffs.remove(building)
    building.mkdir(mode=0o700)

    task = {
        "parent": os.getpid(),
        "source": str(source.folder / "arpguard.c"),
        "cflags": source.defines(maps_dir) + [f"-I{folder}" for folder in headers.include_dirs],
        "kernel_source": str(headers.kernel_source) if headers.kernel_source else "",
        "pins": str(building),
    }

    child = subprocess.run(  # noqa: S603 - our own module, no shell
        [sys.executable, "-m", "arpguard.dataplane.compiler", json.dumps(task)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )

    if child.returncode != 0:
        bpffs.remove(building)
        raise DataPlaneError(_compile_failure(child.stderr))
    building.rename(programs_dir)


def _compile_failure(text: str) -> str:
    """One line of what the child said: its own sentence, or the compiler's or verifier's last word."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if "Operation not permitted" in text:
        return privileges.refusal()
    if "Function not implemented" in text:
        return "this kernel has no BPF (bpf(2): ENOSYS): use one with CONFIG_BPF_SYSCALL"
    telling = [line for line in lines if "error:" in line] or lines[-1:] or ["no reason given"]
    return f"bpf/arpguard.c could not be loaded: {telling[0]}; please report it with this text"
