"""The agent in Kubernetes: connects, watches, joins, reports, and leaves in good order."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from arpguard.addresses import Address, MacAddress
from arpguard.config.model import AgentConfig
from arpguard.core.claimants import Claimant
from arpguard.core.closing import Closing
from arpguard.core.clusterstate import ClusterState
from arpguard.core.conflicts import KnownOwner
from arpguard.core.decisions import Report
from arpguard.core.electing import Wishes
from arpguard.core.ownership.records import Claim, Heartbeat, Holder
from arpguard.kube.client import Client
from arpguard.kube.connecting import find_access
from arpguard.kube.events import EventWriter
from arpguard.kube.records import Records
from arpguard.kube.writer import LeaseWriter
from arpguard.model import OwnerKind, Surroundings, Vip
from arpguard.runtime.cluster.aside import Aside
from arpguard.runtime.cluster.conflicts import Conflicts, Judge
from arpguard.runtime.cluster.ending import ASK_S, why_it_ends
from arpguard.runtime.cluster.here import Here
from arpguard.runtime.cluster.joining import Left, join
from arpguard.runtime.cluster.leaving import End, KubernetesOptions
from arpguard.runtime.cluster.member import Membership
from arpguard.runtime.cluster.objects import AgentIdentity, Cluster
from arpguard.runtime.cluster.outlook import Outlook
from arpguard.runtime.cluster.reports import Reports
from arpguard.runtime.cluster.times import timeout_s, times_of
from arpguard.runtime.kernel.reconciler import Reconciler, some
from arpguard.runtime.settings import Settings
from arpguard.units import NS_PER_S
from arpguard.verdict import Reason

log = logging.getLogger(__name__)

# Long enough for the next Pod to start; in a rolling update it runs already. No longer: if it does not start, because
# its image cannot be pulled, say, the VIPs are silent for a third of this time, until others may take them.
PARTING_NS = 7 * NS_PER_S
LEAVE_S = 5.0


@dataclass(frozen=True, slots=True)
class Found:
    """What the cluster asks for, as far as the agent has read it."""

    vips: Mapping[Address, Vip]
    complete: bool
    problems: tuple[str, ...]
    closing: Closing


class Kubernetes:
    """Everything that has to do with the API server.

    Sets `passes` when a pass of the reconciler is needed, and `announcements` when there is something to announce.
    """

    def __init__(
        self,
        clients: tuple[Client, Client, Client],
        server: str,
        identity: AgentIdentity,
        kernel: Reconciler,
        settings: Settings,
        passes: asyncio.Event,
        announcements: asyncio.Event,
    ) -> None:
        self._clients = clients
        self._identity = identity
        self._settings = settings
        self._kernel = kernel
        self._passes = passes
        self._announcements = announcements
        self._left = Left(*kernel.adopt())  # before the first pass, which would clear the kernel's fence
        self._alone = asyncio.Event()
        self._outlook = Outlook(settings.config.lease)
        self._cluster = Cluster(clients[0], server, identity, self, self._left.followed(identity.node))
        self._membership: Membership | Aside = Aside(self._cluster, self._outlook)
        self._judge = Judge(self)
        self._events = EventWriter(clients[0], identity.node)
        self._reports = Reports(identity.node, self._events, self._cluster, self._outlook)
        self._vips: Mapping[Address, Vip] = {}
        self._complete = False
        self._passed = False
        self._configmap_seen: object = self
        self._wishes = Wishes()
        self.state = ClusterState(
            server,
            identity.namespace,
            candidates=self._membership.candidates,
            holder=self._membership.holder,
            origin=self._cluster.origin,
            refresh=self._refresh_state,
        )

    @classmethod
    async def connect(
        cls,
        options: KubernetesOptions,
        node: str,
        kernel: Reconciler,
        settings: Settings,
        passes: asyncio.Event,
        announcements: asyncio.Event,
    ) -> "Kubernetes":
        """Reads how to reach the server, which need not run yet. Raises ConfigError."""
        access = await find_access(options.kubeconfig)
        namespace, configmap = options.place
        clients = (Client(access, node), Client(access, node), Client(access, node))
        identity = AgentIdentity(node, namespace, configmap)
        return cls(clients, access.host, identity, kernel, settings, passes, announcements)

    async def run(self) -> None:
        """Runs until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._cluster.run())
                tasks.create_task(self._take_part())
                tasks.create_task(self._events.run())
                tasks.create_task(self._judge.run())
        finally:
            for client in self._clients:
                await client.close()

    async def _take_part(self) -> None:
        here = Here(self._identity.node, self._kernel, self._cluster, self._outlook, self)
        limit_s = timeout_s(times_of(self._outlook.lease))
        hearts, others = (Records(LeaseWriter(each, self._identity.namespace, limit_s)) for each in self._clients[1:])
        membership = await join(here, self._left, (hearts, others), self._alone)
        self._membership = membership
        self.state.candidates, self.state.holder = membership.candidates, membership.holder
        await membership.run()

    # ---- news of the cluster ----

    def look(self) -> None:
        """Something about VIPs may have changed: asks for a pass."""
        self._passes.set()

    def heartbeat_changed(self, node: str, old: Heartbeat | None, new: Heartbeat | None) -> None:
        """A node's heartbeat has changed; `new` None: it is gone."""
        self._membership.heartbeat_changed(node, old, new)

    def claim_changed(self, vip: Address, claim: Claim | None) -> None:
        """The claim to a VIP has changed; None: it is gone."""
        self._membership.claim_changed(vip, claim)
        if claim is not None and claim.holder:
            self._judge.held(vip, claim.holder)

    def frames(self, vip: Address) -> Counter[Reason]:
        """How many of a VIP's frames were judged for each reason, on all links."""
        return self._kernel.frames(vip)

    def reports_changed(self) -> None:
        """The other nodes have to hear of what this one sees of its announcer."""
        self._membership.wake()

    def owned(self, address: Address, holder: Holder) -> None:
        """This node has begun to answer for a VIP."""
        self._announcements.set()
        self._reports.owned(address, holder)

    async def taken_outside(self, address: Address, mac: MacAddress) -> None:
        """A probe found a host outside the cluster, or a node without an agent."""
        self._reports.taken_outside(address, mac, await self._judge.who(mac))

    # ---- for a pass of the reconciler ----

    def read_configmap(self) -> None:
        """Applies a changed ConfigMap; reports one that is wrong."""
        if not self._identity.configmap or not self._cluster.configmap_known:
            return
        found = self._cluster.configmap
        if found is self._configmap_seen:
            return
        self._configmap_seen = found
        wrong = self._settings.read_configmap(found)
        if wrong and found is not None:
            self._reports.configuration(found, wrong, self._membership.members)

    async def collect(self, config: AgentConfig, surroundings: Surroundings) -> Found:
        """The VIPs of the configuration and of the cluster, as far as the agent has read them."""
        cluster, outlook = self._cluster, self._outlook
        before = cluster.known, cluster.complete  # what arrives meanwhile is not in the result
        collected = await cluster.collect(config, surroundings)
        known = before[0] and cluster.known and not self._settings.awaited
        complete = known and before[1] and cluster.complete

        if collected.vips is not outlook.collected.vips or complete is not self._complete:
            vips = collected.vips
            self._vips = vips if complete else {at: vip for at, vip in vips.items() if not _awaits_announcer(vip)}
        self._complete = complete

        seen_before = outlook.vips
        outlook.collected, outlook.surroundings, outlook.lease = collected, surroundings, config.lease
        outlook.known = known and self._passed  # no link is known before the first pass is done
        self._membership.vips_changed(seen_before)
        self._reports.news(self._membership.members, self._wishes)
        return Found(self._vips, complete, tuple(self._problems()), cluster.closing(config, surroundings))

    def passed(self) -> None:
        """A pass is done: links may have changed."""
        if not self._passed:
            self.look()
        self._passed = True
        if self._complete and self._kernel.alone:
            self._alone.set()
        self._membership.wake()

        self._reports.map_full(is_full=bool(self._kernel.state.left_out))
        self._refresh_state()
        before, self._wishes = self._wishes, self._membership.wishes
        if (before.nobody, before.apart) != (self._wishes.nobody, self._wishes.apart):
            self.look()

    def _problems(self) -> Iterable[str]:
        yield from self._outlook.collected.problems
        yield from self._cluster.announcer_problems
        for name, source in self._cluster.sources.items():
            if source.lost:
                yield f"Kubernetes: lost the watch on {name}; their last known state is going stale: {source.lost}"
        if self._membership.renewals.lost:
            yield f"Kubernetes: cannot renew the lease: {self._membership.renewals.lost}"
        if self._membership.yielding:
            yield f"Kubernetes: another agent speaks as {self._identity.node}, so this one is silent: stop one of them"
        if self._wishes.nobody:
            names = some(sorted(map(str, self._wishes.nobody)))
            yield f"no node may own {names}: `arpguard explain ADDRESS` says why for each node"
        if self._wishes.apart:
            apart = sorted(self._wishes.apart, key=str)
            pairs = some([f"{self._outlook.lead(address)} and {address}" for address in apart])
            yield (
                f"no node may own both {pairs}, so each is elected by itself: "
                "`arpguard explain ADDRESS` says why for each node"
            )

    def _refresh_state(self) -> None:
        membership, state = self._membership, self.state
        state.complete = self._cluster.complete
        state.sources = self._cluster.sources
        state.vips = self._outlook.collected.vips
        state.nobody = membership.wishes.nobody
        state.nodes, state.members = self._cluster.nodes, membership.members
        state.alive = membership.alive
        state.yielding = membership.yielding
        state.times = membership.times
        state.renewed_ns, state.renewal_lost = membership.renewals.renewed_ns, membership.renewals.lost
        state.writes = membership.writes
        state.events_written, state.events_dropped = self._events.written, self._events.dropped

    # ---- who makes a rival claim ----

    def published(self) -> dict[MacAddress, str]:
        """Nodes by the MACs in their heartbeats; for this node all links count, guarded or not."""
        heard = {link.mac: heartbeat.node for heartbeat in self._membership.heartbeats for link in heartbeat.links}
        own = (*self._outlook.surroundings.links, *self._kernel.state.links)
        return heard | {link.mac: self._identity.node for link in own if not link.mac.is_zero}

    def addresses(self) -> dict[Address, str]:
        """Nodes by the addresses of their Node objects."""
        return {address: name for name, node in self._cluster.nodes.items() for address in node.addresses}

    def unheard(self) -> frozenset[str]:
        """Nodes whose agents do not renew."""
        return frozenset(self._cluster.nodes) - self._membership.alive

    def owner_of(self, vip: Address) -> KnownOwner:
        """Who has a VIP: by a valid claim if it is elected, else by its source."""
        found = self._outlook.vip(vip)
        is_heard = not any(source.lost for source in self._cluster.sources.values())
        if found is None:
            return KnownOwner("", is_sure=False)
        if found.owner.kind is not OwnerKind.ELECT:
            return KnownOwner(found.owner.node, is_sure=is_heard)
        return self._owner_by_claim(vip, is_heard=is_heard)

    def _owner_by_claim(self, vip: Address, *, is_heard: bool) -> KnownOwner:
        holder = self._membership.holder(vip)
        is_valid = holder.void is False and holder.alive
        is_mine = holder.node == self._identity.node
        return KnownOwner(
            node=holder.node if is_valid else "",
            is_sure=is_heard and holder.void is not None and (is_valid or not is_mine),
            own_since_ns=self._membership.owned_since_ns(vip) if is_valid and is_mine else None,
        )

    def recheck(self, vip: Address) -> None:
        """Reads the claim to a VIP from the server: it may no longer be this node's."""
        self._membership.recheck(vip)

    def is_member(self, mac: MacAddress) -> bool:
        """Whether a MAC belongs to a guarded link of some node."""
        published = (link.mac for heartbeat in self._membership.heartbeats for link in heartbeat.links)
        return mac in (link.mac for link in self._kernel.state.links) or mac in published

    def hear_of(self, conflicts: Conflicts) -> None:
        """Finds out who makes rival claims, and posts Events about them."""
        conflicts.judge, conflicts.post = self._claimed, self._post_claim
        self._judge.tell = conflicts.tell

    def _claimed(self, report: Report) -> None:
        decision = report.decision
        self._membership.claimed(report.link, decision.key.vip, decision.sha)
        self._judge.heard(report)

    def _post_claim(self, report: Report, claimant: Claimant) -> None:
        self._reports.claimed(report, claimant, self.owner_of(report.decision.key.vip).node)

    # ---- the end ----

    async def leave(self) -> End:
        """Does everything that has to be done while the agent still runs; returns why it stops."""
        end = await why_it_ends(self._clients[0], self._identity.namespace)
        log.info("stopping: %s", end.value)
        if end is End.REMOVED:
            if not await self._membership.remove(LEAVE_S):
                log.warning("not all claims of this node were removed in time: delete its Leases")
        elif not await self._membership.part(self._parting_ns(end), ASK_S):
            log.warning("the last renewal failed: answers end at the fence")
        return end

    def _parting_ns(self, end: End) -> int:
        usual_ns = self._membership.times.duration_ns
        return max(PARTING_NS, usual_ns) if end is End.REPLACED else usual_ns


def _awaits_announcer(vip: Vip) -> bool:
    """Whether it follows an announcer whose objects are not read yet: until then its entry stays as it is."""
    return vip.owner.kind is OwnerKind.FOLLOW and not vip.owner.node
