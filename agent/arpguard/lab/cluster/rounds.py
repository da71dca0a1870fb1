"""Random faults, round after round, under the requests of two clients, all judged.

A round does one to three things, each to another node, at random times and for random lengths; they may go on while
the cluster still recovers from the round before. Now and then it may recover, and is looked at more closely:

    P1, P2  at every moment: at most one answers, and only by a claim that is valid then (oracle.py)
    P3      each node answers for its own address, and nobody else does
    P4      an agent that is killed leaves the answers going until the fence in its kernel
    P5      no node has answered more often than it has counted

Two of the VIPs are of one Service, one of each family: they have one owner, but for the moment in which they move.

The seed tells what happens, but not how threads and processes are scheduled: the same seed is the same faults at the
same times.
"""

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random

from arpguard.addresses import Address
from arpguard.clock import boot_ns
from arpguard.errors import ArpguardError
from arpguard.lab.asking import Stream
from arpguard.lab.bench import Step
from arpguard.lab.cluster.bench import KubeBench, Watch, now_ns, vip, vip6
from arpguard.lab.cluster.mischief import Deed, Mischief
from arpguard.lab.oracle import Finding, Spread
from arpguard.lab.topology import Host
from arpguard.units import NS_PER_MS

SECOND_CLIENT = ("client-2", 101)
_VIPS = [vip(50 + number) for number in range(4)]
_LOCAL = vip(60)
_PAIR: tuple[Address, Address] = vip(61), vip6(0x61)
_EVERY: list[Address] = [*_VIPS, _LOCAL, *_PAIR]
_INTERVAL_S = 0.002  # of each client: every VIP is asked about more often than a hand-over may last
_SETTLE_EVERY = 8
_SETTLE_S = 40.0
_RETRY_S = 0.2
_LATEST_S = 20.0
_TELL_EVERY = 10
_AT_THE_FENCE_NS = 5 * NS_PER_MS  # what is asked so shortly before may be answered after


@dataclass(frozen=True, slots=True)
class Extent:
    """How long to go on: so many rounds, or rounds for so many seconds."""

    rounds: int | None = None
    seconds: float | None = None

    def __str__(self) -> str:
        return f"{self.rounds} rounds" if self.rounds is not None else f"{self.seconds:g} s"

    def numbers(self) -> Iterator[int]:
        """The numbers of the rounds."""
        began, number = time.monotonic(), 0
        while number < self.rounds if self.rounds is not None else time.monotonic() - began < (self.seconds or 0):
            number += 1
            yield number


class Rounds:
    """Plays rounds."""

    def __init__(self, bench: KubeBench, seed: int) -> None:
        self._bench = bench
        self.dice = Random(seed)  # noqa: S311 - no secret
        self.done: Counter[str] = Counter()
        self.died: list[str] = []
        self._mischief = Mischief(bench, self.dice, _EVERY)

    def play(self) -> list[str]:
        """One round; what was done, in words."""
        hosts = self.dice.sample(self._bench.nodes, k=min(self.dice.choice((1, 1, 2, 3)), len(self._bench.nodes)))
        deeds = self._mischief.draw(hosts)
        self._perform(deeds)
        time.sleep(self.dice.uniform(0.0, 1.0))
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


@dataclass(slots=True)
class _Record:
    """What was found besides answers that must not be."""

    settled_ns: list[int] = field(default_factory=list)
    heard: Counter[str] = field(default_factory=Counter)
    counted_before: dict[str, int] = field(default_factory=dict)
    kills: int = 0
    lost_before_fence: int = 0
    strange: list[str] = field(default_factory=list)
    apart: int = 0
    uncounted: int = 0

    def facts(self) -> dict[str, object]:
        """All of it."""
        settled = Spread.of(self.settled_ns)
        facts: dict[str, object] = {
            "settled_worst_ms": settled.worst_ms,
            "own_addresses_answered": not self.strange,
            "both_families_had_one_owner": not self.apart,
            "killed_and_asked_until_the_fence": self.kills,
            "lost_before_the_fence": self.lost_before_fence,
            "answers_outlive_the_agent": not self.lost_before_fence,
            "answers_uncounted": self.uncounted,
            "every_answer_counted": not self.uncounted,
        }
        return facts | ({"strange": "; ".join(self.strange[:3])} if self.strange else {})


def run_rounds(
    bench: KubeBench, extent: Extent, seed: int, tell: Callable[[str], None] = lambda _text: None
) -> Iterator[Step]:
    """Rounds; a step for each that was not right, and one for all of it."""
    bench.publish("web", _VIPS)
    bench.publish("both", _PAIR)
    bench.publish("local", [_LOCAL], local=True)
    bench.endpoints("local", dict.fromkeys(bench.nodes, True))
    rounds, record = Rounds(bench, seed), _Record()
    bench.settle(_EVERY)
    bench.bind_everywhere(*_EVERY)
    record.counted_before = {host.name: bench.agent(host).answers_counted() for host in bench.nodes}
    second = Stream(bench.lab.hosts[SECOND_CLIENT[0]].listen(), _EVERY, _INTERVAL_S, lane=1)
    number = 0
    with bench.watch(_EVERY, _INTERVAL_S, also=second) as watch:
        for number in extent.numbers():
            did = rounds.play()
            fresh = _judge(bench, watch, record)
            if fresh:
                yield _found(bench, f"round {number}: {', '.join(did)}", fresh)
            if number % _SETTLE_EVERY == 0:
                _look_closely(bench, watch, rounds, record)
            if number % _TELL_EVERY == 0:
                tell(f"{number} of {extent}, {watch.facts()['overlaps']} overlaps")
        _look_closely(bench, watch, rounds, record)
        bench.settle(_EVERY, limit_s=_SETTLE_S)
    fresh = _judge(bench, watch, record)
    if fresh:
        yield _found(bench, "at the end", fresh)
    yield _verdict(bench, watch, rounds, record, f"{number} rounds, seed {seed}")


