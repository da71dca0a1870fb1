"""What the agent says it did adds up with what was on the wire: to the frame, after thousands of requests.

`make fuzz` sends 200,000, and `make test` 20,000.
Every VIP is on lo, so that the kernel answers whatever passes. Requests come in batches, from one CPU after the other.
"""

import os
import random
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from itertools import islice

import grpc
import pytest

from arpguard.api.offline import read_node
from arpguard.v1 import agent_pb2 as pb
from arpguard.v1 import agent_pb2_grpc
from arpguard.verdict import Reason
from arpguard.wire.arp import build_request
from arpguard.wire.ethernet import ETHERTYPE_ARP
from arpguard_lab.topology import AgentProcess
from support.chance import RUNS
from support.netns.agents import said
from support.netns.cable import Pair, a_pair, address
from support.netns.waiting import until

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

SEED, FRAMES = 826, min(1000 * RUNS, 200_000)
BATCH = 200  # brings at most two events a frame: no reader's queue (1024) is full before all have caught up
AT_A_TIME = 20  # VIPs in a batch, so that most events are held back: the agent reads a thousand in a second
ANNOUNCED, FRAMES_ANNOUNCED = 3, 6  # an announcement is sent in two forms
MARK = address(90)
NO_READ_AHEAD = (("grpc.http2.bdp_probe", 0),)  # or gRPC takes megabytes in that nobody has asked for
_SOL_PACKET, _PACKET_IGNORE_OUTGOING, _PACKET_STATISTICS = 263, 23, 6
_SO_RCVBUFFORCE = 33


@dataclass(frozen=True)
class Sort:
    """Some VIPs; why a request for one is judged as it is, and the reply that somebody on the node makes."""

    first: str
    count: int
    config: str
    asked: Reason
    replied: Reason | None
    observed: bool = False

    @property
    def vips(self) -> list[IPv4Address]:
        return [IPv4Address(self.first) + number for number in range(self.count)]


OWNED = Sort("10.1.0.1", 50, "owner: {node: node-1}", Reason.ANSWERED, Reason.EGRESS_OWNER)
UNGUARDED = Sort("10.1.4.1", 50, "", Reason.NOT_GUARDED, Reason.NOT_GUARDED)
SORTS = (
    OWNED,
    Sort("10.1.1.1", 250, "owner: {node: node-2}", Reason.FOREIGN, None),
    Sort("10.1.2.1", 250, "owner: {node: node-1, delegated: true}", Reason.DELEGATED, Reason.EGRESS_DELEGATED),
    Sort("10.1.3.1", 250, "owner: {node: node-2}, mode: observe", Reason.FOREIGN, Reason.EGRESS_NOT_OWNER, True),
    Sort("10.1.5.1", 100, "owner: {node: node-1}, mode: observe", Reason.ANSWERED, Reason.EGRESS_OWNER, True),
    UNGUARDED,
)
SORT_OF = {vip: sort for sort in SORTS for vip in sort.vips}

Counts = Counter[tuple[str, str, str]]  # by address, reason, and whether enforced or observed


def a_config(datapath: str) -> str:
    lines = [f"mode: enforce\ndatapath: {datapath}\ninterfaces: [eth0]\naudit: {{every: off}}\nvips:"]
    lines += [f"  - {{address: {vip}, {sort.config}}}" for vip, sort in SORT_OF.items() if sort is not UNGUARDED]
    return "\n".join([*lines, f"  - {{address: {MARK}, owner: external}}", ""])


# ---- what the agent says ---------------------------------------------------------------------------------------------


def counted(address: str, reasons: Sequence[pb.ReasonCount]) -> Counts:
    return Counter(
        {
            (address, Reason(count.reason).name, how): getattr(count, how)
            for count in reasons
            for how in ("enforced", "observed")
        }
    )


def every_vip(stub: agent_pb2_grpc.AgentServiceStub) -> Iterator[pb.Vip]:
    request = pb.ListVipsRequest(page_size=250)
    while True:
        page = stub.ListVips(request)
        yield from page.vips
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token


def a_stub(agent: AgentProcess, stack: ExitStack, options: Sequence[tuple[str, int]] = ()):
    return agent_pb2_grpc.AgentServiceStub(stack.enter_context(grpc.insecure_channel(agent.api, options)))


