"""What the scenarios are made of: steps, agents, and questions that the client really sends."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv6Address

from arpguard.addresses import Address, MacAddress
from arpguard.dataplane.neighboursocket import NeighbourSocket
from arpguard.errors import DataPlaneError
from arpguard.wire.arp import ArpOp
from arpguard.wire.ndp import NdType
from arpguard_lab import questions
from arpguard_lab.patience import Patience
from arpguard_lab.progress import waits_for
from arpguard_lab.topology import NETWORK, NETWORK6, AgentProcess, Host, Lab

VIP = IPv4Address(f"{NETWORK}.50")
ASK_WAIT_S = 0.1
LATE_S = 2.0  # how late an answer may be: the programs that send answers may have to wait for a CPU
_POLL_S = 0.02
_PATIENCE_S = 10.0
_NOBODY = {4: IPv4Address(f"{NETWORK}.99"), 6: IPv6Address(f"{NETWORK6}::99")}

TOO_MUCH = 0.4  # of the time; a lab by itself needs less
COLUMNS = ("STEP", "WHO", "EXPECTED")


@dataclass(frozen=True, slots=True)
class Bounded:
    """A figure in milliseconds that has to stay below a bound; as a fact its name ends in `_ms`.

    `check`: what tells machines whether it does. None: there was nothing to measure, and there should have been.
    """

    value: int | None
    bound: int
    check: str

    @property
    def is_kept(self) -> bool:
        """Whether it is below the bound. Nothing takes no time: then two things happened in the wrong order."""
        return self.value is not None and 0 <= self.value < self.bound

    @property
    def is_late(self) -> bool:
        """Whether it is beyond the bound, and there is nothing else wrong with it."""
        return self.value is not None and self.value >= self.bound

    def __str__(self) -> str:
        value = "unknown" if self.value is None else f"{self.value} ms"
        return f"{value}, limit {self.bound} ms" + ("" if self.is_kept else ": NOT kept")


@dataclass(frozen=True, slots=True)
class Step:
    """One question to the wire: which hosts should answer for the VIP, and which MACs did, with how many replies.

    `judged` False: it is not `ok`, but that may be the machine's fault.
    """

    scenario: str
    step: str
    vip: str
    expected: tuple[str, ...]
    nodes: tuple[str, ...]
    macs: tuple[str, ...] = ()
    ok: bool = False
    facts: dict[str, object] = field(default_factory=dict)
    judged: bool = True

    def on_a_machine_that_owed(self, share: float) -> "Step":
        """The step, and not judged if it was only late, and tasks waited for a CPU for such a share of the time."""
        wrong = [fact for fact in self.facts.values() if not _is_right(fact)]
        only_late = self.nodes == self.expected and all(isinstance(fact, Bounded) and fact.is_late for fact in wrong)
        if self.ok or not wrong or not only_late or share < TOO_MUCH:
            return self
        machine = f"not judged: tasks of this machine waited for a CPU {share:.0%} of the time"
        return replace(self, judged=False, facts=self.facts | {"machine": machine})

    def cells(self) -> tuple[str, ...]:
        """The step as a table row under COLUMNS."""
        return self.step, _names(self.nodes), _names(self.expected)

    def remark(self) -> str:
        """Figures that belong to the step; of checks those that failed, and what was said about them."""
        facts = self.facts.items()
        bounded = [f"{_title(name)} {value}" for name, value in facts if isinstance(value, Bounded)]
        figures = [f"{name}={value}" for name, value in facts if type(value) is int]
        failed = [f"failed: {name}" for name, value in facts if value is False]
        rest = " ".join([*figures, *failed, *(value for _, value in facts if isinstance(value, str))])
        return "; ".join([*bounded, rest] if rest else bounded)

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
            "judged": self.judged,
            **_plain(self.facts),
        }


def could_not_continue(scenario: str, error: str) -> Step:
    """The last step of a scenario that something keeps from going on."""
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs"
    expected = ("the steps after this",)
    return Step(scenario, "could not continue", "", expected, (), facts={"error": error, "load": load})


def _title(name: str) -> str:
    return name.removesuffix("_ms").replace("_", " ")


def _plain(facts: dict[str, object]) -> dict[str, object]:
    """Facts for machines: a figure with a bound is two, itself and whether it keeps it."""
    plain: dict[str, object] = {}
    for name, fact in facts.items():
        plain |= {name: fact.value, fact.check: fact.is_kept} if isinstance(fact, Bounded) else {name: fact}
    return {name: fact for name, fact in plain.items() if fact is not None}


def _is_right(fact: object) -> bool:
    return fact.is_kept if isinstance(fact, Bounded) else fact is not False


def _names(names: Sequence[str], few: int = 2) -> str:
    """Hosts in few words: cluster nodes are counted when there are more than a few."""
    nodes = [name for name in names if name.startswith("node-")]
    if len(nodes) <= few:
        return ", ".join(names) or "nobody"
    return " and ".join([*(name for name in names if name not in nodes), f"{len(nodes)} nodes"])


def judged(
    scenario: str,
    step: str,
    vip: Address,
    expected: Iterable[Host],
    seen: Iterable[tuple[str, MacAddress]],
    facts: dict[str, object],
) -> Step:
    """A step that is right when exactly the expected hosts were seen, and no fact is False or beyond its bound."""
    seen = sorted(seen)
    nodes, wanted = tuple(name for name, _ in seen), tuple(sorted(host.name for host in expected))
    ok = nodes == wanted and all(map(_is_right, facts.values()))
    return Step(scenario, step, str(vip), wanted, nodes, tuple(str(mac) for _, mac in seen), ok, facts)


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

    def ask(self, step: str, vip: Address, expected: Sequence[Host], **facts: object) -> Step:
        """Asks who answers for a VIP until all expected hosts have or time is up; compares all who did with them."""
        wanted, macs, patience = {host.mac for host in expected}, set(self.answerers(vip)), Patience(LATE_S)
        while not wanted <= macs and not patience.is_over:
            macs |= set(self.answerers(vip))
        return self.judge(step, vip, expected, sorted(macs), **facts)

    def answerers(self, vip: Address, count: int = 2) -> list[MacAddress]:
        """Who answers for a VIP now, asked so many times."""
        self.drain()
        replies = self.asker().ask(vip, self.lab.client.address_like(vip), count=count, wait_s=ASK_WAIT_S)
        return sorted({reply.packet.sha for reply in replies})

    def drain(self) -> None:
        """Forgets what the client heard so far: answers to others, what kernels repeat."""
        while self.asker().hear(0) is not None:
            pass

    def wait_for_owner(self, vip: Address, owner: Host) -> None:
        """Returns once this host answers for a VIP, alone."""
        until(lambda: self.answerers(vip) == [owner.mac], _PATIENCE_S, f"{owner.name} answers for {vip}, alone")

    def judge(
        self, step: str, vip: Address, expected: Sequence[Host], macs: Iterable[MacAddress], **facts: object
    ) -> Step:
        """A step from the MACs that were seen."""
        return self.compare(step, vip, expected, [(self.lab.who(mac), mac) for mac in macs], **facts)

    def compare(
        self,
        step: str,
        vip: Address,
        expected: Sequence[Host],
        seen: Iterable[tuple[str, MacAddress]],
        **facts: object,
    ) -> Step:
        """A step from the hosts that were seen, by name, and the MACs that they spoke with."""
        return judged(self._scenario, step, vip, expected, seen, facts)

    def guard(self, config: str, nodes: Sequence[Host] | None = None) -> dict[str, AgentProcess]:
        """Starts an agent with this configuration on each node, and returns once all are ready."""
        agents = {host.name: self.lab.agent(host) for host in nodes or self.nodes}
        waits_for(f"starting {len(agents)} agents")
        for agent in agents.values():
            agent.configure(config)
            agent.start()
        for agent in agents.values():
            agent.wait_for()
        return agents

    def unguard(self, agents: dict[str, AgentProcess]) -> None:
        """Stops the agents and removes the guard, as an operator would."""
        waits_for(f"stopping {len(agents)} agents and removing the guard")
        for agent in agents.values():
            agent.kill(signal.SIGTERM)
            agent.host.netns.arpguard("cleanup", "--pin-dir", str(agent.pin_dir))

    def bind_everywhere(self, where: str, *vips: Address) -> None:
        """Puts VIPs on all nodes."""
        for host in self.nodes:
            for vip in vips:
                host.bind(vip, where)

    @contextmanager
    def bound(self, vip: Address, where: str) -> Iterator[None]:
        """Within its block a VIP is on all nodes."""
        self.bind_everywhere(where, vip)
        try:
            yield
        finally:
            for host in self.nodes:
                host.unbind(vip, where)

    def decided(self, agent: AgentProcess, vip: Address, how: str) -> dict[str, int]:
        """What the counters of a node say that it did about a VIP (`enforced`), or would have done (`observed`)."""
        counts = {
            count["reason"].removeprefix("REASON_").lower(): int(count[how])
            for row in questions.vips(agent, vip)
            for count in row["reasons"]
        }
        return {reason: count for reason, count in counts.items() if count}

    def senders(self, vip: Address, hosts: Sequence[Host]) -> list[MacAddress]:
        """Who asks in the VIP's name when each host talks from the VIP to a silent neighbour."""
        self.drain()
        for host in hosts:
            _talk_from(host, vip)
        seen = set()
        while (heard := self.asker().hear(0.3)) is not None:
            packet = heard.packet
            if packet.op in (ArpOp.REQUEST, NdType.SOLICITATION) and packet.spa == vip != packet.tpa:
                seen.add(packet.sha)
        return sorted(seen)


