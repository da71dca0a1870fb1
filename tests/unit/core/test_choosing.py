"""Which links are guarded, and where a VIP is at home."""

from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_address, ip_interface, ip_network

import pytest

from arpguard.addresses import MacAddress
from arpguard.config.files import parse_config
from arpguard.config.model import InterfaceSelector, SelectorKind
from arpguard.core.choosing import choose_links, home_link, route_to
from arpguard.model import InterfaceAddress, Link, Route, Surroundings

VIP = ip_address("192.0.2.50")


def a_link(ifindex: int, name: str, *addresses: str, **facts: object) -> Link:
    own = tuple(InterfaceAddress(ip_interface(text).ip, ip_interface(text).network) for text in addresses)
    mac = MacAddress(bytes((2, 0, 0, 0, 0, ifindex)))
    return Link(ifindex=ifindex, name=name, mac=mac, up=facts.pop("up", True), addresses=own, **facts)


def a_route(network: str, ifindex: int, metric: int = 0) -> Route:
    return Route(ip_network(network), ifindex, metric)


LO = a_link(1, "lo", "127.0.0.1/8", "192.0.2.50/32", loopback=True, ethernet=False)
IPVS = a_link(9, "kube-ipvs0", "192.0.2.50/32", no_arp=True)
ETH0 = a_link(2, "eth0", "192.0.2.1/24")
ETH1 = a_link(3, "eth1", "198.51.100.1/24")
PORT = a_link(4, "port0", master=5)
BRIDGE = a_link(5, "br0", "203.0.113.1/24")
BARE = a_link(6, "eth2")
NODE = Surroundings(
    links=(LO, ETH0, ETH1, PORT, BRIDGE, BARE, IPVS),
    routes=(
        a_route("0.0.0.0/0", 3),
        a_route("192.0.2.0/24", 2),
        a_route("198.51.100.0/24", 3),
        a_route("203.0.113.0/24", 5),
        a_route("10.0.0.0/8", 2, metric=100),
        a_route("10.0.0.0/8", 3, metric=50),
        a_route("10.1.0.0/16", 1),
    ),
)


def _choose(*items: str, vips=(VIP,), surroundings=NODE):
    text = "interfaces: [" + ", ".join(f'"{item}"' for item in items) + "]"
    choice = choose_links(parse_config(text).interfaces, surroundings, vips)
    return [link.name for link in choice.links], choice


@pytest.mark.parametrize(
    ("items", "names"),
    [
        (["auto"], ["eth0"]),
        (["eth0"], ["eth0"]),
        (["eth?"], ["eth0", "eth1", "eth2"]),
        (["eth1", "eth0", "eth1"], ["eth0", "eth1"]),
        (["eth2"], ["eth2"]),
        (["cidr:192.0.2.0/24"], ["eth0"]),
        (["cidr:192.0.0.0/8"], ["eth0"]),
        (["cidr:192.0.2.128/25"], ["eth0"]),
        (["can_reach:192.0.2.254"], ["eth0"]),
        (["can_reach:8.8.8.8"], ["eth1"]),
        (["can_reach:10.2.0.1"], ["eth1"]),
    ],
)
def test_selector_names_links(items, names):
    assert _choose(*items)[0] == names


def test_can_reach_an_address_that_is_bound_here_finds_the_network_and_not_lo():
    assert _choose(f"can_reach:{VIP}")[0] == ["eth0"]


def test_auto_without_a_vip_subnet_is_the_link_of_the_default_route():
    assert _choose("auto", vips=[ip_address("172.16.0.1")])[0] == ["eth1"]


def test_host_address_is_no_subnet():
    only_host = Surroundings(links=(a_link(2, "eth0", "192.0.2.50/32"), ETH1), routes=(a_route("0.0.0.0/0", 3),))

    assert _choose("auto", surroundings=only_host)[0] == ["eth1"]


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ("port0", "port0 is a port of br0, which has the addresses: name br0 instead"),
        ("kube-ipvs0", "kube-ipvs0 does not speak ARP"),
        ("can_reach:10.1.0.1", "resolves to lo"),
        ("can_reach:2001:db8::1", "no route leads there"),
        ("cidr:172.16.0.0/12", "only a default route leads there"),
        ("eth9", "there is no such interface; name one of eth0, eth1, br0, eth2"),
        ("wlan*", "no interface matches it yet"),
    ],
)
def test_what_cannot_be_guarded_is_a_problem_that_says_why(item, text):
    names, choice = _choose(item)

    assert not names
    assert text in choice.problems[0]


MACVLAN_NODE = Surroundings(links=(a_link(2, "eth0"), a_link(7, "mv0", "192.0.2.7/24", kind="macvlan", parent=2)))


