"""Which links are guarded, and where a VIP is at home."""

from ipaddress import ip_address, ip_interface, ip_network

import pytest

from arpguard.addresses import MacAddress
from arpguard.config import parse_config
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
        ("port0", "port0 is a port of br0, which carries its addresses: name br0 instead"),
        ("kube-ipvs0", "kube-ipvs0 does not speak ARP"),
        ("can_reach:10.1.0.1", "resolves to lo"),
        ("can_reach:2001:db8::1", "no route leads there"),
        ("cidr:172.16.0.0/12", "no route but the default one leads there"),
        ("eth9", "there is no such interface; there are: eth0, eth1, br0, eth2"),
        ("wlan*", "no interface of such a name yet"),
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
    assert "mv0 shares its segment with eth0, which would answer beside it: name eth0 instead" in choice.problems[0]


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


def test_one_bad_item_does_not_stop_the_rest():
    names, choice = _choose("eth9", "eth0")

    assert names == ["eth0"]
    assert len(choice.problems) == 1


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
