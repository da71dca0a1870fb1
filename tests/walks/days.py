"""Days of a simulated cluster: what happens in them as a list of steps, which can be played again, cut, and printed.

In each hour something happens: a few troubles, restarts, deletions or changes, which may overlap, or a rolling
upgrade. Then all is well again until one node answers for each VIP, and the rest of the hour is leaped over: a cluster
at rest repeats itself. So a day is some minutes of steps with about 90 faults, and the calendar counts the rest.

Agents are of two kinds: of the first version, without vouching, and with it. A rolling upgrade replaces them one after
the other, in a few seconds or with an hour in between, and may be broken off, so that agents of both kinds go on.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, TypeAlias

from properties.vouched_walks import WHILES, VouchedWalk
from support.protocol.simulation import (
    MS,
    OTHER_TIMES,
    OUTSIDE,
    PARTING,
    TIMES,
    TROUBLES,
    VOUCHING_TROUBLES,
    Backup,
    BrokenRuleError,
    D,
    Frame,
    Node,
    Simulation,
    judging,
)
from support.protocol.trace_rules import Checker
from walks.shrinking import Shrinking

HOUR = 3_600_000  # milliseconds, as all that is simulated
HOURS = 24
WELL_WITHIN = 120_000  # the longest lease of all is that of a parted agent, and comes before the others'
PARTS_WITHIN = 300
RATES = [(1.0, 1.0), (0.82, 1.18), (1.0, 1.0, 1.0), (0.82, 1.18, 1.0), (1.18, 1.0, 0.82), (1.0, 1.0, 1.0, 1.0)]
SINGLE_MOVES = [10, 30, 60]
UPGRADES_A_DAY = 2
MANY_WRITES = 1_000_000


@dataclass(frozen=True)
class Step:
    """`node`: its place. `number`: milliseconds, VIPs as bits, a seed, by what it `does`."""

    does: str
    node: int = 0
    number: int = 0

    def __str__(self) -> str:
        return TEXTS.get(self.does, f"n{{0}} {self.does}").format(self.node, self.number)


@dataclass(frozen=True)
class Beginning:
    """The cluster before the first step. `judged`: its trace is judged by the checker, besides."""

    rates: tuple[float, ...]
    vips: int
    vouching: tuple[bool, ...]
    judged: bool = False

    def __str__(self) -> str:
        kinds = ", ".join(f"n{place} {'with' if yes else 'without'}" for place, yes in enumerate(self.vouching))
        return f"{self.vips} VIPs, clocks {self.rates}, vouching: {kinds}"


class Life:
    """A cluster, and what was played with it. `calendar`: its age, with the hours that it leaped over."""

    def __init__(self, beginning: Beginning) -> None:
        checker = Checker({f"n{place}": rate for place, rate in enumerate(beginning.rates)})
        with judging(lambda line: _judge(checker, line)) if beginning.judged else judging(None):
            self.sim = Simulation(beginning.rates, beginning.vips, vouching=True)
        self._dead: set[str] = set()
        self._backup: Backup = {}
        self._began = self.sim.time
        self.leaped = 0.0
        for node, vouching in zip(self.sim.nodes, beginning.vouching, strict=True):
            node.boot_as(vouching, TIMES)
            node.wish(self.sim.vips)
        self.sim.run_quickly(2 * D)

    @property
    def simulated(self) -> float:
        return self.sim.time - self._began

    @property
    def calendar(self) -> float:
        return self.simulated + self.leaped

    def play(self, step: Step) -> None:
        DOES[step.does](self, step)

    def node_of(self, step: Step) -> Node:
        return self.sim.nodes[step.node % len(self.sim.nodes)]

    # ---- what steps do ----

    def runs(self, step: Step) -> None:
        self.sim.run_quickly(step.number)

    def recover(self) -> None:
        """Troubles end; who died starts again."""
        self.sim.is_lost = lambda _frame: False
        for node in self.sim.nodes:
            node.recover()
        self._revive()

    def _revive(self) -> None:
        for node in self.sim.nodes:
            if node.name in self._dead:
                node.recover()
                node.reboot()
        self._dead.clear()

    def is_well(self) -> None:
        """All want everything, and before long one answers for each VIP."""
        self.recover()
        self.sim.api.outside.clear()
        for node in self.sim.nodes:
            node.retime(TIMES)
            node.take_part(True)
            node.wish(self.sim.vips)
        until = self.sim.time + WELL_WITHIN
        self.sim.run_quickly(D)
        for node in self.sim.nodes:
            if node.core.heartbeat.parted:
                node.boot()

        while any(len(self.sim.answering(vip)) != 1 for vip in self.sim.vips):
            if self.sim.time >= until:
                raise BrokenRuleError(f"nobody answers for {WELL_WITHIN // 1000} s\n{self.sim.story()}")
            self.sim.run_quickly(D / 3)

    def rests(self) -> None:
        """Until the next full hour. Nodes that vouch for each other first bind."""
        self.sim.run_quickly(D)
        self.leaped += -self.calendar % HOUR

    def dies(self, step: Step) -> None:
        self.node_of(step).die()
        self._dead.add(self.node_of(step).name)

    def deletes_claim(self, step: Step) -> None:
        self.sim.api.delete_claim(self.sim.vips[step.number % len(self.sim.vips)])

    def host_outside(self, step: Step) -> None:
        self.sim.api.outside[self.sim.vips[step.node % len(self.sim.vips)]] = OUTSIDE[step.number]

    def wants(self, step: Step) -> None:
        vips = [vip for place, vip in enumerate(self.sim.vips) if step.number >> place & 1]
        self.node_of(step).wish(vips)

    def backs_up(self) -> None:
        """Most that is written from then on is of other kinds, so no version is handed out twice."""
        self._backup = dict(self.sim.api.objects)
        self.sim.api.others_write(MANY_WRITES)

    def restores(self) -> None:
        """No node reaches the server for the longest lease; then the last backup is restored."""
        self.recover()
        with self.sim.outage(PARTING / MS):
            if self._backup:
                self.sim.api.restore(self._backup)

    def loses_frames(self, step: Step) -> None:
        """Every one of so many."""
        count = 0

        def is_lost(_frame: Frame) -> bool:
            nonlocal count
            count += 1
            return count % step.number == 0

        self.sim.is_lost = is_lost

    def frames_again(self, step: Step) -> None:
        for frame in list(self.sim.past)[:: max(1, step.number)]:
            self.sim.deliver(frame)

    def moves_singly(self, step: Step) -> None:
        """Messages and effects one by one, in an order by chance: in it any may be late, lost or doubled."""
        self._revive()
        walk = VouchedWalk.of(self.sim, Random(step.number))
        for _ in range(step.node):
            walk.step()

    def restarts_as(self, vouching: bool) -> Callable[[Step], None]:
        return lambda step: self.node_of(step).boot_as(vouching, TIMES)

    def is_replaced_by(self, vouching: bool) -> Callable[[Step], None]:
        """As a rollout does: the agent parts, if it can, and the next one is of that kind."""

        def replaces(step: Step) -> None:
            node = self.node_of(step)
            if not node.paused:
                node.part()
            self.sim.run_quickly(PARTS_WITHIN)
            if node.name not in self._dead:
                node.boot_as(vouching, TIMES)

        return replaces


def _judge(checker: Checker, line: dict[str, Any]) -> None:
    for broken in checker.take(line):
        raise BrokenRuleError(f"the trace breaks a rule: {broken}\n" + "\n".join(map(str, checker.shown(broken))))


Does: TypeAlias = Callable[[Life, Step], None]


def _of_node(does: Callable[[Node, int], object]) -> Does:
    return lambda life, step: does(life.node_of(step), step.number)


_TROUBLES = {
    "paused": "'s agent stands still",
    "stalled": "'s requests wait",
    "deaf": " gets no answers",
    "cut_off": " is cut off from the API server",
    "blind": "'s watches stand still",
    "unplugged": " is unplugged",
    "voucher_stalled": "'s voucher stands still",
}
DOES: dict[str, Does] = {
    "runs": Life.runs,
    "recover": lambda life, _: life.recover(),
    "is well": lambda life, _: life.is_well(),
    "rests": lambda life, _: life.rests(),
    "settles": lambda life, _: life.sim.settle(),
    "restarts": _of_node(lambda node, _: node.boot()),
    "reboots": _of_node(lambda node, _: node.reboot()),
    "dies": Life.dies,
    "parts": _of_node(lambda node, _: node.part()),
    "restarts with vouching": lambda life, step: life.restarts_as(True)(step),
    "restarts without vouching": lambda life, step: life.restarts_as(False)(step),
    "is replaced, with vouching": lambda life, step: life.is_replaced_by(True)(step),
    "is replaced, without vouching": lambda life, step: life.is_replaced_by(False)(step),
    "heartbeat deleted": _of_node(lambda node, _: node.sim.api.delete_heartbeat(node.name)),
    "claim deleted": Life.deletes_claim,
    "backed up": lambda life, _: life.backs_up(),
    "backup restored": lambda life, _: life.restores(),
    "host outside": Life.host_outside,
    "wants": Life.wants,
    "has other times": _of_node(lambda node, number: node.retime(OTHER_TIMES[number % len(OTHER_TIMES)])),
    "takes part": _of_node(lambda node, number: node.take_part(number > 0)),
    "frames lost": Life.loses_frames,
    "frames again": Life.frames_again,
    "moves singly": Life.moves_singly,
    **{name: _of_node(lambda node, _, name=name: setattr(node, name, True)) for name in _TROUBLES},
}
TEXTS = {
    "runs": "{1} ms pass",
    "recover": "troubles end",
    "is well": "all is well until one answers",
    "rests": "it rests until the next hour",
    "settles": "it settles",
    "heartbeat deleted": "n{0}'s heartbeat is deleted",
    "claim deleted": "the claim of VIP {1} is deleted",
    "backed up": "the API server is backed up",
    "backup restored": "no node reaches the API server for the longest lease; then the last backup is restored",
    "host outside": "host {1} outside has VIP {0}",
    "wants": "n{0} wants the VIPs {1:b}",
    "has other times": "n{0} has the times {1}",
    "takes part": "n{0} takes part: {1}",
    "frames lost": "every {1}th frame is lost",
    "frames again": "every {1}th frame comes again",
    "moves singly": "{0} single moves (seed {1})",
    **{name: f"n{{0}}{text}" for name, text in _TROUBLES.items()},
}


# ---- by chance ----


def beginning(seed: int, *, judged: bool) -> Beginning:
    """Of a life: all its nodes of one kind, or an upgrade is half done."""
    dice = Random(f"{seed} begins")
    rates = dice.choice(RATES)
    upgraded = dice.choice([0, len(rates), len(rates), dice.randint(0, len(rates))])
    return Beginning(rates, dice.choice([1, 1, 2]), tuple(place < upgraded for place in range(len(rates))), judged)


def a_life(seed: int, nodes: int, hours: int) -> Iterator[Step]:
    """An upgrade may take several hours."""
    dice = Random(f"{seed} lives")
    to_vouching, rests = dice.random() < 0.5, 0
    while rests < hours:
        if dice.random() < UPGRADES_A_DAY / HOURS:
            steps = list(_upgrade(dice, nodes, to_vouching))
            to_vouching = not to_vouching
        else:
            steps = list(_an_hour(dice, nodes))

        yield from steps
        yield from (Step("is well"), Step("rests"))
        rests += 1 + sum(step.does == "rests" for step in steps)
    yield Step("settles")


def _an_hour(dice: Random, nodes: int) -> Iterator[Step]:
    for _ in range(dice.choice([1, 2, 3, 4, 6])):
        for _ in range(dice.choice([1, 1, 1, 2])):
            yield _a_fault(dice, nodes)
        yield Step("runs", number=dice.choice(WHILES))
        if dice.random() < 0.5:
            yield Step("recover")


def _upgrade(dice: Random, nodes: int, to_vouching: bool) -> Iterator[Step]:
    """One node after the other; some upgrades are broken off, and some go on in spite of faults."""
    order = dice.sample(range(nodes), nodes)
    kind = "with" if to_vouching else "without"
    how = dice.choices([f"is replaced, {kind} vouching", f"restarts {kind} vouching"], [3, 1])[0]
    calm, slow = dice.random() < 0.5, dice.random() < 0.2
    for node in order[: dice.choice([nodes, nodes, dice.randint(1, nodes)])]:
        yield Step(how, node)
        if not calm:
            yield _a_fault(dice, nodes)
        yield Step("runs", number=dice.choice(WHILES))
        if slow:
            yield Step("is well")
            yield Step("rests")


def _a_fault(dice: Random, nodes: int) -> Step:
    does = dice.choices(list(FAULTS), [weight for weight, _ in FAULTS.values()])[0]
    _, draw = FAULTS[does]
    return Step(does, *draw(dice, nodes))


Draw: TypeAlias = Callable[[Random, int], tuple[int, int]]


def _drawn(numbers: Sequence[int] = (0,)) -> Draw:
    return lambda dice, nodes: (dice.randrange(nodes), dice.choice(numbers))


FAULTS: dict[str, tuple[float, Draw]] = {
    **{trouble: (2.0, _drawn()) for trouble in TROUBLES},
    **{trouble: (4.0, _drawn()) for trouble in VOUCHING_TROUBLES},
    "restarts": (3.0, _drawn()),
    "reboots": (1.0, _drawn()),
    "dies": (1.5, _drawn()),
    "parts": (1.0, _drawn()),
    "heartbeat deleted": (1.0, _drawn()),
    "claim deleted": (0.5, _drawn((0, 1))),
    "backed up": (0.5, _drawn()),
    "backup restored": (0.5, _drawn()),
    "host outside": (0.5, lambda dice, _: (dice.randrange(2), dice.randrange(len(OUTSIDE)))),
    "wants": (2.0, _drawn((0, 1, 2, 3))),
    "has other times": (0.7, _drawn((0, 1, 2))),
    "takes part": (0.7, _drawn((0, 1))),
    "frames lost": (1.5, _drawn((1, 2, 5, 20))),
    "frames again": (0.7, _drawn((1, 7))),
    "moves singly": (2.0, lambda dice, _: (dice.choice(SINGLE_MOVES), dice.getrandbits(32))),
}


# ---- playing, and playing less ----


@dataclass
class Played:
    """`error`: what broke in the last of the `steps`, "" if nothing did."""

    start: Beginning
    steps: list[Step] = field(default_factory=list)
    error: str = ""
    calendar: float = 0
    simulated: float = 0

    @property
    def faults(self) -> int:
        return sum(step.does in FAULTS for step in self.steps)


def live(seed: int, days: int) -> Played:
    """The life of a seed; the traces of every second one are judged."""
    start = beginning(seed, judged=seed % 2 == 1)
    return play(start, a_life(seed, len(start.rates), days * HOURS))


def play(start: Beginning, steps: Iterable[Step]) -> Played:
    played = Played(start)
    try:
        life = Life(start)
        for step in steps:
            played.steps.append(step)
            life.play(step)
            played.calendar, played.simulated = life.calendar, life.simulated
    except Exception as error:  # noqa: BLE001 - a crash of the core is a finding, too
        played.error = f"{type(error).__name__}: {error}"
    return played


def shortened(played: Played, tries: int) -> Played:
    """The shortest list of steps in which something breaks that so many tries find."""
    shrinking = Shrinking(lambda steps: play(played.start, steps).error != "", simpler, tries)
    return play(played.start, shrinking.shortest(played.steps))


def simpler(step: Step) -> Iterator[Step]:
    """The same with less, the least first."""
    if step.does == "runs":
        yield from (replace(step, number=each) for each in WHILES if each < step.number)
    if step.does == "moves singly":
        yield from (replace(step, node=step.node * part // 4) for part in range(1, 4))
