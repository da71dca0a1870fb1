"""What a frame is judged by, and what comes of it."""

from collections.abc import Mapping
from dataclasses import dataclass

from arpguard.addresses import Address
from arpguard.model import EntryKey, NodeControl, VipEntry
from arpguard.verdict import Mode, Reason, Verdict


@dataclass(frozen=True, slots=True)
class Judgement:
    """One decision: about which VIP (None: about none), what, and why."""

    vip: Address | None
    verdict: Verdict
    reason: Reason


@dataclass(frozen=True, slots=True)
class Response:
    """What happens: `frame` is what goes on or is sent back, None when it is dropped.

    There is no judgement of a frame that is not looked at.
    """

    answered: bool
    frame: bytes | None
    judgements: tuple[Judgement, ...]


@dataclass(frozen=True, slots=True)
class Situation:
    """What the kernel knows: the control value, the entries of the link, and the boot clock in nanoseconds."""

    control: NodeControl
    entries: Mapping[EntryKey, VipEntry]
    ifindex: int
    now_ns: int

    def entry(self, address: Address | None) -> VipEntry | None:
        """The entry for an address on this link."""
        return self.entries.get(EntryKey(self.ifindex, address)) if address is not None else None

    def enforces(self, entry: VipEntry) -> bool:
        """Whether decisions about this entry are carried out."""
        return (entry.mode or self.control.mode) == Mode.ENFORCE

    def refusal(self, entry: VipEntry) -> Reason | None:
        """Why an owned entry may not be answered now."""
        if entry.is_stale(self.control):
            return Reason.STALE_EPOCH
        ahead = self.control.fence_ns - self.now_ns
        if entry.hold or 0 < ahead <= self.control.lease_ns:
            return None
        return Reason.FENCED
