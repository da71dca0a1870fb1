"""Links that lose, delay, double and reorder frames (netem): each request that arrives is answered once, no other is.

netem counts what leaves it, so nothing that is lost needs a tolerance. The VIPs are on the node's `lo`: the kernel
would answer for both.
"""

import json
from collections import Counter
from collections.abc import Iterator
from ipaddress import IPv4Address

import pytest

from arpguard.addresses import MacAddress
from arpguard.errors import DataPlaneError
from arpguard.wire.arp import ArpOp
from arpguard_lab.topology import AgentProcess, Host
from support.netns.cable import Pair, a_pair, address
from support.netns.waiting import until
from support.netns.wire import Wire, a_wire, arp_of
from support.required import do_without

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

M = MacAddress.parse("02:00:00:00:00:01")
OWN, OWNED, FOREIGN = address(1), address(50), address(51)
CONFIG = f"""
mode: enforce
audit: {{every: off}}
interfaces: [eth0]
vips:
  - {{address: {OWNED}, owner: {{node: node-1}}}}
  - {{address: {FOREIGN}, owner: {{node: node-2}}}}
"""
COUNT = 400
IMPAIRED = {
    "loss": "loss 25%",
    "delay": "delay 20ms 10ms",
    "duplication": "duplicate 40%",
    "reordering": "delay 10ms reorder 50% 50%",
    "all of it": "delay 10ms 5ms reorder 25% 50% loss 10% duplicate 20%",
}


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with a_pair("impaired") as made:
        try:
            with_netem(made.client, "loss 0%")
        except DataPlaneError:
            do_without("devices", "this kernel has no netem")
        made.client.netns.run("tc", "qdisc", "del", "dev", "eth0", "root")
        made.node.netns.batch([f"addr add {vip}/32 dev lo" for vip in (OWNED, FOREIGN)])
        yield made


def with_netem(host: Host, how: str) -> None:
    host.netns.run("tc", "qdisc", "replace", "dev", "eth0", "root", "netem", "limit", "10000", *how.split())


def left(host: Host) -> int:
    """How many frames have left a host's netem."""
    (found,) = json.loads(host.netns.run("tc", "-s", "-j", "qdisc", "show", "dev", "eth0", "root"))
    return found["packets"] if not found["qlen"] else -1


@pytest.fixture(params=IMPAIRED)
def impaired(request, pair) -> Iterator[Host]:
    """The client or the node, what it sends being impaired."""
    host = getattr(pair, side_of(request))
    with_netem(host, IMPAIRED[request.param])
    yield host
    host.netns.run("tc", "qdisc", "del", "dev", "eth0", "root")


def side_of(request: pytest.FixtureRequest) -> str:
    return request.node.callspec.params["side"]


class Asked:
    """Requests for a VIP, each of them from another address, and what was heard of it."""

    def __init__(self, wire: Wire, vip: IPv4Address) -> None:
        self.replies: Counter[IPv4Address] = Counter()
        self.macs: set[MacAddress] = set()
        self.heard = 0
        self._wire, self._vip = wire, vip
        for number in range(COUNT):
            wire.send(wire.request(vip, IPv4Address(0x0A000001 + number)))
            self.take(0.001)

    def take(self, wait_s: float) -> None:
        while (frame := self._wire.hear(wait_s)) is not None:
            self.heard += 1
            packet = arp_of(frame)
            if packet is not None and packet.op is ArpOp.REPLY and packet.spa == self._vip != packet.tpa:
                self.replies[packet.tpa] += 1
                self.macs.add(packet.sha)


def test_without_the_guard_the_kernel_answers_for_both(pair):
    """Of the agent there is nothing yet: this is the first test of the file."""
    assert not pair.agents
    with a_wire(pair.client) as wire:
        assert [wire.who(vip, OWN) for vip in (OWNED, FOREIGN)] == [[M], [M]]


@pytest.fixture(scope="module")
def agent(pair) -> AgentProcess:
    return pair.agent(CONFIG)


@pytest.mark.parametrize("side", ["client"])
def test_each_request_that_arrives_is_answered_once(pair, agent, side, impaired):
    with a_wire(pair.client) as wire:
        asked = Asked(wire, OWNED)
        until(lambda: asked.take(0.01) or 0 < left(impaired) <= asked.replies.total(), what="all is answered")
        asked.take(0.1)
        assert (asked.replies.total(), asked.macs) == (left(impaired), {M})


@pytest.mark.parametrize("side", ["node"])
def test_each_answer_that_the_link_lets_through_is_the_owners(pair, agent, side, impaired):
    with a_wire(pair.client) as wire:
        asked = Asked(wire, OWNED)
        until(lambda: asked.take(0.01) or 0 < left(impaired) <= asked.heard, what="each answer has come")
        assert asked.macs == {M}
        assert asked.replies.total() > COUNT / 2
        assert set(asked.replies.values()) <= {1, 2}


@pytest.mark.parametrize("side", ["client", "node"])
def test_for_another_nodes_vip_nobody_answers(pair, agent, side, impaired):
    with a_wire(pair.client) as wire, a_wire(pair.client) as other:
        asked = Asked(wire, FOREIGN)
        until(lambda: left(impaired) >= 0, what="all requests have left")
        until(lambda: other.answers(OWN), what="the node's own address is answered for")
        until(lambda: left(impaired) >= 0, what="all answers have left")
        asked.take(0.1)
        assert asked.replies.total() == 0
