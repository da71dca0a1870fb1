"""Revocations that wait for no lease: of a node by its voucher (V7), and of a node whose voucher has ended (V17).

A voucher has ended when its heartbeat has another epoch, or another instance, than a node's heartbeat names: it grants
nothing more. Any node that has read that may revoke the node d later, if its heartbeat says "bound". So a node that
dies with its voucher is replaced after 2d, and so on along the chain: a revoked node vouches for no other any more.

The node that ended the voucher's epoch goes first. The others know the same, and look again after a while: by then, a
node that lives has another voucher.
"""

from collections.abc import Iterable

from arpguard.core.ownership.peers import Peers
from arpguard.core.ownership.reading import PeerReads
from arpguard.core.ownership.records import Effect, Heartbeat, NamedVoucher, WriteHeartbeat
from arpguard.core.ownership.sweeping import Sweeping
from arpguard.units import NS_PER_S
from arpguard.wire.vouching import VouchTerm

BACKUP_NS = NS_PER_S


class Revocations:
    """Of other nodes' heartbeats, by what `peers` knows.

    `node`, `instance`: this agent's. Its voucher has the same instance, by which heartbeats name it: when that ends, no
    other one vouches before another agent starts.
    """

    def __init__(self, node: str, instance: str, peers: Peers, reading: PeerReads) -> None:
        self._node = node
        self._instance = instance
        self._peers = peers
        self._reading = reading

        self._voucher_of: dict[str, NamedVoucher] = {}
        self._nodes_of: dict[str, dict[str, None]] = {}  # of vouchers
        self._named_ns: dict[str, int] = {}  # of nodes: when the version was seen that first named this term

        self._decided: dict[str, tuple[str, int]] = {}  # of nodes: the term that this node's voucher ended, and when
        self._given: dict[str, str] = {}  # of nodes: the epoch with which this one revokes, or revoked, them
        self._doubted_ns: dict[str, int] = {}  # of nodes whose voucher may be over: when to find out
        self._due_ns: dict[str, int] = {}  # of nodes whose voucher is over: when they may be revoked
        self._scan_ns = 0
        self._sweeping = Sweeping(node, peers, reading)

    def next_ns(self, now_ns: int) -> int | None:
        """When there is something to do next, if nothing else happens."""
        moments = [self._reading.free_ns(node) for node in self._decided]
        moments += [self._ripe_ns(node) for node in self._doubted_ns]
        moments += [self._revocable_ns(node) for node in self._due_ns]
        moments += [self._sweeping.next_ns, self._scan_ns if self._voucher_of else None]
        return min((max(moment, now_ns) for moment in moments if moment is not None), default=None)

    def tick(self, now_ns: int) -> list[Effect]:
        """Revokes the nodes that it may, and finds out about vouchers."""
        effects: list[Effect] = []
        for node in list(self._decided):
            effects += self._revoke_decided(node, now_ns)
        for node in [node for node in self._doubted_ns if _is_due(self._ripe_ns(node), now_ns)]:
            effects += self._judge(node, now_ns)
        for node in self._due_ns:
            effects += self._revoke_due(node, now_ns)

        effects += self._noted(self._sweeping.sweep(now_ns))
        return effects + (self._revoke_silent_vouchers(now_ns) if self._voucher_of else [])

    def _noted(self, effects: list[Effect]) -> list[Effect]:
        """Revocations, noted as this node's."""
        self._given.update((effect.node, effect.epoch) for effect in effects if isinstance(effect, WriteHeartbeat))
        return effects

    # ---- of a node that this one vouches for ----

    def vouches_for(self, epoch: str) -> list[VouchTerm]:
        """The terms in which this node vouches for others: they name it, in this instance and in this epoch of it."""
        me = (self._node, self._instance, epoch)
        named = ((heartbeat, heartbeat.voucher) for heartbeat in self._peers.heartbeats)
        return [
            voucher.to(heartbeat.node, heartbeat.epoch)
            for heartbeat, voucher in named
            if voucher is not None and (voucher.node, voucher.instance, voucher.epoch) == me
        ]

    def decided(self, node: str, term: str, now_ns: int) -> list[Effect]:
        """This node, as a voucher, has ended a term (V6): the node is dead. It is revoked while it names that term."""
        self._decided[node] = term, now_ns
        return self.tick(now_ns)

    def _revoke_decided(self, node: str, now_ns: int) -> list[Effect]:
        """Revokes it by a version that was read since."""
        term, decided_ns = self._decided[node]
        if self._names_this(self._peers.known(node), term):
            return self._noted(self._reading.replace_early(node, decided_ns, now_ns))
        del self._decided[node]  # for ever: it names another, or none
        return []

    def _names_this(self, known: Heartbeat | None, term: str) -> bool:
        """Whether a heartbeat names this node, in this instance and in this term."""
        voucher = known.voucher if known else None
        named = (voucher.node, voucher.instance, voucher.term) if voucher else None
        return named == (self._node, self._instance, term)

    # ---- of a node whose voucher is over ----

    def changed(self, node: str, now_ns: int) -> list[Effect]:
        """A node's heartbeat was seen, or read: its voucher may be over, or the node may be over as a voucher."""
        known = self._peers.known(node)
        self._note(node, known.voucher if known else None, now_ns)

        effects = self._revoke_decided(node, now_ns) if node in self._decided else []
        effects += self._revoke_due(node, now_ns) if node in self._due_ns else []
        for vouched in (node, *self._nodes_of.get(node, ())):
            effects += self._judge(vouched, now_ns)
        return effects

    def _note(self, node: str, voucher: NamedVoucher | None, now_ns: int) -> None:
        """Takes the voucher that its heartbeat names. What was known of another term does not count in this one."""
        before = self._voucher_of.pop(node, None)
        if before is not None:
            del self._nodes_of[before.node][node]
        if before != voucher:
            self._named_ns[node] = now_ns
            self._doubted_ns.pop(node, None)
            self._due_ns.pop(node, None)
            self._scan_ns = now_ns
        if voucher is not None:
            self._voucher_of[node] = voucher
            self._nodes_of.setdefault(voucher.node, {})[node] = None

    def _judge(self, node: str, now_ns: int) -> list[Effect]:
        """Finds out whether a node's voucher is over, and notes when the node may be revoked."""
        voucher = self._voucher_of.get(node)
        if voucher is None or node in self._due_ns:
            return []
        known = self._peers.known(voucher.node)
        if known is None or not known.epoch or (known.epoch, known.instance) == (voucher.epoch, voucher.instance):
            self._doubted_ns.pop(node, None)
            return []

        first = known.epoch == self._given.get(voucher.node)
        if now_ns < self._doubted_ns.setdefault(node, now_ns if first else now_ns + BACKUP_NS):
            return []
        if self._reading.is_over(voucher.node, voucher.epoch, self._named_ns[node], now_ns):
            del self._doubted_ns[node]
            self._due_ns[node] = now_ns + voucher.d_ns
            return []
        return self._reading.ask_since(voucher.node, self._named_ns[node], now_ns)

    def _is_held(self, node: str) -> bool:
        """Whether a node has a heartbeat, and that is not revoked."""
        known = self._peers.known(node)
        return known is not None and known.instance != ""

    def _ripe_ns(self, node: str) -> int | None:
        """When there is more to find out about a node's voucher; None: an answer is awaited."""
        ripe_ns = self._reading.ripe_ns(self._voucher_of[node].node, self._named_ns[node])
        return None if ripe_ns is None else max(ripe_ns, self._doubted_ns[node])

    def _revocable_ns(self, node: str) -> int | None:
        """When a node whose voucher is over may be revoked; None: it does not say "bound", or an answer is awaited."""
        known, free_ns = self._peers.known(node), self._reading.free_ns(node)
        if known is None or not known.bound or free_ns is None:
            return None
        return max(free_ns, self._due_ns[node])

    def _revoke_due(self, node: str, now_ns: int) -> list[Effect]:
        """Revokes it, if it is time, by a version that was read since."""
        if not _is_due(self._revocable_ns(node), now_ns):
            return []
        return self._noted(self._reading.replace_early(node, self._due_ns[node], now_ns))

    def _revoke_silent_vouchers(self, now_ns: int) -> list[Effect]:
        """A voucher that has been silent for its lease is revoked, wanted or not: its nodes may have died with it."""
        if now_ns < self._scan_ns:
            return []
        self._scan_ns = now_ns + BACKUP_NS
        return self.revoke_silent(self._nodes_of, now_ns)

    def revoke_silent(self, nodes: Iterable[str], now_ns: int) -> list[Effect]:
        """Revokes those of these nodes that vouch for others, and are silent."""
        vouchers = [node for node in nodes if self._nodes_of.get(node) and self._is_held(node)]
        return [effect for node in vouchers for effect in self._noted(self._peers.revoke(node, now_ns))]


def _is_due(moment_ns: int | None, now_ns: int) -> bool:
    return moment_ns is not None and moment_ns <= now_ns
