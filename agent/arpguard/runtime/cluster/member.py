"""This node as a member of the cluster: what it wants to own, what the kernel is told of it, and what is made public.

Between `cluster` (the objects), `core.electing` (who is to own what) and `leases` (who may).
"""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from arpguard.addresses import ZERO_MAC, Address, MacAddress
from arpguard.clock import boot_ns
from arpguard.config.model import LeaseConfig
from arpguard.core import members
from arpguard.core.choosing import home_link
from arpguard.core.cluster import Lease
from arpguard.core.conflicts import Holding
from arpguard.core.electing import REST_NS, Election, Wishes, lease_times, rest_ns
from arpguard.core.holding import Candidate
from arpguard.core.members import candidates, is_alone, members_of
from arpguard.core.ownership.heartbeat import Times
from arpguard.core.ownership.machine import NOTHING_KEPT, Kept, Ownership
from arpguard.core.ownership.records import Claim, Heartbeat, Holder, PublishedLink, epoch_number
from arpguard.core.ownership.stages import Idle
from arpguard.core.sourcing import Collected
from arpguard.core.steadiness import Steadiness
from arpguard.dataplane.prober import Prober
from arpguard.errors import DataPlaneError
from arpguard.kube import claims
from arpguard.kube.client import Client
from arpguard.kube.errors import ClusterError
from arpguard.kube.reflector import Change
from arpguard.kube.writer import LeaseWriter
from arpguard.model import Link, NodeControl, OwnerKind, Standing, Surroundings, Vip
from arpguard.runtime.cluster.conflicts import Knowledge
from arpguard.runtime.cluster.leases import DRAIN_S, Leases, Surface
from arpguard.runtime.cluster.objects import Cluster, Place
from arpguard.runtime.kernel.reconciler import Reconciler
from arpguard.units import NS_PER_S
from arpguard.verdict import Kind

log = logging.getLogger(__name__)

SYNC_NS = 30 * NS_PER_S
RETRY_S = 1.0
TIDY_NS = 10 * NS_PER_S
TELLINGS = 4  # of links, at most, in the time from one renewal to the next
_NOBODY = Standing(Kind.UNCLAIMED)


@dataclass(slots=True)
class _Heard:
    """A node's heartbeat, and when it was last seen to change (boot clock).

    `renewed`: it was seen to; one that was only found may be months old.
    """

    heartbeat: Heartbeat
    at_ns: int
    renewed: bool


@dataclass(frozen=True, slots=True)
class Tell:
    """Who is told of what happens.

    `owned`: this node has begun to answer for a VIP. `taken_outside`: one that is not heard of as a node has one.
    `look`: a pass of the reconciler is needed.
    """

    owned: Callable[[Address], None]
    taken_outside: Callable[[Address, MacAddress], Awaitable[None]]
    look: Callable[[], None]


