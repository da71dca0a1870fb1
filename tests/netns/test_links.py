"""Which links a running agent guards, and what it makes of all that may happen to them.

What many kernels have no driver for (bonds, teams, VLAN devices, VRFs, Open vSwitch) is tested in tests/unit, with
links as rtnetlink gives them; bonds, VLAN devices and VRFs also in test_devices.py, where there are drivers.
"""

import re
import socket
from collections.abc import Callable, Iterator
from ipaddress import ip_address

import pytest

from arpguard.addresses import Address
from arpguard.verdict import Hook
from arpguard_lab.netns import Netns
from arpguard_lab.topology import AgentProcess
from support.netns.cable import Pair, a_pair, address
from support.netns.guard import attachments
from support.netns.waiting import ANSWER_S, REPAIR_S, until

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

OWNED, FOREIGN, MARK = address(50), address(51), address(90)
OWNED_FAR = ip_address("203.0.113.50")
OWNED6, OWNED6_FAR = ip_address("2001:db8:51::50"), ip_address("2001:db8:113::50")
NOTHING = "['none*']"


def a_config(interfaces: str, *vips: Address) -> str:
    """With the usual VIPs, or with some of this node's."""
    owners = dict.fromkeys(vips, "node-1") or {OWNED: "node-1", MARK: "node-1", FOREIGN: "node-2"}
    lines = [f"  - {{address: {vip}, owner: {{node: {owner}}}}}" for vip, owner in owners.items()]
    return "\n".join(["mode: enforce", f"interfaces: {interfaces}", "vips:", *lines]) + "\n"


def with_ipv6(netns: Netns) -> None:
    """From now on, and without waiting for duplicate address detection."""
    values = {"accept_dad": 0, "accept_ra": 0, "disable_ipv6": 0}
    names = netns.run("ls", "/proc/sys/net/ipv6/conf").split()
    netns.run(
        "sysctl", "-qw", *(f"net.ipv6.conf.{name}.{key}={value}" for key, value in values.items() for name in names)
    )


def second_cable(pair: Pair) -> None:
    pair.node.netns.batch(
        [
            f"link add eth1 type veth peer name eth1 netns {pair.client.netns.name}",
            "link set eth1 up",
            "addr add 203.0.113.1/24 dev eth1",
            "addr add 2001:db8:113::1/64 dev eth1",
        ]
    )
    pair.client.netns.batch(["link set eth1 up", "addr add 203.0.113.100/24 dev eth1"])


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    """Two cables, both families, and a VIP of each family on `lo` and on a device like kube-proxy's."""
    with a_pair("links") as made:
        with_ipv6(made.node.netns)
        second_cable(made)
        made.node.netns.batch(
            [
                "addr add 2001:db8:51::1/64 dev eth0",
                "route add default via 2001:db8:113::99 dev eth1",
                "link add bare0 type veth peer name bare0 netns " + made.client.netns.name,
                "link set bare0 up",
                "link add br0 type bridge forward_delay 0 mcast_snooping 0",
                "link set br0 up",
                "link add port0 type veth peer name cable0 netns " + made.client.netns.name,
                "link set port0 master br0 up",
                "link add kube-ipvs0 type bridge",
                "link set kube-ipvs0 arp off",
                *(f"addr add {vip} dev {device}" for vip in (OWNED, OWNED6) for device in ("lo", "kube-ipvs0")),
                *(f"addr add {vip} dev lo" for vip in (FOREIGN, OWNED_FAR, OWNED6_FAR)),
            ]
        )
        made.client.netns.batch(["link set bare0 up", "link set cable0 up"])
        yield made


@pytest.fixture(scope="module")
def the_agent(pair) -> AgentProcess:
    return pair.agent(a_config(NOTHING))


@pytest.fixture
def agent(pair, the_agent) -> AgentProcess:
    """The one agent of this file, with nothing to guard yet."""
    the_agent.configure(a_config(NOTHING))
    until(lambda: guarded(pair, the_agent) == set(), what="nothing is guarded")
    until(lambda: [each.startswith("interfaces: none*: ") for each in problems(the_agent)] == [True], what="nor wrong")
    return the_agent


