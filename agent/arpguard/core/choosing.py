"""Which links to guard, and on which of them a VIP is answered for.

Nothing here looks at the `local` routing table: an address that is bound on this node (by kube-proxy, on lo, by
another announcer) resolves to lo there, which is how `ip route get` leads others astray.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from arpguard.addresses import Address
from arpguard.config import InterfaceSelector, SelectorKind
from arpguard.model import InterfaceAddress, Link, Route, Surroundings

_NO_ROUTE = (1, 0)


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
) -> Choice:
    """The links that the selectors name here and now, and those of `guarded` (indexes) that are still there.

    An address or a route that is away for a moment, as while DHCP renews it, must not open the guard: the kernel
    answers for its VIPs all the same.
    """
    wanted = tuple(vips)
    surroundings = _with_shared_addresses(surroundings)
    chosen: dict[int, Link] = {}
    problems: list[str] = []
    for selector in selectors:
        links, problem = _RESOLVERS[selector.kind](selector, surroundings, wanted)
        for link in links:
            unfit = _unfit(link, surroundings)
            if unfit is None:
                chosen[link.ifindex] = link
            elif selector.kind is not SelectorKind.GLOB:
                problems.append(f"interfaces: {selector}: {unfit}")
        if problem:
            problems.append(f"interfaces: {selector}: {problem}")
    for ifindex in guarded:
        kept = surroundings.link(ifindex)
        if kept is not None and _unfit(kept, surroundings) is None:
            chosen[ifindex] = kept
    open_kinds = (SelectorKind.AUTO, SelectorKind.GLOB)
    return Choice(
        links=tuple(chosen[ifindex] for ifindex in sorted(chosen)),
        problems=tuple(problems),
        may_appear=any(selector.kind in open_kinds for selector in selectors),
    )


def home_link(vip: Address, links: Sequence[Link], routes: Iterable[Route]) -> Link | None:
    """The one guarded link that a VIP is answered on, when this node owns it.

    The link whose subnet the VIP is in; of several the one that is up, then the one with the best route.
    A VIP in nobody's subnet is at home where the routes lead, else on the first link.
    """
    if len(links) < 2:
        return links[0] if links else None
    best: dict[int, tuple[int, int]] = {}
    for route in sorted(_leading_to(vip, routes), key=_preference):
        best.setdefault(route.ifindex, _preference(route))

    def rank(link: Link) -> tuple[object, ...]:
        prefix = _subnet_prefix(link, vip)
        # The subnet decides also while a link is down: its routes are gone then, its addresses are not.
        return (not prefix, prefix and not link.up, -prefix, best.get(link.ifindex, _NO_ROUTE), link.ifindex)

    return min(links, key=rank)


def route_to(address: Address, routes: Iterable[Route]) -> Route | None:
    """The route of longest prefix, then lowest metric, that an address outside this node is reached by."""
    return min(_leading_to(address, routes), key=_preference, default=None)


def _leading_to(address: Address, routes: Iterable[Route]) -> list[Route]:
    return [r for r in routes if r.ifindex and r.network.version == address.version and address in r.network]


def _preference(route: Route) -> tuple[int, int]:
    return -route.network.prefixlen, route.metric


def _subnet_prefix(link: Link, vip: Address) -> int:
    """Prefix length of the link's subnet that the VIP is in, 0 if none. A host address is no subnet."""
    return max(
        (
            own.network.prefixlen
            for own in link.addresses
            if own.network.version == vip.version and own.network.num_addresses > 1 and vip in own.network
        ),
        default=0,
    )


def _with_shared_addresses(surroundings: Surroundings) -> Surroundings:
    """The addresses of a macvlan are on its parent's segment: the parent is the one to guard, with these too."""
    shared: dict[int, tuple[InterfaceAddress, ...]] = {}
    for link in surroundings.links:
        if link.parent:
            shared[link.parent] = shared.get(link.parent, ()) + link.addresses
    links = (replace(link, addresses=link.addresses + shared.get(link.ifindex, ())) for link in surroundings.links)
    return replace(surroundings, links=tuple(links))


def _unfit(link: Link, surroundings: Surroundings) -> str | None:
    """Why a link cannot be guarded."""
    if link.loopback:
        return f"resolves to {link.name}, which nobody asks for addresses on; name the interface that faces the network"
    if not link.ethernet:
        return f"{link.name} is no Ethernet device"
    if link.no_arp:
        return f"{link.name} does not speak ARP (NOARP); name the interface that faces the network"
    if link.parent:
        parent = surroundings.link(link.parent)
        name = parent.name if parent else f"interface {link.parent}"
        return f"{link.name} shares its segment with {name}, which would answer beside it: name {name} instead"
    if link.master:
        master = surroundings.link(link.master)
        name = master.name if master else f"interface {link.master}"
        return f"{link.name} is a port of {name}, which carries its addresses: name {name} instead"
    return None


_Resolved = tuple[list[Link], str | None]


def _named(selector: InterfaceSelector, surroundings: Surroundings, _vips: Sequence[Address]) -> _Resolved:
    links = [link for link in surroundings.links if selector.matches(link.name)]
    if links:
        return links, None
    if selector.kind is SelectorKind.GLOB:
        return [], "no interface of such a name yet"
    known = ", ".join(link.name for link in surroundings.links if _unfit(link, surroundings) is None)
    return [], f"there is no such interface; there are: {known or 'none that speak ARP'}"


def _automatic(_selector: InterfaceSelector, surroundings: Surroundings, vips: Sequence[Address]) -> _Resolved:
    fit = [link for link in surroundings.links if _unfit(link, surroundings) is None]
    carrying = [link for link in fit if any(_subnet_prefix(link, vip) for vip in vips)]
    if carrying:
        return carrying, None
    defaults = [route for route in surroundings.routes if route.network.prefixlen == 0 and route.network.version == 4]
    for route in sorted(defaults, key=_preference):
        link = surroundings.link(route.ifindex)
        if link in fit and link is not None:
            return [link], None
    return [], "no interface carries a VIP's subnet, and there is no default route; name the interface"


def _reaching(selector: InterfaceSelector, surroundings: Surroundings, _vips: Sequence[Address]) -> _Resolved:
    if selector.address is None:
        return [], None
    route = route_to(selector.address, surroundings.routes)
    link = surroundings.link(route.ifindex) if route else None
    if link is None:
        return [], "no route leads there; name an address that this node reaches by the interface to guard"
    return [link], None


def _routed(selector: InterfaceSelector, surroundings: Surroundings, _vips: Sequence[Address]) -> _Resolved:
    network = selector.network
    if network is None:
        return [], None
    indexes = {
        route.ifindex
        for route in surroundings.routes
        if route.network.version == network.version and route.network.prefixlen and network.overlaps(route.network)
    }
    links = [link for link in surroundings.links if link.ifindex in indexes]
    if not links:
        return [], "no route but the default one leads there; name a network that an interface is in"
    return links, None


_RESOLVERS: dict[SelectorKind, Callable[[InterfaceSelector, Surroundings, Sequence[Address]], _Resolved]] = {
    SelectorKind.AUTO: _automatic,
    SelectorKind.NAME: _named,
    SelectorKind.GLOB: _named,
    SelectorKind.CIDR: _routed,
    SelectorKind.CAN_REACH: _reaching,
}
