"""A cluster that lives in a list of possible next steps: nodes with the real core, an API server, and everything slow.

Any message may be late, lost, or applied long after its sender gave up; watches show the past; nodes are paused,
killed and restarted between any two steps, with and without a parting lease, their leases change, hosts outside come
and go, and clocks run at different rates. The kernel is modelled by its rule alone: an entry of the control's epoch
answers while the fence lies ahead, no further than a lease, and a little after it was taken out (`on_wire`).

With `recording` the cluster also writes the trace that agents write (`core/ownership/tracing`), and the journal of the
API server, both in the order of its steps.

Besides that never two answer, some rules are checked where they apply: an entry needs an own CAS and a renewal that
was sent after it; nothing is released that the kernel answers for; no own heartbeat is stored while the kernel has a
longer fence than it allows. All of this is checked in every step, whoever drives the simulation: chance
(`properties/walks`), Hypothesis (`properties/machine`), or a story (`stories`).

With `vouching` nodes name each other as vouchers, and each runs the real voucher besides (`core/vouching/voucher`),
which keeps running when the agent pauses. Nodes may also be restarted without it (`Node.vouching`), so that there are
nodes of both kinds, as in a rolling upgrade. Any frame may be lost, late, doubled, or replayed long after. The kernel's
half is modelled by its rule, too (`Kernel`). What is checked then, in every step: in no epoch that has ended in the
store does a kernel have the right to answer, with or without an entry; a kernel is bound to the term of which its
heartbeat, or its voucher, says so; nothing is granted in a term that was ended, and no fence reaches further than what
was granted.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from ipaddress import IPv4Address
from typing import Any, ClassVar, TypeAlias

from arpguard.addresses import MacAddress
from arpguard.core.ownership.lease import Times
from arpguard.core.ownership.machine import Ownership
from arpguard.core.ownership.records import (
    Claim,
    ClearEntry,
    ClearTerm,
    DeleteClaim,
    Heartbeat,
    Kept,
    KernelTerm,
    ListOwnClaims,
    NamedVoucher,
    Outcome,
    Probe,
    ReadClaim,
    ReadHeartbeat,
    ReadTerm,
    ReportTaken,
    SetEntry,
    SetFence,
    SetTerm,
    StartOver,
    Version,
    WriteClaim,
    WriteHeartbeat,
    epoch_number,
)
from arpguard.core.ownership.tracing import TracedOwnership, effect_line, plain
from arpguard.core.vouching.lingering import Lingering
from arpguard.core.vouching.tracing import TracedVoucher
from arpguard.core.vouching.voucher import (
    AdoptedTerm,
    Decided,
    OwnRight,
    Pong,
    SeenBound,
    SendGrant,
    SendPing,
    Voucher,
    VoucherEffect,
)
from arpguard.wire import vouching as wire

Line: TypeAlias = dict[str, Any]  # of a trace
Backup: TypeAlias = dict[object, Heartbeat | Claim]

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
BOUND, BOUND_MARGIN = 4 * D, 4 * M  # of nodes that are bound to a voucher
GRANT, GRANT_MARGIN = 900, 300  # d and m
PAST_FRAMES = 60  # that may come again
OUTSIDE = [MacAddress.parse("02:00:00:00:00:0a"), MacAddress.parse("02:00:00:00:00:0b"), None]
VIPS = [IPv4Address("192.0.2.1"), IPv4Address("192.0.2.2")]


term_number = lru_cache(wire.term_number)  # a digest each time


@dataclass
class Kernel:
    """`term`, `window`: the agent's. `bound_term`, `vouched`: the program's, the second for the voucher's fence."""

    epoch: str = ""
    fence: int = 0
    lease: int = 0
    entries: dict[IPv4Address, str] = field(default_factory=dict)
    on_wire: dict[IPv4Address, str] = field(default_factory=dict)
    term: int = 0
    window: int = 0
    bound_term: int = 0
    vouched: int = 0
    carried: int = 0  # of the fence, from the term before

    def fence_at(self, now: int) -> int:
        return self.fence if 0 < self.fence - now <= self.lease else 0

    @property
    def bound(self) -> bool:
        return self.term != 0 and self.bound_term == self.term

    def right(self, now: int) -> int:
        """Until when it may answer for what it has entries for; 0: it may not."""
        if self.bound and not 0 < self.vouched - now <= self.window:
            return 0
        fence = self.fence_at(now)
        return min(fence, self.vouched) if self.bound else fence

    def answers(self, vip: IPv4Address, now: int) -> bool:
        entry = self.entries.get(vip) or self.on_wire.get(vip)
        return bool(self.epoch) and entry == self.epoch and self.right(now) > 0

    def set_term(self, term: wire.VouchTerm) -> None:
        self.term, self.window, self.carried = term_number(term.uuid), term.d_ns - term.m_ns, self.vouched

    def clear_term(self) -> None:
        self.term = self.window = 0

    def pong(self, term: int, number: int, now: int) -> Pong | None:
        return Pong(number, now, self.bound) if term == self.term else None

    def grant(self, term: int, stamp: int, now: int) -> None:
        if term == self.term and 0 < stamp <= now:
            self.vouched = max(self.vouched, stamp + self.window)
            self.bound_term = term

    def seen(self) -> KernelTerm:
        return KernelTerm(self.term, self.bound, self.vouched if self.bound else 0)


