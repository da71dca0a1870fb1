"""The nodes of the cluster as an election sees them: who may own which VIP, and who is preferred.

A cordoned node is second choice: it still serves, and an answer from it is better than none. A node that others may not
hear (core/vouching/seeking) is third choice. All other reasons rule a node out: packets that its answers attract would
be lost.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias
from weakref import ref

from arpguard.addresses import Address, Network
from arpguard.core.claimwords import Candidate
from arpguard.core.cluster import EXCLUDE_LABEL, Node
from arpguard.core.groups import Group, group_of
from arpguard.core.ownership.records import PublishedLink
from arpguard.core.prefixes import Prefixes
from arpguard.core.rendezvous import Scales, fingerprint, ranked, weight
from arpguard.core.reporting import Subject
from arpguard.model import Vip

_Terms: TypeAlias = tuple[frozenset[str] | None, str, tuple[Network, ...]]

_SLOWER = 4  # weighing nodes one by one takes so many times as long as weighing all of a pool at once
CORDONED = "cordoned, and another node is available"
DOUBTED = "other nodes may not hear its frames, and another node is available"


@dataclass(frozen=True, slots=True)
class Member:
    """A node. `alive`: its agent renewed lately (`Peers.heard`); `exists`: it has a Node object.

    `doubted`: other nodes may not hear its frames. `links` are its guarded links that are up: name, and a subnet
    on it.
    """

    name: str
    alive: bool = True
    exists: bool = True
    ready: bool = True
    excluded: bool = False
    cordoned: bool = False
    doubted: bool = False
    deleting: bool = False
    links: tuple[tuple[str, Network], ...] = ()

    @property
    def choice(self) -> int:
        """How good an owner it is, 0 is best: a VIP's pool has only the best of the nodes that may own it."""
        return 2 if self.doubted else int(self.cordoned)

    @property
    def refusal(self) -> str | None:
        """Why it is not eligible to own any VIP; None if it is eligible."""
        reasons = (
            (not self.alive, "its agent has not renewed its lease in time"),
            (not self.exists, "no Node has that name"),
            (self.deleting, "its Node is being deleted"),
            (not self.ready, "its Node is not ready"),
            (self.excluded, f"excluded by the label {EXCLUDE_LABEL}"),
        )
        return next((why for holds, why in reasons if holds), None)

    def reaches(self, address: Address, interface: str) -> bool:
        """Whether it has a link in the address's subnet; `interface` empty: any."""
        return any(address in network for name, network in self.links if interface in ("", name))


def members_of(
    nodes: Mapping[str, Node],
    links: Mapping[str, Iterable[PublishedLink]],
    alive: Collection[str],
    doubted: Collection[str] = (),
) -> tuple[Member, ...]:
    """The members, by name: nodes with a Node object, and those whose heartbeat publishes links.

    `alive` names those that renewed lately, this node among them. A host address does not count as a subnet.
    """
    unknown = Node("")
    return tuple(
        Member(
            name=name,
            alive=name in alive,
            exists=name in nodes,
            ready=node.ready,
            excluded=node.excluded,
            cordoned=node.unschedulable,
            doubted=name in doubted,
            deleting=node.deleting,
            links=tuple(
                (link.name, network)
                for link in links.get(name, ())
                for network in link.networks
                if network.num_addresses > 1
            ),
        )
        for name in sorted(nodes.keys() | links.keys())
        for node in (nodes.get(name, unknown),)
    )


class Preference(NamedTuple):
    """The node that a pool prefers for a VIP, and how many nodes it prefers to the node that asks (`ahead`)."""

    first: str = ""
    ahead: int = 0


