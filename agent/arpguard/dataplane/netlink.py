"""Links, addresses, routes and neighbours of this network namespace, by rtnetlink: as they are.

`watch_changes` tells when links, addresses or routes have changed.
"""

import asyncio
import errno
import socket
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from ipaddress import ip_address, ip_interface
from typing import Any

from arpguard.addresses import ZERO_MAC, Address, MacAddress, Network
from arpguard.dataplane.iproute import AsyncIPRoute, NetlinkError
from arpguard.dataplane.routes import RouteReader
from arpguard.dataplane.rtnetlink import listen
from arpguard.errors import DataPlaneError
from arpguard.model import InterfaceAddress, Link, Route, Surroundings

# RTNLGRP_*: links, IPv4 addresses and routes, IPv6 addresses and routes, nexthop objects (kernel 5.3)
_GROUPS = (1, 5, 7, 9, 11, 32)
_DATAGRAM = 1 << 16
# linux/if.h, linux/if_arp.h, linux/if_addr.h
_IFF_UP, _IFF_LOOPBACK, _IFF_NOARP, _IFF_LOWER_UP = 0x1, 0x8, 0x80, 0x10000
_KEPT_WAITING = ("DORMANT", "TESTING")
_ARPHRD_ETHER = 1
_SHARING_KINDS = ("macvlan", "ipvlan")
_IFA_TEMPORARY, _IFA_OPTIMISTIC, _IFA_DADFAILED, _IFA_DEPRECATED, _IFA_TENTATIVE = 0x1, 0x4, 0x8, 0x20, 0x40
_FAMILIES = (socket.AF_INET, socket.AF_INET6)
# linux/neighbour.h: states of an entry without a MAC address to go by, or that needs none.
_NUD_INCOMPLETE, _NUD_FAILED, _NUD_NOARP = 0x01, 0x20, 0x40
_MAC_LENGTH = len("00:00:00:00:00:00")
_routes = RouteReader()


async def read_surroundings() -> Surroundings:
    """The links with their addresses, and the routes of every table but `local`.

    Raises DataPlaneError when the kernel does not answer, or changes its mind while it does: ask again.
    """
    addresses: dict[int, list[InterfaceAddress]] = defaultdict(list)
    try:
        async with AsyncIPRoute() as ipr:
            async for message in await ipr.addr("dump"):
                if message["family"] in _FAMILIES:  # other protocols have addresses, too (MCTP, Phonet)
                    addresses[message["index"]].append(_address(message))
            links = [_link(message, _by_age(addresses[message["index"]])) async for message in await ipr.link("dump")]
        routes = await _routes.read()
    except (NetlinkError, OSError) as error:
        raise DataPlaneError(f"cannot read links and routes over rtnetlink ({error})") from error
    return _surroundings(links, routes)


async def read_neighbours() -> list[tuple[Address, MacAddress]]:
    """The neighbours of both families that have a MAC address, on whichever link. Raises DataPlaneError."""
    try:
        async with AsyncIPRoute() as ipr:
            found = [_neighbour(message) async for message in await ipr.neigh("dump")]
    except (NetlinkError, OSError) as error:
        raise DataPlaneError(f"cannot read the neighbour table over rtnetlink ({error})") from error
    return [neighbour for neighbour in found if neighbour is not None]


def _surroundings(links: Sequence[Link], routes: Iterable[Route]) -> Surroundings:
    """A host route to an address that is bound here leads nowhere else: it is `local` in all but its table.

    The kernel makes one for each IPv6 host address, and recipes for LVS make one by hand.
    """
    bound = {own.address for link in links for own in link.addresses}
    outward = tuple(route for route in routes if not (_is_host(route.network) and route.network[0] in bound))
    on_link: dict[int, set[Network]] = defaultdict(set)
    for route in outward:
        if route.via is None and route.network.prefixlen and not _is_host(route.network):
            on_link[route.ifindex].add(route.network)
    return Surroundings(tuple(_with_on_link(link, on_link[link.ifindex]) for link in links), outward)


def _with_on_link(link: Link, networks: set[Network]) -> Link:
    further = networks - {own.network for own in link.addresses}
    return replace(link, on_link=tuple(sorted(further, key=lambda it: (it.version, it.network_address, it.prefixlen))))


def _is_host(network: Network) -> bool:
    return network.prefixlen == network.max_prefixlen


