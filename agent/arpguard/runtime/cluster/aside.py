"""A node that is not a member yet: it has not been able to read its own heartbeat."""

from collections import Counter
from collections.abc import Iterator, Mapping

from arpguard.addresses import Address, MacAddress
from arpguard.core.claimwords import Candidate
from arpguard.core.electing import Wishes
from arpguard.core.leasetimes import times_of
from arpguard.core.members import Member
from arpguard.core.ownership.lease import Times
from arpguard.core.ownership.records import Claim, Heartbeat, Holder
from arpguard.core.vouching.state import VouchingState
from arpguard.model import Vip
from arpguard.runtime.cluster.objects import Cluster
from arpguard.runtime.cluster.outlook import Outlook
from arpguard.runtime.cluster.requests import Renewals


class Aside:
    """Stands in for a `Membership` that knows nobody and wants nothing. `join` will find what changes meanwhile."""

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
        """The lengths of a lease in a cluster of nobody."""
        return times_of(self._outlook.lease)

    @property
    def heartbeats(self) -> Iterator[Heartbeat]:
        """The heartbeats that the watch has shown."""
        return self._cluster.heartbeats

    def candidates(self, _vip: Vip) -> tuple[Candidate, ...]:
        """Nobody."""
        return ()

    def holder(self, address: Address) -> Holder:
        """Nobody that is known: there may be a claim."""
        is_missing = self._cluster.leases_known and all(claim.vip != address for claim in self._cluster.claims)
        return Holder(known=is_missing)

    def owned_since_ns(self, _address: Address) -> int | None:
        """Never."""
        return None

    def wake(self) -> None:
        """Ignores it."""

    def recheck(self, vip: Address) -> None:
        """Ignores it: there is nothing to check."""

    def claimed(self, ifname: str, vip: Address, sha: MacAddress) -> None:
        """Ignores it: no probe is under way."""

    def heartbeat_changed(self, node: str, old: Heartbeat | None, new: Heartbeat | None) -> None:
        """Takes no note."""

    def claim_changed(self, vip: Address, claim: Claim | None) -> None:
        """Takes no note."""

    def vips_changed(self, before: Mapping[Address, Vip]) -> None:
        """Takes no note."""

    async def remove(self, _limit_s: float) -> bool:
        """Cannot remove what it does not know."""
        return False

    async def part(self, _lease_ns: int, _limit_s: float) -> bool:
        """Has nothing to renew."""
        return True
