"""What a frame is judged by, and what comes of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from arpguard.addresses import Address
from arpguard.model import EntryKey, Grants, LinkTerm, NodeControl, RangeKey, VipEntry
from arpguard.verdict import Kind, Mode, Reason, Verdict, Vouched


@dataclass(frozen=True, slots=True)
class Judgement:
    """One decision: about which VIP (None: about none), what, and why."""

    vip: Address | None
    verdict: Verdict
    reason: Reason


@dataclass(frozen=True, slots=True)
class Response:
    """What happens: `frame` is what goes on or is sent back, None when it is dropped.

    There is no judgement of a frame that is not looked at. `hidden`: it is dropped for this node's kernel only; guests
    on the link still get it, but at XDP, where there is no such thing. `vouched`: what came of a frame of vouching, of
    which there is no judgement either, and `grants` what the kernel has then.
    """

    answered: bool
    frame: bytes | None
    judgements: tuple[Judgement, ...]
    hidden: bool = False
    vouched: Vouched | None = None
    grants: Grants | None = None


@dataclass(frozen=True, slots=True)
class Situation:
    """What the kernel knows: the control value, entries and ranges of the link, and the boot clock in nanoseconds.

    `term` is the link's, and `grants` what the programs have of the voucher.
    """

    control: NodeControl
    entries: Mapping[EntryKey, VipEntry]
    ifindex: int
    now_ns: int
    ranges: Mapping[RangeKey, VipEntry] = field(default_factory=dict)
    term: LinkTerm | None = None
    grants: Grants = field(default_factory=Grants)

    def entry(self, address: Address | None) -> VipEntry | None:
        """The entry for an address on this link."""
        return self.entries.get(EntryKey(self.ifindex, address)) if address is not None else None

    def rule(self, address: Address | None) -> VipEntry | None:
        """What an address is judged by: its entry, or else the closed range that it is in."""
        entry = self.entry(address)
        if entry is not None or address is None or not self.control.closed:
            return entry
        around = (key for key in self.ranges if key.ifindex == self.ifindex and _is_in(address, key))
        smallest = max(around, key=lambda key: key.network.prefixlen, default=None)
        if smallest is None or self.ranges[smallest].kind is not Kind.CLOSED:
            return None
        return self.ranges[smallest]

    def enforces(self, entry: VipEntry) -> bool:
        """Whether decisions about this entry are carried out."""
        return (entry.mode or self.control.mode) == Mode.ENFORCE

    def refusal(self, entry: VipEntry) -> Reason | None:
        """Why an owned entry may not be answered now."""
        if entry.is_stale(self.control):
            return Reason.STALE_EPOCH
        if entry.unfenced:
            return None
        if not self._is_ahead(self.control.fence_ns, self.control.lease_ns):
            return Reason.FENCED
        vouched_for = self._is_ahead(self.grants.fence_ns, self.grants.window_ns)
        return Reason.UNVOUCHED if self.grants.binds(self.control.term) and not vouched_for else None

    def _is_ahead(self, fence_ns: int, furthest_ns: int) -> bool:
        """A fence too far ahead is a mistake."""
        return 0 < fence_ns - self.now_ns <= furthest_ns


def _is_in(address: Address, key: RangeKey) -> bool:
    return address.version == key.network.version and address in key.network
