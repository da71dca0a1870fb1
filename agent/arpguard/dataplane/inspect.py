"""The data plane as it is pinned, for reading: what `arpguard status` and `arpguard vips` show."""

from dataclasses import dataclass
from pathlib import Path

from arpguard.dataplane import loader, syscall
from arpguard.dataplane.attach import Pin, read_pins
from arpguard.dataplane.maps import ControlValue, EntryTable, read_totals
from arpguard.model import EntryKey, EventAccount, NodeControl, Tally, VipEntry


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything read from the kernel at about one moment."""

    control: NodeControl | None
    pins: tuple[Pin, ...]
    entries: dict[EntryKey, VipEntry]
    tallies: dict[EntryKey, Tally]
    capacity: int
    totals: Tally
    events: EventAccount


def read_snapshot(pin_dir: Path) -> Snapshot:
    """What is pinned under `pin_dir`; DataPlaneError when nothing is, or it may not be read."""
    maps = loader.open_maps(pin_dir)
    table = EntryTable(maps["entries"], maps["counters"])
    entries = table.read().entries
    totals, events = read_totals(maps["totals"])
    return Snapshot(
        control=ControlValue(maps["control"]).read(),
        pins=tuple(read_pins(pin_dir)),
        entries=entries,
        tallies={key: table.tally(key) for key in entries},
        capacity=syscall.map_info(maps["entries"]).max_entries,
        totals=totals,
        events=EventAccount(events.sent, events.limited, events.lost),
    )
