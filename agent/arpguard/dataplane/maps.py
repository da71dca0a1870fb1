"""The pinned maps as values: entries, ranges and control are written here and nowhere else; counters are read.

Reading back is the rule: what this module returns is what the kernel has, not what was once written.
"""

import ctypes
import errno
import heapq
import platform
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from ipaddress import IPv4Address, ip_network
from typing import Generic, TypeVar

from arpguard.addresses import MacAddress, from_mapped, to_mapped
from arpguard.dataplane import layout, syscall
from arpguard.dataplane.syscall import Fd
from arpguard.errors import DataPlaneError, MapFullError
from arpguard.model import EntryKey, EventAccount, Grants, LinkTerm, NodeControl, RangeKey, Tally, VipEntry
from arpguard.verdict import REASON_COUNT, VIP_KINDS, Kind, Mode, Reason, Vouched

K = TypeVar("K")

_ZERO_KEY = bytes(4)
_BATCH = 4096
_NO_ADDRESS = bytes(16)
_KINDS, _MODES, _NODE_MODES = frozenset(Kind), frozenset(Mode), frozenset({Mode.OBSERVE, Mode.ENFORCE})
_ENTRY = struct.Struct("=QIBBB3x6s6s6s16s4x")  # EntryStruct, which takes five times as long to fill
_REASONS = tuple(Reason)  # quicker than going through the enumeration, for each of thousands of VIPs
_FRAMES = struct.Struct(f"={2 * REASON_COUNT}Q")  # at the start of struct counters and struct totals
_NO_MEMORY = (errno.E2BIG, errno.ENOMEM, errno.ENOSPC)
_IFINDEX_BITS, _MAPPED_BITS = 32, 96  # before the bits of an address, and of an IPv4 one (RFC 4291 2.5.5.2)

# membarrier(2), MEMBARRIER_CMD_GLOBAL: returns after an RCU grace period, so after every program that runs now.
_MEMBARRIER_NUMBER = {"x86_64": 324, "aarch64": 283, "riscv64": 283, "ppc64le": 365, "s390x": 356}
_MEMBARRIER_GLOBAL = 1


def wait_for_running_programs() -> None:
    """Returns once every BPF program run that had begun has ended (membarrier(2))."""
    number = _MEMBARRIER_NUMBER[platform.machine()]
    if ctypes.CDLL(None, use_errno=True).syscall(number, _MEMBARRIER_GLOBAL, 0, 0) < 0:
        raise DataPlaneError("membarrier(2) is refused: allow it in the seccomp profile (RuntimeDefault allows it)")


@dataclass(frozen=True, slots=True)
class TableContent(Generic[K]):
    """What is in a map of entries: entries, and the keys of what its table cannot have written."""

    entries: dict[K, VipEntry]
    strangers: list[K]


