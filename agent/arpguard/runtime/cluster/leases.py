"""Performs what the claim protocol asks for: requests to the API server, and what the kernel is told.

The protocol itself is `core/ownership`: it decides, and this does. All runs in one event loop, so that an event and its
effects on the kernel are one step; requests are tasks, and what comes of them are the next events.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from arpguard.addresses import Address, MacAddress
from arpguard.clock import boot_ns
from arpguard.core.cluster import Lease
from arpguard.core.ownership.machine import Ownership
from arpguard.core.ownership.records import (
    Claim,
    ClearEntry,
    DeleteClaim,
    Effect,
    Heartbeat,
    ListOwnClaims,
    Outcome,
    Probe,
    PublishedLink,
    ReadClaim,
    ReadHeartbeat,
    SetEntry,
    SetFence,
    Version,
    WriteClaim,
    WriteHeartbeat,
    epoch_number,
)
from arpguard.core.pacing import LATE_NS, Pacing
from arpguard.errors import DataPlaneError
from arpguard.kube import claims
from arpguard.kube.errors import ClusterError, ThrottledError, UnavailableError
from arpguard.kube.writer import Applied, Conflicted, LeaseContent, LeaseWriter, Missing, Refused, Unknown
from arpguard.kube.writer import Outcome as Written
from arpguard.runtime.cluster.pool import PacedPool, TaskPool
from arpguard.units import NS_PER_MS, NS_PER_S

log = logging.getLogger(__name__)

DRAIN_S = 0.012  # what a program that ran before the entry was cleared has sent is on the wire then
REMOVE_TRIES = 3
POLL_S = 0.01
CALM_NS = 5 * NS_PER_S  # for how long renewals of a node at rest may fail without a word
PROBES_AT_ONCE = 64
UNBOUNDED = 1 << 30
BREATH = 3  # deciding about thousands of VIPs takes at most a quarter of the time while much is happening
LONG_NS = 5 * NS_PER_MS
REFUSED_S = 1.0
UNREACHABLE_S = 2.0


class Kernel(Protocol):
    """What the protocol tells the kernel."""

    def fence(self, epoch: int, fence_ns: int, lease_ns: int) -> None:
        """The node's epoch, and until when its entries are answered for."""


@dataclass(frozen=True, slots=True)
class Surface:
    """What the protocol meets beside the API server.

    `own` and `disown`: the kernel is to answer for a VIP in an epoch (its number), or no longer; both return when it
    does. `probe` asks the segment. `changed`: another holder of a VIP may be known. Leases tell `links` and `source`.
    `renewed`: the own heartbeat was written by a request that was sent then.
    """

    kernel: Kernel
    own: Callable[[Address, int], None]
    disown: Callable[[Address], None]
    probe: Callable[[Address], Awaitable[MacAddress | None]]
    changed: Callable[[Address], None]
    links: Callable[[], tuple[PublishedLink, ...]]
    source: Callable[[Address], str]
    renewed: Callable[[int], None]


