"""Whether this node may rely on its voucher: one whose agent does not renew still grants, but cannot revoke (V19).

The voucher's process and kernel grant for as long as its own right lasts. If this node died then, no node would notice
before the end of its long lease. No watch shows the renewals of a bound node, so this node reads its voucher's
heartbeat.
"""

from arpguard.core.ownership.heartbeat import OwnHeartbeat
from arpguard.core.ownership.peers import Peers
from arpguard.core.ownership.reading import PeerReads
from arpguard.core.ownership.records import Effect


class Reliance:
    """Of `heartbeat`, this node's, on the voucher that it names, by what `peers` knows of that."""

    def __init__(self, heartbeat: OwnHeartbeat, peers: Peers, reading: PeerReads) -> None:
        self._heartbeat = heartbeat
        self._peers = peers
        self._reading = reading

    def next_ns(self) -> int | None:
        """When to judge the voucher next; None: there is none, or a renewal is awaited."""
        naming = self._heartbeat.naming
        if naming.named is None or naming.is_behind or self._peers.silences.is_in_doubt(naming.named.node):
            return None
        behind_ns = self._reading.behind_ns(naming.named.node)
        return None if behind_ns is None else self._reading.look_ns(naming.named.node, behind_ns)

    def judge(self, now_ns: int) -> list[Effect]:
        """Leaves a voucher that has not renewed for long, once this node could; keeps one that does so again."""
        named = self._heartbeat.naming.named
        if named is None:
            return []
        behind_ns = self._reading.behind_ns(named.node)
        if behind_ns is not None and not self._reading.has_not_renewed(named.node, behind_ns):
            return self._reading.look(named.node, behind_ns, now_ns) + self._heartbeat.voucher_is_behind(False, now_ns)
        is_behind = behind_ns is not None and self._peers.silences.counts(named.node, behind_ns, now_ns)
        return self._heartbeat.voucher_is_behind(is_behind, now_ns)