class Membership:
    """One agent's membership, from the moment that its own heartbeat could be read.

    `left`: what the agent before this one left in the kernel (`Reconciler.adopt`).
    """

    def __init__(
        self,
        place: Place,
        cluster: Cluster,
        kernel: Reconciler,
        left: tuple[NodeControl | None, Mapping[Address, Standing]],
        clients: tuple[Client, Client],
        tell: Tell,
    ) -> None:
        self._me = place.node
        self._namespace = place.namespace
        self._cluster = cluster
        self._kernel = kernel
        self._clients = clients
        self._tell = tell
        self._found = left
        self._prober = Prober(self._is_guarded)
        self._alone = asyncio.Event()
        self._ownership: Ownership | None = None
        self._leases: Leases | None = None
        self._election: Election | None = None
        self._config = LeaseConfig()
        self._collected: Collected | None = None
        self._surroundings = Surroundings()
        self._heard: dict[str, _Heard] = {}
        self._members: tuple[members.Member, ...] = ()
        self._claims: set[Address] = set()
        self._owned: dict[Address, int] = {}
        self._owned_ns: dict[Address, int] = {}
        self._holders: dict[Address, str] = {}
        self._stale: set[Address] = set()
        self._unrefreshed: set[Address] = set()
        self._alive: frozenset[str] = frozenset()
        self._elected: frozenset[Address] = frozenset()
        self._elected_of: Mapping[Address, Vip] = {}
        self._tidied_ns = 0
        self._leaving = False
        self._links_left: tuple[PublishedLink, ...] = ()
        self._links_told: tuple[PublishedLink, ...] = ()
        self._links_told_ns = 0
        self._steadiness = Steadiness()
        self._spared: dict[str, tuple[tuple[members.Member, ...], Mapping[Address, Vip]]] = {}
        self.wishes = Wishes()
        self.takes_part = True

    # ---- life ----

    async def run(self, config: LeaseConfig) -> None:
        """Takes part until it is cancelled. Whatever the kernel has from an agent before stays if it is still ours."""
        self._config = config
        control, standings = self._found
        left = {vip: standing.epoch for vip, standing in standings.items() if standing.kind is Kind.OWNED}
        hearts, others = (LeaseWriter(client, self._namespace, _timeout_s(_times(config))) for client in self._clients)
        found = await self._own_heartbeat(hearts)
        kept = bool(control and found and found.epoch and epoch_number(found.epoch) == control.epoch)
        if not kept:
            self._owned = left
            for vip in tuple(left):
                self._disown(vip)
            await self._outlive(found)
        self._owned = left if kept else {}
        self._owned_ns = dict.fromkeys(self._owned, boot_ns())
        self._links_left = self._links_told = found.links if found and kept else ()
        ownership = self._ownership = Ownership(
            self._me,
            str(uuid.uuid4()),
            _times(config),
            lambda: str(uuid.uuid4()),
            Kept(found.epoch, tuple(left), _fence_ns(control)) if control and found and kept else NOTHING_KEPT,
        )
        surface = Surface(
            self._kernel,
            self._own,
            self._disown,
            self._probe,
            self._changed,
            self._links_to_publish,
            self._source,
            self._cluster.renewed,
        )
        leases = self._leases = Leases(self._me, ownership, hearts, others, surface)
        for node, heard in self._heard.items():
            leases.heartbeat_seen(node, heard.heartbeat)
        leases.do(ownership.want(self._owned, boot_ns()))  # or its claims, if they are known, would be released
        for claim in filter(None, map(claims.claim_of, self._cluster.leases)):
            leases.claim_seen(claim.vip, claim)
        with self._prober:
            await leases.run(self._decide)

    async def _own_heartbeat(self, hearts: LeaseWriter) -> Heartbeat | None:
        """As the server has it: whether this agent may go on with what one before it left."""
        failed = False
        while True:
            try:
                lease = await hearts.read(claims.node_lease_name(self._me))
            except ClusterError as error:
                if not failed:
                    log.warning("lease: the own heartbeat cannot be read, nothing new is owned before: %s", error)
                failed = True
                await asyncio.sleep(RETRY_S)
            else:
                return claims.heartbeat_of(lease) if lease else None

    async def _outlive(self, found: Heartbeat | None) -> None:
        """Programs of another build may answer on the lease that this node had: while they do, they are this node."""
        if found is None or not found.instance:
            return
        try:
            async with asyncio.timeout(found.duration_ns / NS_PER_S):
                await self._alone.wait()
        except TimeoutError:
            pass
        await asyncio.sleep(DRAIN_S)

    # ---- what others tell ----

    def lease_changed(self, change: Change[Lease]) -> None:
        """A Lease of the namespace has changed."""
        lease = change.new or change.old
        if lease is None:
            return
        node, vip = claims.node_of(lease.name), claims.vip_of(lease.name)
        if node is not None:
            self._heartbeat_changed(node, claims.heartbeat_of(change.new) if change.new else None)
        elif vip is not None:
            self._claim_changed(vip, claims.claim_of(change.new) if change.new else None)

    def _heartbeat_changed(self, node: str, heartbeat: Heartbeat | None) -> None:
        is_news = self._hear(node, heartbeat)
        if self._leases is not None:
            self._leases.heartbeat_seen(node, heartbeat)
            if is_news:
                self._leases.wake()

    def _claim_changed(self, vip: Address, claim: Claim | None) -> None:
        (self._claims.add if claim else self._claims.discard)(vip)
        if self._leases is not None:
            self._leases.claim_seen(vip, claim)

    def _hear(self, node: str, heartbeat: Heartbeat | None) -> bool:
        """Whether anything has to be decided anew: a hundred nodes that renew in a second are no news."""
        known = self._heard.get(node)
        before = known.heartbeat if known else None
        if heartbeat is None:
            self._heard.pop(node, None)
        else:
            self._heard[node] = _Heard(heartbeat, boot_ns(), renewed=known is not None)
        if before is None or heartbeat is None or before.links != heartbeat.links:
            self._refresh(vip for vip, holder in self._holders.items() if holder == node)
        if before is None or heartbeat is None or before.epoch != heartbeat.epoch:
            self._stale |= self._claims  # by another epoch others are void
        is_same = before is not None and heartbeat is not None and _says(before) == _says(heartbeat)
        return not is_same or node not in self._alive

    def look_at(self, collected: Collected | None, surroundings: Surroundings, config: LeaseConfig) -> None:
        """The VIPs and links as the reconciler's pass found them; None: not all VIPs were known then.

        Nothing is claimed, and nothing given up, before they are.
        """
        before, self._collected = self._collected, collected
        self._surroundings, self._config = surroundings, config
        if self._election is not None and before and collected and before.vips is not collected.vips:
            self._refresh(_on_other_interfaces(before.vips, collected.vips))

    def passed(self, *, complete: bool) -> None:
        """A pass of the reconciler is through, over all that there is to know or not."""
        if complete and self._kernel.alone:
            self._alone.set()
        self.wake()

    def wake(self) -> None:
        """Something has changed that may change what this node wants."""
        if self._leases is not None:
            self._leases.wake()

    def claimed(self, ifname: str, vip: Address, sha: MacAddress) -> None:
        """The kernel reports that somebody claims a VIP."""
        self._prober.claimed(ifname, vip, sha)

    def is_member(self, mac: MacAddress) -> bool:
        """Whether a MAC is that of a guarded link of some node."""
        published = (link.mac for heard in self._heard.values() for link in heard.heartbeat.links)
        return mac in (link.mac for link in self._kernel.state.links) or mac in published

    def _is_guarded(self, vip: Address, mac: MacAddress) -> bool:
        """Whether a MAC is that of a guarded link where this VIP is silent, or will be: what is heard of it is a move.

        A node whose agent is silent has no kernel that answers by a lease: another program answers there, or there is
        no guard any more. With `hold` its kernel may answer, and another node takes over all the same.
        """
        if mac in (link.mac for link in self._kernel.state.links):
            return True
        now_ns, found = boot_ns(), self._vip(vip)
        return any(
            (each.renewed and each.heartbeat.instance and self._silent_ns(each) > now_ns) or (found and found.hold)
            for each in self._heard.values()
            if mac in (link.mac for link in each.heartbeat.links)
        )

    # ---- what is known of those who claim ----

    @property
    def knowledge(self) -> Knowledge:
        """What tells who claims a VIP, and whether it is theirs."""
        return Knowledge(self._published, self._addresses, self._unheard, self.holding, self._recheck)

    def _published(self) -> dict[MacAddress, str]:
        """Of this node all links count, guarded or not."""
        heard = {link.mac: name for name, each in self._heard.items() for link in each.heartbeat.links}
        own = (*self._surroundings.links, *self._kernel.state.links)
        return heard | {link.mac: self._me for link in own if not link.mac.is_zero}

    def _addresses(self) -> dict[Address, str]:
        return {address: name for name, node in self._cluster.nodes.items() for address in node.addresses}

    def _unheard(self) -> frozenset[str]:
        """Nodes without an agent."""
        return frozenset(self._cluster.nodes) - self._alive

    def holding(self, address: Address) -> Holding:
        """Who has a VIP, by a claim that is valid, or by what says whose it is."""
        vip = self._vip(address)
        is_heard = not any(source.lost for source in self._cluster.sources.values())
        if vip is None or vip.owner.kind is not OwnerKind.ELECT:
            return Holding(vip.owner.node if vip else "", is_sure=is_heard and vip is not None)
        holder = self._holder(address, boot_ns())
        is_valid = holder.void is False and holder.alive
        is_mine = holder.node == self._me
        return Holding(
            node=holder.node if is_valid else "",
            is_sure=is_heard and holder.void is not None and (is_valid or not is_mine),
            own_since_ns=self._owned_ns.get(address) if is_valid and is_mine else None,
        )

    def _recheck(self, vip: Address) -> None:
        if self._leases is not None:
            self._leases.recheck(vip)

    # ---- decisions ----

    def _decide(self, now_ns: int) -> int | None:
        """What this node wants; when to ask again."""
        ownership, leases, collected = self._ownership, self._leases, self._collected
        if ownership is None or leases is None:
            return None
        if self._leaving or collected is None or not self._cluster.known:
            leases.do(ownership.want(() if self._leaving else self._owned, now_ns))
            return None
        if self._election is None:
            self._election = Election(self._me, now_ns)
            self._refresh({*self._claims, *collected.vips})
        self._note_alive(now_ns)
        self._believe_in_need(collected.vips, now_ns)
        self._members = members_of(self._cluster.nodes, self._all_links(), self._alive)
        self._forget_what_is_gone(collected.vips, ownership, leases, now_ns)
        self.takes_part = bool(self._elected) and bool(self._links_now())
        self._tell_links(ownership, leases, now_ns)
        leases.do(ownership.take_part(self.takes_part, now_ns))
        self._stretch(now_ns)
        self.wishes = self._election.wanted(
            collected.vips, self._members, self._current_holders(now_ns), now_ns, collected.undecided
        )
        for vip in self.wishes.wanted - self._claims:
            if not ownership.holder(vip, now_ns).known:
                leases.do(ownership.claim_seen(vip, None, now_ns))  # all Leases were read, and it has none
        leases.do(ownership.want(self.wishes.wanted, now_ns))
        steady_ns = self._steadiness.next_ns(now_ns)
        times = [self.wishes.next_ns, self._next_silence_ns(now_ns), self._tidy(now_ns), steady_ns]
        return min((at for at in times if at is not None), default=None)

    def _note_alive(self, now_ns: int) -> None:
        """Who was heard of lately. A little less than a lease: preparations for a takeover take their time."""
        heard = self._heard.items()
        alive = frozenset(
            {self._me, *(name for name, each in heard if each.heartbeat.instance and self._silent_ns(each) > now_ns)}
        )
        changed, self._alive = alive ^ self._alive, alive
        for vip, holder in self._holders.items():
            if holder in changed:
                self._stale.add(vip)

    def _silent_ns(self, heard: _Heard) -> int:
        """When a node that is not heard of any more counts as silent."""
        return heard.at_ns + max(heard.heartbeat.duration_ns, self._config.duration_ns) - self._config.renew_ns // 2

    def _next_silence_ns(self, now_ns: int) -> int | None:
        times = (self._silent_ns(heard) for name, heard in self._heard.items() if name != self._me)
        return min((at for at in times if at > now_ns), default=None)

    def _all_links(self) -> dict[str, tuple[PublishedLink, ...]]:
        return {name: heard.heartbeat.links for name, heard in self._heard.items()} | {self._me: self._links_now()}

    def _stretch(self, now_ns: int) -> None:
        if self._ownership is not None and self._leases is not None:
            times = self.times
            self._leases.set_timeout(_timeout_s(times))
            self._leases.do(self._ownership.set_times(times, now_ns))

    def _current_holders(self, now_ns: int) -> Mapping[Address, str]:
        """Who has each VIP that was ever held; empty where that one is not alive, or the claim is void."""
        for vip in self._stale:
            holder = self._holder(vip, now_ns)
            if not holder.known or (vip not in self._claims and not holder.node):
                self._holders.pop(vip, None)
            else:
                self._holders[vip] = holder.node if holder.void is False else ""
        self._stale.clear()
        return {vip: holder if holder in self._alive else "" for vip, holder in self._holders.items()}

    def _forget_what_is_gone(
        self, vips: Mapping[Address, Vip], ownership: Ownership, leases: Leases, now_ns: int
    ) -> None:
        """Of a VIP that is elected no more, the claim is not released first: it goes at once."""
        if vips is self._elected_of:
            return
        elected = frozenset(vip for vip, item in vips.items() if item.owner.kind is OwnerKind.ELECT)
        for vip in self._elected - elected:
            if ownership.stage(vip) is not Idle or self._holders.get(vip) == self._me:
                leases.do(ownership.forget(vip, now_ns))
        self._elected, self._elected_of = elected, vips

    def _tidy(self, now_ns: int) -> int | None:
        """Other claims on addresses that are elected no more are removed now and then, by one node."""
        if now_ns < self._tidied_ns + TIDY_NS or self._ownership is None or self._leases is None:
            return self._tidied_ns + TIDY_NS
        self._tidied_ns = now_ns
        for vip in self._claims - self._elected:
            holder = self._holders.get(vip, "")
            if holder == self._me or (holder not in self._alive and self._is_first_alive()):
                self._leases.do(self._ownership.forget(vip, now_ns))
        return now_ns + TIDY_NS

    def _is_first_alive(self) -> bool:
        return self._me == min(self._alive)

    # ---- what the protocol meets ----

    def _own(self, vip: Address, epoch: int) -> None:
        self._owned[vip] = epoch
        self._owned_ns[vip] = boot_ns()
        self._refresh([vip])
        self._tell.owned(vip)

    def _disown(self, vip: Address) -> None:
        self._owned.pop(vip, None)
        self._owned_ns.pop(vip, None)
        self._refresh([vip])

    def _changed(self, vip: Address) -> None:
        """Claims of other nodes often change together: the agent writes their entries in one go."""
        self._stale.add(vip)
        if not self._unrefreshed:
            asyncio.get_running_loop().call_soon(self._refresh_changed)
        self._unrefreshed.add(vip)

    def _refresh_changed(self) -> None:
        changed, self._unrefreshed = self._unrefreshed, set()
        self._refresh(changed)

    def _refresh(self, vips: Iterable[Address]) -> None:
        """Tells the kernel how VIPs stand."""
        standings = {vip: self._standing(vip) for vip in vips}
        if standings and not self._kernel.elect(standings, boot_ns()):
            self._tell.look()

    def _standing(self, vip: Address) -> Standing:
        if vip in self._owned:
            return Standing(Kind.OWNED, self._owned[vip])
        holder = self._holder(vip, boot_ns())
        if holder.external:
            return Standing(Kind.EXTERNAL, mac=MacAddress.parse(holder.external))
        if holder.node in ("", self._me) or holder.void is True:
            return _NOBODY
        return Standing(Kind.FOREIGN, mac=self._mac_of(holder.node, vip))

    def _mac_of(self, node: str, vip: Address) -> MacAddress:
        """The MAC that a node answers for a VIP with; zero where that is not known for sure."""
        heard = self._heard.get(node)
        links = heard.heartbeat.links if heard else ()
        interface = self._interface(vip)
        on_it = (link for link in links if interface in ("", link.name))
        found = [link.mac for link in on_it if any(vip in network for network in link.networks)]
        return found[0] if len(found) == 1 else ZERO_MAC

    def _holder(self, vip: Address, now_ns: int) -> Holder:
        return self._ownership.holder(vip, now_ns) if self._ownership else Holder()

    async def _probe(self, vip: Address) -> MacAddress | None:
        interface = self._interface(vip)
        links = [link for link in self._kernel.state.links if interface in ("", link.name)]
        home = home_link(vip, links, self._surroundings.routes)
        if home is None:
            raise DataPlaneError(f"{vip} cannot be probed for: no link is guarded")
        taken_by = await self._prober.probe(home, vip)
        if taken_by is not None and not self._is_guarded(vip, taken_by):
            await self._tell.taken_outside(vip, taken_by)
        return taken_by

    def _links_now(self) -> tuple[PublishedLink, ...]:
        """The guarded links that are up and steady.

        Before the first pass none is known: those that an agent before this one published are guarded still.
        """
        links = self._kernel.state.links
        if self._collected is None and not links:
            return self._links_left
        return _as_told(self._steadiness.steady(links, boot_ns()))

    def _believe_in_need(self, vips: Mapping[Address, Vip], now_ns: int) -> None:
        """A link that was lost again and again is believed earlier where without it nobody could own some VIP.

        `_spared`: of which of them that is not so, as long as members and VIPs are the same.
        """
        steady = self._links_now()
        held_back = self._steadiness.held_back(self._kernel.state.links, now_ns)
        spared, self._spared = self._spared, {}
        for link in held_back:
            links = self._all_links() | {self._me: (*steady, *_as_told([link]))}
            asked = members_of(self._cluster.nodes, links, self._alive), vips
            known = spared.get(link.name)
            if known is not None and known[0] == asked[0] and known[1] is vips:
                self._spared[link.name] = known
            elif is_alone(self._me, asked[0], vips.values()):
                log.info(
                    "link %s was lost again and again, and is used: VIPs would have no owner without it", link.name
                )
                self._steadiness.believe(link.name, now_ns)
            else:
                self._spared[link.name] = asked

    def _links_to_publish(self) -> tuple[PublishedLink, ...]:
        """What a renewal tells the others."""
        links = self._links_now()
        if links != self._links_told:
            named = " ".join(f"{link.name}={link.mac}" for link in links)
            log.info("links that VIPs may be owned on: %s", named or "none")
        self._links_told = links
        return links

    def _tell_links(self, ownership: Ownership, leases: Leases, now_ns: int) -> None:
        """Others hear at once of links that are lost, found or have a new MAC; of many changes, only now and then."""
        links = self._links_now()
        if links == self._links_told or now_ns < self._links_told_ns + self._config.renew_ns // TELLINGS:
            return
        renewal = ownership.hurry(now_ns)
        if renewal:
            self._links_told_ns = now_ns
            leases.do(renewal)

    def _source(self, vip: Address) -> str:
        found = self._vip(vip)
        return found.source or "configuration" if found else ""

    def _interface(self, address: Address) -> str:
        """The only interface that a VIP may be on; empty: any."""
        found = self._vip(address)
        return found.interface if found else ""

    def _vip(self, address: Address) -> Vip | None:
        return self._collected.vips.get(address) if self._collected else None

    # ---- for those who read ----

    def candidates(self, vip: Vip) -> tuple[Candidate, ...]:
        """The nodes that might own an elected VIP, by preference."""
        return candidates(vip, self._collected.vips if self._collected else {}, self._members, self._holders)

    def holder(self, address: Address) -> Holder:
        """Who has a VIP. What nobody ever wanted here, and has no Lease, has no claim."""
        found = self._holder(address, boot_ns())
        missing = not found.known and self._cluster.leases_known and address not in self._claims
        return Holder(known=True) if missing else found

    @property
    def members(self) -> tuple[members.Member, ...]:
        """The nodes."""
        return self._members

    @property
    def alive(self) -> frozenset[str]:
        """The nodes that were heard of within a lease, this one among them."""
        return self._alive

    @property
    def leases(self) -> Leases | None:
        """The protocol; None before the own heartbeat was read."""
        return self._leases

    @property
    def times(self) -> Times:
        """The lengths of this node's lease now."""
        nodes = len(self._alive)
        return _times(lease_times(self._config, nodes), rest_ns(nodes))

    @property
    def yielding(self) -> bool:
        """Whether another agent speaks as this node."""
        return self._ownership is not None and self._ownership.yielding

    # ---- the end ----

    async def remove(self, limit_s: float) -> bool:
        """Gives up all VIPs, in good order, and removes what is nobody's; whether that was done within the limit."""
        self._leaving = True
        ours = [vip for vip in self._claims if self._holders.get(vip, "") in ("", self._me)]
        return self._leases is not None and await self._leases.remove(ours, limit_s)

    async def part(self, lease_ns: int, limit_s: float) -> bool:
        """Renews for the last time, so that a restart does not interrupt answers; whether that was done."""
        return self._leases is None or not self.takes_part or await self._leases.part(lease_ns, limit_s)


