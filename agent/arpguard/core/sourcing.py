"""Which VIPs there are: of the configuration and the cluster's Services, brought up to date as they change.

```text
config, Service --> offers: what each source asks for, a bid for each address
                       |
  Nodes, avoided --> admission: which of the addresses may be VIPs
                       |
   slices, others' --> sourcing: on which nodes; the index of all bids by address
     announcements     |
                     bids.decide: the owner of each address, by the bids for it alone
                       |
                       +--> Collected: VIPs; telling: problems and Events; origins: why, for one who asks
```

`Sourcing` caches for speed; its results depend only on its arguments.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

from arpguard.addresses import Address
from arpguard.config.model import AgentConfig
from arpguard.core.admission import Admission, Avoided
from arpguard.core.bids import Bid, decide
from arpguard.core.cluster import EndpointSlice, Key, Node, Service
from arpguard.core.offers import Offer, offer_of, offer_of_config
from arpguard.core.origins import Origin, origin_of_other, origin_of_vip
from arpguard.core.reporting import Notice
from arpguard.core.telling import Telling, problems_of
from arpguard.model import Owner, OwnerKind, Vip

K = TypeVar("K")
V = TypeVar("V")
NodeOf: TypeAlias = Callable[[Service, Address], str | None]

_CONFIG: Key = ("", "")  # no Service is called so
_NOTHING = Avoided()


@dataclass(frozen=True, slots=True)
class Collected:
    """The result of all sources. `vips` is the same object while nothing in it has changed; do not modify it.

    `undecided`: elected VIPs whose nodes are not known until EndpointSlices have been read: no node takes them, and
    holders keep them. `notices` are the same on every node, and one node posts them; `own_notices` are this node's.
    `needs_slices`: whether EndpointSlices have to be watched. `follows`: the Services that follow another announcer.
    """

    vips: dict[Address, Vip] = field(default_factory=dict)
    undecided: frozenset[Address] = frozenset()
    problems: tuple[str, ...] = ()
    notices: tuple[Notice, ...] = ()
    own_notices: tuple[Notice, ...] = ()
    needs_slices: bool = False
    follows: frozenset[Key] = frozenset()


def follow_nobody(_service: Service, _address: Address) -> str | None:
    """For callers that watch no other announcers."""
    return None


class Sourcing:
    """Collects the VIPs; each time it looks only at what has changed since the last time."""

    def __init__(self) -> None:
        self._config = AgentConfig()
        self._services: dict[Key, Service] = {}
        self._nodes: dict[str, Node] = {}
        self._admission = Admission.of(self._config, self._nodes, _NOTHING)

        self._endpoints = _Endpoints()
        self._offers: dict[Key, Offer] = {}
        self._needing_slices: set[Key] = set()
        self._following: set[Key] = set()
        self._with_news: set[Key] = set()

        self._bids: dict[Address, dict[Key, Bid]] = {}
        self._vips: dict[Address, Vip] = {}
        self._undecided: set[Address] = set()
        self._disputed: dict[Address, tuple[Bid, ...]] = {}

        self._misread: list[str] = []
        self._told: Telling | None = None
        self._given_out: dict[Address, Vip] | None = None

    def collect(
        self,
        config: AgentConfig,
        services: Mapping[Key, Service],
        slices: Mapping[Key, EndpointSlice] | None,
        nodes: Mapping[str, Node],
        avoided: Avoided = _NOTHING,
        followed: NodeOf = follow_nobody,
    ) -> Collected:
        """The VIPs now. `slices` None: not known yet. `followed` names the node that another announcer has chosen."""
        changed = self._look_around(config, nodes, avoided)
        changed |= _changes(self._services, services)
        if self._endpoints.known != (slices is not None):
            changed |= self._needing_slices
        changed |= self._endpoints.update(slices)
        self._services = dict(services)
        changed |= self._moved(followed)

        touched: dict[Address, None] = {}
        for key in sorted(changed):  # the configuration first, in its order, so that it wins when room is short
            touched |= self._replace(key, self._offer(key, followed))
        for address in touched:
            self._settle(address)
        return self._collected()

    def origin(self, address: Address) -> Origin:
        """Where an address comes from, as of the last `collect`."""
        bids = self._bids.get(address)
        if bids:
            return origin_of_vip(bids.values())
        asking = (each for each in self._services.values() if address in each.addresses)
        return origin_of_other(self._admission.refusal(address), asking, self._config)

    # ---- what has changed ----

    def _look_around(self, config: AgentConfig, nodes: Mapping[str, Node], avoided: Avoided) -> set[Key]:
        """All sources if something has changed that they all depend on, else none."""
        is_same = config is self._config and not _changes(self._nodes, nodes)
        if is_same and self._admission.avoided == avoided:
            return set()
        self._nodes = dict(nodes)
        if (misread := problems_of(nodes)) != self._misread:
            self._misread, self._told = misread, None
        admission = Admission.of(config, nodes, avoided)
        is_same = config == self._config and admission == self._admission
        self._config, self._admission = config, admission
        return set() if is_same else {_CONFIG, *self._services}

    def _moved(self, followed: NodeOf) -> set[Key]:
        """The Services for which an announcer has chosen another node."""
        return {
            key
            for key in self._following
            for bid in self._offers[key].bids
            if key in self._services and bid.admitted
            if bid.vip.owner.node != (followed(self._services[key], bid.vip.address) or "")
        }

    # ---- what a source asks for ----

    def _offer(self, key: Key, followed: NodeOf) -> Offer | None:
        """What a source asks for now; None: it is gone, or asks for nothing."""
        if key == _CONFIG:
            offer = offer_of_config(self._config)
            return replace(offer, bids=tuple(map(self._admission.judged, offer.bids)))

        service = self._services.get(key)
        asked = offer_of(service, self._config.services) if service is not None else None
        if service is None or asked is None:
            return None
        bids = list(map(self._admission.judged, asked.bids))
        if asked.local_only:
            nodes = self._endpoints.nodes(key)
            bids = [_on_nodes(bid, nodes) if bid.admitted else bid for bid in bids]
        else:
            bids = [_following(bid, service, followed) if bid.admitted else bid for bid in bids]
        return replace(asked, bids=_led(bids))

    def _replace(self, key: Key, offer: Offer | None) -> dict[Address, None]:
        """Replaces a source's offer; returns the addresses of the old and the new one, in their order."""
        before = self._offers.get(key)
        if offer == before:
            return {}  # keeps the old one, so that memory has only one of them

        touched: dict[Address, None] = {}
        for bid in before.bids if before else ():
            if bid.admitted:
                touched[bid.vip.address] = None
                del self._bids[bid.vip.address][key]
        for bid in offer.bids if offer else ():
            if bid.admitted:
                touched[bid.vip.address] = None
                self._bids.setdefault(bid.vip.address, {})[key] = bid

        _put(self._offers, key, offer)
        for keys, belongs in (
            (self._needing_slices, offer and offer.needs_slices),
            (self._following, offer and offer.follows),
            (self._with_news, offer and offer.has_news),
        ):
            if belongs:
                keys.add(key)
            else:
                keys.discard(key)
        self._told = None
        return touched

    # ---- what it comes to ----

    def _settle(self, address: Address) -> None:
        """Decides an address again."""
        award = decide(self._bids[address].values())
        if award.vip is None:
            del self._bids[address]

        self._undecided.discard(address)
        if award.undecided:
            self._undecided.add(address)
        _put(self._disputed, address, award.disputed or None)
        if award.vip != self._vips.get(address):
            _put(self._vips, address, award.vip)
            self._given_out = None

    def _collected(self) -> Collected:
        if self._told is None:
            offers = [self._offers[key] for key in sorted(self._with_news)]
            disputed = (Offer(self._disputed[each]) for each in sorted(self._disputed, key=str))
            self._told = Telling([*offers, *disputed], self._misread)
        if self._given_out is None:
            self._given_out = self._vips.copy()
        return Collected(
            vips=self._given_out,
            undecided=frozenset(self._undecided),
            problems=self._told.problems,
            notices=self._told.notices,
            own_notices=self._told.own_notices,
            needs_slices=bool(self._needing_slices),
            follows=frozenset(self._following),
        )


