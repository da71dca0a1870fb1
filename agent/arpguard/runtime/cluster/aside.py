"""A node that is not a member yet: it has not been able to read its own heartbeat."""

from collections import Counter
from collections.abc import Iterator

from arpguard.addresses import Address
from arpguard.core.claimwords import Candidate
from arpguard.core.electing import Wishes
from arpguard.core.leasetimes import times_of
from arpguard.core.members import Member
from arpguard.core.ownership.lease import Times
from arpguard.core.ownership.records import Heartbeat, Holder
from arpguard.core.vouching.state import VouchingState
from arpguard.model import Vip
from arpguard.runtime.cluster.objects import Cluster
from arpguard.runtime.cluster.outlook import Outlook
from arpguard.runtime.cluster.requests import Renewals


class Aside:
    """Stands in for a `Membership` that knows no node and wants nothing. `join` will find what changes meanwhile."""

    def __init__(self, cluster: Cluster, outlook: Outlook) -> None:
        self._cluster = cluster
        self._outlook = outlook
        self.wishes = Wishes()
        self.members: tuple[Member, ...] = ()
        self.alive: frozenset[str] = frozenset()
        self.renewals = Renewals()
        self.writes: Counter[tuple[str, str]] = Counter()
        self.yielding = False
        self.vouching: VouchingState | None = None

    @property
    def times(self) -> Times:
        """The lengths of a lease in a cluster without nodes."""
        return times_of(self._outlook.lease)

    @property
    def heartbeats(self) -> Iterator[Heartbeat]:
        """The heartbeats that the watch has shown."""
        return self._cluster.heartbeats

    def candidates(self, _vip: Vip) -> tuple[Candidate, ...]:
        """No node."""
        return ()

    def holder(self, address: Address) -> Holder:
        """No known node: there may be a claim."""
        is_missing = self._cluster.leases_known and all(claim.vip != address for claim in self._cluster.claims)
        return Holder(known=is_missing)

    def owned_since_ns(self, _address: Address) -> int | None:
        """Never."""
        return None

    def ignore(self, *_: object) -> None:
        """Takes no note: no probe is under way, there is no claim to check, and nothing to decide."""

    wake = recheck = claimed = ignore
    heartbeat_changed = claim_changed = vips_changed = ignore

    async def remove(self, _limit_s: float) -> bool:
        """Cannot remove what it does not know."""
        return False

    async def part(self, _lease_ns: int, _limit_s: float) -> bool:
        """Has nothing to renew."""
        return True
