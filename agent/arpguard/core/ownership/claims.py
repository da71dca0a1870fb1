"""The claims of all VIPs: takes in events about claims, and knows for which claims there is something to do.

`steps` says what one claim has to do next, `stages` which stages it goes through.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from arpguard.addresses import Address, MacAddress
from arpguard.core.ownership.peers import Peers
from arpguard.core.ownership.probing import TAKEN_NS
from arpguard.core.ownership.records import Claim, DeleteClaim, Effect, Outcome, ReadClaim, Version, WriteClaim
from arpguard.core.ownership.stages import Cause, Confirming, Draining, Idle, Owned, Reading, Stage, after
from arpguard.core.ownership.steps import LastSeen, Moment, Steps, VipState
from arpguard.core.ownership.waiting import Waiting


class Claims:
    """The state machines of all VIPs. `kept`: VIPs with an entry, of the same epoch, from the previous agent.

    `waiting`: which VIPs wait for a node, or a time.
    """

    def __init__(self, node: str, peers: Peers, kept: Iterable[Address]) -> None:
        self._node = node
        self._peers = peers
        self.waiting = Waiting(peers)
        self._steps = Steps(node, peers, self.waiting)
        self._vips = {vip: VipState(vip, after(None, Cause.KEPT), LastSeen()) for vip in kept}
        self._active: dict[Address, None] = dict.fromkeys(self._vips)
        self._unconfirmed: dict[Address, None] = {}
        self._absent: set[Address] = set()

    @property
    def active(self) -> bool:
        """Whether this node holds, asks for, or hands over anything."""
        return bool(self._active)

    @property
    def unconfirmed(self) -> list[Address]:
        """The VIPs that wait for a renewal."""
        return list(self._unconfirmed)

    @property
    def all(self) -> list[Address]:
        """Every VIP that this node knows something about."""
        return list(self._vips)

    @property
    def claimed(self) -> frozenset[Address]:
        """The VIPs that anybody claims, as far as is known."""
        return frozenset(vip for vip, state in self._vips.items() if state.claim is not None)

    def stage(self, vip: Address) -> type[Stage]:
        """Where this node stands with a VIP."""
        found = self._vips.get(vip)
        return type(found.stage) if found else Idle

    def last_seen(self, vip: Address) -> LastSeen:
        """What is known of the claim of a VIP."""
        found = self._vips.get(vip)
        return found.last if found else LastSeen()

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
            self._peers.others_vouch |= claim.holder_uid != ""
        state.last = LastSeen(known=True, claim=claim, seen_ns=now_ns)
        return [] if self._steps.is_mine(claim, epoch) else self._steps.lose(state, Cause.LOST)

    def read(self, vip: Address, claim: Claim | None, epoch: str, now_ns: int) -> list[Effect]:
        """What a read found."""
        state = self._noted(vip)
        if isinstance(state.stage, Reading):
            state.move(Cause.READ, state.stage.not_before_ns)
        return self.seen(vip, claim, epoch, now_ns)

    def read_failed(self, vip: Address, now_ns: int) -> None:
        """No answer: asks again after a while."""
        state = self._vips[vip]
        if isinstance(state.stage, Reading):
            state.move(Cause.UNANSWERED, state.stage.not_before_ns, now_ns + self._peers.times.renew_ns)

    def written(self, sent: WriteClaim, outcome: Outcome, version: Version | None, moment: Moment) -> list[Effect]:
        """The outcome of a CAS. A success in an old epoch does not count: that claim is void."""
        state = self._vips[sent.vip]
        if outcome is not Outcome.APPLIED or version is None:
            return self._steps.failed(state, moment.now_ns)

        written = Claim(
            vip=sent.vip,
            holder=sent.holder,
            epoch=sent.epoch,
            version=version,
            external=sent.external,
            transitions=sent.transitions,
            holder_uid=sent.holder_uid,
        )
        self._steps.applied(state, None if sent.let_go else written, moment.now_ns)
        state.probing.said = sent.external != ""

        if sent.holder == self._node and self._steps.is_mine(state.claim, moment.epoch):
            state.move(Cause.TAKEN, moment.now_ns, moment.asked)
        else:
            state.move(Cause.DONE)
        return []

    def deleted(self, sent: DeleteClaim, outcome: Outcome, version: Version | None, now_ns: int) -> list[Effect]:
        """The outcome of a delete. `version` None: the claim is gone."""
        state = self._vips[sent.vip]
        if outcome is not Outcome.APPLIED:
            return self._steps.failed(state, now_ns)
        left = replace(state.claim, version=version, deleting=True) if state.claim and version else None
        self._steps.applied(state, left, now_ns)
        state.move(Cause.DONE)
        return []

    def drained(self, vip: Address) -> None:
        """The kernel has been silent for long enough: the claim may be released."""
        state = self._vips[vip]
        if isinstance(state.stage, Draining):
            state.move(Cause.DRAINED)

    def probed(self, vip: Address, taken_by: MacAddress | None, now_ns: int) -> None:
        """What a probe found: the MAC that has the VIP, if any."""
        if vip in self._vips:
            first_ns = self._peers.times.renew_ns
            longest_ns = first_ns if taken_by and self._peers.has(taken_by) else TAKEN_NS
            self._vips[vip].probing.told(taken_by, first_ns, longest_ns, now_ns)

    def cut_down(self, listed: Mapping[Address, Claim], epoch: str, sent_ns: int, now_ns: int) -> list[Effect]:
        """A consistent list of this node's claims: a VIP that is not on it is not this node's."""
        effects: list[Effect] = []
        for vip, claim in listed.items():
            effects += self.seen(vip, claim, epoch, now_ns)
        for vip in [active for active in self._active if active not in listed]:
            state = self._vips[vip]
            if isinstance(state.stage, Owned | Confirming) and state.stage.since_ns < sent_ns:
                effects += [*self._steps.lose(state, Cause.UNLISTED), ReadClaim(vip)]
                state.last = replace(state.last, known=False)
        return effects

    def forget_epoch(self) -> list[Effect]:
        """The epoch has ended: this node has no VIP any more."""
        return [effect for vip in self._active for effect in self._steps.lose(self._vips[vip], Cause.EPOCH_ENDED)]

    def want(self, vips: Iterable[Address]) -> list[Effect]:
        """VIPs to look after: reads each claim, unless it is known or was seen to be missing since the last call."""
        effects: list[Effect] = []
        for vip in vips:
            state = self._noted(vip)
            state.forgotten = False
            if isinstance(state.stage, Idle) and not state.last.known:
                effects += self._steps.ask(state, Cause.UNKNOWN)
        self._absent.clear()
        return effects

    def told(self, why: Mapping[Address, str]) -> None:
        """Why VIPs are wanted, or wanted no longer: for the log."""
        for vip, words in why.items():
            self._noted(vip).why = words

    def forget(self, vip: Address) -> list[Effect]:
        """The address is no longer a VIP: its claim is deleted as soon as it is free."""
        effects = self.want([vip])
        self._vips[vip].forgotten = True
        return effects

    def advance(self, vips: Iterable[Address], moment: Moment) -> list[Effect]:
        """Takes VIPs as many steps further as they can go now."""
        effects: list[Effect] = []
        for vip in vips:
            state = self._vips.get(vip)
            if state is not None:
                self.waiting.leave(vip)
                effects += self._steps.step(state, moment)
                self._file(state, moment)
        return effects

    def _noted(self, vip: Address) -> VipState:
        """The state of a VIP; a new one if there was none."""
        if vip not in self._vips:
            self._vips[vip] = VipState(vip, after(None, Cause.HEARD), LastSeen(known=vip in self._absent))
        return self._vips[vip]

    def _file(self, state: VipState, moment: Moment) -> None:
        """Files a VIP under what it waits for, or forgets it when nothing is left to do."""
        vip = state.vip
        if isinstance(state.stage, Confirming):
            self._unconfirmed[vip] = None
        else:
            self._unconfirmed.pop(vip, None)

        mine = self._steps.is_mine(state.claim, moment.epoch)
        if not isinstance(state.stage, Idle) or mine or vip in moment.wanted:
            self._active[vip] = None
            return
        self._active.pop(vip, None)
        if state.claim is None:
            self.waiting.leave(vip)
            del self._vips[vip]


def _is_news(claim: Claim, known: Claim | None) -> bool:
    return known is None or not (claim.version == known.version or claim.version.is_older_than(known.version))
