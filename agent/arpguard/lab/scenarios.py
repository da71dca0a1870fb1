"""The scenarios: what is set up, who should answer, and what the wire said.

Every expectation is written here; every answer comes from ARP requests that the client really sent.
"""

import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from arpguard.addresses import MacAddress
from arpguard.dataplane.arpsocket import ArpSocket
from arpguard.lab.topology import NETWORK, AgentProcess, Host, Lab, names_of
from arpguard.wire.arp import ArpOp, build_request

VIP = IPv4Address(f"{NETWORK}.50")
VIP2 = IPv4Address(f"{NETWORK}.51")
_NOBODY = IPv4Address(f"{NETWORK}.99")
_ASK_WAIT_S = 0.1
_STREAM_INTERVAL_S = 0.001
_STREAM_LEN = 2000


COLUMNS = ("STEP", "WHO", "EXPECTED")


@dataclass(frozen=True, slots=True)
class Step:
    """One question to the wire: which hosts should answer for the VIP, and which MACs did, with how many replies."""

    scenario: str
    step: str
    vip: str
    expected: tuple[str, ...]
    nodes: tuple[str, ...]
    macs: tuple[str, ...] = ()
    ok: bool = False
    facts: dict[str, object] = field(default_factory=dict)

    def cells(self) -> tuple[str, ...]:
        """The step as a table row under COLUMNS."""
        return self.step, _names(self.nodes), _names(self.expected)

    def remark(self) -> str:
        """Figures that belong to the step; of checks those that failed, and what was said about them."""
        figures = [f"{name}={value}" for name, value in self.facts.items() if type(value) is int]
        failed = [f"NOT {name}" for name, value in self.facts.items() if value is False]
        return " ".join([*figures, *failed, *(value for value in self.facts.values() if isinstance(value, str))])

    def as_json(self) -> dict[str, object]:
        """The step for machines."""
        return {
            "scenario": self.scenario,
            "step": self.step,
            "vip": self.vip,
            "macs": list(self.macs),
            "nodes": list(self.nodes),
            "expected": list(self.expected),
            "ok": self.ok,
            **self.facts,
        }


def _names(names: Sequence[str], few: int = 2) -> str:
    """Hosts in few words: cluster nodes are counted when there are more than a few."""
    nodes = [name for name in names if name.startswith("node-")]
    if len(nodes) <= few:
        return ", ".join(names) or "nobody"
    return " and ".join([*(name for name in names if name not in nodes), f"{len(nodes)} nodes"])


class Bench:
    """What the scenarios are made of."""

    def __init__(self, lab: Lab, scenario: str) -> None:
        self.lab = lab
        self._scenario = scenario
        self._asker: ArpSocket | None = None

    @property
    def nodes(self) -> list[Host]:
        """The cluster nodes."""
        return self.lab.nodes

    def asker(self) -> ArpSocket:
        """The client's ear and mouth."""
        if self._asker is None:
            self._asker = self.lab.client.listen()
        return self._asker

    def ask(self, step: str, vip: IPv4Address, expected: Sequence[Host], **facts: object) -> Step:
        """Asks who answers for a VIP, and compares with who should."""
        replies = self.asker().ask(vip, self.lab.client.address, count=2, wait_s=_ASK_WAIT_S)
        macs = sorted({reply.packet.sha for reply in replies})
        return self.judge(step, vip, expected, macs, **facts)

    def judge(
        self, step: str, vip: IPv4Address, expected: Sequence[Host], macs: Sequence[MacAddress], **facts: object
    ) -> Step:
        """A step from what was seen; right when exactly the expected hosts were, and no fact is False."""
        nodes = tuple(names_of(self.lab, macs))
        wanted = tuple(sorted(host.name for host in expected))
        holds = all(fact is not False for fact in facts.values())
        return Step(
            scenario=self._scenario,
            step=step,
            vip=str(vip),
            expected=wanted,
            nodes=nodes,
            macs=tuple(map(str, macs)),
            ok=nodes == wanted and holds,
            facts=dict(facts),
        )

    def guard(self, config: str, nodes: Sequence[Host] | None = None) -> dict[str, AgentProcess]:
        """Starts an agent with this configuration on each node, and returns once all are ready."""
        agents = {host.name: self.lab.agent(host) for host in nodes or self.nodes}
        for agent in agents.values():
            agent.configure(config)
            agent.start()
        for agent in agents.values():
            agent.wait_for()
        return agents

    def unguard(self, agents: dict[str, AgentProcess]) -> None:
        """Stops the agents and removes the guard, as an operator would."""
        for agent in agents.values():
            agent.kill(signal.SIGTERM)
            self.arpguard(agent.host, "cleanup", "--pin-dir", str(agent.pin_dir))

    def bind_everywhere(self, where: str, *vips: IPv4Address) -> None:
        """Puts VIPs on all nodes."""
        for host in self.nodes:
            for vip in vips:
                host.bind(vip, where)

    def arpguard(self, host: Host, *words: str) -> str:
        """Runs the command line on a host."""
        return host.netns.run(sys.executable, "-m", "arpguard", *words)

    def observed(self, agent: AgentProcess, vip: IPv4Address) -> dict[str, int]:
        """What the counters of a node say it would have done about a VIP."""
        document = json.loads(self.arpguard(agent.host, "vips", str(vip), "-o", "json", "--address", agent.api))
        counts = {
            count["reason"].removeprefix("REASON_").lower(): int(count["observed"])
            for row in document["vips"]
            for count in row["reasons"]
        }
        return {reason: count for reason, count in counts.items() if count}

    def senders(self, vip: IPv4Address, hosts: Sequence[Host]) -> list[MacAddress]:
        """Who sends an ARP request with the VIP as sender when each host talks from the VIP to a silent neighbour."""
        asker = self.asker()
        for host in hosts:
            _talk_from(host, vip)
        seen = set()
        while (heard := asker.hear(0.3)) is not None:
            if heard.packet.op is ArpOp.REQUEST and heard.packet.spa == vip:
                seen.add(heard.packet.sha)
        return sorted(seen)


