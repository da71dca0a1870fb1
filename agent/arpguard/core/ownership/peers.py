"""The other nodes' heartbeats: which nodes are alive, which claims are void, and the revocation of silent nodes.

Only changes count, by this node's own clock: it never compares times that others wrote.

With vouching a watch does not show the renewals of nodes that are bound to a voucher, as long as those say nothing new.
Such a node counts as alive until a read has shown that it did not renew for its lease.
"""

from collections.abc import Callable, Container, Iterator

from arpguard.addresses import MacAddress
from arpguard.core.ownership.lease import BOUND_NS, Times
from arpguard.core.ownership.peer import Peer
from arpguard.core.ownership.probing import LEAD_NS, SILENT_NS
from arpguard.core.ownership.records import (
    DeleteHeartbeat,
    Effect,
    Heartbeat,
    Outcome,
    PublishedLink,
    ReadHeartbeat,
    Version,
    WriteHeartbeat,
)
from arpguard.core.ownership.silences import Silences
from arpguard.units import NS_PER_S

_NEVER_NS = 1 << 62
LONG_OVER_NS = 600 * NS_PER_S
TIDIED_AT_ONCE = 10


class Peers:
    """What is known of the other nodes. `times` are this node's. `silences`: whether their silence counts.

    `others_vouch`: a claim or a heartbeat shows that nodes vouch for each other. A heartbeat that is gone may then have
    published D_v (V18).
    """

    def __init__(self, times: Times, new_epoch: Callable[[], str]) -> None:
        self.times = times
        self.silences = Silences()
        self.others_vouch = False
        self._new_epoch = new_epoch
        self._peers: dict[str, Peer] = {}
        self._longest_bound_ns = 0  # of the leases that were seen

    def seen(self, node: str, heartbeat: Heartbeat | None, now_ns: int, as_of_ns: int | None = None) -> bool:
        """Takes a heartbeat or its absence, from a watch, or from a consistent read (`as_of_ns`: when that was sent).

        True when the epoch has changed: claims may have become void.
        """
        peer = self._peers.setdefault(node, Peer(None, now_ns))
        before = peer.known
        if heartbeat is not None and heartbeat.version.is_older_than(_version(before)):
            return False
        if _version(before) != _version(heartbeat):
            peer.show(heartbeat, now_ns)
            self.silences.written(now_ns)
        self.others_vouch |= heartbeat is not None and heartbeat.vouching is not None
        if heartbeat is not None and heartbeat.bound:
            self._longest_bound_ns = max(self._longest_bound_ns, heartbeat.duration_ns)
        if as_of_ns is not None:
            peer.as_of_ns = as_of_ns
        return _epoch(before) != _epoch(heartbeat)

    def alive(self, node: str, now_ns: int) -> bool:
        """Whether a node's heartbeat has changed within its lease, and is not revoked."""
        peer = self._peers.get(node)
        return (
            peer is not None and peer.known is not None and peer.known.instance != "" and now_ns < self._late_ns(peer)
        )

    def is_fading(self, node: str, now_ns: int) -> bool:
        """Whether a node has been silent for nearly its lease: time to find out who else has its VIPs."""
        peer = self._peers.get(node)
        return peer is not None and now_ns >= self._fading_ns(peer)

    def peer(self, node: str) -> Peer:
        """All that is known of a node that was heard of."""
        return self._peers[node]

    def known(self, node: str) -> Heartbeat | None:
        """A node's heartbeat, as last seen."""
        peer = self._peers.get(node)
        return peer.known if peer is not None else None

    @property
    def heartbeats(self) -> Iterator[Heartbeat]:
        """The other nodes' heartbeats, as last seen."""
        return (peer.known for peer in self._peers.values() if peer.known is not None)

    def links(self, node: str) -> tuple[PublishedLink, ...]:
        """The links that a node's heartbeat publishes."""
        known = self.known(node)
        return known.links if known is not None else ()

    def has(self, mac: MacAddress) -> bool:
        """Whether a node publishes a link with this MAC."""
        return any(link.mac == mac for heartbeat in self.heartbeats for link in heartbeat.links)

    def guards(self, mac: MacAddress, now_ns: int) -> bool:
        """Whether a node that renewed lately publishes a link with this MAC: its kernel is guarded."""
        peers = (peer for peer in self._peers.values() if peer.renewed and self._is_heard(peer, now_ns))
        return any(link.mac == mac for peer in peers if peer.known is not None for link in peer.known.links)

    def heard(self, now_ns: int) -> frozenset[str]:
        """The nodes that renewed lately, within a little less than a lease: a takeover needs time to prepare."""
        return frozenset(node for node, peer in self._peers.items() if self._is_heard(peer, now_ns))

    def next_silence_ns(self, now_ns: int) -> int | None:
        """When the next of them drops out unless it renews."""
        moments = (self._fading_ns(peer) for peer in self._peers.values() if self._is_heard(peer, now_ns))
        return min(moments, default=None)

    def _is_heard(self, peer: Peer, now_ns: int) -> bool:
        return peer.known is not None and peer.known.instance != "" and now_ns < self._fading_ns(peer)

    def next_ns(self, node: str, after_ns: int) -> int | None:
        """The next moment after `after_ns` at which there may be something to do about a node."""
        peer = self._peers.get(node)
        if peer is None or peer.busy:
            return None
        moments = (self._fading_ns(peer), self._late_ns(peer), peer.retry_ns, self.settled_ns(peer))
        return min((moment for moment in moments if moment > after_ns), default=None)

    def is_void(self, node: str, epoch: str, seen_ns: int, now_ns: int, uid: str = "") -> bool | None:
        """Whether a claim by a node in an epoch, which was seen at `seen_ns`, is void. `uid`: the heartbeat it names.

        None: not known yet. An epoch that was current when the claim was written, and is not now, never comes back; so
        the heartbeat has to be read after the claim was seen. A heartbeat that cannot be understood makes nothing void.
        One that was created again after somebody deleted it may end an epoch that nobody has revoked (a create names no
        version, and may be late): it makes nothing void until a lease is over, unless it was in that epoch, or is the
        one that the claim names (V18).
        """
        peer = self._peers.get(node)
        if peer is None or peer.known is None:
            return None
        if peer.known.epoch in ("", epoch):
            return False
        settled = epoch in peer.epochs or now_ns >= self.settled_ns(peer) or uid == peer.known.version.uid
        return True if settled and peer.was_read_since(seen_ns) else None

    def answered_lately(self, node: str, now_ns: int) -> bool:
        """Whether a node that was revoked has answered until a moment ago, as its voucher tells."""
        peer = self._peers.get(node)
        return peer is not None and peer.ended_early and now_ns < peer.since_ns + SILENT_NS

    def resolve(self, node: str, seen_ns: int, now_ns: int) -> list[Effect]:
        """What settles `is_void`: a read or, if the heartbeat is missing, its revocation when it is time."""
        peer = self._peers.setdefault(node, Peer(None, now_ns))
        if peer.was_read_since(seen_ns):
            return self.revoke(node, now_ns) if peer.known is None else []
        return self.ask(node) if now_ns >= peer.retry_ns else []

    def ask(self, node: str) -> list[Effect]:
        """A read, unless an answer is awaited."""
        peer = self._peers[node]
        if peer.busy:
            return []
        peer.busy = True
        return [ReadHeartbeat(node)]

    def revoke(self, node: str, now_ns: int) -> list[Effect]:
        """Ends a silent node's epoch: replaces exactly the version that has not changed for a lease.

        Before that this node has to renew, once that one is nearly late (`silences`).

        If it has been missing for as long, creates it: when its node comes back, that begins a new epoch.
        """
        peer = self._peers.get(node) or self._peers.setdefault(node, Peer(None, now_ns))
        if peer.known is not None and not self.silences.counts(node, self._fading_ns(peer), now_ns):
            return []
        return self.replace(node, now_ns) if now_ns >= self._late_ns(peer) else []

    def replace(self, node: str, now_ns: int, *, early: bool = False) -> list[Effect]:
        """Ends a node's epoch, if nothing else is asked about it: replaces exactly the version that was seen last."""
        peer = self._peers[node]
        if peer.busy or now_ns < peer.retry_ns:
            return []
        peer.busy = True
        duration_ns = self.times.duration_ns
        if peer.known is None:
            duration_ns = max(duration_ns, self._longest_of(peer))
        return [WriteHeartbeat(node, self._new_epoch(), "", _version(peer.known), duration_ns, early=early)]

    def tidy(self, nodes: Container[str], holders: Container[str], now_ns: int) -> list[Effect]:
        """Revokes some nodes that left the cluster long ago; deletes the heartbeats of those that were revoked then.

        `nodes` have a Node object. Claims name `holders`: such a claim is void only by a heartbeat that is there.
        """
        known = (peer.known for peer in self._peers.values() if now_ns >= peer.since_ns + peer.lease_ns + LONG_OVER_NS)
        gone = [each for each in known if each and each.node not in nodes and not self.alive(each.node, now_ns)]

        silent = [each for each in gone if each.instance]
        ended = [each for each in gone if not each.instance and each.node not in holders]
        return [
            *(effect for each in silent[:TIDIED_AT_ONCE] for effect in self.revoke(each.node, now_ns)),
            *(DeleteHeartbeat(each.node, each.version) for each in ended[:TIDIED_AT_ONCE]),
        ]

    def written(
        self, sent: WriteHeartbeat, outcome: Outcome, version: Version | None, sent_ns: int, now_ns: int
    ) -> list[Effect]:
        """The outcome of a revocation. Unless it succeeded, reads the heartbeat, and does not revoke it for a while."""
        self._peers[sent.node].busy = False
        if outcome is not Outcome.APPLIED or version is None:
            self._peers[sent.node].retry_ns = now_ns + self.times.renew_ns
            return self.ask(sent.node)
        revoked = Heartbeat(sent.node, sent.epoch, "", sent.duration_ns, version, early=sent.early)
        self.seen(sent.node, revoked, now_ns, sent_ns)
        return []

    def read(self, node: str, heartbeat: Heartbeat | None, sent_ns: int, now_ns: int) -> None:
        """Takes in what a read found."""
        peer = self._peers[node]
        peer.busy = False
        if heartbeat is None and peer.is_first_looked_for:
            peer.since_ns = now_ns
        self.seen(node, heartbeat, now_ns, sent_ns)

    def read_failed(self, node: str, now_ns: int) -> None:
        """No answer: not asked again for a while."""
        self._peers[node].busy = False
        self._peers[node].retry_ns = now_ns + self.times.renew_ns

    def is_hidden(self, peer: Peer) -> bool:
        """Whether a watch shows its heartbeat only when that says something new."""
        return peer.known is not None and peer.known.bound and self.times.bound_ns > 0

    def _late_ns(self, peer: Peer) -> int:
        """When a lease is over; of a node whose renewals are not shown only once a read after that says so."""
        if self.is_hidden(peer) and (peer.as_of_ns is None or not peer.was_read_since(self.lapse_ns(peer))):
            return _NEVER_NS  # for most nodes of a large cluster, by the first condition, which costs nothing
        return self.lapse_ns(peer)

    def lapse_ns(self, peer: Peer) -> int:
        """How long a lease lasts: the longer of what its holder publishes and what this node has configured.

        After an outage its node has the time to renew. What is missing may be created at once where all wait for the
        longest lease after that (V18).
        """
        if peer.known is None and self.times.bound_ns:
            return peer.since_ns
        lease_ns = max(peer.lease_ns, self.times.duration_ns)
        if peer.known is None:
            return max(peer.since_ns, self.silences.since_ns) + lease_ns
        return max(peer.since_ns + lease_ns, self.silences.since_ns + self.times.duration_ns)

    def settled_ns(self, peer: Peer) -> int:
        """When any node that answered by a former object of this name must have fallen silent."""
        return peer.object_since_ns + max(self.times.duration_ns, peer.lease_ns, self._longest_of(peer))

    def _longest_of(self, peer: Peer) -> int:
        bound_ns = self.times.bound_ns or (BOUND_NS if self.others_vouch else 0)
        return peer.longest_besides(bound_ns, self._longest_bound_ns)

    def _fading_ns(self, peer: Peer) -> int:
        return self._late_ns(peer) - min(self.times.renew_ns // 2, LEAD_NS)


def _version(heartbeat: Heartbeat | None) -> Version | None:
    return heartbeat.version if heartbeat else None


def _epoch(heartbeat: Heartbeat | None) -> str:
    return heartbeat.epoch if heartbeat else ""
