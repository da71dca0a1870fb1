"""One map of the kernel, and what is pending for it. In a running agent nothing else writes to it.

Through this, the reconciler reads back what it has written; `node` reads the same map to answer questions.
"""

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

from arpguard.core.deltas import DeltaTracker, in_order, in_reverse
from arpguard.dataplane.maps import Table
from arpguard.errors import MapFullError
from arpguard.model import Tally, VipEntry

K = TypeVar("K")


class TrackedTable(Generic[K]):
    """A map, and the writes and deletes that are pending.

    `room_first`: delete before writing, because the map may be full; otherwise write first, so that nothing is open in
    between.
    """

    def __init__(self, table: Table[K], *, room_first: bool) -> None:
        self._table = table
        self._room_first = room_first
        self._strangers: list[K] = []
        self._is_known = False
        self.delta: DeltaTracker[K] = DeltaTracker()

    @property
    def capacity(self) -> int:
        """How many entries there is room for."""
        return self._table.capacity

    @property
    def settled(self) -> bool:
        """Whether the kernel has what is desired, and nothing that this agent cannot have written."""
        return self.delta.settled and not self._strangers

    def tally(self, key: K) -> Tally:
        """The decisions about an entry since it was made."""
        return self._table.tally(key)

    def is_touched(self) -> bool:
        """Whether something else has changed the map since the last look, at a fraction of its cost."""
        return self._is_known and not self._table.is_untouched()

    def look(self) -> list[K]:
        """Reads back what the kernel has; returns the keys that something else has changed since the last look."""
        if self._is_known and not self.is_touched():
            return []
        content = self._table.read()
        self._strangers = content.strangers
        if not self._is_known:
            self.delta.begin(content.entries)
            self._is_known = True
            return []
        return [*{*self.delta.found(content.entries), *content.strangers}]

    def bring(self) -> str:
        """Writes all that is pending; returns why some of it failed, or nothing."""
        writes = self.delta.writes
        gone = [*self.delta.deletes, *(key for key in self._strangers if key not in writes)]
        self._strangers = []
        refused = self._tell(writes, gone)
        if refused:
            self.look()
        else:
            self.delta.done()
        return refused

    def give_up(self, entries: Mapping[K, VipEntry]) -> None:
        """Replaces existing entries at once, ahead of what is pending, and the old ones never come back.

        Raises MapFullError when the kernel has no memory for them.
        """
        refused = self._tell(entries, ())
        if refused:
            raise MapFullError(refused)
        self.delta.given_up(entries)

    def _tell(self, writes: Mapping[K, VipEntry], gone: Iterable[K]) -> str:
        gone = in_reverse(gone, self.delta.kernel)
        if self._room_first:
            self._table.delete(gone)

        refused = ""
        try:
            self._table.write(in_order(writes))
        except MapFullError as error:
            refused = str(error)

        if not self._room_first:
            self._table.delete(gone)
        return refused