def owned_by(owner: str, *vips: IPv4Address, mode: str = "enforce", interfaces: str = "auto") -> str:
    """A configuration in which `owner` (as it stands after `owner:`) answers for some VIPs."""
    lines = [f"mode: {mode}", f'interfaces: ["{interfaces}"]', "vips:"]
    lines += [f"  - {{address: {vip}, owner: {owner}}}" for vip in vips]
    return "\n".join(lines) + "\n"


def _talk_from(host: Host, vip: IPv4Address) -> None:
    """Sends a datagram from the VIP to an address nobody has, so that the kernel asks for it."""
    code = (
        "import socket\n"
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        f"s.bind(('{vip}', 0))\n"
        f"s.sendto(b'.', ('{_NOBODY}', 9))\n"
    )
    subprocess.run([*host.netns.prefix(), sys.executable, "-c", code], check=True)  # noqa: S603


def _flux(bench: Bench) -> Iterator[Step]:
    first, second = bench.nodes[:2]
    places = ("lo", "kube-ipvs0 down", "kube-ipvs0 up")
    for place in places:
        bench.bind_everywhere(place, VIP)
        yield bench.ask(f"VIP on {place}, no guard", VIP, bench.nodes)
        for host in bench.nodes:
            host.unbind(VIP, place)
    agents = bench.guard(
        owned_by(f"{{node: {first.name}}}", VIP) + f"  - {{address: {VIP2}, owner: {{node: {second.name}}}}}\n"
    )
    for place in places:
        bench.bind_everywhere(place, VIP)
        yield bench.ask(f"VIP on {place}, guarded", VIP, [first])
        for host in bench.nodes:
            host.unbind(VIP, place)
    yield bench.ask(f"{VIP2}, bound nowhere, of node-2", VIP2, [second])
    bench.bind_everywhere("lo", VIP)
    bench.unguard(agents)
    yield bench.ask("guard removed again", VIP, bench.nodes)


def _lvs_dr(bench: Bench) -> Iterator[Step]:
    director, *real_servers = bench.nodes
    director.bind(VIP, "eth0")
    for host in real_servers:
        host.bind(VIP, "lo")
    yield bench.ask("director and real servers, no guard", VIP, bench.nodes)
    leaked = bench.senders(VIP, real_servers)
    yield bench.judge("asks in the VIP's name, no guard", VIP, real_servers, leaked)
    bench.guard(owned_by(f"{{node: {director.name}, delegated: true}}", VIP))
    yield bench.ask("guarded: the director's own kernel answers", VIP, [director])
    yield bench.judge("asks in the VIP's name, guarded", VIP, [], bench.senders(VIP, real_servers))


def _external(bench: Bench) -> Iterator[Step]:
    database = bench.lab.hosts["db"]
    database.bind(VIP, "eth0")
    yield bench.ask("the database's VIP, before it is an externalIP", VIP, [database])
    bench.bind_everywhere("kube-ipvs0 down", VIP)
    yield bench.ask("taken for an externalIP, no guard", VIP, [*bench.nodes, database])
    bench.guard(owned_by(f'{{external: "{database.mac}"}}', VIP))
    yield bench.ask("guarded: owner external", VIP, [database])


def _can_reach(bench: Bench) -> Iterator[Step]:
    owner = bench.nodes[0]
    bench.bind_everywhere("lo", VIP)
    says_lo = " dev lo " in owner.netns.run("ip", "route", "get", str(VIP))
    yield bench.ask("can_reach:VIP, `ip route get` says lo, no guard", VIP, bench.nodes, route_get_says_lo=says_lo)
    bench.guard(owned_by(f"{{node: {owner.name}}}", VIP, interfaces=f"can_reach:{VIP}"))
    yield bench.ask("guarded: resolved outside the local table", VIP, [owner])


