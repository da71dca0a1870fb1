"""Whose a MAC address is."""

import pytest

from arpguard.addresses import MacAddress
from arpguard.core.claimants import OUTSIDE, Claimant, ClaimantKind, claimant_of, virtual_router

NODE_2 = MacAddress.parse("02:00:00:00:00:02")
NODE_3 = MacAddress.parse("02:00:00:00:00:03")


@pytest.mark.parametrize(
    ("mac", "words"),
    [
        ("00:00:5e:00:01:33", "VRRP router 51"),
        ("00:00:5e:00:01:01", "VRRP router 1"),
        ("00:00:5e:00:02:ff", "VRRP router 255"),
        ("00:00:0c:07:ac:05", "HSRP router 5"),
        ("00:00:0c:9f:f1:23", "HSRP router 291"),
        ("00:05:73:a0:0f:ff", "HSRP router 4095"),
        ("00:07:b4:00:07:02", "GLBP router 7"),
        ("00:07:b4:03:ff:01", "GLBP router 1023"),
    ],
)
def test_virtual_router_is_known_by_its_mac(mac, words):
    assert str(virtual_router(MacAddress.parse(mac))) == words


@pytest.mark.parametrize(
    "mac",
    [
        "00:00:5e:00:00:33",
        "00:00:5e:00:03:33",  # VRRP ends at 02
        "00:00:5e:01:01:33",
        "01:00:5e:00:01:33",  # multicast
        "00:00:0c:07:ad:05",
        "00:00:0c:9f:e1:23",
        "00:05:73:a0:10:00",
        "00:07:b4:04:00:01",  # six bits before a GLBP group are zero
        "02:00:5e:00:01:33",
    ],
)
def test_neighbours_of_these_ranges_are_no_routers(mac):
    assert virtual_router(MacAddress.parse(mac)) is None


def test_node_is_known_by_its_heartbeat_or_by_its_address():
    published, resolved = {NODE_2: "node-2"}, {NODE_3: "node-3"}

    found = [claimant_of(mac, published, resolved, {"node-3"}) for mac in (NODE_2, NODE_3)]

    assert [str(each) for each in found] == ["node-2 (cluster node)", "node-3 (cluster node without an agent)"]
    assert all(each.is_node for each in found)


def test_what_a_heartbeat_publishes_goes_before_the_neighbour_table():
    assert claimant_of(NODE_2, {NODE_2: "node-2"}, {NODE_2: "node-3"}, ()).node == "node-2"


def test_node_that_published_a_mac_and_is_not_heard_of_has_no_agent():
    found = claimant_of(NODE_2, {NODE_2: "node-2"}, {}, {"node-2"})

    assert found == Claimant(ClaimantKind.CLUSTER_NODE_WITHOUT_AGENT, "node-2")


def test_anybody_else_is_outside():
    found = claimant_of(NODE_3, {NODE_2: "node-2"}, {}, ())

    assert found == OUTSIDE
    assert (str(found), found.is_node) == ("outside", False)
