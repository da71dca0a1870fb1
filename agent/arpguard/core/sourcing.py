"""Which VIPs there are, where they come from, and whose they are: of the configuration and the cluster's Services.

| order | source                                                             |
| ----- | ------------------------------------------------------------------ |
| 0     | an item of `vips:`                                                 |
| 1     | a Service with the annotation arpguard.io/owner                    |
| 2     | a Service that has the labels of `services.selector`, if `enabled` |

The configuration goes before all Services. Of those the namespace decides that has the oldest one, and in it the first
by order and name. `Sourcing` remembers, to be quick; what it says depends on nothing
but its arguments.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

from arpguard.addresses import Address, reserved_address, vip_refusal
from arpguard.config.model import AgentConfig
from arpguard.core.bounding import bounded
from arpguard.core.cluster import EndpointSlice, Node, Service
from arpguard.core.offers import ACTION, ANNOTATED, SELECTED, Offer, offer_of
from arpguard.core.origins import Origin
from arpguard.core.prefixes import Prefixes
from arpguard.core.reporting import Notice, Subject
from arpguard.model import SERVICE_SOURCE, InterfaceAddress, Link, Owner, OwnerKind, Surroundings, Vip

K = TypeVar("K")
V = TypeVar("V")
Key: TypeAlias = tuple[str, str]  # namespace and name
Followed: TypeAlias = Callable[[Service, Address], str | None]

MAX_PROBLEMS = 20
MAX_ALIKE = 4  # of what is wrong with addresses of a Service in the same way
MAX_NOTICES = 4096
MAX_ASKING = 20  # sources of an address that are named
MAX_SHOWN = 5  # ranges
_CONFIG: Key = ("", "")  # no Service is called so


@dataclass(frozen=True, slots=True)
class Avoided:
    """Addresses that this node knows to be no VIPs. `own`: the first of each of its links, whatever the Nodes say.

    `reserved`: those of these links' subnets that no host has.
    """

    gateways: frozenset[Address] = frozenset()
    api_servers: frozenset[Address] = frozenset()
    own: frozenset[Address] = frozenset()
    reserved: frozenset[Address] = frozenset()


@dataclass(frozen=True, slots=True)
class Collected:
    """What the sources come to. `vips` is the same object while nothing has changed in it, and is not to be changed.

    `undecided`: elected VIPs whose nodes are not known before EndpointSlices are: nobody takes them, and who has
    them keeps them. `notices` are the same on every node, for one to post; `own_notices` are this node's alone.
    `needs_slices`: whether EndpointSlices have to be watched. `follows`: the Services that follow another announcer.
    """

    vips: dict[Address, Vip] = field(default_factory=dict)
    undecided: frozenset[Address] = frozenset()
    problems: tuple[str, ...] = ()
    notices: tuple[Notice, ...] = ()
    own_notices: tuple[Notice, ...] = ()
    needs_slices: bool = False
    follows: frozenset[Key] = frozenset()


def avoided(surroundings: Surroundings, servers: frozenset[Address] = frozenset()) -> Avoided:
    """The addresses that are somebody's for good, as this node sees them; `servers` are the API server's.

    The first address of a link in a family that has a subnet is the node's own: VIPs are bound to `lo`, to devices
    without ARP, as host addresses, or behind it.
    """
    gateways = frozenset(route.via for route in surroundings.routes if route.via is not None)
    links = (link for link in surroundings.links if not (link.loopback or link.no_arp))
    first = [own for link in links for version in (4, 6) for own in _first_own(link, version)]
    reserved = (reserved_address(own.network) for own in first)
    return Avoided(
        gateways,
        servers,
        own=frozenset(own.address for own in first),
        reserved=frozenset(address for address in reserved if address is not None),
    )


def _first_own(link: Link, version: int) -> list[InterfaceAddress]:
    """The first address of a link in a family that has a subnet; none, or one."""
    return [own for own in link.addresses if own.address.version == version and own.network in link.subnets][:1]


def follow_nobody(_service: Service, _address: Address) -> str | None:
    """Where no other announcer is watched."""
    return None


@dataclass(frozen=True, slots=True)
class _Refusal:
    reason: str
    why: str
    own: bool = False


@dataclass(frozen=True)
class _Ground:
    """What else there is in the cluster: which addresses may be guarded. Two that say the same are equal."""

    ranges: Prefixes
    avoided: Avoided
    names: frozenset[str]
    addresses: dict[Address, str]
    pods: Prefixes

    @classmethod
    def of(cls, config: AgentConfig, nodes: Mapping[str, Node], avoided: Avoided) -> "_Ground":
        return cls(
            ranges=Prefixes(config.ranges),
            avoided=avoided,
            names=frozenset(nodes),
            addresses={address: name for name, node in sorted(nodes.items()) for address in node.addresses},
            pods=Prefixes(network for node in nodes.values() for network in node.pod_networks),
        )

    def refusal(self, address: Address) -> _Refusal | None:
        """Why an address is never guarded."""
        unfit, node = vip_refusal(address), self.addresses.get(address)
        if unfit is not None:
            return _Refusal("VIPUnfit", f"{address} {unfit}: choose one that a host can own")
        if node is not None:
            return _node_address(address, f"node {node}")
        if address in self.avoided.gateways:
            return _Refusal("VIPIsGateway", f"{address} is a gateway: choose an address that no host has")
        if address in self.avoided.api_servers:
            return _Refusal("VIPIsAPIServer", f"{address} is the API server's: choose an address that no host has")
        if self.pods.containing(address):
            return _Refusal("VIPInPodNetwork", f"{address} is in a Pod network: choose one of the nodes' network")
        return self._own_refusal(address)

    def _own_refusal(self, address: Address) -> _Refusal | None:
        """The same, as far as this node alone knows."""
        if address in self.avoided.reserved:
            what = "broadcast" if address.version == 4 else "subnet-router anycast"
            why = f"{address} is the {what} address of this node's subnet: choose one that a host can own"
            return _Refusal("VIPUnfit", why, own=True)
        return _node_address(address, "this node", own=True) if address in self.avoided.own else None

    def may_range(self, address: Address) -> bool:
        """Whether Services may have it guarded."""
        return bool(self.ranges.containing(address))


def _node_address(address: Address, whose: str, *, own: bool = False) -> _Refusal:
    why = f"{address} is the address of {whose}, which would be cut off: choose an address that no host has"
    return _Refusal("VIPIsNodeAddress", why, own)


@dataclass(frozen=True, slots=True)
class _Bid:
    """One source's word about one address. `subject` None: the configuration."""

    order: tuple[int, str, str]
    vip: Vip
    name: str
    subject: Subject | None = None
    undecided: bool = False
    made: str = ""

    @property
    def namespace(self) -> str:
        return self.order[1]

    @property
    def terms(self) -> tuple[object, ...]:
        return self.vip.owner, self.vip.mode, self.vip.interface, self.vip.hold


