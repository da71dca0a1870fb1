"""The other nodes' heartbeats: who is alive, whose claims are void, and the revocation of who is not heard of.

Only changes count, by this node's own clock: nobody compares times that others wrote.
"""

from collections.abc import Callable
from dataclasses import dataclass

from arpguard.core.ownership.records import Effect, Heartbeat, Outcome, ReadHeartbeat, Version, WriteHeartbeat


@dataclass(slots=True)
class _Peer:
    """One other node.

    `since_ns`: when this version, or its absence, was first seen. `as_of_ns`: when a read or write was sent that
    shows it as it was then or later; a watch shows the past, and sets none.
    """

    known: Heartbeat | None
    since_ns: int
    as_of_ns: int | None = None
    busy: bool = False


class Peers:
    """What is known of the other nodes."""

    def __init__(self, duration_ns: int, new_epoch: Callable[[], str]) -> None:
        self._duration_ns = duration_ns
        self._new_epoch = new_epoch
        self._peers: dict[str, _Peer] = {}

    def seen(self, node: str, heartbeat: Heartbeat | None, now_ns: int, as_of_ns: int | None = None) -> None:
        """A heartbeat, or its absence, from a watch; from a consistent read with the time that was sent."""
        peer = self._peers.get(node)
        if peer is not None and heartbeat is not None and heartbeat.version.is_older_than(_version(peer.known)):
            return
        if peer is None or _version(peer.known) != _version(heartbeat):
            peer = self._peers[node] = _Peer(heartbeat, now_ns, busy=peer.busy if peer else False)
        if as_of_ns is not None:
            peer.as_of_ns = as_of_ns

    def alive(self, node: str, now_ns: int) -> bool:
        """Whether a node's heartbeat has changed within its lease, and is nobody's tombstone."""
        peer = self._peers.get(node)
        return (
            peer is not None and peer.known is not None and peer.known.instance != "" and not self._late(peer, now_ns)
        )

    def is_void(self, node: str, epoch: str, seen_ns: int) -> bool | None:
        """Whether a claim by a node in an epoch, which was seen at `seen_ns`, is void.

        None: not known before the node's heartbeat is read. An epoch that was current when the claim was written and
        is not now never comes back; so the heartbeat has to be read after the claim was seen, and not before.
        """
        peer = self._peers.get(node)
        if peer is None or peer.known is None or peer.as_of_ns is None or peer.as_of_ns < seen_ns:
            return False if peer is not None and peer.known is not None and peer.known.epoch == epoch else None
        return peer.known.epoch != epoch

    def resolve(self, node: str, seen_ns: int, now_ns: int) -> list[Effect]:
        """What makes `is_void` known: a read, or, for a heartbeat that is missing, its revocation when it is time."""
        peer = self._peers.setdefault(node, _Peer(None, now_ns))
        if peer.known is None and peer.as_of_ns is not None and peer.as_of_ns >= seen_ns:
            return self.revoke(node, now_ns)
        return self._ask(node)

    def _ask(self, node: str) -> list[Effect]:
        peer = self._peers[node]
        if peer.busy:
            return []
        peer.busy = True
        return [ReadHeartbeat(node)]

    def revoke(self, node: str, now_ns: int) -> list[Effect]:
        """Ends a silent node's epoch: exactly the version that has not changed for a lease is replaced.

        One that is missing for as long is created: its node, when it comes back, begins a new epoch.
        """
        peer = self._peers.setdefault(node, _Peer(None, now_ns))
        if peer.busy or not self._late(peer, now_ns) or (peer.known is not None and peer.known.instance == ""):
            return []
        peer.busy = True
        return [WriteHeartbeat(node, self._new_epoch(), "", _version(peer.known))]

    def written(
        self, sent: WriteHeartbeat, outcome: Outcome, version: Version | None, sent_ns: int, now_ns: int
    ) -> list[Effect]:
        """What came of a revocation: after anything but success, the heartbeat is read."""
        self._peers[sent.node].busy = False
        if outcome is not Outcome.APPLIED or version is None:
            return self._ask(sent.node)
        revoked = Heartbeat(sent.node, sent.epoch, "", self._duration_ns, version)
        self.seen(sent.node, revoked, now_ns, sent_ns)
        return []

    def read(self, node: str, heartbeat: Heartbeat | None, sent_ns: int, now_ns: int) -> None:
        """What a read found."""
        self._peers[node].busy = False
        self.seen(node, heartbeat, now_ns, sent_ns)

    def read_failed(self, node: str) -> None:
        """No answer."""
        self._peers[node].busy = False

    def _late(self, peer: _Peer, now_ns: int) -> bool:
        """A lease is as long as the longer of what its holder and this node hold for its length."""
        length = max(self._duration_ns, peer.known.duration_ns) if peer.known else self._duration_ns
        return now_ns - peer.since_ns >= length


def _version(heartbeat: Heartbeat | None) -> Version | None:
    return heartbeat.version if heartbeat else None
