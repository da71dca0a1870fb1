"""A VLAN device, a bond and an interface in a VRF, guarded on a kernel that has drivers for them.

The node has four more cables to the client: one that both use by a VLAN device, two that are a bond at the node, and
one that is in a VRF there. The VIPs are on `lo`, in the VRF on its device, so that the kernel would answer for each.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address

import pytest

from arpguard.addresses import MacAddress
from arpguard.errors import DataPlaneError
from arpguard.verdict import Hook
from arpguard_lab.netns import Netns
from arpguard_lab.topology import AgentProcess
from support.netns.agents import said
from support.netns.cable import Pair, a_pair
from support.netns.foreign import programs_at
from support.netns.waiting import until
from support.netns.wire import Wire, a_wire
from support.required import do_without

pytestmark = [pytest.mark.netns, pytest.mark.bpf]


@dataclass(frozen=True)
class Device:
    """A guarded device of the node, where the client asks for its VIPs, and the third byte of its network."""

    name: str
    asked_on: str
    network: int
    vips_on: str

    def address(self, number: int) -> IPv4Address:
        return IPv4Address(f"10.7.{self.network}.{number}")

    @property
    def owned(self) -> IPv4Address:
        return self.address(50)

    @property
    def foreign(self) -> IPv4Address:
        return self.address(51)


VLAN = Device("wan.7", "wan.7", 1, "lo")
BOND = Device("bond0", "br0", 2, "lo")
VRF = Device("member0", "member0", 3, "blue")
DEVICES = (VLAN, BOND, VRF)


def a_config(datapath: str = "auto") -> str:
    lines = [f"datapath: {datapath}", "mode: enforce", f"interfaces: [{', '.join(each.name for each in DEVICES)}]"]
    owners = {vip: owner for each in DEVICES for vip, owner in ((each.owned, "node-1"), (each.foreign, "node-2"))}
    return "\n".join([*lines, "vips:", *(f"  - {{address: {v}, owner: {{node: {o}}}}}" for v, o in owners.items()), ""])


_PROBES = ("type bond", "link eth0 type vlan id 7", "type vrf table 7")


def _drivers_or_skip(netns: Netns) -> None:
    """Some kernels have none of them, and no modules either."""
    for words in _PROBES:
        try:
            netns.batch([f"link add name probe0 {words}", "link del probe0"])
        except DataPlaneError:
            do_without("devices", f"this kernel has no driver for `ip link add {words}`")


def _cable(pair: Pair, name: str) -> list[str]:
    return [f"link add {name} type veth peer name {name} netns {pair.client.netns.name}"]


def _build(pair: Pair) -> None:
    node, client = pair.node.netns, pair.client.netns
    cables = [line for name in ("wan", "port0", "port1", "member0") for line in _cable(pair, name)]
    node.batch([
        *cables,
        "link add bond0 type bond mode active-backup miimon 20",
        "link set port0 master bond0", "link set port1 master bond0",
        "link add blue type vrf table 7", "link set blue up", "link set member0 master blue",
        "link add link wan name wan.7 type vlan id 7",
        *(f"link set {name} up" for name in ("wan", "wan.7", "port0", "port1", "bond0", "member0")),
        *(f"addr add {each.address(1)}/24 dev {each.name}" for each in DEVICES),
        *(f"addr add {vip}/32 dev {each.vips_on}" for each in DEVICES for vip in (each.owned, each.foreign)),
    ])  # fmt: skip
    client.batch([
        "link add link wan name wan.7 type vlan id 7",
        "link add br0 promisc on type bridge forward_delay 0 mcast_snooping 0",
        "link set port0 master br0", "link set port1 master br0",
        *(f"link set {name} up" for name in ("wan", "wan.7", "port0", "port1", "br0", "member0")),
        *(f"addr add {each.address(100)}/24 dev {each.asked_on}" for each in DEVICES),
    ])  # fmt: skip


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with a_pair("devices") as made:
        _drivers_or_skip(made.node.netns)
        _build(made)
        yield made


def shown(pair: Pair, device: str) -> dict:
    """What the node's kernel says of a device."""
    (found,) = json.loads(pair.node.netns.run("ip", "-json", "-details", "link", "show", device))
    return found


def mac_of(pair: Pair, device: Device) -> MacAddress:
    return MacAddress.parse(shown(pair, device.name)["address"])


def active_port(pair: Pair) -> str:
    return shown(pair, BOND.name)["linkinfo"]["info_data"]["active_slave"]


def who(pair: Pair, wire: Wire, device: Device) -> list[list[MacAddress]]:
    """Who answers for the owned VIP, and for the other node's; the node's own address answers last."""
    wire.address = device.address(100)
    until(lambda: wire.answers(device.address(1)), what="the node's own address is answered for")
    return [wire.who(vip, device.address(1)) for vip in (device.owned, device.foreign)]


@pytest.mark.parametrize("device", DEVICES, ids=lambda each: each.name)
def test_without_the_guard_the_kernel_answers_for_both(pair, device):
    """Of the agent there is nothing yet: this is the first test of the file."""
    assert not pair.agents
    with a_wire(pair.client, device.asked_on) as wire:
        assert who(pair, wire, device) == [[mac_of(pair, device)]] * 2


@pytest.fixture(scope="module")
def agent(pair) -> AgentProcess:
    return pair.agent(a_config())


@pytest.mark.parametrize("device", DEVICES, ids=lambda each: each.name)
def test_the_owner_answers_and_for_another_nodes_vip_nobody(pair, agent, device):
    with a_wire(pair.client, device.asked_on) as wire:
        assert who(pair, wire, device) == [[mac_of(pair, device)], []]


@pytest.mark.parametrize("offload", ["off", "on"])
def test_a_vlan_device_is_guarded_with_rx_vlan_offload_and_without(pair, agent, offload):
    pair.node.netns.run("ethtool", "-K", "wan", "rxvlan", offload)
    with a_wire(pair.client, VLAN.asked_on) as wire:
        assert who(pair, wire, VLAN) == [[mac_of(pair, VLAN)], []]


def test_a_bond_stays_guarded_when_its_active_port_fails(pair, agent):
    active = active_port(pair)
    pair.client.netns.batch([f"link set {active} down"])
    try:
        with a_wire(pair.client, BOND.asked_on) as wire:
            assert who(pair, wire, BOND) == [[mac_of(pair, BOND)], []]
        assert active_port(pair) != active
    finally:
        pair.client.netns.batch([f"link set {active} up"])


def test_where_xdp_is_asked_for_a_bond_is_guarded_at_tc(pair, agent):
    """The kernel would take the program there, and run it for frames of the ports."""
    agent.configure(a_config("xdp"))
    until(lambda: said(agent, "problem: bond0: at XDP frames come from the bond's ports"), what="the problem")
    assert len(programs_at(pair.node, Hook.TC_INGRESS, "bond0")) == 1
    with a_wire(pair.client, BOND.asked_on) as wire:
        assert who(pair, wire, BOND) == [[mac_of(pair, BOND)], []]