def guarded(pair: Pair, agent: AgentProcess) -> set[str]:
    """The links that programs are attached to, both in and out."""
    found = [ifindex for ifindex, _ in attachments(pair.node, agent.pin_dir)]
    return {name_of(pair, ifindex) for ifindex in found if found.count(ifindex) == 2}


def name_of(pair: Pair, ifindex: int) -> str:
    try:
        return pair.node.netns.call(lambda: socket.if_indextoname(ifindex))
    except OSError:
        return f"#{ifindex}"


def guards(pair: Pair, agent: AgentProcess, *names: str, within_s: float = REPAIR_S) -> float:
    """Waits until exactly these links are guarded; how many seconds that took."""
    return until(lambda: guarded(pair, agent) == set(names), within_s, f"{names} are guarded")


def problems(agent: AgentProcess) -> list[str]:
    """What the log says is wrong, and not solved since; not what the audit finds, which runs at times of its own."""
    standing: list[str] = []
    for kind, text in re.findall(r"(problem|solved): (?!audit: )(.*)", agent.said()):
        standing = [*standing, text] if kind == "problem" else [each for each in standing if each != text]
    return standing


def is_told(agent: AgentProcess, problem: str, within_s: float = ANSWER_S) -> None:
    """Waits until a problem that begins so stands."""
    until(lambda: any(each.startswith(problem) for each in problems(agent)), within_s, problem)


# ---- selectors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("interfaces", "names"),
    [
        pytest.param("[auto]", "eth0", id="auto: the link with the VIPs' subnet"),
        pytest.param("[eth1]", "eth1", id="a name"),
        pytest.param("['eth*']", "eth0 eth1", id="a glob"),
        pytest.param("['eth[1-9]', br0]", "eth1 br0", id="a glob and a bridge"),
        pytest.param("[bare0]", "bare0", id="a link without an address"),
        pytest.param("['*']", "eth0 eth1 bare0 br0", id="all, without lo, ports, and what speaks no ARP"),
        pytest.param("['cidr:203.0.113.0/24']", "eth1", id="an IPv4 network"),
        pytest.param("['cidr:203.0.113.64/26']", "eth1", id="a part of an IPv4 network"),
        pytest.param("['cidr:2001:db8:51::/64']", "eth0", id="an IPv6 network"),
        pytest.param("['cidr:2001:db8::/32']", "eth0 eth1", id="an IPv6 network with two in it"),
        pytest.param("['can_reach:203.0.113.9']", "eth1", id="an IPv4 address"),
        pytest.param("['can_reach:192.0.2.1']", "eth0", id="an IPv4 address behind the default route"),
        pytest.param("['can_reach:2001:db8:51::9']", "eth0", id="an IPv6 address"),
        pytest.param("['can_reach:2001:db8:77::9']", "eth1", id="an IPv6 address behind the default route"),
        pytest.param(f"['can_reach:{OWNED}']", "eth0", id="a VIP on lo and kube-ipvs0"),
        pytest.param(f"['can_reach:{OWNED_FAR}']", "eth1", id="a VIP of the other network on lo"),
        pytest.param(f"['can_reach:{OWNED6}']", "eth0", id="an IPv6 VIP on lo and kube-ipvs0"),
        pytest.param(f"['can_reach:{OWNED6_FAR}']", "eth1", id="an IPv6 VIP of the other network on lo"),
    ],
)
def test_each_selector_chooses_its_links(pair, agent, interfaces, names):
    agent.configure(a_config(interfaces))
    guards(pair, agent, *names.split())


@pytest.mark.parametrize(
    ("vips", "names"),
    [
        ([OWNED6], "eth0"),
        ([OWNED6_FAR], "eth1"),
        ([OWNED, OWNED6_FAR], "eth0 eth1"),
        ([ip_address("10.9.9.9")], "eth0"),
        ([ip_address("2001:db8:99::9")], "eth1"),
        ([OWNED_FAR, ip_address("2001:db8:99::9"), ip_address("10.9.9.9")], "eth1"),
    ],
    ids=[
        "ipv6 subnet",
        "other ipv6 subnet",
        "both families",
        "ipv4 default",
        "ipv6 default",
        "a subnet before a default",
    ],
)
def test_auto_takes_the_links_with_the_vips_subnets_and_else_those_of_the_default_routes(pair, agent, vips, names):
    agent.configure(a_config("[auto]", *vips))
    guards(pair, agent, *names.split())


