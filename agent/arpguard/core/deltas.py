"""What a kernel map has, what it should have, and the difference, kept up to date as either changes.

As in Calico's delta tracker, the desired state is not stored a second time: it is what the kernel has once everything
pending is done. So where nothing has changed there is no difference to search for, however large the map is.
"""

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

from arpguard.model import VipEntry
from arpguard.overlay import Overlay
from arpguard.verdict import Kind

K = TypeVar("K")

_ACTS = (Kind.OWNED, Kind.CLOSED)  # answers, or suppresses addresses without an entry


class DeltaTracker(Generic[K]):
    """One map. `kernel`: what it has, as far as known; `writes`, `deletes`: what is pending, without common keys."""

    def __init__(self) -> None:
        self.kernel: Overlay[K, VipEntry] = Overlay()
        self.writes: dict[K, VipEntry] = {}
        self.deletes: dict[K, None] = {}

    @property
    def settled(self) -> bool:
        """Whether the kernel has what is desired."""
        return not self.writes and not self.deletes

    @property
    def new(self) -> dict[K, VipEntry]:
        """The pending writes of what the kernel does not have, or has in another mode."""
        known = ((key, entry, self.kernel.get(key)) for key, entry in self.writes.items())
        return {key: entry for key, entry, before in known if before is None or before.mode != entry.mode}

    @property
    def desired(self) -> dict[K, VipEntry]:
        """What the kernel should have."""
        return {key: entry for key, entry in (self.kernel.whole | self.writes).items() if key not in self.deletes}

    def want(self, writes: Mapping[K, VipEntry], gone: Iterable[K] = ()) -> None:
        """Changes what is desired for a few keys."""
        for key, entry in writes.items():
            self.deletes.pop(key, None)
            if self.kernel.get(key) != entry:
                self.writes[key] = entry
            else:
                self.writes.pop(key, None)

        for key in gone:
            self.writes.pop(key, None)
            if self.kernel.get(key) is not None:
                self.deletes[key] = None

    def want_all(self, wanted: Mapping[K, VipEntry]) -> None:
        """Replaces the whole desired state."""
        kernel = self.kernel.whole
        self.writes = {key: entry for key, entry in wanted.items() if kernel.get(key) != entry}
        self.deletes = {key: None for key in kernel if key not in wanted}

    def done(self) -> None:
        """Everything pending has been written to the kernel."""
        self.kernel.change(self.writes, self.deletes)
        self.writes, self.deletes = {}, {}

    def given_up(self, entries: Mapping[K, VipEntry]) -> None:
        """Notes entries written ahead of pending ones. Pending writes stay; otherwise these are desired now."""
        self.kernel.change(entries)
        for key, entry in entries.items():
            if self.writes.get(key) == entry:
                del self.writes[key]

    def found(self, actual: dict[K, VipEntry]) -> list[K]:
        """The map was read back; the desired state stays. Returns the keys whose entries something else has changed."""
        known = self.kernel.whole
        if actual == known:
            return []

        desired = self.desired
        self.kernel.replace(actual)
        self.want_all(desired)
        return [key for key in known.keys() | actual.keys() if known.get(key) != actual.get(key)]

    def begin(self, actual: dict[K, VipEntry]) -> None:
        """Starts with what the map has; all of that is desired."""
        self.kernel.replace(actual)
        self.writes, self.deletes = {}, {}


def in_order(writes: Mapping[K, VipEntry]) -> dict[K, VipEntry]:
    """The order to write in: given up before taken, so that a VIP that moves is never owned on two links.

    Of ranges, exceptions come before closed ones.
    """
    return dict(sorted(writes.items(), key=lambda item: item[1].kind in _ACTS))


def in_reverse(keys: Iterable[K], known: Overlay[K, VipEntry]) -> list[K]:
    """The order to delete in: the reverse of writing; keys without a valid entry go first."""

    def stays(key: K) -> bool:
        entry = known.get(key)
        return entry is not None and entry.kind not in _ACTS

    return sorted(keys, key=stays)
