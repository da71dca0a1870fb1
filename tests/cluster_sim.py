"""A cluster that lives in a list of possible next steps: nodes with the real core, an API server, and everything slow.

Any message may be late, lost, or applied long after its sender gave up; watches show the past; nodes are paused,
killed and restarted between any two steps, with and without a parting lease, their leases change, hosts outside come
and go, and clocks run at different rates. The kernel is modelled by its rule alone: an entry of the control's epoch
answers while the fence lies ahead, no further than a lease, and a little after it was taken out (`on_wire`).

Besides that never two answer, some rules are checked where they apply: an entry needs an own CAS and a renewal that
was sent after it; nothing is released that the kernel answers for; no own heartbeat is stored while the kernel has a
longer fence than it allows.
"""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address
from typing import Any, TypeAlias

from arpguard.addresses import MacAddress
from arpguard.core.ownership.heartbeat import Times
from arpguard.core.ownership.machine import Kept, Ownership
from arpguard.core.ownership.records import (
    Claim,
    ClearEntry,
    DeleteClaim,
    Heartbeat,
    ListOwnClaims,
    Outcome,
    Probe,
    ReadClaim,
    ReadHeartbeat,
    SetEntry,
    SetFence,
    Version,
    WriteClaim,
    WriteHeartbeat,
)

MS = 1_000_000
D, R, M, S = 3000, 1000, 1000, 9000  # milliseconds, as `Simulation.time`; the core counts nanoseconds
TIMES = Times(D * MS, R * MS, M * MS, S * MS)
OTHER_TIMES = [TIMES, Times(2 * D * MS, 2 * R * MS, 2 * M * MS, S * MS), Times(4 * D * MS, R * MS, 4 * M * MS, S * MS)]
PARTING = 10 * D * MS
OUTSIDE = [MacAddress.parse("02:00:00:00:00:0a"), MacAddress.parse("02:00:00:00:00:0b"), None]
Choice: TypeAlias = tuple[float, str, Callable[[], None]]
VIPS = [IPv4Address("192.0.2.1"), IPv4Address("192.0.2.2")]


@dataclass
class Kernel:
    epoch: str = ""
    fence: int = 0
    lease: int = 0
    entries: dict[IPv4Address, str] = field(default_factory=dict)
    on_wire: dict[IPv4Address, str] = field(default_factory=dict)

    def fence_at(self, now: int) -> int:
        return self.fence if 0 < self.fence - now <= self.lease else 0

    def answers(self, vip: IPv4Address, now: int) -> bool:
        entry = self.entries.get(vip) or self.on_wire.get(vip)
        return bool(self.epoch) and entry == self.epoch and self.fence_at(now) > 0


class Api:
    """Linearizable: a write or read happens at one moment, which a step of the simulation chooses."""

    def __init__(self) -> None:
        self.objects: dict[object, Heartbeat | Claim] = {}
        self.watchers: list[deque[tuple[object, Heartbeat | Claim | None]]] = []
        self.outside: dict[object, MacAddress | None] = {}
        self.writes = 0
        self._revision = 0

    def _version(self, old: Version | None) -> Version:
        self._revision += 1
        return Version(old.uid if old else f"uid-{self._revision}", str(self._revision))

    def _store(self, name: object, value: Heartbeat | Claim | None) -> None:
        if value is None:
            self.objects.pop(name, None)
        else:
            self.objects[name] = value
        for queue in self.watchers:
            queue.append((name, value))

    def write(self, effect: WriteHeartbeat | WriteClaim | DeleteClaim) -> tuple[Outcome, Version | None]:
        name = effect.node if isinstance(effect, WriteHeartbeat) else effect.vip
        old = self.objects.get(name)
        self.writes += 1
        if effect.version is None and old is not None:
            return Outcome.CONFLICT, None
        if effect.version is not None and old is None:
            return Outcome.MISSING, None
        if old is not None and old.version != effect.version:
            return Outcome.CONFLICT, None
        version = self._version(effect.version)
        if isinstance(effect, DeleteClaim):
            self._store(name, replace(old, deleting=True, version=version))
        elif isinstance(effect, WriteHeartbeat):
            self._store(name, Heartbeat(effect.node, effect.epoch, effect.instance, effect.duration_ns, version))
        elif effect.let_go:
            self._store(name, None)
        else:
            deleting = isinstance(old, Claim) and old.deleting
            self._store(
                name,
                Claim(effect.vip, effect.holder, effect.epoch, version, deleting, effect.external, effect.transitions),
            )
        return Outcome.APPLIED, version

    def delete_claim(self, vip: IPv4Address) -> None:
        """`kubectl delete`: the finalizer keeps it, marked."""
        old = self.objects.get(vip)
        if isinstance(old, Claim) and not old.deleting:
            self._store(vip, replace(old, deleting=True, version=self._version(old.version)))

    def delete_heartbeat(self, node: str) -> None:
        if node in self.objects:
            self._store(node, None)

    def perform(self, effect: Any) -> Any:
        if isinstance(effect, WriteHeartbeat | WriteClaim | DeleteClaim):
            return self.write(effect)
        if isinstance(effect, ReadHeartbeat):
            return self.objects.get(effect.node)
        if isinstance(effect, ReadClaim):
            return self.objects.get(effect.vip)
        if isinstance(effect, Probe):
            return self.outside.get(effect.vip)
        return [claim for claim in self.objects.values() if isinstance(claim, Claim)]


