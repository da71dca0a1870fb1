"""Which links to guard, and on which of them a VIP is answered for.

Nothing here looks at the `local` routing table: an address that is bound on this node (by kube-proxy, on lo, by
another announcer) resolves to lo there, so `ip route get` misleads.
In the other tables the longest prefix decides; then `main` comes before those that `ip rule` selects; then the metric
decides.
"""

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from arpguard.addresses import Address, Network, is_everywhere, vip_refusal
from arpguard.config.model import InterfaceSelector, SelectorKind
from arpguard.model import Link, Route, Surroundings

RoutePreference: TypeAlias = tuple[int, bool, int]
_NO_ROUTE: RoutePreference = (1, True, 0)


@dataclass(frozen=True, slots=True)
class Choice:
    """The links to guard, by index; what could not be resolved; and whether to wait for a link that may yet appear."""

    links: tuple[Link, ...]
    problems: tuple[str, ...] = ()
    may_appear: bool = False


def choose_links(
    selectors: Sequence[InterfaceSelector],
    surroundings: Surroundings,
    vips: Iterable[Address],
    guarded: Iterable[int] = (),
    closed: Iterable[Network] = (),
) -> Choice:
    """The links that the selectors name here and now, and those of `guarded` (indexes) that are still there.

    For `auto`, a closed network counts like a VIP that may later appear anywhere in it.

    An address or a route that is away for a moment, as while DHCP renews it, must not open the guard: the kernel
    answers for its VIPs all the same. Nor may the guard open on a link that becomes a port until its master is guarded.
    """
    wanted = (*vips, *closed)
    surroundings = _with_shared_addresses(surroundings)
    chosen: dict[int, Link] = {}
    problems: list[str] = []

    for selector in selectors:
        links, problem = _RESOLVERS[selector.kind](selector, surroundings, wanted)
        for link in links:
            unfit = unguardable(link, surroundings)
            if unfit is None:
                chosen[link.ifindex] = link
            elif selector.kind is not SelectorKind.GLOB:
                problems.append(f"interfaces: {selector}: {unfit}")
        if problem:
            problems.append(f"interfaces: {selector}: {problem}")

    for ifindex in guarded:
        kept = surroundings.link(ifindex)
        if kept is not None and (
            unguardable(kept, surroundings) is None or _guards_for_master(kept, chosen, surroundings)
        ):
            chosen[ifindex] = kept

    open_kinds = (SelectorKind.AUTO, SelectorKind.GLOB)
    return Choice(
        links=tuple(chosen[ifindex] for ifindex in sorted(chosen)),
        problems=tuple(problems),
        may_appear=any(selector.kind in open_kinds for selector in selectors),
    )


def home_link(vip: Address, links: Sequence[Link], routes: Sequence[Route]) -> Link | None:
    """The one guarded link that a VIP is answered on, when this node owns it.

    The link whose subnet the VIP is in; of several the one that is up, then the one with the best route.
    A VIP outside every subnet is at home where the routes lead, else on the first link.
    """
    if len(links) < 2:
        return links[0] if links else None
    ranked = sorted(((_by_subnet(link, vip), link) for link in links), key=lambda item: item[0])
    best = [link for rank, link in ranked if rank == ranked[0][0]]
    return best[0] if len(best) < 2 else _first_by_route(vip, best, routes)


def _by_subnet(link: Link, vip: Address) -> tuple[bool, bool, int]:
    """The subnet decides also while a link is down: its routes are gone then, its addresses are not."""
    prefix = _subnet_prefix(link, vip)
    return not prefix, bool(prefix) and not link.up, -prefix


def _first_by_route(vip: Address, links: Iterable[Link], routes: Sequence[Route]) -> Link:
    def rank(link: Link) -> tuple[RoutePreference, int]:
        leading = (route for route in routes if route.ifindex == link.ifindex and vip in route.network)
        return min(map(_preference, leading), default=_NO_ROUTE), link.ifindex

    return min(links, key=rank)


def route_to(address: Address, routes: Iterable[Route]) -> Route | None:
    """The best route to an address outside this node, which may be one that leads nowhere (`ifindex` 0).

    A route that leads nowhere, in a table that not all packets use, counts only for those that `ip rule` sends there.
    """
    reaching = (r for r in routes if (r.ifindex or r.main) and address in r.network)
    return min(reaching, key=_preference, default=None)


