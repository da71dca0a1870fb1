"""Listens to the solicited-node groups of the IPv6 VIPs that this node owns, or else nobody's questions might come."""

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

_BATCH = 100  # 5 ms; with ten thousand groups on a link each costs more than the one before


class Listening:
    """Which groups are listened to, and what is in the way of others. Leaves all at the end of its `with` block."""

    def __init__(self) -> None:
        self._groups = Groups()
        self._memberships_of = Latest(memberships_of)
        self._settled: frozenset[GroupMembership] | None = None
        self._links: Sequence[Link] = ()
        self.problems: tuple[str, ...] = ()

    def hear(self, key: EntryKey) -> None:
        """Listens to the group of one VIP at once, if that is possible: `follow` tells why it is not."""
        membership = membership_of(key)
        if membership is not None:
            with suppress(DataPlaneError):
                self._groups.join(membership)

    async def follow(self, entries: Mapping[EntryKey, VipEntry], links: Sequence[Link]) -> bool:
        """Joins what is missing and leaves the rest; True when there are other problems than before."""
        wanted = self._memberships_of(entries)
        if links != self._links:
            self._groups.leave_forgotten()
        elif wanted is self._settled:
            return False

        self._links = links
        missing, gone = (
            wanted - self._groups.joined,
            self._groups.joined - wanted,
        )  # and not what `hear` joins meanwhile

        refused = await self._join(missing)
        await self._leave(gone)
        self._settled = None if refused else wanted
        before, self.problems = self.problems, tuple(self._problem(*item) for item in sorted(refused.items()))
        return self.problems != before

    async def _join(self, memberships: frozenset[GroupMembership]) -> dict[int, str]:
        """What refused links say. One that does is not asked again for each of its groups."""
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
            f"{name}: {why}: a switch that snoops may keep questions for IPv6 VIPs from this node; "
            "see that IPv6 is on there, and its MTU at least 1280"
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
