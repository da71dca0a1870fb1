"""The claim protocol's requests, at a pace that the API server can sustain, and the outcomes of renewals."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable
from typing import TypeVar

from arpguard.addresses import Address
from arpguard.clock import boot_ns
from arpguard.core.ownership.records import (
    Claim,
    DeleteClaim,
    DeleteHeartbeat,
    Heartbeat,
    Published,
    WriteClaim,
    WriteHeartbeat,
)
from arpguard.core.pacing import LATE_NS, Pacing
from arpguard.kube.errors import ClusterError, ThrottledError, UnavailableError
from arpguard.kube.records import OwnClaims, Records
from arpguard.kube.writer import Applied, Conflicted, Missing, Refused, Unknown, Written
from arpguard.runtime.waking import is_set_within
from arpguard.units import NS_PER_S

log = logging.getLogger(__name__)

T = TypeVar("T")

CALM_NS = 5 * NS_PER_S  # renewals of a node at rest may fail for so long before it logs that
REFUSED_S = 1.0
UNREACHABLE_S = 2.0


class Requests:
    """One node's requests. `hearts` has a connection of its own: no renewal waits behind claims.

    Nor do many claims queue at the server in front of a renewal: `pacing` limits claims, but renewals are sent at once.
    """

    def __init__(self, node: str, hearts: Records, others: Records) -> None:
        self._node = node
        self._hearts = hearts
        self._others = others
        self._reachable = asyncio.Event()
        self._reachable.set()
        self.pacing = Pacing()
        self.writes: Counter[tuple[str, str]] = Counter()

    def set_timeout(self, seconds: float) -> None:
        """How long a request may take from now on."""
        for records in (self._hearts, self._others):
            records.set_timeout(seconds)

    # ---- heartbeats ----

    async def read_heartbeat(self, node: str) -> Heartbeat | None:
        """A node's heartbeat; None when there is none. Raises ClusterError."""
        records = self._hearts if node == self._node else self._others
        return await self._read(records, records.heartbeat(node))

    async def write_heartbeat(self, effect: WriteHeartbeat, published: Published) -> Written:
        """Writes this node's heartbeat with what it publishes, or revokes another node's."""
        if effect.node == self._node:
            return await self._write("heartbeat", self._hearts, self._hearts.renew(effect, published))
        return await self._write("revocation", self._others, self._others.revoke(effect))

    async def remove_heartbeat(self) -> bool:
        """Deletes this node's heartbeat; returns whether it is gone."""
        try:
            return await self._hearts.remove_heartbeat(self._node)
        except ClusterError:
            return False

    async def delete_heartbeat(self, effect: DeleteHeartbeat) -> None:
        """Deletes another node's heartbeat. Few are deleted at a time, and claims do not wait for that."""
        if isinstance(await self._others.delete_heartbeat(effect), Applied):
            log.info("deleted the heartbeat of node %s, which left the cluster", effect.node)

    # ---- claims ----

    async def read_claim(self, vip: Address) -> Claim | None:
        """The claim to a VIP; None when there is none. Raises ClusterError."""
        return await self._read(self._others, self._others.claim(vip))

    async def list_own_claims(self) -> OwnClaims:
        """The claims that name this node. Raises ClusterError."""
        return await self._others.claims_of(self._node)

    async def write_claim(self, effect: WriteClaim, source: str) -> Written:
        """A compare-and-swap, once the server can be reached; waits a while if it is refused."""
        await self.reach()
        outcome = await self._write("claim", self._others, self._others.write_claim(effect, source))
        await _pause_if_refused(outcome)
        return outcome

    async def delete_claim(self, effect: DeleteClaim) -> Written:
        """The same, to delete it."""
        await self.reach()
        sent_ns = boot_ns()
        outcome = await self._others.delete_claim(effect)
        self._note_pace(self._others, sent_ns, outcome)
        self._count("claim", outcome)
        await _pause_if_refused(outcome)
        return outcome

    async def reach(self) -> None:
        """Waits a while if the server cannot be reached: the heartbeat finds out when it is back."""
        await is_set_within(self._reachable, UNREACHABLE_S)

    # ---- the server's pace ----

    async def _write(self, kind: str, records: Records, request: Awaitable[Written]) -> Written:
        sent_ns = boot_ns()
        outcome = await request
        self._note_pace(records, sent_ns, outcome)
        self._note_reach(reached=isinstance(outcome, (Applied, Conflicted, Missing)))
        self._count(kind, outcome)
        return outcome

    async def _read(self, records: Records, request: Awaitable[T]) -> T:
        sent_ns = boot_ns()
        try:
            found = await request
        except ClusterError as error:
            self._note_reach(reached=False)
            if isinstance(error, (ThrottledError, UnavailableError)):
                self._slow_down(sent_ns, error.failure.retry_after_s)
            raise
        self._note_reach(reached=True)
        self._note_answer(records, sent_ns)
        return found

    def _note_pace(self, records: Records, sent_ns: int, outcome: Written) -> None:
        """Adapts the number of claims to a write's outcome, and to how long it took."""
        match outcome:
            case Unknown():
                self._slow_down(sent_ns, 0.0)
            case Refused(passing=True, retry_after_s=wait_s):
                self._slow_down(sent_ns, wait_s)
            case _:
                self._note_answer(records, sent_ns)

    def _note_answer(self, records: Records, sent_ns: int) -> None:
        note = self.pacing.renewed if records is self._hearts else self.pacing.answered
        note(sent_ns, boot_ns())

    def _slow_down(self, sent_ns: int, wait_s: float) -> None:
        """Slows down: the server takes no more for now; the time that this request took counts as waiting."""
        now_ns = boot_ns()
        wait_ns = round(max(REFUSED_S, wait_s) * NS_PER_S)
        self.pacing.refused(sent_ns, now_ns, 0 if now_ns - sent_ns > LATE_NS and not wait_s else wait_ns)

    def _note_reach(self, *, reached: bool) -> None:
        if reached:
            self._reachable.set()
        else:
            self._reachable.clear()

    def _count(self, kind: str, outcome: Written) -> None:
        self.writes[kind, type(outcome).__name__.lower()] += 1


