"""Closed ranges (`unknown: suppress`) with a running agent, a real kernel, and a guest on its link."""

import signal
import subprocess
from collections.abc import Iterator
from ipaddress import IPv4Address, ip_network

import pytest

from arpguard.addresses import MacAddress
from arpguard.dataplane import loader
from arpguard.dataplane.maps import RangeTable
from arpguard.model import RangeKey
from arpguard.verdict import Reason
from arpguard.wire.arp import ArpOp
from arpguard_lab.topology import AgentProcess
from support.netns.agents import said
from support.netns.cable import Pair, a_netns, a_pair, address
from support.netns.waiting import REPAIR_S, until
from support.netns.wire import Wire, a_wire, arp_of, claims

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

M = MacAddress.parse("02:00:00:00:00:01")
GUEST_MAC = MacAddress.parse("02:00:00:00:00:b1")
NODE_ADDRESS, GATEWAY = address(1), address(254)
OWNED, NEW, LATER, GUEST = address(50), address(61), address(62), address(63)
BESIDE = address(120)  # in no range
NETWORK = str(NODE_ADDRESS).rpartition(".")[0]
POOL = f"{NETWORK}.48/28"  # .48 to .63


def a_config(ranges: str = f"[{POOL}]", unknown: str = "suppress", mode: str = "enforce") -> str:
    return f"""\
mode: {mode}
audit: {{every: off}}
interfaces: [eth0]
ranges: {ranges}
unknown: {unknown}
vips:
  - {{address: {OWNED}, owner: {{node: node-1}}}}
"""


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with a_pair("closed") as made:
        made.node.netns.batch([f"addr add {vip}/32 dev lo" for vip in (OWNED, NEW, BESIDE)])
        yield made


@pytest.fixture(scope="module")
def the_agent(pair) -> AgentProcess:
    return pair.agent(a_config())


@pytest.fixture
def wire(pair) -> Iterator[Wire]:
    with a_wire(pair.client) as opened:
        yield opened


@pytest.fixture
def agent(the_agent, wire) -> AgentProcess:
    the_agent.configure(a_config())
    if the_agent._process is None or the_agent._process.poll() is not None:
        the_agent.start()
        the_agent.wait_for()
    until(lambda: wire.who(NEW, OWNED) == [], REPAIR_S, "the range is closed")
    return the_agent


def test_kernel_is_silent_about_what_no_entry_is_about(agent, wire):
    assert wire.who(NEW, OWNED) == []
    assert wire.who(BESIDE, OWNED) == [M]
    assert wire.who(NODE_ADDRESS, OWNED) == [M]


def test_range_is_opened_and_closed_within_a_second(agent, wire):
    agent.configure(a_config(unknown="pass"))
    until(lambda: wire.who(NEW, OWNED) == [M], REPAIR_S, "the range is open")
    agent.configure(a_config())
    until(lambda: wire.who(NEW, OWNED) == [], REPAIR_S, "the range is closed")


def test_observing_node_lets_the_kernel_answer(agent, wire):
    agent.configure(a_config(mode="observe"))
    until(lambda: wire.who(NEW, NODE_ADDRESS) == [M], REPAIR_S, "the range is observed only")


def test_smaller_range_may_be_open(agent, wire):
    agent.configure(a_config(f"[{POOL}, {{network: {NEW}/32, unknown: pass}}]"))
    until(lambda: wire.who(NEW, OWNED) == [M], REPAIR_S, "the address is an exception")


def test_vip_that_is_bound_while_the_agent_is_away_is_not_answered_for(agent, pair, wire):
    agent.kill(signal.SIGKILL)
    pair.node.netns.batch([f"addr add {LATER}/32 dev eth0"])
    try:
        assert wire.who(LATER, NODE_ADDRESS) == []
        agent.start()
        agent.wait_for()
        assert wire.who(LATER, OWNED) == []
    finally:
        pair.node.netns.batch([f"addr del {LATER}/32 dev eth0"])


