"""The claims: which VIPs this node asks for, holds, and hands over.

| stage      | means                                            | leaves by                                    |
| ---------- | ------------------------------------------------ | -------------------------------------------- |
| idle       | not this node's; it may wait, or probe           | wanted and free: CAS; own: CAS to nobody     |
| claiming   | the CAS is under way                             | applied: confirming, or idle; else: reading  |
| reading    | what came of a write is not known, or it lost    | read: idle, and from there again             |
| confirming | the CAS was applied                              | a renewal sent after that succeeds: owned    |
| owned      | the kernel answers                               | not wanted, or deleted: draining; lost: idle |
| draining   | the kernel is silent, its last frames on the way | drained: idle, and from there handed over    |
| releasing  | the CAS to nobody is under way                   | applied: idle; else: reading                 |
| deleting   | the claim of a VIP that is no more is deleted    | applied: idle, and let go; else: reading     |

A claim is free when it is missing, released, void, or this node's own. Before a claim that was not released by its
holder is taken, the segment is asked whether a host outside has the VIP (`probing`); if so the claim says it, and
nobody takes it before it is silent. Each node says once what it was answered: two that hear of two hosts would correct
each other without end.

Nothing is answered on the strength of a read: a claim that says "this node, this epoch" is written once more before
the kernel hears of it, for a release that this node sent earlier may still be on its way.

The claim of a VIP that is no more is deleted while its finalizer holds it, and let go then: as if a person had deleted
it. So it names its holder until that is silent, and vanishes by a CAS.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from arpguard.addresses import Address, MacAddress
from arpguard.core.ownership.peers import Peers
from arpguard.core.ownership.probing import TAKEN_NS, Probing
from arpguard.core.ownership.records import (
    Claim,
    ClearEntry,
    DeleteClaim,
    Effect,
    Outcome,
    Probe,
    ReadClaim,
    SetEntry,
    Version,
    WriteClaim,
)
from arpguard.core.ownership.waiting import Waiting
from arpguard.units import NS_PER_S

LONGEST_RETRY_NS = 30 * NS_PER_S


class Stage(Enum):
    """Where this node stands with a VIP."""

    IDLE = "idle"
    CLAIMING = "claiming"
    READING = "reading"
    CONFIRMING = "confirming"
    OWNED = "owned"
    DRAINING = "draining"
    RELEASING = "releasing"
    DELETING = "deleting"


@dataclass(slots=True)
class _Vip:
    """`claim` None: there is none. `seen_ns`: when this version came here; `known` False: nothing has come yet.

    `since_ns`, `renewal`: when the own CAS was heard to be applied, and how many renewals had been asked for then.
    `not_before_ns`: after `failures` at one version, nothing is written before then. `read_ns`: when to read again,
    None while an answer is awaited.
    """

    claim: Claim | None = None
    seen_ns: int = 0
    known: bool = False
    stage: Stage = Stage.IDLE
    since_ns: int = 0
    renewal: int = 0
    failures: int = 0
    not_before_ns: int = 0
    read_ns: int | None = None
    forgotten: bool = False
    probing: Probing = field(default_factory=Probing)


@dataclass(frozen=True, slots=True)
class Moment:
    """What a step depends on besides the VIP.

    `renewal`: the last one that was applied, of those `asked` for; None: the heartbeat is not held, and nothing is
    asked for. `parting`: nothing is begun any more. `rested`: nothing is claimed, for the lease that is published may
    be that of a rest: should this node die, a claim would be waited for as long.
    """

    wanted: Container[Address]
    epoch: str
    renewal: int | None
    asked: int
    parting: bool
    rested: bool
    now_ns: int


class Claims:
    """The state machines of all VIPs. `kept`: entries that the kernel has from an agent before, in the same epoch."""

    def __init__(self, node: str, peers: Peers, kept: Iterable[Address]) -> None:
        self._node = node
        self._peers = peers
        self._waiting = Waiting(peers)
        self._vips: dict[Address, _Vip] = {vip: _Vip(stage=Stage.OWNED) for vip in kept}
        self._active: dict[Address, None] = dict.fromkeys(self._vips)
        self._unconfirmed: dict[Address, None] = {}
        self._absent: set[Address] = set()

    @property
    def active(self) -> bool:
        """Whether anything is held, asked for, or handed over."""
        return bool(self._active)

    @property
    def unconfirmed(self) -> list[Address]:
        """The VIPs that wait for a renewal."""
        return list(self._unconfirmed)

    @property
    def all(self) -> list[Address]:
        """Every VIP of which something is known."""
        return list(self._vips)

    @property
    def owned(self) -> frozenset[Address]:
        """The VIPs that the kernel has been told to answer for."""
        return frozenset(vip for vip in self._active if self._vips[vip].stage is Stage.OWNED)

    def stage(self, vip: Address) -> Stage:
        """Where this node stands with a VIP."""
        found = self._vips.get(vip)
        return found.stage if found else Stage.IDLE

    def claim(self, vip: Address) -> tuple[bool, Claim | None, int]:
        """Whether anything is known, the claim as it was seen last, and when."""
        found = self._vips.get(vip)
        return (found.known, found.claim, found.seen_ns) if found else (False, None, 0)

    def waiting_for(self, node: str) -> list[Address]:
        """The VIPs that wait for what becomes of a node."""
        return self._waiting.on(node)

    def due(self, now_ns: int) -> list[Address]:
        """The VIPs that it is time to look at."""
        return self._waiting.due(now_ns)

    def next_ns(self) -> int | None:
        """When there is a VIP to look at, if nothing else happens."""
        return self._waiting.next_ns()

    # ---- events ----

    def seen(self, vip: Address, claim: Claim | None, epoch: str, now_ns: int) -> list[Effect]:
        """A claim, or its absence, from a watch, a read or a list. `epoch` is this node's."""
        if claim is None and vip not in self._vips:
            self._absent.add(vip)
            return []
        state = self._vips.setdefault(vip, _Vip())
        if state.known and claim is not None and not _is_news(claim, state.claim):
            return []
        if claim is not None:
            state.failures = 0
        state.claim, state.seen_ns, state.known = claim, now_ns, True
        if _answers(state) and not self._is_mine(claim, epoch):
            return self._lose(vip, state)
        return []

    def read(self, vip: Address, claim: Claim | None, epoch: str, now_ns: int) -> list[Effect]:
        """What a read found."""
        state = self._vips.setdefault(vip, _Vip())
        if state.stage is Stage.READING:
            state.stage = Stage.IDLE
        return self.seen(vip, claim, epoch, now_ns)

    def read_failed(self, vip: Address, now_ns: int) -> None:
        """No answer: asked again after a while."""
        self._vips[vip].read_ns = now_ns + self._peers.times.renew_ns

    def written(self, sent: WriteClaim, outcome: Outcome, version: Version | None, moment: Moment) -> list[Effect]:
        """What came of a CAS. An old epoch's success is no success: that claim is void."""
        state = self._vips[sent.vip]
        if outcome is not Outcome.APPLIED or version is None:
            return self._failed(sent.vip, state, moment.now_ns)
        written = Claim(
            sent.vip, sent.holder, sent.epoch, version, external=sent.external, transitions=sent.transitions
        )
        self._applied(state, None if sent.let_go else written, moment.now_ns)
        state.since_ns, state.renewal = moment.now_ns, moment.asked
        state.probing.said = sent.external != ""
        taken = sent.holder == self._node and self._is_mine(state.claim, moment.epoch)
        state.stage = Stage.CONFIRMING if taken else Stage.IDLE
        return []

    def deleted(self, sent: DeleteClaim, outcome: Outcome, version: Version | None, now_ns: int) -> list[Effect]:
        """What came of a delete. `version` None: it is gone."""
        state = self._vips[sent.vip]
        if outcome is not Outcome.APPLIED:
            return self._failed(sent.vip, state, now_ns)
        left = replace(state.claim, version=version, deleting=True) if state.claim and version else None
        self._applied(state, left, now_ns)
        state.stage = Stage.IDLE
        return []

    def drained(self, vip: Address) -> None:
        """The kernel has been silent for long enough: the claim may go."""
        state = self._vips[vip]
        if state.stage is Stage.DRAINING:
            state.stage = Stage.IDLE

    def probed(self, vip: Address, taken_by: MacAddress | None, now_ns: int) -> None:
        """Who has a VIP on the segment, if anybody has."""
        if vip in self._vips:
            first_ns = self._peers.times.renew_ns
            longest_ns = first_ns if taken_by and self._peers.has(taken_by) else TAKEN_NS
            self._vips[vip].probing.told(taken_by, first_ns, longest_ns, now_ns)

    def cut_down(self, listed: Mapping[Address, Claim], epoch: str, sent_ns: int, now_ns: int) -> list[Effect]:
        """A consistent list of the own claims: what is not on it is not this node's."""
        effects: list[Effect] = []
        for vip, claim in listed.items():
            effects += self.seen(vip, claim, epoch, now_ns)
        for vip in [active for active in self._active if active not in listed]:
            state = self._vips[vip]
            if _answers(state) and state.since_ns < sent_ns:
                effects += [*self._lose(vip, state), *self._ask(vip, state)]
                state.known = False
        return effects

    def forget_epoch(self) -> list[Effect]:
        """The epoch has ended: nothing is this node's."""
        states = [(vip, self._vips[vip]) for vip in self._active]
        return [effect for vip, state in states if _answers(state) for effect in self._lose(vip, state)]

    def want(self, vips: Iterable[Address]) -> list[Effect]:
        """VIPs to look after: a claim is read, unless it is known, or was told to be missing since the last time."""
        effects: list[Effect] = []
        for vip in vips:
            known = vip in self._vips or vip in self._absent
            state = self._vips.setdefault(vip, _Vip(known=known))
            state.forgotten = False
            effects += [] if known else self._ask(vip, state)
        self._absent.clear()
        return effects

    def forget(self, vip: Address) -> list[Effect]:
        """A VIP that is no more: as soon as its claim is free, it is deleted."""
        effects = self.want([vip])
        self._vips[vip].forgotten = True
        return effects

    def advance(self, vips: Iterable[Address], moment: Moment) -> list[Effect]:
        """Moves VIPs on as far as they go."""
        effects: list[Effect] = []
        for vip in vips:
            state = self._vips.get(vip)
            if state is None:
                continue
            self._waiting.leave(vip)
            step = _STEPS.get(state.stage)
            effects += step(self, vip, state, moment) if step else []
            self._file(vip, state, moment)
        return effects

    def _file(self, vip: Address, state: _Vip, moment: Moment) -> None:
        """Keeps in mind what there is to do about a VIP, or forgets it if there is nothing."""
        if state.stage is Stage.CONFIRMING:
            self._unconfirmed[vip] = None
        else:
            self._unconfirmed.pop(vip, None)
        mine = self._is_mine(state.claim, moment.epoch)
        if state.stage is not Stage.IDLE or mine or vip in moment.wanted:
            self._active[vip] = None
            return
        self._active.pop(vip, None)
        if state.claim is None:
            self._waiting.leave(vip)
            del self._vips[vip]

    # ---- steps ----

    def _idle(self, vip: Address, state: _Vip, moment: Moment) -> list[Effect]:
        if moment.renewal is None or not state.known:
            return []
        if self._is_mine(state.claim, moment.epoch):
            return [] if moment.parting and vip in moment.wanted else self._settle(vip, state, moment)
        if moment.parting or not (state.forgotten or vip in moment.wanted):
            return []
        blocked = self._blocked(state, moment)
        return self._settle(vip, state, moment) if blocked is None else blocked

    def _blocked(self, state: _Vip, moment: Moment) -> list[Effect] | None:
        """What there is to do about a claim that is not free; None when it is."""
        claim = state.claim
        if claim is None or claim.holder == self._node:
            return None
        if claim.unreadable:
            return []
        return self._wait_for_holder(claim, state, moment) if claim.holder else None

    def _wait_for_holder(self, claim: Claim, state: _Vip, moment: Moment) -> list[Effect] | None:
        """What makes another node's claim void, and what has to be known by then; None when it is void."""
        void = self._peers.is_void(claim.holder, claim.epoch, state.seen_ns, moment.now_ns)
        if void:
            return None
        self._waiting.for_node(claim.vip, claim.holder, moment.now_ns)
        if void is None:
            return self._peers.resolve(claim.holder, state.seen_ns, moment.now_ns)
        effects = self._peers.revoke(claim.holder, moment.now_ns)
        if claim.vip in moment.wanted and self._peers.is_fading(claim.holder, moment.now_ns):
            effects += self._probe(claim.vip, state, moment.now_ns)
        return effects

    def _settle(self, vip: Address, state: _Vip, moment: Moment) -> list[Effect]:
        """A claim that is free, or this node's own: takes it, or ends it."""
        if moment.now_ns < state.not_before_ns:
            self._waiting.until(vip, state.not_before_ns)
            return []
        if state.claim is not None and state.claim.deleting:
            return self._release(vip, state)
        if state.forgotten:
            return self._delete(vip, state)
        if vip not in moment.wanted:
            return self._release(vip, state)
        return self._take(vip, state, moment)

    def _take(self, vip: Address, state: _Vip, moment: Moment) -> list[Effect]:
        """The CAS, when nobody outside has the VIP; else the claim says who has, and it is asked again later."""
        if moment.rested:
            return []
        claim, probing = state.claim, state.probing
        if _was_handed_over(claim) or self._is_mine(claim, moment.epoch):
            return self._write(vip, state, self._node, moment.epoch)
        effects = self._probe(vip, state, moment.now_ns)
        if effects or not probing.known(moment.now_ns):
            return effects
        if probing.taken_by is None:
            return self._write(vip, state, self._node, moment.epoch)
        external = str(probing.taken_by)
        said = probing.said or (claim is not None and claim.external == external)
        if said or self._peers.has(probing.taken_by):
            return []
        return self._write(vip, state, "", "", external)

    def _probe(self, vip: Address, state: _Vip, now_ns: int) -> list[Effect]:
        """Asks the segment, unless its answer is known; and again when it does not count any more."""
        asks = not state.probing.known(now_ns) and state.probing.ask(now_ns)
        self._waiting.until(vip, state.probing.next_ns)
        return [Probe(vip)] if asks else []

    def _reading(self, vip: Address, state: _Vip, moment: Moment) -> list[Effect]:
        if state.read_ns is None:
            return []
        if moment.now_ns < state.read_ns:
            self._waiting.until(vip, state.read_ns)
            return []
        return self._ask(vip, state)

    def _confirming(self, vip: Address, state: _Vip, moment: Moment) -> list[Effect]:
        if vip not in moment.wanted and not moment.parting:
            return self._release(vip, state)
        if moment.renewal is None or moment.renewal <= state.renewal:
            return []
        state.stage = Stage.OWNED
        return [SetEntry(vip, moment.epoch)]

    def _owned(self, vip: Address, state: _Vip, moment: Moment) -> list[Effect]:
        deleting = state.claim is not None and state.claim.deleting
        if moment.parting or (vip in moment.wanted and not deleting):
            return []
        state.stage = Stage.DRAINING
        return [ClearEntry(vip, drain=True)]

    # ---- what steps do ----

    def _ask(self, vip: Address, state: _Vip) -> list[Effect]:
        state.stage, state.read_ns = Stage.READING, None
        return [ReadClaim(vip)]

    def _write(self, vip: Address, state: _Vip, holder: str, epoch: str, external: str = "") -> list[Effect]:
        claim = state.claim
        moved = claim is not None and holder not in ("", claim.holder)
        transitions = (claim.transitions if claim else 0) + moved
        state.stage = Stage.CLAIMING
        return [WriteClaim(vip, holder, epoch, _version(claim), external=external, transitions=transitions)]

    def _release(self, vip: Address, state: _Vip) -> list[Effect]:
        claim = state.claim
        if claim is None:
            state.stage = Stage.IDLE
            return []
        state.stage = Stage.RELEASING
        return [WriteClaim(vip, "", "", claim.version, claim.deleting, claim.external, claim.transitions)]

    def _delete(self, vip: Address, state: _Vip) -> list[Effect]:
        if state.claim is None:
            state.forgotten = False
            return []
        state.stage = Stage.DELETING
        return [DeleteClaim(vip, state.claim.version)]

    def _applied(self, state: _Vip, claim: Claim | None, now_ns: int) -> None:
        """A write was applied. What a watch showed of the claim meanwhile may be newer."""
        state.failures = 0
        if claim is None or not claim.version.is_older_than(_version(state.claim)):
            state.claim, state.seen_ns, state.known = claim, now_ns, True

    def _failed(self, vip: Address, state: _Vip, now_ns: int) -> list[Effect]:
        """The claim is read at once, and written again: at once after one failure, later and later after more."""
        retry_ns = self._peers.times.renew_ns << min(state.failures, 8) >> 1
        state.not_before_ns = now_ns + min(retry_ns, LONGEST_RETRY_NS) if state.failures else now_ns
        state.failures += 1
        return self._ask(vip, state)

    def _lose(self, vip: Address, state: _Vip) -> list[Effect]:
        answered = state.stage is Stage.OWNED
        state.stage = Stage.IDLE
        return [ClearEntry(vip)] if answered else []

    def _is_mine(self, claim: Claim | None, epoch: str) -> bool:
        return claim is not None and claim.holder == self._node and claim.epoch == epoch


_STEPS: dict[Stage, Callable[[Claims, Address, _Vip, Moment], list[Effect]]] = {
    Stage.IDLE: Claims._idle,  # noqa: SLF001
    Stage.READING: Claims._reading,  # noqa: SLF001
    Stage.CONFIRMING: Claims._confirming,  # noqa: SLF001
    Stage.OWNED: Claims._owned,  # noqa: SLF001
}


def _answers(state: _Vip) -> bool:
    return state.stage in (Stage.OWNED, Stage.CONFIRMING)


def _was_handed_over(claim: Claim | None) -> bool:
    return claim is not None and claim.holder == "" and claim.external == ""


def _is_news(claim: Claim, known: Claim | None) -> bool:
    return known is None or not (claim.version == known.version or claim.version.is_older_than(known.version))


def _version(claim: Claim | None) -> Version | None:
    return claim.version if claim else None
