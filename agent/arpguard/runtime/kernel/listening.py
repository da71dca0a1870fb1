"""Joins the solicited-node groups of this node's IPv6 VIPs: otherwise solicitations for these VIPs may not arrive."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from arpguard.core.desired import membership_of, memberships_of
from arpguard.dataplane.groups import Groups
from arpguard.errors import DataPlaneError
from arpguard.model import EntryKey, GroupMembership, Link
from arpguard.runtime.kernel.latest import Latest
from arpguard.runtime.kernel.reconciler import Reconciler
from arpguard.runtime.waking import Alarm

_BATCH = 100  # 5 ms; the more groups a link has, the more each one costs


class Listening:
    """The groups that this node is in, and why it cannot join others.

    Wakes `passes` when its problems have changed.
    """

    def __init__(self, kernel: Reconciler, passes: Alarm) -> None:
        self._kernel = kernel
        self._passes = passes
        self._passed = Alarm()
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

    def wake(self) -> None:
        """Entries or links may have changed."""
        self._passed.wake()

    async def run(self) -> None:
        """Follows every pass, on its own, for passes must not wait: ten thousand groups take a second."""
        while True:
            self._passed.clear()
            await self.follow()
            await self._passed.sleep_for(None)

    async def follow(self) -> None:
        """Joins the groups it needs and leaves all others."""
        wanted, links = self._memberships_of(self._kernel.entries), self._kernel.state.links
        if links != self._links:
            self._groups.leave_forgotten()
        elif wanted is self._settled:
            return

        self._links = links
        # Both now: what `hear` joins meanwhile stays.
        missing, gone = wanted - self._groups.joined, self._groups.joined - wanted

        refused = await self._join(missing)
        await self._leave(gone)
        self._settled = None if refused else wanted
        before, self.problems = self.problems, tuple(self._problem(*item) for item in sorted(refused.items()))
        if self.problems != before:
            self._passes.wake()

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
            f"{name}: {why}; a switch with MLD snooping may withhold solicitations for IPv6 VIPs from this node; "
            "check that IPv6 is enabled on the interface, and that its MTU is at least 1280"
        )

    def close(self) -> None:
        """Leaves all groups."""
        self._groups.close()


async def _let_others_work(number: int) -> None:
    if number % _BATCH == 0:
        await asyncio.sleep(0)