def _as_told(links: Iterable[Link]) -> tuple[PublishedLink, ...]:
    """Links as a heartbeat tells of them."""
    return tuple(PublishedLink(link.name, link.mac, link.subnets) for link in links)


def _on_other_interfaces(before: Mapping[Address, Vip], now: Mapping[Address, Vip]) -> list[Address]:
    """The VIPs whose owner answers with another MAC now."""
    return [vip for vip in before.keys() & now.keys() if before[vip].interface != now[vip].interface]


def _times(config: LeaseConfig, rest: int = REST_NS) -> Times:
    return Times(config.duration_ns, config.renew_ns, config.margin_ns, SYNC_NS, rest)


def _says(heartbeat: Heartbeat) -> tuple[object, ...]:
    """What a renewal leaves as it is."""
    return heartbeat.epoch, heartbeat.instance, heartbeat.duration_ns, heartbeat.links


def _timeout_s(times: Times) -> float:
    """Of a request: less than the margin (claims answered later are of no use, and a late renewal is of little)."""
    return 0.9 * times.margin_ns / NS_PER_S


def _fence_ns(control: NodeControl) -> int:
    """The fence as the program reckons: one further ahead than a lease lasts has passed."""
    return control.fence_ns if control.fence_ns - boot_ns() <= control.lease_ns else 0
