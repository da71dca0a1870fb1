"""The whole protocol on one node: what comes in, and what is to be done about it.

Every method is an event and gives the effects it has, in the order they have to be done in.
Who is to own which VIP is decided elsewhere and told by `want`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from arpguard.addresses import Address
from arpguard.core.ownership.claims import Claims, Stage
from arpguard.core.ownership.heartbeat import OwnHeartbeat, Times
from arpguard.core.ownership.peers import Peers
from arpguard.core.ownership.records import Claim, Effect, Heartbeat, Outcome, Version, WriteClaim, WriteHeartbeat


@dataclass(frozen=True, slots=True)
class Kept:
    """What the kernel still has from an agent before: entries of one epoch."""

    epoch: str = ""
    vips: tuple[Address, ...] = ()


class Ownership:
    """One incarnation of the agent of one node. `new_epoch` gives a UUID that was never given before."""

    def __init__(
        self,
        node: str,
        instance: str,
        times: Times,
        new_epoch: Callable[[], str],
        kept: Kept = Kept(),
    ) -> None:
        self._node = node
        self._heartbeat = OwnHeartbeat(node, instance, times, new_epoch, kept.epoch)
        self._peers = Peers(times.duration_ns, new_epoch)
        self._claims = Claims(node, self._peers, times.renew_ns, kept.vips if kept.epoch else ())
        self._wanted: frozenset[Address] = frozenset()

    @property
    def yielding(self) -> bool:
        """Whether another agent speaks as this node, and this one is silent for it."""
        return self._heartbeat.yielding

    def stage(self, vip: Address) -> Stage:
        """Where this node stands with a VIP."""
        return self._claims.stage(vip)

    def alive(self, node: str, now_ns: int) -> bool:
        """Whether another node was heard of within its lease."""
        return self._peers.alive(node, now_ns)

    def want(self, vips: Iterable[Address], now_ns: int) -> list[Effect]:
        """The VIPs that this node is to own, as far as they are free or become so; others it hands over."""
        self._wanted = frozenset(vips)
        effects = [effect for vip in sorted(self._wanted, key=str) for effect in self._claims.want(vip)]
        return effects + self._advance(now_ns)

    def tick(self, now_ns: int) -> list[Effect]:
        """Time has passed."""
        return self._heartbeat.tick(now_ns) + self._advance(now_ns)

    # ---- what watches show: hints, perhaps late ----

    def heartbeat_seen(self, node: str, heartbeat: Heartbeat | None, now_ns: int) -> list[Effect]:
        """A node's heartbeat has changed, or is gone."""
        if node == self._node:
            self._heartbeat.suspect(heartbeat, now_ns)
        else:
            self._peers.seen(node, heartbeat, now_ns)
        return []

    def claim_seen(self, vip: Address, claim: Claim | None, now_ns: int) -> list[Effect]:
        """A claim has changed, or is gone."""
        return self._claims.seen(vip, claim, self._heartbeat.epoch, now_ns)

    # ---- what came of effects ----

    def heartbeat_read(self, node: str, found: Heartbeat | None, sent_ns: int, now_ns: int) -> list[Effect]:
        """A consistent read that was sent at `sent_ns`; None: there is none."""
        if node != self._node:
            self._peers.read(node, found, sent_ns, now_ns)
            return self._advance(now_ns)
        return self._with_epoch(lambda: self._heartbeat.read(found, now_ns), now_ns)

    def heartbeat_read_failed(self, node: str, now_ns: int) -> list[Effect]:
        """No answer to a read."""
        if node == self._node:
            return self._heartbeat.read_failed(now_ns)
        self._peers.read_failed(node)
        return []

    def heartbeat_written(
        self, sent: WriteHeartbeat, outcome: Outcome, version: Version | None, sent_ns: int, now_ns: int
    ) -> list[Effect]:
        """What came of a renewal or a revocation that was sent at `sent_ns`."""
        if sent.node != self._node:
            return self._peers.written(sent, outcome, version, sent_ns, now_ns) + self._advance(now_ns)
        return self._with_epoch(lambda: self._heartbeat.written(outcome, version, sent_ns, now_ns), now_ns)

    def claim_read(self, vip: Address, claim: Claim | None, now_ns: int) -> list[Effect]:
        """A consistent read."""
        return self._claims.read(vip, claim, self._heartbeat.epoch, now_ns) + self._advance(now_ns)

    def claim_read_failed(self, vip: Address, now_ns: int) -> list[Effect]:
        """No answer to a read."""
        return self._claims.read_failed(vip, now_ns)

    def claim_written(self, sent: WriteClaim, outcome: Outcome, version: Version | None, now_ns: int) -> list[Effect]:
        """What came of a CAS."""
        effects = self._claims.written(sent, outcome, version, now_ns, self._heartbeat.epoch)
        return effects + self._advance(now_ns)

    def own_claims_listed(self, claims: Iterable[Claim], sent_ns: int, now_ns: int) -> list[Effect]:
        """A consistent list of the claims that name this node: the kernel is cut down to it; then the fence moves."""
        listed = {claim.vip: claim for claim in claims}
        effects = self._claims.cut_down(listed, self._heartbeat.epoch, sent_ns, now_ns)
        return effects + self._heartbeat.synced(sent_ns) + self._advance(now_ns)

    def own_claims_list_failed(self, now_ns: int) -> list[Effect]:
        """No answer to a list."""
        self._heartbeat.sync_failed(now_ns)
        return []

    def drained(self, vip: Address, now_ns: int) -> list[Effect]:
        """What the kernel sent for a VIP is on the wire, and it sends no more."""
        return self._claims.drained(vip) + self._advance(now_ns)

    def _with_epoch(self, event: Callable[[], list[Effect]], now_ns: int) -> list[Effect]:
        """An event that may end the epoch: then nothing is this node's, and the kernel hears of it first."""
        before = self._heartbeat.epoch
        effects = event()
        if self._heartbeat.epoch != before:
            effects += self._claims.forget_epoch()
        return effects + self._advance(now_ns)

    def _advance(self, now_ns: int) -> list[Effect]:
        renewed_ns = self._heartbeat.renewed_ns if self._heartbeat.holds else None
        return self._claims.advance(self._wanted.__contains__, self._heartbeat.epoch, renewed_ns, now_ns)