def _preference(route: Route) -> RoutePreference:
    return -route.network.prefixlen, not route.main, route.metric


def _subnet_prefix(link: Link, vip: Address) -> int:
    """Prefix length of the link's subnet that the VIP is in, 0 if none."""
    networks = (*(own.network for own in link.addresses), *link.on_link)
    return max((net.prefixlen for net in networks if vip in net and net.prefixlen < net.max_prefixlen), default=0)


def _with_shared_addresses(surroundings: Surroundings) -> Surroundings:
    """The addresses of a macvlan are on its parent's segment: the parent is the one to guard, with these too."""
    sharing: dict[int, list[Link]] = {}
    for link in surroundings.links:
        if link.parent:
            sharing.setdefault(link.parent, []).append(link)
    if not sharing:
        return surroundings
    links = (_together(link, sharing.get(link.ifindex, [])) for link in surroundings.links)
    return replace(surroundings, links=tuple(links))


def _together(link: Link, sharing: Iterable[Link]) -> Link:
    links = (link, *sharing)
    return replace(
        link,
        addresses=tuple(own for each in links for own in each.addresses),
        on_link=tuple(dict.fromkeys(network for each in links for network in each.on_link)),
    )


# Masters whose ports keep their addresses: an interface in a VRF is like any other, with a routing table of its own.
_ADDRESSES_STAY = ("vrf",)
_OPEN_VSWITCH, _OPEN_VSWITCHS_OWN = "openvswitch", "ovs-system"

_FACELESS = {
    "vrf": "is a VRF, which faces no network itself: name the interfaces in it",
    _OPEN_VSWITCH: "is Open vSwitch's own device and has no address: name the switch's interface that has this node's "
    "address",
}


def unguardable(link: Link, surroundings: Surroundings) -> str | None:
    """Why a link cannot be guarded."""
    if link.loopback:
        return f"resolves to {link.name}, where no host sends ARP requests; name the interface that faces the network"
    if (link.kind, link.name) == (_OPEN_VSWITCH, _OPEN_VSWITCHS_OWN) or link.kind == "vrf":
        return f"{link.name} {_FACELESS[link.kind]}"

    if not link.ethernet:
        kind = f" ({link.kind})" if link.kind else ""
        return (
            f"{link.name} is not an Ethernet device{kind}, so no host sends ARP requests there; name an Ethernet device"
        )
    if link.no_arp:
        return f"{link.name} does not speak ARP (NOARP); name the interface that faces the network"
    if link.parent:
        name = _name_of(link.parent, surroundings)
        return f"{link.name} shares its segment with {name}, which would answer unguarded: name {name} instead"
    return _unfit_port(link, surroundings) if link.master else None


def xdp_refusal(link: Link) -> str | None:
    """Why a program at native XDP would not guard a link, although the kernel takes it there."""
    if link.kind == "bond":
        return "XDP sees frames on the bond's ports, not on the bond"
    return None


def _unfit_port(link: Link, surroundings: Surroundings) -> str | None:
    master = surroundings.link(link.master)
    kind = master.kind if master else ""
    if kind in _ADDRESSES_STAY:
        return None
    name = _name_of(link.master, surroundings)
    if kind == _OPEN_VSWITCH:
        return (
            f"{link.name} is a port of Open vSwitch ({name}): name the switch's interface that has this node's address"
        )
    return f"{link.name} is a port of {name}, which has the addresses: name {name} instead"


def _guards_for_master(link: Link, chosen: Container[int], surroundings: Surroundings) -> bool:
    """Whether a link became a port of something that could be guarded and is not: all frames still come through it."""
    master = surroundings.link(link.master)
    if master is None or master.kind == _OPEN_VSWITCH:  # the master of its ports carries no addresses
        return False
    return master.ifindex not in chosen and unguardable(master, surroundings) is None


def _name_of(ifindex: int, surroundings: Surroundings) -> str:
    link = surroundings.link(ifindex)
    return link.name if link else f"interface {ifindex}"


_Resolved = tuple[list[Link], str | None]
_Wanted: TypeAlias = Address | Network


