"""Whether another node's silence counts: in an outage of the API server no node is heard, and none is revoked for it.

An applied write of any node shows that the server took writes then. If this node cannot renew, and has seen no such
write for long, others' silence counts only from when it can renew again: they, too, have to notice that they can.

But a node may renew so seldom that it does not notice an outage. So before it revokes another node for its silence, it
has to renew once that node is nearly late.
"""


class Silences:
    """Which silences count. `since_ns`: no silence counts from before then."""

    def __init__(self) -> None:
        self.since_ns = 0
        self._written_ns = 0  # by any node
        self._lost_ns: int | None = None  # the last write before this node could not renew
        self._renewed_ns: int | None = None
        self._doubted: dict[str, None] = {}

    def written(self, now_ns: int) -> None:
        """Some node's write is seen to have been applied."""
        self._written_ns = now_ns

    def failed(self) -> None:
        """This node could not renew."""
        if self._lost_ns is None:
            self._lost_ns = self._written_ns

    def renewed(self, outage_ns: int, sent_ns: int, now_ns: int) -> list[str]:
        """A renewal of this node that was sent then has been applied: returns whose silence was in doubt until now.

        `outage_ns`: so long without a write is an outage.
        """
        if self._lost_ns is not None and now_ns - self._lost_ns >= outage_ns:
            self.since_ns = now_ns
        self._lost_ns = None
        self._written_ns = now_ns
        self._renewed_ns = sent_ns
        doubted, self._doubted = list(self._doubted), {}
        return doubted

    def counts(self, node: str, from_ns: int, now_ns: int) -> bool:
        """Whether a node's silence, which begins at `from_ns`, counts: if this node has renewed since.

        If it is time, and it has not, a renewal is wanted: `renewed` says about whom to ask again.
        """
        if now_ns < from_ns:
            return False
        if self._renewed_ns is None or self._renewed_ns < from_ns:
            self._doubted[node] = None
            return False
        return True

    @property
    def wants_renewal(self) -> bool:
        """Whether some node's silence is in doubt until this node renews."""
        return bool(self._doubted)

    def is_in_doubt(self, node: str) -> bool:
        """Whether a node's silence is."""
        return node in self._doubted
