"""What the scenarios are made of: steps, agents, and questions that the client really sends."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from arpguard.addresses import MacAddress
from arpguard.dataplane.neighboursocket import NeighbourSocket
from arpguard.errors import DataPlaneError
from arpguard.lab.topology import NETWORK, AgentProcess, Host, Lab, names_of
from arpguard.wire.arp import ArpOp

VIP = IPv4Address(f"{NETWORK}.50")
ASK_WAIT_S = 0.1
_POLL_S = 0.02
_NOBODY = IPv4Address(f"{NETWORK}.99")

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
        self._asker: NeighbourSocket | None = None

    @property
    def nodes(self) -> list[Host]:
        """The cluster nodes."""
        return self.lab.nodes

    def asker(self) -> NeighbourSocket:
        """The client's ear and mouth."""
        if self._asker is None:
            self._asker = self.lab.client.listen()
        return self._asker

    def ask(self, step: str, vip: IPv4Address, expected: Sequence[Host], **facts: object) -> Step:
        """Asks who answers for a VIP, and compares with who should."""
        replies = self.asker().ask(vip, self.lab.client.address, count=2, wait_s=ASK_WAIT_S)
        macs = sorted({reply.packet.sha for reply in replies})
        return self.judge(step, vip, expected, macs, **facts)

    def judge(
        self, step: str, vip: IPv4Address, expected: Sequence[Host], macs: Sequence[MacAddress], **facts: object
    ) -> Step:
        """A step from the MACs that were seen."""
        known = [(name, mac) for mac in macs for name in names_of(self.lab, [mac])]
        return self._step(step, vip, expected, known, facts)

    def compare(
        self,
        step: str,
        vip: IPv4Address,
        expected: Sequence[Host],
        seen: Sequence[tuple[Host, MacAddress]],
        **facts: object,
    ) -> Step:
        """A step from the hosts that were seen, and the MACs that they spoke with."""
        return self._step(step, vip, expected, [(host.name, mac) for host, mac in seen], facts)

    def _step(
        self,
        step: str,
        vip: IPv4Address,
        expected: Sequence[Host],
        seen: Sequence[tuple[str, MacAddress]],
        facts: dict[str, object],
    ) -> Step:
        """Right when exactly the expected hosts were seen, and no fact is False."""
        seen = sorted(seen)
        nodes = tuple(name for name, _ in seen)
        wanted = tuple(sorted(host.name for host in expected))
        holds = all(fact is not False for fact in facts.values())
        return Step(
            scenario=self._scenario,
            step=step,
            vip=str(vip),
            expected=wanted,
            nodes=nodes,
            macs=tuple(str(mac) for _, mac in seen),
            ok=nodes == wanted and holds,
            facts=facts,
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
        while asker.hear(0) is not None:  # a kernel repeats what it asked before
            pass
        for host in hosts:
            _talk_from(host, vip)
        seen = set()
        while (heard := asker.hear(0.3)) is not None:
            packet = heard.packet
            if packet.op is ArpOp.REQUEST and packet.spa == vip != packet.tpa:
                seen.add(packet.sha)
        return sorted(seen)


def owned_by(owner: str, *vips: IPv4Address, mode: str = "enforce", interfaces: str = "auto") -> str:
    """A configuration in which `owner` (as it stands after `owner:`) answers for some VIPs."""
    lines = [f"mode: {mode}", f'interfaces: ["{interfaces}"]', "vips:"]
    lines += [f"  - {{address: {vip}, owner: {owner}}}" for vip in vips]
    return "\n".join(lines) + "\n"


def until(condition: Callable[[], object], limit_s: float, what: str) -> float:
    """Waits until a condition holds, and says how many seconds that took; DataPlaneError after `limit_s`."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > limit_s:
            raise DataPlaneError(f"not within {limit_s:g} s: {what}")
        time.sleep(_POLL_S)
    return time.monotonic() - began


def _talk_from(host: Host, vip: IPv4Address) -> None:
    """Sends a datagram from the VIP to an address nobody has, so that the kernel asks for it."""
    code = (
        "import socket\n"
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        f"s.bind(('{vip}', 0))\n"
        f"s.sendto(b'.', ('{_NOBODY}', 9))\n"
    )
    subprocess.run([*host.netns.prefix(), sys.executable, "-c", code], check=True)  # noqa: S603
