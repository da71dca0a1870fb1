"""What the agent knows of the cluster, for its readers: the API and the metrics."""

from collections import Counter
from collections.abc import Mapping
from typing import Protocol

from arpguard.addresses import Address, MacAddress
from arpguard.core.claimwords import Candidate
from arpguard.core.cluster import Node, SourceState
from arpguard.core.members import Member
from arpguard.core.origins import Origin
from arpguard.core.ownership.lease import Times
from arpguard.core.ownership.records import Holder
from arpguard.core.vouching.state import VouchingState
from arpguard.model import Vip


class ClusterState(Protocol):
    """What the agent knows at the moment of the question."""

    @property
    def server(self) -> str:
        """The API server's URL."""

    @property
    def namespace(self) -> str:
        """The agents' namespace."""

    @property
    def complete(self) -> bool:
        """Whether all of it was read at least once."""

    @property
    def sources(self) -> Mapping[str, SourceState]:
        """What is followed, by the resource's name."""

    @property
    def vips(self) -> Mapping[Address, Vip]:
        """All VIPs, of the configuration and of the cluster."""

    @property
    def nobody(self) -> frozenset[Address]:
        """The elected VIPs that no node may own."""

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The Node objects, by name."""

    @property
    def members(self) -> tuple[Member, ...]:
        """The nodes as an election sees them."""

    @property
    def times(self) -> Times:
        """The current lengths of this node's lease."""

    @property
    def renewed_ns(self) -> int | None:
        """When (boot clock) the last renewal that succeeded was sent."""

    @property
    def renewal_lost(self) -> str:
        """Why no renewal succeeds."""

    @property
    def yielding(self) -> bool:
        """Whether another agent uses this node's name."""

    @property
    def vouching(self) -> VouchingState | None:
        """The state of vouching; None if it is off."""

    @property
    def writes(self) -> Counter[tuple[str, str]]:
        """How often Leases were written, by kind of object and outcome, as in ("heartbeat", "applied")."""

    @property
    def events(self) -> Counter[str]:
        """How many Events were "written" and "dropped"."""

    def candidates(self, vip: Vip) -> tuple[Candidate, ...]:
        """The nodes that might own an elected VIP, by preference."""

    def holder(self, address: Address) -> Holder:
        """Who has an elected VIP, by its claim."""

    def origin(self, address: Address) -> Origin:
        """Where an address comes from, and why it is not a VIP."""

    def published(self) -> Mapping[MacAddress, str]:
        """Nodes by their MACs."""
