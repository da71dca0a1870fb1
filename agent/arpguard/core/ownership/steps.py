"""The steps of one claim: what is to be done about a VIP by now, and where that leads.

`stages` has the table by which a claim moves on. A claim is free when it is missing, released, void, or this node's
own. Before a claim that was not released by its holder is taken, the segment is asked whether a host outside has the
VIP (`probing`); if so the claim says it, and nobody takes it before it is silent. Each node says once what it was
answered: two that hear of two hosts would correct each other without end.

Nothing is answered on the strength of a read: a claim that says "this node, this epoch" is written once more before
the kernel hears of it, for a release that this node sent earlier may still be on its way.

The claim of a VIP that is no more is deleted while its finalizer holds it, and let go then: as if a person had deleted
it. So it names its holder until that is silent, and vanishes by a CAS.
"""

from collections.abc import Container
from dataclasses import dataclass, field

from arpguard.addresses import Address
from arpguard.core.ownership.peers import Peers
from arpguard.core.ownership.probing import Probing
from arpguard.core.ownership.records import (
    Claim,
    ClearEntry,
    DeleteClaim,
    Effect,
    Probe,
    ReadClaim,
    SetEntry,
    Version,
    WriteClaim,
)
from arpguard.core.ownership.stages import Cause, Confirming, Deleting, Idle, Owned, Reading, Stage, after
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
class VipState:
    """What outlasts a stage. `failures`: of writes of this version of the claim. `forgotten`: the VIP is no more."""

    vip: Address
    stage: Stage
    last: LastSeen
    failures: int = 0
    forgotten: bool = False
    probing: Probing = field(default_factory=Probing)

    @property
    def claim(self) -> Claim | None:
        """The claim as it was seen last."""
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


