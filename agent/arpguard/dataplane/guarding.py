"""Whose BPF programs are on the links of this network namespace, and which guards are pinned for them."""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from arpguard.core.checkup.snapshot import AttachedProgram, Guard, Unread
from arpguard.dataplane import clsact, loader, syscall
from arpguard.dataplane.attach import Pin, read_pins
from arpguard.dataplane.build import PROGRAM_AT
from arpguard.dataplane.iproute import AsyncIPRoute, NetlinkError
from arpguard.dataplane.maps import ControlValue, EntryTable
from arpguard.errors import DataPlaneError
from arpguard.model import Link
from arpguard.verdict import Hook

BPFFS = Path("/sys/fs/bpf")
_DEPTH = 3
_TCX = {"tcx ingress": syscall.ATTACH_TCX_INGRESS, "tcx egress": syscall.ATTACH_TCX_EGRESS}
_CLSACT = {"clsact ingress": Hook.TC_INGRESS, "clsact egress": Hook.TC_EGRESS}
_LOCK = re.compile(r"FLOCK\s+ADVISORY\s+WRITE\s+\S+\s+([0-9a-f]+):([0-9a-f]+):(\d+)\s")


async def read_guards(
    links: Iterable[Link], pin_dir: Path, root: Path = BPFFS
) -> tuple[tuple[Guard, ...] | Unread, tuple[AttachedProgram, ...] | Unread]:
    """The guards that have programs on these links, that of `pin_dir` first; and all programs on the links."""
    if os.geteuid() != 0:
        return Unread("only root can read pinned objects: run as root"), Unread(
            "only root can read BPF programs: run as root"
        )

    folders = dict.fromkeys((pin_dir, *_pin_folders(root)))
    pins = {folder: _pins(folder) for folder in folders}
    owners = {pin.info.program_id: str(folder) for folder, found in pins.items() for pin in found}

    try:
        attached = await _read_attached()
        programs = tuple([each for link in links for each in await _programs_on(link, attached, owners)])
    except (NetlinkError, OSError) as error:
        why = f"cannot read BPF programs ({error}): run as root"
        return Unread(why), Unread(why)

    here = {(each.ifindex, each.id) for each in programs if each.ours}
    filters = any(each.ours and each.hook in _CLSACT for each in programs)
    guards = []

    for folder, found in pins.items():
        is_here = any((pin.info.ifindex, pin.info.program_id) in here for pin in found)
        if is_here or (folder == pin_dir and filters):
            guards.append(_guard(folder))

    return tuple(guards), programs


def _pin_folders(root: Path, depth: int = _DEPTH) -> Iterator[Path]:
    """Folders of agents below `root`: those with maps or links as an agent names them."""
    try:
        names = [entry.name for entry in os.scandir(root) if entry.is_dir(follow_symlinks=False)]
    except OSError:  # gone meanwhile
        return
    if any(name.startswith("maps-") for name in names):
        yield root
    elif depth:
        for name in sorted(names):
            yield from _pin_folders(root / name, depth - 1)


def _pins(folder: Path) -> list[Pin]:
    try:
        return read_pins(folder)
    except OSError:  # an agent is at work there
        return []


@dataclass(frozen=True, slots=True)
class _Attached:
    """XDP programs by link, and the links with a clsact qdisc: a node has hundreds of links, and few with either."""

    xdp: dict[int, int]
    clsact: frozenset[int]


async def _read_attached() -> _Attached:
    async with AsyncIPRoute() as ipr:
        messages = [message async for message in await ipr.link("dump")]
        found = {message["index"]: message.get_attr("IFLA_XDP") for message in messages}
        xdp = {
            ifindex: about.get_attr("IFLA_XDP_PROG_ID") or 0 for ifindex, about in found.items() if about is not None
        }
        qdiscs = [message async for message in await ipr.get_qdiscs()]
    return _Attached(xdp, frozenset(each["index"] for each in qdiscs if each.get_attr("TCA_KIND") == "clsact"))


async def _programs_on(link: Link, attached: _Attached, owners: dict[int, str]) -> list[AttachedProgram]:
    """XDP, TCX and clsact, each in the order of its hook."""
    xdp = attached.xdp.get(link.ifindex, 0)
    found = [_program(link, "xdp", 0, xdp, owners)] if xdp else []
    for hook, attach_type in _TCX.items():
        found += [_program(link, hook, place, number, owners) for place, number in enumerate(_tcx(link, attach_type))]
    for hook, direction in _CLSACT.items():
        filters = await clsact.read_filters(link.ifindex, direction) if link.ifindex in attached.clsact else []
        found += [
            AttachedProgram(link.ifindex, hook, place, each.program_id, each.name, each.is_ours)
            for place, each in enumerate(filters)
        ]
    return found


def _tcx(link: Link, attach_type: int) -> list[int]:
    try:
        return syscall.program_query(link.ifindex, attach_type)
    except OSError:  # no TCX in this kernel, or the link has gone
        return []


def _program(link: Link, hook: str, place: int, number: int, owners: dict[int, str]) -> AttachedProgram:
    name = _name(number)
    pin_dir = owners.get(number, "")
    is_ours = bool(pin_dir) or name in PROGRAM_AT.values()
    return AttachedProgram(link.ifindex, hook, place, number, name, is_ours, pin_dir)


def _name(number: int) -> str:
    try:
        with syscall.program_by_id(number) as program:
            return syscall.program_info(program).name
    except OSError:  # gone, or CAP_SYS_ADMIN is missing
        return ""


def _guard(folder: Path) -> Guard:
    try:
        maps = loader.open_maps(folder)
        entries = EntryTable(maps["entries"], maps["counters"]).read().entries
        control = ControlValue(maps["control"]).read()
    except (DataPlaneError, OSError, ValueError):  # of another version, or gone meanwhile
        return Guard(str(folder), is_locked(folder))
    return Guard(str(folder), is_locked(folder), control.mode if control else None, entries)


def is_locked(folder: Path, locks: Path = Path("/proc/locks")) -> bool | None:
    """Whether a process has the folder locked; None when that cannot be seen. Trying to lock it might stop an agent."""
    try:
        found, text = folder.stat(), locks.read_text(encoding="ascii")
    except OSError:
        return None
    wanted = (os.major(found.st_dev), os.minor(found.st_dev), found.st_ino)
    return any((int(m[1], 16), int(m[2], 16), int(m[3])) == wanted for m in _LOCK.finditer(text))
