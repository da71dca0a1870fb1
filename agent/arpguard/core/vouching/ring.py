"""Which nodes may vouch for a node, and in which order: the next ones on a ring, which all see alike.

Each node is followed by the next by a hash of their names, among those on its segment; nodes of another zone come
first. So nodes that die together seldom vouch for each other in a circle of their own.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from arpguard.addresses import Network
from arpguard.core.rendezvous import fingerprint

_AROUND = 1 << 64


@dataclass(frozen=True, slots=True)
class RingNode:
    """A node that takes part in vouching. `networks`: on its guarded links; `zone`: "" if that is not known."""

    name: str
    networks: frozenset[Network]
    zone: str = ""


def vouchers_for(node: RingNode, others: Iterable[RingNode]) -> list[str]:
    """The nodes that may vouch for one, the first choice first: they have a network with it."""
    start = fingerprint(node.name)

    def distance(other: RingNode) -> tuple[bool, int, str]:
        return other.zone == node.zone, (fingerprint(other.name) - start) % _AROUND, other.name

    near = (other for other in others if other.name != node.name and other.networks & node.networks)
    return [other.name for other in sorted(near, key=distance)]