async def watch_changes() -> AsyncIterator[None]:
    """Yields once it listens, and after every change of links, addresses or routes; several may give one.

    Raises DataPlaneError when the socket fails: look, and watch again.
    """
    try:
        with closing(listen(_GROUPS)) as heard:
            yield  # whatever changed before the socket listened
            while True:
                await _wait_for_change(heard)
                yield
    except OSError as error:
        raise DataPlaneError(f"cannot subscribe to changes of links and routes over rtnetlink ({error})") from error


async def _wait_for_change(heard: socket.socket) -> None:
    """Returns at any message: the caller rereads everything, so one that is lost (ENOBUFS) does no harm."""
    try:
        await asyncio.get_running_loop().sock_recv(heard, _DATAGRAM)
        while heard.recv(_DATAGRAM):
            pass
    except BlockingIOError:
        return
    except OSError as error:
        if error.errno != errno.ENOBUFS:
            raise


def _address(message: Any) -> InterfaceAddress:
    text = message.get("local") or message.get("address")
    interface = ip_interface(f"{text}/{message['prefixlen']}")
    if message["family"] != socket.AF_INET6:
        return InterfaceAddress(interface.ip, interface.network)
    flags = message.get("flags") or 0
    untried = flags & (_IFA_TENTATIVE | _IFA_OPTIMISTIC) == _IFA_TENTATIVE
    return InterfaceAddress(
        interface.ip,
        interface.network,
        usable=not (untried or flags & _IFA_DADFAILED),
        deprecated=bool(flags & _IFA_DEPRECATED),
        temporary=bool(flags & _IFA_TEMPORARY),
    )


def _by_age(addresses: Sequence[InterfaceAddress]) -> tuple[InterfaceAddress, ...]:
    """The oldest first, as the kernel lists IPv4's; of IPv6's it lists the newest of a scope first."""
    old = [own for own in addresses if own.address.version == 4]
    young = [own for own in addresses if own.address.version == 6]
    young.reverse()
    return (*old, *sorted(young, key=lambda own: own.address.is_link_local))


def _link(message: Any, addresses: tuple[InterfaceAddress, ...]) -> Link:
    flags = message["flags"]
    info = message.get("linkinfo")
    kind = (info.get("kind") if info else None) or ""
    text = message.get("address") or ""

    return Link(
        ifindex=message["index"],
        name=_text(message.get("ifname") or ""),
        mac=MacAddress.parse(text) if len(text) == _MAC_LENGTH else ZERO_MAC,
        up=_is_up(flags, message.get("operstate") or ""),
        mtu=message.get("mtu") or 0,
        kind=kind,
        loopback=bool(flags & _IFF_LOOPBACK),
        no_arp=bool(flags & _IFF_NOARP),
        ethernet=message["ifi_type"] == _ARPHRD_ETHER,
        master=message.get("master") or 0,
        parent=_parent(message, kind),
        addresses=addresses,
        alternatives=_alternatives(message),
        losses=message.get("carrier_down_count") or 0,
    )


def _is_up(flags: int, state: str) -> bool:
    """Set up, with a carrier, and not kept waiting by RFC 2863 (802.1X before it has authenticated, a cable test).

    IFF_LOWER_UP is the carrier as the driver reports it. The operational state, and IFF_RUNNING with it, follows that
    up to a second later, because the kernel looks once in a second; and drivers that do not report theirs stay UNKNOWN.
    """
    wanted = _IFF_UP | _IFF_LOWER_UP
    return flags & wanted == wanted and state not in _KEPT_WAITING


def _alternatives(message: Any) -> tuple[str, ...]:
    properties = message.get("prop_list")
    return tuple(_text(name) for kind, name in properties["attrs"] if kind == "IFLA_ALT_IFNAME") if properties else ()


def _text(name: str | bytes) -> str:
    """pyroute2 gives bytes for a name that is not UTF-8."""
    return name.decode(errors="backslashreplace") if isinstance(name, bytes) else name


def _parent(message: Any, kind: str) -> int:
    """Of a macvlan, the device below, unless that is in another namespace."""
    if kind not in _SHARING_KINDS or message.get("link_netnsid") is not None:
        return 0
    return message.get("link") or 0


def _neighbour(message: Any) -> tuple[Address, MacAddress] | None:
    address, mac = message.get("dst"), message.get("lladdr") or ""
    if message["state"] & (_NUD_INCOMPLETE | _NUD_FAILED | _NUD_NOARP) or not address or len(mac) != _MAC_LENGTH:
        return None
    return ip_address(address), MacAddress.parse(mac)
