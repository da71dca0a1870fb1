"""Programs as direct-action filters of the clsact qdisc: how tc hooks are reached on kernels before 6.6.

Only filters whose name starts with `arpguard_` are ever replaced or deleted; the qdisc itself stays, because
removing it would remove other programs' filters. The name also carries the program's id, which pyroute2 0.9 does not
decode (TCA_BPF_ID).
"""

import errno
from dataclasses import dataclass
from itertools import product
from typing import Any

from arpguard.dataplane import syscall
from arpguard.dataplane.iproute import AsyncIPRoute, NetlinkError
from arpguard.dataplane.syscall import Fd
from arpguard.errors import DataPlaneError
from arpguard.verdict import Hook

_PARENT = {Hook.TC_INGRESS: 0xFFFFFFF2, Hook.TC_EGRESS: 0xFFFFFFF3}
_QDISCS = ("clsact", "ingress")  # that have filters at these parents
_NAME = "arpguard_"
_HANDLE = 1


@dataclass(frozen=True, slots=True)
class Filter:
    """A BPF filter as the kernel lists it; filters run in the order of `prio`. `program_id` is 0 for other people's."""

    name: str
    program_id: int
    prio: int

    @property
    def is_ours(self) -> bool:
        """Whether this is a filter of arpguard."""
        return self.name.startswith(_NAME)


async def ensure(ifindex: int, hook: Hook, program: Fd) -> tuple[int, bool]:
    """Makes the program run at the hook, at the first free priority: (its id, whether it was not there).

    A running filter of arpguard is replaced in place, without a gap. Raises DataPlaneError.
    """
    wanted = syscall.program_info(program).id
    try:
        async with AsyncIPRoute() as ipr:
            filters = await _list(ipr, ifindex, hook)
            ours = next((found for found in filters if found.is_ours), None)
            if ours is None:
                await _add_qdisc(ipr, ifindex)
            if ours is None or ours.program_id != wanted:
                taken = {found.prio for found in filters}
                prio = ours.prio if ours else next(n for n in range(1, len(taken) + 2) if n not in taken)
                await _replace(ipr, ifindex, hook, program, prio)
    except NetlinkError as error:
        raise DataPlaneError(f"cannot attach to interface {ifindex} via clsact ({error})") from error
    return wanted, ours is None


async def runs_first(ifindex: int, hook: Hook) -> bool:
    """Whether no other BPF filter runs before arpguard's."""
    filters = await read_filters(ifindex, hook)
    return not filters or filters[0].is_ours


async def delete(ifindex: int, hook: Hook) -> None:
    """Deletes arpguard's filters at the hook."""
    async with AsyncIPRoute() as ipr:
        for found in await _list(ipr, ifindex, hook):
            if found.is_ours:
                await ipr.tc("del-filter", "bpf", ifindex, f":{_HANDLE}", parent=_PARENT[hook], prio=found.prio)


async def delete_all() -> None:
    """Deletes every filter of arpguard in this network namespace."""
    for ifindex, hook in await find_all():
        await delete(ifindex, hook)


async def find_all() -> list[tuple[int, Hook]]:
    """Where this network namespace has filters of arpguard: indexes of links, and hooks."""
    async with AsyncIPRoute() as ipr:
        found = []
        for ifindex, hook in product(await _with_filters(ipr), _PARENT):
            if any(each.is_ours for each in await _list(ipr, ifindex, hook)):
                found.append((ifindex, hook))
        return found


async def read_filters(ifindex: int, hook: Hook) -> list[Filter]:
    """The BPF filters at a hook, in the order they run."""
    async with AsyncIPRoute() as ipr:
        return sorted(await _list(ipr, ifindex, hook), key=lambda found: found.prio)


async def _with_filters(ipr: AsyncIPRoute) -> list[int]:
    """The links, by index, that may have filters: one answer for all, however many links there are."""
    try:
        messages = [message async for message in await ipr.get_qdiscs()]
    except NetlinkError:  # a kernel without traffic control
        return []
    return sorted({message["index"] for message in messages if message.get_attr("TCA_KIND") in _QDISCS})


async def _list(ipr: AsyncIPRoute, ifindex: int, hook: Hook) -> list[Filter]:
    try:
        messages = [message async for message in await ipr.get_filters(index=ifindex, parent=_PARENT[hook])]
    except NetlinkError:  # no clsact here
        return []
    return [found for message in messages if (found := _filter(message)) is not None]


def _filter(message: Any) -> Filter | None:
    options = message.get_attr("TCA_OPTIONS")
    if message.get_attr("TCA_KIND") != "bpf" or options is None:
        return None  # the line that only names the chain has no options
    name = options.get_attr("TCA_BPF_NAME") or ""
    number = name.rpartition("_")[2] if name.startswith(_NAME) else ""
    return Filter(name, int(number) if number.isdecimal() else 0, message["info"] >> 16)


async def _add_qdisc(ipr: AsyncIPRoute, ifindex: int) -> None:
    try:
        await ipr.tc("add", "clsact", ifindex)
    except NetlinkError as error:
        if error.code != errno.EEXIST:
            raise


async def _replace(ipr: AsyncIPRoute, ifindex: int, hook: Hook, program: Fd, prio: int) -> None:
    await ipr.tc(
        "replace-filter",
        "bpf",
        ifindex,
        f":{_HANDLE}",
        fd=program.number,
        name=f"{_NAME}{hook.name.lower()}_{syscall.program_info(program).id}",
        parent=_PARENT[hook],
        classid=1,
        direct_action=True,
        prio=prio,
    )
