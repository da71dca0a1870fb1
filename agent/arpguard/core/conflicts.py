"""Which rival claims by nodes of the cluster count: those that mean a split brain, not a VIP that moves.

While a VIP moves, a frame of the new owner may arrive before its claim has been read, and one of the old owner may be
late. So the claim of a node waits for `GRACE_NS`. It counts if the VIP was not that node's at any time until then, and
either the claim was heard again, or this node has had the VIP for longer than `GRACE_NS`. In both cases two nodes of
the cluster answer. What was heard after the watch last showed anything waits longer: the VIP may have moved there and
away again meanwhile.

When the agent learns that a VIP has moved, it forgets what was heard before: an agent that stood still reads of several
moves at once, and a list leaves out those in between. It also drops a claim for which, when the wait is over, the owner
is not known. And before a claim counts, the agent reads the VIP's Lease once more: the watch may lag.

A host outside cannot be the next owner, so its claims count immediately where this node has the VIP. Elsewhere an
unknown MAC may be the owner's: its link may have got a new one, which it announces before its heartbeat can tell it, or
this agent has just started and knows no MAC yet. There a stranger's claim counts once the stranger has claimed the VIP
for `PERSISTS_NS`; the owner hears it, too, and reports it first.
"""

from collections import OrderedDict
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, replace

from arpguard.addresses import Address, MacAddress
from arpguard.core.bounding import remember
from arpguard.core.claimants import Claimant
from arpguard.core.decisions import Report
from arpguard.model import EntryKey
from arpguard.units import NS_PER_S

GRACE_NS = 5 * NS_PER_S  # longer than a lease by default, and than a takeover's three announcements
CHECK_NS = NS_PER_S  # how long to wait for the VIP's Lease
ATTEMPTS = 5  # to ask for it, while too many others are being read
AGAIN_NS = NS_PER_S  # a claim that is heard so long after the first cannot be a late frame
PERSISTS_NS = 60 * NS_PER_S  # far longer than a node needs to publish a new MAC
FORGET_NS = 300 * NS_PER_S  # how long a claim that does not count yet is remembered
COUNTS_NS = 60 * NS_PER_S  # a claim that counted counts at once when it is heard again within this time; later it waits
CAPACITY = 256
MOVES = 16384
MOVED_NS = 60 * NS_PER_S  # far longer than the kernel's reports of frames may take to get here


@dataclass(frozen=True, slots=True)
class KnownOwner:
    """Which node has a VIP, as far as this node knows: `node` is empty if no node has it.

    `is_sure`: nothing says that this is out of date. `seen_ns`: until when it was so, by the watch on claims; None
    where no claim says who has it. `is_here`: it is this node. `own_since_ns`: since when this node has it by a claim;
    None if it does not.
    """

    node: str
    is_sure: bool = True
    seen_ns: int | None = None
    is_here: bool = False
    own_since_ns: int | None = None

    @property
    def is_elected(self) -> bool:
        """Whether a claim decides who has it."""
        return self.seen_ns is not None

    @property
    def may_be_elsewhere(self) -> bool:
        """Whether another node has it, or may have it by a claim that this node takes for void."""
        return not self.is_here and (bool(self.node) or self.is_elected or not self.is_sure)


@dataclass(slots=True)
class _Suspicion:
    """The claims of one node to one VIP on one link, as one report.

    `again_ns`: when one was heard that cannot be a late frame. `due_ns` None: it waits for nothing. `attempts`: how
    often the agent may still ask for the VIP's Lease.
    """

    report: Report
    claimant: Claimant
    due_ns: int | None
    again_ns: int | None = None
    attempts: int = ATTEMPTS
    counts: bool = False

    def add(self, report: Report, claimant: Claimant) -> None:
        """Another claim was heard."""
        first_ns = self.report.first_ns
        self.report = replace(report, count=self.report.count + report.count, first_ns=first_ns)
        self.claimant = claimant
        if self.again_ns is None and report.last_ns - first_ns >= AGAIN_NS:
            self.again_ns = report.last_ns

    def is_seen_by(self, owner: KnownOwner) -> bool:
        """Whether it is known who had the VIP when what counts was heard."""
        return owner.seen_ns is None or owner.seen_ns >= (self.again_ns or self.report.first_ns)


