"""Stands for the kernel: what the reconciler writes to, for tests of what it is told, and in which order."""

from collections import Counter
from pathlib import Path

from arpguard.dataplane.attach import Pin
from arpguard.dataplane.maps import TableContent
from arpguard.errors import DataPlaneError, MapFullError
from arpguard.model import Attachment, EntryKey, Grants, LinkTerm, NodeControl, RangeKey, Tally, VipEntry
from arpguard.verdict import Hook, Reason


class Recorder:
    """Stands for the kernel: remembers what it was told, in order, and gives it back."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.entries: dict[EntryKey, VipEntry] = {}
        self.ranges: dict[RangeKey, VipEntry] = {}
        self.value: NodeControl | None = None
        self.terms: dict[int, LinkTerm] = {}
        self.granted = Grants()
        self.counts: Counter[Reason] = Counter()  # of every entry
        self.refuses = self.refuses_terms = False
        self.room = 9
        self.pinned: list[int] = []
        self.filters_at: list[tuple[int, Hook]] = []

    # entries and control

    def write_entries(self, entries):
        if len(self.entries | entries) > self.room:
            raise MapFullError("no room")
        self._assert_control_covers(entries)
        self.told += [f"entry {entry.kind.name} {entry.mode.name}" for entry in entries.values()]
        self.entries |= entries

    def _assert_control_covers(self, entries):
        """Where the kernel was told anything, it looks at what it is given from the first moment on."""
        if self.value is None:
            return
        for key, entry in entries.items():
            if key.vip.version == 6:
                assert self.value.strictest6 >= (entry.mode or self.value.mode)
            else:
                assert self.value.vips4[0] <= key.vip <= self.value.vips4[1]

    def delete(self, keys):
        for key in keys:
            self.told.append(f"delete {key.vip}")
            del self.entries[key]

    def write_ranges(self, ranges):
        if len(self.ranges | ranges) > self.room:
            raise MapFullError("no room")
        for key, entry in ranges.items():
            self.told.append(f"range {entry.kind.name} {key.network}")
            if self.value is not None:
                assert self.value.closed
                assert key.network.version == 4 or self.value.strictest6 >= self.value.mode
        self.ranges |= ranges

    def delete_ranges(self, keys):
        for key in keys:
            self.told.append(f"delete range {key.network}")
            del self.ranges[key]

    def write_control(self, control):
        of_ipv6 = f", IPv6 {control.strictest6.name}" if control.strictest6 else ""
        self.told.append(f"control {control.mode.name}{of_ipv6}")
        self.value = control

    def write_terms(self, terms):
        if self.refuses_terms:
            raise DataPlaneError("no")
        if terms != self.terms:
            self.told.append(f"terms {sorted({term.number for term in terms.values()})} on {sorted(terms)}")
        self.terms = dict(terms)

    def start_voucher(self, _ethertype):
        raise AssertionError("nobody vouches here")

    # programs

    async def ensure(self, ifindex, hook):
        if self.refuses:
            raise DataPlaneError("no")
        return Attachment(ifindex, hook, "xdp", 1)

    async def detach(self, ifindex, hook, **_):
        self.told.append(f"detach {hook.name}")
        self.filters_at = [at for at in self.filters_at if at != (ifindex, hook)]

    async def filters(self):
        return list(self.filters_at)

    def pins(self):
        return [Pin(Path(), ifindex, Hook.TC_EGRESS, None) for ifindex in self.pinned]


class Entries:
    def __init__(self, kernel: Recorder) -> None:
        self._kernel = kernel
        self.read = lambda: TableContent(dict(kernel.entries), [])
        self.is_untouched = lambda: False  # so that every look reads it
        self.write, self.delete = kernel.write_entries, kernel.delete
        self.tally = lambda _key: Tally(enforced=dict(kernel.counts))

    @property
    def capacity(self) -> int:
        return self._kernel.room


class Ranges:
    def __init__(self, kernel: Recorder) -> None:
        self.read = lambda: TableContent(dict(kernel.ranges), [])
        self.is_untouched = lambda: False
        self.write, self.delete = kernel.write_ranges, kernel.delete_ranges


class Control:
    def __init__(self, kernel: Recorder) -> None:
        self.read, self.write = lambda: kernel.value, kernel.write_control


class Vouching:
    """Of the maps by which another node vouches for this one."""

    def __init__(self, kernel: Recorder) -> None:
        self.table = self
        self.read = lambda: dict(kernel.terms)
        self.write = kernel.write_terms
        self.grants = lambda: kernel.granted
        self.start_voucher = kernel.start_voucher
