"""What to read of other nodes: a watch shows the past, and no renewals of a bound node that say nothing new."""

from arpguard.core.ownership.lease import RENEWALS_IN_BOUND_LEASE
from arpguard.core.ownership.peer import Peer
from arpguard.core.ownership.peers import Peers
from arpguard.core.ownership.records import Effect


class PeerReads:
    """Reads of nodes that vouch for others, or that others vouch for; `peers` knows all nodes."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    def free_ns(self, node: str) -> int | None:
        """From when on something may be asked about a node again; None: an answer is awaited."""
        peer = self._peers.peer(node)
        return None if peer.busy else peer.retry_ns

    def ask_since(self, node: str, seen_ns: int, now_ns: int) -> list[Effect]:
        """A read, if there was none since `seen_ns`."""
        peer = self._peers.peer(node)
        return self._peers.ask(node) if now_ns >= peer.retry_ns and not peer.was_read_since(seen_ns) else []

    def replace_early(self, node: str, since_ns: int, now_ns: int) -> list[Effect]:
        """Ends the epoch of a bound node before its lease is over, by a version that a read after `since_ns` found."""
        peer = self._peers.peer(node)
        if not self._peers.is_hidden(peer):
            return self._peers.replace(node, now_ns)
        if not peer.was_read_since(since_ns):
            return self.ask_since(node, since_ns, now_ns)
        return self._peers.replace(node, now_ns, early=True)

    # ---- whether an epoch is over ----

    def is_over(self, node: str, epoch: str, seen_ns: int, now_ns: int) -> bool:
        """Whether an epoch, or an instance in it, that was a node's at `seen_ns` is certain to be over.

        For who knows that the heartbeat shows another one.
        """
        peer = self._peers.peer(node)
        is_that = peer.known is not None and peer.known.epoch == epoch
        is_settled = is_that or epoch in peer.epochs or now_ns >= self._peers.settled_ns(peer)
        return peer.was_read_since(seen_ns) and is_settled

    def ripe_ns(self, node: str, seen_ns: int) -> int | None:
        """When `is_over` may become true, or `ask_since` has something to ask; None: an answer is awaited."""
        peer = self._peers.peer(node)
        if peer.busy:
            return None
        return self._peers.settled_ns(peer) if peer.was_read_since(seen_ns) else peer.retry_ns

    # ---- whether a bound node renews ----

    @property
    def hidden(self) -> list[str]:
        """The nodes whose renewals are not shown."""
        heartbeats = self._peers.heartbeats if self._peers.times.bound_ns else ()
        return [heartbeat.node for heartbeat in heartbeats if heartbeat.bound]

    def lapse_ns(self, node: str) -> int:
        """When a node's lease is over, unless it has renewed since its heartbeat was last seen to change."""
        return self._peers.lapse_ns(self._peers.peer(node))

    def behind_ns(self, node: str) -> int | None:
        """When a node that is bound will have failed to renew: it cannot be seen from its kernel, which lives (V19).

        None: nothing is known of it, or it is not bound.
        """
        known = self._peers.known(node)
        if known is None or not known.bound:
            return None
        peer = self._peers.peer(node)
        patience_ns = peer.lease_ns * 5 // (2 * RENEWALS_IN_BOUND_LEASE)  # two renewals, and half the time to a third
        return max(peer.since_ns + patience_ns, self._peers.silences.since_ns + self._peers.times.duration_ns)

    def has_not_renewed(self, node: str, until_ns: int) -> bool:
        """Whether a read after that moment found what had been seen before."""
        return self._peers.peer(node).was_read_since(until_ns)

    def is_missing(self, node: str) -> bool:
        """Whether the last read found no heartbeat, and none has been seen since."""
        peer = self._peers.peer(node)
        return peer.known is None and peer.as_of_ns is not None

    def look_ns(self, node: str, until_ns: int) -> int | None:
        """When to read a node's heartbeat, to know whether it renews by `until_ns`; None: an answer is awaited."""
        peer = self._peers.peer(node)
        return None if peer.busy else max(_look_after_ns(peer, until_ns) + 1, peer.retry_ns)

    def look(self, node: str, until_ns: int, now_ns: int) -> list[Effect]:
        """A read, if it is time for one (`look_ns`)."""
        after_ns = _look_after_ns(self._peers.peer(node), until_ns)
        return self.ask_since(node, after_ns, now_ns) if now_ns > after_ns else []


def _look_after_ns(peer: Peer, until_ns: int) -> int:
    """At the end, and once in between: otherwise what it renews meanwhile would count from the end on only."""
    half_ns = (peer.since_ns + until_ns) // 2
    return until_ns if peer.was_read_since(half_ns) else half_ns