def test_ip_route_get_would_have_led_to_lo(pair):
    """What can_reach must not do: this is how OpenELB finds no interface once the address is in use."""
    for vip in (OWNED, OWNED6):
        assert " dev lo " in pair.node.netns.run("ip", "route", "get", str(vip))


@pytest.mark.parametrize(
    ("interfaces", "problem"),
    [
        ("[eth7]", "interfaces: eth7: there is no such interface; name one of eth0, eth1, bare0, br0"),
        ("[port0]", "interfaces: port0: port0 is a port of br0, which has the addresses: name br0 instead"),
        ("[kube-ipvs0]", "interfaces: kube-ipvs0: kube-ipvs0 does not speak ARP"),
        (
            "['can_reach:fe80::1']",
            "interfaces: can_reach:fe80::1: fe80::1 is a link-local address, which no route leads to",
        ),
        ("['can_reach:127.0.0.5']", "interfaces: can_reach:127.0.0.5: 127.0.0.5 is a loopback address"),
        ("['cidr:192.0.2.0/24']", "interfaces: cidr:192.0.2.0/24: only a default route leads there"),
    ],
)
def test_what_cannot_be_guarded_is_refused_with_the_reason(pair, agent, interfaces, problem):
    agent.configure(a_config(interfaces))
    is_told(agent, problem, REPAIR_S)
    assert guarded(pair, agent) == set()


# ---- routes ------------------------------------------------------------------------------------------------------


@pytest.fixture
def routes(pair) -> Iterator["Routes"]:
    """Changes routes and the like, and undoes that."""
    made = Routes(pair)
    yield made
    made.undo()


class Routes:
    def __init__(self, pair: Pair) -> None:
        self._ip = pair.node.netns.batch
        self._undo: list[str] = []

    def add(self, what: str, words: str) -> None:
        """`what` is route, rule or nexthop."""
        self._ip([f"{what} add {words}"])
        self._undo.append(_deletion(what, words))

    def delete(self, what: str, words: str) -> None:
        self._ip([_deletion(what, words)])
        self._undo.remove(_deletion(what, words))

    def undo(self) -> None:
        self._ip(self._undo[::-1])


def _deletion(what: str, words: str) -> str:
    return f"{what} del {' '.join(words.split()[:2]) if what == 'nexthop' else words}"


FAR4, FAR6 = "192.0.2.0/24", "2001:db8:77::/48"


@pytest.mark.parametrize(
    ("interfaces", "before", "better", "added"),
    [
        ("['can_reach:192.0.2.9']", "eth0", "192.0.2.0/24 via 203.0.113.99", "eth1"),
        ("['can_reach:2001:db8:77::9']", "eth1", "2001:db8:77::/48 via 2001:db8:51::99", "eth0"),
        ("['can_reach:2001:db8:77::9']", "eth1", "2001:db8:77::/48 via fe80::99 dev eth0", "eth0"),
        ("['can_reach:192.0.2.9']", "eth0", "192.0.2.9 via 203.0.113.99 table 100", "eth1"),
        ("['can_reach:192.0.2.9']", "eth0", "192.0.2.9 via inet6 fe80::9 dev eth1", "eth1"),
        ("['cidr:192.0.2.0/24']", "", "192.0.2.0/25 via 203.0.113.99", "eth1"),
        ("['cidr:2001:db8:77::/48']", "", "2001:db8:77:1::/64 via 2001:db8:51::99", "eth0"),
    ],
    ids=["ipv4", "ipv6", "ipv6-link-local", "table-100", "ipv4-via-ipv6", "cidr", "cidr-ipv6"],
)
def test_a_better_route_is_followed_at_once(pair, agent, routes, interfaces, before, better, added):
    """The old link stays guarded, too: an address or route that is away for a moment must not open the guard."""
    agent.configure(a_config(interfaces))
    guards(pair, agent, *before.split())
    chosen = interfaces.strip("[']")
    until(lambda: before or any(chosen in each for each in problems(agent)), what="the configuration is taken over")
    routes.add("route", better)
    took_s = guards(pair, agent, *before.split(), added)
    print(f"from `ip route` to both programs attached: {took_s * 1000:.0f} ms")