def _observe(bench: Bench) -> Iterator[Step]:
    owner, *others = bench.nodes
    bench.bind_everywhere("lo", VIP)
    agents = bench.guard(owned_by(f"{{node: {owner.name}}}", VIP, mode="observe"))
    step = bench.ask("mode observe: nothing is touched", VIP, bench.nodes)
    counts = {name: bench.observed(agent, VIP) for name, agent in agents.items()}
    yield step
    silenced = [host.mac for host in others if counts[host.name].get("foreign")]
    yield bench.judge("the counters say: would be suppressed", VIP, others, silenced, counters=counts)
    for agent in agents.values():
        agent.configure(owned_by(f"{{node: {owner.name}}}", VIP))
    for agent in agents.values():
        agent.wait_for("taken over: mode=enforce")
    answers = _until_settled(bench, VIP)
    yield bench.judge("mode enforce, switched live", VIP, [owner], answers)


def _until_settled(bench: Bench, vip: IPv4Address, limit_s: float = 1.0) -> list[MacAddress]:
    """Who answers once a single host does, at most `limit_s` later."""
    deadline = time.monotonic() + limit_s
    while True:
        replies = bench.asker().ask(vip, bench.lab.client.address, count=1, wait_s=_ASK_WAIT_S)
        macs = sorted({reply.packet.sha for reply in replies})
        if len(macs) == 1 or time.monotonic() > deadline:
            return macs


def _restart(bench: Bench) -> Iterator[Step]:
    owner = bench.nodes[0]
    bench.bind_everywhere("lo", VIP)
    agents = bench.guard(owned_by(f"{{node: {owner.name}}}", VIP))
    agent = agents[owner.name]
    yield bench.ask("guarded", VIP, [owner])

    def disturb() -> None:
        agent.kill(signal.SIGKILL)
        agent.start()
        agent.wait_for()

    macs, counts = _stream(bench, VIP, disturb)
    yield bench.judge("the owner's agent killed and restarted", VIP, [owner], macs, **counts)


def _stream(bench: Bench, vip: IPv4Address, disturb: Callable[[], None]) -> tuple[list[MacAddress], dict[str, object]]:
    """A request each millisecond while `disturb` runs: who answered, and how many were lost or answered twice.

    Each request comes from an address of its own, so that replies can be told apart.
    """
    asker = bench.asker()
    worker = threading.Thread(target=disturb)
    replies: Counter[IPv4Address] = Counter()
    macs: set[MacAddress] = set()
    stop = threading.Event()

    ear = bench.lab.client.listen()

    def collect() -> None:
        while (heard := ear.hear(0.2)) is not None or not stop.is_set():
            if heard is not None and heard.packet.op is ArpOp.REPLY and heard.packet.spa == vip:
                replies[heard.packet.tpa] += 1
                macs.add(heard.packet.sha)
        ear.close()

    collector = threading.Thread(target=collect)
    collector.start()
    sent = 0
    started = False
    while sent < _STREAM_LEN or worker.is_alive():
        if sent == _STREAM_LEN // 10 and not started:
            worker.start()
            started = True
        asker.send(build_request(asker.mac, IPv4Address(f"10.{sent >> 16}.{sent >> 8 & 255}.{sent & 255}"), vip))
        sent += 1
        time.sleep(_STREAM_INTERVAL_S)
    worker.join()
    stop.set()
    collector.join()
    lost, doubled = sent - len(replies), sum(count - 1 for count in replies.values())
    perfect = not lost and not doubled
    return sorted(macs), {"requests": sent, "lost": lost, "doubled": doubled, "none_lost_or_doubled": perfect}


@dataclass(frozen=True, slots=True)
class Scenario:
    """`others`: (name, last byte of the address) of hosts outside the cluster."""

    summary: str
    run: Callable[[Bench], Iterator[Step]]
    others: tuple[tuple[str, int], ...] = ()


SCENARIOS: dict[str, Scenario] = {
    "flux": Scenario("on every node: all answer without the guard, exactly the owner with it", _flux),
    "lvs-dr": Scenario("only the director answers, and no real server speaks for the VIP", _lvs_dr),
    "external": Scenario(
        "a database outside keeps its VIP, though taken for an externalIP",
        _external,
        others=(("db", 80),),
    ),
    "can-reach": Scenario("an address that is bound as a VIP leads to the network, not to lo", _can_reach),
    "observe": Scenario("all answer, the counters tell who would be silenced; then enforce, live", _observe),
    "restart": Scenario("the owner's agent killed under requests: none lost, none doubled", _restart),
}