class Pool:
    """The nodes that may own a VIP. Two VIPs with the same nodes, interface and subnets share a pool.

    Methods take VIPs and asking nodes by their fingerprints. Of two nodes with equal weight the last by name wins.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.fingerprints = {name: fingerprint(name) for name in sorted(names, reverse=True)}
        self._names = tuple(self.fingerprints)
        self._scales = Scales(self.fingerprints.values())
        self._before: Callable[[], Pool | None] = lambda: None  # weak: otherwise all former pools would stay alive
        self._joined: dict[str, int] = {}
        self._left: list[int] = []

    def __contains__(self, name: str) -> bool:
        return name in self.fingerprints

    def __bool__(self) -> bool:
        return bool(self._names)

    def is_only(self, name: str) -> bool:
        """Whether this node is the only one."""
        return self._names == (name,)

    def preference(self, vip: int, asking: int) -> Preference:
        """The preference among all of them."""
        if not self:
            return Preference()
        weights, own = self._scales.weights(vip), weight(vip, asking)
        return Preference(self._names[weights.index(max(weights))], sum(map(own.__lt__, weights)))

    def preference_after(self, before: "Pool", known: Preference, vip: int, asking: int) -> Preference:
        """The same; `known`: the preference in the previous pool. If few nodes came and went, it weighs only those."""
        if known.first not in self or self._has_little_of(before):
            return self.preference(vip, asking)
        if not (self._joined or self._left):
            return known
        own = weight(vip, asking)
        come, gone = (sum(weight(vip, each) > own for each in those) for those in (self._joined.values(), self._left))
        first = max((known.first, *self._joined), key=lambda name: self._order(vip, name))
        return Preference(first, known.ahead + come - gone)

    def _has_little_of(self, before: "Pool") -> bool:
        if self._before() is not before:
            self._before = ref(before)
            self._joined = {name: each for name, each in self.fingerprints.items() if name not in before}
            self._left = [each for name, each in before.fingerprints.items() if name not in self]
        return _SLOWER * (len(self._joined) + len(self._left)) > len(self._names)

    def prefers(self, vip: int, name: str, other: str) -> bool:
        """Whether the pool prefers a node to another."""
        return self._order(vip, name) > self._order(vip, other)

    def _order(self, vip: int, name: str) -> tuple[int, str]:
        return weight(vip, self.fingerprints[name]), name


class Pools:
    """The pools of all VIPs, for a fixed set of members."""

    def __init__(self, members: Iterable[Member]) -> None:
        members = tuple(members)
        self._usable = tuple(member for member in members if member.refusal is None)
        self._interfaces: dict[str, Prefixes] = {}
        self._links = {link for member in members for link in member.links}
        self._pools: dict[_Terms, Pool] = {}
        self._alike: dict[tuple[_Terms, ...], tuple[Pool, dict[_Terms, bool]]] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pools) and (self._usable, self._links) == (other._usable, other._links)

    __hash__ = None  # type: ignore[assignment]

    def of(self, vip: Vip) -> Pool:
        """The nodes that may own a VIP."""
        terms = self._terms(vip)
        pool = self._pools.get(terms)
        if pool is None:
            pool = self._pools[terms] = _pool(self._fit(vip))
        return pool

    def divided(self, group: Group) -> tuple[tuple[Group, Pool], ...]:
        """Splits a group: the lead with those that some node may own together with it, then each of the rest by itself.

        VIPs join one after the other; one that would leave no node stays out.
        """
        if len(group) == 1:
            return ((group, self.of(group[0])),)

        terms = tuple(map(self._terms, group))
        if terms not in self._alike:  # equal terms give the same pool
            self._alike[terms] = self._join(dict(zip(terms, group, strict=True)))
        pool, joins = self._alike[terms]

        lead, *others = zip(group, terms, strict=True)
        together = (lead[0], *(vip for vip, each in others if joins[each]))
        return (together, pool), *(((vip,), self.of(vip)) for vip, each in others if not joins[each])

    def _join(self, vips: Mapping[_Terms, Vip]) -> tuple[Pool, dict[_Terms, bool]]:
        """Joins one VIP after the other, except those that would leave no node; returns the nodes that are left."""
        fit: list[Member] = []
        joins: dict[_Terms, bool] = {}
        for terms, vip in vips.items():
            those = self._fit(vip)
            among = set(those)
            common = [member for member in fit if member in among] if joins else those
            joins[terms], fit = bool(common), common or fit
        return _pool(fit), joins

    def _terms(self, vip: Vip) -> _Terms:
        return vip.nodes, vip.interface, self.subnets(vip)

    def _fit(self, vip: Vip) -> list[Member]:
        subnets = self.subnets(vip)
        return [member for member in self._usable if obstacle(vip, member, subnets) is None]

    def subnets(self, vip: Vip) -> tuple[Network, ...]:
        """The subnets that a VIP is in, on any member's links, even of members that are away now."""
        prefixes = self._interfaces.get(vip.interface)
        if prefixes is None:
            prefixes = Prefixes(network for name, network in self._links if vip.interface in ("", name))
            self._interfaces[vip.interface] = prefixes
        return prefixes.containing(vip.address)


