"""Programs and maps of this node: reopened from their pins, or loaded when what is pinned is of another build.

<pin_dir>/maps-<geometry>/<map>          survive the agent, and every upgrade that keeps their layout; all or none
<pin_dir>/programs-<digest>/<program>    one folder per build
<pin_dir>/links/<ifindex>-<hook>         see attach.py
"""

import ctypes
import errno
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from arpguard.dataplane import bpffs, btf, layout, privileges, syscall
from arpguard.dataplane.build import MAPS, PROGRAMS, Build, MapShape, Program
from arpguard.dataplane.syscall import Fd
from arpguard.errors import DataPlaneError

# Of keys and values; a ring buffer has none.
_TYPES: Mapping[str, tuple[btf.CType, btf.CType]] = {
    "entries": (layout.EntryKeyStruct, layout.EntryStruct),
    "ranges": (layout.RangeKeyStruct, layout.EntryStruct),
    "counters": (ctypes.c_uint32, layout.CountersStruct),
    "totals": (ctypes.c_uint32, layout.Totals),
    "control": (ctypes.c_uint32, layout.ControlStruct),
    "vouching": (ctypes.c_uint32, layout.VouchingStruct),
    "grants": (ctypes.c_uint32, layout.GrantsStruct),
}


@dataclass(frozen=True, slots=True)
class Loaded:
    """Open programs and maps by name. `warm`: reopened, not loaded."""

    programs: dict[str, Fd]
    maps: dict[str, Fd]
    warm: bool


def load(pin_dir: Path, build: Build) -> Loaded:
    """Opens the pinned programs of `build`, or loads and pins them.

    Other builds stay pinned until `discard_others`. Raises DataPlaneError.
    """
    maps_dir, programs_dir = _folders(pin_dir, build)
    reopened = _reopen(maps_dir, programs_dir, build)
    if reopened is not None:
        return reopened
    maps_dir.mkdir(mode=0o700, exist_ok=True)
    with bpffs.wait_for(maps_dir):  # an agent in standby loads beside the one that runs
        reopened = _reopen(maps_dir, programs_dir, build)
        if reopened is None:
            bpffs.remove(programs_dir)
            _load(maps_dir, programs_dir, build)
    return reopened or _open(maps_dir, programs_dir, build, warm=False)


def load_attached(pin_dir: Path, build: Build, names: Collection[str]) -> Loaded:
    """Opens or makes the pinned maps, and loads some programs that are to live by what they are attached to.

    The agent after this finds the maps, and replaces the programs. Raises DataPlaneError.
    """
    maps_dir, _ = _folders(pin_dir, build)
    maps_dir.mkdir(mode=0o700, exist_ok=True)
    with bpffs.wait_for(maps_dir):
        programs, maps = _load_with_maps(maps_dir, build, names)
    return Loaded(programs, maps, warm=False)


def load_unpinned(build: Build, names: Collection[str] = PROGRAMS) -> Loaded:
    """Programs of these names, and all maps, which only this process has and which go with it.

    The verifier takes up to 0.1 s for each program (Linux 6.18). Raises DataPlaneError.
    """
    maps = _make_maps(build)
    return Loaded(_load_programs(build, maps, names), maps, warm=False)


def _reopen(maps_dir: Path, programs_dir: Path, build: Build) -> Loaded | None:
    """What is pinned of this build; None where that is not all of it."""
    try:
        return _open(maps_dir, programs_dir, build, warm=True)
    except FileNotFoundError:
        return None
    except PermissionError:
        raise DataPlaneError(privileges.refusal()) from None


def pins_of(pin_dir: Path, build: Build, loaded: Loaded) -> dict[Path, Fd]:
    """What is pinned where, so that the next agent finds it."""
    maps_dir, programs_dir = _folders(pin_dir, build)
    pins = {maps_dir / name: fd for name, fd in loaded.maps.items()}
    return pins | {programs_dir / name: fd for name, fd in loaded.programs.items()}


def keep_pinned(pin_dir: Path, pins: Mapping[Path, Fd]) -> int:
    """Pins again what another program has unpinned, and returns how much that was."""
    missing = [path for path in pins if not path.exists()]
    if missing:
        bpffs.prepare(pin_dir)  # it may be gone, or was created again for a link's pin, with the mode of any folder
    for path in missing:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        syscall.obj_pin(pins[path], str(path))
    return len(missing)