def _named(selector: InterfaceSelector, surroundings: Surroundings, _wanted: Sequence[_Wanted]) -> _Resolved:
    links = [link for link in surroundings.links if any(map(selector.matches, link.names))]
    if links:
        return links, None
    if selector.kind is SelectorKind.GLOB:
        return [], "no interface matches it yet"
    known = ", ".join(link.name for link in surroundings.links if unguardable(link, surroundings) is None)
    advice = f"name one of {known}" if known else "no interface of this node can be guarded"
    return [], f"there is no such interface; {advice}"


def _automatic(_selector: InterfaceSelector, surroundings: Surroundings, wanted: Sequence[_Wanted]) -> _Resolved:
    """For each family of VIPs and closed ranges: the links with a subnet of theirs, else that of the default route."""
    fit = [link for link in surroundings.links if unguardable(link, surroundings) is None]
    links: list[Link] = []
    for version in sorted({each.version for each in wanted}):
        own = [each for each in wanted if each.version == version]
        carrying = [link for link in fit if any(_meet(subnet, each) for subnet in link.subnets for each in own)]
        links += carrying or _by_default_route(version, fit, surroundings)
    if not links:
        links = _by_default_route(4, fit, surroundings) or _by_default_route(6, fit, surroundings)
    if links:
        return links, None
    return [], "no interface has a VIP's subnet, and there is no default route; name the interface to guard"


def _meet(subnet: Network, wanted: _Wanted) -> bool:
    return subnet.overlaps(wanted) if isinstance(wanted, Network) else wanted in subnet


def _by_default_route(version: int, fit: Sequence[Link], surroundings: Surroundings) -> list[Link]:
    """The link of the best default route of one family that leads out of a link that can be guarded; none, if none."""
    defaults = [r for r in surroundings.routes if not r.network.prefixlen and r.network.version == version]
    ways = (_on_segment(route.ifindex, surroundings) for route in sorted(defaults, key=_preference))
    return next(([link] for link in ways if link in fit and link is not None), [])


def _reaching(selector: InterfaceSelector, surroundings: Surroundings, _wanted: Sequence[_Wanted]) -> _Resolved:
    if selector.address is None:
        return [], None
    unfit = vip_refusal(selector.address)
    if unfit is not None and not _is_routed(selector.address):
        advice = "name an address that this node reaches by a route"
        return [], f"{selector.address} {unfit}, which no route leads to; {advice}"
    route = route_to(selector.address, surroundings.routes)
    if route is not None and not route.ifindex:
        return [], f"the route to {route.network} leads nowhere (blackhole or unreachable); name another address"
    link = _on_segment(route.ifindex, surroundings) if route else None
    if link is None:
        return [], "no route leads there; name an address that this node reaches through the interface to guard"
    return [link], None


def _is_routed(address: Address) -> bool:
    """Of the addresses that are for one link only, IPv4's are reached by a route: clouds serve metadata there."""
    return address.version == 4 and address.is_link_local


def _routed(selector: InterfaceSelector, surroundings: Surroundings, _wanted: Sequence[_Wanted]) -> _Resolved:
    network = selector.network
    if network is None:
        return [], None
    if is_everywhere(network):
        return [], "every interface is in this network; name another network, or the interface"

    indexes = {
        route.ifindex
        for route in surroundings.routes
        if route.network.version == network.version
        and route.network.prefixlen
        and network.overlaps(route.network)
        and not is_everywhere(route.network)
    }

    found = (_on_segment(ifindex, surroundings) for ifindex in sorted(indexes))
    links = list(dict.fromkeys(link for link in found if link is not None))

    if not links:
        return [], "only a default route leads there; name a network that an interface is in"
    return links, None


def _on_segment(ifindex: int, surroundings: Surroundings) -> Link | None:
    """The link that routes lead out of: of a macvlan its parent, whose segment it is on."""
    link = surroundings.link(ifindex)
    return surroundings.link(link.parent) if link is not None and link.parent else link


_RESOLVERS: dict[SelectorKind, Callable[[InterfaceSelector, Surroundings, Sequence[_Wanted]], _Resolved]] = {
    SelectorKind.AUTO: _automatic,
    SelectorKind.NAME: _named,
    SelectorKind.GLOB: _named,
    SelectorKind.CIDR: _routed,
    SelectorKind.CAN_REACH: _reaching,
}
