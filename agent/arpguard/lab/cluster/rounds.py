"""Random faults, round after round, under a stream of requests, all judged.

A round does one to three things, each to another node, at random times and for random lengths; they may go on while
the cluster still recovers from the round before. The seed tells what happens, but not how threads and processes
are scheduled: the same seed is the same faults at the same times.
"""

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import IPv4Address
from random import Random

from arpguard.errors import ArpguardError
from arpguard.lab.bench import Step
from arpguard.lab.cluster.bench import KubeBench, Watch, vip
from arpguard.lab.cluster.pods import Pods
from arpguard.lab.cluster.servers import Fault
from arpguard.lab.oracle import Finding, Spread
from arpguard.lab.topology import Host

_VIPS = [vip(50 + number) for number in range(4)]
_LOCAL = vip(60)
_INTERVAL_S = 0.0012  # five VIPs take turns: each is asked about more often than a hand-over may last
_SETTLE_EVERY = 8
_SETTLE_S = 40.0
_RETRY_S = 0.2
_LATEST_S = 20.0
_TELL_EVERY = 10


@dataclass(frozen=True, slots=True)
class Deed:
    """Something to do at a time (seconds from the start of the round). `harm`: may fail; what mends is tried again."""

    at_s: float
    what: str
    do: Callable[[], None]
    harm: bool = True


class Rounds:
    """The menu, and the dice."""

    def __init__(self, bench: KubeBench, seed: int) -> None:
        self._bench = bench
        self._dice = Random(seed)  # noqa: S311 - no secret
        self.done: Counter[str] = Counter()
        self.died: list[str] = []
        self._pods = Pods(bench)
        self._menu: list[tuple[int, Callable[[Host], list[Deed]]]] = [
            (3, self._kill),
            (3, self._hang),
            (3, self._partition),
            (4, self._trouble),
            (2, self._restart_api),
            (3, self._keep_away),
            (2, self._delete_lease),
            (2, self._move_endpoints),
            (2, self._replace),
            (2, self._die),
        ]

    def play(self) -> list[str]:
        """One round; what was done, in words."""
        hosts = self._dice.sample(self._bench.nodes, k=min(self._dice.choice((1, 1, 2, 3)), len(self._bench.nodes)))
        weights = [weight for weight, _ in self._menu]
        choices = [self._dice.choices(self._menu, weights)[0][1] for _ in hosts]
        deeds = [deed for host, choose in zip(hosts, choices, strict=True) for deed in choose(host)]
        self._perform(deeds)
        time.sleep(self._dice.uniform(0.0, 1.0))
        self._revive()
        return [deed.what for deed in deeds if deed.harm]

    def _perform(self, deeds: list[Deed]) -> None:
        """Does each at its time. What cannot be done because of another fault is left out, unless it ends one."""
        began, waiting = time.monotonic(), deeds
        while waiting:
            deed, *waiting = sorted(waiting, key=lambda each: each.at_s)
            time.sleep(max(0.0, began + deed.at_s - time.monotonic()))
            try:
                deed.do()
            except (ArpguardError, OSError):
                if not deed.harm and deed.at_s > _LATEST_S:
                    raise
                waiting += [] if deed.harm else [replace(deed, at_s=deed.at_s + _RETRY_S)]
            else:
                self.done[deed.what.partition(":")[0]] += deed.harm

    def _revive(self) -> None:
        """No agent may end by itself."""
        for host in self._bench.nodes:
            agent = self._bench.agent(host)
            if agent.pid is None:
                self.died.append(f"{host.name}: {' '.join(agent.said().strip().splitlines()[-1:])}")
                agent.start()

    # ---- the menu ----

    def _span(self, most_s: float) -> tuple[float, float]:
        begin = self._dice.uniform(0.0, 0.5)
        return begin, begin + self._dice.uniform(0.05, most_s)

    def _kill(self, host: Host) -> list[Deed]:
        begin, end = self._span(4.0)
        agent = self._bench.agent(host)
        return [
            Deed(begin, f"kill: {host.name}", partial(agent.kill, signal.SIGKILL)),
            Deed(end, "start", agent.start, harm=False),
        ]

    def _hang(self, host: Host) -> list[Deed]:
        begin, end = self._span(5.0)
        agent = self._bench.agent(host)
        return [
            Deed(begin, f"hang: {host.name}", partial(agent.send, signal.SIGSTOP)),
            Deed(end, "go on", partial(agent.send, signal.SIGCONT), harm=False),
        ]

    def _partition(self, host: Host) -> list[Deed]:
        begin, end = self._span(5.0)
        lab = self._bench.lab
        return [
            Deed(begin, f"partition: {host.name}", partial(lab.cut_off, host)),
            Deed(end, "reconnect", partial(lab.reconnect, host), harm=False),
        ]

    def _trouble(self, host: Host) -> list[Deed]:
        begin, end = self._span(4.0)
        server = self._bench.server
        fault = self._dice.choice(server.faults)
        return [
            Deed(begin, f"api {fault.name}: {host.name}", partial(self._set_trouble, host, fault)),
            Deed(end, "api well", partial(self._set_trouble, host, None), harm=False),
        ]

    def _set_trouble(self, host: Host, fault: Fault | None) -> None:
        self._bench.server.trouble(host, fault)

    def _restart_api(self, _host: Host) -> list[Deed]:
        begin, end = self._span(2.5)
        server = self._bench.server
        return [
            Deed(begin, "api restart: all", server.go_down),
            Deed(end, "api back", server.come_back, harm=False),
        ]

    def _keep_away(self, host: Host) -> list[Deed]:
        begin, end = self._span(3.0)
        bench = self._bench
        ways: list[tuple[str, Callable[[], None], Callable[[], None]]] = [
            ("cordon", partial(bench.cordon, host), partial(bench.cordon, host, cordoned=False)),
            ("not ready", partial(bench.set_ready, host, ready=False), partial(bench.set_ready, host, ready=True)),
            ("exclude", partial(bench.exclude, host), partial(bench.exclude, host, excluded=False)),
        ]
        text, do, undo = self._dice.choice(ways)
        return [Deed(begin, f"{text}: {host.name}", do), Deed(end, "put back", undo, harm=False)]

    def _delete_lease(self, host: Host) -> list[Deed]:
        begin, _ = self._span(0.5)
        names = [f"vip.{self._dice.choice([*_VIPS, _LOCAL])}", f"node.{self._bench.server.node_name(host)}"]
        name = self._dice.choice(names)
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self._bench.home}/leases/{name}"
        return [
            Deed(begin, f"delete {name.partition('.')[0]} lease: {name}", partial(self._bench.server.api.delete, path))
        ]

    def _move_endpoints(self, _host: Host) -> list[Deed]:
        begin, _ = self._span(0.5)
        chosen = self._dice.sample(self._bench.nodes, k=self._dice.randint(1, len(self._bench.nodes)))
        ready = {each: each in chosen for each in self._bench.nodes}
        return [Deed(begin, "endpoints: moved", partial(self._bench.endpoints, "local", ready), harm=False)]

    def _replace(self, host: Host) -> list[Deed]:
        begin, end = self._span(4.0)
        return [
            Deed(begin, f"replace: {host.name}", partial(self._pods.end, host)),
            Deed(end, "new pod", partial(self._begin_pod, host), harm=False),
        ]

    def _begin_pod(self, host: Host) -> None:
        if self._bench.agent(host).pid is None:
            self._pods.begin(host)

    def _die(self, host: Host) -> list[Deed]:
        begin, end = self._span(5.0)
        lab, agent = self._bench.lab, self._bench.agent(host)
        return [
            Deed(begin, f"node dies: {host.name}", partial(lab.pull, host)),
            Deed(begin, f"kill: {host.name}", partial(agent.kill, signal.SIGKILL)),
            Deed(end, "plug in", partial(lab.plug_in, host), harm=False),
            Deed(end, "start", agent.start, harm=False),
        ]