@dataclass
class Frame:
    """Between `voucher` and the node that it vouches for. `answer`: of a pong; `stamp`: of a grant."""

    voucher: str
    incarnation: int
    node: str
    term: int
    number: int = 0
    answer: Pong | None = None
    stamp: int = 0


class Api:
    """Linearizable: a write or read happens at one moment, which a step of the simulation chooses."""

    def __init__(self) -> None:
        self.objects: dict[object, Heartbeat | Claim] = {}
        self.watchers: dict[str, deque[tuple[object, Heartbeat | Claim | None]]] = {}  # by node
        self.see_all: set[str] = set()  # nodes without vouching, which watch quiet renewals, too
        self.outside: dict[object, MacAddress | None] = {}
        self.ended: set[tuple[object, str]] = set()  # nodes, and epochs of theirs that another version followed
        self.writes = 0
        self.reads: list[str] = []  # of heartbeats
        self.shown: list[object] = []  # to all
        self.journal: Callable[[object, Heartbeat | Claim | None], None] = lambda _name, _value: None  # of every write
        self.restored: Callable[[Backup], None] = lambda _backup: None  # of every restored backup
        self.revision = 0
        self.mute: dict[str, int] = {}  # nodes whose watches show nothing up to a revision: they had it before
        self.rolled_back: set[str] = set()  # nodes that have not written their heartbeats since

    def others_write(self, times: int) -> None:
        """Of other kinds of objects, which the protocol does not read."""
        self.revision += times

    def restore(self, backup: Backup) -> None:
        """Puts a backup in place of all objects, as an operator restores etcd.

        The API server tells no agent. An agent's watch shows nothing new until the server's revision has passed the
        last one that the watch has shown.
        """
        self.mute = dict.fromkeys(self.watchers, self.revision)
        self.rolled_back = set(self.watchers)
        self.objects = dict(backup)
        self.revision = max(int(each.version.resource_version) for each in backup.values())
        self.restored(self.objects)
        for queue in self.watchers.values():
            queue.clear()

    def _version(self, old: Version | None) -> Version:
        self.revision += 1
        return Version(old.uid if old else f"uid-{self.revision}", str(self.revision))

    def _store(self, name: object, value: Heartbeat | Claim | None, *, quiet: bool = False) -> None:
        """`quiet`: no node with vouching is shown it but the one whose heartbeat it is."""
        self.journal(name, value)
        self.rolled_back.discard(str(name))
        if value is None:
            self.objects.pop(name, None)
        else:
            self.objects[name] = value
        if not quiet:
            self.shown.append(name)
        for node, queue in self.watchers.items():
            if self.revision <= self.mute.get(node, 0):
                continue
            if not quiet or node == name or node in self.see_all:
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
            if isinstance(old, Heartbeat) and old.epoch != effect.epoch:
                self.ended.add((name, old.epoch))
            made = Heartbeat(effect.node, effect.epoch, effect.instance, effect.duration_ns, version)
            made = replace(made, voucher=effect.voucher, bound=effect.bound, early=effect.early)
            self._store(name, made, quiet=effect.quiet)
        elif effect.let_go:
            self._store(name, None)
        else:
            deleting = isinstance(old, Claim) and old.deleting
            self._store(
                name,
                Claim(
                    vip=effect.vip,
                    holder=effect.holder,
                    epoch=effect.epoch,
                    version=version,
                    deleting=deleting,
                    external=effect.external,
                    transitions=effect.transitions,
                    holder_uid=effect.holder_uid,
                ),
            )
        return Outcome.APPLIED, version

    def delete_claim(self, vip: IPv4Address) -> None:
        """`kubectl delete`: the finalizer keeps it, marked."""
        old = self.objects.get(vip)
        if isinstance(old, Claim) and not old.deleting:
            self._store(vip, replace(old, deleting=True, version=self._version(old.version)))

    def delete_heartbeat(self, node: str) -> None:
        """Of one that may go quiet at any time, a watch cannot tell that from a deletion."""
        old = self.objects.get(node)
        if isinstance(old, Heartbeat):
            self._store(node, None, quiet=old.bound)

    def perform(self, effect: Any) -> Any:
        if isinstance(effect, WriteHeartbeat | WriteClaim | DeleteClaim):
            return self.write(effect)
        if isinstance(effect, ReadHeartbeat):
            self.reads.append(effect.node)
            return self.objects.get(effect.node)
        if isinstance(effect, ReadClaim):
            return self.objects.get(effect.vip)
        if isinstance(effect, Probe):
            return self.outside.get(effect.vip)
        return [claim for claim in self.objects.values() if isinstance(claim, Claim)]