def test_auto_takes_the_parent_of_a_macvlan_with_its_addresses():
    """Both hear every broadcast of the segment, and the parent's kernel would answer beside a guarded macvlan."""
    names, choice = _choose("auto", surroundings=MACVLAN_NODE)

    assert names == ["eth0"]
    assert [str(own.address) for own in choice.links[0].addresses] == ["192.0.2.7"]


def test_macvlan_by_name_is_refused_with_the_parents_name():
    names, choice = _choose("mv0", surroundings=MACVLAN_NODE)

    assert not names
    assert "mv0 shares its segment with eth0, which would answer unguarded: name eth0 instead" in choice.problems[0]


FLUSHED = Surroundings(links=(LO, a_link(2, "eth0"), ETH1, PORT), routes=(a_route("0.0.0.0/0", 3),))


def _still(guarded: list[int], surroundings: Surroundings = FLUSHED) -> list[str]:
    choice = choose_links(parse_config("{}").interfaces, surroundings, [VIP], guarded)
    return [link.name for link in choice.links]


def test_link_that_is_guarded_stays_so_while_its_address_is_away():
    assert _still([]) == ["eth1"]
    assert _still([2]) == ["eth0", "eth1"]


@pytest.mark.parametrize("ifindex", [4, 99], ids=["became a port", "gone"])
def test_link_that_cannot_be_guarded_any_more_is_let_go(ifindex):
    assert _still([ifindex]) == ["eth1"]


def test_link_that_became_a_port_stays_guarded_until_its_master_is():
    port, bridge = a_link(2, "eth0", master=5), a_link(5, "br0", kind="bridge")
    empty = Surroundings(links=(port, bridge))
    moved = Surroundings(links=(port, replace(bridge, addresses=ETH0.addresses)))

    assert _still([2], empty) == ["eth0"]
    assert _still([2], moved) == ["br0"]


def test_port_of_open_vswitch_is_let_go():
    """Its frames go where the switch's rules say; the guard would keep them from the interface with the address."""
    assert _still([19], Surroundings(links=(OVS, OVS_PORT))) == []


def test_one_bad_item_does_not_stop_the_rest():
    names, choice = _choose("eth9", "eth0")

    assert names == ["eth0"]
    assert len(choice.problems) == 1


# ---- IPv6 --------------------------------------------------------------------------------------------------------

VIP6 = ip_address("2001:db8:1::50")
NODE6 = Surroundings(
    links=(
        replace(LO, addresses=LO.addresses + a_link(1, "lo", "::1/128", "2001:db8:1::50/128").addresses),
        a_link(2, "eth0", "192.0.2.1/24", "fe80::2/64"),
        a_link(3, "eth1", "2001:db8:1::1/64", "fe80::3/64"),
        replace(a_link(4, "eth2", "2001:db8:2::1/128", "fe80::4/64"), on_link=(ip_network("2001:db8:2::/64"),)),
        a_link(5, "eth3", "fe80::5/64"),
    ),
    routes=(
        a_route("0.0.0.0/0", 2),
        a_route("192.0.2.0/24", 2),
        *(a_route("fe80::/64", ifindex, 256) for ifindex in (2, 3, 4, 5)),
        a_route("2001:db8:1::/64", 3, 256),
        a_route("2001:db8:2::/64", 4, 256),
        Route(ip_network("2001:db8:8::/48"), 0, 1024),
        Route(ip_network("::/0"), 5, 1024, via=ip_address("fe80::99")),
        Route(ip_network("::/0"), 3, 2048, via=ip_address("2001:db8:1::99")),
    ),
)


@pytest.mark.parametrize(
    ("items", "vips", "names"),
    [
        (["auto"], [VIP6], ["eth1"]),
        (["auto"], [VIP, VIP6], ["eth0", "eth1"]),
        (["auto"], [ip_address("2001:db8:2::50")], ["eth2"]),
        (["auto"], [ip_address("2001:db8:9::50")], ["eth3"]),
        (["auto"], [VIP, ip_address("2001:db8:9::50")], ["eth0", "eth3"]),
        (["auto"], [ip_address("10.0.0.1"), VIP6], ["eth0", "eth1"]),
        (["auto"], [], ["eth0"]),
        (["can_reach:169.254.169.254"], [VIP], ["eth0"]),
        (["can_reach:2001:db8:1::7"], [VIP], ["eth1"]),
        (["can_reach:2001:db8:1::50"], [VIP6], ["eth1"]),
        (["can_reach:2001:db8:9::1"], [VIP], ["eth3"]),
        (["cidr:2001:db8:1::/64"], [VIP], ["eth1"]),
        (["cidr:2001:db8::/32"], [VIP], ["eth1", "eth2"]),
        (["cidr:::/0"], [VIP], ["eth1", "eth2"]),
    ],
    ids=lambda value: " ".join(map(str, value)),
)
def test_selector_names_links_by_ipv6(items, vips, names):
    assert _choose(*items, vips=vips, surroundings=NODE6)[0] == names


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ("can_reach:fe80::99", "fe80::99 is a link-local address, which no route leads to"),
        ("can_reach:127.0.0.1", "127.0.0.1 is a loopback address, which no route leads to"),
        ("can_reach:ff02::1", "ff02::1 is a multicast address, which no route leads to"),
        ("cidr:fe80::/64", "every interface is in this network"),
        ("can_reach:2001:db8:8::1", "the route to 2001:db8:8::/48 leads nowhere (blackhole or unreachable)"),
    ],
)
def test_what_says_nothing_about_a_link_is_a_problem(item, text):
    names, choice = _choose(item, surroundings=NODE6)

    assert not names
    assert text in choice.problems[0]