@dataclass(frozen=True, slots=True)
class _Complaint:
    """Why one address of a source is no VIP, or not as it asks for. `subject` None: the configuration."""

    subject: Subject | None
    name: str
    refusal: _Refusal


@dataclass(slots=True)
class _Part:
    """What one source comes to. `unranged`: addresses left alone as `ranges` is empty."""

    bids: list[_Bid] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    complaints: list[_Complaint] = field(default_factory=list)
    unranged: int = 0
    local_only: bool = False
    follows: bool = False

    @property
    def has_news(self) -> bool:
        return bool(self.problems or self.notices or self.complaints or self.unranged)

    def complain(self, subject: Subject | None, name: str, refusal: _Refusal) -> None:
        self.complaints.append(_Complaint(subject, name, refusal))


class _Told:
    """What there is to say of parts, in their order. Of what is alike in a Service's addresses some stand for all."""

    def __init__(self, parts: Iterable[_Part]) -> None:
        self._problems: list[str] = []
        self._notices: dict[bool, list[Notice]] = {False: [], True: []}  # own ones: True
        alike: Counter[tuple[Subject, str, bool]] = Counter()
        unranged = 0
        for part in parts:
            unranged += part.unranged
            self._problems += part.problems
            self._notices[False] += part.notices
            for each in part.complaints:
                if each.subject is None:
                    self._problems.append(f"{each.name}: {each.refusal.why}")
                    continue
                kind = each.subject, each.refusal.reason, each.refusal.own
                alike[kind] += 1
                if alike[kind] <= MAX_ALIKE:
                    self._tell(each.name, each.refusal.why, *kind)
        for kind, count in alike.items():
            if count > MAX_ALIKE:
                self._tell_of_rest(count - MAX_ALIKE, *kind)
        first = f"addresses of Services ({unranged}) are left alone: `ranges` is empty, so none may be guarded"
        self.problems = tuple(bounded([first, *self._problems] if unranged else self._problems, MAX_PROBLEMS))
        self.notices, self.own_notices = (tuple(self._notices[own][:MAX_NOTICES]) for own in (False, True))

    def _tell(self, name: str, why: str, subject: Subject, reason: str, own: bool) -> None:  # noqa: FBT001
        self._problems.append(f"{name}: {why}")
        self._notices[own].append(Notice(subject, reason, ACTION, why))

    def _tell_of_rest(self, count: int, subject: Subject, reason: str, own: bool) -> None:  # noqa: FBT001
        """An Event has no count in it: with each that came or went it would be another."""
        name = f"{SERVICE_SOURCE}{subject.namespace}/{subject.name}"
        self._problems.append(f"{name}: {count} more of its addresses: {reason}")
        note = "more of its addresses: `arpguard explain ADDRESS` says why for each"
        self._notices[own].append(Notice(subject, reason, ACTION, note))


