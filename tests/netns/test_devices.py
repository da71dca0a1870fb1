"""A VLAN device, bonds and an interface in a VRF, guarded on a kernel that has drivers for them.

The node has six more cables to the client: one that both use by VLAN devices (VID 7; VID 10 within VID 100), two that
are a bond at the node, one that is in a VRF there, and two that are a bond at both ends, put together by LACP. The VIPs
are on `lo`, in the VRF on its device, so that the kernel would answer for each.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from arpguard.errors import DataPlaneError
from arpguard.verdict import Hook
from arpguard_lab.netns import Netns
from arpguard_lab.topology import AgentProcess
from support.netns.agents import said
from support.netns.cable import Pair, a_pair
from support.netns.devices import Device, a_config, addresses, cable, mac_of, shown, who
from support.netns.foreign import programs_at
from support.netns.waiting import until
from support.netns.wire import a_wire
from support.required import do_without

pytestmark = [pytest.mark.netns, pytest.mark.bpf]


VLAN = Device("wan.7", "wan.7", 1, "lo")
BOND = Device("bond0", "br0", 2, "lo")
VRF = Device("member0", "member0", 3, "blue")
LACP = Device("bond1", "bond1", 4, "lo")
QINQ = Device("wan.100.10", "wan.100.10", 5, "lo")
DEVICES = (VLAN, BOND, VRF, LACP, QINQ)
PARENT = "wan"

_VLANS = (
    "link add link wan name wan.7 type vlan id 7",
    "link add link wan name wan.100 type vlan protocol 802.1ad id 100",
    "link add link wan.100 name wan.100.10 type vlan id 10",
)
_VLAN_DEVICES = ("wan.7", "wan.100", "wan.100.10")

_PROBES = ("type bond", "link eth0 type vlan id 7", "type vrf table 7")


def _drivers_or_skip(netns: Netns) -> None:
    """Some kernels have none of them, and no modules either."""
    for words in _PROBES:
        try:
            netns.batch([f"link add name probe0 {words}", "link del probe0"])
        except DataPlaneError:
            do_without("devices", f"this kernel has no driver for `ip link add {words}`")


def _build(pair: Pair) -> None:
    node, client = pair.node.netns, pair.client.netns
    cables = ("wan", "port0", "port1", "port2", "port3", "member0")
    bond1 = [
        "link add bond1 type bond mode 802.3ad lacp_rate fast miimon 20",
        "link set port2 master bond1", "link set port3 master bond1",
    ]  # fmt: skip
    node.batch([
        *(cable(pair, name) for name in cables),
        "link add bond0 type bond mode active-backup miimon 20",
        "link set port0 master bond0", "link set port1 master bond0",
        *bond1,
        "link add blue type vrf table 7", "link set blue up", "link set member0 master blue",
        *_VLANS,
        *(f"link set {name} up" for name in (*cables, *_VLAN_DEVICES, "bond0", "bond1")),
        *addresses(DEVICES),
    ])  # fmt: skip
    client.batch([
        *_VLANS,
        "link add br0 promisc on type bridge forward_delay 0 mcast_snooping 0",
        "link set port0 master br0", "link set port1 master br0",
        *bond1,
        *(f"link set {name} up" for name in (*cables, *_VLAN_DEVICES, "br0", "bond1")),
        *(f"addr add {each.address(100)}/24 dev {each.asked_on}" for each in DEVICES),
    ])  # fmt: skip


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with a_pair("devices") as made:
        _drivers_or_skip(made.node.netns)
        _build(made)
        until(lambda: aggregated(made) == 2, what="LACP has made one link of both ports")
        yield made


def active_port(pair: Pair) -> str:
    return shown(pair, BOND.name)["linkinfo"]["info_data"]["active_slave"]


def aggregated(pair: Pair) -> int:
    """How many ports LACP has put together with the client."""
    return shown(pair, LACP.name)["linkinfo"]["info_data"]["ad_info"]["num_ports"]


@pytest.mark.parametrize("device", DEVICES, ids=lambda each: each.name)
def test_without_the_guard_the_kernel_answers_for_both(pair, device):
    """Of the agent there is nothing yet: this is the first test of the file."""
    assert not pair.agents
    with a_wire(pair.client, device.asked_on) as wire:
        assert who(wire, device) == [[mac_of(pair, device)]] * 2


@pytest.fixture(scope="module")
def agent(pair) -> AgentProcess:
    return pair.agent(a_config(DEVICES))


@pytest.mark.parametrize("device", DEVICES, ids=lambda each: each.name)
def test_the_owner_answers_and_for_another_nodes_vip_nobody(pair, agent, device):
    with a_wire(pair.client, device.asked_on) as wire:
        assert who(wire, device) == [[mac_of(pair, device)], []]


@dataclass(frozen=True)
class Tagged:
    """A case of docs/conformance.md: frames with a tag or two, and where the kernel keeps the outer one."""

    name: str
    device: Device
    offload: str

    def __str__(self) -> str:
        return self.name


TAGGED = (
    Tagged("D2 VID 7, tag in the frame", VLAN, "off"),
    Tagged("D3 VID 7, tag in the packet's metadata", VLAN, "on"),
    Tagged("D8 VID 10 within VID 100", QINQ, "on"),
)


@pytest.fixture(params=TAGGED, ids=str)
def tagged(request, pair) -> Tagged:
    pair.node.netns.run("ethtool", "-K", PARENT, "rxvlan", request.param.offload)
    return request.param


def test_vlan_device_is_guarded_itself(pair, agent, tagged):
    with a_wire(pair.client, tagged.device.asked_on) as wire:
        assert who(wire, tagged.device) == [[mac_of(pair, tagged.device)], []]


def test_tagged_frames_pass_where_only_the_parent_is_guarded(pair, agent, tagged):
    """So the kernel answers for both, by the VLAN device."""
    agent.configure(a_config([replace(tagged.device, name=PARENT)]))
    try:
        until(lambda: not programs_at(pair.node, Hook.TC_INGRESS, tagged.device.name), what="the VLAN device is left")
        assert programs_at(pair.node, Hook.TC_INGRESS, PARENT)
        with a_wire(pair.client, tagged.device.asked_on) as wire:
            assert who(wire, tagged.device) == [[mac_of(pair, tagged.device)]] * 2
    finally:
        agent.configure(a_config(DEVICES))
        until(lambda: programs_at(pair.node, Hook.TC_INGRESS, tagged.device.name), what="it is guarded again")


def test_a_bond_stays_guarded_when_its_active_port_fails(pair, agent):
    active = active_port(pair)
    pair.client.netns.batch([f"link set {active} down"])
    try:
        with a_wire(pair.client, BOND.asked_on) as wire:
            assert who(wire, BOND) == [[mac_of(pair, BOND)], []]
        assert active_port(pair) != active
    finally:
        pair.client.netns.batch([f"link set {active} up"])


def test_a_bond_that_speaks_lacp_stays_guarded_when_a_port_fails(pair, agent):
    until(lambda: aggregated(pair) == 2, what="both ports are one link")
    pair.client.netns.batch(["link set port2 down"])
    try:
        until(lambda: aggregated(pair) == 1, what="one port is left")
        with a_wire(pair.client, LACP.asked_on) as wire:
            assert who(wire, LACP) == [[mac_of(pair, LACP)], []]
    finally:
        pair.client.netns.batch(["link set port2 up"])


def test_where_xdp_is_asked_for_a_bond_is_guarded_at_tc(pair, agent):
    """The kernel would take the program there, and run it for frames of the ports."""
    agent.configure(a_config(DEVICES, "xdp"))
    until(lambda: said(agent, "problem: bond0: XDP sees frames on the bond's ports"), what="the problem")
    assert len(programs_at(pair.node, Hook.TC_INGRESS, "bond0")) == 1
    with a_wire(pair.client, BOND.asked_on) as wire:
        assert who(wire, BOND) == [[mac_of(pair, BOND)], []]