@dataclass
class Reader:
    """A reader of decisions, from a moment on at which none were on their way."""

    stream: Iterator[pb.WatchDecisionsResponse]
    messages: int = 0
    lost: int = 0

    def read(self) -> None:
        """Until the decision about MARK, which is the last one."""
        for message in self.stream:
            self.messages += 1
            self.lost += message.lost
            if message.decision.vip == str(MARK):
                return


def a_reader(agent: AgentProcess, stack: ExitStack, options: Sequence[tuple[str, int]] = ()) -> Reader:
    """Its stream begins with what is remembered: whoever has read that is connected."""
    stub = a_stub(agent, stack, options)
    remembered = len(stub.ListDecisions(pb.ListDecisionsRequest(page_size=1000)).decisions)
    stream = stub.WatchDecisions(pb.WatchDecisionsRequest(include_recent=True))
    assert len(list(islice(stream, remembered))) == remembered > 0
    return Reader(stream)


# ---- what is on the wire ---------------------------------------------------------------------------------------------


@dataclass
class Client:
    """Asks, and counts the replies that it hears and those that its socket had no room for."""

    socket: socket.socket
    frames: dict[IPv4Address, bytes]
    replying: set[IPv4Address]
    asked: Counter[IPv4Address] = field(default_factory=Counter)
    replies: Counter[IPv4Address] = field(default_factory=Counter)
    dropped: int = 0

    @property
    def due(self) -> Counter[IPv4Address]:
        """The replies that there have to be by now."""
        return Counter({vip: asked for vip, asked in self.asked.items() if vip in self.replying})

    def ask(self, vips: Sequence[IPv4Address]) -> None:
        for vip in vips:
            self.socket.send(self.frames[vip])
        self.asked.update(vips)

    def hear(self) -> bool:
        """Takes the replies that are there; whether these are all."""
        try:
            while True:
                frame = self.socket.recv(64)
                if frame[20:22] == b"\0\2":
                    self.replies[IPv4Address(frame[28:32])] += 1
        except BlockingIOError:
            raw = self.socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8)
            self.dropped += struct.unpack("=II", raw)[1]
        return self.replies.total() + self.dropped >= self.due.total()


@contextmanager
def a_client(pair: Pair, replying: set[IPv4Address]) -> Iterator[Client]:
    def opened() -> socket.socket:
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        made.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        made.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 64 << 20)
        made.bind(("eth0", ETHERTYPE_ARP))
        made.setblocking(False)
        return made

    host = pair.client
    with host.netns.call(opened) as made:
        yield Client(made, {vip: build_request(host.mac, host.address, vip) for vip in [*SORT_OF, MARK]}, replying)