class Sourcing:
    """Collects the VIPs; only what has changed since the last time is looked at again."""

    def __init__(self) -> None:
        self._config: AgentConfig | None = None
        self._ground: _Ground | None = None
        self._services: dict[Key, Service] = {}
        self._nodes: dict[str, Node] = {}
        self._endpoints = _Endpoints()
        self._parts: dict[Key, _Part] = {}
        self._bids: dict[Address, dict[Key, _Bid]] = {}
        self._outcome = _Outcome()

    def collect(
        self,
        config: AgentConfig,
        services: Mapping[Key, Service],
        slices: Mapping[Key, EndpointSlice] | None,
        nodes: Mapping[str, Node],
        avoided: Avoided = Avoided(),
        followed: Followed = follow_nobody,
    ) -> Collected:
        """The VIPs now. `slices` None: not known yet. `followed` names the node that another announcer has chosen."""
        ground, changed = self._look_around(config, nodes, avoided)
        changed |= _changes(self._services, services)
        if self._endpoints.known != (slices is not None):
            changed |= self._outcome.local_only
        changed |= self._endpoints.update(slices)
        self._services = dict(services)
        changed |= self._moved(followed)
        touched: dict[Address, None] = {}
        for key in sorted(changed):  # the configuration first, in its order: where there is no room for all, it has it
            touched |= self._replace(key, self._part(key, config, ground, followed))
        for address in touched:
            self._outcome.settle(address, self._bids.get(address, {}))
        return self._outcome.collected()

    def origin(self, address: Address) -> Origin:
        """Where an address comes from, as of the last `collect`."""
        bids = _ranked(self._bids.get(address, {}).values())
        if bids:
            others = [_runner_up(bid, bids[0]) for bid in bids[1:]]
            return Origin(_WHY[bids[0].order[0]], others=_few(others))
        ground = self._ground
        if ground is None or self._config is None:
            return Origin()
        refusal = ground.refusal(address)
        asking = [service for service in self._services.values() if _has(service, address)]
        if refusal is not None:
            return Origin(refusals=(refusal.why, *_few([f"{_name(service)} asks for it" for service in asking])))
        return Origin(refusals=_few([_why_not(service, self._config) for service in asking]))

    def _look_around(
        self, config: AgentConfig, nodes: Mapping[str, Node], avoided: Avoided
    ) -> tuple[_Ground, set[Key]]:
        """All sources, where something has changed that they all depend on; and what that is now."""
        before = self._ground
        is_same = config is self._config and not _changes(self._nodes, nodes)
        if is_same and before is not None and before.avoided == avoided:
            return before, set()
        self._nodes = dict(nodes)
        ground = self._ground = _Ground.of(config, nodes, avoided)
        is_same, self._config = config == self._config and ground == before, config
        return ground, set() if is_same else {_CONFIG, *self._services}

    def _moved(self, followed: Followed) -> set[Key]:
        """The Services of which another announcer has chosen another node."""
        return {
            key
            for key in self._outcome.following
            for bid in self._parts[key].bids
            if key in self._services
            if bid.vip.owner.node != (followed(self._services[key], bid.vip.address) or "")
        }

    def _replace(self, key: Key, part: _Part | None) -> dict[Address, None]:
        """Puts a source's part in the place of what it was; the addresses that either is about, in their order."""
        before = self._parts.get(key)
        if part == before:
            return {}  # and not twice in memory
        self._parts.pop(key, None)
        touched: dict[Address, None] = {}
        for bid in before.bids if before else ():
            touched[bid.vip.address] = None
            del self._bids[bid.vip.address][key]
        for bid in part.bids if part else ():
            touched[bid.vip.address] = None
            self._bids.setdefault(bid.vip.address, {})[key] = bid
        for address in touched:
            if not self._bids[address]:
                del self._bids[address]
        if part is not None:
            self._parts[key] = part
        self._outcome.hear(key, part)
        return touched

    def _part(self, key: Key, config: AgentConfig, ground: _Ground, followed: Followed) -> _Part | None:
        if key == _CONFIG:
            return _of_config(config, ground)
        service = self._services.get(key)
        offer = offer_of(service, config.services) if service else None
        if service is None or offer is None:
            return None
        nodes = self._endpoints.nodes(key) if offer.local_only else None
        return _of_service(offer, ground, nodes, lambda address: followed(service, address) or "")


