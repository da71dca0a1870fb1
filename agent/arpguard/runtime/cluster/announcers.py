"""Watches the objects of other announcers while Services follow them."""

import asyncio
import random
from collections.abc import Mapping
from functools import partial
from typing import Protocol

from arpguard.addresses import Address
from arpguard.clock import boot_ns
from arpguard.config.model import FollowConfig
from arpguard.core.backoff import Backoff
from arpguard.core.cluster import Announcement, Key, Service, SourceState, SpeakerReport
from arpguard.core.following import Following, Source
from arpguard.core.steering import Steering
from arpguard.kube.client import Client
from arpguard.kube.errors import ClusterError
from arpguard.kube.following import SOURCES, FollowSource, can_read, sources_at
from arpguard.kube.reflector import Change, Pace, Reflector, Reflectors
from arpguard.runtime.cluster.witness import Traffic, Witness
from arpguard.runtime.waking import Alarm
from arpguard.units import NS_PER_S

LOOK_AGAIN_S = 60.0
RETRY_S, LONGEST_RETRY_S = 0.25, 2.0
_PACE = Pace(cap_s=LONGEST_RETRY_S)

EVENTS_S = 0.05  # most objects that disappear are replaced at once, and then no Event is needed
MANY_NAMESPACES = 8  # if there are more, the agent watches the Events of all namespaces
_EVENTS = next(row for row in SOURCES if row.source is Source.METALLB_EVENT)


class AnnouncerListener(Traffic, Protocol):
    """Listens for changes."""

    def look(self) -> None:
        """Notes that something about VIPs may have changed."""


