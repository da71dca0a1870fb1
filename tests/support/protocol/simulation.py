"""A cluster that lives in a list of possible next steps: nodes with the real core, an API server, and everything slow.

Any message may be late, lost, or applied long after its sender gave up; watches show the past; nodes are paused,
killed and restarted between any two steps, with and without a parting lease, their leases change, hosts outside come
and go, and clocks run at different rates. The kernel is modelled by its rule alone: an entry of the control's epoch
answers while the fence lies ahead, no further than a lease, and a little after it was taken out (`on_wire`).

Besides that never two answer, some rules are checked where they apply: an entry needs an own CAS and a renewal that
was sent after it; nothing is released that the kernel answers for; no own heartbeat is stored while the kernel has a
longer fence than it allows. All of this is checked in every step, whoever drives the simulation: chance
(`properties/walks`), Hypothesis (`properties/machine`), or a story (`stories`).
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address
from typing import Any

from arpguard.addresses import MacAddress
from arpguard.core.ownership.lease import Times
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
REST = 2 * R
TIMES = Times(D * MS, R * MS, M * MS, S * MS, REST * MS)
OTHER_TIMES = [
    TIMES,
    Times(2 * D * MS, 2 * R * MS, 2 * M * MS, S * MS, 4 * R * MS),
    Times(4 * D * MS, R * MS, 4 * M * MS, S * MS, R * MS),
]
PARTING = 10 * D * MS
OUTSIDE = [MacAddress.parse("02:00:00:00:00:0a"), MacAddress.parse("02:00:00:00:00:0b"), None]
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

    @property
    def is_local(self) -> bool:
        """Whether the API server has no part in it."""
        return isinstance(self.effect, ClearEntry | Probe)


class Node:
    def __init__(self, sim: "Simulation", name: str, rate: float) -> None:
        self.sim = sim
        self.name = name
        self.rate = rate
        self.kernel = Kernel()
        self.incarnation = 0
        self.paused = False  # the agent; what it has sent is on its way
        self.stalled = False  # what it asks the API server waits there
        self.deaf = False  # what the API server answers does not come back yet
        self.cut_off = False  # from the API server: what it asks is lost
        self.blind = False  # its watch shows nothing
        self.times = TIMES
        self.wanted: frozenset[IPv4Address] = frozenset()
        self.watch: deque[tuple[object, Any]] = deque()
        sim.api.watchers.append(self.watch)
        self.todo: deque[Any] = deque()
        self.requests: list[Request] = []
        self.boot()

    def now(self) -> int:
        """No two steps are at the same moment, though many may be at the same millisecond."""
        return int(self.sim.time * self.rate * MS) + self.sim.steps + 1

    def boot(self) -> None:
        """A new incarnation of the agent; the kernel keeps what it has."""
        self.incarnation += 1
        self.paused = False
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
        self.wish(self.wanted)

    def take(self, effects: list[Any]) -> None:
        self.todo.extend(effects)

    # ---- what happens to it ----

    def reboot(self) -> None:
        self.kernel = Kernel()
        self.boot()

    def recover(self) -> None:
        for trouble in TROUBLES:
            setattr(self, trouble, False)

    def tick(self) -> None:
        self.take(self.core.tick(self.now()))

    def wish(self, vips: Iterable[IPv4Address]) -> None:
        self.wanted = frozenset(vips)
        self.take(self.core.want(self.wanted, self.now()))

    def forget(self, vip: IPv4Address) -> None:
        self.wanted -= {vip}
        self.take(self.core.forget(vip, self.now()))

    def retime(self, times: Times) -> None:
        self.times = times
        self.take(self.core.set_times(times, self.now()))

    def take_part(self, yes: bool) -> None:
        self.take(self.core.take_part(yes, self.now()))

    def part(self) -> None:
        self.take(self.core.part(PARTING, self.now()))

    # ---- what it does ----

    def do_next(self) -> None:
        effect = self.todo.popleft()
        self.note_step("does", effect)
        if isinstance(effect, SetFence):
            self.kernel.epoch, self.kernel.fence, self.kernel.lease = effect.epoch, effect.fence_ns, effect.lease_ns
            self.sim.check()
        elif isinstance(effect, SetEntry):
            self.check_entry(effect)
            self.kernel.entries[effect.vip] = effect.epoch
            self.sim.check()
        else:
            if isinstance(effect, ClearEntry):
                self.clear(effect)
            if not isinstance(effect, ClearEntry) or effect.drain:
                self.requests.append(Request(effect, self.now(), self.incarnation, self.sim.steps))

    def note_step(self, verb: str, what: object) -> None:
        self.sim.steps += 1
        self.sim.trace.append((self.sim.time, self.name, verb, what))

    def clear(self, effect: ClearEntry) -> None:
        epoch = self.kernel.entries.pop(effect.vip, None)
        if effect.drain and epoch is not None:
            self.kernel.on_wire[effect.vip] = epoch

    def check_entry(self, effect: SetEntry) -> None:
        claimed = self.claimed.get((effect.vip, effect.epoch))
        if claimed is None or self.renewed.get(effect.epoch, -1) < claimed:
            raise BrokenRuleError(f"{self.name}: {effect} without an own CAS, or a renewal after it")

    def perform(self, request: Request) -> None:
        """The server does what was asked for; of what is asked of this node's kernel or segment, they do."""
        self.note_step("performed", request.effect)
        request.performed = True
        request.result = self._result(request.effect)

    def _result(self, effect: Any) -> Any:
        if isinstance(effect, ClearEntry):
            self.kernel.on_wire.pop(effect.vip, None)
            return None
        result = self.sim.api.perform(effect)
        if isinstance(effect, WriteHeartbeat | WriteClaim) and result[0] is Outcome.APPLIED:
            self.check_write(effect)
        return result

    def check_write(self, effect: WriteHeartbeat | WriteClaim) -> None:
        if isinstance(effect, WriteHeartbeat):
            if effect.node == self.name:
                self.check_fence(effect)
        elif effect.holder != self.name and self.kernel.answers(effect.vip, self.now()):
            raise BrokenRuleError(f"{self.name}: {effect} while it answers")

    def check_fence(self, effect: WriteHeartbeat) -> None:
        """Others count the lease from now on, so the kernel must not count from later."""
        allowed = self.now() + effect.duration_ns * (D - M) // D
        if self.kernel.epoch == effect.epoch and self.kernel.fence_at(self.now()) > allowed:
            raise BrokenRuleError(f"{self.name}: fence {self.kernel.fence} beyond {allowed}, which {effect} allows")

    def answer(self, request: Request, *, lost: bool) -> None:
        """Hands the core what came of a request."""
        self.note_step("lost" if lost else "answered", request.effect)
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
        return bool(self.watch) and not (self.todo or self.paused or self.cut_off or self.blind)

    def see(self) -> None:
        name, value = self.watch.popleft()
        self.note_step("sees", value or f"no {name}")
        if isinstance(name, str):
            self.take(self.core.heartbeat_seen(name, value, self.now()))
        else:
            self.take(self.core.claim_seen(name, value, self.now()))