@dataclass
class Request:
    """`result` is set when the server has performed it; `sender` is the incarnation that waits for the answer.

    `shown`: the revision up to which its watch had shown everything when it was sent.
    """

    effect: Any
    sent_ns: int
    sender: int
    step: int
    shown: int
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
        self.revokes_late = False  # of that, its revocations alone
        self.deaf = False  # what the API server answers does not come back yet
        self.cut_off = False  # from the API server: what it asks is lost
        self.blind = False  # its watch shows nothing
        self.unplugged = False  # no frame goes to it, or from it
        self.voucher_stalled = False  # that process
        self.vouching = sim.vouching
        self.times = sim.times
        self.wanted: frozenset[IPv4Address] = frozenset()
        self.watch: deque[tuple[object, Any]] = deque()
        sim.api.watchers[name] = self.watch
        self.todo: deque[Any] = deque()
        self.requests: list[Request] = []
        self.boot()

    def now(self) -> int:
        """No two steps are at the same moment, though many may be at the same millisecond."""
        return int(self.sim.time * self.rate * MS) + self.sim.steps + 1

    @property
    def instance(self) -> str:
        return f"{self.name}/{self.incarnation}"

    def boot(self) -> None:
        """A new incarnation of the agent; the kernel keeps what it has."""
        self.incarnation += 1
        self.paused = False
        (self.sim.api.see_all.discard if self.vouching else self.sim.api.see_all.add)(self.name)
        self.kernel.on_wire.clear()
        self.claimed: dict[tuple[IPv4Address, str], int] = {}  # the step in which the success of a CAS was heard of
        self.renewed: dict[str, int] = {}  # the step in which the last renewal that succeeded was sent
        kept = [vip for vip, epoch in self.kernel.entries.items() if epoch == self.kernel.epoch]
        for vip in set(self.kernel.entries) - set(kept):
            del self.kernel.entries[vip]
        traced = self.sim.takes_line is not None
        self.core = (partial(TracedOwnership, tell=self.tell) if traced else Ownership)(
            self.name,
            self.instance,
            self.times,
            self.sim.new_epoch,
            Kept(self.kernel.epoch, tuple(kept), self.kernel.fence_at(self.now()), self.kernel.seen()),
        )
        self.voucher = TracedVoucher(self.instance, self.tell) if traced else Voucher(self.instance)
        self.adopted: dict[int, wire.VouchTerm] = {}
        self.lingering = Lingering()
        self.pongs: deque[tuple[int, Pong]] = deque()  # in the voucher's socket
        self.decided: deque[wire.VouchTerm] = deque()  # what it has told the agent
        self.sought = -1.0
        self.late: deque[SetTerm | ClearTerm] = deque()  # what an agent before this one may still do
        self.todo.clear()
        self.watch.clear()
        self.sim.api.mute.pop(self.name, None)
        self.bookmark()
        for name, value in self.sim.api.objects.items():
            self.watch.append((name, value))
        self.wish(self.wanted)

    def bookmark(self) -> None:
        """Its watch tells up to which revision it has shown everything."""
        self.shown = self.sim.api.revision

    def boot_as(self, vouching: bool, times: Times) -> None:
        """With vouching, or without. An agent first has the times with it where its kernel knows a voucher."""
        self.vouching = vouching
        knows = self.kernel.term != 0
        self.times = self.sim.vouched(times) if knows else self.vouched(times)
        self.boot()
        if knows and not vouching:
            self.retime(times)

    def tell(self, event: str, what: Mapping[str, Any]) -> None:
        """A line of this agent's trace."""
        self.sim.record({"ns": self.now(), "node": self.name, "instance": self.instance, "event": event, **what})

    def take(self, effects: list[Any], *, first: bool = False) -> None:
        """What the core asks for now that it was told something."""
        self.told = True
        if first:
            self.todo.extendleft(reversed(effects))
        else:
            self.todo.extend(effects)

    def due_ns(self) -> int | None:
        """When the core has something to do next, as it said after the last event: nothing else changes that."""
        self.look_at_core()
        return self._due_ns

    def look_at_core(self) -> None:
        """Asks the core again what only an event can change: when it is due, and for which nodes this one vouches."""
        if not self.told:
            return
        self.told = False
        self._due_ns = self.core.next_ns(self.now())
        named = self.core.revocations.vouches_for(self.core.heartbeat.epoch)
        self._named = {term_number(term.uuid): term for term in named}

    # ---- what happens to it ----

    def reboot(self) -> None:
        self.kernel = Kernel()
        self.boot()

    def die(self) -> None:
        """The whole node: its kernel, its agent, its voucher."""
        self.kernel = Kernel()
        self.paused = self.voucher_stalled = self.unplugged = True
        self.requests.clear()

    def recover(self) -> None:
        for trouble in (*TROUBLES, *VOUCHING_TROUBLES):
            setattr(self, trouble, False)

    def tick(self) -> None:
        self.take(self.core.tick(self.now()))

    def wish(self, vips: Iterable[IPv4Address]) -> None:
        self.wanted = frozenset(vips)
        self.take(self.core.want(self.wanted, self.now()))

    def forget(self, vip: IPv4Address) -> None:
        self.wanted -= {vip}
        self.take(self.core.forget(vip, self.now()))

    def vouched(self, times: Times) -> Times:
        """As this node has them."""
        return self.sim.vouched(times) if self.vouching else times

    def retime(self, times: Times) -> None:
        self.times = self.vouched(times)
        self.take(self.core.set_times(self.times, self.now()))

    def take_part(self, yes: bool) -> None:
        self.take(self.core.take_part(yes, self.now()))

    def part(self) -> None:
        self.take(self.core.heartbeat.part(PARTING, self.now()))

    def name_voucher(self, name: str | None) -> None:
        """Another node, as this one knows it."""
        known = self.core.peers.known(name) if name and self.vouching else None
        if known is None or not known.instance:
            self.take(self.core.heartbeat.name(None, self.now()))
            return
        voucher = NamedVoucher(known.node, known.instance, known.epoch, "", GRANT * MS, GRANT_MARGIN * MS)
        self.take(self.core.heartbeat.name(voucher, self.now()))

    def seek(self) -> None:
        """As long as all is well it names the next node that vouches; when it was un-bound, not at once again."""
        own = self.core.heartbeat
        if not self.vouching and own.naming.named is not None:
            self.name_voucher(None)
        if not self.vouching or not own.holds or own.lease.parting or self.sim.time < self.sought + R:
            return
        self.sought = self.sim.time
        names = [node.name for node in self.sim.nodes if node.vouching]
        following = names[(names.index(self.name) + 1) % len(names)]
        if following != self.name and self.core.peers.alive(following, self.now()):
            self.name_voucher(following)

    # ---- what it does ----

    def do_next(self) -> None:
        effect = self.todo.popleft()
        self.note_step("does", effect)
        told = effect_line(effect) if self.sim.takes_line is not None else None
        if told is not None:
            self.tell(*told)
        if isinstance(effect, SetFence):
            self.kernel.epoch, self.kernel.fence, self.kernel.lease = effect.epoch, effect.fence_ns, effect.lease_ns
            self.sim.check()
        elif isinstance(effect, SetEntry):
            self.check_entry(effect)
            self.kernel.entries[effect.vip] = effect.epoch
            self.sim.check()
        elif isinstance(effect, SetTerm | ClearTerm | ReadTerm):
            self.do_term(effect)
        elif isinstance(effect, StartOver):
            self.boot()
        elif not isinstance(effect, ReportTaken):
            self.do_slowly(effect)

    def do_slowly(self, effect: Any) -> None:
        """What is answered later."""
        if isinstance(effect, ClearEntry):
            self.clear(effect)
        if not isinstance(effect, ClearEntry) or effect.drain:
            self.requests.append(Request(effect, self.now(), self.incarnation, self.sim.steps, self.shown))

    def do_term(self, effect: SetTerm | ClearTerm | ReadTerm) -> None:
        if isinstance(effect, SetTerm):
            self.kernel.set_term(effect.term)
        elif isinstance(effect, ClearTerm):
            self.kernel.clear_term()
        else:
            self.take(self.core.term_read(self.kernel.seen(), self.now()), first=True)
        self.sim.check()

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
        if self.sim.vouching:
            self.sim.check()

    def revokes(self, request: Request) -> bool:
        """Whether it asks to end another node's epoch."""
        return isinstance(request.effect, WriteHeartbeat) and request.effect.node != self.name

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
            WriteHeartbeat: lambda: core.heartbeat_written(sent, *result, str(request.shown), request.sent_ns, now),
            WriteClaim: lambda: core.claim_written(sent, *result, now),
            DeleteClaim: lambda: core.claim_deleted(sent, *result, now),
            ReadHeartbeat: lambda: core.heartbeat_read(sent.node, result, request.sent_ns, now),
            ReadClaim: lambda: core.claim_read(sent.vip, result, request.sent_ns, now),
        }[type(sent)]()

    def failed(self, sent: Any, now: int) -> list[Any]:
        core, unknown = self.core, (Outcome.UNKNOWN, None)
        return {
            Probe: list,
            WriteHeartbeat: lambda: core.heartbeat_written(sent, *unknown, "", 0, now),
            WriteClaim: lambda: core.claim_written(sent, *unknown, now),
            DeleteClaim: lambda: core.claim_deleted(sent, *unknown, now),
            ReadHeartbeat: lambda: core.heartbeat_read_failed(sent.node, now),
            ReadClaim: lambda: core.claim_read_failed(sent.vip, now),
            ListOwnClaims: lambda: core.own_claims_list_failed(now),
        }[type(sent)]()

    # ---- its voucher, which is a process of its own ----

    def vouches(self) -> None:
        """It wakes: hears of terms, reads its socket until that is empty, and pings."""
        woke = self.now()
        if not self.paused:
            self.adopt()
        while self.pongs:
            self.grant(*self.pongs.popleft())
        for term in list(self.adopted):
            self.do_vouching(self.voucher.emptied(term, lambda: self.sim.heard(self), woke))
        self.do_vouching(self.voucher.tick(self.now()))

    def adopt(self) -> None:
        self.look_at_core()
        terms = self._named
        for number in terms:
            self.lingering.named(number)
        if self.adopted == terms:
            return
        for number, term in self.adopted.items() - terms.items():
            if self.lingering.is_over(number, term, self.core.peers.known(term.node), self.now()):
                self.lingering.named(number)
                self.voucher.drop(number)
                del self.adopted[number]
        self.adopted |= terms
        for number, term in terms.items():
            self.voucher.adopt(
                AdoptedTerm(number, term.instance, epoch_number(term.voucher_epoch), term.d_ns), self.now()
            )

    def grant(self, term: int, pong: Pong) -> None:
        """The order matters: it looks at its own right after the pong came, and at the clock after that."""
        self.sim.steps += 1
        if isinstance(self.voucher, TracedVoucher):
            self.voucher.heard_ns = self.now()
        self.do_vouching(self.voucher.pong(term, pong, self.right(), self.now()))

    def right(self) -> OwnRight:
        epoch = epoch_number(self.kernel.epoch) if self.kernel.epoch else 0
        return OwnRight(epoch, self.kernel.right(self.now()))

    def do_vouching(self, effects: Iterable[VoucherEffect]) -> None:
        for effect in effects:
            self.note_step("vouches", effect)
            if isinstance(effect, SendPing):
                self.send(effect.term, effect.number)
            elif isinstance(effect, SendGrant):
                self.sim.granted(effect)
                self.send(effect.term, effect.number, effect.stamp_ns)
            elif isinstance(effect, SeenBound):
                self.sim.seen_bound.add(effect.term)
            elif isinstance(effect, Decided):
                self.sim.over.add(effect.term)
                self.decided.append(self.adopted[effect.term])

    def send(self, term: int, number: int, stamp: int = 0) -> None:
        to = self.adopted[term].node
        self.sim.frames.append(Frame(self.name, self.incarnation, to, term, number, stamp=stamp))

    def hears_decision(self) -> None:
        term = self.decided.popleft()
        self.note_step("hears of the end of", term)
        self.take(self.core.revocations.decided(term.node, term.uuid, self.now()))

    def arrives(self, frame: Frame) -> None:
        """A frame reaches this node's kernel, or its voucher's socket."""
        self.note_step("receives", frame)
        if frame.answer is not None:
            if frame.incarnation == self.incarnation:
                self.pongs.append((frame.term, frame.answer))
        elif frame.stamp:
            self.kernel.grant(frame.term, frame.stamp, self.now())
            self.sim.check()
        else:
            answer = self.kernel.pong(frame.term, frame.number, self.now())
            if answer is not None:
                self.sim.frames.append(replace(frame, answer=answer))

    def sees(self) -> bool:
        return bool(self.watch) and not (self.todo or self.paused or self.cut_off or self.blind)

    def see(self) -> None:
        name, value = self.watch.popleft()
        self.shown = int(value.version.resource_version) if value else self.shown
        self.note_step("sees", value or f"no {name}")
        if isinstance(name, str):
            self.take(self.core.heartbeat_seen(name, value, self.now()))
        else:
            self.take(self.core.claim_seen(name, value, self.now()))


