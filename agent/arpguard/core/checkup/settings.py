"""Checks of the kernel's settings on the links that face VIPs."""

from collections.abc import Iterator, Sequence
from itertools import combinations

from arpguard.addresses import Address
from arpguard.core.checkup.answering import has, in_subnet, places
from arpguard.core.checkup.findings import Finding, Grade, bad, listed, ok, skip, unknown, warn
from arpguard.core.checkup.picture import Picture, otherwise
from arpguard.core.checkup.sysctls import shown
from arpguard.core.choosing import route_to
from arpguard.model import Link
from arpguard.verdict import Kind

_IGNORES_ALL = 8
_STRICT = 1


@otherwise(lambda picture: _values(picture, "ipv4/arp_ignore"))
def arp_ignore(picture: Picture) -> Iterator[Finding]:
    """arp_ignore where it keeps VIPs silent, or is set where it has no effect."""
    for link in picture.facing:
        finding = _too_silent(picture, link) or _set_in_vain(picture, link)
        if finding is not None:
            yield finding


def _too_silent(picture: Picture, link: Link) -> Finding | None:
    value = picture.sysctls.effective("ipv4/arp_ignore", link.name)
    if not value:
        return None

    commands = picture.sysctls.set("ipv4/arp_ignore", link.name, 0)
    if value == _IGNORES_ALL:
        why = "the kernel answers no ARP request here: neighbours lose this node as soon as their ARP caches time out"
        return bad(f"arp_ignore is {value}", link.name, why, "set it to 0 or 1", commands)

    dark = [
        vip
        for vip in picture.vips
        if (cover := picture.cover(vip, link)) and cover.kind is Kind.DELEGATED
        if places(vip, picture.surroundings) and not picture.kernel_answers(vip, link)
    ]
    if not dark:
        return None

    return bad(
        f"arp_ignore is {value}: the kernel does not answer for {listed(dark)}, bound on {picture.bound_on(dark[0])}",
        link.name,
        "the guard leaves the answer to this node's kernel (delegated), which does not answer",
        "set arp_ignore to 0, or bind the address on the link",
        commands,
    )


def _set_in_vain(picture: Picture, link: Link) -> Finding | None:
    """The usual mistake: it is set on the device that carries the VIP."""
    if picture.sysctls.effective("ipv4/arp_ignore", link.name):
        return None

    vain = {
        place.name: value
        for vip in picture.vips
        for place in places(vip, picture.surroundings)
        if place.ifindex != link.ifindex and picture.is_open(vip, link)
        if (value := picture.sysctls.own("ipv4/arp_ignore", place.name))
    }
    if not vain:
        return None

    devices = listed(f"{value} on {name}" for name, value in vain.items())
    return warn(
        f"arp_ignore is {devices}, but 0 on {link.name}",
        link.name,
        "the kernel uses the larger of two values: that of `all`, and that of the link that receives the request",
        f"set arp_ignore on {link.name}",
        picture.sysctls.set("ipv4/arp_ignore", link.name, 1),
    )


@otherwise(lambda picture: _values(picture, "ipv4/accept_local"))
def lvs_dr_loop(picture: Picture) -> Iterator[Finding]:
    """accept_local on a real server: packets to the VIP come back from the director, and are forwarded to it again.

    Linux before 3.7 or so wanted rp_filter for it; those of today take accept_local alone.
    """
    for link in picture.facing:
        if not picture.sysctls.effective("ipv4/accept_local", link.name):
            continue
        concerned = [vip for vip in picture.vips if vip.version == 4 and _may_loop(picture, vip, link)]
        if not concerned:
            continue
        yield _loop(picture, link, concerned)


def _may_loop(picture: Picture, vip: Address, link: Link) -> bool:
    if picture.bound_on(vip):
        return not has(link, vip)
    route = route_to(vip, picture.surroundings.routes)
    return route is not None and route.ifindex == link.ifindex


def _loop(picture: Picture, link: Link, vips: Sequence[Address]) -> Finding:
    rp_filter = picture.sysctls.effective("ipv4/rp_filter", link.name)
    unbound = [vip for vip in vips if not picture.bound_on(vip)]
    forwards = picture.sysctls.effective("ipv4/forwarding", link.name) != 0
    seen = f"accept_local is 1, rp_filter {rp_filter}, forwarding {'on' if forwards else 'off'}"

    if unbound and forwards:
        state = f"no device here has {listed(unbound)}: a packet from this node to the VIP"
    else:
        state = f"if this node forwards packets and no device here has {listed(vips)}, a packet from it to the VIP"

    return bad(
        seen,
        link.name,
        f"{state} comes back from the LVS director, is accepted although its source is this node's own address, and is "
        "forwarded to the director again and again, until its TTL is 0",
        "turn accept_local off; a real server that itself sends to the VIP must have the VIP bound on lo",
        picture.sysctls.set("ipv4/accept_local", link.name, 0),
    )


@otherwise(lambda _: ok("no two links answer for each other's addresses"))
def same_segment(picture: Picture) -> Iterator[Finding]:
    """Two links on one segment: Linux answers on either, with either MAC."""
    for first, second in combinations((link for link in picture.segments if link.up), 2):
        shared = [own.network for own in first.addresses if own.address.version == 4 and in_subnet(second, own.address)]
        if not shared:
            continue

        open_links = [
            link
            for link in (first, second)
            if not picture.sysctls.effective("ipv4/arp_filter", link.name)
            and not picture.sysctls.effective("ipv4/arp_ignore", link.name)
        ]
        if open_links:
            yield _two_links(picture, first, second, str(shared[0]), open_links)


