"""Follows the objects of other announcers, while Services follow those."""

import asyncio
import random
from collections.abc import Callable
from functools import partial

from arpguard.addresses import Address
from arpguard.core.backoff import Backoff
from arpguard.core.cluster import Announcement, Service, SourceState
from arpguard.core.following import Following, Key, Source
from arpguard.kube.client import Client
from arpguard.kube.errors import ClusterError
from arpguard.kube.following import SOURCES, FollowSource, can_read
from arpguard.kube.reflector import Change, Pace, Reflector, Reflectors

LOOK_AGAIN_S = 60.0
RETRY_S, LONGEST_RETRY_S = 0.25, 2.0
_PACE = Pace(cap_s=LONGEST_RETRY_S)


class Announcers:
    """Which node announces what, by the objects that other announcers write; `on_change` when that may differ."""

    def __init__(self, client: Client, on_change: Callable[[], None]) -> None:
        self._client = client
        self._on_change = on_change
        self._following = Following()
        self._followers: frozenset[Key] = frozenset()
        self._reflectors: dict[Source, Reflector[Announcement]] = {}
        self._settled: set[Source] = set()
        self._failed: dict[Source, str] = {}
        self._refused: dict[Source, str] = {}
        self._backoff = Backoff(RETRY_S, LONGEST_RETRY_S, random.random)
        self._wanted = asyncio.Event()

    @property
    def complete(self) -> bool:
        """Whether every object that Services need has been read, as far as there are any and they may be read.

        A look that failed found nothing out (K-5).
        """
        running = self._reflectors.values()
        return self._following.sources <= self._settled and all(reflector.synced for reflector in running)

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
        """What is wrong with what is followed.

        What may not be read is a problem where Services have nothing else; else it belongs to an announcer that is
        not there, or not followed.
        """
        lacking = self._following.lacking(self._reflectors.keys()) if self._refused else frozenset()
        refused = (text for source, text in self._refused.items() if source in lacking)
        return [*self._failed.values(), *refused, *self._following.problems]

    def follow(self, followers: frozenset[Key]) -> None:
        """The Services that follow another announcer now."""
        self._following.leave(self._followers - followers)
        self._followers = followers
        needed = self._following.sources
        if needed - self._settled - self._failed.keys() or self._reflectors.keys() - needed:
            self._wanted.set()

    async def run(self, reflectors: Reflectors) -> None:
        """Starts and stops what is needed, until it is cancelled."""
        while True:
            try:
                async with asyncio.timeout(self._backoff.next_s() if self._failed else LOOK_AGAIN_S):
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
            elif row.source not in needed:
                await self._end(row.source, reflectors)
        if not self._failed:
            self._backoff.reset()
        self._on_change()

    async def _begin(self, row: FollowSource, reflectors: Reflectors) -> None:
        """A kind that is not installed, or not allowed, is looked for again later; after a failure soon."""
        source = row.source
        try:
            readable = await can_read(self._client, row)
        except ClusterError as error:
            self._failed[source] = f"{source.value} cannot be followed now: {error}"
            return
        self._failed.pop(source, None)
        self._refused.pop(source, None)
        if readable.readable:
            told = partial(self._told, source)
            self._reflectors[source] = Reflector(self._client, row.resource, row.project, told, row.scope, _PACE)
            reflectors.start(self._reflectors[source])
        elif readable.forbidden:
            self._refused[source] = f"{source.value} cannot be followed: {readable.why}"
        self._settled.add(source)

    async def _end(self, source: Source, reflectors: Reflectors) -> None:
        """No Service needs it any more: what was found out of it is forgotten."""
        if source in self._reflectors:
            await reflectors.stop(self._reflectors.pop(source))
            self._following.forget(source)
        self._settled.discard(source)
        self._failed.pop(source, None)
        self._refused.pop(source, None)

    def _told(self, source: Source, change: Change[Announcement]) -> None:
        if self._following.put(source, change.key, change.new):
            self._on_change()
