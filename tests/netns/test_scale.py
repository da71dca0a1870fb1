"""An agent with 30,000 VIPs, and one with more than its map takes. `make bench BENCH=scale` has 100,000."""

import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from ipaddress import IPv4Address

import grpc
import pytest

from arpguard.v1 import agent_pb2 as pb
from arpguard.v1 import agent_pb2_grpc
from arpguard_lab.topology import AgentProcess
from support.netns.agents import said
from support.netns.cable import Pair, a_pair, address
from support.netns.waiting import HUNG_S, until
from support.netns.wire import Wire, a_wire

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

MANY, OURS = 30_000, 10
FIRST = IPv4Address("10.20.0.0")
ROOM, SURPLUS = 100, 10
START_S, FOLLOW_S = 240.0, 120.0  # on a busy machine; a tenth of it alone
MEMORY_MB, SERIES = 150, 500
MARK = address(1)  # the node's own address, which its kernel answers for
METRICS = "http://127.0.0.1:9469/metrics"


def a_config(owners: Mapping[IPv4Address, str]) -> str:
    lines = ["mode: enforce", "interfaces: [eth0]", 'metrics: {listen: "127.0.0.1:9469"}', "vips:"]
    lines += [f"  - {{address: {vip}, owner: {{node: {node}}}}}" for vip, node in owners.items()]
    return "\n".join(lines) + "\n"


def owners(count: int, ours: int) -> dict[IPv4Address, str]:
    """The first of `count` VIPs are this node's."""
    return {FIRST + number: "node-1" if number < ours else "node-2" for number in range(count)}


def started(pair: Pair, config: str, room: int) -> AgentProcess:
    agent = pair.agent(room=room)
    agent.configure(config)
    agent.start()
    agent.wait_for(timeout_s=START_S)
    return agent


@contextmanager
def a_stub(agent: AgentProcess) -> Iterator[agent_pb2_grpc.AgentServiceStub]:
    with grpc.insecure_channel(agent.api) as channel:
        yield agent_pb2_grpc.AgentServiceStub(channel)


def metrics_of(pair: Pair) -> dict[str, float]:
    """Samples by name and labels."""

    def scrape() -> str:
        with closing(urllib.request.urlopen(METRICS, timeout=HUNG_S)) as answer:
            return answer.read().decode()

    lines = pair.node.netns.call(scrape).splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def answered(wire: Wire, vips: list[IPv4Address]) -> list[IPv4Address]:
    return [vip for vip in vips if wire.who(vip, MARK)]


# ---- 30,000 VIPs -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large() -> Iterator[tuple[Pair, AgentProcess]]:
    with a_pair("large") as pair:
        pair.node.bind(FIRST + MANY - 1, "lo")
        yield pair, started(pair, a_config(owners(MANY, OURS)), room=1 << 15)


def test_vips_are_answered_and_suppressed_wherever_they_are_among_many(large):
    pair, _ = large
    with a_wire(pair.client) as wire:
        assert answered(wire, [FIRST, FIRST + OURS - 1, FIRST + OURS, FIRST + MANY - 1]) == [FIRST, FIRST + OURS - 1]


def test_pages_have_each_vip_once(large):
    _, agent = large
    listed, token, more = [], "", True
    with a_stub(agent) as stub:
        while more:
            page = stub.ListVips(pb.ListVipsRequest(page_size=1000, page_token=token))
            assert page.total_size == MANY
            listed += [vip.address for vip in page.vips]
            token, more = page.next_page_token, bool(page.next_page_token)
    assert listed == [str(FIRST + number) for number in range(MANY)]


def test_status_and_metrics_count_them_and_name_none(large):
    pair, agent = large
    with a_stub(agent) as stub:
        status = stub.GetStatus(pb.GetStatusRequest())
    assert {kind.kind: kind.count for kind in status.kinds} == {pb.KIND_OWNED: OURS, pb.KIND_FOREIGN: MANY - OURS}
    metrics = metrics_of(pair)
    assert metrics["arpguard_map_entries"] == MANY
    assert metrics['arpguard_vips{kind="foreign",mode="enforce"}'] == MANY - OURS
    assert len(metrics) < SERIES


def test_memory_is_a_few_kilobytes_for_each(large):
    pair, _ = large
    assert metrics_of(pair)["process_resident_memory_bytes"] < MEMORY_MB * 2**20


def test_changed_vip_among_many_is_followed(large):
    """The last test of this agent."""
    pair, agent = large
    agent.configure(a_config(owners(MANY, OURS) | {FIRST: "node-2", FIRST + MANY - 1: "node-1"}))
    with a_wire(pair.client) as wire:
        until(lambda: answered(wire, [FIRST, FIRST + MANY - 1]) == [FIRST + MANY - 1], FOLLOW_S)


# ---- more than the map takes -------------------------------------------------------------------------------------


@pytest.fixture
def full() -> Iterator[tuple[Pair, AgentProcess, Wire]]:
    """All VIPs are this node's; in the file the last one comes first."""
    with ExitStack() as stack:
        pair = stack.enter_context(a_pair("full"))
        agent = started(pair, a_config(dict(reversed(owners(ROOM + SURPLUS, ROOM + SURPLUS).items()))), ROOM)
        yield pair, agent, stack.enter_context(a_wire(pair.client))


def test_what_does_not_fit_is_told_and_what_fits_goes_on_as_if_nothing_were(full):
    pair, agent, wire = full
    fits, left_out = [FIRST, FIRST + ROOM - 1], [FIRST + ROOM, FIRST + ROOM + SURPLUS - 1]
    problem = f"the entries map is full: it has room for {ROOM} of {ROOM + SURPLUS} VIP entries"
    settings = owners(ROOM + SURPLUS, ROOM + SURPLUS)

    assert said(agent, f"problem: {problem}; not guarded: {FIRST + ROOM}, .*raise bpf.max_entries to {ROOM + SURPLUS}")
    with a_stub(agent) as stub:
        assert any(problem in each for each in stub.GetStatus(pb.GetStatusRequest()).problems)
    assert metrics_of(pair)["arpguard_map_left_out"] == SURPLUS
    assert answered(wire, fits + left_out) == fits

    agent.configure(a_config(settings | {FIRST: "node-2"}))
    until(lambda: answered(wire, fits + left_out) == fits[1:], what="a VIP that fits is given away")
    agent.configure(a_config({FIRST - 1: "node-1"} | settings))
    until(lambda: said(agent, f"room for {ROOM} of {ROOM + SURPLUS + 1} VIP entries"), what="one more is asked for")
    assert answered(wire, [FIRST - 1, *fits, *left_out]) == fits, "and throws none out"

    agent.kill(15)
    agent.configure(a_config(settings))
    agent.start()
    agent.wait_for()
    assert answered(wire, fits + left_out) == fits, "the same ones after a restart"

    for vip in (FIRST + number for number in range(SURPLUS)):
        del settings[vip]
    agent.configure(a_config(settings))
    until(lambda: answered(wire, fits + left_out) == [fits[1], *left_out], what="room is given to those that wait")
    until(lambda: said(agent, "solved: the entries map is full"))
    assert metrics_of(pair)["arpguard_map_left_out"] == 0