TROUBLES = ("paused", "stalled", "deaf", "cut_off", "blind")  # of a node
VOUCHING_TROUBLES = ("unplugged", "voucher_stalled")  # of one whose voucher matters


class BrokenRuleError(AssertionError):
    pass


class DoubleAnswerError(BrokenRuleError):
    pass


@dataclass
class Recorded:
    """The trace of a simulated cluster, and how fast each node's clock ran."""

    lines: list[Line]
    rates: dict[str, float]


@contextmanager
def recording() -> Iterator[list[Recorded]]:
    """Meanwhile every cluster that is made writes a trace; those are in the list, in the order of their making."""
    recorded: list[Recorded] = []

    def begins(rates: dict[str, float]) -> Callable[[Line], None]:
        recorded.append(Recorded([], rates))
        return recorded[-1].lines.append

    with _traced_by(begins):
        yield recorded


def judging(take: Callable[[Line], None] | None) -> AbstractContextManager[None]:
    """A cluster that is made meanwhile hands each line of its trace to `take`, and keeps none."""
    return _traced_by(None if take is None else lambda _rates: take)


@contextmanager
def _traced_by(begins: Callable[[dict[str, float]], Callable[[Line], None]] | None) -> Iterator[None]:
    before, Simulation.traced_by = Simulation.traced_by, staticmethod(begins) if begins else None
    try:
        yield
    finally:
        Simulation.traced_by = before