@dataclass
class Request:
    """`result` is set when the server has performed it; `sender` is the incarnation that waits for the answer."""

    effect: Any
    sent_ns: int
    sender: int
    step: int
    performed: bool = False
    answered: bool = False
    result: Any = None


class Node:
    def __init__(self, sim: "Simulation", name: str, rate: float) -> None:
        self.sim = sim
        self.name = name
        self.rate = rate
        self.kernel = Kernel()
        self.incarnation = 0
        self.alive = False
        self.paused = False
        self.cut_off = False  # from the API server
        self.blind = False  # its watch shows nothing
        self.times = TIMES
        self.wanted: frozenset[IPv4Address] = frozenset()
        self.watch: deque[tuple[object, Any]] = deque()
        sim.api.watchers.append(self.watch)
        self.todo: deque[Any] = deque()
        self.requests: list[Request] = []
        self.boot()

    def now(self) -> int:
        return int(self.sim.time * self.rate * MS) + 1

    def boot(self) -> None:
        """A new incarnation of the agent; the kernel keeps what it has."""
        self.incarnation += 1
        self.alive, self.paused = True, False
        self.kernel.on_wire.clear()
        self.claimed: dict[tuple[IPv4Address, str], int] = {}  # the step in which the success of a CAS was heard of
        self.renewed: dict[str, int] = {}  # the step in which the last renewal that succeeded was sent
        kept = [vip for vip, epoch in self.kernel.entries.items() if epoch == self.kernel.epoch]
        for vip in set(self.kernel.entries) - set(kept):
            del self.kernel.entries[vip]
        self.core = Ownership(
            self.name,
            f"{self.name}/{self.incarnation}",
            self.times,
            self.sim.new_epoch,
            Kept(self.kernel.epoch, tuple(kept), self.kernel.fence_at(self.now())),
        )
        self.todo.clear()
        self.watch.clear()
        for name, value in self.sim.api.objects.items():
            self.watch.append((name, value))
        self.take(self.core.want(self.wanted, self.now()))

    def take(self, effects: list[Any]) -> None:
        self.todo.extend(effects)

    def do_next(self) -> None:
        effect = self.todo.popleft()
        if isinstance(effect, SetFence):
            self.kernel.epoch, self.kernel.fence, self.kernel.lease = effect.epoch, effect.fence_ns, effect.lease_ns
        elif isinstance(effect, SetEntry):
            self.check_entry(effect)
            self.kernel.entries[effect.vip] = effect.epoch
        else:
            if isinstance(effect, ClearEntry):
                self.clear(effect)
            if not isinstance(effect, ClearEntry) or effect.drain:
                self.requests.append(Request(effect, self.now(), self.incarnation, self.sim.steps))

    def clear(self, effect: ClearEntry) -> None:
        epoch = self.kernel.entries.pop(effect.vip, None)
        if effect.drain and epoch is not None:
            self.kernel.on_wire[effect.vip] = epoch

    def check_entry(self, effect: SetEntry) -> None:
        claimed = self.claimed.get((effect.vip, effect.epoch))
        if claimed is None or self.renewed.get(effect.epoch, -1) < claimed:
            raise BrokenRuleError(f"{self.name}: {effect} without an own CAS, or a renewal after it")

    def perform(self, effect: Any) -> Any:
        if isinstance(effect, ClearEntry):
            self.kernel.on_wire.pop(effect.vip, None)
            return None
        result = self.sim.api.perform(effect)
        if not isinstance(effect, WriteHeartbeat | WriteClaim) or result[0] is not Outcome.APPLIED:
            return result
        if isinstance(effect, WriteHeartbeat) and effect.node == self.name:
            self.check_fence(effect)
        if (
            isinstance(effect, WriteClaim)
            and effect.holder != self.name
            and self.kernel.answers(effect.vip, self.now())
        ):
            raise BrokenRuleError(f"{self.name}: {effect} while it answers")
        return result

    def check_fence(self, effect: WriteHeartbeat) -> None:
        """Others count the lease from now on, so the kernel must not count from later."""
        allowed = self.now() + effect.duration_ns * (D - M) // D
        if self.kernel.epoch == effect.epoch and self.kernel.fence_at(self.now()) > allowed:
            raise BrokenRuleError(f"{self.name}: fence {self.kernel.fence} beyond {allowed}, which {effect} allows")

    def answer(self, request: Request, *, lost: bool) -> None:
        """Hands the core what came of a request."""
        request.answered = True
        if request.sender == self.incarnation:
            if not lost:
                self.note(request)
            self.take(self.failed(request.effect, self.now()) if lost else self.done(request, self.now()))

    def note(self, request: Request) -> None:
        sent = request.effect
        if isinstance(sent, WriteClaim) and request.result[0] is Outcome.APPLIED and sent.holder == self.name:
            self.claimed[sent.vip, sent.epoch] = self.sim.steps
        if isinstance(sent, WriteHeartbeat) and request.result[0] is Outcome.APPLIED and sent.node == self.name:
            self.renewed[sent.epoch] = request.step

    def done(self, request: Request, now: int) -> list[Any]:
        core, sent, result = self.core, request.effect, request.result
        if isinstance(sent, ListOwnClaims):
            mine = [claim for claim in result if claim.holder == self.name]
            return core.own_claims_listed(mine, request.sent_ns, now)
        return {
            ClearEntry: lambda: core.drained(sent.vip, now),
            Probe: lambda: core.probed(sent.vip, result, now),
            WriteHeartbeat: lambda: core.heartbeat_written(sent, *result, request.sent_ns, now),
            WriteClaim: lambda: core.claim_written(sent, *result, now),
            DeleteClaim: lambda: core.claim_deleted(sent, *result, now),
            ReadHeartbeat: lambda: core.heartbeat_read(sent.node, result, request.sent_ns, now),
            ReadClaim: lambda: core.claim_read(sent.vip, result, now),
        }[type(sent)]()

    def failed(self, sent: Any, now: int) -> list[Any]:
        core, unknown = self.core, (Outcome.UNKNOWN, None)
        return {
            Probe: list,
            WriteHeartbeat: lambda: core.heartbeat_written(sent, *unknown, 0, now),
            WriteClaim: lambda: core.claim_written(sent, *unknown, now),
            DeleteClaim: lambda: core.claim_deleted(sent, *unknown, now),
            ReadHeartbeat: lambda: core.heartbeat_read_failed(sent.node, now),
            ReadClaim: lambda: core.claim_read_failed(sent.vip, now),
            ListOwnClaims: lambda: core.own_claims_list_failed(now),
        }[type(sent)]()

    def sees(self) -> bool:
        return bool(self.watch) and not (self.cut_off or self.blind)

    def see(self) -> None:
        name, value = self.watch.popleft()
        if isinstance(name, str):
            self.take(self.core.heartbeat_seen(name, value, self.now()))
        else:
            self.take(self.core.claim_seen(name, value, self.now()))


