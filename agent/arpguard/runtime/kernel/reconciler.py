"""The one writer of entries, ranges and control: makes the kernel have what is asked for, and keeps it so.

Configuration, surroundings and elections ask.

Every pass reads back what the kernel has, mends what others changed (drift), and writes the difference.
Entries come before the programs that read them, and programs are replaced through their links: no frame is ever
judged by half a configuration.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from arpguard.addresses import Address, MacAddress, address_order
from arpguard.config.model import AgentConfig
from arpguard.core.announcing import AnnouncementSchedule
from arpguard.core.choosing import Choice, choose_links
from arpguard.core.closing import NOTHING, Closing, closed_ranges, strictest_of_ranges, with_ranges
from arpguard.core.desired import (
    NO_VIP,
    NOBODY,
    Primaries,
    fitting,
    plan,
    primary_addresses,
    spoken_for,
    standing_of,
    strictest6_mode,
    strictest_mode,
    vips4_of,
    wanted_entries,
)
from arpguard.dataplane.attach import Attacher
from arpguard.dataplane.maps import ControlValue, EntryTable, RangeTable, TableContent
from arpguard.errors import MapFullError
from arpguard.model import (
    Datapath,
    Decision,
    EntryKey,
    Link,
    NodeControl,
    NodeState,
    OwnerKind,
    RangeKey,
    Route,
    Standing,
    Surroundings,
    Vip,
    VipEntry,
)
from arpguard.overlay import Overlay
from arpguard.runtime.kernel.attaching import Attaching
from arpguard.runtime.kernel.latest import Latest
from arpguard.verdict import Kind, Mode, Reason

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the kernel is to be made to have.

    `vips` are of the configuration and of the cluster; one that has changed is another object. Until all that says what
    is a VIP has been read (`complete`), nothing is taken away: neither entries that nobody asks for, nor programs; and
    nothing more is closed.
    """

    config: AgentConfig
    generation: int
    vips: Mapping[Address, Vip]
    complete: bool = True
    problems: Sequence[str] = ()
    closing: Closing = NOTHING