class Table(Generic[K]):
    """A map of entries, and the slot of the `counters` map that each entry has to itself, from `first_slot` on.

    `raw_key` and `key_from`: a key as the kernel has it, and back. `capacity`: how many entries there is room for.
    """

    what: str
    kinds: Collection[Kind]
    key_struct: type[ctypes.Structure]

    def __init__(
        self, entries: Fd, counters: Fd, raw_key: Callable[[K], bytes], key_from: Callable[[bytes], K], first_slot: int
    ) -> None:
        self._entries = entries
        self._counters = counters
        self._raw_key = raw_key
        self._key_from = key_from
        self.capacity = syscall.map_info(entries).max_entries
        self._row_size = ctypes.sizeof(layout.CountersStruct) * syscall.possible_cpus()
        self._keys: dict[bytes, K] = {}
        self._seen: dict[bytes, bytes] | None = None  # as read last, and as this table has changed it since
        self._slots: dict[K, int] = {}
        self._released: list[int] = []
        self._first_slot = self._next_slot = first_slot
        self._adopt_slots()

    def is_untouched(self) -> bool:
        """Whether the kernel has exactly what was read last and written here since: a tenth of the cost of `read`."""
        return self._seen is not None and dict(self._items()) == self._seen

    def read(self) -> TableContent[K]:
        """All entries as the kernel has them."""
        content: TableContent[K] = TableContent({}, [])
        for key, raw in self._raw():
            entry = self._own(key, raw)
            if entry is not None:
                content.entries[key] = entry
            else:
                content.strangers.append(key)
        return content

    def write(self, entries: Mapping[K, VipEntry]) -> None:
        """Sets entries, each replaced as a whole.

        Raises MapFullError when there is no room for all; then those that fitted are set.
        """
        refused = 0
        pairs: list[tuple[bytes, bytes]] = []
        for key, entry in entries.items():
            slot = self._slot_for(key)
            if slot is None:
                refused += 1
            else:
                pairs.append((self._raw_key(key), _raw_entry(entry, slot)))

        for at in range(0, len(pairs), _BATCH):
            some = pairs[at : at + _BATCH]
            try:
                syscall.map_update_batch(self._entries, some)
            except OSError as error:
                self._seen = None  # some of these may have been set
                if error.errno not in _NO_MEMORY:
                    raise
                refused += len(some)
            if self._seen is not None:
                self._seen.update(some)

        if refused:
            raise MapFullError(
                f"the kernel took only {len(entries) - refused} of {len(entries)} {self.what} into a map with room for "
                f"{self.capacity}: the map is full, or the node is short of memory"
            )

    def delete(self, keys: Iterable[K]) -> None:
        """Deletes entries; those that are not there do not matter.

        Returns only when no program uses a deleted entry any more: its memory and slot may be reused then.
        """
        deleted = False
        for key in keys:
            raw_key = self._raw_key(key)
            syscall.map_delete(self._entries, raw_key)
            if self._seen is not None:
                self._seen.pop(raw_key, None)
            slot = self._slots.pop(key, None)
            if slot is not None:
                heapq.heappush(self._released, slot)
            deleted = True
        if deleted:
            wait_for_running_programs()

    def tally(self, key: K) -> Tally:
        """The decisions about an entry so far, or since its entry was made."""
        slot = self._slots.get(key)
        if slot is None:
            return Tally()
        return _tally(
            syscall.map_lookup(self._counters, struct.pack("=I", slot), self._row_size), layout.CountersStruct
        )

    def _own(self, key: K, raw: bytes) -> VipEntry | None:
        """The value as an entry; None when this table cannot have written it."""
        slot, rest = _split(raw)
        entry = _entry_from(rest) if slot == self._slots.get(key) else None
        return entry if entry is not None and entry.kind in self.kinds else None

    def _raw(self) -> Iterator[tuple[K, bytes]]:
        """Keys are the same objects each time: there may be many."""
        known, self._keys, self._seen = self._keys, {}, dict(self._items())
        for raw, value in self._seen.items():
            key = self._keys[raw] = known.get(raw) or self._key_from(raw)
            yield key, value

    def _items(self) -> Iterator[tuple[bytes, bytes]]:
        return syscall.map_items(self._entries, ctypes.sizeof(self.key_struct), _ENTRY.size)

    def _adopt_slots(self) -> None:
        """After a restart: each entry keeps its slot, so its counters continue; of two in a slot the first keeps it."""
        taken: dict[int, K] = {}
        for key, value in self._raw():
            slot, _ = _split(value)
            if self._first_slot <= slot < self._first_slot + self.capacity:
                taken.setdefault(slot, key)
        self._slots = {key: slot for slot, key in taken.items()}
        self._next_slot = max(taken, default=self._first_slot - 1) + 1
        self._released = [slot for slot in range(self._first_slot, self._next_slot) if slot not in taken]

    def _slot_for(self, key: K) -> int | None:
        """The slot of an entry; a new one starts with zero counts. None when all are taken."""
        slot = self._slots.get(key)
        if slot is not None:
            return slot
        if self._released:
            slot = heapq.heappop(self._released)
        elif self._next_slot < self._first_slot + self.capacity:
            slot, self._next_slot = self._next_slot, self._next_slot + 1
        else:
            return None
        syscall.map_update(self._counters, struct.pack("=I", slot), bytes(self._row_size))
        self._slots[key] = slot
        return slot


