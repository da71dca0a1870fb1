"""Performs the effects of the claim protocol: requests to the API server, and writes to the kernel.

`core/ownership` is the protocol: it decides, and this acts. Everything runs in one event loop, so that an event and its
effects on the kernel are one step; requests are tasks, and their outcomes are the next events.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TypeAlias, assert_never

from arpguard.addresses import Address
from arpguard.clock import boot_ns
from arpguard.core.ownership.machine import Ownership
from arpguard.core.ownership.records import (
    Claim,
    ClearEntry,
    ClearTerm,
    DeleteClaim,
    DeleteHeartbeat,
    Effect,
    Heartbeat,
    ListOwnClaims,
    Outcome,
    Probe,
    Published,
    ReadClaim,
    ReadHeartbeat,
    ReadTerm,
    ReportTaken,
    SetEntry,
    SetFence,
    SetTerm,
    StartOver,
    Version,
    WriteClaim,
    WriteHeartbeat,
    epoch_number,
)
from arpguard.errors import DataPlaneError, RestoredError
from arpguard.kube.errors import ClusterError
from arpguard.kube.writer import Applied, Conflicted, Missing, Refused, Written
from arpguard.runtime.cluster.here import Here
from arpguard.runtime.cluster.pool import PacedPool, TaskPool
from arpguard.runtime.cluster.publishing import LinkPublisher
from arpguard.runtime.cluster.requests import Renewals, Requests
from arpguard.runtime.cluster.segment import Segment
from arpguard.runtime.cluster.standings import Standings
from arpguard.runtime.cluster.terms import Terms
from arpguard.runtime.waking import Alarm
from arpguard.units import NS_PER_MS, NS_PER_S

log = logging.getLogger(__name__)

DRAIN_S = 0.012  # by then any answer of a program that ran before the entry was cleared is on the wire
POLL_S = 0.01
PROBES_AT_ONCE = 64
UNBOUNDED = 1 << 30
BREATH = 3  # pauses are so many times as long as decisions: deciding takes at most a quarter of the time
LONG_NS = 5 * NS_PER_MS
TURN_NS = 10 * NS_PER_MS

_ForKernel: TypeAlias = SetFence | SetTerm | ClearTerm | ReadTerm | SetEntry | ClearEntry
_Request: TypeAlias = (
    WriteHeartbeat | ReadHeartbeat | DeleteHeartbeat | ListOwnClaims | WriteClaim | DeleteClaim | ReadClaim
)


class Leases:
    """One node's part in the protocol: the loop that drives it, and the code that performs its effects."""

    def __init__(
        self,
        here: Here,
        ownership: Ownership,
        requests: Requests,
        standings: Standings,
        terms: Terms,
        links: LinkPublisher,
        segment: Segment,
    ) -> None:
        self._here = here
        self._ownership = ownership
        self.requests = requests
        self._standings = standings
        self._terms = terms
        self._links = links
        self._segment = segment
        self._at_once = TaskPool(UNBOUNDED, self._fail)
        self._claiming = PacedPool(requests.pacing, self._fail)
        self._probing = TaskPool(PROBES_AT_ONCE, self._fail)
        self._probed: set[Address] = set()
        self._unasked = ""
        self._others_ns = 0  # time that other tasks had while a decision was made in turns
        self._fault: BaseException | None = None
        self._alarm = Alarm()
        self._has_news = True  # that a decision may depend on
        self.renewals = Renewals()

    async def run(self, decide: Callable[[int], Awaitable[int | None]]) -> None:
        """Drives the protocol until it is cancelled.

        Calls `decide` with the time: it tells the protocol which VIPs this node wants, and returns the latest moment at
        which to call it again. That takes long where there are many nodes, and the protocol has more to do than wants a
        decision: so it is called when something has happened, or when that moment has come.
        """
        decides_ns: int | None = None
        try:
            while True:
                self._alarm.clear()
                if self._fault is not None:
                    raise self._fault
                now_ns = boot_ns()
                self.do(self._ownership.tick(now_ns))  # a renewal that is due must not wait for a decision

                if self._has_news or (decides_ns is not None and now_ns >= decides_ns):
                    self._has_news = False
                    decides_ns = await self._decide(decide, now_ns)
                await self._alarm.sleep_until(self._ownership.next_ns(boot_ns()), decides_ns)
        finally:
            for pool in (self._at_once, self._claiming, self._probing):
                pool.stop()

    async def _decide(self, decide: Callable[[int], Awaitable[int | None]], now_ns: int) -> int | None:
        """One decision, and what follows from it."""
        self._others_ns = 0
        again_ns = await decide(now_ns)
        decided_ns = boot_ns()
        self.do(self._ownership.tick(decided_ns))
        await self._breathe(decided_ns - now_ns - self._others_ns)
        return again_ns

    async def do_in_turns(self, steps: Iterable[None]) -> None:
        """Runs a long computation step by step, and lets other tasks and due renewals in between."""
        began_ns = boot_ns()
        for _ in steps:
            if (now_ns := boot_ns()) - began_ns > TURN_NS:
                await asyncio.sleep(0)
                began_ns = boot_ns()
                self._others_ns += began_ns - now_ns
                self.do(self._ownership.tick(began_ns))

    async def _breathe(self, took_ns: int) -> None:
        """Pauses after a long decision, so that many changes share the next one; still renews in time."""
        until_ns = boot_ns() + BREATH * took_ns if took_ns > LONG_NS else 0
        while (now_ns := boot_ns()) < until_ns:
            due_ns = max(self._ownership.next_ns(now_ns) or until_ns, now_ns + LONG_NS)
            await asyncio.sleep((min(due_ns, until_ns) - now_ns) / NS_PER_S)
            self.do(self._ownership.tick(boot_ns()))

    def _fail(self, fault: BaseException) -> None:
        """The protocol would wait forever for a lost outcome: the agent ends, and is started again."""
        self._fault = self._fault or fault
        self._alarm.wake()

    def wake(self, *, is_news: bool = True) -> None:
        """Something has changed: `run` calls `decide` again; without news it only looks when the next tick is due."""
        self._has_news = self._has_news or is_news
        self._alarm.wake()

    # ---- events from watches ----

    def heartbeat_seen(self, node: str, heartbeat: Heartbeat | None) -> None:
        """A heartbeat has changed, or is gone. If that needs a decision, the caller calls `wake`, too."""
        self.do(self._ownership.heartbeat_seen(node, heartbeat, boot_ns()))

    def claim_seen(self, vip: Address, claim: Claim | None) -> None:
        """A claim has changed, or is gone."""
        self._happened(vip, self._ownership.claim_seen(vip, claim, boot_ns()))

    # ---- effects ----

    def do(self, effects: Iterable[Effect]) -> None:
        """Performs effects in order; writes to the kernel are done when this returns."""
        for effect in effects:
            if self._fault is not None:
                return
            match effect:
                case WriteHeartbeat() | ReadHeartbeat() | DeleteHeartbeat() | ListOwnClaims():
                    self._at_once.add(partial(self._request, effect))
                case WriteClaim() | ReadClaim() | DeleteClaim():
                    self._claiming.add(partial(self._request, effect))  # it waits for its turn
                case Probe():
                    self._ask_segment(effect)
                case ReportTaken():
                    self._segment.report(effect.vip, effect.mac)
                case StartOver():
                    self._claiming.stop()
                    self._fail(RestoredError())
                case _:
                    self._tell_kernel(effect)

    def _tell_kernel(self, effect: _ForKernel) -> None:
        match effect:
            case SetFence():
                self._here.kernel.fence(epoch_number(effect.epoch), effect.fence_ns, effect.lease_ns)
            case SetTerm():
                self._terms.set(effect.term)
            case ClearTerm():
                self._terms.clear()
            case ReadTerm():
                self.do(self._ownership.term_read(self._terms.read(), boot_ns()))
            case SetEntry():
                self._set_entry(effect)
            case ClearEntry():
                self._clear_entry(effect)

            case _:
                assert_never(effect)

    def _set_entry(self, effect: SetEntry) -> None:
        self._standings.own(effect.vip, epoch_number(effect.epoch))
        log.info('owned: vip=%s why="%s"', effect.vip, effect.why)
        self._changed(effect.vip)

    def _clear_entry(self, effect: ClearEntry) -> None:
        self._standings.disown(effect.vip)
        log.info('given up: vip=%s why="%s"', effect.vip, effect.why)
        self._changed(effect.vip)
        if effect.drain:
            self._at_once.add(lambda: self._drained(effect.vip))

    async def _drained(self, vip: Address) -> None:
        await asyncio.sleep(DRAIN_S)
        self._happened(vip, self._ownership.drained(vip, boot_ns()))

    def _changed(self, vip: Address) -> None:
        self._standings.changed(vip)
        self.wake()

    def _happened(self, vip: Address, effects: Iterable[Effect]) -> None:
        self.do(effects)
        self._changed(vip)

    async def _request(self, effect: _Request) -> None:
        match effect:
            case WriteHeartbeat():
                await self._write_heartbeat(effect)
            case ReadHeartbeat():
                await self._read_heartbeat(effect)
            case DeleteHeartbeat():
                await self.requests.delete_heartbeat(effect)
            case ListOwnClaims():
                await self._list_own_claims()
            case WriteClaim():
                await self._write_claim(effect)
            case DeleteClaim():
                await self._delete_claim(effect)
            case ReadClaim():
                await self._read_claim(effect)

            case _:
                assert_never(effect)

    # ---- heartbeats ----

    async def _write_heartbeat(self, effect: WriteHeartbeat) -> None:
        own, told = effect.node == self._here.node, self._links.told
        published = self._links.to_publish() if own else Published()
        if published != told:
            effect = replace(effect, quiet=False)

        shown = self._here.cluster.leases_version
        written = await self.requests.write_heartbeat(effect, published)
        if own:
            self.renewals.written(written, at_rest=self._ownership.heartbeat.lease.resting)
        if own and isinstance(written, Applied):
            self._here.cluster.renewed(written.sent_ns)

        outcome, version, sent_ns = _outcome_of(written)
        self.do(self._ownership.heartbeat_written(effect, outcome, version, shown, sent_ns, boot_ns()))
        self.wake(is_news=not effect.quiet or outcome is not Outcome.APPLIED)

    async def _read_heartbeat(self, effect: ReadHeartbeat) -> None:
        sent_ns, is_news = boot_ns(), True
        try:
            found = await self.requests.read_heartbeat(effect.node)
        except ClusterError as error:
            if effect.node == self._here.node:
                self.renewals.unread(str(error), at_rest=self._ownership.heartbeat.lease.resting)
            self.do(self._ownership.heartbeat_read_failed(effect.node, boot_ns()))
        else:
            before = self._ownership.peers.known(effect.node)
            is_news = found is None or before is None or replace(before, version=found.version) != found
            self.do(self._ownership.heartbeat_read(effect.node, found, sent_ns, boot_ns()))
        self.wake(is_news=is_news)

    # ---- claims ----

    async def _write_claim(self, effect: WriteClaim) -> None:
        written = await self.requests.write_claim(effect, self._here.outlook.source(effect.vip))
        outcome, version, _ = _outcome_of(written)
        self._happened(effect.vip, self._ownership.claim_written(effect, outcome, version, boot_ns()))

    async def _delete_claim(self, effect: DeleteClaim) -> None:
        outcome, version, _ = _outcome_of(await self.requests.delete_claim(effect))
        self._happened(effect.vip, self._ownership.claim_deleted(effect, outcome, version, boot_ns()))

    async def _read_claim(self, effect: ReadClaim) -> None:
        await self.requests.reach()
        sent_ns = boot_ns()
        try:
            found = await self.requests.read_claim(effect.vip)
        except ClusterError as error:
            log.debug("claim of %s: %s", effect.vip, error)
            self._happened(effect.vip, self._ownership.claim_read_failed(effect.vip, boot_ns()))
        else:
            self._happened(effect.vip, self._ownership.claim_read(effect.vip, found, sent_ns, boot_ns()))

    def recheck(self, vip: Address) -> None:
        """Reads a claim out of turn, and acts on it as if the watch had shown it."""
        self._at_once.add(lambda: self._recheck(vip))

    async def _recheck(self, vip: Address) -> None:
        sent_ns = boot_ns()
        try:
            found = await self.requests.read_claim(vip)
        except ClusterError as error:
            log.debug("claim of %s: %s", vip, error)
        else:
            before = self._ownership.claims.last_seen(vip).claim
            self.do(self._ownership.claim_read(vip, found, sent_ns, boot_ns()))
            self._here.listener.claim_changed(vip, before, found)

    async def _list_own_claims(self) -> None:
        try:
            listed = await self.requests.list_own_claims()
        except ClusterError as error:
            log.debug("cannot list this node's claims: %s", error)
            self.do(self._ownership.own_claims_list_failed(boot_ns()))
        else:
            self.do(self._ownership.own_claims_listed(listed.claims, listed.sent_ns, boot_ns()))
        self.wake()

    def _ask_segment(self, effect: Probe) -> None:
        """Queues a probe, unless one for this VIP waits already."""
        if effect.vip not in self._probed:
            self._probed.add(effect.vip)
            self._probing.add(lambda: self._probe(effect))

    async def _probe(self, effect: Probe) -> None:
        """Probes, and retries if that fails: until it succeeds this node does not take the VIP."""
        try:
            taken_by = await self._segment.probe(effect.vip)
        except DataPlaneError as error:
            if str(error) != self._unasked:
                log.warning("%s; not taking the VIP until a probe succeeds", error)
            self._unasked = str(error)
            return
        finally:
            self._probed.discard(effect.vip)
        self._happened(effect.vip, self._ownership.probed(effect.vip, taken_by, boot_ns()))

    # ---- the end ----

    async def part(self, lease_ns: int, limit_s: float) -> bool:
        """Sends one last renewal, of that length; returns whether it was applied within the limit."""
        before = self.renewals.renewed_ns
        self.do(self._ownership.heartbeat.part(lease_ns, boot_ns()))
        await self._until(lambda: self._ownership.heartbeat.parted, limit_s)
        return self.renewals.renewed_ns != before

    async def remove(self, vips: Iterable[Address], limit_s: float) -> bool:
        """Gives up everything in good order, and deletes these claims; returns whether it was done within the limit.

        This node must want nothing by then. Its heartbeat goes last: with it goes the right to answer. While it names
        a voucher it stays: the others would take a bound node without one for a node that says nothing new. Its voucher
        revokes it once the kernel returns no pings.
        """
        now_ns = boot_ns()
        leaving = dict.fromkeys(self._ownership.wanted, "arpguard is being removed from this node")
        self.do(self._ownership.want((), now_ns, leaving))
        for vip in vips:
            self.do(self._ownership.forget(vip, now_ns))
        if not await self._until(lambda: not self._ownership.claims.active, limit_s):
            return False
        self.do(self._ownership.heartbeat.name(None, boot_ns()))
        if not await self._until(lambda: self._ownership.heartbeat.naming.named is None, limit_s):
            return False
        self._ownership.heartbeat.end()
        return await self.requests.remove_heartbeat()

    async def _until(self, holds: Callable[[], bool], limit_s: float) -> bool:
        try:
            async with asyncio.timeout(limit_s):
                while not holds():  # noqa: ASYNC110 - `run` waits for the same alarm, and must not miss it
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
