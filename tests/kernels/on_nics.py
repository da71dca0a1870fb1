"""Native XDP on a real driver, virtio_net with several queues, while the NIC is changed under it.

Run in a guest of `make kernels` only: its two NICs are the ends of one cable, of node and client. The VIPs are on `lo`,
so that the kernel would answer for both.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from arpguard.addresses import MacAddress
from arpguard.verdict import Hook
from arpguard_lab.netns import command
from arpguard_lab.topology import AgentProcess, Host
from kernels.suites import QUEUES
from support.netns.cable import Pair, a_pair, address, set_up
from support.netns.devices import shown
from support.netns.foreign import programs_at
from support.netns.waiting import START_S, until
from support.netns.wire import Wire, a_wire, stream

M = MacAddress.parse("02:00:00:00:00:01")
OWN, OWNED, FOREIGN = address(1), address(50), address(51)
VIPS = [f"addr add {vip}/32 dev lo" for vip in (OWNED, FOREIGN)]
CONFIG = f"""
datapath: {{datapath}}
mode: enforce
audit: {{{{every: off}}}}
interfaces: [eth0]
vips:
  - {{{{address: {OWNED}, owner: {{{{node: node-1}}}}}}}}
  - {{{{address: {FOREIGN}, owner: {{{{node: node-2}}}}}}}}
"""
_DRIVER = Path("/sys/bus/virtio/drivers/virtio_net")
_XDP_ATTACHED_DRV = 1


def _take_nics(node: Host, client: Host) -> None:
    """As in kernels.suites: the first has several queues."""
    for host, nic in ((node, "eth0"), (client, "eth1")):
        command("ip", "link", "set", nic, "netns", host.netns.name, "name", "eth0")
    for host in (client, node):
        set_up(host)
    # A wire asks as hosts of other MACs too, whose answers such a NIC does not take otherwise.
    client.netns.run("ip", "link", "set", "eth0", "promisc", "on")


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with a_pair("nics", _take_nics) as made:
        made.node.netns.batch(VIPS)
        yield made


def runs_in_the_driver(pair: Pair) -> bool:
    found = shown(pair, "eth0").get("xdp", {})
    return found.get("mode") == _XDP_ATTACHED_DRV


def is_guarded(pair: Pair, datapath: str) -> bool:
    """By programs of this datapath, and of no other."""
    at_tc = bool(programs_at(pair.node, Hook.TC_INGRESS))
    return (at_tc, runs_in_the_driver(pair)) == (datapath == "tc", datapath == "xdp")


def queues(pair: Pair) -> int:
    """How many of them the driver uses."""
    current = pair.node.netns.run("ethtool", "-l", "eth0").partition("Current")[2]
    return int(current.partition("Combined:")[2].split()[0])


def is_right(wire: Wire) -> bool:
    """The owned VIP is answered for, the other is not. Frames of several queues overtake each other, so both are asked
    for more than once."""
    until(lambda: wire.who(OWNED, OWN) == [M], what="the owner answers")
    return not any(wire.who(FOREIGN, OWN) for _ in range(20))


def test_without_the_guard_the_kernel_answers_for_both(pair):
    """Of the agent there is nothing yet: this is the first test of the file."""
    assert not pair.agents
    assert pair.node.netns.run("ethtool", "-i", "eth0").startswith("driver: virtio_net")
    with a_wire(pair.client) as wire:
        assert [wire.who(vip, OWN) for vip in (OWNED, FOREIGN)] == [[M], [M]]


@pytest.fixture(scope="module")
def agent(pair) -> AgentProcess:
    return pair.agent(CONFIG.format(datapath="xdp"))


def test_the_program_runs_in_the_driver_for_all_its_queues(pair, agent):
    assert runs_in_the_driver(pair)
    assert not programs_at(pair.node, Hook.TC_INGRESS)
    assert queues(pair) == QUEUES
    with a_wire(pair.client) as wire:
        assert is_right(wire)


def _mtu(pair: Pair) -> None:
    for mtu in (1400, 1280, 1500):
        pair.node.netns.run("ip", "link", "set", "eth0", "mtu", str(mtu))


def _offloads(pair: Pair) -> None:
    for state in ("off", "on"):
        for feature in ("gro", "gso", "tx"):
            pair.node.netns.run("ethtool", "-K", "eth0", feature, state)


CHANGES: dict[str, Callable[[Pair], None]] = {"MTU": _mtu, "ethtool -K": _offloads}


@pytest.mark.parametrize("change", CHANGES)
def test_nothing_is_lost_or_answered_by_the_kernel_while_the_nic_is_changed(pair, agent, change):
    owned = stream(pair.client, OWNED, lambda: CHANGES[change](pair))
    assert (owned.lost, owned.doubled, owned.macs) == (0, 0, {M}), f"of {owned.sent}"
    foreign = stream(pair.client, FOREIGN, lambda: CHANGES[change](pair))
    assert foreign.lost == foreign.sent > 0
    assert runs_in_the_driver(pair)


def _reset(pair: Pair) -> None:
    for _ in range(10):
        pair.node.netns.batch(["link set eth0 down", "link set eth0 up"])


def test_a_nic_that_is_set_down_and_up_answers_for_no_vip_of_another_node(pair, agent):
    foreign = stream(pair.client, FOREIGN, lambda: _reset(pair))
    assert foreign.lost == foreign.sent > 0
    with a_wire(pair.client) as wire:
        until(lambda: wire.answers(OWN), what="the node's own address is answered for")
        assert is_right(wire)
    assert runs_in_the_driver(pair)


def _guard(pair: Pair, agent: AgentProcess, datapath: str) -> None:
    agent.configure(CONFIG.format(datapath=datapath))
    until(lambda: is_guarded(pair, datapath), START_S, datapath)


def test_between_xdp_and_tc_there_is_no_moment_without_the_guard(pair, agent):
    def change() -> None:
        for datapath in ("tc", "xdp"):
            _guard(pair, agent, datapath)

    foreign = stream(pair.client, FOREIGN, change)
    assert foreign.lost == foreign.sent > 0
    owned = stream(pair.client, OWNED, change)
    assert (owned.doubled, owned.macs) == (0, {M})


@pytest.mark.parametrize("datapath", ["tc", "xdp"])
def test_a_nic_whose_driver_is_taken_away_and_given_back_is_guarded_again(pair, agent, datapath):
    """As another NIC: the kernel knows nothing more of the first. With all queues in use: XDP takes one more for each
    CPU where there are some, and then the kernel waits for ever for the NIC to go (docs/limits.md)."""
    _guard(pair, agent, "tc")
    pair.node.netns.run("ethtool", "-L", "eth0", "combined", str(QUEUES))
    assert queues(pair) == QUEUES
    _guard(pair, agent, datapath)

    before, device = pair.ifindex(), shown(pair, "eth0")["parentdev"]
    for action in ("unbind", "bind"):
        (_DRIVER / action).write_text(device, encoding="ascii")
    command("ip", "link", "set", "eth0", "netns", pair.node.netns.name)
    set_up(pair.node)
    assert pair.ifindex() != before

    until(lambda: is_guarded(pair, datapath), START_S, datapath)
    with a_wire(pair.client) as wire:
        until(lambda: wire.answers(OWN), what="the node's own address is answered for")
        assert is_right(wire)