def _of_config(config: AgentConfig, ground: _Ground) -> _Part:
    part = _Part()
    for index, vip in enumerate(config.vips):
        name = f"vips[{index}]"
        refusal = ground.refusal(vip.address)
        if refusal is not None:
            part.complain(None, f"{name}.address", refusal)
            continue
        part.bids.append(_Bid((0, "", ""), vip, name))
        _ask_for_node(part, part.bids[-1], ground)
    return part


def _of_service(
    offer: Offer, ground: _Ground, nodes: Mapping[int, frozenset[str]] | None, followed: Callable[[Address], str]
) -> _Part:
    part = _Part(problems=list(offer.problems), notices=list(offer.notices))
    for vip in offer.vips:
        refusal = ground.refusal(vip.address)
        if refusal is not None:
            part.complain(offer.subject, vip.source, refusal)
        elif not ground.may_range(vip.address):
            _leave_alone(part, offer, vip, has_ranges=bool(ground.ranges))
        else:
            part.bids.append(_bid(offer, vip, nodes, followed))
            _ask_for_node(part, part.bids[-1], ground)
    part.bids = _led(part.bids)
    part.local_only = offer.local_only and bool(part.bids)
    part.follows = any(bid.vip.owner.kind is OwnerKind.FOLLOW for bid in part.bids)
    return part


def _led(bids: list[_Bid]) -> list[_Bid]:
    """The bids of a dual-stack Service: the IPv6 addresses go with the first IPv4 one, where nodes are elected."""
    elected = (bid.vip.address for bid in bids if bid.vip.owner.kind is OwnerKind.ELECT)
    lead = next((address for address in elected if address.version == 4), None)
    if lead is None:
        return bids
    return [replace(bid, vip=replace(bid.vip, lead=lead)) if bid.vip.address.version == 6 else bid for bid in bids]


def _bid(
    offer: Offer, vip: Vip, nodes: Mapping[int, frozenset[str]] | None, followed: Callable[[Address], str]
) -> _Bid:
    if vip.owner.kind is OwnerKind.FOLLOW:
        vip = replace(vip, owner=Owner(OwnerKind.FOLLOW, node=followed(vip.address)))
    elif nodes is not None:
        vip = replace(vip, nodes=nodes[vip.address.version])
    undecided = offer.local_only and nodes is None
    return _Bid(offer.order, vip, vip.source, offer.subject, undecided=undecided, made=offer.made)


def _leave_alone(part: _Part, offer: Offer, vip: Vip, *, has_ranges: bool) -> None:
    """Where no range is given at all, it is one problem, not one for each Service of a cluster."""
    if has_ranges or offer.order[0] == ANNOTATED:
        why = f"{vip.address} is in none of the configuration's `ranges`, and left alone: take another, or add a range"
        part.complain(offer.subject, vip.source, _Refusal("VIPOutsideRanges", why))
    else:
        part.unranged += 1


def _ask_for_node(part: _Part, bid: _Bid, ground: _Ground) -> None:
    owner = bid.vip.owner
    if owner.kind is OwnerKind.NODE and ground.names and owner.node not in ground.names:
        why = f"there is no node {owner.node}: nobody answers for {bid.vip.address}"
        part.complain(bid.subject, bid.name, _Refusal("UnknownNode", why))


