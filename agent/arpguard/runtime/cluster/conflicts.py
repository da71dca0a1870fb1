"""What becomes of the claims that the kernel reports: who makes them, and what is told of them and done."""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from arpguard.addresses import Address, MacAddress
from arpguard.clock import boot_ns
from arpguard.core.claimants import OUTSIDE, Claimant, claimant_of, virtual_router
from arpguard.core.conflicts import Holding, Suspicions
from arpguard.core.decisions import ConflictLog, Report
from arpguard.dataplane.netlink import read_neighbours
from arpguard.errors import DataPlaneError
from arpguard.model import Decision
from arpguard.runtime.cluster.claimlog import ClaimLog
from arpguard.runtime.waking import Alarm
from arpguard.units import NS_PER_S

log = logging.getLogger(__name__)

WAITING = 1024  # claims whose claimant is still to be found
NEIGHBOURS_NS = NS_PER_S  # for how long what was read of the neighbour table counts
CHECKS = 10  # of own claims in a second, and in a large cluster in a second for each NODES_PER_S nodes
NODES_PER_S = 10


class Conflicts:
    """Tells of claims: in the list, in the log, and (`post`) as Events; and has those of hosts outside defended."""

    def __init__(self, heard: ConflictLog, defend: Callable[[Decision], None]) -> None:
        self._heard = heard
        self._defend = defend
        self._news = ClaimLog()
        self.judge: Callable[[Report], None] | None = None
        self.post: Callable[[Report, Claimant], None] | None = None

    def claimed(self, report: Report) -> None:
        """The kernel reports a claim. Without a cluster there is nobody to ask who makes it."""
        if self.judge is not None:
            self.judge(report)
        else:
            self.tell(report, virtual_router(report.decision.sha) or OUTSIDE)

    def tell(self, report: Report, claimant: Claimant) -> None:
        """A claim that counts. What a node of this cluster says is for the claim protocol, and not defended against."""
        decision = report.decision
        self._heard.add(report, claimant)
        if not claimant.is_node:
            self._defend(decision)

        if not self._news.is_news(decision, boot_ns()):
            return

        if self.post is not None:
            self.post(report, claimant)
        log.warning(
            "claim: vip=%s interface=%s sha=%s verdict=%s reason=%s claimant=%s",
            decision.key.vip,
            report.link,
            decision.sha,
            decision.verdict.name.lower(),
            decision.reason.name.lower(),
            f'"{claimant}"',
        )


class Knowledge(Protocol):
    """What is known of the cluster."""

    def published(self) -> Mapping[MacAddress, str]:
        """Nodes by the MACs in their heartbeats, and this node by its links'."""

    def addresses(self) -> Mapping[Address, str]:
        """Nodes by the addresses of their Node objects."""

    def unheard(self) -> frozenset[str]:
        """Nodes whose agents are not heard of."""

    def holding(self, vip: Address) -> Holding:
        """Who has a VIP."""

    def recheck(self, vip: Address) -> None:
        """Has this node's claim on a VIP read."""


class Judge:
    """Finds out who makes a claim, and holds back what may be a VIP that moves. `tell`: where claims that count go."""

    def __init__(self, cluster: Knowledge) -> None:
        self.tell: Callable[[Report, Claimant], None] | None = None
        self._cluster = cluster
        self._heard: deque[Report] = deque()
        self._suspicions = Suspicions()
        self._resolved: dict[MacAddress, str] = {}
        self._resolved_ns: int | None = None
        self._unread = ""
        self._window = self._checks = 0
        self._alarm = Alarm()

    def heard(self, report: Report) -> None:
        """The kernel reports a claim."""
        if len(self._heard) < WAITING:
            self._heard.append(report)
            self._alarm.wake()

    def held(self, vip: Address, node: str) -> None:
        """A node has a VIP."""
        self._suspicions.held(vip, node)

    async def who(self, mac: MacAddress) -> Claimant:
        """Whose a MAC address is."""
        published = self._cluster.published()
        await self._resolve([mac], published)
        return claimant_of(mac, published, self._resolved, self._cluster.unheard())

    async def run(self) -> None:
        """Judges until it is cancelled."""
        while True:
            self._alarm.clear()
            await self._judge()
            for report, claimant in self._suspicions.due(self._cluster.holding, boot_ns()):
                self._tell(report, claimant)
            await self._alarm.sleep_until(self._suspicions.next_ns())

    async def _judge(self) -> None:
        heard, self._heard = self._heard, deque()
        if not heard:
            return
        published = self._cluster.published()
        await self._resolve((report.decision.sha for report in heard), published)
        unheard, nodes = self._cluster.unheard(), len(set(published.values()))
        for report in heard:
            claimant = claimant_of(report.decision.sha, published, self._resolved, unheard)
            if claimant.is_node:
                self._suspect(report, claimant, nodes)
            else:
                self._tell(report, claimant)

    def _suspect(self, report: Report, claimant: Claimant, nodes: int) -> None:
        """A node claims a VIP. If it is this node's, whether it still is does not wait for a watch."""
        vip, now_ns = report.decision.key.vip, boot_ns()
        holding = self._cluster.holding(vip)
        is_new, counting = self._suspicions.heard(report, claimant, holding, now_ns)
        if counting is not None:
            self._tell(counting, claimant)
        if is_new and holding.own_since_ns is not None and self._may_check(now_ns, nodes):
            self._cluster.recheck(vip)

    def _may_check(self, now_ns: int, nodes: int) -> bool:
        """Whoever forges MACs of nodes is not to make requests; the regular sync sees what is not looked at here.

        All nodes hear the forger at once: together they read a hundred claims in a second, as many as they renew.
        """
        window = now_ns // (NS_PER_S * max(1, nodes // NODES_PER_S))
        if window != self._window:
            self._window, self._checks = window, 0
        self._checks += 1
        return self._checks <= CHECKS

    async def _resolve(self, macs: Iterable[MacAddress], published: Mapping[MacAddress, str]) -> None:
        """Reads the neighbour table, where it may tell who somebody is, and was not just read."""
        now_ns = boot_ns()
        if self._resolved_ns is not None and now_ns < self._resolved_ns + NEIGHBOURS_NS:
            return
        if all(mac in published or virtual_router(mac) for mac in macs):
            return

        addresses = self._cluster.addresses()
        try:
            neighbours = await read_neighbours()
        except DataPlaneError as error:
            if str(error) != self._unread:
                log.warning("%s; nodes without an agent are taken for hosts outside", error)
            self._unread = str(error)
            return

        self._resolved = {mac: addresses[address] for address, mac in neighbours if address in addresses}
        self._resolved_ns = now_ns

    def _tell(self, report: Report, claimant: Claimant) -> None:
        if self.tell is not None:
            self.tell(report, claimant)