async def _pause_if_refused(outcome: Written) -> None:
    """Waits before a write that the server refuses for good is tried again; a passing refusal stops claims anyway."""
    if isinstance(outcome, Refused):
        await asyncio.sleep(max(REFUSED_S, outcome.retry_after_s))


class Renewals:
    """The outcomes of renewals: logs once when they fail, and once when they succeed again.

    `renewed_ns` (boot clock): when the last one that was applied was sent; `lost`: why they fail, empty if they do not.
    """

    def __init__(self) -> None:
        self.renewed_ns: int | None = None
        self.lost = ""
        self._failing_ns: int | None = None  # since when renewals and reads of this node's heartbeat have failed

    def written(self, outcome: Written, *, at_rest: bool) -> None:
        """The outcome of a write of this node's heartbeat."""
        if isinstance(outcome, Applied):
            self.renewed_ns = outcome.sent_ns
            if self.lost:
                log.warning("lease: renewals work again")
            self.lost = ""
            self._failing_ns = None
        elif not isinstance(outcome, Conflicted):
            why = getattr(outcome, "reason", "the heartbeat does not exist")
            text = "lease: cannot renew; this node's elected VIPs fall silent when the fence expires: %s"
            self._failed(text, why, at_rest=at_rest)

    def unread(self, why: str, *, at_rest: bool) -> None:
        """A read of this node's heartbeat failed."""
        self._failed("lease: cannot read this node's heartbeat, so cannot renew it: %s", why, at_rest=at_rest)

    def _failed(self, text: str, why: str, *, at_rest: bool) -> None:
        """A node at rest owns nothing, and its lease outlasts a late answer: that is not a problem yet."""
        now_ns = boot_ns()
        self._failing_ns = self._failing_ns or now_ns
        if at_rest and now_ns < self._failing_ns + CALM_NS:
            return
        if not self.lost:
            log.warning(text, why)
        self.lost = why
