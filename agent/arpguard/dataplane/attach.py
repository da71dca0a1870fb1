"""Programs on links: attached so that they outlive the agent, replaced without a gap, and never in others' way.

| how    | where                        | survives by            | replaced by           |
|--------|------------------------------|------------------------|-----------------------|
| tcx    | kernel 6.6 and newer         | pinned bpf_link        | LINK_UPDATE           |
| clsact | older kernels                | the filter itself      | replace-filter        |
| xdp    | on request, native mode only | pinned bpf_link (5.9)  | LINK_UPDATE           |

TCX links go to the head of the list, so that another program's TC_ACT_OK does not hide frames from the guard.
"""

import errno
from dataclasses import dataclass
from pathlib import Path

from pyroute2 import AsyncIPRoute
from pyroute2.netlink.exceptions import NetlinkError

from arpguard.dataplane import syscall
from arpguard.dataplane.syscall import Fd
from arpguard.errors import AttachConflictError, DataPlaneError
from arpguard.model import Attachment
from arpguard.verdict import Hook

_PROGRAM = {Hook.TC_INGRESS: "ingress_tc", Hook.TC_EGRESS: "egress_tc", Hook.XDP: "ingress_xdp"}
_PIN = {Hook.TC_INGRESS: "tc_ingress", Hook.TC_EGRESS: "tc_egress", Hook.XDP: "xdp"}
_ATTACH_TYPE = {
    Hook.TC_INGRESS: syscall.ATTACH_TCX_INGRESS,
    Hook.TC_EGRESS: syscall.ATTACH_TCX_EGRESS,
    Hook.XDP: syscall.ATTACH_XDP,
}
_LINK_FLAGS = {
    Hook.TC_INGRESS: syscall.F_BEFORE,
    Hook.TC_EGRESS: syscall.F_BEFORE,
    Hook.XDP: syscall.XDP_FLAGS_DRV_MODE,
}
_CLSACT_PARENT = {Hook.TC_INGRESS: 0xFFFFFFF2, Hook.TC_EGRESS: 0xFFFFFFF3}
_CLSACT_PRIO = 1
_CLSACT_NAME = "arpguard_"
_TAKEN = (errno.EBUSY, errno.EEXIST)


@dataclass(frozen=True, slots=True)
class Pin:
    """A pinned link as found: which one it is and what the kernel says of it (`ifindex` 0: its device is gone)."""

    path: Path
    wanted_ifindex: int
    hook: Hook
    info: syscall.LinkInfo


class Attacher:
    """Attaches and detaches the programs of one build. `use_tcx=False` forces clsact, as on kernels before 6.6."""

    def __init__(self, pin_dir: Path, programs: dict[str, Fd], *, use_tcx: bool = True) -> None:
        self._links = pin_dir / "links"
        self._programs = programs
        self._use_tcx = use_tcx
        self._links.mkdir(mode=0o700, exist_ok=True)

    async def ensure(self, ifindex: int, hook: Hook) -> Attachment:
        """Sees to it that this build's program runs at `hook` of the device; does nothing when it does.

        Raises AttachConflictError when another program holds an XDP hook, DataPlaneError when the kernel refuses.
        """
        program = self._programs[_PROGRAM[hook]]
        try:
            return self._ensure_link(ifindex, hook, program)
        except OSError as error:
            if hook is Hook.XDP:
                raise _xdp_refusal(ifindex, error) from error
            if self._use_tcx and error.errno != errno.EINVAL:
                raise DataPlaneError(f"cannot attach to interface {ifindex} ({error.strerror})") from error
        return await _ensure_filter(ifindex, hook, program)

    async def detach(self, ifindex: int, hook: Hook, *, filters: bool = True) -> None:
        """Takes this agent's program off the hook: unpins its link, and deletes its clsact filter if `filters`."""
        (self._links / f"{ifindex}-{_PIN[hook]}").unlink(missing_ok=True)
        if filters and hook in _CLSACT_PARENT:
            await _delete_filter(ifindex, hook)

    def pins(self) -> list[Pin]:
        """All pinned links."""
        return read_pins(self._links.parent)

    def _ensure_link(self, ifindex: int, hook: Hook, program: Fd) -> Attachment:
        if hook is not Hook.XDP and not self._use_tcx:
            raise OSError(errno.EINVAL, "TCX is not to be used")
        path = self._links / f"{ifindex}-{_PIN[hook]}"
        wanted = syscall.program_info(program).id
        how = "xdp" if hook is Hook.XDP else "tcx"
        link = _alive(path, ifindex)
        fresh = link is None
        if link is None:
            path.unlink(missing_ok=True)
            link = syscall.link_create(program, ifindex, _ATTACH_TYPE[hook], _LINK_FLAGS[hook])
            syscall.obj_pin(link, str(path))
        elif syscall.link_info(link).program_id != wanted:
            syscall.link_update(link, program)
        return Attachment(ifindex, hook, how, syscall.link_info(link).program_id, fresh)


