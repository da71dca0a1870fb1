"""Random faults, round after round, under the requests of two clients, all judged.

A round does one to three things, each to another node, at random times and for random lengths; they may last while
the cluster still recovers from the round before. Now and then it may recover, and is looked at more closely. Nodes that
vouch for each other shun those that failed them for minutes, and would hardly ever be bound: so all agents restart
every few rounds, and the next one begins once every node is bound, or cannot be.

    P1  at every moment: at most one node answers (oracle.py)
    P2  and only by a claim that is valid then; a node whose agent stands still answers until its fence, not after it
    P3  each node answers for its own addresses, and nobody else does
    P4  an agent that is killed leaves the answers going until the fence in its kernel
    P5  no node has answered more often than it has counted
    P6  no agent accuses a host of answering for a VIP for which one node answers

Two of the VIPs are of one Service, one of each family: they have one owner, but for the moment in which they move.

The seed tells what happens, but not how threads and processes are scheduled: the same seed is the same faults at the
same times, and `schedule` is a sum over them. A fault that cannot be done, because of another one, is left out.
"""

import hashlib
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from random import Random

from arpguard.addresses import Address
from arpguard.clock import boot_ns
from arpguard.errors import ArpguardError
from arpguard.units import NS_PER_MS, NS_PER_S
from arpguard_lab.asking import Stream
from arpguard_lab.bench import Step
from arpguard_lab.capture import Said
from arpguard_lab.cluster.accusing import accusations
from arpguard_lab.cluster.bench import AT_THE_FENCE_NS, KubeBench, Watch, ms, now_ns, vip, vip6
from arpguard_lab.cluster.meddling import Meddler
from arpguard_lab.cluster.mischief import Deed, Mischief
from arpguard_lab.cluster.pods import Pods
from arpguard_lab.cluster.topology import KubeAgent
from arpguard_lab.cluster.vouched import until_bound
from arpguard_lab.oracle import Finding, Spread
from arpguard_lab.topology import Host

SETTINGS = "audit: {every: 15s}"  # the shortest: as many chances as there can be to report what is not so
SECOND_CLIENT = ("client-2", 101)
_VIPS = [vip(50 + number) for number in range(4)]
_LOCAL = vip(60)  # its Pods may be on one node only: while that one is away, no node may answer
_PAIR: tuple[Address, Address] = vip(61), vip6(0x61)
EVERY: list[Address] = [*_VIPS, _LOCAL, *_PAIR]
_SERVICES = ("web", "both", "local")
_INTERVAL_S = 0.002  # of each client: every VIP is asked about more often than a hand-over may last
_SETTLE_EVERY, _BIND_EVERY = 8, 4
_SETTLE_S = 120.0  # within seconds, unless the machine is busy
_BIND_S = 20.0  # takes 12 s, unless what an earlier round has changed is in the way
_RETRY_S = 0.2
_LATEST_S = 90.0  # repairs are tried for so long: they may need an agent that starts again
_TELL_EVERY = 10
_KEPT = 30_000  # requests of each client that are remembered: a minute of them
_LONG_NS, _SOON_NS = 10 * NS_PER_S, 2 * NS_PER_S
_ON_THE_WIRE_NS = 50 * NS_PER_MS  # from the decision to the wire, on a machine that is busy


@dataclass(frozen=True, slots=True)
class Extent:
    """How long to continue: so many rounds, or rounds for so many seconds."""

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


class Schedule:
    """What the rounds of a seed do, one after the other; with a `meddler`, to the frames of vouching too."""

    def __init__(self, bench: KubeBench, seed: int, pods: Pods, meddler: Meddler | None = None) -> None:
        self._nodes = bench.nodes
        self._dice = Random(seed)  # noqa: S311 - no secret
        self._mischief = Mischief(bench, self._dice, EVERY, pods, meddler)
        self._sum = hashlib.sha256()

    def draw(self) -> tuple[list[Deed], float]:
        """The deeds of the next round, and how long to wait after them, in seconds."""
        hosts = self._dice.sample(self._nodes, k=min(self._dice.choice((1, 1, 2, 3)), len(self._nodes)))
        deeds = self._mischief.draw(hosts)
        for deed in deeds:
            self._sum.update(f"{deed.at_s:.6f} {deed.what}\n".encode())
        return deeds, self._dice.uniform(0.0, 1.0)

    @property
    def digest(self) -> str:
        """Of all that was drawn so far."""
        return self._sum.hexdigest()[:16]