_WHY = {
    0: "an item of `vips:` has the say before any Service",
    ANNOTATED: "its annotation arpguard.io/owner makes it one",
    SELECTED: "`services` of the configuration takes it",
}


def _few(lines: list[str]) -> tuple[str, ...]:
    return tuple(bounded(lines, MAX_ASKING, "of them"))


def _has(service: Service, address: Address) -> bool:
    return address in service.external_ips or address in service.ingress_ips


def _name(service: Service) -> str:
    return f"{SERVICE_SOURCE}{service.namespace}/{service.name}"


def _runner_up(bid: _Bid, first: _Bid) -> str:
    if bid.terms == first.terms:
        return f"{bid.name} shares it, with the same settings"
    if first.namespace and bid.namespace != first.namespace:
        reason = "of the namespace with the oldest Service that asks for it"
    elif bid.order[0] == first.order[0]:
        reason = "the first in the order of names"
    else:
        reason = "of higher precedence"
    return f"{bid.name} asks for it too, with other settings (owner {bid.vip.owner}): {first.name} is {reason}"


def _why_not(service: Service, config: AgentConfig) -> str:
    """Why a Service does not make one of its addresses a VIP that could be one."""
    offer = offer_of(service, config.services)
    if offer is None:
        why = "`services.selector` does not select it" if config.services.enabled else "`services.enabled` is false"
        return f"{_name(service)} asks for it and is not meant: it has no annotation arpguard.io/owner, and {why}"
    if not offer.vips:
        return f"{_name(service)} asks for it, but its owner cannot be read: {'; '.join(offer.problems)}"
    ranges = ", ".join(bounded([str(each) for each in config.ranges], MAX_SHOWN, "")) or "none"
    return f"{_name(service)} asks for it, but it is in none of the configuration's `ranges` ({ranges})"


def _ranked(bids: Iterable[_Bid]) -> list[_Bid]:
    """Who has the say about an address first: the configuration, then the namespace with the oldest Service.

    Whoever makes a Service takes nothing away from another namespace by it, whatever its name and annotations. Whoever
    edits one that is older does: no object tells since when a Service has had an address.
    """
    bids = list(bids)
    since: dict[str, str] = {}
    for bid in bids:
        since[bid.namespace] = min(bid.made, since.get(bid.namespace, bid.made))
    return sorted(bids, key=lambda bid: (bool(bid.order[0]), since[bid.namespace], bid.namespace, bid.order))


def _sharing(ranked: list[_Bid]) -> list[_Bid]:
    """Those that shape together what the first asks for: with the same settings, Services of one namespace only.

    Else a tenant would choose where another's VIP is, by a Service with endpoints there.
    """
    namespace = next((bid.namespace for bid in ranked if bid.namespace), "")
    return [bid for bid in ranked if bid.terms == ranked[0].terms and bid.namespace in ("", namespace)]


class _Endpoints:
    """On which nodes Services have ready endpoints, of each family: kube-proxy serves each from its own."""

    def __init__(self) -> None:
        self._slices: dict[Key, EndpointSlice] | None = None
        self._of: dict[Key, dict[Key, EndpointSlice]] = {}

    @property
    def known(self) -> bool:
        return self._slices is not None

    def update(self, slices: Mapping[Key, EndpointSlice] | None) -> set[Key]:
        """The Services whose nodes may be others now."""
        before, self._slices = self._slices, None if slices is None else dict(slices)
        changed = set()
        for key in _changes(before or {}, slices or {}):
            for found in filter(None, ((before or {}).get(key), (slices or {}).get(key))):
                service = found.namespace, found.service
                changed.add(service)
                self._of.get(service, {}).pop(key, None)
            now = (slices or {}).get(key)
            if now is not None:
                self._of.setdefault((now.namespace, now.service), {})[key] = now
        return changed

    def nodes(self, service: Key) -> dict[int, frozenset[str]] | None:
        """By family (4, 6); None before EndpointSlices are known."""
        if self._slices is None:
            return None
        slices = self._of.get(service, {}).values()
        return {
            version: frozenset(node for each in slices if each.version in (version, 0) for node in each.nodes)
            for version in (4, 6)
        }


