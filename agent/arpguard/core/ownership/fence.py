"""Until when the kernel answers for this node.

The fence counts from before the renewal was sent, so a late answer does not prolong it. It reaches the kernel only
after the server has accepted a compare-and-swap that carries the epoch.

Other nodes count a published lease from when they see it. So before this node publishes a shorter lease, the kernel
gets the fence that belongs to it: otherwise it would answer for as long as the longer lease allows.
"""

from arpguard.core.ownership.lease import Times
from arpguard.core.ownership.records import Effect, SetFence


class Fence:
    """The kernel's fence, and how far renewals and syncs allow it to go. `kept_ns`: as the previous agent set it."""

    def __init__(self, kept_ns: int) -> None:
        self._told_ns = kept_ns
        self._reach_ns = 0  # how far renewals allow it
        self._synced_ns: int | None = None

    def is_ahead(self, now_ns: int) -> bool:
        """Whether it has not passed."""
        return now_ns < self._told_ns

    def renewed(self, sent_ns: int, lease: Times) -> None:
        """A renewal that publishes this lease, and was sent then, has been applied."""
        self._reach_ns = sent_ns + lease.answers_ns

    def synced(self, sent_ns: int) -> None:
        """A list of this node's claims that was sent then has been acted on."""
        self._synced_ns = sent_ns

    def shorten(self, epoch: str, lease: Times, now_ns: int) -> list[Effect]:
        """A renewal is about to be sent: moves the fence back to what it will allow, if that is less.

        Until the server has applied a later one, this may be the one that counts, whatever its outcome.
        """
        self._reach_ns = min(self._reach_ns, now_ns + lease.answers_ns)
        if self._told_ns > now_ns + lease.answers_ns:
            return self._tell(epoch, now_ns + lease.answers_ns, lease)
        return []

    def extend(self, epoch: str, lease: Times, sync_ns: int) -> list[Effect]:
        """Moves the fence forward only, and no further than the last sync allows; there is one every `sync_ns`.

        If a person strips a finalizer, two nodes may answer for as long as S and the lease that was published last,
        which is the parting lease when the agent has parted.
        """
        if self._synced_ns is None:
            return []
        fence_ns = min(self._reach_ns, self._synced_ns + sync_ns + lease.duration_ns)
        return self._tell(epoch, fence_ns, lease) if fence_ns > self._told_ns else []

    def drop(self, epoch: str, lease: Times) -> list[Effect]:
        """An epoch begins: the kernel does not answer in it yet."""
        self._reach_ns = 0
        return self._tell(epoch, 0, lease)

    def _tell(self, epoch: str, fence_ns: int, lease: Times) -> list[Effect]:
        self._told_ns = fence_ns
        return [SetFence(epoch, fence_ns, lease.duration_ns)]
