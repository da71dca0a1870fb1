"""watch: the changes of a collection from a revision on, as a stream of JSON lines.

A watcher reads the table's history at its own pace. One that is too slow for it gets an ERROR event with 410.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from arpguard_lab.apiserver import listing, selectors, statuses
from arpguard_lab.apiserver.paths import Target, is_true
from arpguard_lab.apiserver.selectors import Predicate
from arpguard_lab.apiserver.statuses import ApiError
from arpguard_lab.apiserver.store import Change, Store, Stored, Table, page, to_bytes
from arpguard_lab.apiserver.views import View

Json: TypeAlias = dict[str, Any]

BOOKMARK_INTERVAL_S = 60.0
_TIMEOUT_S = 1800.0  # at least so long, and at most twice, where the client does not say (--min-request-timeout)
_CHANGES_AT_ONCE = 500
_EVENT_TYPES = {(False, True): "ADDED", (True, True): "MODIFIED", (True, False): "DELETED"}
_INITIAL_END = {"k8s.io/initial-events-end": "true"}

Write: TypeAlias = Callable[[bytes], Awaitable[None]]
Gate: TypeAlias = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Options:
    """What a watch asks for."""

    version: str
    initial: bool | None  # sendInitialEvents
    bookmarks: bool
    timeout_s: float

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> "Options":
        """From a query; 422 for what does not go together."""
        initial = is_true(query, "sendInitialEvents") if "sendInitialEvents" in query else None
        if initial is not None and query.get("resourceVersionMatch") != "NotOlderThan":
            why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            raise statuses.wrong_options("resourceVersionMatch", why)
        if initial is None and "resourceVersionMatch" in query:
            why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            raise statuses.wrong_options("resourceVersionMatch", why)
        timeout_s = float(query.get("timeoutSeconds") or 0) or _TIMEOUT_S * random.uniform(1, 2)  # noqa: S311
        return cls(query.get("resourceVersion", ""), initial, is_true(query, "allowWatchBookmarks"), timeout_s)

    @property
    def from_state(self) -> bool:
        """Whether it starts with what is there, as ADDED events."""
        return self.version in ("", "0") if self.initial is None else self.initial


class Watch:
    """One stream."""

    def __init__(self, store: Store, target: Target, query: Mapping[str, str], view: View) -> None:
        self._store = store
        self._target = target
        self._view = view
        self._wanted: Predicate | None = selectors.parse(
            target.resource, query.get("labelSelector", ""), query.get("fieldSelector", "")
        )
        self._options = Options.parse(query)
        self._deadline = time.monotonic() + self._options.timeout_s
        self._revision = listing.number(self._options.version, statuses.internal)

    def start(self, stale: int | None) -> list[bytes]:
        """The first lines; 410 if it would start too long ago."""
        if not self._options.from_state:
            self._revision = self._revision or self._store.revision
            self._table.require_watchable(self._revision)
            return []
        self._store.require(self._revision)
        lagging = stale is not None and self._options.version == "0"
        self._revision = stale if stale is not None and lagging else self._store.revision
        state = page(self._table.at(self._revision), None)
        lines = [self._line("ADDED", stored) for key, stored in state if self._is_wanted(key[0], stored)]
        if self._options.initial and self._options.bookmarks:
            lines.append(self._bookmark(_INITIAL_END))
        return lines

    async def run(self, write: Write, gate: Gate, bookmark_interval_s: float) -> None:
        """Sends until the time is over or the history is lost. `gate` holds it up as long as a fault wants."""
        due = time.monotonic() + bookmark_interval_s

        while True:
            changed = self._table.changed
            await gate()
            try:
                lines = list(self._lines())
            except ApiError as error:
                await write(error_line(error))
                return

            now = time.monotonic()
            if self._options.bookmarks and now >= min(due, self._deadline):
                due = now + bookmark_interval_s
                lines.append(self._bookmark())
            if lines:
                await write(b"".join(lines))

            if now >= self._deadline:
                return
            if len(lines) < _CHANGES_AT_ONCE:
                await _wait(changed, min(due, self._deadline) - now)

    @property
    def _table(self) -> Table:
        return self._store.table(self._target.resource)

    def _lines(self) -> Iterator[bytes]:
        changes = self._table.since(self._revision)[:_CHANGES_AT_ONCE]
        for change in changes:
            self._revision = change.revision
            event = self._event(change)
            if event is not None:
                yield self._line(*event)
        if len(changes) < _CHANGES_AT_ONCE:
            self._revision = max(self._revision, self._store.revision)

    def _event(self, change: Change) -> tuple[str, Stored] | None:
        """What a change is to this watcher: an object that comes into its selection is ADDED to it."""
        was = change.before is not None and self._is_wanted(change.key[0], change.before)
        now = change.after is not None and self._is_wanted(change.key[0], change.after)
        shown = change.after if now else change.last
        if shown is None or not (was or now):
            return None
        return _EVENT_TYPES[was, now], shown

    def _is_wanted(self, namespace: str, stored: Stored) -> bool:
        return self._target.namespace in ("", namespace) and (self._wanted is None or self._wanted(stored.body))

    def _line(self, kind: str, stored: Stored) -> bytes:
        return b'{"type":"%s","object":%s}\n' % (kind.encode(), self._view.one(stored))

    def _bookmark(self, annotations: Json | None = None) -> bytes:
        resource = self._target.resource
        metadata: Json = {"resourceVersion": str(self._revision), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        shown = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        return to_bytes({"type": "BOOKMARK", "object": shown}) + b"\n"


def error_line(error: ApiError) -> bytes:
    """An error within a stream."""
    return to_bytes({"type": "ERROR", "object": error.body()}) + b"\n"


async def _wait(changed: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(max(seconds, 0)):
            await changed.wait()
    except TimeoutError:
        return
