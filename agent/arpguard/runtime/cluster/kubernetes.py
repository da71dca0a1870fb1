"""The agent's side towards Kubernetes: connects, follows, takes part, reports; and leaves in good order."""

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from arpguard.addresses import Address, MacAddress
from arpguard.config.model import AgentConfig
from arpguard.core.claimants import OUTSIDE, Claimant
from arpguard.core.closing import Closing
from arpguard.core.cluster import Lease
from arpguard.core.decisions import Report
from arpguard.core.members import speaker
from arpguard.core.reporting import Notice, Subject
from arpguard.core.sourcing import Collected
from arpguard.core.standing import ClusterState
from arpguard.kube.claims import vip_of
from arpguard.kube.client import Client
from arpguard.kube.connecting import find_access
from arpguard.kube.errors import ClusterError, JsonObject, NotFoundError
from arpguard.kube.events import EventWriter
from arpguard.kube.projections import is_deleting
from arpguard.kube.reflector import Change
from arpguard.kube.resources import DAEMON_SETS, PODS, Request
from arpguard.model import OwnerKind, Surroundings, Vip
from arpguard.runtime.cluster.conflicts import Conflicts, Judge
from arpguard.runtime.cluster.leaving import End, KubernetesOptions
from arpguard.runtime.cluster.member import Membership, Tell
from arpguard.runtime.cluster.objects import Cluster, Place
from arpguard.runtime.kernel.reconciler import Reconciler, some
from arpguard.runtime.settings import Settings
from arpguard.units import NS_PER_S
from arpguard.verdict import Kind, Verdict

log = logging.getLogger(__name__)

# For the next Pod to come, that of a rolling update being there already. No longer: if it does not come, because its
# image cannot be pulled, say, the VIPs are silent for a third of it, until others may take them.
PARTING_NS = 7 * NS_PER_S
LEAVE_S = 5.0
ASK_S = 2.0


@dataclass(frozen=True, slots=True)
class Found:
    """What the cluster asks for, as far as it is known."""

    vips: Mapping[Address, Vip]
    complete: bool
    problems: tuple[str, ...]
    closing: Closing


@dataclass(frozen=True, slots=True)
class Callbacks:
    """What the cluster makes necessary: a pass of the reconciler, a look at what is to be announced."""

    look: Callable[[], None]
    announce: Callable[[], None]