def _judge(bench: KubeBench, watch: Watch, record: _Record) -> list[Finding]:
    """New findings. What was said so far is judged by the journal, which is read after it; then it is forgotten."""
    known, known_unbacked = len(watch.oracle.findings), len(watch.unbacked)
    watch.poll()
    watch.said = [each for each in watch.said if each.vip in _EVERY]  # hosts say what they like of their own addresses
    bench.check_against_journal(watch)
    record.heard.update(bench.lab.who(each.mac) for each in watch.said if not each.is_announcement)
    watch.said.clear()
    return [*watch.oracle.findings[known:], *watch.unbacked[known_unbacked:]]


def _look_closely(bench: KubeBench, watch: Watch, rounds: Rounds, record: _Record) -> None:
    """Waits until exactly one node answers for each VIP, and looks at what can only be told then."""
    began_ns = time.monotonic_ns()
    bench.settle(_EVERY, limit_s=_SETTLE_S)
    record.settled_ns.append(time.monotonic_ns() - began_ns)
    record.apart += not _is_together(bench)
    _ask_own_addresses(bench, record)
    _kill_one(bench, watch, rounds, record)
    for host in bench.nodes:
        counted = bench.agent(host).answers_counted() - record.counted_before[host.name]
        record.uncounted += max(0, record.heard[host.name] - counted)


def _is_together(bench: KubeBench) -> bool:
    """Whether one node has both families before long."""
    deadline = time.monotonic() + _SETTLE_S
    while time.monotonic() < deadline:
        found = bench.who(*_PAIR)
        if len(found[_PAIR[0]]) == 1 and found[_PAIR[0]] == found[_PAIR[1]]:
            return True
        time.sleep(_RETRY_S)
    return False


def _ask_own_addresses(bench: KubeBench, record: _Record) -> None:
    for host in bench.nodes:
        for address, macs in bench.who(host.address, host.address6).items():
            answered = [bench.lab.who(mac) for mac in macs]
            if answered != [host.name]:
                record.strange.append(f"{address} of {host.name} was answered for by {answered or 'nobody'}")


def _kill_one(bench: KubeBench, watch: Watch, rounds: Rounds, record: _Record) -> None:
    """What an agent owned when it was killed is answered for until the fence in its kernel."""
    victim: Host = rounds.dice.choice(bench.nodes)
    agent = bench.agent(victim)
    owned = bench.owned(_EVERY, victim)
    agent.kill(signal.SIGKILL)
    killed_ns, left_ns = now_ns(), agent.fence_ns() - boot_ns()
    agent.start()
    until_ns = killed_ns + max(0, left_ns) - _AT_THE_FENCE_NS
    watch.wait(lambda: now_ns() > until_ns + _AT_THE_FENCE_NS * 10, _SETTLE_S, "the fence to pass")
    record.kills += bool(owned)
    record.lost_before_fence += sum(watch.stream.lost(address, killed_ns, until_ns) for address in owned)


def _found(bench: KubeBench, text: str, findings: list[Finding]) -> Step:
    address = findings[0].vip
    macs = bench.who(address)[address]
    shown = "; ".join(map(str, findings[:3]))
    return bench.step(text, address, [], macs, overlaps=len(findings), never_two_at_once=False, finding=shown)


def _worst(watch: Watch) -> str:
    gap = max(watch.gaps(), key=lambda each: each.gap_ns, default=None)
    return f"{gap.vip} after request {watch.stream.asked(gap.vip, 0, gap.last_ns)}" if gap else "none"


def _verdict(bench: KubeBench, watch: Watch, rounds: Rounds, record: _Record, text: str) -> Step:
    gaps = Spread.of([each.gap_ns for each in watch.gaps()])
    return bench.one_of(
        f"{text}: at most one answered at any moment",
        _VIPS[0],
        bench.nodes,
        bench.who(_VIPS[0])[_VIPS[0]],
        faults=rounds.done.total(),
        handovers=gaps.count,
        median_gap_ms=gaps.median_ms,
        worst_gap_ms=gaps.worst_ms,
        worst_gap=_worst(watch),
        agents_died=len(rounds.died),
        no_agent_died=not rounds.died,
        **record.facts(),
        deeds=dict(sorted(rounds.done.items())),
        **({"deaths": "; ".join(rounds.died[:3])} if rounds.died else {}),
        **watch.facts(),
    )