TROUBLES = ("paused", "stalled", "deaf", "cut_off", "blind")  # of a node


class BrokenRuleError(AssertionError):
    pass


class DoubleAnswerError(BrokenRuleError):
    pass


class Simulation:
    """`rates`: how fast each node's clock runs."""

    def __init__(self, rates: tuple[float, ...] = (1.0, 1.0, 1.0), vips: int = 2) -> None:
        self.time = 10_000.0
        self.steps = 0
        self.api = Api()
        self.vips = VIPS[:vips]
        self.trace: deque[tuple[float, str, str, object]] = deque(maxlen=400)
        self._epochs = 0
        self.nodes: list[Node] = []
        for number, rate in enumerate(rates):
            self.nodes.append(Node(self, f"n{number}", rate))

    def new_epoch(self) -> str:
        self._epochs += 1
        return f"epoch-{self._epochs}"

    def answering(self, vip: IPv4Address) -> list[str]:
        return [node.name for node in self.nodes if node.kernel.answers(vip, node.now())]

    def story(self) -> str:
        """The last steps, for people."""
        return "\n".join(f"{time:.1f} {node} {verb} {what}" for time, node, verb, what in self.trace)

    def check(self) -> None:
        for vip in self.vips:
            who = self.answering(vip)
            if len(who) > 1:
                raise DoubleAnswerError(f"{vip}: {who}\n{self.story()}")

    def pass_time(self, milliseconds: float) -> None:
        self.time += milliseconds
        self.check()

    # ---- quick runs ----

    def run_quickly(self, duration: float, without: tuple[Node, ...] = (), longest: float = 200) -> None:
        """Everything that nodes ask for is done at once, but for what their troubles do not allow.

        They are woken when they asked for it, no earlier. It is looked at least every `longest` milliseconds who
        answers, and whenever a kernel is told something. `without`: of these nodes nothing is done, nor for them.
        """
        until = self.time + duration
        nodes = [node for node in self.nodes if node not in without]
        while self.time < until:
            self.work_off(nodes)
            self.pass_time(min([until - self.time, *(self._sleep_of(node, longest) for node in nodes)]))

    def work_off(self, nodes: list[Node]) -> None:
        """Everything that can be done at this moment; what a watch has to catch up with may be hundreds of events."""
        for _ in range(1000):
            before = self.steps
            for node in nodes:
                self._work_off(node)
            if self.steps == before:
                return
        raise BrokenRuleError(f"no end of it:\n{self.story()}")

    def _sleep_of(self, node: Node, longest: float) -> float:
        due = None if node.paused else node.core.next_ns(node.now())
        return longest if due is None else min(longest, max(0.1, (due - node.now()) / MS / node.rate))

    def _work_off(self, node: Node) -> None:
        """A tick if it is due, what there is to do, the answers (of the API first), and one look at the watch."""
        if not node.paused:
            due = node.core.next_ns(node.now())
            if due is not None and due <= node.now():
                self.steps += 1
                node.tick()
            while node.todo:
                node.do_next()
        for request in sorted(node.requests, key=lambda request: isinstance(request.effect, ClearEntry)):
            self._serve(node, request)
        if node.sees():
            node.see()

    def _serve(self, node: Node, request: Request) -> None:
        lost = node.cut_off and not request.is_local
        stalled = node.stalled and not request.is_local
        deaf = node.paused or (node.deaf and not request.is_local)
        if not (request.performed or lost or stalled):
            node.perform(request)
        if (request.performed or lost) and not (request.answered or deaf):
            node.answer(request, lost=lost)
        if request.answered and (request.performed or lost):
            node.requests.remove(request)

    # ---- progress ----

    def settle(self, leases: int = 16) -> None:
        """All troubles end, everybody wants everything, and nobody outside has a VIP: for so many leases.

        Agents go on with what they know; only those that have parted are started again.
        """
        self.api.outside.clear()
        for node in self.nodes:
            node.recover()
            node.retime(TIMES)
            node.take_part(True)
            node.wish(self.vips)
        self.run_quickly(D)
        for node in self.nodes:
            if node.core.heartbeat.parted:
                node.boot()
        self.run_quickly(leases * D)
        before = self.api.writes
        self.run_quickly(3 * D)
        if self.api.writes - before > len(self.nodes) * (3 * D // R + 1):
            raise BrokenRuleError(f"{self.api.writes - before} writes at rest:\n{self.story()}")
        for vip in self.vips:
            if len(self.answering(vip)) != 1:
                raise BrokenRuleError(f"{vip}: nobody answers:\n{self.story()}")
