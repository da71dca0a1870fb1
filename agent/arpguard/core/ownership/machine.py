"""The whole protocol on one node: what comes in, and what is to be done about it.

Every method is an event and gives the effects it has, in the order they have to be done in. Every effect that asks
for something is answered by one event, whatever came of it; only a probe may stay without.
Who is to own which VIP is decided elsewhere and told by `want`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from arpguard.addresses import Address, MacAddress
from arpguard.core.ownership.claims import Claims
from arpguard.core.ownership.heartbeat import OwnHeartbeat, Times
from arpguard.core.ownership.peers import Peers
from arpguard.core.ownership.records import (
    Claim,
    DeleteClaim,
    Effect,
    Heartbeat,
    Holder,
    Outcome,
    Version,
    WriteClaim,
    WriteHeartbeat,
)
from arpguard.core.ownership.stages import Stage
from arpguard.core.ownership.steps import Moment


@dataclass(frozen=True, slots=True)
class Kept:
    """What the kernel still has from an agent before: entries of one epoch, and the fence.

    `fence_ns` is 0 when the kernel takes it for passed, for whatever reason.
    """

    epoch: str
    vips: tuple[Address, ...]
    fence_ns: int


NOTHING_KEPT = Kept("", (), 0)


class Ownership:
    """One incarnation of the agent of one node. `new_epoch` gives a UUID that was never given before."""

    def __init__(
        self, node: str, instance: str, times: Times, new_epoch: Callable[[], str], kept: Kept = NOTHING_KEPT
    ) -> None:
        self._node = node
        self._heartbeat = OwnHeartbeat(node, instance, times, new_epoch, kept.epoch, kept.fence_ns)
        self._peers = Peers(times, new_epoch)
        self._claims = Claims(node, self._peers, kept.vips if kept.epoch else ())
        self._wanted: frozenset[Address] = frozenset()
        self._takes_part = True

    @property
    def yielding(self) -> bool:
        """Whether another agent speaks as this node, and this one is silent for it."""
        return self._heartbeat.yielding

    @property
    def parted(self) -> bool:
        """Whether the last renewal was applied, or failed for good."""
        return self._heartbeat.parted

    @property
    def active(self) -> bool:
        """Whether anything is held, wanted, or being handed over."""
        return self._claims.active

    @property
    def peers(self) -> Peers:
        """The other nodes: to be asked, and not told."""
        return self._peers

    @property
    def claimed(self) -> frozenset[Address]:
        """The VIPs on which there is a claim, whosever, as far as is known."""
        return self._claims.claimed

    def stage(self, vip: Address) -> type[Stage]:
        """Where this node stands with a VIP."""
        return self._claims.stage(vip)

    def held(self) -> frozenset[Address]:
        """The VIPs that the kernel answers for while the fence lies ahead."""
        return self._claims.owned

    def holder(self, vip: Address, now_ns: int) -> Holder:
        """Who has a VIP, as far as it is known here."""
        last = self._claims.last_seen(vip)
        claim = last.claim
        if claim is None:
            return Holder(known=last.known)

        alive, void = self._standing(claim, last.seen_ns, now_ns)
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
            seen_ns=last.seen_ns,
        )

    def _standing(self, claim: Claim, seen_ns: int, now_ns: int) -> tuple[bool, bool | None]:
        """Whether a claim's holder is alive, and whether the claim is void."""
        if claim.unreadable or not claim.holder:
            return False, False
        if claim.holder == self._node:
            return self._heartbeat.holds, claim.epoch != self._heartbeat.epoch
        return self.alive(claim.holder, now_ns), self._peers.is_void(claim.holder, claim.epoch, seen_ns, now_ns)

    def alive(self, node: str, now_ns: int) -> bool:
        """Whether another node was heard of within its lease."""
        return self._peers.alive(node, now_ns)

    def next_ns(self, now_ns: int) -> int | None:
        """When `tick` is to be called if nothing else happens; perhaps at once, None: only then."""
        claims_ns = None if self._heartbeat.parting else self._claims.next_ns()
        moments = [moment for moment in (self._heartbeat.next_ns(), claims_ns) if moment is not None]
        return max(now_ns, min(moments)) if moments else None

    # ---- what this node is to do ----

    def want(self, vips: Iterable[Address], now_ns: int) -> list[Effect]:
        """The VIPs that this node is to own, as far as they are free or become so; others it hands over.

        What an agent before this one left and is not among them is handed over with the first sync.
        """
        before, self._wanted = self._wanted, frozenset(vips)
        new = sorted(self._wanted - before, key=str)
        gone = sorted(before - self._wanted, key=str)
        return self._claims.want(new) + self._advance([*new, *gone], now_ns)

    def forget(self, vip: Address, now_ns: int) -> list[Effect]:
        """A VIP that exists no more: its claim is removed as soon as it is released, void, or this node's own.

        Whoever calls this on one node spares the others the trouble; it is safe on all.
        """
        self._wanted -= {vip}
        return self._claims.forget(vip) + self._advance([vip], now_ns)

    def take_part(self, yes: bool, now_ns: int) -> list[Effect]:  # noqa: FBT001 - it is the event
        """Whether this node may hold VIPs. When not, it rests once it holds none and wants none."""
        self._takes_part = yes
        return self._advance([], now_ns)

    @property
    def resting(self) -> bool:
        """Whether this node holds nothing and has nothing to claim."""
        return self._heartbeat.resting

    def hurry(self, now_ns: int) -> list[Effect]:
        """What the heartbeat tells has changed: a renewal is wanted at once."""
        return self._heartbeat.hurry(now_ns)

    def set_times(self, times: Times, now_ns: int) -> list[Effect]:
        """Other lengths of time from now on."""
        self._peers.times = times
        self._heartbeat.set_times(times, now_ns)
        return self._advance([], now_ns)

    def end(self) -> None:
        """The own heartbeat is about to be deleted: it is not renewed any more."""
        self._heartbeat.end()

    def part(self, lease_ns: int, now_ns: int) -> list[Effect]:
        """The agent ends, and another will go on: one last renewal, for so long, and nothing is begun any more."""
        return self._heartbeat.part(lease_ns, now_ns)

    def tick(self, now_ns: int) -> list[Effect]:
        """Time has passed."""
        return self._heartbeat.tick(now_ns) + self._advance(self._claims.due(now_ns), now_ns)

    # ---- what watches show: hints, perhaps late ----

    def heartbeat_seen(self, node: str, heartbeat: Heartbeat | None, now_ns: int) -> list[Effect]:
        """A node's heartbeat has changed, or is gone."""
        if node == self._node:
            self._heartbeat.suspect(heartbeat, now_ns)
            return []
        changed = self._peers.seen(node, heartbeat, now_ns)
        return self._advance(self._claims.waiting_for(node), now_ns) if changed else []

    def claim_seen(self, vip: Address, claim: Claim | None, now_ns: int) -> list[Effect]:
        """A claim has changed, or is gone."""
        return self._claims.seen(vip, claim, self._heartbeat.epoch, now_ns) + self._advance([vip], now_ns)

    # ---- what came of effects ----

    def heartbeat_read(self, node: str, found: Heartbeat | None, sent_ns: int, now_ns: int) -> list[Effect]:
        """A consistent read that was sent at `sent_ns`; None: there is none."""
        if node != self._node:
            self._peers.read(node, found, sent_ns, now_ns)
            return self._advance(self._claims.waiting_for(node), now_ns)
        return self._with_epoch(lambda: self._heartbeat.read(found, now_ns), now_ns)

    def heartbeat_read_failed(self, node: str, now_ns: int) -> list[Effect]:
        """No answer to a read."""
        if node == self._node:
            return self._heartbeat.read_failed(now_ns)
        self._peers.read_failed(node, now_ns)
        return []

    def heartbeat_written(
        self, sent: WriteHeartbeat, outcome: Outcome, version: Version | None, sent_ns: int, now_ns: int
    ) -> list[Effect]:
        """What came of a renewal or a revocation that was sent at `sent_ns`."""
        if sent.node != self._node:
            effects = self._peers.written(sent, outcome, version, sent_ns, now_ns)
            return effects + self._advance(self._claims.waiting_for(sent.node), now_ns)
        return self._with_epoch(lambda: self._heartbeat.written(outcome, version, sent_ns, now_ns), now_ns)

    def claim_read(self, vip: Address, claim: Claim | None, now_ns: int) -> list[Effect]:
        """A consistent read."""
        return self._claims.read(vip, claim, self._heartbeat.epoch, now_ns) + self._advance([vip], now_ns)

    def claim_read_failed(self, vip: Address, now_ns: int) -> list[Effect]:
        """No answer to a read."""
        self._claims.read_failed(vip, now_ns)
        return self._advance([vip], now_ns)

    def claim_written(self, sent: WriteClaim, outcome: Outcome, version: Version | None, now_ns: int) -> list[Effect]:
        """What came of a CAS."""
        effects = self._claims.written(sent, outcome, version, self._moment(now_ns))
        return effects + self._advance([sent.vip], now_ns)

    def claim_deleted(self, sent: DeleteClaim, outcome: Outcome, version: Version | None, now_ns: int) -> list[Effect]:
        """What came of a delete; `version` is what its finalizer keeps, None when it is gone."""
        return self._claims.deleted(sent, outcome, version, now_ns) + self._advance([sent.vip], now_ns)

    def own_claims_listed(self, claims: Iterable[Claim], sent_ns: int, now_ns: int) -> list[Effect]:
        """A consistent list of the claims that name this node: the kernel is cut down to it; then the fence moves."""
        listed = {claim.vip: claim for claim in claims}
        effects = self._claims.cut_down(listed, self._heartbeat.epoch, sent_ns, now_ns)
        return effects + self._heartbeat.synced(sent_ns) + self._advance(self._claims.all, now_ns)

    def own_claims_list_failed(self, now_ns: int) -> list[Effect]:
        """No answer to a list."""
        self._heartbeat.sync_failed(now_ns)
        return []

    def drained(self, vip: Address, now_ns: int) -> list[Effect]:
        """What the kernel sent for a VIP is on the wire, and it sends no more."""
        self._claims.drained(vip)
        return self._advance([vip], now_ns)

    def probed(self, vip: Address, taken_by: MacAddress | None, now_ns: int) -> list[Effect]:
        """What a probe found: the MAC of who has the VIP, None when nobody answered."""
        self._claims.probed(vip, taken_by, now_ns)
        return self._advance([vip], now_ns)

    def _with_epoch(self, event: Callable[[], list[Effect]], now_ns: int) -> list[Effect]:
        """An event that may end the epoch: then nothing is this node's, and the kernel hears of it first."""
        before, held, rested = self._heartbeat.epoch, self._heartbeat.holds, self._heartbeat.rested
        effects = event()
        if self._heartbeat.epoch != before:
            effects = [*effects[:1], *self._claims.forget_epoch(), *effects[1:]]
        if self._heartbeat.holds and not held and self._was_cut_off(now_ns):
            self._peers.listen_anew(now_ns)
        changed = (self._heartbeat.epoch, self._heartbeat.holds, self._heartbeat.rested) != (before, held, rested)
        return effects + self._advance(self._claims.all if changed else self._claims.unconfirmed, now_ns)

    def _was_cut_off(self, now_ns: int) -> bool:
        """Whether nothing was renewed for a lease: after an outage nobody is revoked for what was not heard in it."""
        renewed_ns = self._heartbeat.renewed_ns
        return renewed_ns is not None and now_ns - renewed_ns >= self._peers.times.duration_ns

    def _moment(self, now_ns: int) -> Moment:
        own = self._heartbeat
        return Moment(self._wanted, own.epoch, own.renewal, own.asked, own.parting, own.rested, now_ns)

    def _advance(self, vips: Iterable[Address], now_ns: int) -> list[Effect]:
        """Moves these VIPs on. What is claimed now waits for a renewal; whoever has nothing to do with VIPs rests."""
        effects = self._claims.advance(vips, self._moment(now_ns))
        if self._claims.unconfirmed:
            effects += self._heartbeat.hurry(now_ns)
        return effects + self._heartbeat.rest(not (self._takes_part or self._claims.active), now_ns)