class Announcers:
    """Which node announces which address, by the objects that other announcers write.

    `left`: the nodes that the last agent followed, by address.
    """

    def __init__(self, client: Client, node: str, listener: AnnouncerListener, left: Mapping[Address, str]) -> None:
        self._client = client
        self._on_change = listener.look
        self._following = Following()
        self._steering = Steering(self._following, self._is_known, left)
        self._witness = Witness(node, self._steering, listener)
        self._followers: frozenset[Key] = frozenset()

        self._reflectors: dict[Source, Reflector[Announcement]] = {}
        self._settled: set[Source] = set()
        self._failed: dict[Source, str] = {}
        self._refused: dict[Source, str] = {}
        self._backoff = Backoff(RETRY_S, LONGEST_RETRY_S, random.random)
        self._wanted = Alarm()
        self._places = FollowConfig()
        self._rows = SOURCES

        self._watched: dict[Source, FollowSource] = {}
        self._unsettled: frozenset[Key] = frozenset()
        self._more_unsettled = Alarm()
        self._events: dict[str, Reflector[Announcement]] = {}
        self._silent: set[str] = set()  # namespaces whose Events the agent may not read
        self._timer: asyncio.TimerHandle | None = None

    @property
    def complete(self) -> bool:
        """Whether every object that Services need has been read, except those that do not exist or may not be read.

        A failed look does not count (K-5).
        """
        running = self._reflectors.values()
        return self._following.sources <= self._settled and all(reflector.synced for reflector in running)

    @property
    def sources(self) -> dict[str, SourceState]:
        """The state of the watch on each kind."""
        return {source.name.lower(): reflector.state for source, reflector in self._reflectors.items()}

    def node_of(self, service: Service, address: Address) -> str | None:
        """The node that announces an address of a Service; None when none is known."""
        return self._steering.node_of(service, address, boot_ns()).node or None

    def why(self, service: Service, address: Address) -> str:
        """The object that names the node, in words."""
        return self._steering.node_of(service, address, boot_ns()).why

    @property
    def all_problems(self) -> list[str]:
        """What is wrong with the announcers that are followed.

        A kind that may not be read is a problem only if Services have nothing else to follow; otherwise its announcer
        is not installed, or not followed.
        """
        perhaps = self._reflectors.keys() | self._failed.keys()
        lacking = self._following.lacking(perhaps) if self._refused else frozenset()
        refused = (text for source, text in self._refused.items() if source in lacking)
        return [*self._failed.values(), *refused, *self._steering.problems(boot_ns())]

    @property
    def reports(self) -> Mapping[Key, SpeakerReport]:
        """What the other nodes need to know about the announcer on this one."""
        return self._witness.reports

    def hear(self, node: str, reports: Mapping[Key, SpeakerReport]) -> None:
        """Takes all that a node reports of its announcer, its own reports too: it hears those when the others do."""
        if self._steering.hear(node, reports, boot_ns()):
            self._on_change()

    def look_at(self, places: FollowConfig) -> None:
        """Takes the announcers' namespaces and Leases from the configuration."""
        if places == self._places:
            return
        self._places, self._rows = places, sources_at(places)
        moved = {row.source for row in self._rows if self._watched.get(row.source, row) != row}
        self._settled -= moved  # nothing has been read there yet
        self._wanted.wake()

    def follow(self, followers: frozenset[Key]) -> None:
        """Takes the Services that follow another announcer now."""
        self._steering.leave(self._followers - followers)
        self._followers = followers
        needed = self._following.sources
        if needed - self._settled - self._failed.keys() or self._reflectors.keys() - needed:
            self._wanted.wake()
        before, self._unsettled = self._unsettled, self._find_unsettled()
        if self._unsettled - before:
            self._more_unsettled.wake()
        if self._unsettled or before:
            self._witness.watch(self._unsettled)
        self._look_when_due()

    async def run(self, reflectors: Reflectors) -> None:
        """Starts and stops what is needed, until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_events(reflectors))
            tasks.create_task(self._keep_reflectors(reflectors))
            tasks.create_task(self._witness.run())

    # ---- what is watched ----

    async def _keep_reflectors(self, reflectors: Reflectors) -> None:
        while True:
            await self._wanted.sleep_for(self._backoff.next_s() if self._failed else LOOK_AGAIN_S)
            self._wanted.clear()
            await self._adjust(reflectors)

    async def _adjust(self, reflectors: Reflectors) -> None:
        needed = self._following.sources
        for row in self._rows:
            if self._watched.get(row.source, row) != row:
                await self._end(row.source, reflectors)
            if row.source in needed and row.source not in self._reflectors:
                await self._begin(row, reflectors)
            elif row.source not in needed and row.source is not _EVENTS.source:
                await self._end(row.source, reflectors)
        if not self._failed:
            self._backoff.reset()
        self._on_change()

    async def _begin(self, row: FollowSource, reflectors: Reflectors) -> None:
        """Watches a kind; tries again soon after a failure, and later if it is not installed or not allowed."""
        source = row.source
        self._watched[source] = row
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
        """No Service needs the kind any more: stops the watch, and forgets what it showed."""
        if source in self._reflectors:
            await reflectors.stop(self._reflectors.pop(source))
            self._following.forget(source)
        self._watched.pop(source, None)
        self._settled.discard(source)
        self._failed.pop(source, None)
        self._refused.pop(source, None)

    def _is_known(self, source: Source, namespace: str) -> bool:
        """Whether a source has been read as far as possible: one that fails must not keep the others waiting."""
        if source is _EVENTS.source:
            return self._are_events_known(namespace)
        reflector = self._reflectors.get(source)
        return reflector.synced if reflector is not None else source in self._settled or source in self._failed

    def _told(self, source: Source, change: Change[Announcement]) -> None:
        if self._steering.put(source, change.key, change.new, boot_ns()):
            self._on_change()

    # ---- what is watched where objects do not settle who announces ----

    def _find_unsettled(self) -> frozenset[Key]:
        metallb = self._reflectors.get(Source.METALLB)
        return self._following.unsettled if metallb is not None and metallb.synced else frozenset()

    async def _keep_events(self, reflectors: Reflectors) -> None:
        """Watches a namespace's Events from soon after a Service needs them until a minute after none does."""
        while True:
            more = await self._more_unsettled.sleep_for(LOOK_AGAIN_S if self._events or self._unsettled else None)
            self._more_unsettled.clear()
            await asyncio.sleep(EVENTS_S)
            needed = self._namespaces()
            for namespace in needed - self._events.keys():
                await self._watch_events(namespace, reflectors)
            for namespace in self._events.keys() - needed if not more else ():
                await reflectors.stop(self._events.pop(namespace))

    def _are_events_known(self, namespace: str) -> bool:
        """Whether a namespace's Events have been read, or may not be read."""
        watched = self._events.keys() & {namespace, ""}
        return bool(self._silent & {namespace, ""}) or any(self._events[each].synced for each in watched)

    def _namespaces(self) -> frozenset[str]:
        """The namespaces of unsettled Services; "" stands for all."""
        found = frozenset(namespace for namespace, _ in self._find_unsettled())
        return found if len(found) <= MANY_NAMESPACES else frozenset(("",))

    async def _watch_events(self, namespace: str, reflectors: Reflectors) -> None:
        """Watches Events, if the agent has the right to; if not, it does without, and asks again later."""
        row = _EVENTS.within(namespace)
        try:
            if not (await can_read(self._client, row)).readable:
                self._silent.add(namespace)
                return
        except ClusterError:
            pass  # the reflector retries by itself
        self._silent.discard(namespace)
        told = partial(self._told, row.source)
        self._events[namespace] = Reflector(self._client, row.resource, row.project, told, row.scope, _PACE)
        reflectors.start(self._events[namespace])

    # ---- what is due by itself ----

    def _look_when_due(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        now_ns = boot_ns()
        at_ns = self._steering.next_ns(now_ns)
        loop = asyncio.get_running_loop()
        self._timer = None if at_ns is None else loop.call_later((at_ns - now_ns) / NS_PER_S, self._on_change)