class Leases:
    """One node's part in the protocol. `hearts` has a connection of its own: no renewal waits behind claims.

    Nor do many claims wait at the server in front of one: they are sent as fast as it answers, renewals at once.
    """

    def __init__(
        self, node: str, ownership: Ownership, hearts: LeaseWriter, others: LeaseWriter, surface: Surface
    ) -> None:
        self._node = node
        self._ownership = ownership
        self._hearts = hearts
        self._others = others
        self._surface = surface
        self._at_once = TaskPool(UNBOUNDED, self._fail)
        self._pacing = Pacing()
        self._claiming = PacedPool(self._pacing, self._fail)
        self._probing = TaskPool(PROBES_AT_ONCE, self._fail)
        self._probed: set[Address] = set()
        self._unasked = ""
        self._fault: BaseException | None = None
        self._reachable = asyncio.Event()
        self._reachable.set()
        self._woken = asyncio.Event()
        self.writes: Counter[tuple[str, str]] = Counter()
        self.renewed_ns: int | None = None
        self.lost = ""
        self._failing_ns: int | None = None  # since when renewals and reads of the own heartbeat have failed

    async def run(self, decide: Callable[[int], int | None]) -> None:
        """Keeps the protocol going until it is cancelled.

        `decide` is called with the time before each step, tells the protocol what is wanted, and returns when it has
        to be called again at the latest.
        """
        try:
            while True:
                self._woken.clear()
                if self._fault is not None:
                    raise self._fault
                now_ns = boot_ns()
                self.do(self._ownership.tick(now_ns))  # a renewal that is due does not wait for a decision
                again_ns = decide(now_ns)
                self.do(self._ownership.tick(now_ns))
                due = [at for at in (self._ownership.next_ns(now_ns), again_ns) if at is not None]
                await self._breathe(boot_ns() - now_ns)
                await self._sleep(min(due, default=None))
        finally:
            for pool in (self._at_once, self._claiming, self._probing):
                pool.stop()

    async def _breathe(self, took_ns: int) -> None:
        """A decision that takes long is not taken for each of many changes. What is due by then is done in time."""
        until_ns = boot_ns() + BREATH * took_ns if took_ns > LONG_NS else 0
        while (now_ns := boot_ns()) < until_ns:
            due_ns = max(self._ownership.next_ns(now_ns) or until_ns, now_ns + LONG_NS)
            await asyncio.sleep((min(due_ns, until_ns) - now_ns) / NS_PER_S)
            self.do(self._ownership.tick(boot_ns()))

    async def _sleep(self, until_ns: int | None) -> None:
        delay_s = None if until_ns is None else max(0.0, (until_ns - boot_ns()) / NS_PER_S)
        try:
            async with asyncio.timeout(delay_s):
                await self._woken.wait()
        except TimeoutError:
            pass

    def _fail(self, fault: BaseException) -> None:
        """The protocol waits for an outcome that will never come: the agent ends, and a new one begins."""
        self._fault = fault
        self._woken.set()

    def wake(self) -> None:
        """Something has changed: `decide` is to be called."""
        self._woken.set()

    def set_timeout(self, seconds: float) -> None:
        """How long a request may take from now on."""
        self._hearts.timeout_s = self._others.timeout_s = seconds

    # ---- events from watches ----

    def heartbeat_seen(self, node: str, heartbeat: Heartbeat | None) -> None:
        """A heartbeat has changed, or is gone. Whether that needs a decision is for the caller to know: then `wake`."""
        self.do(self._ownership.heartbeat_seen(node, heartbeat, boot_ns()))

    def claim_seen(self, vip: Address, claim: Claim | None) -> None:
        """A claim has changed, or is gone."""
        self._happened(vip, self._ownership.claim_seen(vip, claim, boot_ns()))

    # ---- effects ----

    def do(self, effects: Iterable[Effect]) -> None:
        """Performs effects in their order; those on the kernel are done when this returns."""
        for effect in effects:
            _PERFORMERS[type(effect)](self, effect)

    def _set_fence(self, effect: SetFence) -> None:
        self._surface.kernel.fence(epoch_number(effect.epoch), effect.fence_ns, effect.lease_ns)

    def _set_entry(self, effect: SetEntry) -> None:
        self._surface.own(effect.vip, epoch_number(effect.epoch))
        log.info("owned: vip=%s", effect.vip)
        self._changed(effect.vip)

    def _clear_entry(self, effect: ClearEntry) -> None:
        self._surface.disown(effect.vip)
        log.info("given up: vip=%s", effect.vip)
        self._changed(effect.vip)
        if effect.drain:
            self._at_once.add(lambda: self._drained(effect.vip))

    async def _drained(self, vip: Address) -> None:
        await asyncio.sleep(DRAIN_S)
        self._happened(vip, self._ownership.drained(vip, boot_ns()))

    def _changed(self, vip: Address) -> None:
        self._surface.changed(vip)
        self._woken.set()

    def _happened(self, vip: Address, effects: Iterable[Effect]) -> None:
        self.do(effects)
        self._changed(vip)

    # ---- heartbeats ----

    async def _write_heartbeat(self, effect: WriteHeartbeat) -> None:
        own = effect.node == self._node
        content = claims.heartbeat_content(effect, self._surface.links() if own else ())
        writer = self._hearts if own else self._others
        write = writer.renew if own else writer.replace
        written = await self._write(writer, claims.node_lease_name(effect.node), effect.version, content, write)
        self._count("heartbeat" if own else "revocation", written)
        if own:
            self._note_renewal(written)
        outcome, version, sent_ns = _outcome_of(written)
        self.do(self._ownership.heartbeat_written(effect, outcome, version, sent_ns, boot_ns()))
        self._woken.set()

    def _note_renewal(self, written: Written) -> None:
        """In the log once when renewals fail, and once when they succeed again."""
        if isinstance(written, Applied):
            self.renewed_ns = written.sent_ns
            self._surface.renewed(written.sent_ns)
            if self.lost:
                log.warning("lease: renewed again")
            self.lost = ""
            self._failing_ns = None
        elif not isinstance(written, Conflicted):
            why = getattr(written, "reason", "there is none")
            self._note_failure("lease: cannot be renewed, what this node owns falls silent at the fence: %s", why)

    def _note_failure(self, text: str, why: str) -> None:
        """In the log once. A node at rest owns nothing, and its lease outlasts a late answer: not a problem yet."""
        now_ns = boot_ns()
        self._failing_ns = self._failing_ns or now_ns
        if self._ownership.resting and now_ns < self._failing_ns + CALM_NS:
            return
        if not self.lost:
            log.warning(text, why)
        self.lost = why

    async def _read_heartbeat(self, effect: ReadHeartbeat) -> None:
        own = effect.node == self._node
        sent_ns = boot_ns()
        try:
            lease = await self._read(self._hearts if own else self._others, claims.node_lease_name(effect.node))
        except ClusterError as error:
            if own:
                self._note_failure("lease: cannot be read, nothing is renewed: %s", str(error))
            self.do(self._ownership.heartbeat_read_failed(effect.node, boot_ns()))
        else:
            found = claims.heartbeat_of(lease) if lease else None
            self.do(self._ownership.heartbeat_read(effect.node, found, sent_ns, boot_ns()))
        self._woken.set()

    # ---- claims ----

    async def _write_claim(self, effect: WriteClaim) -> None:
        content = claims.claim_content(effect, self._surface.source(effect.vip))
        await self._reach()
        others = self._others
        written = await self._write(others, claims.lease_name(effect.vip), effect.version, content, others.replace)
        self._count("claim", written)
        await self._pause_if_refused(written)
        outcome, version, _ = _outcome_of(written)
        self._happened(effect.vip, self._ownership.claim_written(effect, outcome, version, boot_ns()))

    async def _delete_claim(self, effect: DeleteClaim) -> None:
        seen = self._lease(claims.lease_name(effect.vip), effect.version)
        await self._reach()
        sent_ns = boot_ns()
        written = await self._others.delete(seen)
        self._note_pace(self._others, sent_ns, written)
        self._count("claim", written)
        await self._pause_if_refused(written)
        outcome, version, _ = _outcome_of(written)
        self._happened(effect.vip, self._ownership.claim_deleted(effect, outcome, version, boot_ns()))

    async def _read_claim(self, effect: ReadClaim) -> None:
        try:
            await self._reach()
            lease = await self._read(self._others, claims.lease_name(effect.vip))
        except ClusterError as error:
            log.debug("claim of %s: %s", effect.vip, error)
            self._happened(effect.vip, self._ownership.claim_read_failed(effect.vip, boot_ns()))
        else:
            found = claims.claim_of(lease) if lease else None
            self._happened(effect.vip, self._ownership.claim_read(effect.vip, found, boot_ns()))

    def recheck(self, vip: Address) -> None:
        """Has a claim read out of turn: what it says is acted on as if a watch had shown it."""
        self._at_once.add(lambda: self._recheck(vip))

    async def _recheck(self, vip: Address) -> None:
        try:
            lease = await self._read(self._others, claims.lease_name(vip))
        except ClusterError as error:
            log.debug("claim of %s: %s", vip, error)
        else:
            self.claim_seen(vip, claims.claim_of(lease) if lease else None)

    async def _list_own_claims(self, _effect: ListOwnClaims) -> None:
        try:
            listed = await self._others.list(claims.own_claims_selector(self._node))
        except ClusterError as error:
            log.debug("own claims: %s", error)
            self.do(self._ownership.own_claims_list_failed(boot_ns()))
        else:
            found = [claim for lease in listed.leases if (claim := claims.claim_of(lease)) is not None]
            self.do(self._ownership.own_claims_listed(found, listed.sent_ns, boot_ns()))
        self._woken.set()

    def _ask_segment(self, effect: Probe) -> None:
        """Once, however often it is asked for before its turn has come."""
        if effect.vip not in self._probed:
            self._probed.add(effect.vip)
            self._probing.add(lambda: self._probe(effect))

    async def _probe(self, effect: Probe) -> None:
        """A segment that cannot be asked is asked again: the VIP is not taken before."""
        try:
            taken_by = await self._surface.probe(effect.vip)
        except DataPlaneError as error:
            if str(error) != self._unasked:
                log.warning("%s; what cannot be asked for is not taken", error)
            self._unasked = str(error)
            return
        finally:
            self._probed.discard(effect.vip)
        self._happened(effect.vip, self._ownership.probed(effect.vip, taken_by, boot_ns()))

    # ---- requests ----

    async def _reach(self) -> None:
        """While the server cannot be reached, the heartbeat finds out when it can, and the rest waits for a while."""
        try:
            async with asyncio.timeout(UNREACHABLE_S):
                await self._reachable.wait()
        except TimeoutError:
            pass

    async def _write(
        self,
        writer: LeaseWriter,
        name: str,
        version: Version | None,
        content: LeaseContent,
        write: Callable[[Lease, LeaseContent], Coroutine[Any, Any, Written]],
    ) -> Written:
        """`write` is for a version that there is; one that there is not is created."""
        sent_ns = boot_ns()
        written = await (write(self._lease(name, version), content) if version else writer.create(name, content))
        self._note_pace(writer, sent_ns, written)
        self._note_reach(reached=isinstance(written, (Applied, Conflicted, Missing)))
        return written

    async def _read(self, writer: LeaseWriter, name: str) -> Lease | None:
        sent_ns = boot_ns()
        try:
            lease = await writer.read(name)
        except ClusterError as error:
            self._note_reach(reached=False)
            if isinstance(error, (ThrottledError, UnavailableError)):
                self._slow_down(sent_ns, error.failure.retry_after_s)
            raise
        self._note_reach(reached=True)
        self._note_answer(writer, sent_ns)
        return lease

    def _note_pace(self, writer: LeaseWriter, sent_ns: int, written: Written) -> None:
        """What a write came to, and after how long, says how many claims the server takes."""
        match written:
            case Unknown():
                self._slow_down(sent_ns, 0.0)
            case Refused(passing=True, retry_after_s=wait_s):
                self._slow_down(sent_ns, wait_s)
            case _:
                self._note_answer(writer, sent_ns)

    def _note_answer(self, writer: LeaseWriter, sent_ns: int) -> None:
        note = self._pacing.renewed if writer is self._hearts else self._pacing.answered
        note(sent_ns, boot_ns())

    def _slow_down(self, sent_ns: int, wait_s: float) -> None:
        """Who waited in vain until now has waited long enough."""
        now_ns = boot_ns()
        wait_ns = round(max(REFUSED_S, wait_s) * NS_PER_S)
        self._pacing.refused(sent_ns, now_ns, 0 if now_ns - sent_ns > LATE_NS and not wait_s else wait_ns)

    def _note_reach(self, *, reached: bool) -> None:
        if reached:
            self._reachable.set()
        else:
            self._reachable.clear()

    def _lease(self, name: str, version: Version) -> Lease:
        return Lease("", name, uid=version.uid, version=version.resource_version)

    async def _pause_if_refused(self, written: Written) -> None:
        """What the server refuses for good is not tried again at once; when it wants less, no claim is sent."""
        if isinstance(written, Refused):
            await asyncio.sleep(max(REFUSED_S, written.retry_after_s))

    def _count(self, kind: str, written: Written) -> None:
        self.writes[kind, type(written).__name__.lower()] += 1

    # ---- the end ----

    async def part(self, lease_ns: int, limit_s: float) -> bool:
        """One last renewal, for so long; whether it was done within the limit."""
        before = self.renewed_ns
        self.do(self._ownership.part(lease_ns, boot_ns()))
        await self._until(lambda: self._ownership.parted, limit_s)
        return self.renewed_ns != before

    async def remove(self, vips: Iterable[Address], limit_s: float) -> bool:
        """Gives everything up, in good order, and removes these claims; whether that was done within the limit.

        Nothing may be wanted then. The own heartbeat goes last: with it goes the node's right to answer.
        """
        now_ns = boot_ns()
        self.do(self._ownership.want((), now_ns))
        for vip in vips:
            self.do(self._ownership.forget(vip, now_ns))
        if not await self._until(lambda: not self._ownership.active, limit_s):
            return False
        self._ownership.end()
        return await self._remove_heartbeat()

    async def _remove_heartbeat(self) -> bool:
        """A renewal may be under way: then it is another version."""
        for _ in range(REMOVE_TRIES):
            try:
                found = await self._hearts.read(claims.node_lease_name(self._node))
            except ClusterError:
                return False
            if found is None or isinstance(await self._hearts.delete(found), (Applied, Missing)):
                return True
        return False

    async def _until(self, holds: Callable[[], bool], limit_s: float) -> bool:
        try:
            async with asyncio.timeout(limit_s):
                while not holds():  # noqa: ASYNC110 - `run` waits for the same events, and must not miss one
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            return False
        return True


