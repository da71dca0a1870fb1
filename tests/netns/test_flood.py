"""A flood of ARP and neighbour discovery, as much as one core makes, at a node with a running agent.

Every frame comes from another host, and asks for, or claims, an address that this node owns, another one has, or
nobody guards. First it is alone on the cable, and everything is counted; then a well-behaved client asks as well, and
sends other traffic.
"""

import json
import os
import select
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address
from math import ceil
from pathlib import Path
from typing import Self, TypeAlias

import pytest

from arpguard.addresses import Address
from arpguard.api.offline import read_node
from arpguard.dataplane import syscall
from arpguard.model import EntryKey
from arpguard.node import ThisNode
from arpguard.verdict import Hook, Reason
from arpguard_lab.topology import AgentProcess, Host
from support.netns import flooding
from support.netns.agents import pid_of
from support.netns.cable import Pair, a_pair, speak_ipv6
from support.netns.foreign import an_xdp_program, attached
from support.netns.waiting import until

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

SECONDS, FRAMES = 2.0, 100_000  # of the flood alone, at least
ROUNDS, LOST = 500, 50  # of the client; and how many may fail
SHARE = 0.35  # of a core; to look at each frame would take several. `make bench BENCH=flood` has the figure
GROWTH_MB = 4
LINES, LINES_PER_S = 220, 15  # in the log: a burst of announcements; then ten in a second, and some more
CLAIMS_PER_S = 60  # in the log, by the seconds of the agent's clock: 50 for VIPs that nobody claimed lately, ten others
BITS = 13
OWNED, FOREIGN, FOREIGN6 = range(16), range(16, 6_000), range(16, 32)  # of 2**BITS; nobody guards the rest
FIRST, FIRST6 = IPv4Address("10.20.0.0"), IPv6Address("fd00:20::")
WAIT_S = 2.0  # for an answer: as long as a host that repeats a request waits, and more


@dataclass(frozen=True)
class Case:
    """What is sent, about 2**BITS addresses from `first` on; why frames about owned, foreign, unknown ones are judged
    as they are."""

    datapath: str
    kind: Callable[[int, Address, int], flooding.Frames]
    first: Address
    foreign: range
    reasons: tuple[Reason, Reason, Reason]


HOOKS = {"tc": Hook.TC_INGRESS, "xdp": Hook.XDP}
ASKED = (Reason.ANSWERED, Reason.FOREIGN, Reason.NOT_GUARDED)
CLAIMED = (Reason.CONFLICT, Reason.UNVERIFIED_CLAIM, Reason.NOT_GUARDED)
CASES = {
    "requests": Case("tc", flooding.requests, FIRST, FOREIGN, ASKED),
    "requests-xdp": Case("xdp", flooding.requests, FIRST, FOREIGN, ASKED),
    "claims-xdp": Case("xdp", flooding.claims, FIRST, FOREIGN, CLAIMED),
    "solicitations": Case("tc", flooding.solicitations, FIRST6, FOREIGN6, ASKED),
}


@dataclass
class Client:
    """What a well-behaved client got: answers to who-has, echoes, and how much of a TCP stream went through."""

    answers: int = 0
    echoes: int = 0
    streamed: int = 0


@dataclass(frozen=True)
class Use:
    """What an agent has used: CPU, memory, and lines in its log; `time_s`: since when, or for how long at most."""

    time_s: float
    cpu_s: float
    rss_mb: float
    claims: int
    lines: int  # of any other kind

    def since(self, before: Self) -> Self:
        """What it used from one look to another: before the first began, to now."""
        return replace(
            self,
            time_s=time.monotonic() - before.time_s,
            cpu_s=self.cpu_s - before.cpu_s,
            rss_mb=self.rss_mb - before.rss_mb,
            claims=self.claims - before.claims,
            lines=self.lines - before.lines,
        )


Counts: TypeAlias = dict[Address | None, Counter[Reason]]  # by VIP; None: of the node, about whatever


@dataclass(frozen=True)
class Aftermath:
    """What a flood did: alone, as far as `counts`; `client`, `sent_in_all` and `use` also with company."""

    case: Case
    sent: int
    received: int
    counts: Counts
    client: Client
    sent_in_all: int
    use: Use


