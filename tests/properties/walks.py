"""Chance drives the simulated cluster: every step is drawn from all that are possible then, by the weight it has."""

import random
from collections.abc import Callable
from typing import TypeAlias

from support.protocol.simulation import OTHER_TIMES, OUTSIDE, ClearEntry, D, Node, Request, Simulation

Choice: TypeAlias = tuple[float, str, Callable[[], None]]


class RandomWalk:
    """A seed chooses everything."""

    def __init__(self, seed: int, rates: tuple[float, ...]) -> None:
        self.random = random.Random(seed)
        self.sim = Simulation(rates)
        self._likes: dict[str, float] = {}
        for node in self.sim.nodes:
            self.rewish(node)

    def step(self) -> None:
        choices = self.choices()
        weights = [weight * self.like(what) for weight, what, _ in choices]
        _, _, act = self.random.choices(choices, weights)[0]
        act()
        for node in self.sim.nodes:
            node.requests = [request for request in node.requests if not (request.performed and request.answered)]

    def like(self, what: str) -> float:
        """Every run prefers some kinds of steps, for some nodes, over others: rare orders become common in a few."""
        if what not in self._likes:
            self._likes[what] = self.random.choice([0.1, 0.3, 1, 1, 1, 3, 10])
        return self._likes[what]

    def pass_time(self, milliseconds: int) -> None:
        self.sim.pass_time(milliseconds)

    def choices(self) -> list[Choice]:
        api = self.sim.api
        found: list[Choice] = [
            (6, "time", lambda: self.pass_time(self.random.choice([10, 100, 300, 600]))),
            (0.15, "long time", lambda: self.pass_time(self.random.choice([1500, 3500]))),
            (0.03, "claim deleted", lambda: api.delete_claim(self.a_vip())),
            (0.06, "host outside moves", lambda: api.outside.update({self.a_vip(): self.random.choice(OUTSIDE)})),
        ]
        for node in self.sim.nodes:
            found += self.choices_of(node)
        return found

    def choices_of(self, node: Node) -> list[Choice]:
        name = node.name
        found: list[Choice] = [
            (0.06, f"{name} pauses", lambda: setattr(node, "paused", not node.paused)),
            (0.03, f"{name} restarts", node.boot),
            (0.01, f"{name} reboots", node.reboot),
            (0.005, f"{name} heartbeat deleted", lambda: self.sim.api.delete_heartbeat(name)),
        ]
        for request in node.requests:
            found += self.choices_about(node, request)
        if not node.paused and node.todo:
            found.append((8, f"{name} does {kind(node.todo[0])}", node.do_next))
        elif not node.paused:
            found.append((3, f"{name} ticks", node.tick))
            found += self.changes_of(node)
        if node.sees():
            found.append((3, f"{name} sees", node.see))
        return found

    def changes_of(self, node: Node) -> list[Choice]:
        name = node.name
        return [
            (0.05, f"{name} wants", lambda: self.rewish(node)),
            (0.03, f"{name} parts", node.part),
            (0.3 if node.core.heartbeat.parted else 0, f"{name} ends", node.boot),
            (0.05, f"{name} retimes", lambda: node.retime(self.random.choice(OTHER_TIMES))),
            (0.03, f"{name} joins", lambda: node.take_part(self.random.random() < 0.5)),
            (0.02, f"{name} forgets", lambda: node.forget(self.a_vip())),
        ]

    def choices_about(self, node: Node, request: Request) -> list[Choice]:
        """A request may be performed at any time, also long after its sender has given it up."""
        heard = not (request.answered or node.paused or node.todo)
        what = kind(request.effect)
        found: list[Choice] = []
        if not request.performed:
            found.append((3, f"{node.name} performed {what}", lambda: node.perform(request)))
        if heard and request.performed:
            found.append((4, f"{node.name} answered {what}", lambda: node.answer(request, lost=False)))
        if heard and not isinstance(request.effect, ClearEntry):
            found.append((0.3, f"{node.name} lost {what}", lambda: node.answer(request, lost=True)))
        return found

    def rewish(self, node: Node) -> None:
        node.wish(vip for vip in self.sim.vips if self.random.random() < 0.7)

    def a_vip(self):
        return self.random.choice(self.sim.vips)


def kind(effect: object) -> str:
    return type(effect).__name__


# What a node does not do while it is in a certain trouble.
NOT_HEARD = ("answered", "lost")
FROZEN = (*NOT_HEARD, "ticks", "sees", "does", "wants")
TROUBLES = [FROZEN, FROZEN, NOT_HEARD, ("performed",), ("performed", "lost"), ("sees",), ("does", *NOT_HEARD)]


class TroubledWalk(RandomWalk):
    """All is quick and well, but for one node, for about a lease: then for another one, or in another way."""

    def __init__(self, seed: int, rates: tuple[float, ...]) -> None:
        super().__init__(seed, rates)
        self._until = 0.0
        self._troubled = ""
        self._trouble: tuple[str, ...] = ()

    def step(self) -> None:
        if self.sim.time >= self._until:
            self._until = self.sim.time + self.random.uniform(D / 6, 2 * D)
            self._troubled = self.random.choice(self.sim.nodes).name
            self._trouble = self.random.choice(TROUBLES)
        super().step()

    def like(self, what: str) -> float:
        who, does = what.split(maxsplit=2)[:2] if " " in what else (what, "")
        if who == "long":
            return 0.02
        return 0.0 if who == self._troubled and does in self._trouble else 1.0

    def pass_time(self, milliseconds: int) -> None:
        super().pass_time(milliseconds if milliseconds <= 10 else milliseconds // 2)
