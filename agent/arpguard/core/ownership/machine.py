"""The whole protocol on one node: events in, effects out.

Every method is an event, and returns its effects in the order in which to perform them. Every effect that asks for
something is answered by one event, whatever the outcome; only a probe may go unanswered, and no event answers the
deletion of a heartbeat.
Another part decides which VIPs this node should own, and passes them to `want`.
"""

from collections.abc import Callable, Iterable, Mapping

from arpguard.addresses import Address, MacAddress
from arpguard.core.ownership.claims import Claims
from arpguard.core.ownership.heartbeat import OwnHeartbeat
from arpguard.core.ownership.lease import Times
from arpguard.core.ownership.peers import Peers
from arpguard.core.ownership.reading import PeerReads
from arpguard.core.ownership.records import (
    NOTHING_KEPT,
    UNSAID,
    Claim,
    DeleteClaim,
    Effect,
    Heartbeat,
    Holder,
    Kept,
    KernelTerm,
    Outcome,
    Version,
    WriteClaim,
    WriteHeartbeat,
    is_rolled_back,
)
from arpguard.core.ownership.relying import Reliance
from arpguard.core.ownership.revoking import Revocations
from arpguard.core.ownership.stages import Owned
from arpguard.core.ownership.steps import LastSeen, Moment


