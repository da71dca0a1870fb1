"""Keeps the programs on the guarded links, and off all others: a frame may meet two programs, never none."""

import logging
from collections.abc import Iterable, Mapping

from arpguard.core.choosing import xdp_refusal
from arpguard.dataplane.attach import Attacher, runs_first
from arpguard.dataplane.device import strips_vlan_tags
from arpguard.errors import AttachConflictError, DataPlaneError
from arpguard.model import Attachment, Datapath, Link, NodeState, Surroundings
from arpguard.verdict import Hook

log = logging.getLogger(__name__)


class Attaching:
    """What is attached, by index of the link and hook.

    `problems`: what was wrong at the last check. `alone`: no program of another build is left.
    """

    def __init__(self, attacher: Attacher, state: NodeState) -> None:
        self._attacher = attacher
        self._state = state
        self._attached: dict[tuple[int, Hook], Attachment] = {}
        self._has_no_strays = False
        self.problems: tuple[str, ...] = ()
        self.alone = False

    @property
    def left_behind(self) -> list[int]:
        """The links, by index, with pinned programs of any agent."""
        return [pin.wanted_ifindex for pin in self._attacher.pins()]

    async def ensure(self, datapath: Datapath, links: Iterable[Link], surroundings: Surroundings) -> None:
        """Attaches programs to `links` where they are missing, then detaches them from all others."""
        attached: dict[tuple[int, Hook], Attachment] = {}
        failed: set[int] = set()
        problems: list[str] = []
        for link in links:
            try:
                for attachment in await self._attach(datapath, link, problems):
                    attached[attachment.ifindex, attachment.hook] = attachment
            except (DataPlaneError, OSError) as error:
                problems.append(f"{link.name}: {error}")
                failed.add(link.ifindex)

        # Not earlier: where attaching fails, the old programs stay.
        await self._detach_others(attached, failed, surroundings)
        self._note_reattached(attached)
        # Where attaching fails, what was there counts: the kernel lets go of an unpinned link some time later, and
        # until then refuses to attach its program again.
        there = {key: attachment for key, attachment in self._attached.items() if key[0] in failed}
        self._attached = there | attached
        self._state.attachments = tuple(attached.values())
        self.problems, self.alone = tuple(problems), not failed

    async def _attach(self, datapath: Datapath, link: Link, problems: list[str]) -> list[Attachment]:
        """Attaches egress first: the guard covers frames that leave before those that come in."""
        attachments = [await self._attacher.ensure(link.ifindex, Hook.TC_EGRESS)]
        ingress = await self._attach_xdp(link, problems) if datapath is Datapath.XDP else None
        if ingress is None:
            ingress = await self._attacher.ensure(link.ifindex, Hook.TC_INGRESS)
        attachments.append(ingress)

        hidden = [attachment for attachment in attachments if not await runs_first(attachment)]
        problems.extend(
            f"{link.name}: another program runs before arpguard at {attachment.hook.name.lower()} and can hide frames "
            "from arpguard; make that program run after arpguard's, or start it after the agent"
            for attachment in hidden
        )
        return attachments

    async def _attach_xdp(self, link: Link, problems: list[str]) -> Attachment | None:
        """Attaches XDP if it sees and answers everything there; otherwise None and a problem, and tc is used."""
        if refusal := xdp_refusal(link):
            problems.append(f"{link.name}: {refusal}; using tc")
            return None

        if strips_vlan_tags(link.name):
            problems.append(
                f"{link.name}: RX VLAN offload hides VLAN tags from XDP; using tc; "
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
                f"{link.name}: native XDP on a veth loses its answers unless the veth's peer runs native XDP, "
                "too; set datapath: tc"
            )
        return attachment

    async def _detach_others(
        self, attached: Mapping[tuple[int, Hook], Attachment], failed: set[int], surroundings: Surroundings
    ) -> None:
        present = {link.ifindex for link in surroundings.links}
        stale = {(pin.wanted_ifindex, pin.hook) for pin in self._attacher.pins()} | self._attached.keys()
        clsact = {key for key, attachment in self._attached.items() if attachment.how == "clsact"}
        for ifindex, hook in stale - attached.keys():
            if ifindex not in failed:
                filters = (ifindex, hook) in clsact and ifindex in present
                await self._attacher.detach(ifindex, hook, filters=filters)

    async def detach_strays(self) -> None:
        """Deletes, once, filters on other links, of an agent before this one or of `arpguard early`.

        Only once everything that is to be guarded is known and has programs.
        """
        if self._has_no_strays or not self.alone:
            return
        for ifindex, hook in await self._attacher.filters():
            if (ifindex, hook) not in self._attached:
                await self._attacher.detach(ifindex, hook)
        self._has_no_strays = True

    def _note_reattached(self, attached: Mapping[tuple[int, Hook], Attachment]) -> None:
        replaced = [key for key, attachment in attached.items() if attachment.fresh and key in self._attached]
        if replaced:
            self._state.drift.programs += len(replaced)
            log.warning("drift: another program detached the guard's programs; attached %d again", len(replaced))
