"""The routes of every table but `local`, with what nexthop objects say (ip-nexthop(8)).

With net.ipv4.nexthop_compat_mode=0 a route that uses an object has its id and nothing else: the object has the
device and the gateway, or the ids of others.
"""

import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import TypeAlias

from arpguard.addresses import Address
from arpguard.dataplane.rtnetlink import align, attributes, dump
from arpguard.model import Route

Attributes: TypeAlias = Mapping[int, memoryview]
Way: TypeAlias = tuple[int, Address | None]  # device, and next hop if there is one
_Read: TypeAlias = tuple[tuple[Route, ...], int]  # routes, and the id of the object that has their next hops, or 0

# linux/rtnetlink.h, linux/nexthop.h
_GETROUTE, _GETNEXTHOP = 26, 106
_RTMSG = struct.Struct("=BBBBBBBBI")
_NEXT_HOP = struct.Struct("=HBBi")
_NHMSG = struct.Struct("=BBBBI")
_GROUP_MEMBER = struct.Struct("=IBBH")
_DST, _OIF, _GATEWAY, _PRIORITY, _MULTIPATH, _TABLE, _VIA, _NH_ID = 1, 4, 5, 6, 9, 15, 18, 30
_NHA_ID, _NHA_GROUP, _NHA_BLACKHOLE, _NHA_OIF, _NHA_GATEWAY = 1, 2, 4, 5, 6
_CLONED = 0x200
_TABLE_LOCAL = 255
_MAIN = (253, 254)  # `default` and `main`, which the kernel's own rules look in
_UNICAST = 1
_NOWHERE = (6, 7, 8)  # blackhole, unreachable, prohibit
_ANYWHERE: dict[int, Address] = {socket.AF_INET: IPv4Address(0), socket.AF_INET6: IPv6Address(0)}
_LEADS_NOWHERE: list[Way] = [(0, None)]


class RouteReader:
    """Reads all routes again and again: of thousands only a few have changed, and only those cost much.

    The same objects for what is the same are also quickly compared.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, _Read] = {}

    async def read(self) -> list[Route]:
        """One for each next hop. OSError when the kernel does not answer, or changes its mind while it does."""
        before, messages = self._known, map(bytes, await dump(_GETROUTE, bytes(_RTMSG.size)))
        self._known = {message: before.get(message) or _routes(message) for message in messages}
        read = self._known.values()
        objects = await _read_objects() if any(object_id for _, object_id in read) else {}
        return [
            route
            for routes, object_id in read
            for route in (_resolved(routes, objects.get(object_id, [])) if object_id else routes)
        ]


async def _read_objects() -> dict[int, list[Way]]:
    found, groups = {}, {}
    for body in await dump(_GETNEXTHOP, bytes(_NHMSG.size)):
        attrs = attributes(body[_NHMSG.size :])
        own = _number(attrs.get(_NHA_ID))
        if _NHA_GROUP in attrs:
            groups[own] = [member for member, *_ in _GROUP_MEMBER.iter_unpack(attrs[_NHA_GROUP])]
        elif _NHA_BLACKHOLE in attrs:
            found[own] = _LEADS_NOWHERE
        else:
            found[own] = [(_number(attrs.get(_NHA_OIF)), _address(attrs.get(_NHA_GATEWAY)))]
    of_groups = {own: [way for member in group for way in found.get(member, [])] for own, group in groups.items()}
    return found | of_groups


def _routes(message: bytes) -> _Read:
    """Nothing for what leads to no other host (local, broadcast, multicast), for `throw`, and for what is cached."""
    family, length, _, _, table, _, _, kind, flags = _RTMSG.unpack_from(message)
    if family not in _ANYWHERE or kind not in (_UNICAST, *_NOWHERE) or flags & _CLONED:
        return (), 0
    attrs = attributes(memoryview(message)[_RTMSG.size :])
    table = _number(attrs.get(_TABLE)) or table
    if table == _TABLE_LOCAL:
        return (), 0
    network = ip_network((_address(attrs.get(_DST)) or _ANYWHERE[family], length))
    metric, main = _number(attrs.get(_PRIORITY)), table in _MAIN
    ways = _LEADS_NOWHERE if kind in _NOWHERE else _ways(attrs)
    routes = tuple(Route(network, ifindex, metric, via, main) for ifindex, via in ways or _LEADS_NOWHERE)
    return routes, 0 if ways else _number(attrs.get(_NH_ID))


def _resolved(routes: Iterable[Route], ways: Iterable[Way]) -> Iterator[Route]:
    return (replace(route, ifindex=ifindex, via=via) for route in routes for ifindex, via in ways)


def _ways(attrs: Attributes) -> list[Way]:
    """Nothing for a route that names a nexthop object and no more."""
    if _MULTIPATH in attrs:
        return list(_hops(attrs[_MULTIPATH]))
    if _OIF in attrs or _NH_ID not in attrs:
        return [(_number(attrs.get(_OIF)), _next_hop(attrs))]
    return []


def _hops(data: memoryview) -> Iterator[Way]:
    at = 0
    while at + _NEXT_HOP.size <= len(data):
        length, _, _, ifindex = _NEXT_HOP.unpack_from(data, at)
        if length < _NEXT_HOP.size:
            return
        yield ifindex, _next_hop(attributes(data[at + _NEXT_HOP.size : at + length]))
        at += align(length)


def _next_hop(attrs: Attributes) -> Address | None:
    """RTA_VIA is for a gateway of the other family (RFC 5549): two bytes say which."""
    return _address(attrs.get(_GATEWAY)) or _address(attrs[_VIA][2:] if _VIA in attrs else None)


def _address(data: memoryview | None) -> Address | None:
    if data is None:
        return None
    return IPv4Address(bytes(data)) if len(data) == 4 else IPv6Address(bytes(data))


def _number(data: memoryview | None) -> int:
    return 0 if data is None else int(struct.unpack_from("=I", data)[0])
