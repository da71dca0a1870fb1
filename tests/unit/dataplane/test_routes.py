"""What rtnetlink's messages say of routes, written out byte by byte."""

import socket
import struct
from ipaddress import ip_address, ip_network

import pytest

from arpguard.dataplane.routes import _resolved, _routes
from arpguard.dataplane.rtnetlink import attributes
from arpguard.model import Route

DST, OIF, GATEWAY, PRIORITY, MULTIPATH, TABLE, VIA, NH_ID = 1, 4, 5, 6, 9, 15, 18, 30
UNICAST, LOCAL, BLACKHOLE, UNREACHABLE, PROHIBIT, THROW = 1, 2, 6, 7, 8, 9
CLONED = 0x200
NEXT_HOP = ip_address("192.0.2.254")


def attribute(kind: int, value: object) -> bytes:
    data = value if isinstance(value, bytes) else struct.pack("=I", value)
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def message(network: str, *more: tuple[int, object], kind: int = UNICAST, table: int = 254, flags: int = 0) -> bytes:
    net = ip_network(network)
    family = socket.AF_INET if net.version == 4 else socket.AF_INET6
    header = struct.pack("=BBBBBBBBI", family, net.prefixlen, 0, 0, table, 3, 0, kind, flags)
    own = [(DST, net.network_address.packed)] * bool(net.prefixlen)
    return header + b"".join(attribute(*each) for each in [*own, *more])


def hop(ifindex: int, *attributes: tuple[int, object]) -> bytes:
    data = b"".join(attribute(*each) for each in attributes)
    return struct.pack("=HBBi", 8 + len(data), 0, 0, ifindex) + data


def routes(data: bytes, objects: dict | None = None) -> list[Route]:
    found, object_id = _routes(data)
    return list(_resolved(found, (objects or {}).get(object_id, [])) if object_id else found)


def test_route_by_a_next_hop():
    data = message("10.0.0.0/8", (OIF, 2), (GATEWAY, NEXT_HOP.packed), (PRIORITY, 100))

    assert routes(data) == [Route(ip_network("10.0.0.0/8"), 2, 100, NEXT_HOP)]


@pytest.mark.parametrize("network", ["0.0.0.0/0", "::/0"])
def test_default_route_has_no_destination(network):
    assert routes(message(network, (OIF, 2))) == [Route(ip_network(network), 2)]


@pytest.mark.parametrize(("table", "main"), [(254, True), (253, True), (100, False), (1000, False)])
def test_main_tables_are_told_from_others(table, main):
    """A table whose number does not fit into the header's byte is in an attribute."""
    data = message("10.0.0.0/8", (OIF, 2), (TABLE, table), table=table if table < 256 else 252)

    assert [route.main for route in routes(data)] == [main]


@pytest.mark.parametrize(
    "data",
    [
        message("192.0.2.1/32", (OIF, 2), kind=LOCAL, table=255),
        message("192.0.2.0/24", (OIF, 2), (TABLE, 255), table=255),
        message("192.0.2.1/32", (OIF, 2), kind=LOCAL, table=10),
        message("10.0.0.0/8", kind=THROW),
        message("2001:db8::7/128", (OIF, 2), flags=CLONED),
    ],
    ids=["local", "unicast in local", "local of a VRF", "throw", "cached"],
)
def test_what_leads_to_no_other_host_is_left_out(data):
    assert routes(data) == []


@pytest.mark.parametrize("kind", [BLACKHOLE, UNREACHABLE, PROHIBIT])
def test_what_leads_nowhere_has_no_device(kind):
    """IPv6 names `lo` in such routes."""
    assert routes(message("2001:db8::/32", (OIF, 1), kind=kind)) == [Route(ip_network("2001:db8::/32"), 0)]


def test_each_next_hop_of_several_is_a_route():
    through_ipv6 = struct.pack("=H", socket.AF_INET6) + ip_address("fe80::1").packed
    hops = hop(2, (GATEWAY, NEXT_HOP.packed)) + hop(3, (VIA, through_ipv6))

    assert routes(message("10.0.0.0/8", (MULTIPATH, hops))) == [
        Route(ip_network("10.0.0.0/8"), 2, via=NEXT_HOP),
        Route(ip_network("10.0.0.0/8"), 3, via=ip_address("fe80::1")),
    ]


def test_nexthop_object_stands_for_what_the_message_does_not_say():
    data = message("10.0.0.0/8", (NH_ID, 7))

    assert routes(data, {7: [(2, NEXT_HOP), (3, None)]}) == [
        Route(ip_network("10.0.0.0/8"), 2, via=NEXT_HOP),
        Route(ip_network("10.0.0.0/8"), 3),
    ]


def test_nexthop_object_that_went_meanwhile_leaves_no_route():
    assert routes(message("10.0.0.0/8", (NH_ID, 7))) == []


def test_message_that_says_both_needs_no_object():
    assert routes(message("10.0.0.0/8", (NH_ID, 7), (OIF, 2))) == [Route(ip_network("10.0.0.0/8"), 2)]


@pytest.mark.parametrize("data", [b"", b"\x01", struct.pack("=HH", 3, 1), struct.pack("=HH", 0, 1) + bytes(8)])
def test_attributes_that_are_cut_short_end_the_list(data):
    assert attributes(memoryview(data)) == {}
