"""Rendezvous hashing: whom everybody who sees the same nodes prefers for a VIP, without a word between them.

Each pair of VIP and node has a weight, and the heaviest node is first. So a node that leaves moves only what it was
first for, and one that joins takes only its share (Thaler and Ravishankar, 1998).
"""

from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b

_MASK = (1 << 64) - 1


@lru_cache(maxsize=4096)
def fingerprint(name: str) -> int:
    """64 bits of a name, the same on every node and in every process."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big")


def weight(one: int, other: int) -> int:
    """The weight of a pair of fingerprints: splitmix64's finalizer, a bijection that mixes all bits."""
    mixed = one ^ other
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return mixed ^ (mixed >> 31)


def ranked(name: str, nodes: Iterable[str]) -> list[str]:
    """The nodes in order of preference for something of that name."""
    number = fingerprint(name)
    return sorted(nodes, key=lambda node: (weight(number, fingerprint(node)), node), reverse=True)