def owned_by(owner: str, *vips: Address, mode: str = "enforce", interfaces: str = "auto") -> str:
    """A configuration in which `owner` (as it stands after `owner:`) answers for some VIPs."""
    lines = [f"mode: {mode}", f'interfaces: ["{interfaces}"]', "vips:"]
    lines += [f"  - {{address: {vip}, owner: {owner}}}" for vip in vips]
    return "\n".join(lines) + "\n"


def until(
    condition: Callable[[], object], limit_s: float, what: str, instead: Callable[[], object] | None = None
) -> float:
    """Waits until a condition holds, and says how many seconds that took; DataPlaneError when patience is over.

    `instead`: what there is then.
    """
    began, patience = time.monotonic(), Patience(limit_s)
    waits_for(what)
    while not condition():
        if patience.is_in_vain(condition):
            found = f" ({instead()})" if instead else ""
            raise DataPlaneError(f"did not happen within {limit_s:g} s: {what}{found}")
        patience.pause(_POLL_S)
    return time.monotonic() - began


def _talk_from(host: Host, vip: Address) -> None:
    """Sends a datagram from the VIP to an address nobody has, so that the kernel asks for it."""
    code = (
        "import socket\n"
        f"s = socket.socket(socket.{'AF_INET' if vip.version == 4 else 'AF_INET6'}, socket.SOCK_DGRAM)\n"
        f"s.bind(('{vip}', 0))\n"
        f"s.sendto(b'.', ('{_NOBODY[vip.version]}', 9))\n"
    )
    subprocess.run([*host.netns.prefix(), sys.executable, "-c", code], check=True)  # noqa: S603
