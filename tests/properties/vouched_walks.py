"""Chance drives the simulated cluster with vouching, by long steps and short ones, so that few steps lead far.

In a long step all is done that can be, but for what some nodes are in trouble with; in a short one a single frame
arrives, or a single thing is done.
"""

import random
from collections.abc import Callable
from typing import TypeAlias

from arpguard.core.ownership.records import ClearEntry
from support.protocol.simulation import (
    GRANT,
    OTHER_TIMES,
    TROUBLES,
    VOUCHING_TROUBLES,
    D,
    Frame,
    Node,
    Request,
    Simulation,
)

Choice: TypeAlias = tuple[float, Callable[[], None]]

WHILES = (1, 50, 150, 300, GRANT - 100, GRANT, GRANT + 300, 2500, D, 3 * D)
ALL_TROUBLES = (*TROUBLES, *VOUCHING_TROUBLES, *VOUCHING_TROUBLES)


class VouchedWalk:
    """A seed chooses everything, the number of nodes and the rates of their clocks included."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        rates = self.random.choice([(1.0, 1.0), (0.82, 1.18), (1.18, 0.82), (1.0, 1.0, 1.0), (0.82, 1.18, 1.0)])
        self.sim = Simulation(rates, self.random.choice([1, 1, 2]), vouching=True, seeks=self.random.random() < 0.7)
        for node in self.sim.nodes:
            node.wish(self.sim.vips)
        self.sim.run_quickly(2 * D)

    @classmethod
    def of(cls, sim: Simulation, dice: random.Random) -> "VouchedWalk":
        """Through a cluster that there is."""
        walk = cls.__new__(cls)
        walk.sim, walk.random = sim, dice
        return walk

    def step(self) -> None:
        choices = self.choices()
        _, act = self.random.choices(choices, [weight for weight, _ in choices])[0]
        act()

    def choices(self) -> list[Choice]:
        api = self.sim.api
        found: list[Choice] = [
            (6.0, self.goes_on),
            (1.0, lambda: self.sim.pass_time(self.random.choice([10, 50, 200, 500]))),
            (0.2, lambda: api.delete_claim(self.random.choice(self.sim.vips))),
            (0.5 if self.sim.past else 0, lambda: self.sim.deliver(self.random.choice(self.sim.past))),
            (3.0 if self.sim.frames else 0, lambda: self.sim.deliver(self.taken())),
            (0.5 if self.sim.frames else 0, lambda: self.sim.past.append(self.taken())),
        ]
        for node in self.sim.nodes:
            found += self.choices_of(node)
        return found

    def taken(self) -> Frame:
        """Frames overtake each other."""
        frame = self.random.choice(self.sim.frames)
        self.sim.frames.remove(frame)
        return frame

    def goes_on(self) -> None:
        for _ in range(self.random.choice([0, 1, 1, 2, 3])):
            setattr(self.random.choice(self.sim.nodes), self.random.choice(ALL_TROUBLES), True)
        self.sim.run_quickly(self.random.choice(WHILES))
        for node in self.sim.nodes:
            node.recover()

    def choices_of(self, node: Node) -> list[Choice]:
        found: list[Choice] = [
            (0.2, node.boot),
            (0.05, node.reboot),
            (0.05, lambda: self.sim.api.delete_heartbeat(node.name)),
            (0.6, node.vouches),
        ]
        for request in list(node.requests):
            found += self.choices_about(node, request)
        if node.todo:
            return [*found, (2.0, node.do_next)]
        if node.sees():
            found.append((0.6, node.see))
        if node.decided:
            found.append((1.0, node.hears_decision))
        names = [None, *(other.name for other in self.sim.nodes if other is not node)]
        return [
            *found,
            (0.6, node.tick),
            (0.4, lambda: node.name_voucher(self.random.choice(names))),
            (0.1, node.part),
            (0.2, lambda: node.wish(vip for vip in self.sim.vips if self.random.random() < 0.7)),
            (0.1, lambda: node.retime(self.random.choice(OTHER_TIMES))),
            (0.1, lambda: node.take_part(self.random.random() < 0.5)),
        ]

    def choices_about(self, node: Node, request: Request) -> list[Choice]:
        heard = not (request.answered or node.todo)
        found: list[Choice] = []
        if not request.performed:
            found.append((0.6, lambda: node.perform(request)))
        if heard and request.performed:
            found.append((1.0, lambda: self.answers(node, request, lost=False)))
        if heard and not isinstance(request.effect, ClearEntry):
            found.append((0.2, lambda: self.answers(node, request, lost=True)))
        return found

    def answers(self, node: Node, request: Request, *, lost: bool) -> None:
        node.answer(request, lost=lost)
        if request.performed:
            node.requests.remove(request)
