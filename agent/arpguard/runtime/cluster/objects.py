"""Watches the cluster's objects, and collects the VIPs that they define.

It watches Services and Nodes; EndpointSlices while a Service has externalTrafficPolicy Local; the objects of other
announcers while a Service follows one; the agent's ConfigMap; and the Leases of the agent's namespace.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Any, Protocol
from urllib.parse import urlsplit

from arpguard.addresses import Address
from arpguard.config.model import AgentConfig
from arpguard.core import cluster
from arpguard.core.admission import avoided
from arpguard.core.closing import Closing, closing_of
from arpguard.core.cluster import SourceState
from arpguard.core.origins import Origin
from arpguard.core.ownership.records import Claim, Heartbeat
from arpguard.core.sourcing import Collected, Sourcing
from arpguard.kube import projections
from arpguard.kube.claims import news_selector
from arpguard.kube.client import Client
from arpguard.kube.listing import Scope
from arpguard.kube.records import Record, record_of
from arpguard.kube.reflector import Change, Pace, Reflector, Reflectors
from arpguard.kube.resources import CONFIG_MAPS, ENDPOINT_SLICES, LEASES, NODES, SERVICES
from arpguard.model import OwnerKind, Surroundings
from arpguard.runtime.cluster.announcers import AnnouncerListener, Announcers

LEASE_PACE = Pace(cap_s=2.0, steady_s=3.0)
_QUICK_PACE = Pace(cap_s=2.0)


@dataclass(frozen=True, slots=True)
class AgentIdentity:
    """This agent's identity in the cluster. `configmap` is a name in `namespace`; empty: there is none."""

    node: str
    namespace: str
    configmap: str = ""


class ObjectListener(AnnouncerListener, Protocol):
    """Listens for changes to the objects."""

    def heartbeat_changed(self, node: str, old: Heartbeat | None, new: Heartbeat | None) -> None:
        """A node's heartbeat has changed; `new` None: it is gone."""

    def claim_changed(self, vip: Address, old: Claim | None, new: Claim | None) -> None:
        """The claim to a VIP has changed; `new` None: it is gone."""


