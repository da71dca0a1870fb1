"""When to announce a VIP: after taking it over, and in defence against a foreign claim.

RFC 5227 2.3: an announcement is repeated, after more than Linux's neighbour locktime of 1 s, during which a second
change is ignored. RFC 5227 2.4 (c): a defence is sent at most once per DEFEND_INTERVAL, and never given up.
RFC 4861 7.2.6 allows as much for IPv6: three unsolicited advertisements (MAX_NEIGHBOR_ADVERTISEMENT), a second apart.
"""

import heapq
from itertools import count

from arpguard.core.tokens import TokenBucket
from arpguard.model import EntryKey
from arpguard.units import NS_PER_MS

ANNOUNCE_COUNT = 3
ANNOUNCE_INTERVAL_NS = 1_100 * NS_PER_MS
DEFEND_INTERVAL_NS = 10_000 * NS_PER_MS
BURST = 50
RATE_INTERVAL_NS = 10 * NS_PER_MS
_FEW = 64


class AnnouncementSchedule:
    """Which announcements are due; times are CLOCK_BOOTTIME nanoseconds given by the caller.

    The whole node sends at most a burst of 50, then one every 10 ms: a takeover of a thousand VIPs does not flood the
    segment.
    """

    def __init__(self) -> None:
        self._due: dict[EntryKey, tuple[int, int]] = {}  # when, and how many are left
        self._queue: list[tuple[int, int, int, EntryKey]] = []  # a heap of these, and of some that are no longer due
        self._numbers = count()
        self._defended: dict[EntryKey, int] = {}
        self._sent: dict[EntryKey, int] = {}
        self._tokens = TokenBucket(BURST, RATE_INTERVAL_NS)

    def take_over(self, key: EntryKey, now_ns: int) -> None:
        """Schedules announcements: this node has just become the owner."""
        self._set_due(key, now_ns, ANNOUNCE_COUNT)

    def sent(self, key: EntryKey, now_ns: int) -> None:
        """Notes that an announcement went out; those that were due while the link was down did not."""
        self._sent[key] = now_ns

    def link_up(self, key: EntryKey, now_ns: int) -> None:
        """The owner's link is back up, and switches may have forgotten where it is.

        A flapping link does not justify to announce more often than after a takeover.
        """
        again_ns = self._sent.get(key, now_ns - ANNOUNCE_INTERVAL_NS) + ANNOUNCE_INTERVAL_NS
        self._set_due(key, max(now_ns, again_ns), ANNOUNCE_COUNT)

    def give_up(self, key: EntryKey) -> None:
        """This node is no longer the owner."""
        for memory in (self._due, self._defended, self._sent):
            memory.pop(key, None)

    def conflict(self, key: EntryKey, now_ns: int) -> bool:
        """Somebody else claimed the VIP; returns whether to defend it with an announcement."""
        last = self._defended.get(key)
        if last is not None and now_ns - last < DEFEND_INTERVAL_NS:
            return False
        self._defended[key] = now_ns
        if key not in self._due:
            self._set_due(key, now_ns, 1)
        return True

    def take_due(self, now_ns: int) -> list[EntryKey]:
        """The VIPs to announce now; the rest of a burst comes later."""
        taken = []
        while (first_ns := self._first_ns()) is not None and first_ns <= now_ns and self._tokens.take(now_ns):
            _, left, _, key = heapq.heappop(self._queue)
            taken.append(key)
            if left > 1:
                self._set_due(key, now_ns + ANNOUNCE_INTERVAL_NS, left - 1)
            else:
                del self._due[key]
        return taken

    def next_ns(self, now_ns: int) -> int | None:
        """When to ask again; None when nothing is waiting."""
        first_ns = self._first_ns()
        if first_ns is None or self._tokens.has_one(now_ns):
            return first_ns
        return max(first_ns, now_ns + RATE_INTERVAL_NS)

    def _set_due(self, key: EntryKey, at_ns: int, left: int) -> None:
        self._due[key] = at_ns, left
        heapq.heappush(self._queue, (at_ns, left, next(self._numbers), key))
        if len(self._queue) > 2 * len(self._due) + _FEW:
            self._queue = [(*due, next(self._numbers), key) for key, due in self._due.items()]
            heapq.heapify(self._queue)

    def _first_ns(self) -> int | None:
        """When the first is due; drops stale items from the queue."""
        while self._queue:
            at_ns, left, _, key = self._queue[0]
            if self._due.get(key) == (at_ns, left):
                return at_ns
            heapq.heappop(self._queue)
        return None
