"""Which nodes notice that a bound node is silent for its lease: no watch shows its renewals, so a few nodes read them.

If a node dies, its voucher revokes it long before that. This is for the rest: a node whose agent hangs while its kernel
keeps answering, one that died together with all nodes that would notice, one whose heartbeat a person has deleted. Such
a heartbeat is created again, revoked, so that the node's claims become void (V18), even if its Node object is gone:
`Peers.tidy` deletes it ten minutes later.
"""

from collections.abc import Iterable
from heapq import nsmallest

from arpguard.core.ownership.peers import Peers
from arpguard.core.ownership.reading import PeerReads
from arpguard.core.ownership.records import Effect
from arpguard.core.rendezvous import fingerprint

SWEPT = 4
SWEEPS_IN_BOUND_LEASE = 8
_AROUND = 1 << 64


class Sweeping:
    """The nodes before a bound node on the ring of all bound nodes, by a hash of names, look after it."""

    def __init__(self, node: str, peers: Peers, reading: PeerReads) -> None:
        self._node = node
        self._peers = peers
        self._reading = reading
        self._swept: list[str] = []
        self._due_ns = 0

    @property
    def next_ns(self) -> int | None:
        """When to sweep next; None: vouching is off here, and every renewal is shown."""
        return self._due_ns if self._peers.times.bound_ns else None

    def sweep(self, now_ns: int) -> list[Effect]:
        """Reads what is due to be read, and revokes whom such reads have shown to be silent, or without a heartbeat."""
        if self.next_ns is None or now_ns < self.next_ns:
            return []
        self._due_ns = now_ns + self._peers.times.bound_ns // SWEEPS_IN_BOUND_LEASE

        effects: list[Effect] = []
        for node in filter(self._reading.is_missing, self._swept):
            effects += self._peers.revoke(node, now_ns)

        self._swept = following(self._node, self._reading.hidden)
        for node in self._swept:
            looks = self._reading.look(node, self._reading.lapse_ns(node), now_ns)
            effects += looks or self._peers.revoke(node, now_ns)
        return effects


def following(node: str, others: Iterable[str]) -> list[str]:
    """The next SWEPT nodes on the ring."""
    start = fingerprint(node)
    return nsmallest(SWEPT, others, key=lambda other: ((fingerprint(other) - start) % _AROUND, other))
