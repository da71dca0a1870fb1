"""Joins the solicited-node groups of this node's IPv6 VIPs: otherwise no solicitation for them may arrive."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from arpguard.core.desired import membership_of, memberships_of
from arpguard.dataplane.groups import Groups
from arpguard.errors import DataPlaneError
from arpguard.model import EntryKey, GroupMembership, Link, VipEntry
from arpguard.runtime.kernel.latest import Latest

_BATCH = 100  # 5 ms; the more groups a link has, the more each one costs


class Listening:
    """The groups that this node is in, and why it cannot join others. Leaves all at the end of its `with` block."""

    def __init__(self) -> None:
        self._groups = Groups()
        self._memberships_of = Latest(memberships_of)
        self._settled: frozenset[GroupMembership] | None = None
        self._links: Sequence[Link] = ()
        self.problems: tuple[str, ...] = ()

    def hear(self, key: EntryKey) -> None:
        """Joins the group of one VIP at once, if it can; `follow` reports why it cannot."""
        membership = membership_of(key)
        if membership is not None:
            with suppress(DataPlaneError):
                self._groups.join(membership)

    async def follow(self, entries: Mapping[EntryKey, VipEntry], links: Sequence[Link]) -> bool:
        """Joins the groups it needs and leaves all others; True when its problems have changed."""
        wanted = self._memberships_of(entries)
        if links != self._links:
            self._groups.leave_forgotten()
        elif wanted is self._settled:
            return False

        self._links = links
        missing, gone = (
            wanted - self._groups.joined,
            self._groups.joined - wanted,
        )  # but keeps what `hear` joins meanwhile

        refused = await self._join(missing)
        await self._leave(gone)
        self._settled = None if refused else wanted
        before, self.problems = self.problems, tuple(self._problem(*item) for item in sorted(refused.items()))
        return self.problems != before

    async def _join(self, memberships: frozenset[GroupMembership]) -> dict[int, str]:
        """Joins groups; returns the errors by link. After an error it skips that link's other groups."""
        refused: dict[int, str] = {}
        for number, membership in enumerate(memberships, 1):
            if membership.ifindex not in refused:
                try:
                    self._groups.join(membership)
                except DataPlaneError as error:
                    refused[membership.ifindex] = str(error)
            await _let_others_work(number)
        return refused

    async def _leave(self, memberships: frozenset[GroupMembership]) -> None:
        for number, membership in enumerate(memberships, 1):
            self._groups.leave(membership)
            await _let_others_work(number)

    def _problem(self, ifindex: int, why: str) -> str:
        name = next((link.name for link in self._links if link.ifindex == ifindex), f"interface {ifindex}")
        return (
            f"{name}: {why}: a switch that snoops may not forward solicitations for IPv6 VIPs to this node; "
            "check that IPv6 is enabled there, and that its MTU is at least 1280"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._groups.close()


async def _let_others_work(number: int) -> None:
    if number % _BATCH == 0:
        await asyncio.sleep(0)