class Rounds:
    """Plays rounds."""

    def __init__(self, bench: KubeBench, schedule: Schedule) -> None:
        self._bench = bench
        self._schedule = schedule
        self.done: Counter[str] = Counter()
        self.died: list[str] = []

    def play(self) -> str:
        """One round; what it was to do, in words."""
        deeds, pause_s = self._schedule.draw()
        self._perform(deeds)
        time.sleep(pause_s)
        self._revive()
        return ", ".join(deed.what for deed in deeds if deed.harm)

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
                self._revive()
                waiting += [] if deed.harm else [replace(deed, at_s=time.monotonic() - began + _RETRY_S)]
            else:
                self.done.update([deed.what.partition(":")[0]] if deed.harm else [])

    def _revive(self) -> None:
        """No agent may end by itself."""
        for host in self._bench.nodes:
            agent = self._bench.agent(host)
            if agent.has_failed:
                self.died.append(f"{host.name}: {' '.join(agent.said().strip().splitlines()[-1:])}")
                agent.start()


@dataclass(slots=True)
class Silence:
    """The longest time from one answer for a VIP to the next, by whomever, and what was done at its end.

    Of VIPs that every node may answer for.
    """

    length_ns: int = 0
    text: str = "none"
    _last_ns: dict[Address, int] = field(default_factory=dict)

    def hear(self, said: Sequence[Said], doing: str) -> None:
        """Takes answers in, in their order."""
        for each in said:
            if each.vip == _LOCAL:
                continue
            length_ns = each.time_ns - self._last_ns.get(each.vip, each.time_ns)
            if length_ns > self.length_ns:
                self.length_ns, self.text = length_ns, f"{each.vip}, {doing}"
            self._last_ns[each.vip] = each.time_ns


@dataclass(slots=True)
class _Record:
    """What was found besides answers that must not be."""

    began_s: float = field(default_factory=time.monotonic)
    number: int = 0
    settled_ns: list[int] = field(default_factory=list)
    heard: Counter[str] = field(default_factory=Counter)
    counted_before: dict[str, int] = field(default_factory=dict)
    silence: Silence = field(default_factory=Silence)
    stops: int = 0
    after_the_fence: int = 0
    kills: int = 0
    lost_before_fence: int = 0
    lost: list[str] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)
    apart: int = 0
    uncounted: int = 0
    accused: set[str] = field(default_factory=set)
    bound: list[bool] = field(default_factory=list)  # each node after each round
    began_bound: int = 0  # rounds
    broken_off: str = ""

    def violations(self, findings: Sequence[Finding]) -> dict[str, int]:
        """How often each promise was broken."""
        unbacked = sum(finding.kind == "unbacked" for finding in findings)
        return {
            "p1_violations": len(findings) - unbacked,
            "p2_violations": unbacked + self.after_the_fence,
            "p3_violations": len(self.strange),
            "p4_violations": self.lost_before_fence,
            "p5_violations": self.uncounted,
            "p6_violations": len(self.accused),
        }

    def facts(self) -> dict[str, object]:
        """All of it."""
        settled = Spread.of(self.settled_ns)
        facts: dict[str, object] = {
            "played_to_the_end": not self.broken_off,
            "settled_worst_ms": settled.worst_ms,
            "worst_silence_ms": ms(self.silence.length_ns),
            "worst_silence": self.silence.text,
            "own_addresses_answered": not self.strange,
            "both_families_had_one_owner": not self.apart,
            "stopped_and_asked_beyond_the_fence": self.stops,
            "silent_after_the_fence": not self.after_the_fence,
            "killed_and_asked_until_the_fence": self.kills,
            "lost_before_the_fence": self.lost_before_fence,
            "answers_outlive_the_agent": not self.lost_before_fence,
            "answers_uncounted": self.uncounted,
            "every_answer_counted": not self.uncounted,
            "nobody_wrongly_accused": not self.accused,
        }

        said = {
            "strange": "; ".join(self.strange[:3]),
            "lost": "; ".join(self.lost[:3]),
            "accused": "; ".join(sorted(self.accused)[:3]),
            "broken_off": self.broken_off,
        }

        return facts | {name: text for name, text in said.items() if text}