def a_config(datapath: str) -> str:
    """Of decisions, which are all different here, few are remembered: memory is to grow by nothing else, too."""
    lines = ["mode: enforce", "interfaces: [eth0]", f"datapath: {datapath}", "decisions: {capacity: 100}", "vips:"]
    for first, foreign in ((FIRST, FOREIGN), (FIRST6, FOREIGN6)):
        for numbers, owner in ((OWNED, "node-1"), (foreign, "node-2")):
            lines += [f'  - {{address: "{first + number}", owner: {{node: {owner}}}}}' for number in numbers]
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def scene() -> Iterator[tuple[Pair, AgentProcess]]:
    with a_pair("flood") as pair:
        for host in (pair.node, pair.client):
            # XDP does not see tags that are taken off; and what it sends back is lost unless the other end has it too.
            host.netns.run("ethtool", "-K", "eth0", "gro", "on", "rxvlan", "off")
        speak_ipv6(pair.node, pair.client)
        for host, other in ((pair.node, pair.client), (pair.client, pair.node)):  # no question of a kernel's own
            for address in (other.address, other.address6):
                host.netns.batch([f"neigh replace {address} lladdr {other.mac} dev eth0 nud permanent"])
        with attached(pair.client, an_xdp_program(), syscall.ATTACH_XDP, syscall.XDP_FLAGS_DRV_MODE):
            yield pair, pair.agent(room=1 << 14)


@pytest.fixture(scope="module", params=CASES)
def aftermath(request, scene) -> Aftermath:
    case, (pair, agent) = CASES[request.param], scene
    agent.kill(signal.SIGTERM)
    agent.configure(a_config(case.datapath))
    agent.start()
    agent.wait_for()
    hooks = {attachment.hook for attachment in node_of(pair, agent).state.attachments}
    assert hooks == {HOOKS[case.datapath], Hook.TC_EGRESS}
    frames = case.kind(pair.client.netns.call(lambda: socket.if_nametoindex("eth0")), case.first, BITS)
    return measure(case, pair, agent, flooding.Flood(pair.client.netns, frames))


def node_of(pair: Pair, agent: AgentProcess) -> ThisNode:
    return pair.node.netns.call(lambda: read_node(agent.pin_dir))


def measure(case: Case, pair: Pair, agent: AgentProcess, flood: flooding.Flood) -> Aftermath:
    node = node_of(pair, agent)
    keys = [EntryKey(pair.ifindex(), case.first + number) for number in (*OWNED, *case.foreign)]
    with good_company(pair) as exchange:
        use, counts, received = use_of(agent), counts_of(node, keys), received_by(pair)
        enough_s = time.monotonic() + SECONDS
        flood.run(lambda: time.monotonic() > enough_s and flood.sent >= FRAMES)
        sent = flood.sent
        until(lambda: received_by(pair) - received >= sent, what="everything has arrived")
        received, counts = received_by(pair) - received, minus(counts_of(node, keys), counts)
        with flood.running():
            until(lambda: flood.sent > sent, what="the flood goes on")
            client = exchange()
        return Aftermath(case, sent, received, counts, client, flood.sent, use_of(agent).since(use))


def received_by(pair: Pair) -> int:
    """Frames that the node's link took in, whatever became of them."""
    (link,) = json.loads(pair.node.netns.run("ip", "-json", "-s", "link", "show", "eth0"))
    return link["stats64"]["rx"]["packets"]


def counts_of(node: ThisNode, keys: list[EntryKey]) -> Counts:
    """Decisions about what came in, by address, and of the node."""
    total, *_ = node.read_totals()
    tallies = {key.vip: node.table.tally(key) for key in keys} | {None: total}
    return {
        vip: Counter(
            {reason: count for reason, count in tally.enforced.items() if not reason.name.startswith("EGRESS")}
        )
        for vip, tally in tallies.items()
    }


def minus(after: Counts, before: Counts) -> Counts:
    return {vip: counts - before[vip] for vip, counts in after.items()}


def use_of(agent: AgentProcess) -> Use:
    """What an agent has used so far (proc(5))."""
    time_s = time.monotonic()
    *_, fields = Path(f"/proc/{pid_of(agent)}/stat").read_text(encoding="ascii").rpartition(") ")
    ticks = sum(map(int, fields.split()[11:13]))
    pages = int(Path(f"/proc/{pid_of(agent)}/statm").read_text(encoding="ascii").split()[1])
    lines = agent.said().splitlines()
    claims = sum(" claim: " in line for line in lines)
    return Use(
        time_s,
        ticks / os.sysconf("SC_CLK_TCK"),
        pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
        claims,
        len(lines) - claims,
    )


# ---- a well-behaved client ---------------------------------------------------------------------------------------


