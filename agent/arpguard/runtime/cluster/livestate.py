"""What the agent's parts know of the cluster: for readers, and for the part that judges rival claims."""

from collections import Counter
from collections.abc import Mapping

from arpguard.addresses import Address, MacAddress
from arpguard.core.claimwords import Candidate
from arpguard.core.cluster import Node, SourceState
from arpguard.core.conflicts import KnownOwner
from arpguard.core.members import Member
from arpguard.core.origins import Origin
from arpguard.core.ownership.lease import Times
from arpguard.core.ownership.records import Holder
from arpguard.core.vouching.state import VouchingState
from arpguard.kube.events import EventWriter
from arpguard.model import NodeState, OwnerKind, Vip
from arpguard.runtime.cluster.aside import Aside
from arpguard.runtime.cluster.member import Membership
from arpguard.runtime.cluster.objects import Cluster
from arpguard.runtime.cluster.outlook import Outlook


class LiveState:
    """Implements `ClusterState` and `judging.Knowledge`. It keeps only who takes part for this node: `member`."""

    def __init__(
        self,
        server: str,
        namespace: str,
        node: str,
        kernel: NodeState,
        cluster: Cluster,
        outlook: Outlook,
        events: EventWriter,
    ) -> None:
        self.server = server
        self.namespace = namespace
        self._node = node
        self._kernel = kernel
        self._cluster = cluster
        self._outlook = outlook
        self._events = events
        self.member: Membership | Aside = Aside(cluster, outlook)

    def joined(self, member: Membership) -> None:
        """This node is a member from now on."""
        self.member = member

    # ---- for readers ----

    @property
    def complete(self) -> bool:
        """Whether all of it was read at least once."""
        return self._cluster.complete

    @property
    def sources(self) -> Mapping[str, SourceState]:
        """What is followed, by the resource's name."""
        return self._cluster.sources

    @property
    def vips(self) -> Mapping[Address, Vip]:
        """All VIPs, of the configuration and of the cluster."""
        return self._outlook.collected.vips

    @property
    def nobody(self) -> frozenset[Address]:
        """The elected VIPs that no node may own; none while this node cannot know."""
        return frozenset() if self.is_cut_off else self.member.wishes.nobody

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The Node objects, by name."""
        return self._cluster.nodes

    @property
    def members(self) -> tuple[Member, ...]:
        """The nodes as an election sees them."""
        return self.member.members

    @property
    def times(self) -> Times:
        """The current lengths of this node's lease."""
        return self.member.times

    @property
    def renewed_ns(self) -> int | None:
        """When (boot clock) the last renewal that succeeded was sent."""
        return self.member.renewals.renewed_ns

    @property
    def renewal_lost(self) -> str:
        """Why no renewal succeeds."""
        return self.member.renewals.lost

    @property
    def yielding(self) -> bool:
        """Whether another agent speaks as this node."""
        return self.member.yielding

    @property
    def vouching(self) -> VouchingState | None:
        """The state of vouching; None if it is off."""
        return self.member.vouching

    @property
    def writes(self) -> Counter[tuple[str, str]]:
        """How often Leases were written, by kind of object and outcome."""
        return self.member.writes

    @property
    def events(self) -> Counter[str]:
        """How many Events were "written" and "dropped"."""
        return Counter(written=self._events.written, dropped=self._events.dropped)

    def candidates(self, vip: Vip) -> tuple[Candidate, ...]:
        """The nodes that might own an elected VIP, by preference."""
        return self.member.candidates(vip)

    def holder(self, address: Address) -> Holder:
        """Who has an elected VIP, by its claim."""
        return self.member.holder(address)

    def origin(self, address: Address) -> Origin:
        """Where an address comes from, and why it is not a VIP."""
        return self._cluster.origin(address)

    def published(self) -> dict[MacAddress, str]:
        """Nodes by the MACs in their heartbeats; for this node all links count, guarded or not."""
        heard = {link.mac: heartbeat.node for heartbeat in self.member.heartbeats for link in heartbeat.links}
        own = (*self._outlook.surroundings.links, *self._kernel.links)
        return heard | {link.mac: self._node for link in own if not link.mac.is_zero}

    @property
    def is_cut_off(self) -> bool:
        """Whether this node cannot renew, or does not hear of Leases: then all other nodes look dead to it."""
        return bool(self.renewal_lost) or not self._hears_leases

    @property
    def _hears_leases(self) -> bool:
        leases = self._cluster.sources.get("leases")
        return leases is not None and not leases.lost

    # ---- for the judge of rival claims ----

    def addresses(self) -> dict[Address, str]:
        """Nodes by the addresses of their Node objects."""
        return {address: name for name, node in self._cluster.nodes.items() for address in node.addresses}

    def unheard(self) -> frozenset[str]:
        """Nodes whose agents do not renew."""
        return frozenset(self._cluster.nodes) - self.member.alive

    def owner_of(self, vip: Address) -> KnownOwner:
        """Who has a VIP: by a valid claim if it is elected, else by its source."""
        found = self._outlook.vip(vip)
        if found is None:
            return KnownOwner("", is_sure=False)
        if found.owner.kind is OwnerKind.KEEPALIVED:
            return KnownOwner("", is_sure=False)  # each node knows of itself alone
        if not found.elected:
            is_heard = not any(source.lost for source in self._cluster.sources.values())
            return KnownOwner(found.owner.node, is_sure=is_heard, is_here=found.owner.node == self._node)
        return self._owner_by_claim(vip)

    def _owner_by_claim(self, vip: Address) -> KnownOwner:
        """Another node has what it claimed until its epoch ends, however silent its heartbeat seems from here.

        This node has it while its kernel answers: until it hands the VIP over, or a fence passes. Then another node may
        take over, and announce the VIP with a new MAC; a node that is cut off does not know that MAC.
        """
        holder = self.member.holder(vip)
        is_mine = holder.node == self._node
        is_valid = holder.void is False and (holder.answers or not is_mine)
        return KnownOwner(
            node=holder.node if is_valid else "",
            is_sure=self._hears_leases and holder.void is not None and (is_valid or not is_mine),
            is_here=is_valid and is_mine,
            seen_ns=self._cluster.leases_seen_ns,
            own_since_ns=self.member.owned_since_ns(vip) if is_valid and is_mine else None,
        )

    def recheck(self, vip: Address) -> None:
        """Reads the claim to a VIP from the server: what this node knows of it may be out of date."""
        self.member.recheck(vip)
