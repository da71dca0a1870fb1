"""Brings the kernel in line with configuration, surroundings and elections, and keeps it so.

Each part of it is the one writer of something: `table` of the maps of entries and of ranges, `control` of the control
value, `vouching` of the voucher's term, `attaching` of programs, `speaking` of what there is to announce. The order
between them is decided here.

A whole pass (`apply`) reads back what others have changed in the kernel (drift), repairs it, and writes the difference.
A small one (`update`) and the outcome of elections (`take_standings`) only write what has changed since.
Entries come before the programs that read them, and programs are replaced through their links: no frame is ever
judged by half a configuration.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from itertools import product

from arpguard.addresses import Address, address_order
from arpguard.core.announcing import AnnouncementSchedule
from arpguard.core.basis import Asked, Basis
from arpguard.core.bounding import some
from arpguard.core.choosing import Choice, choose_links
from arpguard.core.desired import NOBODY, fitting, strictest_mode
from arpguard.core.tenures import Tenures
from arpguard.dataplane.attach import Attacher
from arpguard.dataplane.maps import ControlValue, EntryTable, RangeTable
from arpguard.model import (
    Datapath,
    EntryKey,
    Link,
    NodeControl,
    NodeState,
    RangeKey,
    Standing,
    Surroundings,
    Vip,
    VipEntry,
)
from arpguard.runtime.inthread import in_thread
from arpguard.runtime.kernel.attaching import Attaching
from arpguard.runtime.kernel.control import Control
from arpguard.runtime.kernel.speaking import Speaking
from arpguard.runtime.kernel.table import TrackedTable
from arpguard.runtime.kernel.vouching import TermWriter, VouchingMaps
from arpguard.verdict import Kind, Mode, Reason

log = logging.getLogger(__name__)


class SmallPass(Enum):
    """Whether a small pass has written the changes, or they need a whole pass."""

    DONE = "done"
    NEEDS_WHOLE = "needs a whole pass"


class Reconciler:
    """Applies configurations, and the outcome of elections, to the kernel of this node."""

    def __init__(
        self,
        node: str,
        entries: EntryTable,
        ranges: RangeTable,
        control: ControlValue,
        attacher: Attacher,
        schedule: AnnouncementSchedule,
        vouching: VouchingMaps,
    ) -> None:
        self._node = node
        self._entries: TrackedTable[EntryKey] = TrackedTable(entries, room_first=True)
        self._ranges: TrackedTable[RangeKey] = TrackedTable(ranges, room_first=False)
        self.state = NodeState(guarded=self._entries.delta.kernel)
        self.tenures = Tenures()
        self._control = Control(control, self.state)
        self.vouched = TermWriter(self._control, self.state, vouching)
        self.attaching = Attaching(attacher, self.state)
        self.speaking = Speaking(schedule, self.state)
        self._ifindexes: set[int] = set()  # of links that entries were found on
        self._standings: dict[Address, Standing] = {}
        self._basis: Basis | None = None
        self._found: tuple[str, ...] = ()
        self._logged: tuple[str, ...] = ()

    # ---- passes ----

    async def apply(self, asked: Asked, surroundings: Surroundings, now_ns: int) -> None:
        """One pass. Raises nothing for what can be tried again: that is a problem in `state`."""
        config, is_first = asked.config, self._basis is None
        choice = self._choose(asked, surroundings, asked.vips, self._to_keep(asked))
        basis = Basis.of(asked, surroundings, choice)
        problems = basis.problems

        self._look()
        if config.mode is Mode.ENFORCE:
            self._control.enforce_first()
        self._program(basis, problems)
        self._close(basis, problems)
        self._control.follow(config.mode, asked.generation)
        await self._attach(config.datapath, choice.links, surroundings, strays=asked.complete)
        self.vouched.follow(choice.links)

        risen = set() if is_first else self._risen(choice.links)
        self._publish(choice.links, problems)
        self.tenures.follow(self.state.entries, now_ns)
        self.speaking.risen(risen, now_ns)
        self.speaking.follow(config.mode, now_ns)

    def update(self, asked: Asked, surroundings: Surroundings, now_ns: int) -> SmallPass:
        """A small pass, for VIPs that have changed since the last one; if more has, `apply` has to do it.

        With thousands of VIPs it takes a tenth of the time. What others changed meanwhile is left to `apply`.
        """
        last = self._basis
        if last is None or not self._entries.settled or self.state.control is None:
            return SmallPass.NEEDS_WHOLE

        changed = last.changes(asked.vips)
        guarded = [link.ifindex for link in self.state.links]
        deciding = changed if surroundings is last.surroundings else asked.vips
        choice = self._choose(asked, surroundings, deciding, guarded)
        basis = Basis.of(asked, surroundings, choice if choice.links != last.choice.links else last.choice)
        if not last.differs_in_vips_only(basis) or self._wanted_ranges(basis) != self.state.ranges:
            return SmallPass.NEEDS_WHOLE

        result = self._change(basis, changed, now_ns)
        if result is SmallPass.DONE:
            self._publish(self.state.links, [*basis.problems, *self._too_many()])
        return result

    def wait(self, problems: Sequence[str]) -> None:
        """Makes a pass that changes nothing, because it is not known yet what to do."""
        self._publish(self.state.links, [*problems, *self._too_many()])

    async def keep_attached(self, datapath: Datapath, surroundings: Surroundings) -> None:
        """The cheap part of a pass: programs and control as the last one left them, however large the map is."""
        if self._basis is None:
            return  # no pass yet: what an agent before this one attached stays
        self._control.keep()
        self.vouched.keep()
        await self._attach(datapath, self.state.links, surroundings)
        self._gather_problems()

    def is_touched(self) -> bool:
        """Whether something else has changed entries or ranges."""
        return self._entries.is_touched() or self._ranges.is_touched()

    @property
    def entries(self) -> Mapping[EntryKey, VipEntry]:
        """The kernel's entries; before the first pass, those that the previous agent left."""
        if self._basis is None:
            self._entries.look()
        return self.state.entries

    def frames(self, vips: Iterable[Address]) -> Counter[Reason]:
        """How many frames of VIPs were judged for each reason, on all links, be it enforced or only observed."""
        counts: Counter[Reason] = Counter()
        for vip, link in product(vips, self.state.links):
            tally = self._entries.tally(EntryKey(link.ifindex, vip))
            counts.update(tally.enforced)
            counts.update(tally.observed)
        return counts

    @property
    def knows_less(self) -> bool:
        """Whether attached programs use other maps, those of another build."""
        return self._control.read() is None and bool(self.attaching.left_behind)

    async def _attach(
        self, datapath: Datapath, links: Sequence[Link], surroundings: Surroundings, *, strays: bool = False
    ) -> None:
        """Elections continue meanwhile (`take_standings`). `strays`: detaches those, too."""

        async def attach() -> None:
            await self.attaching.ensure(datapath, links, surroundings)
            if strays:
                await self.attaching.detach_strays()

        await in_thread(attach)

    def _choose(
        self, asked: Asked, surroundings: Surroundings, vips: Iterable[Address], guarded: Iterable[int]
    ) -> Choice:
        return choose_links(asked.config.interfaces, surroundings, vips, guarded, asked.closing.closed)

    def _to_keep(self, asked: Asked) -> list[int]:
        """Links, by index, that stay guarded whatever else is chosen."""
        same = self.state.control is not None and self.state.control.generation == asked.generation
        guarded = [link.ifindex for link in self.state.links] if same else []
        return guarded if asked.complete else [*guarded, *self.attaching.left_behind]

    def _risen(self, links: Iterable[Link]) -> set[int]:
        """The links, by index, that are up and were down, if only for a moment, or were not guarded in the last pass.

        A VIP that the node was elected for during this pass could not be announced on a new link.
        """
        before = {link.ifindex: (link.up, link.losses) for link in self.state.links}
        return {link.ifindex for link in links if link.up and before.get(link.ifindex) != (True, link.losses)}

    # ---- entries ----

    def _look(self) -> None:
        """Reads back what the kernel has; what others changed since the last pass is counted."""
        keys = self._entries.look()
        if self._basis is None:
            control = self._control.read()
            if control is not None:
                self.speaking.begin(control.mode)
        elif keys:
            changed = [f"{key.vip} on interface {key.ifindex}" for key in sorted(keys, key=lambda key: key.order)]
            self.state.drift.entries += len(changed)
            log.warning("drift: another program changed entries; restored them: %s", some(changed))

    def _program(self, basis: Basis, problems: list[str]) -> None:
        last, self._basis = self._basis, basis
        if self._entries.settled and last is not None and last.is_like(basis):
            problems.extend(self._too_many())
            return

        desired = basis.entries(basis.asked.vips.values(), self._node, self._standings)
        if not basis.asked.complete:
            desired = {**self.state.entries, **desired}
        wanted = fitting(desired, self.state.entries, self._entries.capacity)
        self.state.left_out = frozenset(desired.keys() - wanted.keys()) if wanted is not desired else frozenset()
        problems.extend(self._too_many())

        self._entries.delta.want_all(wanted)
        refused = self._bring(self._entries.delta.new)
        if refused:
            problems.append(refused)
        self._entries.look()
        self._ifindexes = {key.ifindex for key in self.state.entries} | {link.ifindex for link in basis.choice.links}

    def _change(self, basis: Basis, changed: Mapping[Address, Vip | None], now_ns: int) -> SmallPass:
        """Writes the entries of a few VIPs, if that is all there is to do."""
        delta, control, was_settled = self._entries.delta, self.state.control, self._entries.settled
        wanted = basis.entries((vip for vip in changed.values() if vip is not None), self._node, self._standings)
        gone = basis.gone(changed, wanted)
        if self.state.left_out:
            wanted = {key: entry for key, entry in wanted.items() if key not in self.state.left_out}

        delta.want(wanted, gone)
        new = delta.new
        if control is None or not was_settled or not self._is_small(control, new, gone):
            return SmallPass.NEEDS_WHOLE

        writes, deletes = delta.writes, delta.deletes
        if self._bring(new):
            return SmallPass.NEEDS_WHOLE
        self._basis = basis
        self.speaking.change(writes, deletes, control.mode, now_ns)
        self.tenures.change(changed, dict(self._entries_of(changed)), now_ns)
        return SmallPass.DONE

    def _is_small(self, control: NodeControl, new: Mapping[EntryKey, VipEntry], gone: Iterable[EntryKey]) -> bool:
        """Whether what is pending needs no stricter node, and no choice of the entries that fit."""
        delta, left_out = self._entries.delta, self.state.left_out
        if strictest_mode(control.mode, new) > control.strictest:
            return False

        added = sum(delta.kernel.get(key) is None for key in new)
        if left_out:
            return not added and not delta.deletes and left_out.isdisjoint(gone)
        return not added or len(self.state.entries) + added - len(delta.deletes) <= self._entries.capacity

    def _bring(self, new: Mapping[EntryKey, VipEntry]) -> str:
        """Writes to the kernel what is pending, with `new` entries among it; returns why some of it failed."""
        self._control.widen(new, {})
        return self._entries.bring()

    def _too_many(self) -> Iterator[str]:
        """The problem to report while there are entries that do not fit."""
        left_out = self.state.left_out
        if left_out:
            room, needed = self._entries.capacity, self._entries.capacity + len(left_out)
            vips = sorted({key.vip for key in left_out}, key=address_order)
            yield (
                f"the entries map is full: it has room for {room} of {needed} VIP entries; "
                f"not guarded: {some(vips)}; raise bpf.max_entries to {needed} or more and restart the agent, "
                "or guard fewer VIPs or links"
            )

    # ---- ranges ----

    def _wanted_ranges(self, basis: Basis) -> dict[RangeKey, VipEntry]:
        """The ranges that the kernel should have; before everything was read, those that it has, and all exceptions."""
        if basis.asked.complete:
            return basis.ranges
        exceptions = {key: entry for key, entry in basis.ranges.items() if entry.kind is Kind.OPEN}
        return {**self._ranges.delta.desired, **exceptions}

    def _close(self, basis: Basis, problems: list[str]) -> None:
        """Makes the kernel close the configured ranges; exceptions are added first and removed last."""
        delta = self._ranges.delta
        if self._ranges.look():
            self.state.drift.entries += 1
            log.warning("drift: another program changed the closed ranges; restored them")

        delta.want_all(self._wanted_ranges(basis))
        if not self._ranges.settled:
            self._control.widen({}, delta.writes)
            refused = self._ranges.bring()
            if refused:
                problems.append(f"ranges: not all are closed: {refused}; close fewer and larger ones")
            self._ranges.look()
        self.state.ranges = delta.kernel.whole

    # ---- elected VIPs ----

    def adopt(self) -> tuple[NodeControl | None, dict[Address, Standing]]:
        """What an agent before this one left: what the kernel has about the node, and how elected VIPs stood."""
        control = self._control.adopt()
        if control is None:
            return None, {}
        self.vouched.adopt()

        owned_last = sorted(self.entries.items(), key=lambda item: item[1].kind is Kind.OWNED)
        self._standings = {
            key.vip: Standing(entry.kind, entry.epoch, entry.owner_mac)
            for key, entry in owned_last
            if entry.epoch or entry.kind is not Kind.OWNED
        }
        return control, dict(self._standings)

    def fence(self, epoch: int, fence_ns: int, lease_ns: int) -> None:
        """Tells the kernel the node's epoch, and until when entries of it may be answered for: one value."""
        self._control.fence(epoch, fence_ns, lease_ns)

    def take_standings(self, standings: Mapping[Address, Standing], now_ns: int) -> SmallPass:
        """Tells the kernel at once how some elected VIPs stand now.

        Even if that takes a whole pass, the node gives up immediately what it no longer has.
        """
        for vip, standing in standings.items():
            if standing == NOBODY:
                self._standings.pop(vip, None)
            else:
                self._standings[vip] = standing

        basis = self._basis
        if basis is None:
            self._give_up(self.entries.items(), standings, now_ns)
            return SmallPass.DONE
        elected = basis.elected(standings)
        result = self._change(basis, elected, now_ns) if elected else SmallPass.DONE
        if result is SmallPass.NEEDS_WHOLE or not basis.asked.complete:
            self._give_up(self._entries_of(standings), standings, now_ns)
        return result

    def _entries_of(self, vips: Iterable[Address]) -> Iterator[tuple[EntryKey, VipEntry]]:
        """What the kernel has of a few VIPs."""
        for vip in vips:
            for ifindex in self._ifindexes:
                key = EntryKey(ifindex, vip)
                entry = self.state.guarded.get(key)
                if entry is not None:
                    yield key, entry

    def _give_up(
        self, entries: Iterable[tuple[EntryKey, VipEntry]], standings: Mapping[Address, Standing], now_ns: int
    ) -> None:
        """Gives up what this node no longer has, even before a pass asks for it, and even where there is no room."""
        given_up = {
            key: replace(entry, kind=standings[key.vip].kind, epoch=0, unfenced=False)
            for key, entry in entries
            if entry.kind is Kind.OWNED and entry.epoch
            if key.vip in standings and standings[key.vip].kind is not Kind.OWNED
        }
        if given_up:
            self._entries.give_up(given_up)
            self.speaking.change(given_up, (), Mode.INHERIT, now_ns)
            self.tenures.change({key.vip for key in given_up}, given_up, now_ns)

    # ---- problems ----

    def log_problems(self) -> None:
        """Reports each mismatch with the configuration once, and once when it is solved."""
        before, now = set(self._logged), set(self.state.problems)
        for problem in self.state.problems:
            if problem not in before:
                log.warning("problem: %s", problem)
        for problem in self._logged:
            if problem not in now:
                log.info("solved: %s", problem)
        self._logged = self.state.problems

    def _publish(self, links: tuple[Link, ...], problems: Iterable[str]) -> None:
        self.state.links = links
        self._found = tuple(problems)
        self._gather_problems()

    def _gather_problems(self) -> None:
        """Adds what is wrong with programs and the voucher, which the agent also checks between passes."""
        self.state.problems = (*self._found, *self.attaching.problems, *filter(None, [self.vouched.problem]))
