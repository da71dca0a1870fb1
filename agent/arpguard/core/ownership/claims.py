"""The claims: which VIPs this node asks for, holds, and hands over.

`stages` has what a claim may be in, and the table by which it moves on. A claim is free when it is missing, released,
void, or this node's own. Before a claim that was not released by its holder is taken, the segment is asked whether a
host outside has the VIP (`probing`); if so the claim says it, and nobody takes it before it is silent. Each node says
once what it was answered: two that hear of two hosts would correct each other without end.

Nothing is answered on the strength of a read: a claim that says "this node, this epoch" is written once more before
the kernel hears of it, for a release that this node sent earlier may still be on its way.

The claim of a VIP that is no more is deleted while its finalizer holds it, and let go then: as if a person had deleted
it. So it names its holder until that is silent, and vanishes by a CAS.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace

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
from arpguard.core.ownership.stages import Cause, Confirming, Deleting, Draining, Idle, Owned, Reading, Stage, after
from arpguard.core.ownership.waiting import Waiting
from arpguard.units import NS_PER_S

LONGEST_RETRY_NS = 30 * NS_PER_S


@dataclass(frozen=True, slots=True)
class LastSeen:
    """A claim as it was seen last, None: there was none. `seen_ns`: when this version came here.

    `known` False: nothing has come yet, or a list of the own claims says otherwise.
    """

    known: bool = False
    claim: Claim | None = None
    seen_ns: int = 0


@dataclass(slots=True)
class _Vip:
    """What outlasts a stage. `failures`: of writes of this version of the claim. `forgotten`: the VIP is no more."""

    vip: Address
    stage: Stage
    last: LastSeen
    failures: int = 0
    forgotten: bool = False
    probing: Probing = field(default_factory=Probing)

    @property
    def claim(self) -> Claim | None:
        return self.last.claim

    def move(self, cause: Cause, *holds: int) -> None:
        """Moves on by the table of stages; `holds`: what the next one holds."""
        self.stage = after(self.stage, cause, *holds)


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
        self._vips = {vip: _Vip(vip, after(None, Cause.KEPT), LastSeen()) for vip in kept}
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
        return frozenset(vip for vip in self._active if self.stage(vip) is Owned)

    def stage(self, vip: Address) -> type[Stage]:
        """Where this node stands with a VIP."""
        found = self._vips.get(vip)
        return type(found.stage) if found else Idle

    def last_seen(self, vip: Address) -> LastSeen:
        """What is known of the claim of a VIP."""
        found = self._vips.get(vip)
        return found.last if found else LastSeen()

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
        state = self._noted(vip)
        if state.last.known and claim is not None and not _is_news(claim, state.claim):
            return []

        if claim is not None:
            state.failures = 0
        state.last = LastSeen(known=True, claim=claim, seen_ns=now_ns)
        return [] if self._is_mine(claim, epoch) else self._lose(state, Cause.LOST)

    def read(self, vip: Address, claim: Claim | None, epoch: str, now_ns: int) -> list[Effect]:
        """What a read found."""
        state = self._noted(vip)
        if isinstance(state.stage, Reading):
            state.move(Cause.READ, state.stage.not_before_ns)
        return self.seen(vip, claim, epoch, now_ns)

    def read_failed(self, vip: Address, now_ns: int) -> None:
        """No answer: asked again after a while."""
        state = self._vips[vip]
        if isinstance(state.stage, Reading):
            state.move(Cause.UNANSWERED, state.stage.not_before_ns, now_ns + self._peers.times.renew_ns)

    def written(self, sent: WriteClaim, outcome: Outcome, version: Version | None, moment: Moment) -> list[Effect]:
        """What came of a CAS. An old epoch's success is no success: that claim is void."""
        state = self._vips[sent.vip]
        if outcome is not Outcome.APPLIED or version is None:
            return self._failed(state, moment.now_ns)

        written = Claim(
            sent.vip, sent.holder, sent.epoch, version, external=sent.external, transitions=sent.transitions
        )
        self._applied(state, None if sent.let_go else written, moment.now_ns)
        state.probing.said = sent.external != ""

        if sent.holder == self._node and self._is_mine(state.claim, moment.epoch):
            state.move(Cause.TAKEN, moment.now_ns, moment.asked)
        else:
            state.move(Cause.DONE)
        return []

    def deleted(self, sent: DeleteClaim, outcome: Outcome, version: Version | None, now_ns: int) -> list[Effect]:
        """What came of a delete. `version` None: it is gone."""
        state = self._vips[sent.vip]
        if outcome is not Outcome.APPLIED:
            return self._failed(state, now_ns)
        left = replace(state.claim, version=version, deleting=True) if state.claim and version else None
        self._applied(state, left, now_ns)
        state.move(Cause.DONE)
        return []

    def drained(self, vip: Address) -> None:
        """The kernel has been silent for long enough: the claim may go."""
        state = self._vips[vip]
        if isinstance(state.stage, Draining):
            state.move(Cause.DRAINED)

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
            if isinstance(state.stage, Owned | Confirming) and state.stage.since_ns < sent_ns:
                effects += [*self._lose(state, Cause.UNLISTED), ReadClaim(vip)]
                state.last = replace(state.last, known=False)
        return effects

    def forget_epoch(self) -> list[Effect]:
        """The epoch has ended: nothing is this node's."""
        return [effect for vip in self._active for effect in self._lose(self._vips[vip], Cause.EPOCH_ENDED)]

    def want(self, vips: Iterable[Address]) -> list[Effect]:
        """VIPs to look after: a claim is read, unless it is known, or was told to be missing since the last time."""
        effects: list[Effect] = []
        for vip in vips:
            state = self._noted(vip)
            state.forgotten = False
            if isinstance(state.stage, Idle) and not state.last.known:
                effects += self._ask(state, Cause.UNKNOWN)
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
            if state is not None:
                self._waiting.leave(vip)
                effects += self._step(state, moment)
                self._file(state, moment)
        return effects

    def _noted(self, vip: Address) -> _Vip:
        """What is kept of a VIP, from now on if nothing was."""
        if vip not in self._vips:
            self._vips[vip] = _Vip(vip, after(None, Cause.HEARD), LastSeen(known=vip in self._absent))
        return self._vips[vip]

    def _file(self, state: _Vip, moment: Moment) -> None:
        """Keeps in mind what there is to do about a VIP, or forgets it if there is nothing."""
        vip = state.vip
        if isinstance(state.stage, Confirming):
            self._unconfirmed[vip] = None
        else:
            self._unconfirmed.pop(vip, None)

        mine = self._is_mine(state.claim, moment.epoch)
        if not isinstance(state.stage, Idle) or mine or vip in moment.wanted:
            self._active[vip] = None
            return
        self._active.pop(vip, None)
        if state.claim is None:
            self._waiting.leave(vip)
            del self._vips[vip]

    # ---- steps ----

    def _step(self, state: _Vip, moment: Moment) -> list[Effect]:
        """What is to be done by now; nothing while an answer is awaited."""
        match state.stage:
            case Idle(not_before_ns):
                return self._idle(state, not_before_ns, moment)
            case Reading(not_before_ns, again_ns) if again_ns is not None:
                return self._reading(state, not_before_ns, again_ns, moment)
            case Confirming() as stage:
                return self._confirming(state, stage, moment)
            case Owned():
                return self._owned(state, moment)
        return []

    def _idle(self, state: _Vip, not_before_ns: int, moment: Moment) -> list[Effect]:
        if moment.renewal is None or not state.last.known:
            return []
        if self._is_mine(state.claim, moment.epoch):
            ready = not (moment.parting and state.vip in moment.wanted)
            return self._settle(state, not_before_ns, moment) if ready else []
        if moment.parting or not (state.forgotten or state.vip in moment.wanted):
            return []
        blocked = self._blocked(state, moment)
        return self._settle(state, not_before_ns, moment) if blocked is None else blocked

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
        void = self._peers.is_void(claim.holder, claim.epoch, state.last.seen_ns, moment.now_ns)
        if void:
            return None
        self._waiting.for_node(claim.vip, claim.holder, moment.now_ns)
        if void is None:
            return self._peers.resolve(claim.holder, state.last.seen_ns, moment.now_ns)
        effects = self._peers.revoke(claim.holder, moment.now_ns)
        if claim.vip in moment.wanted and self._peers.is_fading(claim.holder, moment.now_ns):
            effects += self._probe(state, moment.now_ns)
        return effects

    def _settle(self, state: _Vip, not_before_ns: int, moment: Moment) -> list[Effect]:
        """A claim that is free, or this node's own: takes it, or ends it."""
        if moment.now_ns < not_before_ns:
            self._waiting.until(state.vip, not_before_ns)
            return []
        cause = _cause_of_end(state, moment)
        return self._end(state, cause) if cause else self._take(state, moment)

    def _take(self, state: _Vip, moment: Moment) -> list[Effect]:
        """The CAS, when nobody outside has the VIP; else the claim says who has, and it is asked again later."""
        if moment.rested:
            return []
        claim, probing = state.claim, state.probing
        if _was_handed_over(claim) or self._is_mine(claim, moment.epoch):
            return self._write(state, Cause.FREE, self._node, moment.epoch)

        effects = self._probe(state, moment.now_ns)
        if effects or not probing.known(moment.now_ns):
            return effects
        if probing.taken_by is None:
            return self._write(state, Cause.FREE, self._node, moment.epoch)

        external = str(probing.taken_by)
        said = probing.said or (claim is not None and claim.external == external)
        if said or self._peers.has(probing.taken_by):
            return []
        return self._write(state, Cause.OUTSIDE, "", "", external)

    def _probe(self, state: _Vip, now_ns: int) -> list[Effect]:
        """Asks the segment, unless its answer is known; and again when it does not count any more."""
        asks = not state.probing.known(now_ns) and state.probing.ask(now_ns)
        self._waiting.until(state.vip, state.probing.next_ns)
        return [Probe(state.vip)] if asks else []

    def _reading(self, state: _Vip, not_before_ns: int, again_ns: int, moment: Moment) -> list[Effect]:
        if moment.now_ns < again_ns:
            self._waiting.until(state.vip, again_ns)
            return []
        return self._ask(state, Cause.DUE, not_before_ns)

    def _confirming(self, state: _Vip, stage: Confirming, moment: Moment) -> list[Effect]:
        if state.vip not in moment.wanted and not moment.parting:
            return self._end(state, Cause.UNWANTED)
        if moment.renewal is None or moment.renewal <= stage.renewal:
            return []
        state.move(Cause.CONFIRMED, stage.since_ns)
        return [SetEntry(state.vip, moment.epoch)]

    def _owned(self, state: _Vip, moment: Moment) -> list[Effect]:
        cause = _cause_of_end(state, moment)
        if moment.parting or cause is None:
            return []
        state.move(cause)
        return [ClearEntry(state.vip, drain=True)]

    # ---- what steps do ----

    def _ask(self, state: _Vip, cause: Cause, *holds: int) -> list[Effect]:
        state.move(cause, *holds)
        return [ReadClaim(state.vip)]

    def _write(self, state: _Vip, cause: Cause, holder: str, epoch: str, external: str = "") -> list[Effect]:
        claim = state.claim
        moved = claim is not None and holder not in ("", claim.holder)
        transitions = (claim.transitions if claim else 0) + moved
        state.move(cause)
        return [WriteClaim(state.vip, holder, epoch, _version(claim), external=external, transitions=transitions)]

    def _end(self, state: _Vip, cause: Cause) -> list[Effect]:
        """Deletes the claim of a VIP that is no more, and releases any other; where there is none nothing is left."""
        claim = state.claim
        if claim is None:
            state.forgotten = False
            return []
        state.move(cause)
        if isinstance(state.stage, Deleting):
            return [DeleteClaim(state.vip, claim.version)]
        return [WriteClaim(state.vip, "", "", claim.version, claim.deleting, claim.external, claim.transitions)]

    def _applied(self, state: _Vip, claim: Claim | None, now_ns: int) -> None:
        """A write was applied. What a watch showed of the claim meanwhile may be newer."""
        state.failures = 0
        if claim is None or not claim.version.is_older_than(_version(state.claim)):
            state.last = LastSeen(known=True, claim=claim, seen_ns=now_ns)

    def _failed(self, state: _Vip, now_ns: int) -> list[Effect]:
        """The claim is read at once, and written again: at once after one failure, later and later after more."""
        retry_ns = self._peers.times.renew_ns << min(state.failures, 8) >> 1
        not_before_ns = now_ns + min(retry_ns, LONGEST_RETRY_NS) if state.failures else now_ns
        state.failures += 1
        return self._ask(state, Cause.FAILED, not_before_ns)

    def _lose(self, state: _Vip, cause: Cause) -> list[Effect]:
        """What was this node's is not any more: if the kernel answers, it is to stop."""
        if not isinstance(state.stage, Owned | Confirming):
            return []
        answered = isinstance(state.stage, Owned)
        state.move(cause)
        return [ClearEntry(state.vip)] if answered else []

    def _is_mine(self, claim: Claim | None, epoch: str) -> bool:
        return claim is not None and claim.holder == self._node and claim.epoch == epoch


def _cause_of_end(state: _Vip, moment: Moment) -> Cause | None:
    """Why a claim that is free, or this node's own, is to end; None: it is to stay, or to be taken."""
    if state.claim is not None and state.claim.deleting:
        return Cause.DELETED
    if state.forgotten:
        return Cause.GONE
    return None if state.vip in moment.wanted else Cause.UNWANTED


def _was_handed_over(claim: Claim | None) -> bool:
    return claim is not None and claim.holder == "" and claim.external == ""


def _is_news(claim: Claim, known: Claim | None) -> bool:
    return known is None or not (claim.version == known.version or claim.version.is_older_than(known.version))


def _version(claim: Claim | None) -> Version | None:
    return claim.version if claim else None
