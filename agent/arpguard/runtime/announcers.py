"""Follows the objects of other announcers, while Services follow those."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from arpguard.addresses import Address
from arpguard.core.cluster import Announcement, Service, SourceState
from arpguard.core.following import Following, Key, Source
from arpguard.kube.client import Client
from arpguard.kube.errors import ClusterError
from arpguard.kube.following import SOURCES, FollowSource, can_read
from arpguard.kube.reflector import Change, Reflector, Reflectors

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 60.0


class Announcers:
    """Which node announces what, by the objects that other announcers write; `on_change` when that may differ."""

    def __init__(self, client: Client, on_change: Callable[[], None]) -> None:
        self._client = client
        self._on_change = on_change
        self._following = Following()
        self._followers: frozenset[Key] = frozenset()
        self._reflectors: dict[Source, Reflector[Announcement]] = {}
        self._looked: frozenset[Source] = frozenset()
        self._wanted = asyncio.Event()
        self.problems: dict[Source, str] = {}

    @property
    def complete(self) -> bool:
        """Whether every object that Services need has been read, as far as it can be."""
        running = self._reflectors.values()
        return self._following.sources <= self._looked and all(reflector.synced for reflector in running)

    @property
    def sources(self) -> dict[str, SourceState]:
        """How the following of each kind is."""
        return {source.name.lower(): reflector.state for source, reflector in self._reflectors.items()}

    def node_of(self, service: Service, address: Address) -> str | None:
        """The node that announces an address of a Service; None when nobody is known to."""
        return self._following.node_of(service, address).node or None

    def why(self, service: Service, address: Address) -> str:
        """The object that names the node, in words."""
        return self._following.node_of(service, address).why

    @property
    def all_problems(self) -> list[str]:
        """What is wrong with what is followed."""
        return [*self.problems.values(), *self._following.problems]

    def follow(self, followers: frozenset[Key]) -> None:
        """The Services that follow another announcer now."""
        self._following.leave(self._followers - followers)
        self._followers = followers
        if not self._following.sources <= self._looked or self._reflectors.keys() - self._following.sources:
            self._wanted.set()

    async def run(self, reflectors: Reflectors) -> None:
        """Starts and stops what is needed, until it is cancelled."""
        while True:
            try:
                async with asyncio.timeout(LOOK_AGAIN_S):
                    await self._wanted.wait()
            except TimeoutError:
                pass
            self._wanted.clear()
            await self._adjust(reflectors)

    async def _adjust(self, reflectors: Reflectors) -> None:
        needed = self._following.sources
        for row in SOURCES:
            if row.source in needed and row.source not in self._reflectors:
                await self._begin(row, reflectors)
            elif row.source not in needed and row.source in self._reflectors:
                await reflectors.stop(self._reflectors.pop(row.source))
                self._following.forget(row.source)
        self.problems = {source: text for source, text in self.problems.items() if source in needed}
        self._looked = needed
        self._on_change()

    async def _begin(self, row: FollowSource, reflectors: Reflectors) -> None:
        """A kind that is not installed, or not allowed, is looked for again later."""
        try:
            readable = await can_read(self._client, row)
        except ClusterError as error:
            self.problems[row.source] = f"{row.source.value} cannot be followed now: {error}"
            return
        if readable.problem:
            self.problems[row.source] = readable.problem
        if not readable.readable:
            return
        self.problems.pop(row.source, None)
        told = partial(self._told, row.source)
        self._reflectors[row.source] = Reflector(self._client, row.resource, row.project, told, row.scope)
        reflectors.start(self._reflectors[row.source])

    def _told(self, source: Source, change: Change[Announcement]) -> None:
        if self._following.put(source, change.key, change.new):
            self._on_change()
