"""Finds out which host makes a rival claim, and whether the claim counts."""

import logging
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from typing import Protocol

from arpguard.addresses import Address, MacAddress
from arpguard.clock import boot_ns
from arpguard.core.bounding import remember
from arpguard.core.claimants import Claimant, ClaimantKind, claimant_of, virtual_router
from arpguard.core.conflicts import KnownOwner, Strangers, Suspicions
from arpguard.core.decisions import Report
from arpguard.core.ownership.records import Claim
from arpguard.dataplane.netlink import read_neighbours
from arpguard.errors import DataPlaneError
from arpguard.model import Vip
from arpguard.runtime.cluster.reports import Reports
from arpguard.runtime.conflicts import Conflicts
from arpguard.runtime.inthread import in_thread
from arpguard.runtime.waking import Alarm
from arpguard.units import NS_PER_S

log = logging.getLogger(__name__)

FORMER = 1024  # MACs
WAITING = 1024  # claims whose claimant is not known yet
NEIGHBOURS_NS = NS_PER_S  # how long a look at the neighbour table counts
CHECKS = 10  # of this node's claims per second; in a large cluster, per second and NODES_PER_S nodes
NODES_PER_S = 10


class Knowledge(Protocol):
    """What the agent knows of the cluster."""

    def published(self) -> Mapping[MacAddress, str]:
        """Nodes by the MACs in their heartbeats, and this node by its links'."""

    def addresses(self) -> Mapping[Address, str]:
        """Nodes by the addresses of their Node objects."""

    def unheard(self) -> frozenset[str]:
        """Nodes whose agents do not renew."""

    def owner_of(self, vip: Address) -> KnownOwner:
        """Who has a VIP."""

    def recheck(self, vip: Address) -> None:
        """Reads the claim to a VIP from the server."""


class Judge:
    """Finds out which host makes a claim; holds it back if the VIP may only be moving; reports claims that count."""

    def __init__(self, cluster: Knowledge, conflicts: Conflicts, reports: Reports) -> None:
        self._cluster = cluster
        self._conflicts = conflicts
        self._reports = reports
        self._heard: deque[Report] = deque()
        self._suspicions = Suspicions()
        self._strangers = Strangers()
        self._former: OrderedDict[MacAddress, str] = OrderedDict()  # MACs that nodes published before
        self._resolved: dict[MacAddress, str] = {}
        self._resolved_ns: int | None = None
        self._unread = ""
        self._window_ns = self._checks = 0
        self._alarm = Alarm()

    def heard(self, report: Report) -> None:
        """The kernel reports a claim."""
        if len(self._heard) < WAITING:
            self._heard.append(report)
            self._alarm.wake()

    def claim_changed(self, vip: Address, old: Claim | None, new: Claim | None) -> None:
        """The claim to a VIP has changed, or was read; None: there was none, or there is none."""
        if _tenure(old) != _tenure(new):
            self._suspicions.moved(vip, boot_ns())

    def vips_changed(self, before: Mapping[Address, Vip], now: Mapping[Address, Vip]) -> None:
        """The VIPs have changed: those that are not elected may have other owners."""
        if before is now:
            return
        for vip, found in now.items():
            past = before.get(vip)
            if past is not found and past is not None and past.owner != found.owner:
                self._suspicions.moved(vip, boot_ns())

    def macs_changed(self, node: str, old: frozenset[MacAddress], new: frozenset[MacAddress]) -> None:
        """A node publishes other MACs than before, or none: its heartbeat was deleted.

        It may have claimed its VIPs with the new ones already. And the old ones stay its own: a bond that takes the MAC
        of its active port changes back, and a deleted heartbeat comes back.
        """
        for mac in old - new:
            remember(self._former, mac, node, FORMER)
        if new - old:
            self._strangers.withdraw(new - old)
            self._conflicts.withdraw(new - old)

    def _published(self) -> Mapping[MacAddress, str]:
        return {**self._former, **self._cluster.published()}

    async def who(self, mac: MacAddress) -> Claimant:
        """Whose a MAC address is."""
        published = self._published()
        await self._resolve([mac], published)
        return claimant_of(mac, published, self._resolved, self._cluster.unheard())

    async def run(self) -> None:
        """Judges until it is cancelled."""
        while True:
            self._alarm.clear()
            await self._judge()
            for report, claimant in self._suspicions.due(self._cluster.owner_of, self._check, boot_ns()):
                self._tell(report, claimant)
            await self._alarm.sleep_until(self._suspicions.next_ns())

    async def _judge(self) -> None:
        heard, self._heard = self._heard, deque()
        if not heard:
            return

        published = self._published()
        await self._resolve((report.decision.sha for report in heard), published)
        unheard = self._cluster.unheard()

        for report in heard:
            claimant = claimant_of(report.decision.sha, published, self._resolved, unheard)
            if claimant.is_node:
                self._suspect(report, claimant)
            elif claimant.kind is not ClaimantKind.OUTSIDE or self._is_outside(report):
                self._tell(report, claimant)

    def _is_outside(self, report: Report) -> bool:
        """Whether a MAC that no node publishes cannot be the owner's."""
        owner = self._cluster.owner_of(report.decision.key.vip)
        return not owner.may_be_elsewhere or self._strangers.heard(report, boot_ns())

    def _suspect(self, report: Report, claimant: Claimant) -> None:
        """A node claims a VIP. If this node owns it, it checks that at once, without waiting for the watch."""
        vip, now_ns = report.decision.key.vip, boot_ns()
        owner = self._cluster.owner_of(vip)
        is_new, counting = self._suspicions.heard(report, claimant, owner, now_ns)
        if counting is not None:
            self._tell(counting, claimant)
        if is_new and owner.own_since_ns is not None:
            self._check(vip)

    def _check(self, vip: Address) -> bool:
        """Reads a claim; False if too many were read: a host with forged MACs can cause such requests.

        All nodes hear that host: together they read a hundred claims in a second, as many as they renew. The regular
        sync checks what is skipped here.
        """
        now_ns = boot_ns()
        if now_ns >= self._window_ns:
            nodes = len(set(self._published().values()))
            self._window_ns, self._checks = now_ns + NS_PER_S * max(1, nodes // NODES_PER_S), 0

        self._checks += 1
        if self._checks > CHECKS:
            return False
        self._cluster.recheck(vip)
        return True

    async def _resolve(self, macs: Iterable[MacAddress], published: Mapping[MacAddress, str]) -> None:
        """Reads the neighbour table if it may tell whose a MAC is, and was not just read."""
        now_ns = boot_ns()
        if self._resolved_ns is not None and now_ns < self._resolved_ns + NEIGHBOURS_NS:
            return
        if all(mac in published or virtual_router(mac) for mac in macs):
            return

        addresses = self._cluster.addresses()
        try:
            neighbours = await in_thread(read_neighbours)
        except DataPlaneError as error:
            if str(error) != self._unread:
                log.warning("%s; meanwhile, nodes without an agent count as hosts outside the cluster", error)
            self._unread = str(error)
            return

        self._resolved = {mac: addresses[address] for address, mac in neighbours if address in addresses}
        self._resolved_ns = now_ns

    def _tell(self, report: Report, claimant: Claimant) -> None:
        if self._conflicts.tell(report, claimant):
            self._reports.claimed(report, claimant, self._cluster.owner_of(report.decision.key.vip).node)


def _tenure(claim: Claim | None) -> tuple[str, str, int] | None:
    return claim.tenure if claim is not None else None