class _Outcome:
    """What the bids come to, address by address, and what there is to say."""

    def __init__(self) -> None:
        self.following: set[Key] = set()
        self._vips: dict[Address, Vip] = {}
        self._given_out: dict[Address, Vip] | None = None
        self._undecided: set[Address] = set()
        self.local_only: set[Key] = set()
        self._parts: dict[Key, _Part] = {}
        self._disputes: dict[Address, _Part] = {}
        self._told: _Told | None = None

    def hear(self, key: Key, part: _Part | None) -> None:
        """What a source has to say; None: it is gone."""
        self._told = None
        _put(self._parts, key, part if part and part.has_news else None)
        for keys, belongs in ((self.local_only, part and part.local_only), (self.following, part and part.follows)):
            if belongs:
                keys.add(key)
            else:
                keys.discard(key)

    def settle(self, address: Address, bids: Mapping[Key, _Bid]) -> None:
        """Whose an address is."""
        ranked = _ranked(bids.values())
        sharing = _sharing(ranked)
        self._undecided.discard(address)
        vip = ranked[0].vip if ranked else None
        if any(bid.undecided for bid in sharing):
            self._undecided.add(address)
        elif vip is not None and len(sharing) > 1:
            lead = next((bid.vip.lead for bid in sharing if bid.vip.lead is not None), None)
            vip = replace(vip, nodes=_common_nodes(sharing), lead=lead)
        self._told = None
        _put(self._disputes, address, _dispute(ranked, vip) if vip else None)
        if vip != self._vips.get(address):
            _put(self._vips, address, vip)
            self._given_out = None

    def collected(self) -> Collected:
        """All of it."""
        if self._told is None:
            parts = [self._parts[key] for key in sorted(self._parts)]
            parts += [self._disputes[address] for address in sorted(self._disputes, key=str)]
            self._told = _Told(parts)
        if self._given_out is None:
            self._given_out = self._vips.copy()
        return Collected(
            vips=self._given_out,
            undecided=frozenset(self._undecided),
            problems=self._told.problems,
            notices=self._told.notices,
            own_notices=self._told.own_notices,
            needs_slices=bool(self.local_only),
            follows=frozenset(self.following),
        )


def _dispute(ranked: list[_Bid], vip: Vip) -> _Part | None:
    """What others say about an address that the first has the say about, and that came to `vip`. None: the same."""
    first, part = ranked[0], _Part()
    for bid in ranked[1:]:
        if bid.terms != first.terms:
            why = f"{first.name} has the say about {first.vip.address}, with other settings: make them the same"
            part.complain(bid.subject, bid.name, _Refusal("VIPConflictingSources", why))
        elif bid.vip.nodes and vip.nodes and not bid.vip.nodes & vip.nodes:
            why = f"no node has endpoints both for it and for {first.name}, which shares {first.vip.address}"
            part.complain(bid.subject, bid.name, _Refusal("VIPWithoutCommonNode", why))
        elif bid.vip.lead not in (None, vip.lead):
            why = (
                f"{vip.address} goes with {vip.lead}, since {first.name} shares it, so {bid.vip.lead} may have another "
                "owner: let both have the same first IPv4 address, or IPv6 addresses of their own"
            )
            part.complain(bid.subject, bid.name, _Refusal("VIPPairDivided", why))
    return part if part.complaints else None


def _common_nodes(sharing: Iterable[_Bid]) -> frozenset[str] | None:
    """The nodes that serve all Services which share an address: elsewhere some of its ports would lead nowhere.

    A Service that no node could serve, or none of those that the ones before it can be served on, does not count:
    it must not take the others' address away.
    """
    common: frozenset[str] | None = None
    restricting = [bid.vip.nodes for bid in sharing]
    for nodes in filter(None, restricting):
        common = nodes if common is None else (common & nodes or common)
    return frozenset() if common is None and all(nodes is not None for nodes in restricting) else common


def _changes(before: Mapping[K, V], now: Mapping[K, V]) -> set[K]:
    """The keys whose values are others. A value is never changed in place, so most are the same object."""
    changed = {key for key, value in now.items() if before.get(key) is not value}
    if len(before) + sum(key not in before for key in changed) != len(now):
        changed |= before.keys() - now.keys()
    return changed


def _put(into: dict[K, V], key: K, value: V | None) -> None:
    if value is None:
        into.pop(key, None)
    else:
        into[key] = value