class EntryTable(Table[EntryKey]):
    """The `entries` map."""

    what = "VIP entries"
    kinds = VIP_KINDS
    key_struct = layout.EntryKeyStruct

    def __init__(self, entries: Fd, counters: Fd) -> None:
        super().__init__(entries, counters, _raw_key, _key_from, 0)

    def lookup(self, key: EntryKey) -> VipEntry | None:
        """One entry as the kernel has it now; None when there is none that this table wrote."""
        raw = syscall.map_lookup(self._entries, _raw_key(key), _ENTRY.size)
        return self._own(key, raw) if raw else None


class RangeTable(Table[RangeKey]):
    """The `ranges` map, a trie. Its rows are behind those of entries."""

    what = "ranges"
    kinds = (Kind.CLOSED, Kind.OPEN)
    key_struct = layout.RangeKeyStruct

    def __init__(self, ranges: Fd, counters: Fd) -> None:
        first_slot = syscall.map_info(counters).max_entries - layout.MAX_RANGES
        super().__init__(ranges, counters, raw_range_key, range_key_from, first_slot)


class ControlValue:
    """The `control` map: one value, the same for every CPU."""

    def __init__(self, fd: Fd) -> None:
        self._fd = fd
        self._cpus = syscall.possible_cpus()
        self._size = ctypes.sizeof(layout.ControlStruct)

    def read(self) -> NodeControl | None:
        """What all CPUs have; None before the first write, or when they differ."""
        raw = syscall.map_lookup(self._fd, _ZERO_KEY, self._size * self._cpus) or bytes(self._size * self._cpus)
        if raw != raw[: self._size] * self._cpus:
            return None
        return _control_from(raw[: self._size])

    def write(self, control: NodeControl) -> None:
        """Replaces the value.

        Where the epoch changes the fence is 0 in between; where the term changes it is the earlier one of both. Every
        program run that could have seen the value before has ended each time: none combines one value's epoch or term
        with another's fence.
        """
        for step in self._steps(control):
            self._write(step)
            wait_for_running_programs()
        self._write(control)

    def _steps(self, control: NodeControl) -> Iterator[NodeControl]:
        """Values between the present one and another: two in a row differ in the fence, the epoch or the term only."""
        old = self.read()
        if old is None or (old.epoch, old.term) == (control.epoch, control.term):
            return
        between = 0 if old.epoch != control.epoch else min(old.fence_ns, control.fence_ns)
        yield replace(old, fence_ns=between)
        if old.epoch != control.epoch and old.term != control.term:
            yield replace(old, fence_ns=between, epoch=control.epoch)
        yield replace(control, fence_ns=between)

    def _write(self, control: NodeControl) -> None:
        syscall.map_update(self._fd, _ZERO_KEY, _raw_control(control) * self._cpus)


class VouchingTable:
    """The `vouching` map: the term of each link that takes pings and grants, by its ifindex."""

    def __init__(self, fd: Fd) -> None:
        self._fd = fd

    def read(self) -> dict[int, LinkTerm]:
        """All of them, as the kernel has them."""
        sizes = ctypes.sizeof(ctypes.c_uint32), ctypes.sizeof(layout.VouchingStruct)
        return {struct.unpack("=I", key)[0]: _term_from(value) for key, value in syscall.map_items(self._fd, *sizes)}

    def write(self, terms: Mapping[int, LinkTerm]) -> None:
        """Makes these the only ones. Raises MapFullError.

        It deletes links of another term before it adds any, and by then every program run that could have seen them
        has ended. A term in which grants count is in the node's control value before, and until this has deleted it:
        see `write_term`.
        """
        present = self.read()
        gone = [ifindex for ifindex, term in present.items() if terms.get(ifindex) != term]
        for ifindex in gone:
            self._forget(ifindex)
        if gone:
            wait_for_running_programs()

        for ifindex, term in terms.items():
            if present.get(ifindex) != term:
                self._set(ifindex, term)

    def _forget(self, ifindex: int) -> None:
        syscall.map_delete(self._fd, struct.pack("=I", ifindex))

    def _set(self, ifindex: int, term: LinkTerm) -> None:
        try:
            syscall.map_update(self._fd, struct.pack("=I", ifindex), _raw_term(term))
        except OSError as error:
            if error.errno not in _NO_MEMORY:
                raise
            raise MapFullError(f"vouching works on at most {layout.MAX_VOUCHING} links: guard fewer links") from error