def test_a_link_stays_guarded_when_its_route_goes(pair, agent, routes):
    routes.add("route", "192.0.2.0/24 via 203.0.113.99")
    agent.configure(a_config("['can_reach:192.0.2.9', 'cidr:192.0.2.0/24']"))
    guards(pair, agent, "eth1")
    routes.delete("route", "192.0.2.0/24 via 203.0.113.99")
    is_told(agent, "interfaces: cidr:192.0.2.0/24: only a default route leads there")
    guards(pair, agent, "eth0", "eth1")


def test_a_rule_and_its_table_do_not_lead_astray(pair, agent, routes):
    """A default route of a table of its own (a VPN's, say) is as long as that of main, which goes before it."""
    routes.add("route", "default via 203.0.113.99 table 100")
    routes.add("rule", "from 203.0.113.1 table 100")
    agent.configure(a_config("['can_reach:192.0.2.9']"))
    guards(pair, agent, "eth0")


@pytest.mark.parametrize("kind", ["blackhole", "unreachable", "prohibit"])
@pytest.mark.parametrize(("network", "target"), [(FAR4, "192.0.2.9"), (FAR6, "2001:db8:77::9")])
def test_a_route_that_leads_nowhere_is_a_problem_for_can_reach(pair, agent, routes, kind, network, target):
    routes.add("route", f"{kind} {network}")
    agent.configure(a_config(f"['can_reach:{target}']"))
    problem = f"interfaces: can_reach:{target}: the route to {network} leads nowhere"
    is_told(agent, problem, REPAIR_S)
    assert guarded(pair, agent) == set()
    routes.delete("route", f"{kind} {network}")
    guards(pair, agent, "eth0" if network is FAR4 else "eth1")


@pytest.mark.parametrize(
    "route",
    [
        "192.0.2.0/24 nexthop via 198.51.100.99 nexthop via 203.0.113.99",
        "2001:db8:77::/48 nexthop via 2001:db8:51::99 nexthop via 2001:db8:113::99",
    ],
    ids=["ipv4", "ipv6"],
)
def test_both_next_hops_of_a_multipath_route_count(pair, agent, routes, route):
    routes.add("route", route)
    agent.configure(a_config(f"['cidr:{route.split()[0]}']"))
    guards(pair, agent, "eth0", "eth1")


@pytest.fixture(params=[1, 0], ids=["compatible", "objects-only"])
def compat_mode(pair, request) -> Iterator[None]:
    """0: routes tell the id of their nexthop object and nothing else."""
    pair.node.netns.run("sysctl", "-qw", f"net.ipv4.nexthop_compat_mode={request.param}")
    yield
    pair.node.netns.run("sysctl", "-qw", "net.ipv4.nexthop_compat_mode=1")


@pytest.mark.usefixtures("compat_mode")
@pytest.mark.parametrize(
    ("network", "target", "via", "other"),
    [
        (FAR4, "192.0.2.9", "203.0.113.99 dev eth1", "198.51.100.99 dev eth0"),
        (FAR6, "2001:db8:77::9", "2001:db8:51::99 dev eth0", "2001:db8:113::99 dev eth1"),
    ],
    ids=["ipv4", "ipv6"],
)
def test_nexthop_objects_are_read(pair, agent, routes, network, target, via, other):
    routes.add("nexthop", f"id 7 via {via}")
    routes.add("route", f"{network} nhid 7")
    agent.configure(a_config(f"['can_reach:{target}']"))
    guards(pair, agent, via.split()[-1])
    pair.node.netns.batch([f"nexthop replace id 7 via {other}"])
    took_s = guards(pair, agent, "eth0", "eth1")
    print(f"from `ip nexthop replace` to both programs attached: {took_s * 1000:.0f} ms")


@pytest.mark.usefixtures("compat_mode")
def test_groups_of_nexthop_objects_are_read(pair, agent, routes):
    routes.add("nexthop", "id 7 via 203.0.113.99 dev eth1")
    routes.add("nexthop", "id 8 via 198.51.100.99 dev eth0")
    routes.add("nexthop", "id 9 group 7/8")
    routes.add("route", f"{FAR4} nhid 9")
    agent.configure(a_config(f"['cidr:{FAR4}']"))
    guards(pair, agent, "eth0", "eth1")


