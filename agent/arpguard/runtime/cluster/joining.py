"""How a node joins: it reads its own heartbeat, which decides whether it keeps the entries that the last agent left.

Entries that are still this node's stay in the kernel; joining removes the others.
"""

import asyncio
import logging
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from arpguard.addresses import Address
from arpguard.clock import boot_ns
from arpguard.core.desired import NOBODY
from arpguard.core.leasetimes import times_of
from arpguard.core.ownership.machine import Ownership
from arpguard.core.ownership.records import NOTHING_KEPT, Heartbeat, Kept, KernelTerm, epoch_number
from arpguard.core.ownership.tracing import TracedOwnership
from arpguard.core.vouching.trials import Trials, clean_ns
from arpguard.kube.errors import ClusterError
from arpguard.kube.records import Records
from arpguard.model import NodeControl, Standing
from arpguard.runtime.cluster.granting import Granting
from arpguard.runtime.cluster.here import Here
from arpguard.runtime.cluster.leases import DRAIN_S, Leases
from arpguard.runtime.cluster.member import Membership
from arpguard.runtime.cluster.publishing import LinkPublisher
from arpguard.runtime.cluster.requests import Requests
from arpguard.runtime.cluster.segment import Segment
from arpguard.runtime.cluster.standings import Standings
from arpguard.runtime.cluster.terms import ReadSecret, Terms
from arpguard.runtime.cluster.tracing import TracedLeases
from arpguard.runtime.cluster.vouching import Vouching
from arpguard.runtime.kernel.reconciler import SmallPass
from arpguard.runtime.tracefile import TraceFile
from arpguard.runtime.waking import is_set_within
from arpguard.units import NS_PER_S
from arpguard.verdict import Kind

log = logging.getLogger(__name__)

RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class Left:
    """What the last agent left in the kernel (`Reconciler.adopt`)."""

    control: NodeControl | None
    standings: Mapping[Address, Standing]

    @property
    def owned(self) -> dict[Address, int]:
        """The VIPs that the kernel answers for, with their epochs (by number)."""
        return {vip: standing.epoch for vip, standing in self.standings.items() if standing.kind is Kind.OWNED}

    def followed(self, node: str) -> dict[Address, str]:
        """The VIPs that an announcer on this node was to answer for, each with the node's name."""
        return {vip: node for vip, standing in self.standings.items() if standing.kind is Kind.DELEGATED}

    def kept(self, found: Heartbeat | None, term: KernelTerm) -> Kept:
        """The part of it that is still this node's, by its heartbeat on the server; its term stays for now."""
        control = self.control
        if not (control and found and found.epoch and epoch_number(found.epoch) == control.epoch):
            return replace(NOTHING_KEPT, term=term)
        return Kept(found.epoch, tuple(self.owned), control.trusted_fence_ns(boot_ns()), term)


async def join(
    here: Here,
    left: Left,
    records: tuple[Records, Records],
    alone: asyncio.Event,
    read_secret: ReadSecret,
    trace: Path | None = None,
) -> Membership:
    """Waits until this node may take part, and makes it a member.

    `records`: one connection for its own heartbeat, and one for everything else. `alone` is set once no program of
    another build answers. `read_secret` reads the cluster's secret from the Secret of the given name.
    `trace`: the file for the protocol's events, None: none.
    """
    hearts, others = records
    found = await _own_heartbeat(here.node, hearts)
    terms = Terms(here, read_secret)
    kept = left.kept(found, terms.read())
    if not kept.epoch:
        nobodys = dict.fromkeys(left.owned, NOBODY)
        if nobodys and here.kernel.take_standings(nobodys, boot_ns()) is SmallPass.NEEDS_WHOLE:
            here.listener.look()
        await _outlive(found, alone)

    # No `await` from here on, so no change of a Lease is missed.
    times = times_of(here.outlook.lease, vouched=kept.term.number != 0)  # until a configuration says that it is none
    instance = str(uuid.uuid4())
    traced = TraceFile(trace, here.node, instance) if trace else None
    protocol = partial(TracedOwnership, tell=traced.tell) if traced else Ownership
    ownership = protocol(here.node, instance, times, lambda: str(uuid.uuid4()), kept)
    requests = Requests(here.node, hearts, others)
    links = LinkPublisher(here, found.links if found and kept.epoch else ())
    owned = left.owned if kept.epoch else {}
    standings = Standings(here, ownership, owned)
    segment = Segment(here, ownership)
    performer = partial(TracedLeases, traced) if traced else Leases
    leases = performer(here, ownership, requests, standings, terms, links, segment)
    granting = Granting(here, ownership, instance, leases, terms, Trials(clean_ns(os.environ)), traced)
    vouching = Vouching(here, ownership, leases, links, terms, granting)

    for heartbeat in here.cluster.heartbeats:
        leases.heartbeat_seen(heartbeat.node, heartbeat)
    leases.do(ownership.want(owned, boot_ns()))  # otherwise it would release their claims, if it knows them
    for claim in here.cluster.claims:
        leases.claim_seen(claim.vip, claim)
    return Membership(here, ownership, leases, standings, links, segment, vouching)


async def _own_heartbeat(node: str, hearts: Records) -> Heartbeat | None:
    """This node's heartbeat as the server has it; retries until it can be read."""
    failed = False
    while True:
        try:
            return await hearts.heartbeat(node)
        except ClusterError as error:
            if not failed:
                log.warning("lease: cannot read this node's heartbeat, so claiming no VIP yet: %s", error)
            failed = True
            await asyncio.sleep(RETRY_S)


async def _outlive(found: Heartbeat | None, alone: asyncio.Event) -> None:
    """Waits while programs of another build may answer on this node's old lease: until then they are this node."""
    if found is None or not found.instance:
        return
    await is_set_within(alone, found.duration_ns / NS_PER_S)
    await asyncio.sleep(DRAIN_S)