def open_maps(pin_dir: Path) -> dict[str, Fd]:
    """The maps that an agent on `pin_dir` has pinned, for reading; DataPlaneError when there are none.

    While an upgrade is under way, it opens the newest ones.
    """
    with _saying_what_to_do(pin_dir):
        return _newest_first(pin_dir, "maps-*", MAPS)[0]


def open_guard(pin_dir: Path, attached: Collection[int]) -> tuple[dict[str, Fd], dict[str, Fd]]:
    """The programs that an agent on `pin_dir` has pinned, and the maps that they use; DataPlaneError if there are none.

    While an upgrade is under way there are several builds: the one with a program among `attached`, which are the
    kernel's numbers, is taken, else the newest.
    """
    with _saying_what_to_do(pin_dir):
        builds = _newest_first(pin_dir, "programs-*", PROGRAMS)
        programs = max(builds, key=lambda build: any(syscall.program_info(fd).id in attached for fd in build.values()))
        used = set(syscall.program_maps(programs["ingress_tc"]))
        fitting = [maps for maps in _newest_first(pin_dir, "maps-*", MAPS) if used <= _numbers(maps)]
        return programs, fitting[0]


def _numbers(maps: Mapping[str, Fd]) -> set[int]:
    return {syscall.map_info(fd).id for fd in maps.values()}


def _newest_first(pin_dir: Path, pattern: str, names: Sequence[str]) -> list[dict[str, Fd]]:
    """The pins of complete folders: others are being loaded, or were put aside."""
    # Not by glob, to which a folder that may not be read is an empty one.
    folders = [path for path in pin_dir.iterdir() if path.match(pattern)]
    found = []
    for folder in sorted(folders, key=lambda path: path.stat().st_mtime, reverse=True):
        with suppress(FileNotFoundError):
            found.append({name: syscall.obj_get(str(folder / name)) for name in names})
    return found


@contextmanager
def _saying_what_to_do(pin_dir: Path) -> Iterator[None]:
    """Makes a DataPlaneError of what fails when pins are opened."""
    try:
        yield
    except (FileNotFoundError, IndexError, ValueError):  # the first, or max(), of none
        reason = "nothing is pinned there"
    except PermissionError:
        raise DataPlaneError(f"not permitted to read {pin_dir}: run as root") from None
    except OSError as error:
        reason = error.strerror or "unreadable"
    else:
        return
    raise DataPlaneError(f"no arpguard data plane under {pin_dir} ({reason}): start `arpguard agent`, as root")


def has_other_maps(pin_dir: Path, build: Build) -> bool:
    """Whether another build has left maps, and so programs, perhaps as filters, which are not pinned."""
    own, _ = _folders(pin_dir, build)
    return any(folder != own for folder in pin_dir.glob("maps-*"))


def discard_others(pin_dir: Path, build: Build) -> None:
    """Unpins programs and maps of other builds, once no link uses them."""
    keep = _folders(pin_dir, build)
    for pattern in ("maps-*", "programs-*"):
        for folder in pin_dir.glob(pattern):
            if folder not in keep:
                bpffs.remove(folder)


def _folders(pin_dir: Path, build: Build) -> tuple[Path, Path]:
    return pin_dir / f"maps-{build.geometry()}", pin_dir / f"programs-{build.digest()}"


def _open(maps_dir: Path, programs_dir: Path, build: Build, *, warm: bool) -> Loaded:
    maps = _open_maps(maps_dir, build)
    programs = {name: syscall.obj_get(str(programs_dir / name)) for name in PROGRAMS}
    return Loaded(programs, maps, warm)


def _open_maps(maps_dir: Path, build: Build) -> dict[str, Fd]:
    return {name: _open_map(maps_dir / name, shape) for name, shape in build.maps().items()}


def _open_map(path: Path, shape: MapShape) -> Fd:
    fd = syscall.obj_get(str(path))
    info = syscall.map_info(fd)
    if (info.key_size, info.value_size) != (shape.key_size, shape.value_size):
        raise DataPlaneError(
            f"{path} is not a map of this version of arpguard (key and value have {info.key_size} and "
            f"{info.value_size} bytes, not {shape.key_size} and {shape.value_size}): run `arpguard cleanup`, and start "
            "the agent again"
        )
    return fd


