"""The agent in Kubernetes: connects, watches, joins, reports, and leaves in good order."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from arpguard.addresses import Address, MacAddress
from arpguard.core.auditing import Audited
from arpguard.core.basis import Asked
from arpguard.core.claimants import Claimant
from arpguard.core.conflicts import KnownOwner
from arpguard.core.decisions import Report
from arpguard.core.electing import Wishes
from arpguard.core.leasetimes import timeout_s, times_of
from arpguard.core.ownership.records import Claim, Heartbeat, Holder
from arpguard.kube.client import Client
from arpguard.kube.clustersecret import cluster_secret
from arpguard.kube.connecting import Access
from arpguard.kube.events import EventWriter
from arpguard.kube.records import Records
from arpguard.kube.writer import LeaseWriter
from arpguard.model import OwnerKind, Surroundings, Vip
from arpguard.runtime.cluster.aside import Aside
from arpguard.runtime.cluster.ending import ASK_S, Ending
from arpguard.runtime.cluster.here import Here
from arpguard.runtime.cluster.joining import Left, join
from arpguard.runtime.cluster.judging import Judge
from arpguard.runtime.cluster.livestate import LiveState
from arpguard.runtime.cluster.member import Membership
from arpguard.runtime.cluster.objects import AgentIdentity, Cluster
from arpguard.runtime.cluster.outlook import Outlook
from arpguard.runtime.cluster.ownedby import OwnedBy
from arpguard.runtime.cluster.problems import problems_of, problems_of_elections
from arpguard.runtime.cluster.reports import Reports
from arpguard.runtime.conflicts import Conflicts
from arpguard.runtime.controlplane import End
from arpguard.runtime.kernel.announcing import Announcing
from arpguard.runtime.kernel.reconciler import Reconciler
from arpguard.runtime.settings import Settings
from arpguard.runtime.waking import Alarm
from arpguard.units import NS_PER_S
from arpguard.verdict import Reason

log = logging.getLogger(__name__)

# Long enough for the next Pod to start; in a rolling update it runs already. No longer: if it does not start, because
# its image cannot be pulled, say, the VIPs are silent for a third of this time, until others may take them.
PARTING_NS = 7 * NS_PER_S
LEAVE_S = 5.0
REFUSED_S = 1.0  # without rights: some of them may be left
WITHDRAW_S = 10.0


# API server --------> Cluster: Services, Nodes, ConfigMap, Leases
#    ^  ^                 |                          |
#    |  |                 | heartbeats, claims       | VIPs
#    |  | Leases          v                          v
#    |  +----------------- Membership             Outlook ---> Asked, for a pass
#    |                    |         |
#    |                    |         +--- elected VIPs, fence ---> Reconciler
#    |                    | holders
#    |                    v
#    |                LiveState ---> who reads: API and metrics
#    |                    | who has what
#    |                    v
#    | Events           Judge <--- rival claims
#    |                    | those that count
#    |                    v
#    +-- EventWriter <-- Reports, Conflicts
#    |
#    +-- OwnedBy <-- VIPs that the kernel answers for (Reconciler)
#    |
#    +-- Ending: why this agent stops
#
# Two Protocols lead against these arrows, and Kubernetes implements them: Cluster reports changes to ObjectListener,
# and Membership what it does to MemberListener.
class Kubernetes:
    """Everything that has to do with the API server, which need not run yet. Wakes `passes` to ask for a pass."""

    def __init__(
        self,
        access: Access,
        identity: AgentIdentity,
        kernel: Reconciler,
        settings: Settings,
        announcing: Announcing,
        conflicts: Conflicts,
        passes: Alarm,
    ) -> None:
        clients = (Client(access, identity.node), Client(access, identity.node), Client(access, identity.node))
        self._clients = clients
        self._identity = identity
        self._settings = settings
        self._kernel = kernel
        self._announcing = announcing
        self._passes = passes
        self._left = Left(*kernel.adopt())  # before the first pass, which would clear the kernel's fence
        self._alone = asyncio.Event()
        self._outlook = Outlook(replace(settings.config.lease, vouching=settings.vouching))
        self._cluster = Cluster(clients[0], access.host, identity, self, self._left.followed(identity.node))
        self._choose_stream()
        events = EventWriter(clients[0], identity.node)
        self.state = LiveState(
            access.host, identity.namespace, identity.node, kernel.state, self._cluster, self._outlook, events
        )
        self._reports = Reports(identity.node, events, self._cluster, self._outlook)
        self._owned_by = OwnedBy(clients[0], identity.node, self._cluster, kernel.tenures, self.look)
        self._judge = Judge(self.state, conflicts, self._reports)
        self._asked = Asked(settings.config, 0, {}, complete=False)
        self._decided_by: tuple[object, ...] | None = None  # None: no pass is done yet
        self._is_ready = False
        self._ending = Ending(clients[0], identity.namespace, identity.node)
        self._wishes = Wishes()

    @property
    def _membership(self) -> Membership | Aside:
        return self.state.member

    async def run(self) -> None:
        """Runs until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._cluster.run())
                tasks.create_task(self._take_part())
                tasks.create_task(self._reports.events.run())
                tasks.create_task(self._owned_by.run())
                tasks.create_task(self._judge.run())
        finally:
            for client in self._clients:
                await client.aclose()

    async def _take_part(self) -> None:
        here = Here(self._identity.node, self._kernel, self._cluster, self._outlook, self)
        limit_s = timeout_s(times_of(self._outlook.lease))
        hearts, others = (Records(LeaseWriter(each, self._identity.namespace, limit_s)) for each in self._clients[1:])
        trace = self._settings.trace
        membership = await join(here, self._left, (hearts, others), self._alone, self._read_secret, trace)
        self.state.joined(membership)
        await membership.run()

    async def _read_secret(self, name: str) -> bytes:
        return await cluster_secret(self._clients[2], self._identity.namespace, name)

    # ---- news of the cluster ----

    def look(self) -> None:
        """Something about VIPs may have changed: asks for a pass."""
        self._passes.wake()

    def heartbeat_changed(self, node: str, old: Heartbeat | None, new: Heartbeat | None) -> None:
        """A node's heartbeat has changed; `new` None: it is gone."""
        self._membership.heartbeat_changed(node, old, new)
        self._judge.macs_changed(node, _macs(old), _macs(new))

    def claim_changed(self, vip: Address, old: Claim | None, new: Claim | None) -> None:
        """The watch shows that the claim to a VIP has changed, or it was read; None: there is none."""
        self._membership.claim_changed(vip, new)
        self._judge.claim_changed(vip, old, new)

    def frames(self, vips: Iterable[Address]) -> Counter[Reason]:
        """How many frames of VIPs were judged for each reason, on all links."""
        return self._kernel.frames(vips)

    def reports_changed(self) -> None:
        """Publishes what this node sees of its announcer, for the other nodes."""
        self._membership.wake()

    def owned(self, address: Address, holder: Holder) -> None:
        """This node has begun to answer for a VIP."""
        self._announcing.wake()
        self._reports.owned(address, holder)

    def taken_outside(self, address: Address, mac: MacAddress, claimant: Claimant) -> None:
        """A host outside the cluster, or a node without an agent, has a VIP."""
        self._reports.taken_outside(address, mac, claimant)

    def _choose_stream(self) -> None:
        """Where nodes vouch for each other, the stream of Leases has the news only.

        Also until the ConfigMap says whether they do: few say that they do not, and only there the stream begins twice.
        """
        self._cluster.hear_news_only(self._settings.awaited or self._settings.vouching is not None)

    # ---- for a pass of the reconciler ----

    async def ask(self, surroundings: Surroundings) -> Asked:
        """The VIPs of the configuration and of the cluster, as far as the agent has read them."""
        self._read_configmap()
        config, generation = self._settings.config, self._settings.in_force.generation
        cluster, outlook = self._cluster, self._outlook
        before = cluster.known, cluster.complete  # what arrives meanwhile is not in the result
        collected = await cluster.collect(config, surroundings)
        known = before[0] and cluster.known and not self._settings.awaited
        complete = known and before[1] and cluster.complete

        vips = self._asked.vips  # the same object while they are the same
        if collected.vips is not outlook.collected.vips or complete is not self._asked.complete:
            vips = collected.vips if complete else _without_awaiting(collected.vips)

        seen_before = outlook.vips
        outlook.collected, outlook.surroundings = collected, surroundings
        outlook.lease = replace(config.lease, vouching=self._settings.vouching)
        self._choose_stream()
        outlook.known = known and self._decided_by is not None  # no link is known before the first pass is done
        self._membership.vips_changed(seen_before)
        self._judge.vips_changed(seen_before, outlook.vips)
        self._reports.news(self._membership.members, self._wishes)
        problems = (
            *problems_of(self._identity.node, cluster, outlook, self.state, self._owned_by.problem),
            *problems_of_elections(self._wishes, outlook),
        )
        closing = cluster.closing(config, surroundings)
        self._asked = Asked(config, generation, vips, complete, problems, closing)
        return self._asked

    def _read_configmap(self) -> None:
        """Applies a changed ConfigMap; reports one that is wrong."""
        if not self._identity.configmap or not self._cluster.configmap_known:
            return
        found = self._cluster.configmap
        if not self._ending.saw(found):
            return
        wrong = self._settings.read_configmap(found)
        if wrong and found is not None:
            self._reports.configuration(found, wrong, self._membership.members)

    def passed(self) -> None:
        """A pass is done: links may have changed."""
        decided_by, self._decided_by = self._decided_by, self._decides_by()
        if decided_by is None:
            self.look()
        self._is_ready = self._is_ready or self._asked.complete
        if self._asked.complete and self._kernel.attaching.alone:
            self._alone.set()
        if self._is_ready:
            self._owned_by.follow(on=self._asked.config.services.owned_by)
        if decided_by != self._decided_by:
            self._membership.wake()

        self._reports.map_full(is_full=bool(self._kernel.state.left_out))
        self._see_elections()

    def _see_elections(self) -> None:
        """The next pass reports what elections found."""
        if self.state.is_cut_off:
            return
        before, self._wishes = self._wishes, self._membership.wishes
        if (before.nobody, before.apart) != (self._wishes.nobody, self._wishes.apart):
            self.look()

    def _decides_by(self) -> tuple[object, ...]:
        """What a decision of the member depends on, besides Leases: in a large cluster that takes long."""
        state, outlook, cluster = self._kernel.state, self._outlook, self._cluster
        mode = state.control.mode if state.control else None
        collected = outlook.collected
        found = (cluster.nodes, cluster.known, collected.vips, collected.undecided, outlook.known, outlook.lease)
        return (state.links, mode, *found)

    # ---- who makes a rival claim ----

    def claimed(self, report: Report) -> None:
        """Another host claims a VIP. Before this node knows whose each VIP is, it only defends its own."""
        decision = report.decision
        if self._is_ready:
            self._membership.claimed(report.link, decision.key.vip, decision.sha)
            self._judge.heard(report)
        elif not self._is_guarded(decision.sha):
            self._announcing.defend(decision)

    def _is_guarded(self, mac: MacAddress) -> bool:
        """Whether a MAC belongs to a guarded link of some node."""
        published = (link.mac for heartbeat in self._membership.heartbeats for link in heartbeat.links)
        return mac in (link.mac for link in self._kernel.state.links) or mac in published

    def owner_of(self, vip: Address) -> KnownOwner:
        """Who has a VIP: by a valid claim if it is elected, else by its source."""
        return self.state.owner_of(vip)

    async def who(self, mac: MacAddress) -> Claimant:
        """Whose a MAC address is."""
        return await self._judge.who(mac)

    def answered_by_others(self, audited: Audited) -> None:
        """Posts what an audit found."""
        self._reports.answered_by_others(audited)

    # ---- the end ----

    async def leave(self) -> End:
        """Does everything that has to be done while the agent still runs; returns why it stops."""
        end = await self._ending.why()
        log.info("stopping: %s", end.value)
        if end.removes_guard:
            if not await self._membership.remove(REFUSED_S if end is End.RIGHTS_GONE else LEAVE_S):
                log.warning("could not delete all Leases of this node in time: delete those that name this node")
            await self._owned_by.withdraw(WITHDRAW_S)
        elif not await self._membership.part(self._parting_ns(end), ASK_S):
            log.warning("the last renewal failed: this node stops answering for elected VIPs when its fence expires")
        return end

    def _parting_ns(self, end: End) -> int:
        usual_ns = self._membership.times.duration_ns
        return max(PARTING_NS, usual_ns) if end is End.REPLACED else usual_ns


def _without_awaiting(vips: Mapping[Address, Vip]) -> dict[Address, Vip]:
    """Leaves out VIPs that follow an announcer whose objects are not read yet: until then their entries stay."""
    return {at: vip for at, vip in vips.items() if vip.owner.kind is not OwnerKind.FOLLOW or vip.owner.node}


def _macs(heartbeat: Heartbeat | None) -> frozenset[MacAddress]:
    return frozenset(link.mac for link in heartbeat.links) if heartbeat is not None else frozenset()