def write_term(
    control: ControlValue, vouching: VouchingTable, wanted: NodeControl, terms: Mapping[int, LinkTerm]
) -> None:
    """Writes another control value, whose term is another one, and the terms of links.

    No link has a term in which grants count before the control value has, or after (V2, V9).
    """
    kept = {ifindex: term for ifindex, term in vouching.read().items() if terms.get(ifindex) == term}
    vouching.write(kept)
    control.write(wanted)
    vouching.write(terms)


def read_grants(fd: Fd) -> Grants:
    """The `grants` map: what programs have of this node's voucher."""
    raw = syscall.map_lookup(fd, _ZERO_KEY, ctypes.sizeof(layout.GrantsStruct)) or b""
    value = layout.GrantsStruct.from_buffer_copy(raw.ljust(ctypes.sizeof(layout.GrantsStruct), b"\0"))
    return Grants(value.fence_ns, value.bound_term, value.window_ns, value.pinged_ns)


def _raw_term(term: LinkTerm) -> bytes:
    key = (ctypes.c_uint64 * 2)(*struct.unpack("=2Q", term.key))
    return bytes(layout.VouchingStruct(term=term.number, key=key, window_ns=term.window_ns))


def _term_from(raw: bytes) -> LinkTerm:
    value = layout.VouchingStruct.from_buffer_copy(raw)
    return LinkTerm(value.term, struct.pack("=2Q", *value.key), value.window_ns)


def read_totals(fd: Fd) -> tuple[Tally, EventAccount, dict[Vouched, int]]:
    """The node's decisions, and the kernel's accounts of events and of frames of vouching."""
    size = ctypes.sizeof(layout.Totals)
    raw = syscall.map_lookup(fd, _ZERO_KEY, size * syscall.possible_cpus()) or b""
    rows = [layout.Totals.from_buffer_copy(raw, at) for at in range(0, len(raw), size)]
    events = EventAccount(
        delivered=sum(row.sent for row in rows),
        limited=sum(row.limited for row in rows),
        lost=sum(row.lost for row in rows),
    )
    return _tally(raw, layout.Totals), events, {what: sum(row.vouched[what] for row in rows) for what in Vouched}


def _tally(raw: bytes | None, row: type[layout.CountersStruct] | type[layout.Totals]) -> Tally:
    rows = [_FRAMES.unpack_from(raw or b"", at) for at in range(0, len(raw or b""), ctypes.sizeof(row))]
    if not any(map(any, rows)):
        return Tally()
    sums = tuple(map(sum, zip(*rows, strict=True)))
    return Tally(enforced=_counted(sums[:REASON_COUNT]), observed=_counted(sums[REASON_COUNT:]))


def _counted(counts: Sequence[int]) -> dict[Reason, int]:
    return {reason: counts[reason] for reason in _REASONS if counts[reason]}


def _raw_key(key: EntryKey) -> bytes:
    return struct.pack("=I", key.ifindex) + to_mapped(key.vip)


def _key_from(raw: bytes) -> EntryKey:
    return EntryKey(struct.unpack_from("=I", raw)[0], from_mapped(raw[4:]))


