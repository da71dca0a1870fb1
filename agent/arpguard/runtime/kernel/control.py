"""The control value that the programs read for every frame: the node's mode, its fence, and bounds of its entries."""

import logging
from collections.abc import Mapping
from dataclasses import replace

from arpguard.core.closing import strictest_of_ranges, with_ranges
from arpguard.core.desired import NO_VIP, strictest6_mode, strictest_mode, vips4_of
from arpguard.dataplane.maps import ControlValue, VouchingTable, write_term
from arpguard.model import EntryKey, LinkTerm, NodeControl, NodeState, RangeKey, VipEntry
from arpguard.runtime.kernel.latest import Latest
from arpguard.verdict import Mode

log = logging.getLogger(__name__)


class Control:
    """Keeps the kernel's control value right for its entries; `state.control` is the value written last."""

    def __init__(self, value: ControlValue, state: NodeState) -> None:
        self._value = value
        self._state = state
        self._fence = (0, 0, 0)
        self._term = (0, 0)  # and the EtherType of its frames
        # With thousands of VIPs these cost more than the rest of a pass that finds nothing to do.
        self._strictest_mode = Latest(strictest_mode)
        self._strictest6_mode = Latest(strictest6_mode)
        self._vips4_of = Latest(vips4_of)

    def read(self) -> NodeControl | None:
        """What the kernel has; None if no agent has written it yet."""
        return self._value.read()

    def adopt(self) -> NodeControl | None:
        """Keeps the fence and the term that the last agent set."""
        control = self._value.read()
        if control is not None:
            self._fence = control.epoch, control.fence_ns, control.lease_ns
            self._term = control.term, control.ethertype
        return control

    def fence(self, epoch: int, fence_ns: int, lease_ns: int) -> None:
        """Writes the node's epoch, and until when the kernel may answer for entries of it, as one value."""
        self._fence = epoch, fence_ns, lease_ns
        control = self._state.control or self._value.read()
        if control is not None:
            self._set(replace(control, epoch=epoch, fence_ns=fence_ns, lease_ns=lease_ns))

    def take_term(self, term: int, ethertype: int, table: VouchingTable, links: Mapping[int, LinkTerm]) -> None:
        """Writes the term in which grants bind this node (0: none), and the terms of links, in the right order.

        Raises DataPlaneError when not all of it was written; until it is, the control value keeps the term that it has.
        """
        control = self._state.control or self._value.read()
        if control is None:
            self._term = term, ethertype
            return

        self._note_drift(self._value.read())
        try:
            write_term(self._value, table, replace(control, term=term, ethertype=ethertype), links)
        finally:
            self._state.control = control = self._value.read() or control
            self._term = control.term, control.ethertype

    def enforce_first(self) -> None:
        """Enforces before entries lose a mode of their own: they must not find the node still observing."""
        control = self._value.read()
        if control is not None and control.mode is not Mode.ENFORCE:
            strictest6 = Mode.ENFORCE if control.strictest6 else Mode.INHERIT
            self._set(replace(control, mode=Mode.ENFORCE, strictest=Mode.ENFORCE, strictest6=strictest6))

    def widen(self, entries: Mapping[EntryKey, VipEntry], ranges: Mapping[RangeKey, VipEntry]) -> None:
        """To be called before these are written: the programs look up only addresses within the bounds in control."""
        control = self._value.read() if entries or ranges else None
        if control is None:
            return

        strictest6 = max(strictest6_mode(control.mode, entries), strictest_of_ranges(control.mode, ranges))
        widened = replace(
            control, strictest6=max(control.strictest6, strictest6), closed=control.closed or bool(ranges)
        )
        first, last = with_ranges(vips4_of(entries), ranges)
        if first != NO_VIP and not control.vips4[0] <= first <= last <= control.vips4[1]:
            widened = replace(widened, vips4=(min(first, control.vips4[0]), max(last, control.vips4[1])))
        if widened != control:
            self._set(widened)

    def follow(self, mode: Mode, generation: int) -> None:
        """To be called once everything is written: control then has exactly what entries and ranges need."""
        entries, ranges = self._state.entries, self._state.ranges
        epoch, fence_ns, lease_ns = self._fence
        term, ethertype = self._term

        self._set(
            NodeControl(
                mode=mode,
                generation=generation,
                strictest=self._strictest_mode(mode, entries),
                strictest6=max(self._strictest6_mode(mode, entries), strictest_of_ranges(mode, ranges)),
                closed=bool(ranges),
                epoch=epoch,
                fence_ns=fence_ns,
                lease_ns=lease_ns,
                vips4=with_ranges(self._vips4_of(entries), ranges),
                term=term,
                ethertype=ethertype,
            )
        )

    def keep(self) -> None:
        """Repairs what other programs have changed since."""
        if self._state.control is not None:
            self._set(self._state.control)

    def _set(self, wanted: NodeControl) -> None:
        actual = self._value.read()
        self._note_drift(actual)
        if actual != wanted:
            self._value.write(wanted)
        self._state.control = wanted

    def _note_drift(self, actual: NodeControl | None) -> None:
        if self._state.control is not None and actual != self._state.control:
            self._state.drift.control += 1
            log.warning("drift: another program changed the node's mode, epoch or fence in the kernel; restored them")