def run_rounds(
    bench: KubeBench,
    extent: Extent,
    seed: int,
    tell: Callable[[str], None] = lambda _text: None,
    *,
    vouching: bool = False,
) -> Iterator[Step]:
    """Rounds; a step for each that was not right, and one for all of it, also when they are broken off by a signal.

    `vouching`: the nodes vouch for each other, as the bench's settings say, and their frames are meddled with.
    """
    bench.publish("web", _VIPS)
    bench.publish("both", _PAIR)
    bench.publish("local", [_LOCAL], local=True)
    bench.endpoints("local", dict.fromkeys(bench.nodes, True))

    meddler = Meddler(bench.lab.switch, seed) if vouching else None
    schedule = Schedule(bench, seed, Pods(bench), meddler)
    rounds = Rounds(bench, schedule)
    dice = Random(f"{seed} looks")  # noqa: S311 - no secret; apart, so that the schedule is of the seed alone
    bench.settle(EVERY)
    bench.bind_everywhere(*EVERY)

    record = _Record(counted_before={host.name: bench.agent(host).answers_counted() for host in bench.nodes})
    second = Stream(bench.lab.hosts[SECOND_CLIENT[0]].listen(), EVERY, _INTERVAL_S, lane=1)
    with bench.watch(EVERY, _INTERVAL_S, also=second) as watch, _meddling(meddler):
        try:
            for record.number in extent.numbers():
                if vouching and record.number % _BIND_EVERY == 0:
                    _bind(bench, record)
                accused = set(record.accused)
                yield from _round(bench, watch, rounds, record, dice)
                for text in sorted(record.accused - accused):
                    tell(f"after round {record.number}, a wrong accusation: {text}")
                if record.number == 1 or record.number % _TELL_EVERY == 0:
                    tell(_progress(watch, record, extent))
            _look_closely(bench, watch, record, dice)
            bench.settle(EVERY, limit_s=_SETTLE_S)
            record.accused |= _wrongly_accused(bench, watch)
        except (ArpguardError, OSError, KeyboardInterrupt, SystemExit) as error:
            record.broken_off = str(error) if isinstance(error, (ArpguardError, OSError)) else "a signal"
            tell(f"stopped in round {record.number}: {record.broken_off}")

    fresh = _judge(bench, watch, record, "at the end")
    if fresh:
        yield _found(bench, "at the end", fresh)
    text = f"{record.number} rounds, seed {seed} (schedule {schedule.digest}): at most one node answered at any moment"
    yield _verdict(bench, watch, rounds, record, text, _of_vouching(record, meddler))


@contextmanager
def _meddling(meddler: Meddler | None) -> Iterator[None]:
    if meddler is None:
        yield
        return
    meddler.start()
    try:
        yield
    finally:
        meddler.stop()


def _of_vouching(record: _Record, meddler: Meddler | None) -> dict[str, object]:
    """How many of a hundred looks found a node's kernel bound, and how many frames were sent again."""
    if meddler is None:
        return {}
    return {
        "bound_percent": round(100 * sum(record.bound) / max(1, len(record.bound))),
        "rounds_begun_bound": record.began_bound,
        "frames_sent_again": meddler.sent.total(),
    }


def _bind(bench: KubeBench, record: _Record) -> None:
    """Restarts all agents, one after the other, and waits until every node is vouched for."""
    for host in bench.nodes:
        agent = bench.agent(host)
        agent.kill(signal.SIGKILL)
        agent.start()
        agent.wait_for()
    with suppress(ArpguardError, OSError):
        until_bound(bench, limit_s=_BIND_S)
        record.began_bound += 1


def _is_bound(agent: KubeAgent) -> bool:
    with suppress(ArpguardError, OSError):  # a fault may have removed its maps
        return agent.is_bound()
    return False


def _round(bench: KubeBench, watch: Watch, rounds: Rounds, record: _Record, dice: Random) -> Iterator[Step]:
    doing = f"round {record.number}: {rounds.play()}"
    fresh = _judge(bench, watch, record, doing)
    record.bound += [_is_bound(bench.agent(host)) for host in bench.nodes]
    if fresh:
        yield _found(bench, doing, fresh)
    if record.number % _SETTLE_EVERY == 0:
        _look_closely(bench, watch, record, dice)


def _progress(watch: Watch, record: _Record, extent: Extent) -> str:
    broken = sum(record.violations(watch.findings).values())
    minutes = (time.monotonic() - record.began_s) / 60
    return f"round {record.number} ({extent} in all), {minutes:.1f} min, {watch.sent} requests, {broken} violations"


def _judge(bench: KubeBench, watch: Watch, record: _Record, doing: str) -> list[Finding]:
    """New findings. What was said so far is judged by the journal, which is read after it; then it is forgotten."""
    known, known_unbacked = len(watch.oracle.findings), len(watch.unbacked)
    watch.poll()
    watch.said = [each for each in watch.said if each.vip in EVERY]  # hosts say what they like of their own addresses
    bench.check_against_journal(watch)
    record.heard.update(bench.lab.who(each.mac) for each in watch.said if not each.is_announcement)
    record.silence.hear(watch.said, doing)
    watch.said.clear()
    watch.forget(_KEPT)
    return [*watch.oracle.findings[known:], *watch.unbacked[known_unbacked:]]


