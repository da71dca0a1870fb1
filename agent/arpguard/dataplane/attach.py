"""Programs on links: attached so that they outlive the agent, replaced without a gap, and never blocking others.

| how    | where                        | survives by            | replaced by           |
|--------|------------------------------|------------------------|-----------------------|
| tcx    | kernel 6.6 and newer         | pinned bpf_link        | LINK_UPDATE           |
| clsact | older kernels                | the filter itself      | replace-filter        |
| xdp    | on request, native mode only | pinned bpf_link (5.9)  | LINK_UPDATE           |

TCX links go to the head of the list, so that another program's TC_ACT_OK does not hide frames from the guard.
"""

import errno
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from arpguard.dataplane import clsact, syscall
from arpguard.dataplane.build import PROGRAM_AT
from arpguard.dataplane.syscall import Fd
from arpguard.errors import AttachConflictError, DataPlaneError
from arpguard.model import Attachment
from arpguard.verdict import Hook

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
        """Makes this build's program run at `hook` of the device; does nothing when it does already.

        Raises AttachConflictError when another program holds an XDP hook, DataPlaneError when the kernel refuses.
        """
        program = self._programs[PROGRAM_AT[hook]]
        try:
            return self._ensure_link(ifindex, hook, program)
        except OSError as error:
            if hook is Hook.XDP:
                raise _xdp_refusal(ifindex, error) from error
            if self._use_tcx and error.errno != errno.EINVAL:
                raise DataPlaneError(f"cannot attach to interface {ifindex} ({error.strerror})") from error
        program_id, fresh = await clsact.ensure(ifindex, hook, program)
        return Attachment(ifindex, hook, "clsact", program_id, fresh)

    async def detach(self, ifindex: int, hook: Hook, *, filters: bool = True) -> None:
        """Takes this agent's program off the hook: unpins its link, and deletes its clsact filter if `filters`."""
        _release(self._pin(ifindex, hook))
        if filters and hook is not Hook.XDP:
            await clsact.delete(ifindex, hook)

    def pins(self) -> list[Pin]:
        """All pinned links."""
        return read_pins(self._links.parent)

    async def filters(self) -> list[tuple[int, Hook]]:
        """Where links have clsact filters of any agent, by index and hook: nothing is pinned for these."""
        return await clsact.find_all()

    def _pin(self, ifindex: int, hook: Hook) -> str:
        """No Path: pathlib would intern the name each time, and the interpreter's table of names would grow by 1 MB."""
        return f"{self._links}/{ifindex}-{hook.name.lower()}"

    def _ensure_link(self, ifindex: int, hook: Hook, program: Fd) -> Attachment:
        if hook is not Hook.XDP and not self._use_tcx:
            raise OSError(errno.EINVAL, "TCX is not to be used")

        path = self._pin(ifindex, hook)
        wanted = syscall.program_info(program).id
        how = "xdp" if hook is Hook.XDP else "tcx"
        link = _alive(path, ifindex, hook)
        fresh = link is None

        if link is None:
            Path(path).unlink(missing_ok=True)
            self._links.mkdir(mode=0o700, parents=True, exist_ok=True)
            link = syscall.link_create(program, ifindex, _ATTACH_TYPE[hook], _LINK_FLAGS[hook])
            syscall.obj_pin(link, path)
        elif syscall.link_info(link).program_id != wanted:
            syscall.link_update(link, program)

        return Attachment(ifindex, hook, how, syscall.link_info(link).program_id, fresh)


def read_pins(pin_dir: Path) -> list[Pin]:
    """The links pinned under `pin_dir`, with what the kernel says of each. One that goes meanwhile may be missing."""
    hooks = {hook.name.lower(): hook for hook in Hook}
    found = []
    for path in sorted((pin_dir / "links").glob("*-*")):
        number, _, name = path.name.partition("-")
        if not number.isdecimal() or name not in hooks or not path.is_file():
            continue  # another program's
        with suppress(FileNotFoundError), syscall.obj_get(str(path)) as link:
            found.append(Pin(path, int(number), hooks[name], syscall.link_info(link)))
    return found


async def runs_first(attachment: Attachment) -> bool:
    """Whether no other program runs before the attached one at a tc hook; XDP holds one program only."""
    if attachment.how == "clsact":
        return await clsact.runs_first(attachment.ifindex, attachment.hook)
    if attachment.how == "xdp":
        return True
    return syscall.program_query(attachment.ifindex, _ATTACH_TYPE[attachment.hook])[:1] == [attachment.program_id]


async def remove_guard(pin_dir: Path) -> None:
    """Detaches everything under a locked folder, and in this network namespace."""
    for pin in read_pins(pin_dir):
        _release(str(pin.path))
    await clsact.delete_all()


def _release(path: str) -> None:
    """Detaches at once, and unpins: the kernel lets go of a link that is only unpinned some time later."""
    try:
        with syscall.obj_get(path) as link:
            syscall.link_detach(link)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno != errno.ENOLINK:  # its device is gone
            raise
    Path(path).unlink(missing_ok=True)


def _alive(path: str, ifindex: int, hook: Hook) -> Fd | None:
    """The pinned link, if it is still on its device.

    A device that went leaves a link with ifindex 0 behind; and a device of another network namespace may have the
    same index, which shows in the list of programs of the one that is meant.
    """
    try:
        link = syscall.obj_get(path)
    except FileNotFoundError:
        return None
    info = syscall.link_info(link)
    here = hook is Hook.XDP or info.program_id in syscall.program_query(ifindex, _ATTACH_TYPE[hook])
    if info.ifindex == ifindex and here:
        return link
    link.close()
    return None


def _xdp_refusal(ifindex: int, error: OSError) -> DataPlaneError:
    if error.errno in _TAKEN:
        return AttachConflictError(f"another XDP program is on interface {ifindex}; leaving it alone and using tc")
    return DataPlaneError(f"the kernel refused native XDP on interface {ifindex} ({error.strerror}); using tc")
