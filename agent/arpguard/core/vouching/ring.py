"""Which nodes may vouch for a node, and in which order: the next ones on a ring that is the same for all.

The nodes of a segment are in the order of a hash of their names; each node is followed by the next one.
"""

from collections.abc import Mapping

from arpguard.addresses import Network
from arpguard.core.rendezvous import fingerprint

_AROUND = 1 << 64


def vouchers_for(node: str, own: frozenset[Network], others: Mapping[str, frozenset[Network]]) -> list[str]:
    """The nodes that may vouch for one, the first choice first: they have a network with it.

    `own`: the networks on its guarded links; `others`: those of the nodes that take part, by name.
    """
    start = fingerprint(node)
    near = (name for name, networks in others.items() if name != node and networks & own)
    return sorted(near, key=lambda name: ((fingerprint(name) - start) % _AROUND, name))
