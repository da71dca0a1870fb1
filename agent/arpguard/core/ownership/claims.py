"""The claims: which VIPs this node asks for, holds, and hands over.

| stage      | means                                            | leaves by                                    |
| ---------- | ------------------------------------------------ | -------------------------------------------- |
| idle       | not this node's                                  | wanted, and missing, released or void: CAS   |
| claiming   | the CAS is under way                             | applied: confirming; else: reading           |
| reading    | what came of the CAS is not known, or it lost    | read: idle, and from there again             |
| confirming | the CAS was applied                              | a renewal sent after that succeeds: owned    |
| owned      | the kernel answers                               | not wanted, or deleted: draining; lost: idle |
| draining   | the kernel is silent, its last frames on the way | drained: releasing                           |
| releasing  | the CAS to nobody is under way                   | applied: idle; else: reading                 |

Nothing is answered on the strength of a read: a claim that says "this node, this epoch" is written once more before
the kernel hears of it, for a release that this node sent earlier may still be on its way.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from arpguard.addresses import Address
from arpguard.core.ownership.peers import Peers
from arpguard.core.ownership.records import (
    Claim,
    ClearEntry,
    Effect,
    Outcome,
    ReadClaim,
    SetEntry,
    Version,
    WriteClaim,
)


class Stage(Enum):
    """Where this node stands with a VIP."""

    IDLE = "idle"
    CLAIMING = "claiming"
    READING = "reading"
    CONFIRMING = "confirming"
    OWNED = "owned"
    DRAINING = "draining"
    RELEASING = "releasing"


@dataclass(slots=True)
class _Vip:
    """`claim` None: there is none. `seen_ns`: when this version came here; `known` False: nothing has come yet."""

    claim: Claim | None = None
    seen_ns: int = 0
    known: bool = False
    stage: Stage = Stage.IDLE
    since_ns: int = 0
    retry: bool = False


class Claims:
    """The state machines of all VIPs. `kept`: entries that the kernel has from an agent before, in the same epoch."""

    def __init__(self, node: str, peers: Peers, retry_ns: int, kept: Iterable[Address]) -> None:
        self._node = node
        self._retry_ns = retry_ns
        self._peers = peers
        self._vips: dict[Address, _Vip] = {vip: _Vip(stage=Stage.OWNED) for vip in kept}

    def stage(self, vip: Address) -> Stage:
        """Where this node stands with a VIP."""
        found = self._vips.get(vip)
        return found.stage if found else Stage.IDLE

    def seen(self, vip: Address, claim: Claim | None, epoch: str, now_ns: int) -> list[Effect]:
        """A claim, or its absence, from a watch, a read or a list. `epoch` is this node's."""
        state = self._vips.setdefault(vip, _Vip())
        if state.known and claim is not None and not _is_news(claim, state.claim):
            return []
        state.claim, state.seen_ns, state.known = claim, now_ns, True
        if state.stage in (Stage.OWNED, Stage.CONFIRMING) and not self._is_mine(claim, epoch):
            return self._lose(vip, state)
        return []

    def read(self, vip: Address, claim: Claim | None, epoch: str, now_ns: int) -> list[Effect]:
        """What a read found."""
        state = self._vips[vip]
        if state.stage is Stage.READING:
            state.stage = Stage.IDLE
        return self.seen(vip, claim, epoch, now_ns)

    def read_failed(self, vip: Address, now_ns: int) -> list[Effect]:
        """No answer: asked again after a while."""
        self._vips[vip].since_ns = now_ns
        self._vips[vip].retry = True
        return []

    def written(
        self, sent: WriteClaim, outcome: Outcome, version: Version | None, now_ns: int, epoch: str
    ) -> list[Effect]:
        """What came of a CAS. An old epoch's success is no success: that claim is void."""
        state = self._vips[sent.vip]
        if outcome is not Outcome.APPLIED or version is None:
            state.stage = Stage.READING
            return [ReadClaim(sent.vip)]
        state.claim = None if sent.let_go else Claim(sent.vip, sent.holder, sent.epoch, version)
        state.seen_ns, state.known, state.since_ns = now_ns, True, now_ns
        taken = sent.holder == self._node and sent.epoch == epoch
        state.stage = Stage.CONFIRMING if taken else Stage.IDLE
        return []

    def drained(self, vip: Address) -> list[Effect]:
        """The kernel has been silent for long enough: the claim may go."""
        state = self._vips[vip]
        if state.stage is not Stage.DRAINING:
            return []
        return self._release(vip, state)

    def cut_down(self, listed: Mapping[Address, Claim], epoch: str, sent_ns: int, now_ns: int) -> list[Effect]:
        """A consistent list of the own claims: what is not on it is not this node's."""
        effects: list[Effect] = []
        for vip, state in self._vips.items():
            if vip in listed:
                effects += self.seen(vip, listed[vip], epoch, now_ns)
            elif state.stage in (Stage.OWNED, Stage.CONFIRMING) and state.since_ns < sent_ns:
                effects += self._lose(vip, state)
                state.known = False
                effects += [ReadClaim(vip)]
                state.stage = Stage.READING
        return effects

    def forget_epoch(self) -> list[Effect]:
        """The epoch has ended: nothing is this node's."""
        return [effect for vip, state in self._vips.items() if _answers(state) for effect in self._lose(vip, state)]

    def advance(
        self, wanted: Callable[[Address], bool], epoch: str, renewed_ns: int | None, now_ns: int
    ) -> list[Effect]:
        """Moves every VIP on as far as it goes.

        `renewed_ns`: when the last renewal that succeeded was sent; None: the heartbeat is not held, and nothing is
        asked for.
        """
        effects: list[Effect] = []
        for vip, state in self._vips.items():
            step = _STEPS.get(state.stage)
            if step is not None:
                effects += step(self, vip, state, _Moment(wanted(vip), epoch, renewed_ns, now_ns))
        return effects

    def want(self, vip: Address) -> list[Effect]:
        """A VIP to look after: its claim is read unless it is known."""
        if vip in self._vips:
            return []
        self._vips[vip] = _Vip(stage=Stage.READING)
        return [ReadClaim(vip)]

    # ---- steps ----

    def _idle(self, vip: Address, state: _Vip, moment: "_Moment") -> list[Effect]:
        if moment.renewed_ns is None or not state.known:
            return []
        claim = state.claim
        if not moment.wanted:
            return self._release(vip, state) if self._is_mine(claim, moment.epoch) else []
        if claim is not None and claim.holder not in ("", self._node):
            void = self._peers.is_void(claim.holder, claim.epoch, state.seen_ns)
            if void is None:
                return self._peers.resolve(claim.holder, state.seen_ns, moment.now_ns)
            if not void:
                return self._peers.revoke(claim.holder, moment.now_ns)
        if claim is not None and claim.deleting:
            return self._release(vip, state)
        state.stage = Stage.CLAIMING
        return [WriteClaim(vip, self._node, moment.epoch, _version(claim))]

    def _reading(self, vip: Address, state: _Vip, moment: "_Moment") -> list[Effect]:
        if not state.retry or moment.now_ns - state.since_ns < self._retry_ns:
            return []
        state.retry = False
        return [ReadClaim(vip)]

    def _confirming(self, vip: Address, state: _Vip, moment: "_Moment") -> list[Effect]:
        if not moment.wanted:
            return self._release(vip, state)
        if moment.renewed_ns is None or moment.renewed_ns < state.since_ns:
            return []
        state.stage = Stage.OWNED
        return [SetEntry(vip, moment.epoch)]

    def _owned(self, vip: Address, state: _Vip, moment: "_Moment") -> list[Effect]:
        deleting = state.claim is not None and state.claim.deleting
        if moment.wanted and not deleting:
            return []
        state.stage = Stage.DRAINING
        return [ClearEntry(vip, drain=True)]

    def _release(self, vip: Address, state: _Vip) -> list[Effect]:
        if state.claim is None:
            state.stage = Stage.IDLE
            return []
        state.stage = Stage.RELEASING
        return [WriteClaim(vip, "", "", state.claim.version, let_go=state.claim.deleting)]

    def _lose(self, vip: Address, state: _Vip) -> list[Effect]:
        answered = state.stage is Stage.OWNED
        state.stage = Stage.IDLE
        return [ClearEntry(vip)] if answered else []

    def _is_mine(self, claim: Claim | None, epoch: str) -> bool:
        return claim is not None and claim.holder == self._node and claim.epoch == epoch


@dataclass(frozen=True, slots=True)
class _Moment:
    wanted: bool
    epoch: str
    renewed_ns: int | None
    now_ns: int


_STEPS: dict[Stage, Callable[[Claims, Address, _Vip, _Moment], list[Effect]]] = {
    Stage.IDLE: Claims._idle,  # noqa: SLF001
    Stage.READING: Claims._reading,  # noqa: SLF001
    Stage.CONFIRMING: Claims._confirming,  # noqa: SLF001
    Stage.OWNED: Claims._owned,  # noqa: SLF001
}


def _answers(state: _Vip) -> bool:
    return state.stage in (Stage.OWNED, Stage.CONFIRMING)


def _is_news(claim: Claim, known: Claim | None) -> bool:
    return known is None or not (claim.version == known.version or claim.version.is_older_than(known.version))


def _version(claim: Claim | None) -> Version | None:
    return claim.version if claim else None
