"""The steps of one claim: what to do about a VIP now, and which stage that leads to.

`stages` has the table of a claim's moves. A claim is free when it is missing, released, void, or this node's own.
Unless its holder answered until a moment ago (it has released the claim, or its voucher reported its death), this node
probes for a host outside that has the VIP before it takes the claim (`probing`). If there is one, the claim says so,
and no node takes it until that host is silent. Each node writes such an answer only once: two nodes that hear two hosts
would correct each other forever.

A read is not enough to answer: this node writes a claim that says "this node, this epoch" once more before it tells the
kernel, because a release that it sent earlier may still be on its way.

This node releases what it claimed in an epoch that is over, and does not take again: others may have to wait for long
before they count that as void (V18). Such a release keeps the epoch, and the node that takes the claim probes first:
this node may have been silent for long.

The claim to an address that is no longer a VIP is deleted while its finalizer keeps it, and then let go, as if a person
had deleted it. So it names its holder until that is silent, and vanishes by a CAS.
"""

from collections.abc import Container
from dataclasses import dataclass, field, replace

from arpguard.addresses import Address, MacAddress
from arpguard.core.ownership.peers import Peers
from arpguard.core.ownership.probing import Probing
from arpguard.core.ownership.records import (
    Claim,
    ClearEntry,
    DeleteClaim,
    Effect,
    Probe,
    ReadClaim,
    ReportTaken,
    SetEntry,
    Version,
    WriteClaim,
)
from arpguard.core.ownership.stages import Cause, Confirming, Deleting, Idle, Owned, Reading, Stage, after
from arpguard.core.ownership.waiting import Waiting
from arpguard.units import NS_PER_S

LONGEST_RETRY_NS = 30 * NS_PER_S
CLAIMED_AGAIN = "this node had it, and has claimed it again"


@dataclass(frozen=True, slots=True)
class LastSeen:
    """A claim as last seen; None: there was none. `seen_ns`: when this version came here.

    `known` False: nothing has come yet, or a list of this node's claims says otherwise.
    """

    known: bool = False
    claim: Claim | None = None
    seen_ns: int = 0


@dataclass(slots=True)
class VipState:
    """What outlasts a stage. `failures`: failed writes to this version of the claim. `forgotten`: no longer a VIP.

    `why`: in words, why this node wants the VIP, until the kernel answers; then why no longer.
    """

    vip: Address
    stage: Stage
    last: LastSeen
    failures: int = 0
    forgotten: bool = False
    why: str = ""
    probing: Probing = field(default_factory=Probing)

    @property
    def claim(self) -> Claim | None:
        """The claim as last seen."""
        return self.last.claim

    def move(self, cause: Cause, *holds: int) -> None:
        """Moves on by the table of stages; `holds`: the data of the next one."""
        self.stage = after(self.stage, cause, *holds)

    def in_words(self, cause: Cause) -> str:
        """A cause for the log: of one that is not wanted, why not, if that is known."""
        return (cause is Cause.UNWANTED and self.why) or cause.value


@dataclass(frozen=True, slots=True)
class Moment:
    """What a step depends on besides the VIP.

    `renewal`: the last renewal that was applied, of those sent (`asked`); None: the heartbeat is not held, so nothing
    may be asked for. `parting`: begin nothing new. `rested`: claim nothing, for the published lease may still be a
    rest's: if this node died, others would wait that long for its claims. `uid`: of this node's heartbeat, which claims
    name; "" where no node has a voucher.
    """

    wanted: Container[Address]
    epoch: str
    renewal: int | None
    asked: int
    parting: bool
    rested: bool
    uid: str
    now_ns: int