@pytest.mark.usefixtures("compat_mode")
def test_a_nexthop_object_that_is_a_blackhole_leads_nowhere(pair, agent, routes):
    routes.add("nexthop", "id 7 blackhole")
    routes.add("route", f"{FAR4} nhid 7")
    agent.configure(a_config("['can_reach:192.0.2.9']"))
    is_told(agent, f"interfaces: can_reach:192.0.2.9: the route to {FAR4} leads nowhere")


def test_thousands_of_routes_are_read_in_time(pair, agent):
    """A node of a large cluster has one for each of the others, and for each of its own pods."""
    lines = [f"route add 10.{n >> 8}.{n & 255}.0/24 via 203.0.113.99" for n in range(5000)]
    pair.node.netns.batch(lines)
    try:
        agent.configure(a_config("['can_reach:192.0.2.9']"))
        guards(pair, agent, "eth0", within_s=3)
        pair.node.netns.batch(["route add 192.0.2.0/24 via 203.0.113.99"])
        took_s = guards(pair, agent, "eth0", "eth1")
        print(f"with 5,000 routes, from `ip route` to both programs attached: {took_s * 1000:.0f} ms")
    finally:
        pair.node.netns.batch(["route flush via 203.0.113.99"])


# ---- names -------------------------------------------------------------------------------------------------------


@pytest.fixture
def other_names(pair) -> Iterator[list[str]]:
    names = ["enp3s0", "an-altname-that-is-longer-than-fifteen-bytes"]
    pair.node.netns.batch([f"link property add dev eth1 {' '.join(f'altname {name}' for name in names)}"])
    yield names
    pair.node.netns.batch([f"link property del dev eth1 {' '.join(f'altname {name}' for name in names)}"])


def test_a_link_is_found_by_its_other_names(pair, agent, other_names):
    for item in (*other_names, "enp*"):
        agent.configure(a_config(f"['{item}']"))
        guards(pair, agent, "eth1")
        agent.configure(a_config(NOTHING))
        guards(pair, agent)


def test_an_altname_that_is_given_later_is_followed(pair, agent):
    agent.configure(a_config("['wan*']"))
    is_told(agent, "interfaces: wan*: no interface matches it yet")
    pair.node.netns.batch(["link property add dev eth1 altname wan0"])
    try:
        guards(pair, agent, "eth1")
    finally:
        pair.node.netns.batch(["link property del dev eth1 altname wan0"])


def test_a_name_of_fifteen_bytes_is_guarded(pair, agent):
    name = "a23456789012345"
    pair.node.netns.batch([f"link add {name} type veth peer name peer0", f"link set {name} up"])
    try:
        agent.configure(a_config(f"[{name}]"))
        guards(pair, agent, name)
    finally:
        pair.node.netns.batch([f"link del {name}"])


def test_a_link_that_is_renamed_stays_guarded_and_is_found_by_its_new_name(pair, agent):
    """Its old name is nobody's then, which is a problem; the guard is on the device, not on its name."""
    agent.configure(a_config("[bare0]"))
    guards(pair, agent, "bare0")
    pair.node.netns.batch(["link set bare0 down", "link set bare0 name bare9", "link set bare9 up"])
    try:
        until(lambda: any("bare0: there is no such interface" in each for each in problems(agent)), REPAIR_S)
        guards(pair, agent, "bare9")
        agent.configure(a_config("[bare9]"))
        until(lambda: not problems(agent), REPAIR_S, "it is named as it is called")
        guards(pair, agent, "bare9")
    finally:
        pair.node.netns.batch(["link set bare9 down", "link set bare9 name bare0", "link set bare0 up"])


# ---- kinds of devices --------------------------------------------------------------------------------------------


@pytest.fixture
def device(pair) -> Iterator[Callable[[str, str], None]]:
    """Makes a device and sets it up; it goes afterwards."""
    made = []

    def make(name: str, words: str) -> None:
        pair.node.netns.batch([words, f"link set {name} up"])
        made.append(name)

    yield make
    pair.node.netns.batch([f"link del {name}" for name in made])


