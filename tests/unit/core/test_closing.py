"""What is closed on a node (`unknown: suppress`), and what in it is not: the node's own addresses, and exceptions."""

from dataclasses import replace
from ipaddress import IPv4Address, ip_address, ip_interface, ip_network

import pytest

from arpguard.addresses import MacAddress
from arpguard.config.model import AgentConfig
from arpguard.core.admission import Avoided
from arpguard.core.closing import (
    NOTHING,
    Closing,
    closed_ranges,
    closing_of,
    own_addresses,
    range_of,
    strictest_of_ranges,
    with_ranges,
)
from arpguard.core.desired import NO_VIP
from arpguard.model import InterfaceAddress, Link, RangeKey, Surroundings, VipEntry
from arpguard.verdict import Kind, Mode

MAC = MacAddress.parse("02:00:00:00:00:01")
POOL, POOL6 = ip_network("192.0.2.0/24"), ip_network("2001:db8::/64")
PART = ip_network("192.0.2.64/26")


def a_link(*addresses: str, **changes) -> Link:
    own = tuple(InterfaceAddress(each.ip, each.network) for each in map(ip_interface, addresses))
    return replace(Link(2, "eth0", MAC, up=True, addresses=own), **changes)


def own_of(*links: Link) -> list[str]:
    return [str(address) for address in own_addresses(Surroundings(links))]


# ---- the node's own addresses ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("link", "own"),
    [
        (a_link("192.0.2.1/24"), ["192.0.2.1"]),
        (a_link("192.0.2.1/24", "192.0.2.2/24"), ["192.0.2.1"]),
        (a_link("192.0.2.1/24", "198.51.100.1/24"), ["192.0.2.1", "198.51.100.1"]),
        (a_link("192.0.2.1/24", "192.0.2.50/32"), ["192.0.2.1"]),
        (a_link("2001:db8::1/64", "2001:db8::2/64", "2001:db8::50/128"), ["2001:db8::1", "2001:db8::2"]),
        (a_link("192.0.2.1/32", "192.0.2.50/32"), ["192.0.2.1"]),
        (a_link("192.0.2.1/24", "2001:db8::50/128"), ["192.0.2.1", "2001:db8::50"]),
        (a_link("192.0.2.1/24", loopback=True), []),
        (a_link("192.0.2.1/24", no_arp=True), []),
        (a_link("192.0.2.50/32", parent=7), []),
        (a_link(), []),
    ],
    ids=[
        "first_of_its_subnet",
        "secondary",
        "first_of_each_subnet",
        "host_address",
        "every_ipv6_address_in_a_subnet",
        "host_addresses_only",
        "host_address_only_in_a_family",
        "loopback",
        "no_arp",
        "macvlan_with_a_host_address",
        "none",
    ],
)
def test_own_addresses_are_told_from_vips(link, own):
    assert own_of(link) == own


# ---- what is closed ----------------------------------------------------------------------------------------------


def closing(config: AgentConfig, *links: Link, avoided: Avoided | None = None, own=()) -> Closing:
    return closing_of(config, Surroundings(links), avoided or Avoided(), own)


def test_nothing_is_closed_by_default():
    assert closing(AgentConfig(ranges=(POOL,)), a_link("192.0.2.1/24")) == NOTHING


def test_own_addresses_and_open_ranges_are_exceptions():
    config = AgentConfig(ranges=(POOL, PART, POOL6), closed=(POOL,))
    found = closing(config, a_link("192.0.2.1/24", "198.51.100.1/24"), own=[ip_address("192.0.2.9")])
    assert found.closed == (POOL,)
    assert set(found.open) == {PART, ip_network("192.0.2.1/32"), ip_network("192.0.2.9/32")}
    assert not found.problems


