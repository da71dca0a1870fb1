"""Links, addresses and routes of this network namespace, by rtnetlink: as they are, and a word when they change."""

import socket
from collections import defaultdict
from collections.abc import AsyncIterator
from ipaddress import ip_address, ip_interface, ip_network
from typing import Any

from pyroute2 import AsyncIPRoute
from pyroute2.netlink import rtnl
from pyroute2.netlink.exceptions import NetlinkError

from arpguard.addresses import ZERO_MAC, MacAddress
from arpguard.errors import DataPlaneError
from arpguard.model import InterfaceAddress, Link, Route, Surroundings

_GROUPS = (
    rtnl.RTMGRP_LINK
    | rtnl.RTMGRP_IPV4_IFADDR
    | rtnl.RTMGRP_IPV4_ROUTE
    | rtnl.RTMGRP_IPV6_IFADDR
    | rtnl.RTMGRP_IPV6_ROUTE
)
# linux/if.h, linux/if_arp.h, linux/rtnetlink.h
_IFF_UP, _IFF_LOOPBACK, _IFF_NOARP = 0x1, 0x8, 0x80
_ARPHRD_ETHER = 1
_SHARING_KINDS = ("macvlan", "ipvlan")
_RT_TABLE_LOCAL = 255
_RTN_UNICAST = 1
_ANYWHERE = {socket.AF_INET: "0.0.0.0", socket.AF_INET6: "::"}  # noqa: S104 - a route, not a bind


async def read_surroundings() -> Surroundings:
    """The links with their addresses, and the unicast routes of every table but `local`.

    Raises DataPlaneError when the kernel does not answer, or changes its mind while it does: ask again.
    """
    addresses: dict[int, list[InterfaceAddress]] = defaultdict(list)
    try:
        async with AsyncIPRoute() as ipr:
            async for message in await ipr.addr("dump"):
                addresses[message["index"]].append(_address(message))
            links = [_link(message, tuple(addresses[message["index"]])) async for message in await ipr.link("dump")]
            routes = [route async for message in await ipr.route("dump") for route in _routes(message)]
    except (NetlinkError, OSError) as error:
        raise DataPlaneError(f"links and routes cannot be read by rtnetlink ({error})") from error
    return Surroundings(tuple(links), tuple(routes))


async def watch_changes() -> AsyncIterator[None]:
    """Yields once it listens, and after every change of links, addresses or routes; several may give one.

    Raises DataPlaneError when messages were lost (ENOBUFS) or the socket fails: look, and watch again.
    """
    try:
        async with AsyncIPRoute() as ipr:
            await ipr.bind(groups=_GROUPS)
            yield  # whatever changed before the socket listened
            while True:
                async for _ in ipr.get():
                    pass
                yield
    except (NetlinkError, OSError) as error:
        raise DataPlaneError(f"rtnetlink messages were lost ({error})") from error


def _address(message: Any) -> InterfaceAddress:
    text = message.get("local") or message.get("address")
    interface = ip_interface(f"{text}/{message['prefixlen']}")
    return InterfaceAddress(interface.ip, interface.network)


def _link(message: Any, addresses: tuple[InterfaceAddress, ...]) -> Link:
    flags = message["flags"]
    info = message.get("linkinfo")
    kind = (info.get("kind") if info else None) or ""
    text = message.get("address") or ""
    return Link(
        ifindex=message["index"],
        name=_text(message.get("ifname") or ""),
        mac=MacAddress.parse(text) if len(text) == len("00:00:00:00:00:00") else ZERO_MAC,
        up=bool(flags & _IFF_UP),
        mtu=message.get("mtu") or 0,
        kind=kind,
        loopback=bool(flags & _IFF_LOOPBACK),
        no_arp=bool(flags & _IFF_NOARP),
        ethernet=message["ifi_type"] == _ARPHRD_ETHER,
        master=message.get("master") or 0,
        parent=_parent(message, kind),
        addresses=addresses,
    )


def _text(name: str | bytes) -> str:
    """pyroute2 gives bytes for a name that is not UTF-8."""
    return name.decode(errors="backslashreplace") if isinstance(name, bytes) else name


def _parent(message: Any, kind: str) -> int:
    """Of a macvlan, the device below, unless that is in another namespace."""
    if kind not in _SHARING_KINDS or message.get("link_netnsid") is not None:
        return 0
    return message.get("link") or 0


def _routes(message: Any) -> list[Route]:
    """The route in a message, one for each next hop; none for other kinds and for the `local` table."""
    if message["type"] != _RTN_UNICAST or (message.get("table") or message["table"]) == _RT_TABLE_LOCAL:
        return []
    if message["family"] not in _ANYWHERE:
        return []
    destination = message.get("dst") or _ANYWHERE[message["family"]]
    network = ip_network((ip_address(destination), message["dst_len"]))
    metric = message.get("priority") or 0
    hops = message.get("multipath") or []
    ways = [(hop["oif"], hop.get("gateway")) for hop in hops] or [(message.get("oif") or 0, message.get("gateway"))]
    return [Route(network, ifindex, metric, ip_address(via) if via else None) for ifindex, via in ways]