class Suspicions:
    """The claims by nodes that may be a split brain; at most `CAPACITY`, even if a host forges the nodes' MACs.

    Times are CLOCK_BOOTTIME nanoseconds.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._known: OrderedDict[tuple[EntryKey, MacAddress], _Suspicion] = OrderedDict()
        self._moved_ns: OrderedDict[Address, int] = OrderedDict()  # when this agent last learned that a VIP has moved

    def __len__(self) -> int:
        return len(self._known)

    def heard(self, report: Report, claimant: Claimant, owner: KnownOwner, now_ns: int) -> tuple[bool, Report | None]:
        """A node claims a VIP. Returns whether that is new, and the report if the claim counts already."""
        key = report.decision.key, report.decision.sha
        known = self._known.pop(key, None)

        if owner.node == claimant.node or report.last_ns <= self._moved_ns.get(report.decision.key.vip, 0):
            return False, None
        if known is not None and known.report.last_ns + (COUNTS_NS if known.counts else FORGET_NS) < now_ns:
            known = None

        if known is None:
            known = _Suspicion(report, claimant, now_ns + GRACE_NS)
            is_new = True
        else:
            known.add(report, claimant)
            if not known.counts and known.due_ns is None:
                known.due_ns = now_ns + GRACE_NS
            is_new = False

        remember(self._known, key, known, self._capacity)
        return is_new, report if known.counts else None

    def moved(self, vip: Address, now_ns: int) -> None:
        """The VIP has moved: any node may have had it until now."""
        for key in [key for key in self._known if key[0].vip == vip]:
            del self._known[key]

        remember(self._moved_ns, vip, now_ns, MOVES)
        while next(iter(self._moved_ns.values())) + MOVED_NS < now_ns:
            self._moved_ns.popitem(last=False)

    def due(
        self, owner_of: Callable[[Address], KnownOwner], check: Callable[[Address], bool], now_ns: int
    ) -> Iterator[tuple[Report, Claimant]]:
        """The claims that count from now on. `check` asks for a VIP's Lease, or returns False: too many were asked for.

        The caller calls `moved` if the VIP has moved. A claim counts also where the Lease cannot be read in time.
        """
        for key, known in list(self._known.items()):
            if known.report.last_ns + FORGET_NS < now_ns:
                del self._known[key]
            elif known.due_ns is not None and known.due_ns <= now_ns:
                found = owner_of(key[0].vip)
                if found.node == known.claimant.node or not found.is_sure:
                    del self._known[key]
                elif not known.is_seen_by(found):
                    known.due_ns = now_ns + GRACE_NS
                elif found.is_elected and known.attempts and _counts(known, found):
                    known.attempts = 0 if check(key[0].vip) else known.attempts - 1
                    known.due_ns = now_ns + CHECK_NS
                else:
                    known.due_ns = None
                    known.counts = _counts(known, found)
                    if known.counts:
                        yield known.report, known.claimant

    def next_ns(self) -> int | None:
        """When `due` is to be called."""
        return min((known.due_ns for known in self._known.values() if known.due_ns is not None), default=None)


class Strangers:
    """Unknown MACs that claim VIPs which another node has, or perhaps has; at most `CAPACITY`."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._heard: OrderedDict[tuple[EntryKey, MacAddress], tuple[int, int]] = OrderedDict()  # first and last

    def heard(self, report: Report, now_ns: int) -> bool:
        """A stranger claims a VIP. Returns whether it has done so for long enough to count."""
        key = report.decision.key, report.decision.sha
        first_ns, last_ns = self._heard.get(key, (now_ns, now_ns))
        if last_ns + FORGET_NS < now_ns:
            first_ns = now_ns

        remember(self._heard, key, (first_ns, now_ns), self._capacity)
        return now_ns >= first_ns + PERSISTS_NS

    def withdraw(self, macs: Container[MacAddress]) -> None:
        """Forgets strangers with these MACs: a node of the cluster has them."""
        for key in [key for key in self._heard if key[1] in macs]:
            del self._heard[key]


def _counts(suspicion: _Suspicion, owner: KnownOwner) -> bool:
    since_ns = owner.own_since_ns
    had_it_long = since_ns is not None and since_ns <= suspicion.report.first_ns - GRACE_NS
    return had_it_long or suspicion.again_ns is not None