def is_alone(name: str, members: Iterable[Member], vips: Iterable[Vip]) -> bool:
    """Whether a member is the only one, of whatever choice, that may own some elected VIP."""
    pools = Pools(replace(member, cordoned=False, doubted=False) for member in members)
    return any(vip.elected and pools.of(vip).is_only(name) for vip in vips)


def _pool(fit: list[Member]) -> Pool:
    best = min((member.choice for member in fit), default=0)
    return Pool(member.name for member in fit if member.choice == best)


def obstacle(vip: Vip, member: Member, subnets: tuple[Network, ...]) -> str | None:
    """Why a member may not own a VIP. One in no member's subnet may go to any member with a link."""
    if member.refusal is not None:
        return member.refusal
    if vip.nodes is not None and member.name not in vip.nodes:
        return "no ready endpoint on the node (externalTrafficPolicy: Local)"
    link = f"its link {vip.interface}" if vip.interface else "its link"
    if subnets:
        return None if member.reaches(vip.address, vip.interface) else f"{link} with {subnets[0]} is down or missing"
    has_link = any(vip.interface in ("", name) for name, _ in member.links)
    return None if has_link else f"{link if vip.interface else 'every guarded link'} is down or missing"


def candidates(
    vip: Vip, vips: Mapping[Address, Vip], members: Iterable[Member], holders: Mapping[Address, str]
) -> tuple[Candidate, ...]:
    """All members: first those that may own an elected VIP, by preference. `holders`: who has each VIP now."""
    members = tuple(members)
    pools = Pools(members)
    together, pool = next(part for part in pools.divided(group_of(vip, vips)) if vip in part[0])

    lead, holder = together[0].address, holders.get(vip.address, "")
    order = ranked(str(lead), (member.name for member in members if member.name in pool))
    heir = next((name for name in order if lead != vip.address and name == holders.get(lead)), "")
    order.sort(key=lambda name: name != heir)

    chosen = holder or next(iter(order), "")
    eligible = [
        Candidate(
            name,
            eligible=True,
            chosen=name == chosen,
            why=_together(lead, vip.address) if name == heir else _place(place, has_it=name == holder),
            leads=name == heir,
        )
        for place, name in enumerate(order, 1)
    ]
    own_first = (vip, *(each for each in together if each is not vip))
    others = [
        Candidate(name, eligible=False, chosen=name == chosen, why=why_not(own_first, member, pools))
        for name, member in sorted({member.name: member for member in members}.items())
        if name not in pool
    ]
    return (*eligible, *others)


def why_not(group: Group, member: Member, pools: Pools) -> str:
    """Why a member that is not in the pool of a group may not own its first VIP."""
    reasons = ((vip, obstacle(vip, member, pools.subnets(vip))) for vip in group)
    why_worse = DOUBTED if member.doubted else CORDONED
    vip, why = next(((vip, why) for vip, why in reasons if why is not None), (group[0], why_worse))
    return why if vip is group[0] else f"{vip.address}, which must have the same owner, cannot go to this node: {why}"


def _together(lead: Address, address: Address) -> str:
    return f"owns {lead}, and {address} must have the same owner"


def _place(place: int, *, has_it: bool) -> str:
    return f"choice {place}; it is the current owner, and keeps the VIP" if has_it else f"choice {place}"


def speaker(subject: Subject, members: Iterable[Member]) -> str:
    """The node that posts Events about an object which all nodes see alike; empty when no node is alive."""
    name = f"{subject.kind}/{subject.namespace}/{subject.name}"
    return next(iter(ranked(name, (member.name for member in members if member.alive))), "")