def raw_range_key(key: RangeKey) -> bytes:
    """A range as the kernel's key."""
    network = key.network
    bits = _IFINDEX_BITS + network.prefixlen + (_MAPPED_BITS if network.version == 4 else 0)
    return struct.pack("=I", bits) + _raw_key(EntryKey(key.ifindex, network.network_address))


def range_key_from(raw: bytes) -> RangeKey:
    """The range in a key of the kernel's; for a key that this module never writes, the nearest range."""
    prefixlen, ifindex = struct.unpack_from("=II", raw)
    address = from_mapped(raw[8:])
    bits = prefixlen - _IFINDEX_BITS - (_MAPPED_BITS if address.version == 4 else 0)
    return RangeKey(ifindex, ip_network((address, max(bits, 0)), strict=False))


def _raw_entry(entry: VipEntry, slot: int) -> bytes:
    return _ENTRY.pack(
        entry.epoch,
        slot,
        entry.kind,
        entry.mode,
        layout.ENTRY_HOLD if entry.unfenced else 0,
        entry.link_mac.octets,
        entry.answer_mac.octets,
        entry.owner_mac.octets,
        to_mapped(entry.primary) if entry.primary else _NO_ADDRESS,
    )


def _raw_control(control: NodeControl) -> bytes:
    first, last = control.vips4
    return bytes(
        layout.ControlStruct(
            fence_ns=control.fence_ns,
            epoch=control.epoch,
            lease_ns=control.lease_ns,
            mode=control.mode,
            strictest=control.strictest,
            strictest6=control.strictest6,
            closed=control.closed,
            generation=control.generation,
            vips4=int(first) | (int(last) - int(first)) << 32,
            term=control.term,
            ethertype=(ctypes.c_uint8 * 2)(*control.ethertype.to_bytes(2, "big")),
        )
    )


@lru_cache(maxsize=2)  # a voucher reads the same value with every pong
def _control_from(raw: bytes) -> NodeControl | None:
    """The control value in bytes; None if it was never written, or not by this module."""
    value = layout.ControlStruct.from_buffer_copy(raw)
    if not value.generation or not {value.mode, value.strictest} <= _NODE_MODES or value.strictest6 not in _MODES:
        return None

    first = IPv4Address(value.vips4 & 0xFFFFFFFF)
    return NodeControl(
        mode=Mode(value.mode),
        strictest=Mode(value.strictest),
        strictest6=Mode(value.strictest6),
        closed=bool(value.closed),
        generation=value.generation,
        epoch=value.epoch,
        fence_ns=value.fence_ns,
        lease_ns=value.lease_ns,
        vips4=(first, IPv4Address(int(first) + (value.vips4 >> 32) & 0xFFFFFFFF)),
        term=value.term,
        ethertype=int.from_bytes(bytes(value.ethertype), "big"),
    )


def _split(raw: bytes) -> tuple[int, bytes]:
    """The slot in an entry's value, and all the rest: most entries of a node differ in the slot only."""
    at = layout.EntryStruct.slot.offset
    return struct.unpack_from("=I", raw, at)[0], raw[:at] + bytes(4) + raw[at + 4 :]


@lru_cache(maxsize=1024)
def _entry_from(raw: bytes) -> VipEntry | None:
    """The entry in a value; None for what no table writes."""
    value = layout.EntryStruct.from_buffer_copy(raw)
    if value.kind not in _KINDS or value.mode not in _MODES:
        return None
    primary = bytes(value.primary)
    return VipEntry(
        kind=Kind(value.kind),
        mode=Mode(value.mode),
        unfenced=bool(value.flags & layout.ENTRY_HOLD),
        epoch=value.epoch,
        link_mac=MacAddress(bytes(value.link_mac)),
        answer_mac=MacAddress(bytes(value.answer_mac)),
        owner_mac=MacAddress(bytes(value.owner_mac)),
        primary=from_mapped(primary) if primary != _NO_ADDRESS else None,
    )