def _look_closely(bench: KubeBench, watch: Watch, record: _Record, dice: Random) -> None:
    """Waits until exactly one node answers for each VIP, and looks at what is only known then."""
    began_ns = time.monotonic_ns()
    bench.settle(EVERY, limit_s=_SETTLE_S)
    record.settled_ns.append(time.monotonic_ns() - began_ns)
    record.apart += not _is_together(bench)
    record.accused |= _wrongly_accused(bench, watch)
    _ask_own_addresses(bench, record)
    _stop_one(bench, watch, record, dice.choice(bench.nodes))
    bench.settle_evenly(EVERY, _SETTLE_S)  # whoever comes back is handed VIPs, and what is handed over may be lost
    _kill_one(bench, watch, record, dice.choice(bench.nodes))
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


def _wrongly_accused(bench: KubeBench, watch: Watch) -> set[str]:
    """What Events and problems say of other hosts that answer, about VIPs for which never two answered."""
    doubled = {finding.vip for finding in watch.findings}
    for host in bench.nodes:
        bench.agent(host).wait_for()  # one that was just replaced has nothing to say yet
    events = [event for name in _SERVICES for event in bench.events("Service", name)]
    told = accusations(events, map(bench.status, bench.nodes))
    return {text for text in told if not any(str(address) in text for address in doubled)}


def _ask_own_addresses(bench: KubeBench, record: _Record) -> None:
    for host in bench.nodes:
        for address in (host.address, host.address6):
            answered = [bench.lab.who(mac) for mac in bench.all_who(address, [host])]
            if answered != [host.name]:
                record.strange.append(f"{answered or 'no host'} answered for {address} of {host.name}")


def _stop_one(bench: KubeBench, watch: Watch, record: _Record, victim: Host) -> None:
    """What an agent owned when it was stopped is not answered for by its kernel after the fence.

    One that is vouched for has its fence too far ahead to wait for it.
    """
    agent = bench.agent(victim)
    if agent.fence_ns() > boot_ns() + _LONG_NS:
        return
    owned = bench.owned(EVERY, victim)

    agent.send(signal.SIGSTOP)
    try:
        watch.wait(lambda: boot_ns() > agent.fence_ns() + NS_PER_S // 2, _SETTLE_S, "the fence has passed")
        fence_ns = agent.fence_ns() + max(now_ns() - boot_ns() for _ in range(9))  # two clocks, not read at once
    finally:
        agent.send(signal.SIGCONT)

    record.stops += bool(owned)
    late = [
        each
        for each in watch.said
        if each.vip in owned and each.mac == victim.mac and each.time_ns > fence_ns + _ON_THE_WIRE_NS
    ]
    record.after_the_fence += len(late)


def _kill_one(bench: KubeBench, watch: Watch, record: _Record, victim: Host) -> None:
    """What an agent owned when it was killed is answered for until the fence in its kernel.

    By its kernel's map: what it was just handing over is not its any more. Where the fence is far ahead the next agent
    has begun long before it.
    """
    agent = bench.agent(victim)
    agent.kill(signal.SIGKILL)
    owned = [address for address in agent.owned() if address in EVERY]
    killed_ns, left_ns = now_ns(), min(agent.fence_ns() - boot_ns(), _SOON_NS)

    agent.start()
    until_ns = killed_ns + max(0, left_ns) - AT_THE_FENCE_NS
    watch.wait(lambda: now_ns() > until_ns + NS_PER_S // 2, _SETTLE_S, "the fence has passed")

    record.kills += bool(owned)
    lost = {address: watch.stream.lost(address, killed_ns, until_ns) for address in owned}
    record.lost += [
        f"lost {count} requests for {address} of {victim.name}, whose agent was killed "
        f"{ms(until_ns - killed_ns)} ms before the fence"
        for address, count in lost.items()
        if count
    ]
    record.lost_before_fence += sum(lost.values())


def _found(bench: KubeBench, text: str, findings: list[Finding]) -> Step:
    address = findings[0].vip
    macs = bench.who(address)[address]
    shown = "; ".join(map(str, findings[:3]))
    return bench.step(text, address, [], macs, overlaps=len(findings), never_two_at_once=False, finding=shown)


def _verdict(
    bench: KubeBench, watch: Watch, rounds: Rounds, record: _Record, text: str, vouching: dict[str, object]
) -> Step:
    gaps = Spread.of([each.gap_ns for each in watch.gaps()])

    return bench.one_answers(
        text,
        _VIPS[0],
        rounds=record.number,
        faults=rounds.done.total(),
        **record.violations(watch.findings),
        requests_per_s=round(watch.sent / watch.lasted_s),
        handovers=gaps.count,
        median_gap_ms=gaps.median_ms,
        worst_gap_ms=gaps.worst_ms,
        agents_died=len(rounds.died),
        no_agent_died=not rounds.died,
        **record.facts(),
        **vouching,
        deeds=dict(sorted(rounds.done.items())),
        **({"deaths": "; ".join(rounds.died[:3])} if rounds.died else {}),
        **watch.facts(),
    )