@dataclass(frozen=True, slots=True)
class _Scene:
    """What the last pass was about: entries are a function of it, and of how elected VIPs stand.

    `routes`: those that say which of the guarded links a VIP is at home on; a node with many pods has many others.
    """

    asked: Asked
    surroundings: Surroundings
    choice: Choice
    primaries: Primaries
    routes: tuple[Route, ...]

    @classmethod
    def of(cls, asked: Asked, surroundings: Surroundings, choice: Choice) -> "_Scene":
        here = (own.address for link in choice.links for own in link.addresses)
        no_primaries = {*asked.vips, *filter(asked.closing.is_closed, here)}
        guarded = {link.ifindex for link in choice.links}
        routes = tuple(route for route in surroundings.routes if route.ifindex in guarded)
        return cls(asked, surroundings, choice, primary_addresses(choice.links, no_primaries), routes)

    def differs_in_vips_only(self, other: "_Scene") -> bool:
        """Whether the entries of VIPs that are the same object in both are equal."""
        return (
            self.asked.config is other.asked.config
            and self.asked.complete is other.asked.complete
            and self.choice.links == other.choice.links
            and self.primaries == other.primaries
            and self.routes == other.routes
        )

    def changes(self, after: Mapping[Address, Vip]) -> dict[Address, Vip | None]:
        """The VIPs that are others, or gone, in what is asked later."""
        before = self.asked.vips
        changed: dict[Address, Vip | None] = {
            address: vip for address, vip in after.items() if before.get(address) is not vip
        }
        return changed | dict.fromkeys(before.keys() - after.keys())


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
    ) -> None:
        self._node = node
        self._entries = entries
        self._ranges = ranges
        self._control = control
        self._attaching = Attaching(attacher)
        self._schedule = schedule
        self._has_programmed = False
        self._is_settled = False  # whether the kernel took all that the last pass wanted
        self._ifindexes: set[int] = set()  # of links that entries were found on
        self._closed: dict[RangeKey, VipEntry] | None = None
        # With thousands of VIPs these cost more than all the rest of a pass that finds nothing to do.
        self._spoken_for_by = Latest(spoken_for)
        self._strictest_mode = Latest(strictest_mode)
        self._strictest6_mode = Latest(strictest6_mode)
        self._vips4_of = Latest(vips4_of)
        self._spoken_for: Overlay[EntryKey, MacAddress] = Overlay()
        self._standings: dict[Address, Standing] = {}
        self._fence = (0, 0, 0)
        self._scene: _Scene | None = None
        self._logged: tuple[str, ...] = ()
        self.state = NodeState()

    async def apply(self, asked: Asked, surroundings: Surroundings, now_ns: int) -> None:
        """One pass. Raises nothing for what can be tried again: that is a problem in `state`."""
        config = asked.config
        choice = self._choose(asked, surroundings, asked.vips, self._to_keep(asked))
        problems = [*asked.problems, *asked.closing.problems, *choice.problems]
        left = {} if self._has_programmed else self._left_behind()
        if config.mode is Mode.ENFORCE:
            self._enforce_first()
        self._program(_Scene.of(asked, surroundings, choice), problems)
        self._close(problems)
        self._set_control(self._wanted_control(config.mode, asked.generation))
        problems += await self._attach(config.datapath, choice.links, surroundings)
        risen = self._risen(choice.links)
        self._publish(choice.links, problems)
        for key in self._spoken_for.whole if risen else ():
            if key.ifindex in risen:
                self._schedule.link_up(key, now_ns)
        before, after = left or self._spoken_for.whole, self._spoken_for_by(self.state.entries, config.mode)
        if before is not after:
            self._spoken_for = Overlay(after)
            self._announce_changes(before, after, now_ns)

    def _choose(
        self, asked: Asked, surroundings: Surroundings, vips: Iterable[Address], guarded: Iterable[int]
    ) -> Choice:
        return choose_links(asked.config.interfaces, surroundings, vips, guarded, asked.closing.closed)

    def _wanted_ranges(self, scene: _Scene) -> dict[RangeKey, VipEntry]:
        """What the kernel is to have closed; before all was read, also the Node's addresses, no more than it has."""
        wanted = closed_ranges(scene.asked.closing, scene.choice.links, scene.primaries)
        if scene.asked.complete:
            return wanted
        return {**self.state.ranges, **{key: entry for key, entry in wanted.items() if entry.kind is Kind.OPEN}}

    def _close(self, problems: list[str]) -> None:
        """Has the kernel close the ranges that the last scene asks for; exceptions come first, and go last."""
        actual = self._ranges.read()
        if self._closed is None:
            self.state.ranges = actual.entries
        elif actual.entries != self._closed or actual.strangers:
            self.state.drift.entries += 1
            log.warning("drift: closed ranges were changed behind the agent and are restored")
        wanted = self._wanted_ranges(self._scene) if self._scene is not None else actual.entries
        delta = plan(wanted, actual.entries)
        if delta or actual.strangers:
            self._widen_control({**self.state.entries}, {**actual.entries, **wanted})
            in_order = sorted(delta.writes.items(), key=lambda item: item[1].kind, reverse=True)
            try:
                self._ranges.write(dict(in_order))
            except MapFullError as error:
                problems.append(f"ranges: not all of them are closed: {error}; close fewer and larger ones")
            gone = [*delta.deletes, *(key for key in actual.strangers if key not in wanted)]
            exceptions = {key for key, entry in actual.entries.items() if entry.kind is Kind.OPEN}
            self._ranges.delete(sorted(gone, key=exceptions.__contains__))
            actual = self._ranges.read()
        self._closed = self.state.ranges = actual.entries

    def _risen(self, links: Iterable[Link]) -> set[int]:
        """The links, by index, that are up and were down, if only for a moment, since the last pass."""
        before = {link.ifindex: link for link in self.state.links}
        known = ((link, before[link.ifindex]) for link in links if link.ifindex in before)
        return {link.ifindex for link, last in known if link.up and (not last.up or link.losses != last.losses)}

    def update(self, asked: Asked, surroundings: Surroundings, now_ns: int) -> bool:
        """A small pass, for VIPs that have changed since the last one; False when more has, and `apply` has to do it.

        With thousands of VIPs it takes a tenth of the time. What others changed meanwhile is left to `apply`.
        """
        last = self._scene
        if last is None or not self._is_settled or self.state.control is None:
            return False
        changed = last.changes(asked.vips)
        guarded = [link.ifindex for link in self.state.links]
        deciding = changed if surroundings is last.surroundings else asked.vips
        choice = self._choose(asked, surroundings, deciding, guarded)
        scene = _Scene.of(asked, surroundings, choice if choice.links != last.choice.links else last.choice)
        if not last.differs_in_vips_only(scene) or self._wanted_ranges(scene) != self.state.ranges:
            return False
        if not self._change(scene, changed, now_ns):
            return False
        problems = [*asked.problems, *asked.closing.problems, *last.choice.problems]
        self._publish(self.state.links, [*problems, *self._too_many()])
        return True

    def _change(self, scene: _Scene, changed: Mapping[Address, Vip | None], now_ns: int) -> bool:
        """Writes the entries of a few VIPs; False when that is not all there is to do."""
        entries, control = self.state.guarded, self.state.control
        wanted = self._entries_in(scene, (vip for vip in changed.values() if vip is not None))
        known, left_out = {key: entries.get(key) for key in wanted}, self.state.left_out
        writes = {key: entry for key, entry in wanted.items() if known[key] != entry and key not in left_out}
        added = {key: entry for key, entry in writes.items() if known[key] is None}
        links = [link.ifindex for link in scene.choice.links]
        keys = (EntryKey(ifindex, address) for address in changed for ifindex in links if scene.asked.complete)
        gone = [key for key in keys if key not in wanted and (entries.get(key) or key in left_out)]
        if control is None or strictest_mode(control.mode, writes) > control.strictest:
            return False
        if not self._has_room(len(added), len(gone)):
            return False
        if added or any(before is not None and before.mode != wanted[key].mode for key, before in known.items()):
            self._widen_control(writes)
        self._entries.delete(gone)
        try:
            self._entries.write(writes)
        except MapFullError:
            return False
        self._scene = scene
        entries.change(writes, gone)
        self._speak_of(writes, gone, control.mode, now_ns)
        return True

    def _has_room(self, added: int, gone: int) -> bool:
        """Whether entries come and go without a choice of those that fit."""
        if self.state.left_out:
            return not added and not gone
        return not added or len(self.state.entries) + added - gone <= self._entries.capacity

    def _speak_of(self, writes: Mapping[EntryKey, VipEntry], gone: Iterable[EntryKey], mode: Mode, now_ns: int) -> None:
        known = ((key, self._spoken_for.get(key)) for key in (*writes, *gone))
        before, after = {key: mac for key, mac in known if mac is not None}, spoken_for(writes, mode)
        if before != after:
            self._spoken_for.change(after, before.keys() - after.keys())
            self._announce_changes(before, after, now_ns)

    def _entries_in(self, scene: _Scene, vips: Iterable[Vip]) -> dict[EntryKey, VipEntry]:
        standings, node = self._standings, self._node
        return wanted_entries(
            vips,
            scene.choice.links,
            scene.routes,
            scene.primaries,
            lambda vip: standing_of(vip, node, standings),
        )

    def wait(self, problems: Sequence[str]) -> None:
        """A pass that changes nothing, for what is to be done is not known yet."""
        self._publish(self.state.links, [*problems, *self._too_many()])

    def _to_keep(self, asked: Asked) -> list[int]:
        """Links, by index, that stay guarded whatever else is chosen."""
        same = self.state.control is not None and self.state.control.generation == asked.generation
        guarded = [link.ifindex for link in self.state.links] if same else []
        return guarded if asked.complete else [*guarded, *self._attaching.left_behind]

    @property
    def knows_less(self) -> bool:
        """Whether programs are attached that were told what these maps have not been: those of another build."""
        return self._control.read() is None and bool(self._attaching.left_behind)

    # ---- elected VIPs ----

    def adopt(self) -> tuple[NodeControl | None, dict[Address, Standing]]:
        """What an agent before this one left: what the kernel was told of the node, and how elected VIPs stood."""
        control = self._control.read()
        if control is None:
            return None, {}
        self._fence = control.epoch, control.fence_ns, control.lease_ns
        owned_last = sorted(self._entries.read().entries.items(), key=lambda item: item[1].kind is Kind.OWNED)
        self._standings = {
            key.vip: Standing(entry.kind, entry.epoch, entry.owner_mac)
            for key, entry in owned_last
            if entry.epoch or entry.kind is not Kind.OWNED
        }
        return control, dict(self._standings)

    def fence(self, epoch: int, fence_ns: int, lease_ns: int) -> None:
        """Tells the kernel the node's epoch, and until when entries of it may be answered for: one value."""
        self._fence = epoch, fence_ns, lease_ns
        control = self.state.control or self._control.read()
        if control is not None:
            self._set_control(replace(control, epoch=epoch, fence_ns=fence_ns, lease_ns=lease_ns))

    def elect(self, standings: Mapping[Address, Standing], now_ns: int) -> bool:
        """Tells the kernel at once how some elected VIPs stand now.

        False when that takes a pass; what this node has no more is given up at once all the same.
        """
        for vip, standing in standings.items():
            if standing == NOBODY:
                self._standings.pop(vip, None)
            else:
                self._standings[vip] = standing
        scene = self._scene
        if scene is None:
            self._withdraw(self._entries.read().entries.items(), standings)
            return True
        vips = {address: scene.asked.vips.get(address) for address in standings}
        elected = {address: vip for address, vip in vips.items() if vip is not None and _is_elected(vip)}
        is_done = not elected or (self._is_settled and self._change(scene, elected, now_ns))
        if not is_done:
            self._is_settled = False  # or a pass that finds the same VIPs in the same surroundings does nothing
        if not (is_done and scene.asked.complete):
            given_up = self._withdraw(self._entries_of(standings), standings)
            if given_up:
                self.state.guarded.change(given_up)
                self._is_settled = False
        return is_done

    def _entries_of(self, vips: Iterable[Address]) -> Iterator[tuple[EntryKey, VipEntry]]:
        """What the kernel has of a few VIPs."""
        for vip in vips:
            for ifindex in self._ifindexes:
                key = EntryKey(ifindex, vip)
                entry = self.state.guarded.get(key)
                if entry is not None:
                    yield key, entry

    def _withdraw(
        self, entries: Iterable[tuple[EntryKey, VipEntry]], standings: Mapping[Address, Standing]
    ) -> dict[EntryKey, VipEntry]:
        """Gives up what this node has no more: also where nobody has asked for it yet, and where there is no room."""
        given_up = {
            key: replace(entry, kind=standings[key.vip].kind, epoch=0, hold=False)
            for key, entry in entries
            if key.vip in standings and standings[key.vip].kind is not Kind.OWNED
            if entry.kind is Kind.OWNED and entry.epoch
        }
        if given_up:
            self._entries.write(given_up)
        return given_up

    @property
    def entries(self) -> Mapping[EntryKey, VipEntry]:
        """What the kernel has; before the first pass, what an agent before this one left."""
        return self.state.entries if self._scene is not None else self._entries.read().entries

    async def keep_attached(self, datapath: Datapath, surroundings: Surroundings) -> None:
        """The cheap part of a pass: programs and control as the last one left them, however large the map is."""
        if self._scene is None:
            return  # no pass yet: what an agent before this one attached stays
        if self.state.control is not None:
            self._set_control(self.state.control)
        await self._attach(datapath, self.state.links, surroundings)
        self.state.attachments = self._attaching.attachments

    def conflict(self, decision: Decision, now_ns: int) -> bool:
        """A foreign claim came in; whether it is to be answered by an announcement (RFC 5227 2.4)."""
        mine = self._spoken_for.get(decision.key) is not None and decision.mode is Mode.ENFORCE
        return decision.reason is Reason.CONFLICT and mine and self._schedule.conflict(decision.key, now_ns)

    def announceable(self, key: EntryKey) -> tuple[Link, MacAddress] | None:
        """The link and MAC to announce a VIP with; None when this node may not speak for it now."""
        mac = self._spoken_for.get(key)
        link = next((link for link in self.state.links if link.ifindex == key.ifindex), None)
        return (link, mac) if mac is not None and link is not None and link.up else None

    def _left_behind(self) -> dict[EntryKey, MacAddress]:
        """What the kernel was told to answer before this agent started: that needs no announcement."""
        control = self._control.read()
        return spoken_for(self._entries.read().entries, control.mode) if control else {}

    def _program(self, scene: _Scene, problems: list[str]) -> None:
        actual = self._entries.read()
        drifted = self._note_drift(actual)
        last, self._scene = self._scene, scene
        if not drifted and self._is_settled and last is not None:
            same_vips = last.asked.vips is scene.asked.vips or not last.changes(scene.asked.vips)
            if same_vips and last.differs_in_vips_only(scene):
                problems.extend(self._too_many())
                return
        asked = self._entries_in(scene, scene.asked.vips.values())
        if not scene.asked.complete:
            asked = {**actual.entries, **asked}
        wanted = fitting(asked, actual.entries, self._entries.capacity)
        self.state.left_out = frozenset(asked.keys() - wanted.keys()) if wanted is not asked else frozenset()
        problems.extend(self._too_many())
        delta = plan(wanted, actual.entries)
        self._widen_control({**actual.entries, **wanted})
        self._entries.delete([*delta.deletes, *(key for key in actual.strangers if key not in wanted)])
        try:
            # What is given up before what is taken: a VIP that moves is never owned on two links.
            self._entries.write(dict(sorted(delta.writes.items(), key=lambda item: item[1].kind is Kind.OWNED)))
        except MapFullError as error:
            problems.append(str(error))
        found = self._entries.read().entries if delta else actual.entries
        if found != self.state.entries:
            self.state.entries = found
        self._ifindexes = {key.ifindex for key in found} | {link.ifindex for link in scene.choice.links}
        self._has_programmed, self._is_settled = True, found == wanted

    def _too_many(self) -> Iterator[str]:
        """What is to be said while there are entries that do not fit."""
        left_out = self.state.left_out
        if left_out:
            room, needed = self._entries.capacity, self._entries.capacity + len(left_out)
            vips = sorted({key.vip for key in left_out}, key=address_order)
            yield (
                f"the entries map is full: {len(left_out)} of {needed} VIP entries do not fit into {room}; "
                f"not guarded: {some(vips)}; raise bpf.max_entries to {needed} or more and restart the agent, "
                "or guard fewer VIPs or links"
            )

    def _note_drift(self, actual: TableContent[EntryKey]) -> bool:
        """Whether the kernel has something else than it was left with; that is counted, unless nothing was left yet."""
        if not self._has_programmed:
            return True
        if actual.entries == self.state.entries and not actual.strangers:
            return False
        delta = plan(self.state.entries, actual.entries)
        keys = {*delta.writes, *delta.deletes, *actual.strangers}
        changed = [f"{key.vip} on interface {key.ifindex}" for key in sorted(keys, key=lambda key: key.order)]
        self.state.drift.entries += len(changed)
        log.warning(
            "drift: %d entries were changed behind the agent and are restored: %s",
            len(changed),
            some(changed),
        )
        return True

    def _announce_changes(
        self, before: Mapping[EntryKey, MacAddress], after: Mapping[EntryKey, MacAddress], now_ns: int
    ) -> None:
        for key, mac in after.items():
            if before.get(key) != mac:
                self._schedule.take_over(key, now_ns)
        lost = before.keys() - after.keys()
        for key in lost:
            self._schedule.give_up(key)
        self.state.ownership_changes += len(lost) + len(after.keys() - before.keys())

    def _wanted_control(self, mode: Mode, generation: int) -> NodeControl:
        entries = self.state.entries
        epoch, fence_ns, lease_ns = self._fence
        return NodeControl(
            mode=mode,
            generation=generation,
            strictest=self._strictest_mode(mode, entries),
            strictest6=max(self._strictest6_mode(mode, entries), strictest_of_ranges(mode, self.state.ranges)),
            closed=bool(self.state.ranges),
            epoch=epoch,
            fence_ns=fence_ns,
            lease_ns=lease_ns,
            vips4=with_ranges(self._vips4_of(entries), self.state.ranges),
        )

    def _widen_control(
        self, entries: Mapping[EntryKey, VipEntry], ranges: Mapping[RangeKey, VipEntry] | None = None
    ) -> None:
        """Before entries or ranges are added: the kernel looks up no address but those that it was told of."""
        control = self._control.read()
        if control is None:
            return
        strictest6 = max(strictest6_mode(control.mode, entries), strictest_of_ranges(control.mode, ranges or {}))
        widened = replace(
            control, strictest6=max(control.strictest6, strictest6), closed=control.closed or bool(ranges)
        )
        first, last = with_ranges(vips4_of(entries), ranges or {})
        if first != NO_VIP and not control.vips4[0] <= first <= last <= control.vips4[1]:
            widened = replace(widened, vips4=(min(first, control.vips4[0]), max(last, control.vips4[1])))
        if widened != control:
            self._set_control(widened)

    def _enforce_first(self) -> None:
        """Entries that lose a mode of their own must not find the node still observing."""
        control = self._control.read()
        if control is not None and control.mode is not Mode.ENFORCE:
            strictest6 = Mode.ENFORCE if control.strictest6 else Mode.INHERIT
            self._set_control(replace(control, mode=Mode.ENFORCE, strictest=Mode.ENFORCE, strictest6=strictest6))

    def _set_control(self, wanted: NodeControl) -> None:
        actual = self._control.read()
        if self.state.control is not None and actual != self.state.control:
            self.state.drift.control += 1
            log.warning("drift: the control value was changed behind the agent and is restored")
        if actual != wanted:
            self._control.write(wanted)
        self.state.control = wanted

    async def _attach(self, datapath: Datapath, links: Iterable[Link], surroundings: Surroundings) -> list[str]:
        problems = await self._attaching.ensure(datapath, links, surroundings)
        self.state.drift.programs = self._attaching.reattached
        return problems

    @property
    def alone(self) -> bool:
        """Whether no program of another build is left."""
        return self._attaching.alone

    def log_problems(self) -> None:
        """Says once what is not as it was asked for, and once when it is again."""
        before, now = set(self._logged), set(self.state.problems)
        for problem in self.state.problems:
            if problem not in before:
                log.warning("problem: %s", problem)
        for problem in self._logged:
            if problem not in now:
                log.info("solved: %s", problem)
        self._logged = self.state.problems

    def _publish(self, links: tuple[Link, ...], problems: list[str]) -> None:
        self.state.links = links
        self.state.attachments = self._attaching.attachments
        self.state.problems = tuple(problems)


def _is_elected(vip: Vip) -> bool:
    return vip.owner.kind is OwnerKind.ELECT


def some(items: Sequence[object], limit: int = 5) -> str:
    """The first items, and how many more there are."""
    return ", ".join(map(str, items[:limit])) + (f" and {len(items) - limit} more" if len(items) > limit else "")
