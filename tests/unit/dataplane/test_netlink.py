"""What rtnetlink's messages say of links and addresses; of devices, too, that this machine has no driver for."""

from ipaddress import ip_address, ip_interface, ip_network

import pytest
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg

from arpguard.addresses import MacAddress
from arpguard.dataplane.netlink import _address, _link, _surroundings
from arpguard.model import InterfaceAddress, Link, Route

UP, BROADCAST, RUNNING, NOARP, LOWER_UP, DORMANT = 0x1, 0x2, 0x40, 0x80, 0x10000, 0x20000
ALL_UP = UP | BROADCAST | RUNNING | LOWER_UP
ETHER, NONE = 1, 65534


def a_link(*attributes: tuple[str, object], flags: int = ALL_UP, device_type: int = ETHER) -> Link:
    """A link as its message tells of it: put into bytes, and read from them."""
    sent = ifinfmsg()
    sent["index"], sent["ifi_type"], sent["flags"] = 7, device_type, flags
    sent["attrs"] = [("IFLA_IFNAME", "x0"), ("IFLA_ADDRESS", "02:00:00:00:00:07"), *attributes]
    sent.encode()
    received = ifinfmsg(sent.data)
    received.decode()
    return _link(received, ())


def info(kind: str) -> tuple[str, object]:
    return "IFLA_LINKINFO", {"attrs": [("IFLA_INFO_KIND", kind)]}


def test_link_has_name_mac_and_index():
    link = a_link(("IFLA_MTU", 9000))

    assert (link.name, link.mac, link.ifindex, link.mtu) == ("x0", MacAddress.parse("02:00:00:00:00:07"), 7, 9000)


@pytest.mark.parametrize("kind", ["bond", "team", "vlan", "bridge", "vrf", "openvswitch", "veth"])
def test_kind_is_rtnetlinks(kind):
    assert a_link(info(kind)).kind == kind


def test_port_knows_its_master():
    assert a_link(("IFLA_MASTER", 3)).master == 3


def test_vlan_device_has_a_segment_of_its_own():
    """IFLA_LINK is the device below, whose untagged frames are another network's."""
    assert a_link(info("vlan"), ("IFLA_LINK", 3)).parent == 0


@pytest.mark.parametrize("kind", ["macvlan", "ipvlan"])
def test_macvlan_shares_the_segment_of_the_device_below(kind):
    assert a_link(info(kind), ("IFLA_LINK", 3)).parent == 3


def test_macvlan_over_a_device_of_another_namespace_stands_alone():
    assert a_link(info("macvlan"), ("IFLA_LINK", 3), ("IFLA_LINK_NETNSID", 0)).parent == 0


def test_wireguard_is_no_ethernet():
    link = a_link(info("wireguard"), flags=UP | NOARP | RUNNING | LOWER_UP, device_type=NONE)

    assert (link.ethernet, link.no_arp) == (False, True)


@pytest.mark.parametrize(
    ("flags", "state", "up"),
    [
        (ALL_UP, "UP", True),
        (ALL_UP, "UNKNOWN", True),
        (UP | BROADCAST | LOWER_UP, "DOWN", True),
        (UP | BROADCAST, "DOWN", False),
        (UP | BROADCAST | RUNNING, "UP", False),
        (UP | BROADCAST, "LOWERLAYERDOWN", False),
        (BROADCAST, "DOWN", False),
        (UP | BROADCAST | LOWER_UP | DORMANT, "DORMANT", False),
        (UP | BROADCAST | LOWER_UP, "TESTING", False),
    ],
    ids=[
        "up",
        "driver that does not tell",
        "state is late after a cable is plugged in",
        "cable pulled",
        "state is late after a cable is pulled",
        "device below is down",
        "set down",
        "802.1X has not authenticated",
        "cable test",
    ],
)
def test_link_is_up_that_frames_come_and_go_on(flags, state, up):
    assert a_link(("IFLA_OPERSTATE", state), flags=flags).up is up


def test_link_has_other_names():
    names = {"attrs": [("IFLA_ALT_IFNAME", "enp3s0"), ("IFLA_ALT_IFNAME", "lan")]}

    assert a_link(("IFLA_PROP_LIST", names)).names == ("x0", "enp3s0", "lan")