def test_auto_without_a_default_route_of_the_vips_family_takes_that_of_the_other():
    only_v4 = replace(NODE6, routes=NODE6.routes[:1])

    assert _choose("auto", vips=[ip_address("2001:db8:9::50")], surroundings=only_v4)[0] == ["eth0"]


def test_link_local_network_is_no_home():
    near, far = NODE6.links[4], NODE6.links[2]

    assert home_link(VIP6, [near, far], NODE6.routes).name == "eth1"


# ---- kinds of devices --------------------------------------------------------------------------------------------

# As rtnetlink gives them where there is a driver for them.
BOND = a_link(10, "bond0", "192.0.2.10/24", kind="bond")
SLAVE = a_link(11, "eno1", master=10)
VLAN = a_link(12, "bond0.100", "198.51.100.10/24", kind="vlan")
OVER_VLAN = a_link(13, "mv0", "198.51.100.11/24", kind="macvlan", parent=12)
VRF = a_link(14, "blue", kind="vrf", no_arp=True)
IN_VRF = a_link(15, "eth5", "203.0.113.5/24", master=14)
TEAM, TEAM_PORT = a_link(16, "team0", kind="team"), a_link(17, "eno2", master=16)
OVS, OVS_PORT = a_link(18, "ovs-system", kind="openvswitch", up=False), a_link(19, "eno3", master=18)
WIREGUARD = a_link(20, "wg0", "10.9.0.1/24", kind="wireguard", ethernet=False, no_arp=True)
TUN = a_link(21, "tun0", kind="tun", ethernet=False, no_arp=True)
KINDS = Surroundings(
    links=(BOND, SLAVE, VLAN, OVER_VLAN, VRF, IN_VRF, TEAM, TEAM_PORT, OVS, OVS_PORT, WIREGUARD, TUN),
    routes=(a_route("198.51.100.0/24", 13), a_route("203.0.113.0/24", 15)),
)


@pytest.mark.parametrize(
    ("items", "vip", "names"),
    [
        (["auto"], "192.0.2.50", ["bond0"]),
        (["auto"], "198.51.100.50", ["bond0.100"]),
        (["auto"], "203.0.113.50", ["eth5"]),
        (["bond0", "bond0.100"], "192.0.2.50", ["bond0", "bond0.100"]),
        (["eth5"], "192.0.2.50", ["eth5"]),
        (["can_reach:198.51.100.7"], "192.0.2.50", ["bond0.100"]),
        (["cidr:198.51.100.0/24"], "192.0.2.50", ["bond0.100"]),
        (["can_reach:203.0.113.7"], "192.0.2.50", ["eth5"]),
    ],
    ids=["bond", "vlan", "in-vrf", "names", "in-vrf-name", "macvlan-reach", "macvlan-cidr", "in-vrf-reach"],
)
def test_the_link_that_carries_the_address_is_guarded(items, vip, names):
    assert _choose(*items, vips=[ip_address(vip)], surroundings=KINDS)[0] == names


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ("eno1", "eno1 is a port of bond0, which has the addresses: name bond0 instead"),
        ("eno2", "eno2 is a port of team0, which has the addresses: name team0 instead"),
        (
            "eno3",
            "eno3 is a port of Open vSwitch (ovs-system): name the switch's interface that has this node's address",
        ),
        (
            "ovs-system",
            "ovs-system is Open vSwitch's own device and has no address: name the switch's interface that has",
        ),
        ("mv0", "mv0 shares its segment with bond0.100"),
        ("blue", "blue is a VRF, which faces no network itself: name the interfaces in it"),
        ("wg0", "wg0 is not an Ethernet device (wireguard), so no host sends ARP requests there"),
        ("tun0", "tun0 is not an Ethernet device (tun), so no host sends ARP requests there"),
    ],
)
def test_device_that_cannot_be_guarded_is_refused_with_the_reason(item, text):
    names, choice = _choose(item, surroundings=KINDS)

    assert not names
    assert text in choice.problems[0]


