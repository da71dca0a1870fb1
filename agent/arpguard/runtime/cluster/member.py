"""This node as a member of the cluster: which VIPs it wants to own, and when.

It connects `objects` (what exists), `core.electing` (which node should own what) and `leases` (which node may).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing

from arpguard.addresses import Address, MacAddress, address_order
from arpguard.clock import boot_ns
from arpguard.core import members
from arpguard.core.claimwords import Candidate
from arpguard.core.cluster import Node
from arpguard.core.electing import Election, Wishes
from arpguard.core.leasetimes import timeout_s, times_of
from arpguard.core.members import candidates, members_of
from arpguard.core.ownership.lease import Times
from arpguard.core.ownership.machine import Ownership
from arpguard.core.ownership.records import Claim, Heartbeat, Holder
from arpguard.core.ownership.stages import Idle
from arpguard.core.sourcing import Collected
from arpguard.core.vouching.state import VouchingState
from arpguard.model import Vip
from arpguard.runtime.cluster.here import Here
from arpguard.runtime.cluster.leases import Leases
from arpguard.runtime.cluster.publishing import LinkPublisher, Links
from arpguard.runtime.cluster.requests import Renewals
from arpguard.runtime.cluster.segment import Segment
from arpguard.runtime.cluster.standings import Standings
from arpguard.runtime.cluster.vouching import Vouching
from arpguard.units import NS_PER_S

TIDY_NS = 10 * NS_PER_S
REFRESHED_AT_ONCE = 100
WANTED_AT_ONCE = 500


class Membership:
    """One agent's membership, made by `joining.join`. It asks `ownership` about nodes and claims."""

    def __init__(
        self,
        here: Here,
        ownership: Ownership,
        leases: Leases,
        standings: Standings,
        links: LinkPublisher,
        segment: Segment,
        vouching: Vouching,
    ) -> None:
        self._me = here.node
        self._cluster = here.cluster
        self._outlook = here.outlook
        self._ownership = ownership
        self._standings = standings
        self._links = links
        self._segment = segment
        self._vouching = vouching
        self._requests = leases.requests
        self._election: Election | None = None  # None: the agent has not read everything an election needs
        self._elected: frozenset[Address] = frozenset()
        self._elected_of: Mapping[Address, Vip] = {}
        self._around: tuple[dict[str, Node], dict[str, Links], frozenset[str], set[str]] = {}, {}, frozenset(), set()
        self._tidied_ns = 0
        self._takes_part = True
        self._leaving = False
        self.leases = leases
        self.wishes = Wishes()
        self.members: tuple[members.Member, ...] = ()
        self.alive: frozenset[str] = frozenset()

    async def run(self) -> None:
        """Takes part until it is cancelled."""
        with closing(self._segment.prober), closing(self._vouching):
            await self.leases.run(self._decide)

    # ---- news ----

    def heartbeat_changed(self, node: str, old: Heartbeat | None, new: Heartbeat | None) -> None:
        """A watch shows that a heartbeat has changed or gone. Plain renewals, the most frequent ones, do not count."""
        self.leases.heartbeat_seen(node, new)
        if old is None or new is None or old.links != new.links:
            self._standings.refresh(self._standings.holders.held_by({node}))
        if old is None or new is None or old.epoch != new.epoch:
            self._standings.holders.changed(self._ownership.claims.claimed)  # a new epoch makes other claims void
        if old is None or new is None or _says(old) != _says(new) or node not in self.alive:
            self.leases.wake()

    def claim_changed(self, vip: Address, claim: Claim | None) -> None:
        """A watch shows that a claim has changed or gone."""
        self.leases.claim_seen(vip, claim)

    def vips_changed(self, before: Mapping[Address, Vip]) -> None:
        """The VIPs of the outlook have changed: some owners may answer with another MAC now."""
        now = self._outlook.vips
        if self._election is not None and before is not now:
            on_both = before.keys() & now.keys()
            self._standings.refresh(vip for vip in on_both if before[vip].interface != now[vip].interface)

    def wake(self) -> None:
        """Something has changed that may change what this node wants."""
        self.leases.wake()

    def claimed(self, ifname: str, vip: Address, sha: MacAddress) -> None:
        """The kernel reports a rival claim."""
        self._segment.prober.claimed(ifname, vip, sha)

    def recheck(self, vip: Address) -> None:
        """Reads the claim to a VIP from the server: it may no longer be this node's."""
        self.leases.recheck(vip)

    # ---- decisions ----

    async def _decide(self, now_ns: int) -> int | None:
        """Decides which VIPs this node wants; returns when to decide again."""
        if self._leaving or not (self._outlook.known and self._cluster.known):
            if not self._leaving:
                self.leases.do(self._ownership.want(self._standings.owned, now_ns))
            return None

        election = self._election or await self._begin(now_ns)
        now_ns = boot_ns()
        others = self._look_around(now_ns)
        self._forget_what_is_gone(now_ns)
        self._take_part(now_ns)

        vouching_ns = self._vouching.look(boot_ns(), takes_part=self._takes_part)
        collected = self._outlook.collected  # other tasks run between the steps, and may replace it
        await self.leases.do_in_turns(self._elect(election, collected, others))
        now_ns = boot_ns()
        moments = (
            self.wishes.next_ns,
            self._ownership.peers.next_silence_ns(now_ns),
            self._tidy(now_ns),
            self._links.next_ns(now_ns),
            self._links.tells_ns(now_ns) if self._ownership.heartbeat.holds else None,
            vouching_ns,
        )
        return min((at for at in moments if at is not None), default=None)

    async def _begin(self, now_ns: int) -> Election:
        """All heartbeats and claims have been read: from now on the kernel gets entries for all VIPs."""
        election = self._election = Election(self._me, now_ns)
        await self.leases.do_in_turns(self._refresh([*{*self._ownership.claims.claimed, *self._outlook.vips}]))
        return election

    def _refresh(self, vips: Sequence[Address]) -> Iterator[None]:
        for at in range(0, len(vips), REFRESHED_AT_ONCE):
            self._standings.refresh(vips[at : at + REFRESHED_AT_ONCE])
            yield

    def _look_around(self, now_ns: int) -> dict[str, Links]:
        """Updates which nodes are alive, and which links this node trusts; returns the links of the others."""
        alive = self._ownership.peers.heard(now_ns) | {self._me}
        changed, self.alive = alive ^ self.alive, alive
        if changed:
            self._standings.holders.changed(self._standings.holders.held_by(changed))

        others = {heartbeat.node: heartbeat.links for heartbeat in self._ownership.peers.heartbeats}
        self._links.believe_in_need(others, alive)
        return others

    def _take_part(self, now_ns: int) -> None:
        """Publishes this node's links, and whether it may hold VIPs, in its heartbeat."""
        self._takes_part = bool(self._elected) and bool(self._links.now())
        if self._links.is_urgent(now_ns) and (renewal := self._ownership.heartbeat.hurry(now_ns)):
            self._links.hurried(now_ns)
            self.leases.do(renewal)
        self.leases.do(self._ownership.take_part(self._takes_part, now_ns))

        times = self.times
        self._requests.set_timeout(timeout_s(times))
        self.leases.do(self._ownership.set_times(times, now_ns))

    def _elect(self, election: Election, collected: Collected, others: dict[str, Links]) -> Iterator[None]:
        """Decides in steps. What changes meanwhile counts in the next decision."""
        links = {**others, self._me: self._links.now()}
        around = dict(self._cluster.nodes), links, self.alive, self._vouching.doubted
        if around != self._around:  # seldom: most values are the same objects, so this compares a thousand at once
            self._around = around
            self.members = members_of(*around)

        yield from election.sit_down(collected.vips, self.members, boot_ns())
        yield from self._standings.holders.look(boot_ns())
        yield from election.look(self._standings.holders.alive(self.alive), boot_ns(), collected.undecided)

        before, self.wishes = self.wishes.wanted, election.wishes
        wanted, told = self.wishes.wanted, self._ownership.wanted
        for some in _batched(told - wanted):
            yield
            self._want(self._ownership.wanted - some)
        for some in _batched(wanted - told):
            yield
            for vip in some - before:
                self._tell_if_missing(vip)
            self._want(self._ownership.wanted | some)

    def _tell_if_missing(self, vip: Address) -> None:
        """All Leases have been read: a VIP without a Lease has no claim, and its claim need not be read."""
        now_ns = boot_ns()
        found = self._ownership.holder(vip, now_ns)
        if not (found.known or found.exists):
            self.leases.do(self._ownership.claim_seen(vip, None, now_ns))

    def _want(self, vips: frozenset[Address]) -> None:
        if not self._leaving:
            self.leases.do(self._ownership.want(vips, boot_ns(), self.wishes.why))

    # ---- addresses that are no longer VIPs ----

    def _forget_what_is_gone(self, now_ns: int) -> None:
        """Deletes the claims of VIPs that are no longer elected at once, without releasing them first."""
        vips = self._outlook.vips
        if vips is self._elected_of:
            return
        elected = frozenset(vip for vip, item in vips.items() if item.elected)
        for vip in self._elected - elected:
            if self._ownership.claims.stage(vip) is not Idle or self._standings.holders.of(vip) == self._me:
                self.leases.do(self._ownership.forget(vip, now_ns))
        self._elected, self._elected_of = elected, vips

    def _tidy(self, now_ns: int) -> int:
        """Now and then one node deletes claims to addresses no longer elected, and heartbeats of nodes that left."""
        if now_ns < self._tidied_ns + TIDY_NS:
            return self._tidied_ns + TIDY_NS
        self._tidied_ns = now_ns
        is_first_alive = self._me == min(self.alive)
        if is_first_alive:
            holders = {claim.holder for claim in self._cluster.claims}
            self.leases.do(self._ownership.peers.tidy(self._cluster.nodes, holders, now_ns))
        for vip in self._ownership.claims.claimed - self._elected:
            holder = self._standings.holders.of(vip)
            if holder == self._me or (holder not in self.alive and is_first_alive):
                self.leases.do(self._ownership.forget(vip, now_ns))
        return now_ns + TIDY_NS

    # ---- for those who read ----

    def candidates(self, vip: Vip) -> tuple[Candidate, ...]:
        """The nodes that might own an elected VIP, by preference."""
        return candidates(vip, self._outlook.vips, self.members, self._standings.holders.known)

    def holder(self, address: Address) -> Holder:
        """Who has a VIP. One that this node never wanted, and that has no Lease, has no claim."""
        found = self._ownership.holder(address, boot_ns())
        is_missing = not (found.known or found.exists) and self._cluster.leases_known
        return Holder(known=True) if is_missing else found

    def owned_since_ns(self, address: Address) -> int | None:
        """Since when (boot clock) this node answers for a VIP; None when it does not."""
        return self._standings.owned_since_ns(address)

    @property
    def heartbeats(self) -> Iterator[Heartbeat]:
        """The other nodes' heartbeats."""
        return self._ownership.peers.heartbeats

    @property
    def renewals(self) -> Renewals:
        """How this node's renewals went."""
        return self.leases.renewals

    @property
    def writes(self) -> Counter[tuple[str, str]]:
        """How often each kind of Lease was written, by outcome."""
        return self._requests.writes

    @property
    def times(self) -> Times:
        """The current lengths of this node's lease."""
        return times_of(self._outlook.lease, len(self.alive))

    @property
    def vouching(self) -> VouchingState | None:
        """The state of vouching on this node; None while it is off."""
        return self._vouching.state()

    @property
    def yielding(self) -> bool:
        """Whether another agent uses this node's name."""
        return self._ownership.heartbeat.yielding

    # ---- the end ----

    async def remove(self, limit_s: float) -> bool:
        """Gives up all VIPs in good order, and deletes its Leases; returns whether it was done within the limit."""
        self._leaving = True
        holders, now_ns = self._standings.holders, boot_ns()
        ours = [vip for vip in self._ownership.claims.claimed if holders.now(vip, now_ns) in ("", self._me)]
        return await self.leases.remove(ours, limit_s)

    async def part(self, lease_ns: int, limit_s: float) -> bool:
        """Renews one last time, so that answers outlast a restart; returns whether the server applied it."""
        await self._vouching.leave()
        return not self._takes_part or await self.leases.part(lease_ns, limit_s)


def _batched(vips: Iterable[Address]) -> Iterator[frozenset[Address]]:
    """In their order, some at a time."""
    ordered = sorted(vips, key=address_order)
    return (frozenset(ordered[at : at + WANTED_AT_ONCE]) for at in range(0, len(ordered), WANTED_AT_ONCE))


def _says(heartbeat: Heartbeat) -> tuple[object, ...]:
    """The parts of a heartbeat that a plain renewal leaves as they are."""
    return (
        *(heartbeat.epoch, heartbeat.instance, heartbeat.duration_ns, heartbeat.links),
        *(heartbeat.voucher, heartbeat.bound, heartbeat.vouching),
    )