class Steps:
    """Takes the claim to any VIP one step further. `waiting` records what each VIP waits for."""

    def __init__(self, node: str, peers: Peers, waiting: Waiting) -> None:
        self._node = node
        self._peers = peers
        self._waiting = waiting

    def step(self, state: VipState, moment: Moment) -> list[Effect]:
        """What to do now; nothing while an answer is awaited."""
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
        left = state.claim is not None and state.claim.holder == self._node
        if moment.parting or not (state.forgotten or left or state.vip in moment.wanted):
            return []
        blocked = self._blocked(state, moment)
        return self._settle(state, not_before_ns, moment) if blocked is None else blocked

    def _blocked(self, state: VipState, moment: Moment) -> list[Effect] | None:
        """What to do about a claim that is not free; None if it is free."""
        claim = state.claim
        if claim is None or claim.holder == self._node:
            return None
        if claim.unreadable:
            return []
        return self._wait_for_holder(claim, state, moment) if claim.holder else None

    def _wait_for_holder(self, claim: Claim, state: VipState, moment: Moment) -> list[Effect] | None:
        """What to do until another node's claim is void, or known to be; None when it is void."""
        seen_ns = state.last.seen_ns
        void = self._peers.is_void(claim.holder, claim.epoch, seen_ns, moment.now_ns, claim.holder_uid)
        if void:
            return None
        self._waiting.for_node(claim.vip, claim.holder, moment.now_ns)
        if void is None:
            return self._peers.resolve(claim.holder, seen_ns, moment.now_ns)
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
        return self._end(state, cause, moment) if cause else self._take(state, moment)

    def _take(self, state: VipState, moment: Moment) -> list[Effect]:
        """The CAS, if no host outside has the VIP; otherwise writes who has it, and probes again later."""
        if moment.rested:
            return []
        claim, probing = state.claim, state.probing
        if self._was_answered(claim, moment.now_ns) or self.is_mine(claim, moment.epoch):
            return self._claim(state, moment)

        effects = self._probe(state, moment.now_ns)
        if effects or not probing.known(moment.now_ns):
            return effects
        if probing.taken_by is None:
            return self._claim(state, moment)
        return self._leave(state, probing.taken_by)

    def _leave(self, state: VipState, taken_by: MacAddress) -> list[Effect]:
        """Leaves a free VIP to the host that has it: tells people, and writes it, each once."""
        claim, probing, external = state.claim, state.probing, str(taken_by)
        effects: list[Effect] = [] if probing.reported else [ReportTaken(state.vip, taken_by)]
        probing.reported = True

        said = probing.said or (claim is not None and claim.external == external)
        if not said and not self._peers.has(taken_by):
            effects += self._write(state, Cause.OUTSIDE, WriteClaim(state.vip, "", "", None, external=external))
        return effects

    def _was_answered(self, claim: Claim | None, now_ns: int) -> bool:
        """Whether a node has answered until a moment ago: it would have noticed a host outside."""
        if claim is None:
            return False
        if not claim.holder:  # handed over, unless a host outside has it, or may have it since that epoch
            return not (claim.external or claim.epoch)
        return claim.holder != self._node and self._peers.answered_lately(claim.holder, now_ns)

    def _probe(self, state: VipState, now_ns: int) -> list[Effect]:
        """Probes, unless the answer is known and still counts."""
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
            return self._end(state, Cause.UNWANTED, moment)
        if moment.renewal is None or moment.renewal <= stage.renewal:
            return []
        state.move(Cause.CONFIRMED, stage.since_ns)
        why, state.why = state.why or CLAIMED_AGAIN, ""
        return [SetEntry(state.vip, moment.epoch, why)]

    def _owned(self, state: VipState, moment: Moment) -> list[Effect]:
        cause = _cause_of_end(state, moment)
        if moment.parting or cause is None:
            return []
        state.move(cause)
        return [ClearEntry(state.vip, drain=True, why=state.in_words(cause))]

    # ---- what steps and events do ----

    def ask(self, state: VipState, cause: Cause, *holds: int) -> list[Effect]:
        """Reads the claim."""
        state.move(cause, *holds)
        return [ReadClaim(state.vip)]

    def _claim(self, state: VipState, moment: Moment) -> list[Effect]:
        if state.claim is not None and state.claim.external:
            state.why = f"{state.claim.external}, a host outside, no longer has it"
        claim = WriteClaim(state.vip, self._node, moment.epoch, None, holder_uid=moment.uid)
        return self._write(state, Cause.FREE, claim)

    def _write(self, state: VipState, cause: Cause, wanted: WriteClaim) -> list[Effect]:
        """Writes this over the claim as last seen."""
        claim = state.claim
        moved = claim is not None and wanted.holder not in ("", claim.holder)
        transitions = (claim.transitions if claim else 0) + moved
        state.move(cause)
        return [replace(wanted, version=_version(claim), transitions=transitions)]

    def _end(self, state: VipState, cause: Cause, moment: Moment) -> list[Effect]:
        """Deletes the claim to a former VIP, and releases any other; does nothing if there is none."""
        claim = state.claim
        if claim is None:
            state.forgotten = False
            return []
        state.move(cause)
        if isinstance(state.stage, Deleting):
            return [DeleteClaim(state.vip, claim.version)]
        over = "" if self.is_mine(claim, moment.epoch) else claim.epoch
        return [WriteClaim(state.vip, "", over, claim.version, claim.deleting, claim.external, claim.transitions)]

    def applied(self, state: VipState, claim: Claim | None, now_ns: int) -> None:
        """A write was applied. A watch may have shown a newer version meanwhile."""
        state.failures = 0
        if claim is None or not claim.version.is_older_than(_version(state.claim)):
            state.last = LastSeen(known=True, claim=claim, seen_ns=now_ns)

    def failed(self, state: VipState, now_ns: int) -> list[Effect]:
        """Reads the claim at once, to write it again: at once after one failure, ever later after more."""
        retry_ns = self._peers.times.renew_ns << min(state.failures, 8) >> 1
        not_before_ns = now_ns + min(retry_ns, LONGEST_RETRY_NS) if state.failures else now_ns
        state.failures += 1
        return self.ask(state, Cause.FAILED, not_before_ns)

    def lose(self, state: VipState, cause: Cause) -> list[Effect]:
        """The claim is no longer this node's: if the kernel answers, it has to stop."""
        if not isinstance(state.stage, Owned | Confirming):
            return []
        answered = isinstance(state.stage, Owned)
        state.move(cause)
        return [ClearEntry(state.vip, why=cause.value)] if answered else []

    def is_mine(self, claim: Claim | None, epoch: str) -> bool:
        """Whether a claim names this node, in this epoch."""
        return claim is not None and claim.holder == self._node and claim.epoch == epoch


def _cause_of_end(state: VipState, moment: Moment) -> Cause | None:
    """Why a claim that is free, or this node's own, has to end; None: it stays, or can be taken."""
    if state.claim is not None and state.claim.deleting:
        return Cause.DELETED
    if state.forgotten:
        return Cause.GONE
    return None if state.vip in moment.wanted else Cause.UNWANTED


def _version(claim: Claim | None) -> Version | None:
    return claim.version if claim else None