def run_rounds(
    bench: KubeBench, count: int, seed: int, tell: Callable[[str], None] = lambda _text: None
) -> Iterator[Step]:
    """So many rounds; a step for each that was not right, and one for all of it."""
    every = [*_VIPS, _LOCAL]
    bench.publish("web", _VIPS)
    bench.publish("local", [_LOCAL], local=True)
    bench.endpoints("local", dict.fromkeys(bench.nodes, True))
    rounds = Rounds(bench, seed)
    bench.settle(every)
    bench.bind_everywhere(*every)
    settled_ns: list[int] = []
    with bench.watch(every, _INTERVAL_S) as watch:
        for number in range(1, count + 1):
            did = rounds.play()
            fresh = _judge(bench, watch)
            if fresh:
                yield _found(bench, f"round {number}: {', '.join(did)}", fresh)
            if number % _SETTLE_EVERY == 0 or number == count:
                settled_ns.append(_settle(bench, every))
            if number % _TELL_EVERY == 0:
                tell(f"{number} of {count} rounds, {watch.facts()['overlaps']} overlaps")
    fresh = _judge(bench, watch)
    if fresh:
        yield _found(bench, "at the end", fresh)
    yield _verdict(bench, watch, rounds, f"{count} rounds, seed {seed}", settled_ns)


def _judge(bench: KubeBench, watch: Watch) -> list[Finding]:
    """New findings. What was said so far is judged by the journal, which is read after it; then it is forgotten."""
    known, known_unbacked = len(watch.oracle.findings), len(watch.unbacked)
    watch.poll()
    bench.check_against_journal(watch)
    watch.said.clear()
    return [*watch.oracle.findings[known:], *watch.unbacked[known_unbacked:]]


def _settle(bench: KubeBench, vips: list[IPv4Address]) -> int:
    """How long it took, in nanoseconds, until exactly one node answered for each VIP."""
    began_ns = time.monotonic_ns()
    bench.settle(vips, limit_s=_SETTLE_S)
    return time.monotonic_ns() - began_ns


def _found(bench: KubeBench, text: str, findings: list[Finding]) -> Step:
    address = findings[0].vip
    macs = bench.who(address)[address]
    shown = "; ".join(map(str, findings[:3]))
    return bench.step(text, address, [], macs, overlaps=len(findings), never_two_at_once=False, finding=shown)


def _verdict(bench: KubeBench, watch: Watch, rounds: Rounds, text: str, settled_ns: list[int]) -> Step:
    gaps = Spread.of([each.gap_ns for each in watch.gaps()])
    settled = Spread.of(settled_ns)
    return bench.one_of(
        f"{text}: at most one answered at any moment",
        _VIPS[0],
        bench.nodes,
        bench.who(_VIPS[0])[_VIPS[0]],
        faults=rounds.done.total(),
        handovers=gaps.count,
        median_gap_ms=gaps.median_ms,
        worst_gap_ms=gaps.worst_ms,
        settled_worst_ms=settled.worst_ms,
        agents_died=len(rounds.died),
        no_agent_died=not rounds.died,
        deeds=dict(sorted(rounds.done.items())),
        **({"deaths": "; ".join(rounds.died[:3])} if rounds.died else {}),
        **watch.facts(),
    )