@pytest.mark.parametrize(
    ("avoided", "what"),
    [
        (Avoided(gateways=frozenset({ip_address("192.0.2.254")})), "this node's gateway, 192.0.2.254"),
        (Avoided(api_servers=frozenset({ip_address("192.0.2.254")})), "the API server, 192.0.2.254"),
    ],
    ids=["gateway", "api_server"],
)
def test_range_that_would_cut_the_node_off_is_not_closed(avoided, what):
    config = AgentConfig(ranges=(POOL, POOL6), closed=(POOL, POOL6))
    found = closing(config, a_link("192.0.2.1/24"), avoided=avoided)
    assert found.closed == (POOL6,)
    (problem,) = found.problems
    assert problem.startswith(f"ranges: {POOL} is not closed on this node: it contains {what}; ")


def test_gateway_in_an_exception_does_not_matter():
    gateway = ip_network("192.0.2.254/32")
    config = AgentConfig(ranges=(POOL, gateway), closed=(POOL,))
    found = closing(config, avoided=Avoided(gateways=frozenset({gateway.network_address})))
    assert (found.closed, found.open, found.problems) == ((POOL,), (gateway,), ())


def test_gateway_elsewhere_does_not_matter():
    found = closing(AgentConfig(ranges=(POOL,), closed=(POOL,)), avoided=Avoided(frozenset({ip_address("10.0.0.1")})))
    assert found.closed == (POOL,)


def test_smallest_range_says_whether_an_address_is_closed():
    found = Closing((POOL,), (PART,))
    told = {address: found.is_closed(ip_address(address)) for address in ("192.0.2.1", "192.0.2.65", "10.0.0.1", "::1")}
    assert told == {"192.0.2.1": True, "192.0.2.65": False, "10.0.0.1": False, "::1": False}


def test_kernel_gets_every_range_on_every_link():
    links = [a_link(), a_link(ifindex=3, name="eth1")]
    primaries = {(2, 4): ip_address("192.0.2.1"), (2, 6): None, (3, 4): None, (3, 6): None}
    wanted = closed_ranges(Closing((POOL,), (PART,)), links, primaries)
    assert wanted == {
        RangeKey(2, PART): VipEntry(Kind.OPEN),
        RangeKey(3, PART): VipEntry(Kind.OPEN),
        RangeKey(2, POOL): VipEntry(Kind.CLOSED, link_mac=MAC, primary=ip_address("192.0.2.1")),
        RangeKey(3, POOL): VipEntry(Kind.CLOSED, link_mac=MAC),
    }


def test_addresses_that_are_looked_up_are_those_of_vips_and_ranges():
    vip = IPv4Address("198.51.100.7")
    ranges = [RangeKey(2, POOL), RangeKey(2, POOL6)]
    assert with_ranges((vip, vip), ranges) == (IPv4Address("192.0.2.0"), vip)
    assert with_ranges((NO_VIP, NO_VIP), ranges) == (IPv4Address("192.0.2.0"), IPv4Address("192.0.2.255"))
    assert with_ranges((NO_VIP, NO_VIP), []) == (NO_VIP, NO_VIP)


def test_mode_of_ipv6_ranges_is_the_nodes():
    closed = VipEntry(Kind.CLOSED)
    assert strictest_of_ranges(Mode.ENFORCE, {RangeKey(2, POOL6): closed}) is Mode.ENFORCE
    assert strictest_of_ranges(Mode.ENFORCE, {RangeKey(2, POOL): closed}) is Mode.INHERIT


def test_ranges_are_ordered_by_link_and_address():
    keys = [RangeKey(3, POOL), RangeKey(2, POOL6), RangeKey(2, PART), RangeKey(2, POOL)]
    assert sorted(keys, key=lambda key: key.order) == [keys[3], keys[2], keys[1], keys[0]]


def test_range_that_decides_is_the_smallest_on_the_link():
    pool, part, elsewhere = VipEntry(Kind.CLOSED), VipEntry(Kind.OPEN), VipEntry(Kind.CLOSED)
    ranges = {RangeKey(2, POOL): pool, RangeKey(2, PART): part, RangeKey(3, PART): elsewhere}
    assert range_of(ip_address("192.0.2.1"), 2, ranges) == (RangeKey(2, POOL), pool)
    assert range_of(ip_address("192.0.2.65"), 2, ranges) == (RangeKey(2, PART), part)
    assert range_of(ip_address("192.0.2.1"), 3, ranges) is None
