"""This node's fences in its kernel: its voucher grants others within its own right (docs/vouching-rules.md, V16)."""

from arpguard.clock import boot_ns
from arpguard.core.vouching.voucher import OwnRight
from arpguard.dataplane.maps import ControlValue, read_grants
from arpguard.dataplane.syscall import Fd


class OwnFences:
    """Reads the maps `control` and `grants`."""

    def __init__(self, control: Fd, grants: Fd) -> None:
        self._control = ControlValue(control)
        self._grants = grants

    def read(self) -> OwnRight | None:
        """The fence that comes first, as programs judge them; None while the agent is changing them.

        `control` is read again after `grants`: no number of a term comes back, so what is in `grants` belongs to it.
        """
        before, grants, control = self._control.read(), read_grants(self._grants), self._control.read()
        if before is None or control is None or before.term != control.term:
            return None

        now_ns = boot_ns()
        until_ns = control.trusted_fence_ns(now_ns)
        if grants.binds(control.term):
            until_ns = min(until_ns, grants.trusted_fence_ns(now_ns))
        return OwnRight(control.epoch, until_ns)
