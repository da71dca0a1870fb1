"""Which addresses may be VIPs: none that one host always has, and for Services only those in `ranges`."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from arpguard.addresses import Address, reserved_address, vip_refusal
from arpguard.config.model import AgentConfig
from arpguard.core.bids import ANNOTATED, Bid, Complaint
from arpguard.core.cluster import Node
from arpguard.core.prefixes import Prefixes
from arpguard.model import InterfaceAddress, Link, OwnerKind, Surroundings


@dataclass(frozen=True, slots=True)
class Avoided:
    """Addresses that this node knows cannot be VIPs. `own`: the first address of each of its links, whatever Nodes say.

    `reserved`: addresses in these links' subnets that no host can have.
    """

    gateways: frozenset[Address] = frozenset()
    api_servers: frozenset[Address] = frozenset()
    own: frozenset[Address] = frozenset()
    reserved: frozenset[Address] = frozenset()


def avoided(surroundings: Surroundings, servers: frozenset[Address] = frozenset()) -> Avoided:
    """The addresses that belong to a host for good, as this node sees them; `servers` are the API server's.

    A link's first address of a family that has a subnet is the node's own: VIPs are bound to `lo` or to devices without
    ARP, as host addresses, or after it.
    """
    gateways = frozenset(route.via for route in surroundings.routes if route.via is not None)
    links = (link for link in surroundings.links if not (link.loopback or link.no_arp))
    first = [own for link in links for version in (4, 6) for own in _first_own(link, version)]
    reserved = (reserved_address(own.network) for own in first)
    return Avoided(
        gateways,
        servers,
        own=frozenset(own.address for own in first),
        reserved=frozenset(address for address in reserved if address is not None),
    )


def _first_own(link: Link, version: int) -> list[InterfaceAddress]:
    """A link's first address of a family that has a subnet, if it has one."""
    return [own for own in link.addresses if own.address.version == version and own.network in link.subnets][:1]


@dataclass(frozen=True)
class Admission:
    """The basis for judging bids: the configuration, the Nodes, and the addresses that this node avoids."""

    ranges: Prefixes
    avoided: Avoided
    names: frozenset[str]
    addresses: dict[Address, str]
    pods: Prefixes

    @classmethod
    def of(cls, config: AgentConfig, nodes: Mapping[str, Node], avoided: Avoided) -> "Admission":
        """The basis for judging bids now."""
        return cls(
            ranges=Prefixes(config.ranges),
            avoided=avoided,
            names=frozenset(nodes),
            addresses={address: name for name, node in sorted(nodes.items()) for address in node.addresses},
            pods=Prefixes(network for node in nodes.values() for network in node.pod_networks),
        )

    def judged(self, bid: Bid) -> Bid:
        """The bid, admitted or not, with its complaint if there is one.

        If no range is configured at all, a Service without the annotation is left alone without a complaint: that is
        one problem, not one for each Service of a cluster.
        """
        address, owner, is_configured = bid.vip.address, bid.vip.owner, bid.subject is None
        refusal = self.refusal(address)
        if refusal is not None:
            name = f"{bid.name}.address" if is_configured else bid.name
            return replace(bid, name=name, admitted=False, complaint=refusal)

        if not (is_configured or self.ranges.containing(address)):
            why = f"{address} is outside the configuration's `ranges`: choose another address, or add a range"
            is_told = bool(self.ranges) or bid.order[0] == ANNOTATED
            return replace(bid, admitted=False, complaint=Complaint("VIPOutsideRanges", why) if is_told else None)

        if owner.kind is OwnerKind.NODE and self.names and owner.node not in self.names:
            why = f"there is no node {owner.node}, so no host answers for {address}: correct the owner's name"
            return replace(bid, complaint=Complaint("UnknownNode", why))
        return bid

    def refusal(self, address: Address) -> Complaint | None:
        """Why an address is never guarded."""
        unfit, node = vip_refusal(address), self.addresses.get(address)
        if unfit is not None:
            return Complaint("VIPUnfit", f"{address} {unfit}: choose an address that a host can own")
        if node is not None:
            return _node_address(address, f"node {node}")
        if address in self.avoided.gateways:
            return Complaint("VIPIsGateway", f"{address} is a gateway: choose an address that no host has")
        if address in self.avoided.api_servers:
            return Complaint("VIPIsAPIServer", f"{address} is the API server's address: choose one that no host has")
        if self.pods.containing(address):
            return Complaint(
                "VIPInPodNetwork", f"{address} is in a Pod network: choose an address in the nodes' network"
            )
        return self._own_refusal(address)

    def _own_refusal(self, address: Address) -> Complaint | None:
        """Why this node never guards an address, by what only this node knows."""
        if address in self.avoided.reserved:
            what = "broadcast" if address.version == 4 else "subnet-router anycast"
            why = f"{address} is the {what} address of this node's subnet: choose an address that a host can own"
            return Complaint("VIPUnfit", why, own=True)
        return _node_address(address, "this node", own=True) if address in self.avoided.own else None


def _node_address(address: Address, whose: str, *, own: bool = False) -> Complaint:
    why = f"{address} is the address of {whose}: guarding it would cut the node off; choose an address that no host has"
    return Complaint("VIPIsNodeAddress", why, own)