def _two_links(picture: Picture, first: Link, second: Link, network: str, open_links: list[Link]) -> Finding:
    commands = tuple(line for link in open_links for line in picture.sysctls.set("ipv4/arp_filter", link.name, 1))

    bare = [vip for vip in picture.vips for link in open_links if link.reaches(vip) and picture.is_open(vip, link)]
    why = "a request that reaches both links is answered twice, with two MACs"
    names = listed(link.name for link in open_links)
    if bare:
        why += f", also one for {listed(dict.fromkeys(bare))}, because no guard silences the kernel on {names}"

    return Finding(
        Grade.BAD if bare and picture.guards else Grade.WARN,
        f"{first.name} and {second.name} are both in {network}; arp_filter and arp_ignore are 0 on {names}",
        f"{first.name}, {second.name}",
        why,
        "guard both links, and let the kernel answer only on the link with the route to the host that asks",
        commands,
    )


@otherwise(lambda picture: _values(picture, "ipv4/rp_filter"))
def rp_filter(picture: Picture) -> Iterator[Finding]:
    """Strict reverse path filtering where the way back uses another link: the kernel drops what comes in."""
    for link in (link for link in picture.segments if link.up):
        if picture.sysctls.effective("ipv4/rp_filter", link.name) != _STRICT:
            continue

        other = _other_way_back(picture, link)
        if other is not None:
            yield bad(
                f"rp_filter is 1, and the route to {link.name}'s own subnet leads through {other}",
                link.name,
                "the kernel drops packets from that subnet here: the guard can answer requests, but traffic is lost",
                "set rp_filter to 2 (loose), or correct the routes",
                picture.sysctls.set("ipv4/rp_filter", link.name, 2),
            )


def _other_way_back(picture: Picture, link: Link) -> str | None:
    for own in link.addresses:
        if own.address.version != 4 or own.network.num_addresses < 4:
            continue
        route = route_to(own.network.network_address + 1, picture.surroundings.routes)
        if route is not None and route.ifindex not in (0, link.ifindex):
            other = picture.surroundings.link(route.ifindex)
            return other.name if other else f"interface {route.ifindex}"
    return None


@otherwise(lambda picture: _values(picture, "ipv4/drop_gratuitous_arp"))
def takeovers(picture: Picture) -> Iterator[Finding]:
    """Settings that keep this node from hearing that a VIP has moved."""
    for link in picture.facing:
        for name in ("ipv4/drop_gratuitous_arp", "ipv6/drop_unsolicited_na"):
            if picture.sysctls.effective(name, link.name):
                yield bad(
                    f"{shown(name)} is 1",
                    link.name,
                    "when a VIP moves, this node keeps sending to the old owner until the ARP cache entry times out",
                    "set it to 0",
                    picture.sysctls.set(name, link.name, 0),
                )


@otherwise(lambda picture: _values(picture, "ipv4/proxy_arp"))
def proxy_arp(picture: Picture) -> Iterator[Finding]:
    """proxy_arp on a link that faces VIPs: this node answers for whatever it routes elsewhere."""
    for link in picture.facing:
        if not picture.sysctls.effective("ipv4/proxy_arp", link.name):
            continue

        taken = [vip for vip in picture.vips if not picture.bound_on(vip) and picture.is_open(vip, link)]

        yield Finding(
            Grade.BAD if taken else Grade.WARN,
            "proxy_arp is 1" + (f", and the route to {listed(taken)} leads through another link" if taken else ""),
            link.name,
            "the kernel answers for every address that it routes through another link, including unguarded VIPs",
            "turn it off, unless hosts behind this node need it",
            picture.sysctls.set("ipv4/proxy_arp", link.name, 0),
        )


def ipv6(picture: Picture) -> Iterator[Finding]:
    """Settings in the way of IPv6 VIPs."""
    vips = [vip for vip in picture.vips if vip.version == 6]
    if not vips:
        yield skip("no IPv6 VIP is known here")
        return

    found = False
    for link in picture.facing:
        near = [vip for vip in vips if link in picture.facing_of(vip)]
        for name, wrong, grade, why in _IPV6:
            if near and picture.sysctls.effective(name, link.name) == wrong:
                found = True
                yield Finding(
                    grade,
                    f"{shown(name)} is {wrong}, and neighbours can ask for {listed(near)} here",
                    link.name,
                    why,
                    f"set it to {1 - wrong}",
                    picture.sysctls.set(name, link.name, 1 - wrong),
                )

    if not found:
        yield ok(f"no setting blocks {listed(vips)}")


_IPV6 = (
    (
        "ipv6/disable_ipv6",
        1,
        Grade.BAD,
        "the kernel accepts no IPv6 packet here: clients that send to this node get no answer",
    ),
    (
        "ipv6/suppress_frag_ndisc",
        0,
        Grade.WARN,
        (
            "the kernel accepts fragmented neighbour discovery messages, which RFC 6980 forbids; the guard drops them "
            "only in enforce mode"
        ),
    ),
)


def _values(picture: Picture, name: str) -> Finding:
    """The values, where nothing is wrong."""
    values = {link.name: picture.sysctls.effective(name, link.name) for link in picture.facing}
    unread = [link for link, value in values.items() if value is None]
    if unread:
        return unknown(f"{shown(name)} of {listed(unread)} cannot be read in /proc/sys/net")
    return ok(
        f"{shown(name)}: "
        + (
            listed(f"{value} on {link}" for link, value in values.items())
            or "no host asks for a VIP on this node's links"
        )
    )
