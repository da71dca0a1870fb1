"""How long this node's lease is, and which one its renewals publish: others count it from when they see it.

A node that holds nothing and has nothing to claim rests: it renews less often, for a longer lease in proportion. So
the others know which nodes are alive when the first VIP comes. Before a node at rest claims, it publishes its ordinary
lease, so that no node has to wait for the long one.

A node that is bound to a voucher has a long lease (V15): the voucher notices that it died long before that ends.
"""

from dataclasses import dataclass, replace

from arpguard.units import NS_PER_S

RENEWALS_IN_REST_LEASE = 3
BOUND_NS = 72 * NS_PER_S  # D_v: of a node that is bound to its voucher
RENEWALS_IN_BOUND_LEASE = 6  # so that most of it is left whenever the API server goes away


@dataclass(frozen=True, slots=True)
class Times:
    """Lengths of time in nanoseconds: the lease D, how often it is renewed R, the margin M, how often to sync S.

    `rest_ns`: how often a node at rest renews. `bound_ns`, `bound_margin_ns`: the lease of a node that is bound to its
    voucher, and its margin; 0: no node has a voucher.
    """

    duration_ns: int
    renew_ns: int
    margin_ns: int
    sync_ns: int
    rest_ns: int = 10 * NS_PER_S
    bound_ns: int = 0
    bound_margin_ns: int = 0

    @property
    def answers_ns(self) -> int:
        """How long after a renewal was sent the kernel answers."""
        return self.duration_ns - self.margin_ns

    def lasting(self, lease_ns: int) -> "Times":
        """The same for a lease of another length: the margin is the same part of it."""
        return replace(self, duration_ns=lease_ns, margin_ns=-(-lease_ns * self.margin_ns // self.duration_ns))

    @property
    def at_rest(self) -> "Times":
        """Those of a node at rest: two renewals may be lost, as usual, before it counts as silent."""
        rest_ns = max(self.rest_ns, self.renew_ns)
        return replace(self.lasting(max(self.duration_ns, RENEWALS_IN_REST_LEASE * rest_ns)), renew_ns=rest_ns)

    @property
    def at_bound(self) -> "Times":
        """Those of a node that is bound to its voucher: D, unless D_v is longer."""
        if self.bound_ns <= self.duration_ns:
            return self
        renew_ns = self.bound_ns // RENEWALS_IN_BOUND_LEASE
        return replace(self, duration_ns=self.bound_ns, margin_ns=self.bound_margin_ns, renew_ns=renew_ns)


class PublishedLease:
    """The ordinary lease, the longer one of a node that is bound or at rest, or an agent's parting lease.

    `published`: by the last renewal that was sent. `resting`: nothing is held or claimed, so renewals are few.
    `rested`: the lease of a rest may still be published.
    """

    def __init__(self, times: Times) -> None:
        self.times = times
        self.published = times
        self.resting = False
        self.rested = False
        self._published_rest = False
        self._bound = False  # as the last renewal says that was sent
        self._last: Times | None = None

    @property
    def pace(self) -> Times:
        """The times by which this node renews now."""
        if self._bound:
            return self.times.at_bound
        return self.times.at_rest if self.resting else self.times

    @property
    def parting(self) -> bool:
        """Whether the agent ends, and its last renewal is under way or done."""
        return self._last is not None

    def part(self, lease_ns: int) -> None:
        """The next renewal is the last one, and for so long."""
        self._last = self._last or self.times.lasting(lease_ns)

    def publish(self, *, bound: bool, may_part: bool) -> Times:
        """A renewal is about to be sent: what it publishes. `bound`: it says so. `may_part`: it may be the last one."""
        last = self._last if may_part else None
        self._bound = bound
        self.published = last or self.pace
        self._published_rest = self.resting and not self.parting and not bound
        self.rested = self.rested or self._published_rest
        return self.published

    def applied(self) -> bool:
        """The renewal was applied; whether it was the last one."""
        self.rested = self._published_rest
        return self.published is self._last

    @property
    def is_late(self) -> bool:
        """Whether another lease than the one that was applied is to be published at once."""
        return self.parting or (self.rested and not self.resting)