def test_nodes_own_address_in_a_closed_range_is_answered_for(agent, pair, wire):
    """A subnet's first address; secondary ones and host addresses are what VIPs look like."""
    pair.node.netns.batch(
        ["link add own0 type veth peer name own1", "link set own0 up", f"addr add {LATER}/30 dev own0"]
    )
    try:
        until(lambda: wire.who(LATER, OWNED) == [M], REPAIR_S, "the address is the node's own")
        assert wire.who(NEW, OWNED) == []
    finally:
        pair.node.netns.batch(["link del own0"])
    # The kernel is silent at once; the agent has to hear of it, too.
    until(lambda: "its range is closed" in explained(agent, pair, LATER), REPAIR_S, "the address is gone")
    assert wire.who(LATER, OWNED) == []


def test_secondary_address_is_no_own_one(agent, pair, wire):
    pair.node.netns.batch([f"addr add {LATER}/24 dev eth0"])
    try:
        assert wire.who(LATER, OWNED) == []
    finally:
        pair.node.netns.batch([f"addr del {LATER}/24 dev eth0"])


def test_this_node_does_not_speak_as_an_unknown_address(agent, pair, wire):
    words = ["arping", "-c", "2", "-w", "2", "-U", "-I", "eth0", "-S", str(NEW), str(NEW)]
    sending = subprocess.Popen(
        [*pair.node.netns.prefix(), *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until(lambda: tallied(agent, pair, Reason.EGRESS_UNKNOWN), REPAIR_S, "the announcement is suppressed")
    sending.wait()
    assert claims(wire.listen(0.1), NEW) == []


def tallied(agent: AgentProcess, pair: Pair, reason: Reason) -> int:
    """How often the closed range was the reason."""
    maps = loader.open_maps(agent.pin_dir)
    table = RangeTable(maps["ranges"], maps["counters"])
    return table.tally(RangeKey(pair.ifindex(), ip_network(POOL))).enforced.get(reason, 0)


def test_guest_on_the_link_is_reached(agent, pair, wire):
    """A macvlan with an address in the range, which this node knows nothing of: its frames are only carried."""
    with a_netns("guest") as guest:
        pair.node.netns.batch(
            [f"link add mv0 link eth0 address {GUEST_MAC} netns {guest.name} type macvlan mode bridge"]
        )
        guest.batch(["link set mv0 up", f"addr add {GUEST}/24 dev mv0"])
        until(lambda: answers_of(wire, GUEST) == {GUEST_MAC}, REPAIR_S, "the guest answers")
        assert answers_of(wire, NEW) == set()


def answers_of(wire: Wire, vip: IPv4Address) -> set[MacAddress]:
    """Who answers in a while: guests get broadcasts later than the kernel does."""
    wire.send(wire.request(vip))
    packets = (arp_of(frame) for frame in claims(wire.listen(0.3), vip))
    return {packet.sha for packet in packets if packet is not None and packet.op is ArpOp.REPLY}


def test_range_with_the_gateway_is_not_closed(agent, pair, wire):
    agent.configure(a_config(f"[{NETWORK}.0/24]"))
    refusal = f"{NETWORK}.0/24 is not closed on this node: it contains this node's gateway, {GATEWAY}"
    until(lambda: said(agent, refusal), REPAIR_S, "refusal")
    until(lambda: wire.who(NEW, OWNED) == [M], REPAIR_S, "the range is open")


def test_status_and_explain_say_what_is_closed(agent, pair):
    status = pair.arpguard("status", "--address", agent.api)
    assert f"{POOL} on eth0" in status.stdout
    told = explained(agent, pair, NEW)
    assert f"{NEW} on eth0: not a VIP, but its range is closed: this node is silent" in told
    assert f"{POOL} is closed there (unknown: suppress): this node is silent" in told
    assert "unknown" in told


def explained(agent: AgentProcess, pair: Pair, vip: IPv4Address) -> str:
    """What the agent says of an address, in one line."""
    return " ".join(pair.arpguard("explain", str(vip), "--address", agent.api).stdout.split())
