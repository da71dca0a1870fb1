"""Who claims a VIP, by the MAC address in the claim.

| the MAC address is                                     | the claimant                            |
| ------------------------------------------------------ | --------------------------------------- |
| published by a node's heartbeat                        | that node of the cluster                |
| that of a Node's address, in this node's neighbours    | that node                               |
| of a virtual router (VRRP or CARP, HSRP, GLBP)         | that router, by its number              |
| another                                                | a host outside                          |
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from enum import IntEnum

from arpguard.addresses import MacAddress


class ClaimantKind(IntEnum):
    """Who claims; the numbers are those of the API, which tests/unit/test_proto.py compares."""

    OUTSIDE = 1
    CLUSTER_NODE = 2
    CLUSTER_NODE_WITHOUT_AGENT = 3
    VRRP_ROUTER = 4
    HSRP_ROUTER = 5
    GLBP_ROUTER = 6


_WORDS = {
    ClaimantKind.OUTSIDE: "outside",
    ClaimantKind.CLUSTER_NODE: "{node} (cluster node)",
    ClaimantKind.CLUSTER_NODE_WITHOUT_AGENT: "{node} (cluster node without an agent)",
    ClaimantKind.VRRP_ROUTER: "VRRP router {router}",
    ClaimantKind.HSRP_ROUTER: "HSRP router {router}",
    ClaimantKind.GLBP_ROUTER: "GLBP router {router}",
}


@dataclass(frozen=True, slots=True)
class Claimant:
    """Who claims. `node`: a Node's name; `router`: the number of a virtual router (VRID or group)."""

    kind: ClaimantKind = ClaimantKind.OUTSIDE
    node: str = ""
    router: int = 0

    @property
    def is_node(self) -> bool:
        """Whether it is a node of this cluster."""
        return bool(self.node)

    def __str__(self) -> str:
        return _WORDS[self.kind].format(node=self.node, router=self.router)


OUTSIDE = Claimant()

# First MAC address, bits of the router's number, bits behind them (GLBP: which of its forwarders).
_ROUTERS = (
    (ClaimantKind.VRRP_ROUTER, 0x00005E000100, 8, 0),  # IPv4; RFC 5798 7.3
    (ClaimantKind.VRRP_ROUTER, 0x00005E000200, 8, 0),  # IPv6
    (ClaimantKind.HSRP_ROUTER, 0x00000C07AC00, 8, 0),  # version 1; RFC 2281 5.1
    (ClaimantKind.HSRP_ROUTER, 0x00000C9FF000, 12, 0),  # version 2
    (ClaimantKind.HSRP_ROUTER, 0x000573A00000, 12, 0),  # version 2, IPv6
    (ClaimantKind.GLBP_ROUTER, 0x0007B4000000, 10, 8),
)


def virtual_router(mac: MacAddress) -> Claimant | None:
    """The virtual router that a MAC address is reserved for; None for others. CARP uses VRRP's."""
    number = int.from_bytes(mac.octets, "big")
    for kind, first, bits, behind in _ROUTERS:
        if number >> (bits + behind) == first >> (bits + behind):
            return Claimant(kind, router=(number >> behind) & ((1 << bits) - 1))
    return None


def claimant_of(
    mac: MacAddress,
    published: Mapping[MacAddress, str],
    resolved: Mapping[MacAddress, str],
    unheard: Container[str],
) -> Claimant:
    """Who has a MAC address.

    `published`: nodes by the MACs in their heartbeats; `resolved`: nodes by the MACs that the neighbour table has for
    their addresses; `unheard`: the nodes whose agents do not renew.
    """
    node = published.get(mac) or resolved.get(mac)
    if node is None:
        return virtual_router(mac) or OUTSIDE
    bare = ClaimantKind.CLUSTER_NODE_WITHOUT_AGENT
    return Claimant(bare if node in unheard else ClaimantKind.CLUSTER_NODE, node)