# What a node does not do while it is in a certain trouble.
NOT_HEARD = ("answered", "lost")
FROZEN = (*NOT_HEARD, "ticks", "sees", "does", "wants")
TROUBLES = [FROZEN, FROZEN, NOT_HEARD, ("performed",), ("performed", "lost"), ("sees",), ("does", *NOT_HEARD)]


class BrokenRuleError(AssertionError):
    pass


class DoubleAnswerError(BrokenRuleError):
    pass


class Simulation:
    """`rates`: how fast each node's clock runs."""

    def __init__(self, seed: int, rates: tuple[float, ...] = (1.0, 1.0, 1.0), vips: int = 2) -> None:
        self.random = random.Random(seed)
        self.time = 10_000.0
        self.steps = 0
        self.api = Api()
        self.vips = VIPS[:vips]
        self._epochs = 0
        self.owners: dict[IPv4Address, set[str]] = {vip: set() for vip in self.vips}
        self.nodes = [Node(self, f"n{number}", rate) for number, rate in enumerate(rates)]
        self.trace: deque[str] = deque(maxlen=400)
        self._likes: dict[str, float] = {}

    def new_epoch(self) -> str:
        self._epochs += 1
        return f"epoch-{self._epochs}"

    # ---- steps ----

    def choices(self) -> list[Choice]:
        found: list[Choice] = [
            (6, "time", lambda: self.pass_time(self.random.choice([10, 100, 300, 600]))),
            (0.15, "long time", lambda: self.pass_time(self.random.choice([1500, 3500]))),
        ]
        for node in self.nodes:
            found += self.choices_of(node)
        return found

    def choices_of(self, node: Node) -> list[Choice]:
        running = node.alive and not node.paused
        found = [
            (0.06, f"{node.name} pauses or goes on", lambda: self.pause(node)),
            (0.03, f"{node.name} restarts", node.boot),
            (0.01, f"{node.name} reboots", lambda: self.reboot(node)),
            (0.01, "claim deleted", lambda: self.api.delete_claim(self.random.choice(self.vips))),
            (0.005, f"{node.name}'s heartbeat deleted", lambda: self.api.delete_heartbeat(node.name)),
            (0.02, "host outside moves", self.move_outside),
        ]
        for request in node.requests:
            found += self.choices_about(node, request, heard=running and not node.todo)
        if running and node.todo:
            found.append((8, f"{node.name} does {node.todo[0]}", node.do_next))
        elif running:
            found.append((3, f"{node.name} ticks", lambda: node.take(node.core.tick(node.now()))))
            found.append((0.05, f"{node.name} wants", lambda: self.rewish(node)))
            found += self.changes_of(node)
            if node.watch:
                found.append((3, f"{node.name} sees {node.watch[0]}", node.see))
        return found

    def changes_of(self, node: Node) -> list[Choice]:
        return [
            (0.03, f"{node.name} parts", lambda: node.take(node.core.part(PARTING, node.now()))),
            (0.3 if node.core.parted else 0, f"{node.name} ends", node.boot),
            (0.05, f"{node.name} retimes", lambda: self.retime(node)),
            (0.03, f"{node.name} joins or leaves", lambda: self.take_part(node)),
            (0.02, f"{node.name} forgets", lambda: self.forget(node)),
        ]

    def choices_about(self, node: Node, request: Request, *, heard: bool) -> list[Choice]:
        """A request may be performed at any time, also long after its sender has given it up."""
        what = f"{request.effect}"
        found: list[Choice] = []
        if not request.performed:
            found.append((3, f"{node.name} performed {what}", lambda: self.perform(node, request)))
        if heard and not request.answered and request.performed:
            found.append((4, f"{node.name} answered {what}", lambda: node.answer(request, lost=False)))
        if heard and not request.answered and not isinstance(request.effect, ClearEntry):
            found.append((0.3, f"{node.name} lost {what}", lambda: node.answer(request, lost=True)))
        return found

    def step(self) -> None:
        choices = self.choices()
        weights = [weight * self._like(what) for weight, what, _ in choices]
        _, what, act = self.random.choices(choices, weights)[0]
        self.trace.append(f"{self.time:.0f} {what}")
        self.steps += 1
        act()
        for node in self.nodes:
            done = [request for request in node.requests if request.performed and request.answered]
            for request in done:
                node.requests.remove(request)
        self.check()

    def _like(self, what: str) -> float:
        """Every run prefers some kinds of steps, for some nodes, over others: rare orders become common in a few."""
        kind = " ".join(what.split("(", maxsplit=1)[0].split()[:3])
        if kind not in self._likes:
            self._likes[kind] = self.random.choice([0.1, 0.3, 1, 1, 1, 3, 10])
        return self._likes[kind]

    def pass_time(self, amount: int) -> None:
        self.time += amount

    def perform(self, node: Node, request: Request) -> None:
        request.performed = True
        request.result = node.perform(request.effect)

    def pause(self, node: Node) -> None:
        node.paused = not node.paused

    def reboot(self, node: Node) -> None:
        node.kernel = Kernel()
        node.boot()

    def rewish(self, node: Node) -> None:
        node.wanted = frozenset(vip for vip in self.vips if self.random.random() < 0.7)
        node.take(node.core.want(node.wanted, node.now()))

    def retime(self, node: Node) -> None:
        node.times = self.random.choice(OTHER_TIMES)
        node.take(node.core.set_times(node.times, node.now()))

    def take_part(self, node: Node) -> None:
        node.take(node.core.take_part(self.random.random() < 0.5, node.now()))

    def forget(self, node: Node) -> None:
        vip = self.random.choice(self.vips)
        node.wanted -= {vip}
        node.take(node.core.forget(vip, node.now()))

    def move_outside(self) -> None:
        self.api.outside[self.random.choice(self.vips)] = self.random.choice(OUTSIDE)

    def check(self) -> None:
        for vip in self.vips:
            who = [node.name for node in self.nodes if node.kernel.answers(vip, node.now())]
            self.owners[vip].update(who)
            if len(who) > 1:
                raise DoubleAnswerError(f"{vip}: {who}\n" + "\n".join(self.trace))

    # ---- progress ----

    def settle(self, leases: int = 16) -> None:
        """Everybody is well, nothing is lost, and nobody outside has a VIP: for so many leases."""
        self.api.outside.clear()
        for node in self.nodes:
            node.times = TIMES
            node.boot()
            node.wanted = frozenset(self.vips)
            node.take(node.core.want(node.wanted, node.now()))
        self.run_quickly(leases * D, longest=200)
        before = self.api.writes
        self.run_quickly(3 * D, longest=200)
        if self.api.writes - before > len(self.nodes) * (3 * D // R + 1):
            raise BrokenRuleError(f"{self.api.writes - before} writes at rest:\n" + "\n".join(self.trace))

    def run_quickly(self, duration: float, without: tuple[Node, ...] = (), longest: float = 20) -> None:
        """Everything that nodes ask for is done at once, and they are woken when they asked for it, no earlier.

        It is looked at least every `longest` milliseconds who answers.
        """
        until = self.time + duration
        while self.time < until:
            nodes = [node for node in self.nodes if node not in without]
            for _ in range(100):
                if not sum(self.work_off(node) for node in nodes):
                    break
            else:
                raise BrokenRuleError("no end of it:\n" + "\n".join(self.trace))
            self.check()
            self.pass_time(min([until - self.time, *(self.sleep_of(node, longest) for node in nodes)]))

    def sleep_of(self, node: Node, longest: float) -> float:
        due = node.core.next_ns(node.now())
        return longest if due is None else min(longest, max(0.1, (due - node.now()) / MS / node.rate))

    def work_off(self, node: Node) -> bool:
        """Everything that waits, the API first, and a tick if it is due. False: there was nothing."""
        due = node.core.next_ns(node.now())
        if due is not None and due <= node.now():
            node.take(node.core.tick(node.now()))
        elif not (node.todo or node.requests or node.sees()):
            return False
        while node.todo:
            self.steps += 1
            node.do_next()
        for request in sorted(node.requests, key=lambda request: isinstance(request.effect, ClearEntry)):
            self.steps += 1
            node.requests.remove(request)
            self.trace.append(f"{self.time:.1f} {node.name} {request.effect}")
            lost = node.cut_off and not isinstance(request.effect, ClearEntry | Probe)
            if not (request.performed or lost):
                self.perform(node, request)
            if not request.answered:
                node.answer(request, lost=lost)
        if node.sees() and not node.todo:
            node.see()
        return True

    def answering(self, vip: IPv4Address) -> list[str]:
        return [node.name for node in self.nodes if node.kernel.answers(vip, node.now())]


class TroubledSimulation(Simulation):
    """All is quick and well, but for one node, for about a lease: then for another one, or in another way."""

    def __init__(self, seed: int, rates: tuple[float, ...] = (1.0, 1.0, 1.0), vips: int = 2) -> None:
        super().__init__(seed, rates, vips)
        self._until = 0.0
        self._troubled = ""
        self._trouble: tuple[str, ...] = ()

    def step(self) -> None:
        if self.time >= self._until:
            self._until = self.time + self.random.uniform(D / 6, 2 * D)
            self._troubled = self.random.choice(self.nodes).name
            self._trouble = self.random.choice(TROUBLES)
        super().step()

    def _like(self, what: str) -> float:
        who, does = what.split(maxsplit=2)[:2] if " " in what else (what, "")
        if who == "long":
            return 0.02
        return 0.0 if who == self._troubled and does in self._trouble else 1.0

    def pass_time(self, amount: int) -> None:
        super().pass_time(amount if amount <= 10 else amount // 2)