@pytest.mark.parametrize(
    ("name", "words", "problem"),
    [
        (
            "tun0",
            "tuntap add tun0 mode tun",
            "tun0 is not an Ethernet device (tun), so no host sends ARP requests there",
        ),
        ("ifb7", "link add ifb7 type ifb", "ifb7 does not speak ARP (NOARP)"),
        ("mv0", "link add link bare0 name mv0 type macvlan mode bridge", "mv0 shares its segment with bare0"),
        ("mv0", "link add link bare0 name mv0 type macvlan mode private", "mv0 shares its segment with bare0"),
        ("mv0", "link add link bare0 name mv0 type macvlan mode vepa", "mv0 shares its segment with bare0"),
        ("mv0", "link add link bare0 name mv0 type macvlan mode passthru", "mv0 shares its segment with bare0"),
    ],
    ids=["tun", "noarp", "macvlan-bridge", "macvlan-private", "macvlan-vepa", "macvlan-passthru"],
)
def test_a_device_that_cannot_be_guarded_is_refused_with_the_reason(pair, agent, device, name, words, problem):
    device(name, words)
    agent.configure(a_config(f"[{name}]"))
    is_told(agent, f"interfaces: {name}: {problem}")
    assert guarded(pair, agent) == set()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tap0", "tuntap add tap0 mode tap"),
        ("vx0", "link add vx0 type vxlan id 7 local 198.51.100.1 dstport 4789"),
        ("br1", "link add br1 type bridge"),
    ],
    ids=["tap", "vxlan", "bridge"],
)
def test_other_ethernet_devices_are_guarded(pair, agent, device, name, words):
    device(name, words)
    agent.configure(a_config(f"[{name}]"))
    guards(pair, agent, name)


def test_xdp_on_a_device_that_has_none_falls_back_to_tc(pair, agent):
    agent.configure("datapath: xdp\n" + a_config("[br0]"))
    is_told(agent, "br0: the kernel refused native XDP on interface")
    guards(pair, agent, "br0")
    hooks = {hook for _, hook in attachments(pair.node, agent.pin_dir)}
    assert hooks == {Hook.TC_INGRESS, Hook.TC_EGRESS}


@pytest.mark.parametrize("mode", ["bridge", "private", "vepa", "passthru"])
@pytest.mark.parametrize("interfaces", ["[auto]", "['cidr:10.7.0.0/24']", "['can_reach:10.7.0.9']"])
def test_the_parent_is_guarded_for_the_subnet_of_its_macvlan(pair, agent, device, mode, interfaces):
    device("mv0", f"link add link bare0 name mv0 type macvlan mode {mode}")
    pair.node.netns.batch(["addr add 10.7.0.1/24 dev mv0"])
    agent.configure(a_config(interfaces, ip_address("10.7.0.50")))
    guards(pair, agent, "bare0")


def test_a_link_that_becomes_a_port_is_guarded_until_its_master_is(pair, agent, device):
    """As when an address moves to a bridge: all frames come through the port, and nobody else would stop them."""
    device("br1", "link add br1 type bridge")
    agent.configure(a_config("[bare0, 'cidr:10.6.0.0/24']", ip_address("10.6.0.50")))
    pair.node.netns.batch(["addr add 10.6.0.1/24 dev bare0"])
    guards(pair, agent, "bare0")
    pair.node.netns.batch(["link set bare0 master br1"])
    until(lambda: any("bare0 is a port of br1, which has the" in each for each in problems(agent)), REPAIR_S)
    guards(pair, agent, "bare0")
    pair.node.netns.batch(["addr del 10.6.0.1/24 dev bare0", "addr add 10.6.0.1/24 dev br1"])
    guards(pair, agent, "br1")
    pair.node.netns.batch(["link set bare0 nomaster"])
    guards(pair, agent, "bare0", "br1")


def test_auto_finds_an_on_link_network_that_the_link_has_no_address_in(pair, agent, routes):
    """As with DHCPv6, whose addresses are single ones; the network is a route of the router's advertisement."""
    routes.add("route", "10.8.0.0/24 dev bare0")
    agent.configure(a_config("[auto]", ip_address("10.8.0.50")))
    guards(pair, agent, "bare0")