def _load(maps_dir: Path, programs_dir: Path, build: Build) -> None:
    """Pins programs, which are there together or not at all, and maps."""
    programs, _ = _load_with_maps(maps_dir, build, PROGRAMS)
    loading = programs_dir.with_name(programs_dir.name + "-loading")
    bpffs.remove(loading)
    loading.mkdir(mode=0o700)
    for name, fd in programs.items():
        syscall.obj_pin(fd, str(loading / name))
    loading.rename(programs_dir)


def _load_with_maps(maps_dir: Path, build: Build, names: Collection[str]) -> tuple[dict[str, Fd], dict[str, Fd]]:
    """Programs, with the pinned maps or with new ones.

    Maps belong together: if one is missing, the others allow too much. Without `grants`, entries would hold by the
    API's fence alone (docs/vouching-rules.md, V10).
    """
    kept = _complete(maps_dir, build)
    maps = kept or _make_maps(build)
    programs = _load_programs(build, maps, names)
    if not kept:
        _put_aside(maps_dir)
        for name, fd in maps.items():
            syscall.obj_pin(fd, str(maps_dir / name))
    return programs, maps


def _complete(maps_dir: Path, build: Build) -> dict[str, Fd]:
    """The pinned maps; none if any is missing."""
    try:
        return _open_maps(maps_dir, build)
    except FileNotFoundError:
        return {}


def _put_aside(maps_dir: Path) -> None:
    """Moves the maps that are left to a folder of their own: like those of another build they stay for a while.

    Programs that use them may still be attached.
    """
    left = list(maps_dir.iterdir())
    if left:
        aside = maps_dir.with_name(maps_dir.name + "-incomplete")
        aside.mkdir(mode=0o700, exist_ok=True)
        for path in left:
            path.rename(aside / path.name)


def _make_maps(build: Build) -> dict[str, Fd]:
    types = btf.Types()
    numbers = {name: (types.number_of(key), types.number_of(value)) for name, (key, value) in _TYPES.items()}
    described: Fd | None = None
    with suppress(OSError):  # it is for people to read
        described = syscall.btf_load(types.encoded())

    maps = {}
    for name, shape in build.maps().items():
        about = (described.number, *numbers[name]) if described and name in numbers else syscall.UNDESCRIBED
        maps[name] = _make_map(name, shape, about)
    return maps


def _make_map(name: str, shape: MapShape, types: tuple[int, int, int]) -> Fd:
    sizes = shape.key_size, shape.value_size, shape.max_entries
    try:
        return syscall.map_create(name, syscall.MAP_TYPES[shape.type], sizes, shape.flags, types)
    except OSError as error:
        raise _refused(f"to create the map `{name}` with room for {shape.max_entries}", error) from error


def _load_programs(build: Build, maps: Mapping[str, Fd], names: Collection[str]) -> dict[str, Fd]:
    """Side by side: most of a cold start is the verifier's, which takes one CPU for each program."""
    descriptors = {name: fd.number for name, fd in maps.items()}
    with ThreadPoolExecutor() as pool:
        loaded = pool.map(lambda name: _load_program(name, build.programs[name], descriptors), names)
        return dict(zip(names, loaded, strict=True))


def _load_program(name: str, program: Program, descriptors: Mapping[str, int]) -> Fd:
    try:
        return syscall.program_load(syscall.PROGRAM_TYPES[program.type], program.with_maps(descriptors), name)
    except syscall.VerifierError as error:
        raise DataPlaneError(
            f"the kernel's verifier refuses the program {name}: {error.strerror}; please report this as a bug"
        ) from error
    except OSError as error:
        raise _refused(f"to load the program `{name}`", error) from error


def _refused(what: str, error: OSError) -> DataPlaneError:
    if error.errno == errno.EPERM:
        return DataPlaneError(privileges.refusal())
    if error.errno == errno.ENOSYS:
        return DataPlaneError("this kernel has no BPF (bpf(2): ENOSYS): use one with CONFIG_BPF_SYSCALL")
    return DataPlaneError(f"the kernel refuses {what} ({error.strerror})")
