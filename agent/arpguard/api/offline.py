"""A node without its agent: the pinned objects, which keep guarding after the agent has gone."""

import asyncio
from pathlib import Path

from arpguard.core.decisions import ConflictLog, DecisionLog
from arpguard.dataplane import loader
from arpguard.dataplane.attach import read_pins
from arpguard.dataplane.maps import ControlValue, EntryTable, RangeTable
from arpguard.dataplane.netlink import read_surroundings
from arpguard.model import Attachment, NodeState
from arpguard.node import ThisNode
from arpguard.overlay import Overlay
from arpguard.verdict import Hook


def read_node(pin_dir: Path) -> ThisNode:
    """What is pinned under `pin_dir`; DataPlaneError when nothing is, or it may not be read.

    Filters attached by clsact have no pin and are not among the attachments.
    """
    surroundings = asyncio.run(read_surroundings())
    attachments = tuple(
        Attachment(pin.info.ifindex, pin.hook, "xdp" if pin.hook is Hook.XDP else "tcx", pin.info.program_id)
        for pin in read_pins(pin_dir)
        if pin.info.ifindex
    )
    guarded = {attachment.ifindex for attachment in attachments}
    programs, maps = loader.open_guard(pin_dir, {attachment.program_id for attachment in attachments})

    table, control = EntryTable(maps["entries"], maps["counters"]), ControlValue(maps["control"])
    ranges = RangeTable(maps["ranges"], maps["counters"])
    entries = dict(sorted(table.read().entries.items(), key=lambda item: item[0].order))
    told = control.read()
    return ThisNode(
        name="this node",  # what configurations call it, only the agent knows
        table=table,
        ranges=ranges,
        control=control,
        totals=maps["totals"],
        grants=maps["grants"],
        programs=programs,
        state=NodeState(
            links=tuple(link for link in surroundings.links if link.ifindex in guarded),
            attachments=attachments,
            guarded=Overlay(entries),
            ranges=ranges.read().entries,
            control=told,
            problems=() if told else ("no mode is set in the kernel yet: start the agent",),
        ),
        surroundings=surroundings,
        decisions=DecisionLog(1),
        conflicts=ConflictLog(1),
    )