def test_losses_of_the_carrier_are_counted():
    assert a_link(("IFLA_CARRIER_DOWN_COUNT", 4)).losses == 4


# ---- addresses ---------------------------------------------------------------------------------------------------

TEMPORARY, OPTIMISTIC, DADFAILED, DEPRECATED, TENTATIVE, PERMANENT, MANAGETEMPADDR = 1, 4, 8, 0x20, 0x40, 0x80, 0x100


def an_address(text: str, flags: int = 0) -> InterfaceAddress:
    interface = ip_interface(text)
    sent = ifaddrmsg()
    sent["family"], sent["prefixlen"], sent["index"] = (
        (2 if interface.version == 4 else 10),
        interface.network.prefixlen,
        7,
    )
    sent["flags"] = flags & 0xFF
    sent["attrs"] = [("IFA_ADDRESS", str(interface.ip)), ("IFA_FLAGS", flags)]
    sent.encode()
    received = ifaddrmsg(sent.data)
    received.decode()
    return _address(received)


@pytest.mark.parametrize(
    ("flags", "usable", "deprecated", "temporary"),
    [
        (PERMANENT, True, False, False),
        (MANAGETEMPADDR, True, False, False),
        (TENTATIVE, False, False, False),
        (TENTATIVE | OPTIMISTIC, True, False, False),
        (TENTATIVE | DADFAILED, False, False, False),
        (DEPRECATED | TEMPORARY, True, True, True),
        (TEMPORARY, True, False, True),
    ],
)
def test_ipv6_address_is_as_its_flags_say(flags, usable, deprecated, temporary):
    found = an_address("2001:db8::7/64", flags)

    assert (found.usable, found.deprecated, found.temporary) == (usable, deprecated, temporary)
    assert (found.address, found.network) == (ip_address("2001:db8::7"), ip_network("2001:db8::/64"))


def test_ipv4_flags_mean_something_else():
    """IFA_F_SECONDARY has the number of IFA_F_TEMPORARY."""
    assert not an_address("192.0.2.7/24", 0x1).temporary


# ---- together ----------------------------------------------------------------------------------------------------

ETH0 = Link(2, "eth0", MacAddress(bytes((2, 0, 0, 0, 0, 2))), up=True)


def a_route(network: str, ifindex: int = 2, **more: object) -> Route:
    return Route(ip_network(network), ifindex, **more)


def with_addresses(*texts: str) -> Link:
    own = tuple(InterfaceAddress(ip_interface(text).ip, ip_interface(text).network) for text in texts)
    return Link(2, "eth0", ETH0.mac, up=True, addresses=own)


@pytest.mark.parametrize("vip", ["192.0.2.50/32", "2001:db8::50/128"])
def test_host_route_to_an_address_that_is_bound_here_leads_nowhere_else(vip):
    kept = a_route("10.0.0.0/8")

    assert _surroundings([with_addresses(vip)], [a_route(vip, 1), kept]).routes == (kept,)


def test_host_route_to_an_address_elsewhere_stays():
    pod = a_route("10.244.0.9/32", 9)

    assert _surroundings([with_addresses("192.0.2.1/24")], [pod]).routes == (pod,)


def test_networks_that_no_address_is_in_are_on_the_link_where_a_route_has_no_next_hop():
    routes = [
        a_route("192.0.2.0/24"),
        a_route("198.51.100.0/24"),
        a_route("2001:db8::/64"),
        a_route("fe80::/64"),
        a_route("203.0.113.0/24", via=ip_address("192.0.2.254")),
        a_route("10.1.2.3/32"),
        a_route("0.0.0.0/0"),
        a_route("10.7.0.0/16", 3),
    ]
    (link,) = _surroundings([with_addresses("192.0.2.1/24", "2001:db8::1/128", "fe80::1/64")], routes).links

    assert link.on_link == (ip_network("198.51.100.0/24"), ip_network("2001:db8::/64"))
    assert link.subnets == (ip_network("192.0.2.0/24"), ip_network("198.51.100.0/24"), ip_network("2001:db8::/64"))
