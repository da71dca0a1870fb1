"""Keeps a copy of the objects of one kind, by list and watch.

Three levels, each with one kind of failure to handle:

- `run` never stops: it retries failures after a growing wait, and logs once when the source is lost and once when it is
  back;
- `_list_then_watch` lists if it has no version to start from, and then watches from one version to the next;
- `_follow` reads one stream, until it ends, breaks, or has been silent for too long.

What it shows was true at some moment in the past. A decision that needs the present makes its own request, and one that
needs a time limit has its own clock.

Silence is not a loss: while nothing changes, only a bookmark a minute comes. A stream that is silent for longer, or
that does not show what this agent has just written (`expect`), may be half-open: its server died without a FIN, hangs,
or a NAT has forgotten the connection. TCP keep-alive (`kube/client.py`) finds the first and the last. Either way it is
reopened from the same version: if it was healthy that costs one request, if not it leads to an answer or to a failure.
A failure counts as a loss, and so does a stream that never showed anything although it had to.
Sources: Kubernetes API Concepts, "Efficient detection of changes"; client-go tools/cache/reflector.go; bookmarks:
k8s.io/apiserver pkg/storage/cacher (`defaultBookmarkFrequency`, `nextBookmarkTime`).
"""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, KeysView, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType, TracebackType
from typing import Any, Generic, Self, TypeVar

from arpguard.clock import boot_ns
from arpguard.core.backoff import Backoff
from arpguard.core.cluster import Key, SourceState
from arpguard.kube.client import Client, gather_lines
from arpguard.kube.decoding import decode
from arpguard.kube.errors import (
    ClusterError,
    Failure,
    GoneError,
    JsonObject,
    TooLargeError,
    UnavailableError,
    error_of,
    message_of,
)
from arpguard.kube.listing import EVERYTHING, PAGE, Scope, read_pages
from arpguard.kube.projections import key_of, version_of
from arpguard.kube.resources import Request, Resource

T = TypeVar("T")

log = logging.getLogger(__name__)

SMALLER = 8
STREAM_GRACE_S = 30.0


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """An object appeared (`old` is None), changed, or disappeared (`new` is None)."""

    key: Key
    old: T | None
    new: T | None


@dataclass(frozen=True, slots=True)
class Pace:
    """The times of a reflector, in seconds.

    Waits grow from `base_s` to `cap_s`, and start over once a stream has lasted for `steady_s`. The client asks the
    server to end a stream after `watch_s` (from, to), as client-go does, and gives it `answer_s` to begin one. The
    server sends a bookmark about every minute: a stream that was silent for `idle_s` is reopened. `echo_s`: how soon
    after `expect` something has to come. `spread_s`: doubt about one stream of a server is doubt about all, and this
    spreads their reopening.
    """

    base_s: float = 0.25
    cap_s: float = 30.0
    steady_s: float = 10.0
    watch_s: tuple[int, int] = (300, 600)
    answer_s: float = 10.0
    idle_s: float = 150.0
    echo_s: float = 2.0
    spread_s: float = 3.0


DEFAULT_PACE = Pace()


