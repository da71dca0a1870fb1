"""The one owner of state: makes the kernel have what configuration and surroundings ask for, and keeps it so.

Every pass reads back what the kernel has, mends what others changed (drift), and writes the difference.
Entries come before the programs that read them, and programs are replaced through their links: no frame is ever
judged by half a configuration.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

from arpguard.addresses import MacAddress
from arpguard.config import AgentConfig
from arpguard.core.announcing import AnnouncementSchedule
from arpguard.core.choosing import Choice, choose_links
from arpguard.core.desired import plan, spoken_for, strictest_mode, vips4_of, wanted_entries
from arpguard.dataplane.attach import Attacher, runs_first
from arpguard.dataplane.device import strips_vlan_tags
from arpguard.dataplane.maps import ControlValue, EntryTable, TableContent
from arpguard.errors import AttachConflictError, DataPlaneError, MapFullError
from arpguard.model import (
    Attachment,
    Datapath,
    Decision,
    EntryKey,
    Link,
    NodeControl,
    NodeState,
    OwnerKind,
    Surroundings,
    VipEntry,
)
from arpguard.runtime.latest import Latest
from arpguard.verdict import Hook, Kind, Mode, Reason

log = logging.getLogger(__name__)


class Reconciler:
    """Applies configurations to the kernel of this node."""

    def __init__(
        self, node: str, entries: EntryTable, control: ControlValue, attacher: Attacher, schedule: AnnouncementSchedule
    ) -> None:
        self._node = node
        self._entries = entries
        self._control = control
        self._attacher = attacher
        self._schedule = schedule
        self._programmed: dict[EntryKey, VipEntry] | None = None
        self._settled: dict[EntryKey, VipEntry] | None = None
        # With thousands of VIPs these cost more than all the rest of a pass that finds nothing to do.
        self._wanted_entries = Latest(wanted_entries)
        self._spoken_for_by = Latest(spoken_for)
        self._strictest_mode = Latest(strictest_mode)
        self._vips4_of = Latest(vips4_of)
        self._spoken_for: dict[EntryKey, MacAddress] = {}
        self._attached: dict[tuple[int, Hook], Attachment] = {}
        self._logged: tuple[str, ...] = ()
        self.state = NodeState()

    async def apply(
        self,
        config: AgentConfig,
        generation: int,
        surroundings: Surroundings,
        now_ns: int,
        known_problems: Sequence[str] = (),
    ) -> None:
        """One pass. Raises nothing for what can be tried again: that is a problem in `state`."""
        same = self.state.control is not None and self.state.control.generation == generation
        guarded = [link.ifindex for link in self.state.links] if same else []
        choice = choose_links(config.interfaces, surroundings, [vip.address for vip in config.vips], guarded)
        problems = [*known_problems, *choice.problems, *_unfit_vips(config)]
        before = self._spoken_for_so_far()
        if config.mode is Mode.ENFORCE:
            self._enforce_first()
        self._program(config, choice, surroundings, problems)
        entries = self.state.entries
        strictest, vips4 = self._strictest_mode(config.mode, entries), self._vips4_of(entries)
        self._set_control(NodeControl(mode=config.mode, generation=generation, strictest=strictest, vips4=vips4))
        await self._attach(config.datapath, choice.links, surroundings, problems)
        self._publish(choice.links, problems)
        self._spoken_for = self._spoken_for_by(entries, config.mode)
        self._schedule_announcements(before, now_ns)

    async def keep_attached(self, datapath: Datapath, surroundings: Surroundings) -> None:
        """The cheap part of a pass: programs and control as the last one left them, however large the map is."""
        if self.state.control is not None:
            self._set_control(self.state.control)
        await self._attach(datapath, self.state.links, surroundings, [])
        self.state.attachments = tuple(self._attached.values())

    def conflict(self, decision: Decision, now_ns: int) -> bool:
        """A foreign claim came in; whether it is to be answered by an announcement (RFC 5227 2.4)."""
        mine = decision.key in self._spoken_for and decision.mode is Mode.ENFORCE
        return decision.reason is Reason.CONFLICT and mine and self._schedule.conflict(decision.key, now_ns)

    def announceable(self, key: EntryKey) -> tuple[Link, MacAddress] | None:
        """The link and MAC to announce a VIP with; None when this node may not speak for it now."""
        mac = self._spoken_for.get(key)
        link = next((link for link in self.state.links if link.ifindex == key.ifindex), None)
        return (link, mac) if mac is not None and link is not None and link.up else None

    def _spoken_for_so_far(self) -> dict[EntryKey, MacAddress]:
        """What this node announced before this pass; after a restart, what the kernel was told to answer."""
        if self._programmed is not None:
            return self._spoken_for
        control = self._control.read()
        return spoken_for(self._entries.read().entries, control.mode) if control else {}

    def _program(self, config: AgentConfig, choice: Choice, surroundings: Surroundings, problems: list[str]) -> None:
        actual = self._entries.read()
        drifted = self._note_drift(actual)
        wanted = self._wanted_entries(config.vips, choice.links, surroundings.routes, self._node)
        if wanted is self._settled and not drifted:
            return
        delta = plan(wanted, actual.entries)
        self._widen_control([*wanted, *actual.entries])
        self._entries.delete([*delta.deletes, *(key for key in actual.strangers if key not in wanted)])
        try:
            # What is given up before what is taken: a VIP that moves is never owned on two links.
            self._entries.write(dict(sorted(delta.writes.items(), key=lambda item: item[1].kind is Kind.OWNED)))
        except MapFullError as error:
            problems.append(str(error))
        found = self._entries.read().entries if delta else actual.entries
        self._publish_entries(found)
        self._settled = wanted if found == wanted else None

    def _publish_entries(self, found: dict[EntryKey, VipEntry]) -> None:
        """Keeps them in order: whoever lists them pages through."""
        if self._programmed is None or found != self._programmed:
            self.state.entries = dict(sorted(found.items(), key=lambda item: item[0].order))
        self._programmed = self.state.entries

    def _note_drift(self, actual: TableContent) -> bool:
        """Whether the kernel has something else than it was left with; that is counted, unless nothing was left yet."""
        if actual.entries == self._programmed and not actual.strangers:
            return False
        if self._programmed is None:
            return True
        delta = plan(self._programmed, actual.entries)
        keys = {*delta.writes, *delta.deletes, *actual.strangers}
        changed = [f"{key.vip} on interface {key.ifindex}" for key in sorted(keys)]
        self.state.drift.entries += len(changed)
        log.warning(
            "drift: %d entries were changed behind the agent and are restored: %s",
            len(changed),
            _some(changed),
        )
        return True

    def _schedule_announcements(self, before: dict[EntryKey, MacAddress], now_ns: int) -> None:
        if before is self._spoken_for:
            return
        for key, mac in self._spoken_for.items():
            if before.get(key) != mac:
                self._schedule.take_over(key, now_ns)
        lost = before.keys() - self._spoken_for.keys()
        for key in lost:
            self._schedule.give_up(key)
        self.state.ownership_changes += len(lost) + len(self._spoken_for.keys() - before.keys())

    def _widen_control(self, keys: Iterable[EntryKey]) -> None:
        """Before entries are added: the kernel looks up no address outside the range it was told."""
        control = self._control.read()
        first, last = vips4_of(keys)
        if control is not None and not control.vips4[0] <= first <= last <= control.vips4[1]:
            widest = min(first, control.vips4[0]), max(last, control.vips4[1])
            self._set_control(replace(control, vips4=widest))

    def _enforce_first(self) -> None:
        """Entries that lose a mode of their own must not find the node still observing."""
        control = self._control.read()
        if control is not None and control.mode is not Mode.ENFORCE:
            self._set_control(replace(control, mode=Mode.ENFORCE, strictest=Mode.ENFORCE))

    def _set_control(self, wanted: NodeControl) -> None:
        actual = self._control.read()
        if self.state.control is not None and actual != self.state.control:
            self.state.drift.control += 1
            log.warning("drift: the control value was changed behind the agent and is restored")
        if actual != wanted:
            self._control.write(wanted)
        self.state.control = wanted

    async def _attach(
        self, datapath: Datapath, links: Iterable[Link], surroundings: Surroundings, problems: list[str]
    ) -> None:
        attached: dict[tuple[int, Hook], Attachment] = {}
        failed: set[int] = set()
        for link in links:
            try:
                for attachment in await self._attach_link(datapath, link, problems):
                    attached[attachment.ifindex, attachment.hook] = attachment
            except (DataPlaneError, OSError) as error:
                problems.append(f"{link.name}: {error}")
                failed.add(link.ifindex)
        await self._detach_others(attached, failed, surroundings)
        self._note_reattached(attached)
        self._attached = attached

    async def _attach_link(self, datapath: Datapath, link: Link, problems: list[str]) -> list[Attachment]:
        """Egress first: what this node says is guarded before what it hears."""
        attachments = [await self._attacher.ensure(link.ifindex, Hook.TC_EGRESS)]
        ingress = await self._attach_xdp(link, problems) if datapath is Datapath.XDP else None
        if ingress is None:
            ingress = await self._attacher.ensure(link.ifindex, Hook.TC_INGRESS)
        attachments.append(ingress)
        hidden = [attachment for attachment in attachments if not await runs_first(attachment)]
        problems.extend(
            f"{link.name}: another program runs before arpguard at {attachment.hook.name.lower()} and may hide frames "
            "from it; attach that one behind, or after the agent"
            for attachment in hidden
        )
        return attachments

    async def _attach_xdp(self, link: Link, problems: list[str]) -> Attachment | None:
        """XDP where it sees and answers everything; None, and a problem, where it does not: tc serves there."""
        if strips_vlan_tags(link.name):
            problems.append(
                f"{link.name}: RX VLAN offload hides tags from XDP, tc is used; "
                f"`ethtool -K {link.name} rxvlan off` allows XDP"
            )
            return None
        try:
            attachment = await self._attacher.ensure(link.ifindex, Hook.XDP)
        except (AttachConflictError, DataPlaneError) as error:
            problems.append(f"{link.name}: {error}")
            return None
        if link.kind == "veth":
            problems.append(
                f"{link.name}: native XDP on a veth loses its answers, silently, unless the peer runs native XDP too; "
                "use datapath: tc"
            )
        return attachment

    async def _detach_others(
        self, attached: dict[tuple[int, Hook], Attachment], failed: set[int], surroundings: Surroundings
    ) -> None:
        """Only after the wanted ones are attached: a frame may meet two programs, never none.

        Where attaching failed, what is there stays.
        """
        present = {link.ifindex for link in surroundings.links}
        stale = {(pin.wanted_ifindex, pin.hook) for pin in self._attacher.pins()} | self._attached.keys()
        clsact = {key for key, attachment in self._attached.items() if attachment.how == "clsact"}
        for ifindex, hook in stale - attached.keys():
            if ifindex in failed:
                continue
            await self._attacher.detach(ifindex, hook, filters=(ifindex, hook) in clsact and ifindex in present)

    def _note_reattached(self, attached: dict[tuple[int, Hook], Attachment]) -> None:
        replaced = [key for key, attachment in attached.items() if attachment.fresh and key in self._attached]
        if replaced:
            self.state.drift.programs += len(replaced)
            log.warning("drift: %d programs were detached behind the agent and are attached again", len(replaced))

    def log_problems(self) -> None:
        """Says once what is not as it was asked for, and once when it is again."""
        for problem in self.state.problems:
            if problem not in self._logged:
                log.warning("problem: %s", problem)
        for problem in self._logged:
            if problem not in self.state.problems:
                log.info("solved: %s", problem)
        self._logged = self.state.problems

    def _publish(self, links: tuple[Link, ...], problems: list[str]) -> None:
        self.state.links = links
        self.state.attachments = tuple(self._attached.values())
        self.state.problems = tuple(problems)


def _unfit_vips(config: AgentConfig) -> list[str]:
    elected = [vip.address for vip in config.vips if vip.owner.kind is OwnerKind.ELECT]
    if not elected:
        return []
    return [f"vips: owner elect needs Kubernetes, nobody answers for {_some(elected)}: name a node, or external"]


def _some(items: Sequence[object], limit: int = 5) -> str:
    return ", ".join(map(str, items[:limit])) + (f" and {len(items) - limit} more" if len(items) > limit else "")