class Kubernetes:
    """Everything that has to do with the API server."""

    def __init__(
        self,
        clients: tuple[Client, Client, Client],
        server: str,
        place: Place,
        kernel: Reconciler,
        settings: Settings,
        callbacks: Callbacks,
    ) -> None:
        self._clients = clients
        self._place = place
        self._settings = settings
        self._callbacks = callbacks
        left = kernel.adopt()  # before the first pass, which would tell the kernel of no lease
        followed = {vip: place.node for vip, standing in left[1].items() if standing.kind is Kind.DELEGATED}
        self._cluster = Cluster(clients[0], server, place, callbacks.look, self._lease_changed, followed)
        self._membership = Membership(
            place, self._cluster, kernel, left, clients[1:], Tell(self._owned, self._taken_outside, callbacks.look)
        )
        self._judge = Judge(self._membership.knowledge)
        self._events = EventWriter(clients[0], place.node)
        self._collected = Collected()
        self._vips: Mapping[Address, Vip] = {}
        self._complete = False
        self._passed = False
        self._configmap_seen: object = self
        self._posted: frozenset[Notice] = frozenset()
        self._kernel = kernel
        self._is_full = False
        self._nobody: frozenset[Address] = frozenset()
        self._apart: frozenset[Address] = frozenset()
        self.state = ClusterState(
            server,
            place.namespace,
            candidates=self._membership.candidates,
            holder=self._membership.holder,
            origin=self._cluster.origin,
            refresh=self._refresh_state,
        )

    @classmethod
    async def connect(
        cls, options: KubernetesOptions, node: str, kernel: Reconciler, settings: Settings, callbacks: Callbacks
    ) -> "Kubernetes":
        """Reads how the server is reached; it need not be there yet. Raises ConfigError."""
        access = await find_access(options.kubeconfig)
        namespace, configmap = options.place
        clients = (Client(access, node), Client(access, node), Client(access, node))
        return cls(clients, access.host, Place(node, namespace, configmap), kernel, settings, callbacks)

    async def run(self) -> None:
        """Goes on until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._cluster.run())
                tasks.create_task(self._membership.run(self._settings.config.lease))
                tasks.create_task(self._events.run())
                tasks.create_task(self._judge.run())
        finally:
            for client in self._clients:
                await client.close()

    def _lease_changed(self, change: Change[Lease]) -> None:
        self._membership.lease_changed(change)
        if change.new is not None and change.new.holder and (vip := vip_of(change.new.name)) is not None:
            self._judge.held(vip, change.new.holder)

    # ---- for a pass of the reconciler ----

    def read_configmap(self) -> None:
        """Takes a changed ConfigMap over; a wrong one is told of."""
        if not self._place.configmap or not self._cluster.configmap_known:
            return
        found = self._cluster.configmap
        if found is self._configmap_seen:
            return
        self._configmap_seen = found
        wrong = self._settings.read_configmap(found)
        if wrong and found is not None:
            subject = Subject("v1", "ConfigMap", found.namespace, found.name, found.uid)
            if self._speaks_for(subject) or not self._membership.members:
                self._events.post(Notice(subject, "BadConfiguration", "Configure", wrong))

    async def collect(self, config: AgentConfig, surroundings: Surroundings) -> Found:
        """The VIPs of the configuration and of the cluster, as far as they are known."""
        cluster = self._cluster
        before = cluster.known, cluster.complete  # what comes meanwhile is not in it
        collected = await cluster.collect(config, surroundings)
        known = before[0] and cluster.known and not self._settings.awaited
        complete = known and before[1] and cluster.complete
        if collected.vips is not self._collected.vips or complete is not self._complete:
            vips = collected.vips
            self._vips = vips if complete else {at: vip for at, vip in vips.items() if not _awaits_announcer(vip)}
        self._collected, self._complete = collected, complete
        ready = known and self._passed  # before the first pass is through, no link is known
        self._membership.look_at(collected if ready else None, surroundings, config.lease)
        self._post_news(collected)
        return Found(self._vips, complete, tuple(self._problems()), cluster.closing(config, surroundings))

    def passed(self) -> None:
        """A pass is through: links may be others."""
        if not self._passed:
            self._callbacks.look()
        self._passed = True
        self._membership.passed(complete=self._complete)
        self._post_if_full()
        self._refresh_state()
        wishes = self._membership.wishes
        if (wishes.nobody, wishes.apart) != (self._nobody, self._apart):
            self._nobody, self._apart = wishes.nobody, wishes.apart
            self._callbacks.look()

    @property
    def _renewal_lost(self) -> str:
        """Why the lease is not renewed."""
        leases = self._membership.leases
        return leases.lost if leases is not None else ""

    def _problems(self) -> Iterable[str]:
        yield from self._collected.problems
        yield from self._cluster.announcer_problems
        for name, source in self._cluster.sources.items():
            if source.lost:
                yield f"Kubernetes: {name} are not heard of, what is known grows old: {source.lost}"
        if self._renewal_lost:
            yield f"Kubernetes: the lease cannot be renewed: {self._renewal_lost}"
        if self._membership.yielding:
            yield f"Kubernetes: another agent speaks as {self._place.node}, this one is silent: end one of them"
        if self._nobody:
            names = some(sorted(map(str, self._nobody)))
            yield f"no node may own {names}: `arpguard explain ADDRESS` says why for each node"
        if self._apart:
            pairs = some([f"{self._lead(address)} and {address}" for address in sorted(self._apart, key=str)])
            yield (
                f"no node may own both {pairs}, so each is elected by itself: "
                "`arpguard explain ADDRESS` says why for each node"
            )

    def _refresh_state(self) -> None:
        membership, state = self._membership, self.state
        leases = membership.leases
        state.complete = self._cluster.complete
        state.sources = self._cluster.sources
        state.vips = self._collected.vips
        state.nobody = membership.wishes.nobody
        state.nodes, state.members = self._cluster.nodes, membership.members
        state.alive = membership.alive
        state.yielding = membership.yielding
        state.times = membership.times
        state.events_written, state.events_dropped = self._events.written, self._events.dropped
        if leases is not None:
            state.renewed_ns, state.renewal_lost, state.writes = leases.renewed_ns, self._renewal_lost, leases.writes

    # ---- what is told ----

    def _post_news(self, collected: Collected) -> None:
        """What all nodes find alike is told by one of them, once it is known who they are."""
        if not self._membership.members:
            return
        now = frozenset((*collected.notices, *collected.own_notices, *self._election_notices()))
        for notice in now - self._posted:
            if notice in collected.own_notices or self._speaks_for(notice.subject):
                self._events.post(notice)
        self._posted = now

    def _post_if_full(self) -> None:
        """Each node for itself: their maps are their own."""
        is_full = bool(self._kernel.state.left_out)
        if is_full and not self._is_full:
            node = self._place.node
            note = f"the map of {node} is full: VIPs that its log names are not guarded there; raise bpf.max_entries"
            self._events.post(Notice(self._node_subject(), "MapFull", "Guard", note))
        self._is_full = is_full

    def _speaks_for(self, subject: Subject) -> bool:
        return speaker(subject, self._membership.members) == self._place.node

    def _election_notices(self) -> Iterable[Notice]:
        for address in self._nobody:
            note = f"no node may own {address}: `arpguard explain {address}` says why for each node"
            yield Notice(self._subject(address), "NobodyEligible", "Elect", note)
        for address in self._apart:
            note = f"no node may own both {self._lead(address)} and {address}: each is elected by itself"
            yield Notice(self._subject(address), "FamiliesApart", "Elect", note)

    def _lead(self, address: Address) -> Address | None:
        vip = self._collected.vips.get(address)
        return vip.lead if vip is not None else None

    def _owned(self, address: Address) -> None:
        self._callbacks.announce()
        if self._membership.holder(address).transitions:  # the first one is no change, and there may be thousands
            note = f"{self._place.node} answers for {address} now"
            self._events.post(Notice(self._subject(address), "OwnerChanged", "Elect", note, warning=False))

    async def _taken_outside(self, address: Address, mac: MacAddress) -> None:
        """A probe found a host outside the cluster, or a node without an agent."""
        claimant = await self._judge.who(mac)
        who = f"outside the cluster by {mac}" if claimant == OUTSIDE else f"by {claimant}, {mac}"
        note = f"{address} is in use {who}: no other node answers for it while it is"
        self._events.post(Notice(self._subject(address), "VIPTakenOutside", "Probe", note))

    def is_member(self, mac: MacAddress) -> bool:
        """Whether a MAC is a cluster node's."""
        return self._membership.is_member(mac)

    def hear_of(self, conflicts: Conflicts) -> None:
        """Takes part in telling of claims: who makes them, and Events."""
        conflicts.judge, conflicts.post = self._claimed, self._post_claim
        self._judge.tell = conflicts.tell

    def _claimed(self, report: Report) -> None:
        decision = report.decision
        self._membership.claimed(report.link, decision.key.vip, decision.sha)
        self._judge.heard(report)

    def _post_claim(self, report: Report, claimant: Claimant) -> None:
        """An Event of a claim; none of one that may well be its owner's."""
        decision = report.decision
        vip, where = decision.key.vip, f"on {report.link} of {self._place.node}"
        if claimant.is_node:
            holder = self._membership.holding(vip).node or "nobody"
            note = f"{claimant}, {decision.sha}, claims {vip} {where}, and {holder} has it: two nodes may answer"
            self._events.post(Notice(self._subject(vip), "VIPSplitBrain", "Guard", note))
        elif decision.verdict is Verdict.CONFLICT:
            who = "" if claimant == OUTSIDE else f" ({claimant})"
            note = f"{decision.sha}{who} claims {vip} {where}"
            self._events.post(Notice(self._subject(vip), "VIPConflict", "Guard", note))

    def _subject(self, address: Address) -> Subject:
        """The object that makes an address a VIP; this node's where that is the configuration."""
        vip = self._collected.vips.get(address)
        if vip is not None and vip.service is not None:
            namespace, name = vip.service
            service = self._cluster.services.get(vip.service)
            return Subject("v1", "Service", namespace, name, service.uid if service else "")
        return self._node_subject()

    def _node_subject(self) -> Subject:
        node = self._cluster.nodes.get(self._place.node)
        return Subject("v1", "Node", "", self._place.node, node.uid if node else "")

    # ---- the end ----

    async def leave(self) -> End:
        """Why the agent ends, when everything is done that has to be done while it still runs."""
        end = await self._why()
        log.info("ends: %s", end.value)
        if end is End.REMOVED:
            if not await self._membership.remove(LEAVE_S):
                log.warning("not all claims of this node were removed in time: delete its Leases")
        elif not await self._membership.part(self._parting_ns(end), ASK_S):
            log.warning("the lease was not renewed for the last time: answers end at the fence")
        return end

    def _parting_ns(self, end: End) -> int:
        usual_ns = self._membership.times.duration_ns
        return max(PARTING_NS, usual_ns) if end is End.REPLACED else usual_ns

    async def _why(self, environment: Mapping[str, str] = os.environ) -> End:
        namespace = environment.get("POD_NAMESPACE", self._place.namespace)
        daemonset, pod = environment.get("DAEMONSET_NAME", ""), environment.get("POD_NAME", "")
        try:
            if daemonset and _is_going(await self._read(Request("get", DAEMON_SETS, namespace, daemonset))):
                return End.REMOVED
            if pod and _is_going(await self._read(Request("get", PODS, namespace, pod))):
                return End.REPLACED
        except ClusterError as error:
            log.warning("why this agent ends cannot be found out: %s", error)
        return End.STOPPED

    async def _read(self, request: Request) -> JsonObject | None:
        try:
            return (await self._clients[0].call(request, ASK_S)).body
        except NotFoundError:
            return None


def _awaits_announcer(vip: Vip) -> bool:
    """Whether it follows an announcer of which nothing has been read yet: what the kernel has of it stays meanwhile."""
    return vip.owner.kind is OwnerKind.FOLLOW and not vip.owner.node


def _is_going(found: JsonObject | None) -> bool:
    return found is None or is_deleting(found)
