"""Which VIPs wait for another node, and which for a time, so that nothing has to look at all VIPs."""

import heapq
from itertools import count

from arpguard.addresses import Address
from arpguard.core.ownership.peers import Peers


class Waiting:
    """A VIP waits for at most one node and one time, until it leaves."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._node_of: dict[Address, str] = {}
        self._by_node: dict[str, dict[Address, None]] = {}
        self._looked_ns: dict[str, int] = {}
        self._until_ns: dict[Address, int] = {}
        self._heap: list[tuple[int, int, Address]] = []
        self._order = count()

    def for_node(self, vip: Address, node: str, now_ns: int) -> None:
        """The VIP waits until something changes about a node."""
        self._node_of[vip] = node
        self._by_node.setdefault(node, {})[vip] = None
        self._looked_ns.setdefault(node, now_ns)

    def until(self, vip: Address, moment_ns: int) -> None:
        """The VIP is due then."""
        self._until_ns[vip] = moment_ns
        if len(self._heap) > 2 * len(self._until_ns) + 64:
            self._heap = [(ns, next(self._order), waiting) for waiting, ns in self._until_ns.items()]
            heapq.heapify(self._heap)
        else:
            heapq.heappush(self._heap, (moment_ns, next(self._order), vip))

    def leave(self, vip: Address) -> None:
        """The VIP waits for nothing."""
        self._until_ns.pop(vip, None)
        node = self._node_of.pop(vip, None)
        if node is None:
            return
        del self._by_node[node][vip]
        if not self._by_node[node]:
            del self._by_node[node], self._looked_ns[node]

    def on(self, node: str) -> list[Address]:
        """The VIPs that wait for a node."""
        return list(self._by_node.get(node, ()))

    def due(self, now_ns: int) -> list[Address]:
        """The VIPs to look at now, each once."""
        found: dict[Address, None] = {}
        while self._heap and self._heap[0][0] <= now_ns:
            moment_ns, _, vip = heapq.heappop(self._heap)
            if self._until_ns.get(vip) == moment_ns:
                found[vip] = None
        for node, looked_ns in self._looked_ns.items():
            moment = self._peers.next_ns(node, looked_ns)
            if moment is not None and moment <= now_ns:
                self._looked_ns[node] = now_ns
                found.update(self._by_node[node])
        return list(found)

    def next_ns(self) -> int | None:
        """When the next VIP will be due."""
        while self._heap and self._until_ns.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        moments = [self._peers.next_ns(node, looked_ns) for node, looked_ns in self._looked_ns.items()]
        times = [moment for moment in moments if moment is not None]
        return min([*times, *(entry[0] for entry in self._heap[:1])], default=None)