# ---- names -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("item", ["enp3s0", "an-alternative-name-of-more-than-15-bytes", "enp*"])
def test_link_may_be_named_by_its_other_names(item):
    other = ("enp3s0", "an-alternative-name-of-more-than-15-bytes")
    surroundings = Surroundings(links=(LO, a_link(2, "eth0", alternatives=other), ETH1))

    assert _choose(item, surroundings=surroundings)[0] == ["eth0"]


# ---- tables ------------------------------------------------------------------------------------------------------


def test_of_two_tables_the_longest_prefix_decides_and_then_main():
    elsewhere = Route(ip_network("192.0.2.0/24"), 3, main=False)
    here = a_route("192.0.2.0/24", 2, metric=900)

    assert route_to(VIP, [elsewhere, here]).ifindex == 2
    assert route_to(VIP, [replace(elsewhere, network=ip_network("192.0.2.48/28")), here]).ifindex == 3


def test_what_leads_nowhere_in_another_table_keeps_nobody_else_out():
    blocked = Route(ip_network("192.0.2.48/28"), 0, main=False)
    here = a_route("192.0.2.0/24", 2)

    assert route_to(VIP, [blocked, here]).ifindex == 2
    assert route_to(VIP, [replace(blocked, main=True), here]).ifindex == 0


def test_home_is_no_link_that_routes_lead_nowhere_for():
    """A pool that is announced by BGP has a blackhole route on every node."""
    pool = Route(ip_network("192.0.2.50/32"), 0)

    assert home_link(VIP, [ETH1, BARE], [pool, a_route("0.0.0.0/0", 6)]).name == "eth2"


@pytest.mark.parametrize(("item", "waits"), [("eth9", False), ("eth9*", True), ("auto", True)])
def test_only_open_selectors_wait_for_links_to_appear(item, waits):
    assert _choose(item)[1].may_appear is waits


@pytest.mark.parametrize(
    ("links", "home"),
    [
        ([ETH0], "eth0"),
        ([ETH1], "eth1"),
        ([ETH1, ETH0], "eth0"),
        ([ETH1, BARE], "eth1"),
        ([BARE, BRIDGE], "br0"),
    ],
    ids=["only", "only-other", "subnet-wins", "default-route", "first"],
)
def test_vip_has_one_home(links, home):
    assert home_link(VIP, links, NODE.routes).name == home


def test_routes_are_not_looked_through_where_a_subnet_decides():
    """There may be thousands of both, VIPs and routes."""

    def none() -> Iterator[Route]:
        raise AssertionError
        yield

    assert home_link(VIP, [ETH1, ETH0], none()).name == "eth0"


def test_vip_has_no_home_without_links():
    assert home_link(VIP, [], NODE.routes) is None


def test_home_is_kept_while_its_link_is_down():
    """Its routes are gone then; another segment must not answer instead."""
    down = a_link(2, "eth0", "192.0.2.1/24", up=False)

    assert home_link(VIP, [ETH1, down], [a_route("0.0.0.0/0", 3)]).name == "eth0"


def test_of_two_links_in_the_subnet_the_one_that_is_up_is_home():
    down, up = a_link(2, "eth0", "192.0.2.1/24", up=False), a_link(7, "eth7", "192.0.2.7/24")

    assert home_link(VIP, [down, up], []).name == "eth7"


def test_of_two_links_in_the_subnet_the_better_route_decides():
    first, second = ETH0, a_link(7, "eth7", "192.0.2.7/24")
    routes = [a_route("192.0.2.0/24", 2, metric=100), a_route("192.0.2.0/24", 7, metric=10)]

    assert home_link(VIP, [first, second], routes).name == "eth7"


def test_longest_prefix_beats_lowest_metric():
    routes = [a_route("192.0.2.0/24", 2, metric=0), a_route("192.0.2.48/28", 3, metric=900)]

    assert route_to(VIP, routes).ifindex == 3


@pytest.mark.parametrize("kind", [SelectorKind.CIDR, SelectorKind.CAN_REACH])
def test_selector_that_lacks_what_it_selects_by_names_no_link(kind):
    choice = choose_links([InterfaceSelector(kind)], NODE, [VIP])

    assert (choice.links, choice.problems) == ((), ())


def test_auto_guards_the_links_of_closed_ranges():
    links = [a_link(2, "eth0", "192.0.2.1/24"), a_link(3, "eth1", "198.51.100.1/25"), a_link(4, "eth2", "10.0.0.1/8")]
    surroundings = Surroundings(tuple(links))
    selectors = parse_config("{}").interfaces
    closed = [ip_network("198.51.100.0/24")]
    assert [link.name for link in choose_links(selectors, surroundings, [], closed=closed).links] == ["eth1"]
    both = choose_links(selectors, surroundings, [ip_address("192.0.2.50")], closed=closed)
    assert [link.name for link in both.links] == ["eth0", "eth1"]