class Simulation:
    """`rates`: how fast each node's clock runs. `vouching`: each node may name another one as its voucher.

    `seeks`: while all is done quickly, it names the next one. `bound`: the lease of nodes that are bound to theirs.
    """

    traced_by: ClassVar[Callable[[dict[str, float]], Callable[[Line], None]] | None] = None

    def __init__(
        self,
        rates: tuple[float, ...] = (1.0, 1.0, 1.0),
        vips: int = 2,
        *,
        vouching: bool = False,
        seeks: bool = True,
        bound: int = BOUND,
    ) -> None:
        self.vouching = vouching
        self.bound = bound
        self.seeks = vouching and seeks
        self.times = self.vouched(TIMES)
        self.frames: deque[Frame] = deque()  # on their way
        self.past: deque[Frame] = deque(maxlen=PAST_FRAMES)
        self.seen_bound: set[int] = set()  # terms in which a voucher was told so
        self.over: set[int] = set()  # terms that their vouchers have ended
        self.stamps: dict[int, int] = {}  # the newest that was granted, of each term
        self.is_lost: Callable[[Frame], bool] = lambda _frame: False
        self.time = 10_000.0
        self.steps = 0
        self.api = Api()
        self.vips = VIPS[:vips]
        self.trace: deque[tuple[float, str, str, object]] = deque(maxlen=400)
        self._epochs = 0
        self.takes_line: Callable[[Line], None] | None = None  # of the trace
        if self.traced_by is not None:
            self.takes_line = self.traced_by({f"n{number}": rate for number, rate in enumerate(rates)})
            self.api.journal = self.journal
        self.api.restored = self.restored
        self.nodes: list[Node] = []
        for number, rate in enumerate(rates):
            self.nodes.append(Node(self, f"n{number}", rate))

    def record(self, line: Line) -> None:
        """`at`: one clock for all, which no node has."""
        if self.takes_line is not None:
            self.takes_line({"at": int(self.time * MS) + self.steps, **line})

    def journal(self, name: object, value: Heartbeat | Claim | None) -> None:
        """A write of the API server, as a line of the trace."""
        kind, of = ("heartbeat", "of") if isinstance(name, str) else ("claim", "vip")
        found = None if value is None else plain(value)
        self.record({"event": f"{kind} stored", of: str(name), "found": found})

    def restored(self, backup: Backup) -> None:
        """Tells the trace. Whoever saw that a node was bound starts over, and the node may begin that term again."""
        self.seen_bound.clear()
        self.record(
            {"event": "backup restored", "objects": {str(name): plain(value) for name, value in backup.items()}}
        )

    def vouched(self, times: Times) -> Times:
        """The same, and what nodes that are bound to a voucher have, if there are any."""
        margin = self.bound * BOUND_MARGIN // BOUND
        return replace(times, bound_ns=self.bound * MS, bound_margin_ns=margin * MS) if self.vouching else times

    def new_epoch(self) -> str:
        self._epochs += 1
        return f"{self._epochs:08x}-0000-4000-8000-000000000000"

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
        if self.vouching:
            for node in self.nodes:
                self.check_right(node)
                self.check_bound(node)

    def check_right(self, node: Node) -> None:
        """With an epoch the right to answer ends, whether or not there is an entry; and with a term what it granted."""
        kernel = node.kernel
        if (node.name, kernel.epoch) in self.api.ended and kernel.right(node.now()):
            raise BrokenRuleError(f"{node.name} may answer in {kernel.epoch}, which is over\n{self.story()}")
        furthest = max(kernel.carried, self.stamps.get(kernel.term, 0) + kernel.window)
        if kernel.bound and kernel.term in self.over and kernel.vouched > furthest:
            raise BrokenRuleError(f"{node.name} has a fence beyond what was granted\n{self.story()}")

    def check_bound(self, node: Node) -> None:
        """Of whom somebody says that it is bound to a voucher, while its heartbeat names that, unless from a backup."""
        if node.name in self.api.rolled_back:
            return
        stored, kernel = self.api.objects.get(node.name), node.kernel
        if not isinstance(stored, Heartbeat) or stored.voucher is None or stored.epoch != kernel.epoch:
            return
        number = term_number(stored.voucher.term)
        if (stored.bound or number in self.seen_bound) and not (kernel.bound and kernel.term == number):
            raise BrokenRuleError(f"{node.name} is not bound in {stored.voucher}\n{self.story()}")

    def granted(self, effect: SendGrant) -> None:
        if effect.term in self.over:
            raise BrokenRuleError(f"{effect} after the term was ended\n{self.story()}")
        self.stamps[effect.term] = max(self.stamps.get(effect.term, 0), effect.stamp_ns)

    def heard(self, node: Node) -> int:
        """How many frames came over a node's link: others talk there all the time."""
        return 0 if node.unplugged else self.steps

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    def deliver(self, frame: Frame) -> None:
        """It may come again, later."""
        self.past.append(frame)
        voucher, node = self.node(frame.voucher), self.node(frame.node)
        if not (voucher.unplugged or node.unplugged or self.is_lost(frame)):
            (voucher if frame.answer is not None else node).arrives(frame)

    def pass_time(self, milliseconds: float) -> None:
        self.time += milliseconds
        self.check()

    # ---- quick runs ----

    @contextmanager
    def outage(self, milliseconds: float) -> Iterator[None]:
        """No node reaches the API server for so long, nor until the block ends."""
        for node in self.nodes:
            node.cut_off = True
        self.run_quickly(milliseconds)
        yield
        for node in self.nodes:
            node.cut_off = False

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
            while self.frames:
                self.deliver(self.frames.popleft())
            if self.steps == before:
                return
        raise BrokenRuleError(f"no end of it:\n{self.story()}")

    def _sleep_of(self, node: Node, longest: float) -> float:
        moments = (
            None if node.paused else node.due_ns(),
            None if node.voucher_stalled or not node.vouching else node.voucher.next_ns(node.now()),
        )
        due = min((moment for moment in moments if moment is not None), default=None)
        return longest if due is None else min(longest, max(0.1, (due - node.now()) / MS / node.rate))

    def _work_off(self, node: Node) -> None:
        """A tick if it is due, what there is to do, the answers (of the API first), and one look at the watch."""
        if not node.paused:
            self._run_agent(node)
        if node.vouching and not node.voucher_stalled:
            node.vouches()
        for request in sorted(node.requests, key=lambda request: isinstance(request.effect, ClearEntry)):
            self._serve(node, request)
        if node.sees():
            node.see()

    def _run_agent(self, node: Node) -> None:
        due = node.due_ns()
        if due is not None and due <= node.now():
            self.steps += 1
            node.tick()
        if self.seeks:
            node.seek()
        while node.decided:
            node.hears_decision()
        while node.todo:
            node.do_next()

    def _serve(self, node: Node, request: Request) -> None:
        lost = node.cut_off and not request.is_local
        stalled = not request.is_local and (node.stalled or (node.revokes_late and node.revokes(request)))
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