def read_pins(pin_dir: Path) -> list[Pin]:
    """The links pinned under `pin_dir`, with what the kernel says of each."""
    hooks = {name: hook for hook, name in _PIN.items()}
    found = []
    for path in sorted((pin_dir / "links").glob("*-*")):
        number, _, name = path.name.partition("-")
        with syscall.obj_get(str(path)) as link:
            found.append(Pin(path, int(number), hooks[name], syscall.link_info(link)))
    return found


def runs_first(attachment: Attachment) -> bool:
    """Whether nothing runs before the attached TCX program; other kinds have no order to look at."""
    if attachment.how != "tcx":
        return True
    return syscall.program_query(attachment.ifindex, _ATTACH_TYPE[attachment.hook])[:1] == [attachment.program_id]


async def cleanup_filters() -> int:
    """Deletes every clsact filter of arpguard in this network namespace; says how many."""
    removed = 0
    async with AsyncIPRoute() as ipr:
        indexes = [message["index"] async for message in await ipr.link("dump")]
    for ifindex in indexes:
        for hook in _CLSACT_PARENT:
            removed += await _delete_filter(ifindex, hook)
    return removed


def _alive(path: Path, ifindex: int) -> Fd | None:
    """The pinned link, if it is still on its device: a device that went leaves a link with ifindex 0 behind."""
    try:
        link = syscall.obj_get(str(path))
    except FileNotFoundError:
        return None
    if syscall.link_info(link).ifindex == ifindex:
        return link
    link.close()
    return None


def _xdp_refusal(ifindex: int, error: OSError) -> DataPlaneError:
    if error.errno in _TAKEN:
        return AttachConflictError(f"another XDP program is on interface {ifindex}; it is left alone, tc is used")
    return DataPlaneError(f"native XDP is refused on interface {ifindex} ({error.strerror}); tc is used")


async def _ensure_filter(ifindex: int, hook: Hook, program: Fd) -> Attachment:
    wanted = syscall.program_info(program).id
    attached = await _filter_program(ifindex, hook)
    if attached != wanted:
        async with AsyncIPRoute() as ipr:
            try:
                await ipr.tc("add", "clsact", ifindex)
            except NetlinkError as error:
                if error.code != errno.EEXIST:
                    raise DataPlaneError(f"cannot add clsact to interface {ifindex} ({error})") from error
            await ipr.tc(
                "replace-filter",
                "bpf",
                ifindex,
                ":1",
                fd=program.number,
                name=_CLSACT_NAME + _PROGRAM[hook],
                parent=_CLSACT_PARENT[hook],
                classid=1,
                direct_action=True,
                prio=_CLSACT_PRIO,
            )
    return Attachment(ifindex, hook, "clsact", wanted, fresh=attached is None)


async def _filters(ifindex: int, hook: Hook) -> list[tuple[str, int]]:
    """(name, program id) of the BPF filters at a clsact hook."""
    found = []
    async with AsyncIPRoute() as ipr:
        try:
            messages = [m async for m in await ipr.get_filters(index=ifindex, parent=_CLSACT_PARENT[hook])]
        except NetlinkError:
            return []
    for message in messages:
        options = message.get_attr("TCA_OPTIONS")
        if message.get_attr("TCA_KIND") == "bpf" and options is not None and options.get_attr("TCA_BPF_ID"):
            found.append((options.get_attr("TCA_BPF_NAME") or "", options.get_attr("TCA_BPF_ID")))
    return found


async def _filter_program(ifindex: int, hook: Hook) -> int | None:
    return next((number for name, number in await _filters(ifindex, hook) if name.startswith(_CLSACT_NAME)), None)


async def _delete_filter(ifindex: int, hook: Hook) -> int:
    """Deletes arpguard's own filter: removing the clsact qdisc would remove other people's too."""
    if await _filter_program(ifindex, hook) is None:
        return 0
    async with AsyncIPRoute() as ipr:
        await ipr.tc("del-filter", "bpf", ifindex, ":1", parent=_CLSACT_PARENT[hook], prio=_CLSACT_PRIO)
    return 1