class Reflector(Generic[T]):
    """The objects of one kind, each as `project` makes it from the API's JSON.

    Calls `on_change` in order, after `objects` has the change; an exception of it or of `project` ends `run`.
    Calls `on_silent` when a stream does not show what it must, and is reopened. `synced`: a complete list has been read
    since it was started.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        project: Callable[[JsonObject], T],
        on_change: Callable[[Change[T]], None],
        scope: Scope = EVERYTHING,
        pace: Pace = DEFAULT_PACE,
        on_silent: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._resource = resource
        self._project = project
        self._on_change = on_change
        self._scope = scope
        self._pace = pace
        self._on_silent = on_silent
        self._shown = scope  # by streams
        self._may_hide: Callable[[T], bool] = lambda _: False
        self._backoff = Backoff(pace.base_s, pace.cap_s, random.random)

        self._objects: dict[Key, T] = {}
        self._version = ""
        self._page = PAGE
        self.synced = False

        self._patience: asyncio.Timeout | None = None  # with the current stream
        self._heard_ns = 0
        self._seen_ns = 0
        self._owed = False  # something has to come, and has not come yet
        self._mute = False  # the last stream was lost because nothing came

        self.state = SourceState()

    @property
    def objects(self) -> Mapping[Key, T]:
        """All objects, as of the last change; a view and no copy."""
        return MappingProxyType(self._objects)

    @property
    def version(self) -> str:
        """The resourceVersion from which it would watch now; "" if it would have to list first."""
        return self._version

    @property
    def seen_ns(self) -> int:
        """When a list was read, or a stream last brought something (boot clock): `objects` are not older."""
        return self._seen_ns

    async def run(self) -> None:
        """Lists and watches until it is cancelled."""
        while True:
            try:
                await self._list_then_watch()
            except ClusterError as error:
                await asyncio.sleep(self._failed(error))

    def show_only(self, labels: str, may_hide: Callable[[T], bool]) -> None:
        """From now on streams show objects with these labels only ("": all), while lists have all of them.

        `may_hide`: whether an object may still be there when a stream says that it was deleted, for it may have other
        labels now. Such an object stays as it was last shown.
        """
        shown = replace(self._scope, labels=labels or self._scope.labels)
        self._may_hide = may_hide
        if shown != self._shown:
            self._shown = shown
            self._wait_at_most(0)

    def expect(self, sent_ns: int) -> None:
        """A write that was sent then (boot clock) was applied: a healthy stream soon shows it, or something later."""
        if self._patience is not None and self._heard_ns < sent_ns and not self._owed:
            self._owed = True
            self._wait_at_most(self._pace.echo_s)

    def doubt(self) -> None:
        """Another stream of the same server is silent, but must not be: reopens this one within `spread_s`."""
        if not self._owed:
            self._wait_at_most(random.uniform(0, self._pace.spread_s))  # noqa: S311

    def _wait_at_most(self, seconds: float) -> None:
        if self._patience is not None and not self._patience.expired():
            self._patience.reschedule(asyncio.get_running_loop().time() + seconds)

    def forget(self) -> None:
        """Forgets everything after it was stopped, without calling `on_change`: objects not watched are not known."""
        self._objects.clear()
        self._version = ""
        self.synced = False

    async def _list_then_watch(self) -> None:
        if not self._version:
            await self._list()
        while True:
            await self._follow()

    async def _list(self) -> None:
        """Reads one complete list, and believes it only when it has all pages."""
        found: dict[Key, T] = {}
        version = ""
        async with aclosing(read_pages(self._client, self._resource, self._scope, self._page)) as pages:
            async for page in pages:
                version = page.version
                for raw in page.items:
                    self._keep(found, raw)
        self._replace(found)
        self._version = version
        self._seen_ns = boot_ns()
        self.state.lists += 1
        self.synced = True

    def _keep(self, found: dict[Key, T], raw: object) -> None:
        key = key_of(raw) if isinstance(raw, dict) else None
        if key is None or not isinstance(raw, dict):
            self.state.unreadable += 1
            return
        new, old = self._project(raw), self._objects.get(key)
        found[key] = old if old is not None and old == new else new  # so that memory has only one of them

    def _replace(self, found: dict[Key, T]) -> None:
        """Reports the differences to a list as changes; deletes come first, since they may make room."""
        for key in self._objects.keys() - found.keys():
            self._remove(key)
        for key, new in found.items():
            self._put(key, new)

    async def _follow(self) -> None:
        """Reads one stream from the last version on. Returns when the server ended it in good order."""
        seconds = random.randint(*self._pace.watch_s)  # noqa: S311 (it spreads load, and hides nothing)
        shown = self._shown

        query = {
            **shown.query,
            "watch": "true",
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        request = Request("watch", self._resource, self._scope.namespace, query=query)

        async with self._client.stream(request, self._pace.answer_s, seconds + STREAM_GRACE_S) as pieces:
            self.state.streams += 1
            if self._shown != shown:  # it has changed while the stream was opened
                return
            with self._steadying() as is_steady:
                is_silent = await self._read(pieces)
                if not is_silent and not is_steady():
                    raise self._nonsense("the stream ended as soon as it began")  # otherwise it retries at once

    async def _read(self, pieces: AsyncIterator[bytes]) -> bool:
        """Reads a stream; returns whether it ended because nothing came for too long."""
        opened_ns = self._heard_ns = boot_ns()
        try:
            async with asyncio.timeout(self._pace.idle_s) as self._patience:
                async with aclosing(self._events(self._heard(pieces))) as events:
                    async for event in events:
                        self._take(event)
        except TimeoutError:
            self._been_silent(brought_nothing=self._heard_ns == opened_ns)
            return True
        finally:
            self._patience, self._owed = None, False
        return False

    async def _heard(self, pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """Passes the pieces on: each proves that the stream is alive."""
        async for piece in pieces:
            self._heard_ns = self._seen_ns = boot_ns()
            self._owed = False
            self._wait_at_most(self._pace.idle_s)
            if self._mute:
                self._mute = False
                self._well()
            yield piece

    def _been_silent(self, *, brought_nothing: bool) -> None:
        """A stream was silent for too long: one that never showed anything, although it had to, is lost."""
        if not self._owed:
            return
        if not self._mute:
            self._on_silent()
        if brought_nothing:
            self._mute = True
            raise self._nonsense("the stream does not show this node's own writes")
        log.info("%s: the stream does not show this node's own writes; reopening it", self._resource)

    @contextmanager
    def _steadying(self) -> Iterator[Callable[[], bool]]:
        """Calls the source healthy once a stream has lasted: one that keeps breaking stays lost."""
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self._pace.steady_s, self._well)
        try:
            yield lambda: loop.time() >= timer.when()
        finally:
            timer.cancel()

    async def _events(self, pieces: AsyncIterator[bytes]) -> AsyncGenerator[JsonObject, None]:
        try:
            async for line in gather_lines(pieces):
                event = decode(line)
                if not isinstance(event, dict) or not isinstance(event.get("object"), dict):
                    raise self._nonsense("a line of the stream is not an event")
                yield event
        except ValueError as error:
            raise self._nonsense("a line of the stream is not JSON") from error

    def _take(self, event: JsonObject) -> None:
        """Applies one event. The version moves on only afterwards: the server sends again what was not applied."""
        kind, raw = event.get("type"), event["object"]
        if kind == "ERROR":
            raise self._error_event(raw)
        if kind in ("ADDED", "MODIFIED", "DELETED"):
            self._change(raw, deleted=kind == "DELETED")
        elif kind != "BOOKMARK":
            raise self._nonsense("the stream has an event of an unknown type")
        self._version = version_of(raw) or self._version

    def _change(self, raw: JsonObject, *, deleted: bool) -> None:
        key = key_of(raw)
        if key is None:
            self.state.unreadable += 1
        elif deleted:
            if not self._is_hidden(key):
                self._remove(key)
        else:
            self._put(key, self._project(raw))

    def _is_hidden(self, key: Key) -> bool:
        """Whether the server may have deleted it from the stream alone."""
        old = self._objects.get(key)
        return self._shown != self._scope and old is not None and self._may_hide(old)

    def _put(self, key: Key, new: T) -> None:
        old = self._objects.get(key)
        if old != new:
            self._objects[key] = new
            self._on_change(Change(key, old, new))

    def _remove(self, key: Key) -> None:
        old = self._objects.pop(key, None)
        if old is not None:
            self._on_change(Change(key, old, None))

    def _well(self) -> None:
        if self._mute:
            return  # it lasts, and yet nothing comes
        self._backoff.reset()
        if self.state.lost:
            log.warning("%s: watching again", self._resource)
            self.state.lost = ""

    def _failed(self, error: ClusterError) -> float:
        """Takes note of a failure; returns how long to wait."""
        self.state.failures += 1
        if isinstance(error, GoneError):
            self._version = ""  # nothing is lost: the next list has it all
        elif not self.state.lost:
            log.warning("%s: watch lost; the last known state is going stale: %s", self._resource, error)
            self.state.lost = str(error)
        if isinstance(error, TooLargeError):
            self._page = max(1, self._page // SMALLER)
        return max(self._backoff.next_s(), error.failure.retry_after_s * random.uniform(1, 1.5))  # noqa: S311

    def _nonsense(self, text: str) -> UnavailableError:
        return UnavailableError(Failure("follow", str(self._resource), 0, text))

    def _error_event(self, status: JsonObject) -> ClusterError:
        """The error of an ERROR event, whose object is the Status that an HTTP answer would have."""
        code = status.get("code")
        number = code if isinstance(code, int) else 0
        return error_of(Failure("watch", str(self._resource), number, f"{number} {message_of(status)}"))


class Reflectors:
    """The running reflectors, as a context manager: an exception in one of them ends its `with` block.

    Like an `asyncio.TaskGroup`, it wraps what is raised within into an ExceptionGroup.
    """

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._running: dict[Reflector[Any], asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._running.values():
            task.cancel()
        await self._group.__aexit__(kind, error, trace)

    def start(self, reflector: Reflector[Any]) -> None:
        """Starts a reflector, unless it runs already."""
        if reflector not in self._running:
            self._running[reflector] = self._group.create_task(reflector.run())

    async def stop(self, reflector: Reflector[Any]) -> None:
        """Stops a reflector if it runs, and makes it forget everything."""
        task = self._running.pop(reflector, None)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
            reflector.forget()

    @property
    def running(self) -> KeysView[Reflector[Any]]:
        """The reflectors that run."""
        return self._running.keys()