class Ownership:
    """One incarnation of the agent of one node. `new_epoch` returns a new UUID, for terms, too.

    Its parts, `heartbeat`, `peers`, `revocations` and `claims`, are there to be queried; events come in here, because
    they concern several parts. Those of vouching that ask for something concern one each: `heartbeat.name` this node's
    voucher, `revocations.decided` this node as a voucher. `wanted`: the VIPs that this node should own.
    """

    def __init__(
        self, node: str, instance: str, times: Times, new_epoch: Callable[[], str], kept: Kept = NOTHING_KEPT
    ) -> None:
        self._node = node
        self.heartbeat = OwnHeartbeat(node, instance, times, new_epoch, kept)
        self.peers = Peers(times, new_epoch)
        reading = PeerReads(self.peers)
        self.revocations = Revocations(node, instance, self.peers, reading)
        self._reliance = Reliance(self.heartbeat, self.peers, reading)
        self.claims = Claims(node, self.peers, kept.vips if kept.epoch else ())
        self.wanted: frozenset[Address] = frozenset()
        self._takes_part = True

    def holder(self, vip: Address, now_ns: int) -> Holder:
        """Who has a VIP, as far as it is known here."""
        last = self.claims.last_seen(vip)
        claim = last.claim
        if claim is None:
            return Holder(known=last.known)

        alive, void = self._alive_and_void(claim, last.seen_ns, now_ns)
        return Holder(
            node=claim.holder,
            epoch=claim.epoch,
            alive=alive,
            void=void,
            external=claim.external,
            known=last.known,
            deleting=claim.deleting,
            unreadable=claim.unreadable,
            exists=True,
            transitions=claim.transitions,
            voucher=self._voucher_of(claim.holder) if void is False else "",
            answers=claim.holder == self._node and void is False and self._answers(vip, now_ns),
            seen_ns=last.seen_ns,
        )

    def _answers(self, vip: Address, now_ns: int) -> bool:
        """Whether this kernel has the entry, and no fence has passed; the API server may be unreachable meanwhile."""
        ahead = self.heartbeat.fence.is_ahead(now_ns) and self.heartbeat.naming.is_fence_ahead(now_ns)
        return ahead and self.claims.stage(vip) is Owned

    def _voucher_of(self, node: str) -> str:
        if node == self._node:
            named, bound = self.heartbeat.naming.named, self.heartbeat.naming.kernel.bound
        else:
            known = self.peers.known(node)
            named, bound = (known.voucher, known.bound) if known else (None, False)
        return named.node if named and bound else ""

    def _alive_and_void(self, claim: Claim, seen_ns: int, now_ns: int) -> tuple[bool, bool | None]:
        """Whether a claim's holder is alive, and whether the claim is void."""
        if claim.unreadable or not claim.holder:
            return False, False
        if claim.holder == self._node:
            return self.heartbeat.holds, claim.epoch != self.heartbeat.epoch
        void = self.peers.is_void(claim.holder, claim.epoch, seen_ns, now_ns, claim.holder_uid)
        return self.peers.alive(claim.holder, now_ns), void

    def next_ns(self, now_ns: int) -> int | None:
        """When `tick` is to be called if nothing else happens; perhaps at once, None: only then."""
        others: tuple[int | None, ...] = ()
        if not self.heartbeat.lease.parting:
            others = self.claims.waiting.next_ns(), self.revocations.next_ns(now_ns), self._reliance.next_ns()
        moments = [moment for moment in (self.heartbeat.next_ns(), *others) if moment is not None]
        return max(now_ns, min(moments)) if moments else None

    # ---- what this node is to do ----

    def want(self, vips: Iterable[Address], now_ns: int, why: Mapping[Address, str] = UNSAID) -> list[Effect]:
        """The VIPs that this node is to own, as far as they are free or become so; others it hands over.

        `why`: in words, why it wants one that it did not want before, or no longer wants one.
        What an agent before this one left and is not among them is handed over with the first sync.
        """
        before, self.wanted = self.wanted, frozenset(vips)
        new = sorted(self.wanted - before, key=str)
        gone = sorted(before - self.wanted, key=str)
        reads = self.claims.want(new)
        self.claims.told({vip: why.get(vip, "") for vip in (*new, *gone)})
        return reads + self._advance([*new, *gone], now_ns)

    def forget(self, vip: Address, now_ns: int) -> list[Effect]:
        """A VIP that exists no more: its claim is removed as soon as it is released, void, or this node's own.

        Whoever calls this on one node spares the others the trouble; it is safe on all.
        """
        self.wanted -= {vip}
        return self.claims.forget(vip) + self._advance([vip], now_ns)

    def take_part(self, yes: bool, now_ns: int) -> list[Effect]:  # noqa: FBT001 - it is the event
        """Whether this node may hold VIPs. When not, it rests once it holds none and wants none."""
        self._takes_part = yes
        return self._advance([], now_ns)

    def set_times(self, times: Times, now_ns: int) -> list[Effect]:
        """Other lengths of time from now on."""
        self.peers.times = times
        self.heartbeat.set_times(times, now_ns)
        return self._advance([], now_ns)

    def tick(self, now_ns: int) -> list[Effect]:
        """Time has passed."""
        revoked = [] if self.heartbeat.lease.parting else self.revocations.tick(now_ns)
        left = self._reliance.judge(now_ns)
        return self.heartbeat.tick(now_ns) + revoked + left + self._advance(self.claims.waiting.due(now_ns), now_ns)

    # ---- what watches show: hints, perhaps late ----

    def heartbeat_seen(self, node: str, heartbeat: Heartbeat | None, now_ns: int) -> list[Effect]:
        """A node's heartbeat has changed, or is gone."""
        if node == self._node:
            self.heartbeat.suspect(heartbeat, now_ns)
            return []
        changed = self.peers.seen(node, heartbeat, now_ns)
        effects = self.revocations.changed(node, now_ns) + self._reliance.judge(now_ns)
        return effects + (self._advance(self.claims.waiting.on(node), now_ns) if changed else [])

    def claim_seen(self, vip: Address, claim: Claim | None, now_ns: int) -> list[Effect]:
        """A claim has changed, or is gone."""
        return self.claims.seen(vip, claim, self.heartbeat.epoch, now_ns) + self._advance([vip], now_ns)

    # ---- what came of effects ----

    def heartbeat_read(self, node: str, found: Heartbeat | None, sent_ns: int, now_ns: int) -> list[Effect]:
        """A consistent read that was sent at `sent_ns`; None: there is none."""
        if node != self._node:
            peer = self.peers.peer(node)
            if is_rolled_back(found, sent_ns, peer.known, peer.since_ns):
                return self.start_over(now_ns)
            self.peers.read(node, found, sent_ns, now_ns)
            return self.revocations.changed(node, now_ns) + self._advance(self.claims.waiting.on(node), now_ns)
        return self._with_epoch(lambda: self.heartbeat.read(found, now_ns), now_ns)

    def heartbeat_read_failed(self, node: str, now_ns: int) -> list[Effect]:
        """No answer to a read."""
        if node == self._node:
            self.peers.silences.failed()
            return self.heartbeat.read_failed(now_ns)
        self.peers.read_failed(node, now_ns)
        return []

    def heartbeat_written(
        self, sent: WriteHeartbeat, outcome: Outcome, version: Version | None, shown: str, sent_ns: int, now_ns: int
    ) -> list[Effect]:
        """What came of a renewal or a revocation that was sent at `sent_ns`.

        `shown`: the resourceVersion up to which the watch of Leases had shown everything by then; "" for none.
        """
        if sent.node != self._node:
            effects = self.peers.written(sent, outcome, version, sent_ns, now_ns)
            effects += self.revocations.changed(sent.node, now_ns)
            return effects + self._advance(self.claims.waiting.on(sent.node), now_ns)
        if version is not None and version.is_older_than(Version(version.uid, shown)):
            return self.start_over(now_ns)
        doubted: list[str] = []
        if outcome is Outcome.APPLIED:
            doubted = self.peers.silences.renewed(self.peers.times.duration_ns, sent_ns, now_ns)
        else:
            self.peers.silences.failed()
        effects = self._with_epoch(lambda: self.heartbeat.written(outcome, version, sent_ns, now_ns), now_ns)
        return effects + self._count_silence(doubted, now_ns)

    def _count_silence(self, nodes: list[str], now_ns: int) -> list[Effect]:
        """The silence of these counts that was in doubt before this node renewed."""
        effects = self.revocations.revoke_silent(nodes, now_ns) + self._reliance.judge(now_ns)
        return effects + self._advance([vip for node in nodes for vip in self.claims.waiting.on(node)], now_ns)

    def term_read(self, seen: KernelTerm, now_ns: int) -> list[Effect]:
        """What the kernel has of this node's voucher."""
        return self.heartbeat.term_read(seen, now_ns)

    def claim_read(self, vip: Address, claim: Claim | None, sent_ns: int, now_ns: int) -> list[Effect]:
        """A consistent read that was sent at `sent_ns`; None: there is none."""
        if _went_back(self.claims.last_seen(vip), claim, sent_ns):
            return self.start_over(now_ns)
        return self.claims.read(vip, claim, self.heartbeat.epoch, now_ns) + self._advance([vip], now_ns)

    def claim_read_failed(self, vip: Address, now_ns: int) -> list[Effect]:
        """No answer to a read."""
        self.claims.read_failed(vip, now_ns)
        return self._advance([vip], now_ns)

    def claim_written(self, sent: WriteClaim, outcome: Outcome, version: Version | None, now_ns: int) -> list[Effect]:
        """Takes in the result of a CAS of a claim."""
        effects = self.claims.written(sent, outcome, version, self._moment(now_ns))
        return effects + self._advance([sent.vip], now_ns)

    def claim_deleted(self, sent: DeleteClaim, outcome: Outcome, version: Version | None, now_ns: int) -> list[Effect]:
        """Takes in the result of deleting a claim.

        `version`: of the Lease that its finalizer still keeps, or None if it is gone.
        """
        return self.claims.deleted(sent, outcome, version, now_ns) + self._advance([sent.vip], now_ns)

    def own_claims_listed(self, claims: Iterable[Claim], sent_ns: int, now_ns: int) -> list[Effect]:
        """A consistent list of the claims that name this node: the kernel is cut down to it; then the fence moves."""
        listed = {claim.vip: claim for claim in claims}
        if any(_went_back(self.claims.last_seen(vip), claim, sent_ns) for vip, claim in listed.items()):
            return self.start_over(now_ns)
        effects = self.claims.cut_down(listed, self.heartbeat.epoch, sent_ns, now_ns)
        return effects + self.heartbeat.synced(sent_ns) + self._advance(self.claims.all, now_ns)

    def own_claims_list_failed(self, now_ns: int) -> list[Effect]:
        """No answer to a list."""
        self.heartbeat.sync_failed(now_ns)
        return []

    def drained(self, vip: Address, now_ns: int) -> list[Effect]:
        """What the kernel sent for a VIP is on the wire, and it sends no more."""
        self.claims.drained(vip)
        return self._advance([vip], now_ns)

    def probed(self, vip: Address, taken_by: MacAddress | None, now_ns: int) -> list[Effect]:
        """What a probe found: the MAC of who has the VIP, None when nobody answered."""
        self.claims.probed(vip, taken_by, now_ns)
        return self._advance([vip], now_ns)

    def start_over(self, now_ns: int) -> list[Effect]:
        """The server was restored from a backup: gives up all, and ends this agent."""
        return self._with_epoch(self.heartbeat.start_over, now_ns)

    def _with_epoch(self, event: Callable[[], list[Effect]], now_ns: int) -> list[Effect]:
        """An event that may end the epoch: then nothing is this node's, and the kernel learns that first."""
        before, held, rested = self.heartbeat.epoch, self.heartbeat.holds, self.heartbeat.lease.rested
        effects = event()
        if self.heartbeat.epoch != before:
            effects = [*effects[:1], *self.claims.forget_epoch(), *effects[1:]]
        changed = (self.heartbeat.epoch, self.heartbeat.holds, self.heartbeat.lease.rested) != (before, held, rested)
        return effects + self._advance(self.claims.all if changed else self.claims.unconfirmed, now_ns)

    def _moment(self, now_ns: int) -> Moment:
        own = self.heartbeat
        return Moment(
            wanted=self.wanted,
            epoch=own.epoch,
            renewal=own.renewal,
            asked=own.asked,
            parting=own.lease.parting,
            rested=own.lease.rested,
            uid=own.uid if own.lease.times.bound_ns else "",
            now_ns=now_ns,
        )

    def _advance(self, vips: Iterable[Address], now_ns: int) -> list[Effect]:
        """Moves these VIPs on. What is claimed now, and who is to be revoked, waits for a renewal.

        Whoever has nothing to do with VIPs rests.
        """
        effects = self.claims.advance(vips, self._moment(now_ns))
        if self.claims.unconfirmed or self.peers.silences.wants_renewal:
            effects += self.heartbeat.hurry(now_ns)
        return effects + self.heartbeat.rest(not (self._takes_part or self.claims.active), now_ns)


def _went_back(last: LastSeen, found: Claim | None, sent_ns: int) -> bool:
    return is_rolled_back(found, sent_ns, last.claim, last.seen_ns)
