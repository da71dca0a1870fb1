"""The guard without an agent, where entries and control are the test's; and where a guard is."""

import asyncio
from collections.abc import Mapping
from ipaddress import IPv4Address
from pathlib import Path

from arpguard.dataplane import bpffs, clsact, loader, syscall
from arpguard.dataplane.attach import Attacher, read_pins
from arpguard.dataplane.build import read_build
from arpguard.dataplane.maps import ControlValue, EntryTable, VouchingTable
from arpguard.model import EntryKey, NodeControl, VipEntry
from arpguard.verdict import Hook
from arpguard_lab.topology import Host
from support.netns.cable import Pair
from support.netns.foreign import lacks_tcx


class Guard:
    """The programs on a node's eth0 and their maps, without an agent: entries and control are the test's."""

    def __init__(self, pair: Pair, loaded: loader.Loaded, *, use_tcx: bool = True) -> None:
        self.pin_dir = pair.pin_root / "guard"
        self.ifindex = pair.ifindex()
        self._pair = pair
        self._use_tcx = use_tcx
        self.table = EntryTable(loaded.maps["entries"], loaded.maps["counters"])
        self.control = ControlValue(loaded.maps["control"])
        self.vouching = VouchingTable(loaded.maps["vouching"])
        self.grants = loaded.maps["grants"]
        self.programs = loaded.programs

    def attach(self, *hooks: Hook, programs: Mapping[str, syscall.Fd] | None = None) -> list[str]:
        """Attaches, or replaces, the programs; says how."""

        async def ensure() -> list[str]:
            attacher = Attacher(self.pin_dir, dict(programs or self.programs), use_tcx=self._use_tcx)
            return [(await attacher.ensure(self.ifindex, hook)).how for hook in hooks]

        return self._pair.node.netns.call(lambda: asyncio.run(ensure()))

    def detach(self, *hooks: Hook) -> None:
        async def go() -> None:
            attacher = Attacher(self.pin_dir, self.programs, use_tcx=self._use_tcx)
            for hook in hooks:
                await attacher.detach(self.ifindex, hook)

        self._pair.node.netns.call(lambda: asyncio.run(go()))

    def set(self, entries: Mapping[IPv4Address, VipEntry], control: NodeControl) -> None:
        wanted = {EntryKey(self.ifindex, vip): entry for vip, entry in entries.items()}
        self.table.delete(self.table.read().entries.keys() - wanted.keys())
        self.table.write(wanted)
        self.control.write(control)


def a_guard(pair: Pair, *hooks: Hook, use_tcx: bool = True) -> Guard:
    """A guard on the pair's node; it goes with the pair."""
    pin_dir = pair.pin_root / "guard"
    bpffs.prepare(pin_dir)
    guard = Guard(pair, loader.load(pin_dir, read_build()), use_tcx=use_tcx)
    guard.attach(*hooks)
    return guard


def attachments(host: Host, pin_dir: Path) -> list[tuple[int, Hook]]:
    """Where the kernel has the programs of a host's agent, by index of the link; 0: a pin is left, the link is not."""
    filters = host.netns.call(lambda: asyncio.run(clsact.find_all())) if lacks_tcx() else []
    return [*((pin.info.ifindex, pin.hook) for pin in read_pins(pin_dir)), *filters]