def _on_nodes(bid: Bid, nodes: Mapping[int, frozenset[str]] | None) -> Bid:
    """A bid for the nodes that have ready endpoints of its family."""
    if nodes is None:
        return replace(bid, undecided=True)
    return replace(bid, vip=replace(bid.vip, nodes=nodes[bid.vip.address.version]))


def _following(bid: Bid, service: Service, followed: NodeOf) -> Bid:
    """A bid for the node that another announcer has chosen, where one is followed."""
    if bid.vip.owner.kind is not OwnerKind.FOLLOW:
        return bid
    owner = Owner(OwnerKind.FOLLOW, node=followed(service, bid.vip.address) or "")
    return replace(bid, vip=replace(bid.vip, owner=owner))


def _led(bids: list[Bid]) -> tuple[Bid, ...]:
    """The bids of a dual-stack Service: if elected, its IPv6 addresses go with the first IPv4 one."""
    elected = (bid.vip.address for bid in bids if bid.admitted and bid.vip.elected)
    lead = next((address for address in elected if address.version == 4), None)
    if lead is None:
        return tuple(bids)
    return tuple(replace(bid, vip=replace(bid.vip, lead=lead)) if bid.vip.address.version == 6 else bid for bid in bids)


class _Endpoints:
    """The nodes with ready endpoints of each Service, by family: kube-proxy serves each family from its own."""

    def __init__(self) -> None:
        self._slices: dict[Key, EndpointSlice] | None = None
        self._of: dict[Key, dict[Key, EndpointSlice]] = {}

    @property
    def known(self) -> bool:
        return self._slices is not None

    def update(self, slices: Mapping[Key, EndpointSlice] | None) -> set[Key]:
        """Takes the EndpointSlices; returns the Services whose nodes may have changed."""
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
        """The nodes by family (4, 6); None until EndpointSlices have been read."""
        if self._slices is None:
            return None
        slices = self._of.get(service, {}).values()
        return {
            version: frozenset(node for each in slices if each.version in (version, 0) for node in each.nodes)
            for version in (4, 6)
        }


def _changes(before: Mapping[K, V], now: Mapping[K, V]) -> set[K]:
    """The keys whose values have changed. Values are never modified in place, so most are the same object."""
    changed = {key for key, value in now.items() if before.get(key) is not value}
    if len(before) + sum(key not in before for key in changed) != len(now):
        changed |= before.keys() - now.keys()
    return changed


def _put(into: dict[K, V], key: K, value: V | None) -> None:
    if value is None:
        into.pop(key, None)
    else:
        into[key] = value