class Steps:
    """Takes the claim to any VIP one step further. `waiting` records what a VIP waits for."""

    def __init__(self, node: str, peers: Peers, waiting: Waiting) -> None:
        self._node = node
        self._peers = peers
        self._waiting = waiting

    def step(self, state: VipState, moment: Moment) -> list[Effect]:
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

    def _idle(self, state: VipState, not_before_ns: int, moment: Moment) -> list[Effect]:
        if moment.renewal is None or not state.last.known:
            return []
        if self.is_mine(state.claim, moment.epoch):
            ready = not (moment.parting and state.vip in moment.wanted)
            return self._settle(state, not_before_ns, moment) if ready else []
        if moment.parting or not (state.forgotten or state.vip in moment.wanted):
            return []
        blocked = self._blocked(state, moment)
        return self._settle(state, not_before_ns, moment) if blocked is None else blocked

    def _blocked(self, state: VipState, moment: Moment) -> list[Effect] | None:
        """What there is to do about a claim that is not free; None when it is."""
        claim = state.claim
        if claim is None or claim.holder == self._node:
            return None
        if claim.unreadable:
            return []
        return self._wait_for_holder(claim, state, moment) if claim.holder else None

    def _wait_for_holder(self, claim: Claim, state: VipState, moment: Moment) -> list[Effect] | None:
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

    def _settle(self, state: VipState, not_before_ns: int, moment: Moment) -> list[Effect]:
        """A claim that is free, or this node's own: takes it, or ends it."""
        if moment.now_ns < not_before_ns:
            self._waiting.until(state.vip, not_before_ns)
            return []
        cause = _cause_of_end(state, moment)
        return self._end(state, cause) if cause else self._take(state, moment)

    def _take(self, state: VipState, moment: Moment) -> list[Effect]:
        """The CAS, when nobody outside has the VIP; else the claim says who has, and it is asked again later."""
        if moment.rested:
            return []
        claim, probing = state.claim, state.probing
        if _was_handed_over(claim) or self.is_mine(claim, moment.epoch):
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

    def _probe(self, state: VipState, now_ns: int) -> list[Effect]:
        """Asks the segment, unless its answer is known; and again when it does not count any more."""
        asks = not state.probing.known(now_ns) and state.probing.ask(now_ns)
        self._waiting.until(state.vip, state.probing.next_ns)
        return [Probe(state.vip)] if asks else []

    def _reading(self, state: VipState, not_before_ns: int, again_ns: int, moment: Moment) -> list[Effect]:
        if moment.now_ns < again_ns:
            self._waiting.until(state.vip, again_ns)
            return []
        return self.ask(state, Cause.DUE, not_before_ns)

    def _confirming(self, state: VipState, stage: Confirming, moment: Moment) -> list[Effect]:
        if state.vip not in moment.wanted and not moment.parting:
            return self._end(state, Cause.UNWANTED)
        if moment.renewal is None or moment.renewal <= stage.renewal:
            return []
        state.move(Cause.CONFIRMED, stage.since_ns)
        return [SetEntry(state.vip, moment.epoch)]

    def _owned(self, state: VipState, moment: Moment) -> list[Effect]:
        cause = _cause_of_end(state, moment)
        if moment.parting or cause is None:
            return []
        state.move(cause)
        return [ClearEntry(state.vip, drain=True)]

    # ---- what steps and events do ----

    def ask(self, state: VipState, cause: Cause, *holds: int) -> list[Effect]:
        """Reads the claim."""
        state.move(cause, *holds)
        return [ReadClaim(state.vip)]

    def _write(self, state: VipState, cause: Cause, holder: str, epoch: str, external: str = "") -> list[Effect]:
        claim = state.claim
        moved = claim is not None and holder not in ("", claim.holder)
        transitions = (claim.transitions if claim else 0) + moved
        state.move(cause)
        return [WriteClaim(state.vip, holder, epoch, _version(claim), external=external, transitions=transitions)]

    def _end(self, state: VipState, cause: Cause) -> list[Effect]:
        """Deletes the claim of a VIP that is no more, and releases any other; where there is none nothing is left."""
        claim = state.claim
        if claim is None:
            state.forgotten = False
            return []
        state.move(cause)
        if isinstance(state.stage, Deleting):
            return [DeleteClaim(state.vip, claim.version)]
        return [WriteClaim(state.vip, "", "", claim.version, claim.deleting, claim.external, claim.transitions)]

    def applied(self, state: VipState, claim: Claim | None, now_ns: int) -> None:
        """A write was applied. What a watch showed of the claim meanwhile may be newer."""
        state.failures = 0
        if claim is None or not claim.version.is_older_than(_version(state.claim)):
            state.last = LastSeen(known=True, claim=claim, seen_ns=now_ns)

    def failed(self, state: VipState, now_ns: int) -> list[Effect]:
        """The claim is read at once, and written again: at once after one failure, later and later after more."""
        retry_ns = self._peers.times.renew_ns << min(state.failures, 8) >> 1
        not_before_ns = now_ns + min(retry_ns, LONGEST_RETRY_NS) if state.failures else now_ns
        state.failures += 1
        return self.ask(state, Cause.FAILED, not_before_ns)

    def lose(self, state: VipState, cause: Cause) -> list[Effect]:
        """What was this node's is not any more: if the kernel answers, it is to stop."""
        if not isinstance(state.stage, Owned | Confirming):
            return []
        answered = isinstance(state.stage, Owned)
        state.move(cause)
        return [ClearEntry(state.vip)] if answered else []

    def is_mine(self, claim: Claim | None, epoch: str) -> bool:
        """Whether a claim names this node, in this epoch."""
        return claim is not None and claim.holder == self._node and claim.epoch == epoch


def _cause_of_end(state: VipState, moment: Moment) -> Cause | None:
    """Why a claim that is free, or this node's own, is to end; None: it is to stay, or to be taken."""
    if state.claim is not None and state.claim.deleting:
        return Cause.DELETED
    if state.forgotten:
        return Cause.GONE
    return None if state.vip in moment.wanted else Cause.UNWANTED


def _was_handed_over(claim: Claim | None) -> bool:
    return claim is not None and claim.holder == "" and claim.external == ""


def _version(claim: Claim | None) -> Version | None:
    return claim.version if claim else None