@contextmanager
def good_company(pair: Pair) -> Iterator[Callable[[], Client]]:
    """Servers on the node, and sockets of a client that has heard of them; gives what makes it ask."""
    with ExitStack() as stack:

        def opened(host: Host, kind: socket.SocketKind, family: socket.AddressFamily = socket.AF_INET) -> socket.socket:
            made = stack.enter_context(host.netns.call(lambda: socket.socket(family, kind)))
            made.settimeout(WAIT_S)
            return made

        echo, listener = opened(pair.node, socket.SOCK_DGRAM), opened(pair.node, socket.SOCK_STREAM)
        for server in (echo, listener):
            server.bind((str(pair.node.address), 0))
        listener.listen()
        sender, caller = opened(pair.client, socket.SOCK_STREAM), opened(pair.client, socket.SOCK_DGRAM)
        sender.connect(listener.getsockname())
        sink, _ = listener.accept()
        stack.enter_context(sink)
        caller.connect(echo.getsockname())
        asker = stack.enter_context(
            closing(flooding.Asker(pair.client.netns, pair.client.mac, pair.client.address, WAIT_S))
        )
        assert is_echoed(caller, echo, 0), "an echo, before the flood"
        yield lambda: keep_company(asker, caller, echo, sender, sink)


def keep_company(
    asker: flooding.Asker, caller: socket.socket, echo: socket.socket, sender: socket.socket, sink: socket.socket
) -> Client:
    client, stream = Client(), TcpStream(sender, sink)
    with stream:
        for number in range(1, ROUNDS + 1):
            client.answers += asker.is_answered(FIRST + number % len(OWNED))
            client.echoes += is_echoed(caller, echo, number)
            if number - min(client.answers, client.echoes) > LOST:
                break
    client.streamed = stream.received
    return client


def is_echoed(caller: socket.socket, echo: socket.socket, number: int) -> bool:
    """Whether a datagram with a number came there and back."""
    text = b"%d" % number
    try:
        caller.send(text)
        while True:
            came, whence = echo.recvfrom(64)
            if came == text:
                break
        echo.sendto(came, whence)
        while caller.recv(64) != text:
            pass
    except TimeoutError:
        return False
    return True


class TcpStream(threading.Thread):
    """As much as goes through, meanwhile."""

    def __init__(self, sender: socket.socket, sink: socket.socket) -> None:
        super().__init__()
        self.received = 0
        self._sender, self._sink = sender, sink
        self._done = threading.Event()

    def run(self) -> None:
        self._sender.setblocking(False)
        self._sink.setblocking(False)
        block = bytes(1 << 14)
        while not self._done.is_set():
            readable, writable, _ = select.select([self._sink], [self._sender], [], 0.1)
            if writable:
                with suppress(BlockingIOError):
                    self._sender.send(block)
            if readable:
                self.received += len(self._sink.recv(1 << 16))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self.join()


# ---- what is to be said of it ------------------------------------------------------------------------------------


def test_every_frame_that_arrives_is_counted_once(aftermath):
    assert aftermath.received == aftermath.sent
    assert aftermath.counts[None].total() == aftermath.received


def test_frames_are_counted_by_vip_and_by_why_they_are_judged_so(aftermath):
    owned, foreign, unknown = aftermath.case.reasons
    about = {vip: counts for vip, counts in aftermath.counts.items() if vip is not None}
    for numbers, reason in ((OWNED, owned), (aftermath.case.foreign, foreign)):
        assert [set(about[aftermath.case.first + number]) for number in numbers] == [{reason}] * len(numbers)
    assert aftermath.counts[None] == sum(about.values(), Counter({unknown: aftermath.counts[None][unknown]}))
    assert aftermath.counts[None][unknown] > aftermath.received / 5, "many are about no VIP"


def test_other_traffic_goes_on(aftermath):
    assert aftermath.client.streamed > 0
    assert aftermath.client.echoes >= ROUNDS - LOST


def test_well_behaved_client_is_answered(aftermath):
    assert aftermath.client.answers >= ROUNDS - LOST


def test_agent_uses_little_of_a_core(aftermath):
    assert aftermath.use.cpu_s < SHARE * aftermath.use.time_s


def test_agent_needs_no_more_memory(aftermath):
    assert aftermath.use.rss_mb < GROWTH_MB


def test_log_does_not_grow_with_the_flood(aftermath):
    use = aftermath.use
    assert use.claims <= CLAIMS_PER_S * (ceil(use.time_s) + 1)  # so many seconds of a clock overlap that time at most
    assert use.lines < LINES + LINES_PER_S * use.time_s
    assert use.claims + use.lines < aftermath.sent_in_all / 100