class Cluster:
    """Watches the objects. `followed`: the nodes that the last agent followed, by VIP.

    `announcers`: what Services follow. `service_changes` counts what the watch of Services has shown.
    """

    def __init__(
        self,
        client: Client,
        server: str,
        identity: AgentIdentity,
        listener: ObjectListener,
        followed: Mapping[Address, str],
    ) -> None:
        self._identity = identity
        self._servers = addresses_of(server)
        self._listener = listener
        self._sourcing = Sourcing()
        self._collected = Collected()
        self._owned_by = False
        own = Scope(identity.namespace, fields=f"metadata.name={identity.configmap}")
        in_namespace = Scope(identity.namespace)
        told = self._told
        self._services = Reflector(client, SERVICES, projections.service, self._service_changed, pace=_QUICK_PACE)
        self._node_objects = Reflector(client, NODES, projections.node, self._node_changed, pace=_QUICK_PACE)
        self._slices = Reflector(client, ENDPOINT_SLICES, projections.endpoint_slice, told, pace=_QUICK_PACE)
        self._configmaps = Reflector(client, CONFIG_MAPS, projections.config_map, told, own, _QUICK_PACE)
        self._leases = Reflector(
            client, LEASES, record_of, self._lease_changed, in_namespace, LEASE_PACE, self._lease_stream_silent
        )
        self.announcers = Announcers(client, identity.node, listener, followed)
        self._reflectors = Reflectors()
        self.nodes: Mapping[str, cluster.Node] = {}
        self.service_changes = 0

    async def run(self) -> None:
        """Watches until it is cancelled."""
        async with self._reflectors as reflectors:
            for reflector in self._always():
                reflectors.start(reflector)
            await self.announcers.run(reflectors)

    def _always(self) -> list[Reflector[Any]]:
        wanted: list[Reflector[Any]] = [self._services, self._node_objects, self._leases]
        return [*wanted, self._configmaps] if self._identity.configmap else wanted

    @property
    def leases_version(self) -> str:
        """The resourceVersion up to which the watch of Leases has shown everything; "" for none.

        One etcd counts the versions of all Leases: whatever is written after this was read has a higher one.
        """
        return self._leases.version

    @property
    def leases_known(self) -> bool:
        """Whether all Leases have been read at least once."""
        return self._leases.synced

    @property
    def leases_seen_ns(self) -> int:
        """Until when the watch has shown what happened to Leases (boot clock)."""
        return self._leases.seen_ns

    @property
    def known(self) -> bool:
        """Whether all VIPs are known, and all nodes that may be alive.

        EndpointSlices and other announcers may still be missing: that affects only the VIPs that need them.
        """
        return all(reflector.synced for reflector in self._always())

    @property
    def complete(self) -> bool:
        """Whether everything that makes an address a VIP, or says whose it is, has been read at least once."""
        collected = self._collected
        slices = self._slices.synced or not collected.needs_slices
        return self.known and slices and (self.announcers.complete or not collected.follows)

    @property
    def configmap(self) -> cluster.ConfigMap | None:
        """The agent's ConfigMap; None when there is none."""
        return self._configmaps.objects.get((self._identity.namespace, self._identity.configmap))

    @property
    def configmap_known(self) -> bool:
        """Whether the agent knows if there is one."""
        return self._configmaps.synced

    @property
    def heartbeats(self) -> Iterator[Heartbeat]:
        """The heartbeats, as the watch shows them."""
        return (record for record in self._leases.objects.values() if isinstance(record, Heartbeat))

    @property
    def claims(self) -> Iterator[Claim]:
        """The claims, as the watch shows them."""
        return (record for record in self._leases.objects.values() if isinstance(record, Claim))

    @property
    def services(self) -> Mapping[tuple[str, str], cluster.Service]:
        """The Services by namespace and name."""
        return self._services.objects

    @property
    def sources(self) -> dict[str, SourceState]:
        """The state of the watch on each kind."""
        known = {
            "services": self._services,
            "nodes": self._node_objects,
            "leases": self._leases,
            "configmaps": self._configmaps,
            "endpointslices": self._slices,
        }
        running = self._reflectors.running
        states = {name: reflector.state for name, reflector in known.items() if reflector in running}
        return states | self.announcers.sources

    def hear_news_only(self, yes: bool) -> None:  # noqa: FBT001 - it is the event
        """Whether to watch no renewals of bound nodes that say nothing new; all that they need, agents read."""
        self._leases.show_only(news_selector(self._identity.node) if yes else "", self._may_be_quiet)

    def _may_be_quiet(self, record: Record) -> bool:
        return isinstance(record, Heartbeat) and record.bound and record.node != self._identity.node

    def renewed(self, sent_ns: int) -> None:
        """This node's heartbeat was written: if the stream of Leases does not show it soon, the stream is dead."""
        self._leases.expect(sent_ns)

    def _lease_stream_silent(self) -> None:
        """Doubts all other streams, too: a server that stalls one stalls all, and only Leases can show it."""
        for reflector in self._reflectors.running:
            reflector.doubt()

    def closing(self, config: AgentConfig, surroundings: Surroundings) -> Closing:
        """What is closed on this node, as far as its Node object has been read."""
        node = self.nodes.get(self._identity.node)
        own = node.addresses if node is not None else ()
        return closing_of(config, surroundings, avoided(surroundings, self._servers), own)

    async def collect(self, config: AgentConfig, surroundings: Surroundings) -> Collected:
        """The VIPs of the configuration and of the cluster as of now."""
        self._owned_by = config.services.owned_by
        self.announcers.look_at(config.follow)
        slices = self._slices.objects if self._slices.synced else None
        self._collected = self._sourcing.collect(
            config,
            self._services.objects,
            slices,
            self.nodes,
            avoided(surroundings, self._servers),
            self.announcers.node_of,
        )
        await self._watch_what_is_needed(self._collected)
        return self._collected

    def origin(self, address: Address) -> Origin:
        """Where an address comes from."""
        origin, vip = self._sourcing.origin(address), self._collected.vips.get(address)
        if vip is None or vip.owner.kind is not OwnerKind.FOLLOW:
            return origin
        service = self.services.get(vip.service) if vip.service else None
        return replace(origin, follows=self.announcers.why(service, address)) if service else origin

    async def _watch_what_is_needed(self, collected: Collected) -> None:
        if collected.needs_slices:
            self._reflectors.start(self._slices)
        else:
            await self._reflectors.stop(self._slices)
        self.announcers.follow(collected.follows)

    def _service_changed(self, change: Change[cluster.Service]) -> None:
        """Asks for no pass where owners write `owned_by`, and nothing else has changed: nothing follows from it."""
        self.service_changes += 1
        is_news = (
            change.old is None or change.new is None or change.new != replace(change.old, owned_by=change.new.owned_by)
        )
        if is_news or not self._owned_by:
            self._listener.look()

    def _told(self, _change: Change[Any]) -> None:
        self._listener.look()

    def _lease_changed(self, change: Change[Record]) -> None:
        match change.old, change.new:
            case (Heartbeat(node=node), _) | (_, Heartbeat(node=node)):
                self._heartbeat_changed(node, _heartbeat(change.old), _heartbeat(change.new))
            case (Claim(vip=vip), _) | (_, Claim(vip=vip)):
                self._listener.claim_changed(vip, _claim(change.old), _claim(change.new))

    def _heartbeat_changed(self, node: str, old: Heartbeat | None, new: Heartbeat | None) -> None:
        self.announcers.hear(node, dict(new.speakers if new else ()))
        self._listener.heartbeat_changed(node, old, new)

    def _node_changed(self, change: Change[cluster.Node]) -> None:
        nodes, name = dict(self.nodes), change.key[1]
        if change.new is None:
            nodes.pop(name, None)
        else:
            nodes[name] = change.new
        self.nodes = nodes
        self._listener.look()


def _heartbeat(record: Record | None) -> Heartbeat | None:
    return record if isinstance(record, Heartbeat) else None


def _claim(record: Record | None) -> Claim | None:
    return record if isinstance(record, Claim) else None


def addresses_of(server: str) -> frozenset[Address]:
    """The API server's address, if its URL has an address and not a name."""
    try:
        return frozenset({ip_address(urlsplit(server).hostname or "")})
    except ValueError:
        return frozenset()