def _outcome_of(written: Written) -> tuple[Outcome, Version | None, int]:
    match written:
        case Applied(lease, sent_ns):
            return Outcome.APPLIED, Version(lease.uid, lease.version), sent_ns
        case Conflicted():
            return Outcome.CONFLICT, None, 0
        case Missing():
            return Outcome.MISSING, None, 0
        case Refused():
            return Outcome.REFUSED, None, 0
    return Outcome.UNKNOWN, None, 0


Performer: TypeAlias = Callable[[Leases, Any], None]
Request: TypeAlias = Callable[[Leases, Any], Coroutine[Any, Any, None]]


def _in(pool: Callable[[Leases], TaskPool], request: Request) -> Performer:
    """Performs an effect by a request, which waits for its turn."""
    return lambda leases, effect: pool(leases).add(lambda: request(leases, effect))


def _now(request: Request) -> Performer:
    return _in(lambda leases: leases._at_once, request)  # noqa: SLF001


def _by_and_by(request: Request) -> Performer:
    return _in(lambda leases: leases._claiming, request)  # noqa: SLF001


_PERFORMERS: dict[type[Any], Performer] = {
    SetFence: Leases._set_fence,  # noqa: SLF001
    SetEntry: Leases._set_entry,  # noqa: SLF001
    ClearEntry: Leases._clear_entry,  # noqa: SLF001
    WriteHeartbeat: _now(Leases._write_heartbeat),  # noqa: SLF001
    ReadHeartbeat: _now(Leases._read_heartbeat),  # noqa: SLF001
    ListOwnClaims: _now(Leases._list_own_claims),  # noqa: SLF001
    WriteClaim: _by_and_by(Leases._write_claim),  # noqa: SLF001
    DeleteClaim: _by_and_by(Leases._delete_claim),  # noqa: SLF001
    ReadClaim: _by_and_by(Leases._read_claim),  # noqa: SLF001
    Probe: Leases._ask_segment,  # noqa: SLF001
}