def flood(client: Client, all_caught_up: Callable[[], bool]) -> None:
    """A fixed mix of requests; between batches everybody catches up."""
    rng, vips = random.Random(SEED), list(SORT_OF)
    before = os.sched_getaffinity(0)
    cpus = sorted(before)
    try:
        for at in range(0, FRAMES, BATCH):
            os.sched_setaffinity(0, {cpus[at // BATCH % len(cpus)]})
            client.ask(rng.choices(rng.sample(vips, AT_A_TIME), k=BATCH))
            client.hear()
            until(all_caught_up, 10, "the agent and the reader catch up")
        with suppress(AssertionError):  # then a test says what is missing
            until(client.hear)
    finally:
        os.sched_setaffinity(0, before)


# ---- the flood, once for each datapath -------------------------------------------------------------------------------


@dataclass
class Aftermath:
    """All that is known after the flood."""

    datapath: str
    client: Client
    vips: list[pb.Vip]
    status: pb.GetStatusResponse
    received: int  # events, since the readers were there
    fast: Reader
    slow: Reader

    def expected(self) -> Counts:
        """What was asked and replied, and what the agent announced when it started."""
        counts: Counts = Counter({(str(MARK), Reason.EXTERNAL.name, "enforced"): 1})
        for vip, sort in SORT_OF.items():
            how = "observed" if sort.observed else "enforced"
            counts[str(vip), sort.asked.name, how] += self.client.asked[vip]
            if vip in self.client.replying:
                counts[str(vip), sort.replied.name, how] += self.client.asked[vip]
        for vip in OWNED.vips:
            counts[str(vip), Reason.EGRESS_OWNER.name, "enforced"] += FRAMES_ANNOUNCED
        return counts


def replying(datapath: str) -> set[IPv4Address]:
    """XDP sends its answers past tc egress, and a veth loses them without XDP at the other end."""
    return {vip for vip, sort in SORT_OF.items() if sort.replied and not (datapath == "xdp" and sort is OWNED)}


@pytest.fixture(scope="module", params=["tc", "xdp"])
def aftermath(request) -> Iterator[Aftermath]:
    with ExitStack() as stack:
        pair = stack.enter_context(a_pair(f"accounts-{request.param}"))
        pair.node.netns.batch([f"addr add {vip}/32 dev lo" for vip in [*SORT_OF, MARK]])
        pair.node.netns.run("ethtool", "-K", "eth0", "rxvlan", "off")  # or XDP would not see the tags
        agent = pair.agent(a_config(request.param))
        until(lambda: said(agent, "announced:") == ANNOUNCED * OWNED.count, 20, "the last announcement")
        yield after_a_flood(request.param, pair, agent, stack)


def after_a_flood(datapath: str, pair: Pair, agent: AgentProcess, stack: ExitStack) -> Aftermath:
    stub, node = a_stub(agent, stack), pair.node.netns.call(lambda: read_node(agent.pin_dir))

    def delivered() -> int:
        return node.read_totals()[1].delivered

    def status() -> pb.GetStatusResponse:
        return stub.GetStatus(pb.GetStatusRequest())

    until(lambda: status().events.received == delivered(), what="the agent has read all events")
    before = delivered()
    fast, slow = a_reader(agent, stack), a_reader(agent, stack, NO_READ_AHEAD)
    with a_client(pair, replying(datapath)) as client, ThreadPoolExecutor(1) as pool, ExitStack() as ending:
        ending.callback(fast.stream.cancel)  # or a failure would wait for the reader
        done = pool.submit(fast.read)
        flood(client, lambda: fast.messages == delivered() - before)
        client.ask([MARK])
        done.result(10)
    slow.read()
    until(lambda: status().events.received == delivered(), what="the agent has read all events")
    return Aftermath(datapath, client, list(every_vip(stub)), status(), delivered() - before, fast, slow)


def test_the_datapath_is_the_one_that_was_asked_for(aftermath):
    (link,) = aftermath.status.links
    ingress = {"tc": pb.HOOK_TC_INGRESS, "xdp": pb.HOOK_XDP}[aftermath.datapath]

    assert {attachment.hook for attachment in link.attachments} == {ingress, pb.HOOK_TC_EGRESS}


def test_counters_of_every_vip_are_what_was_asked_and_replied(aftermath):
    found: Counts = Counter()
    for vip in aftermath.vips:
        found += counted(vip.address, vip.reasons)
    unguarded = set(map(str, UNGUARDED.vips))

    assert found == Counter({key: count for key, count in aftermath.expected().items() if key[0] not in unguarded})
    assert sum(aftermath.client.asked.values()) == FRAMES + 1


def test_totals_of_the_node_are_the_sums_over_all_addresses(aftermath):
    expected: Counts = Counter()
    for (_, reason, how), count in aftermath.expected().items():
        expected["node", reason, how] += count

    assert counted("node", aftermath.status.reasons) == expected


def test_client_hears_one_reply_for_each_request_that_was_answered(aftermath):
    client = aftermath.client

    assert client.replies.total() + client.dropped == client.due.total()
    assert client.replies <= client.due


def test_every_decision_about_a_vip_is_delivered_limited_or_lost(aftermath):
    events = aftermath.status.events
    decisions = sum(count.enforced + count.observed for vip in aftermath.vips for count in vip.reasons)

    assert events.delivered + events.limited + events.lost == decisions
    assert events.received == events.delivered


def test_reader_that_keeps_up_gets_every_event_that_the_agent_received(aftermath):
    assert (aftermath.fast.messages, aftermath.fast.lost) == (aftermath.received, 0)


def test_slow_reader_is_told_how_many_it_lost(aftermath):
    assert aftermath.slow.messages + aftermath.slow.lost == aftermath.received
    assert aftermath.slow.lost > 0
