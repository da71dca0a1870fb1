"""Objects and their history, as etcd keeps them: one revision for all, and every table as it was at any of the last.

Every write is atomic, and nothing here waits. A stored object is never changed, only replaced.
A watcher keeps a revision and asks for the changes since: however slow it is, it holds up nobody, and costs no
memory. What it has not read when the history is cut, it cannot read any more.
"""

import asyncio
import itertools
import json
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, TypeAlias

from arpguard_lab.apiserver import statuses
from arpguard_lab.apiserver.resources import Resource

Json: TypeAlias = dict[str, Any]
Key: TypeAlias = tuple[str, str]  # namespace, name

HISTORY_LEN = 10_000
RATE_WINDOW_S = 10.0
_revision_of = attrgetter("revision")


def to_bytes(value: object) -> bytes:
    """JSON without spaces."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


class Stored:
    """One version of an object. It carries no apiVersion and kind: those depend on who asks."""

    __slots__ = ("_tail", "body", "revision")

    def __init__(self, body: Json, revision: int) -> None:
        self.body = body
        self.revision = revision
        self._tail: dict[tuple[tuple[str, str], ...], bytes] = {}

    def bare(self, resource: Resource) -> bytes:
        """As JSON without apiVersion and kind."""
        tail = self._tail.get(resource.renames)
        if tail is None:
            tail = self._tail[resource.renames] = to_bytes(renamed(self.body, resource))
        return tail

    def full(self, resource: Resource) -> bytes:
        """As JSON with apiVersion and kind."""
        head = f'{{"kind":"{resource.kind}","apiVersion":"{resource.api_version}",'
        return head.encode() + self.bare(resource)[1:]


def renamed(body: Json, resource: Resource) -> Json:
    """A stored body with the field names of a resource that is kept under another one's."""
    if not resource.renames:
        return body
    names = {stored: here for here, stored in resource.renames}
    return {names.get(field, field): value for field, value in body.items()}


@dataclass(frozen=True, slots=True)
class Change:
    """One write: what was there, and what is there now."""

    revision: int
    key: Key
    before: Stored | None
    after: Stored | None
    last: Stored | None  # `before` at this revision: what a watcher is shown of an object that has gone for it
    time_ns: int = field(default_factory=time.time_ns)  # wall clock


class Table:
    """All objects of one resource, now and lately."""

    def __init__(self, revision: int, live: Mapping[Key, Stored] | None = None) -> None:
        self.live = dict(live or {})
        self.changed = asyncio.Event()  # set by the next change; whoever waits takes it first, then looks, then waits
        self._changes: list[Change] = []
        self._dropped = revision  # the newest change that is no longer known
        self._oldest = revision  # the oldest state that may be asked for
        self._watchable = revision  # the oldest revision that a watch may start from

    def record(self, change: Change) -> None:
        """Takes a change in, and wakes who waits for one."""
        if change.after is None:
            del self.live[change.key]
        else:
            self.live[change.key] = change.after
        self._changes.append(change)
        if len(self._changes) > 2 * HISTORY_LEN:
            self._drop(len(self._changes) - HISTORY_LEN)
        self.wake()

    def wake(self) -> None:
        """Lets everybody look again."""
        woken, self.changed = self.changed, asyncio.Event()
        woken.set()

    def require_watchable(self, revision: int) -> None:
        """410 if a watch cannot start from a revision."""
        if revision < self._watchable:
            raise statuses.too_old(revision, self._watchable)

    def since(self, revision: int) -> Sequence[Change]:
        """The changes after a revision, oldest first; 410 if they are not all known any more."""
        if revision < self._dropped:
            raise statuses.too_old(revision, self._dropped)
        return self._after(revision)

    def at(self, revision: int) -> Mapping[Key, Stored]:
        """All objects as they were; 410 if that is too long ago."""
        if revision < self._oldest:
            raise statuses.too_old(revision, self._oldest)
        past = dict(self.live)
        for change in reversed(self._after(revision)):
            if change.before is None:
                past.pop(change.key, None)
            else:
                past[change.key] = change.before
        return past

    def expire(self, revision: int) -> None:
        """No watch can start from before a revision; those that run continue."""
        self._watchable = revision

    def compact(self, revision: int) -> None:
        """The states before a revision are gone, and a watcher that has not read up to it is lost."""
        self._drop(len(self._changes) - len(self._after(revision)))
        self._oldest = self._watchable = revision
        self.wake()

    def _after(self, revision: int) -> list[Change]:
        return self._changes[bisect_right(self._changes, revision, key=_revision_of) :]

    def _drop(self, count: int) -> None:
        if count:
            self._dropped = self._changes[count - 1].revision
            self._oldest = max(self._oldest, self._dropped)
            self._watchable = max(self._watchable, self._dropped)
            del self._changes[:count]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole state at one revision."""

    revision: int
    tables: Mapping[tuple[str, str], Mapping[Key, Stored]]


class Store:
    """All tables under one revision."""

    def __init__(self) -> None:
        self.revision = 1
        self._tables: dict[tuple[str, str], Table] = {}
        self._written: deque[float] = deque()

    def table(self, resource: Resource) -> Table:
        """The table of a resource."""
        return self._tables.setdefault(resource.table, Table(1))

    def write(self, resource: Resource, key: Key, body: Json | None) -> Stored:
        """Puts or (None) removes an object; its new version, or the last one of what is gone."""
        table = self.table(resource)
        self.revision += 1
        before = table.live.get(key)
        after = None if body is None else Stored(_at(body, self.revision), self.revision)
        last = None if before is None else Stored(_at(before.body, self.revision), self.revision)
        written = after or last
        if written is None:
            raise KeyError(key)
        table.record(Change(self.revision, key, before, after, last))
        self._written.append(time.monotonic())
        return written

    def write_rate(self) -> float:
        """Writes per second over the last ten."""
        since = time.monotonic() - RATE_WINDOW_S
        while self._written and self._written[0] < since:
            self._written.popleft()
        return len(self._written) / RATE_WINDOW_S

    def require(self, revision: int) -> None:
        """504 for a revision that has not been reached."""
        if revision > self.revision:
            raise statuses.from_the_future(revision, self.revision)

    def expire(self) -> None:
        """Empties the watch cache: a watch can continue only from the present."""
        for table in self._tables.values():
            table.expire(self.revision)

    def compact(self) -> None:
        """Forgets the past altogether: continued lists are gone too."""
        for table in self._tables.values():
            table.compact(self.revision)

    def snapshot(self) -> Snapshot:
        """The state now."""
        return Snapshot(self.revision, {name: dict(table.live) for name, table in self._tables.items()})

    def restore(self, snapshot: Snapshot, bump: int = 0) -> None:
        """Goes back to a snapshot. The revision goes back too, plus `bump` (etcdutl's --bump-revision)."""
        self.revision = snapshot.revision + bump
        old = self._tables
        self._tables = {name: Table(self.revision, live) for name, live in snapshot.tables.items()}
        for table in old.values():
            table.wake()

    def names(self, namespace: str) -> list[tuple[tuple[str, str], Key]]:
        """(table, key) of everything in a namespace."""
        found = ((name, key) for name, table in self._tables.items() for key in table.live)
        return [(name, key) for name, key in found if key[0] == namespace]


def page(objects: Mapping[Key, Stored], after: Key | None) -> Sequence[tuple[Key, Stored]]:
    """The objects in the order of their keys, from behind one on."""
    ordered = sorted(objects.items(), key=lambda item: item[0])
    if after is None:
        return ordered
    return list(itertools.dropwhile(lambda item: item[0] <= after, ordered))


def _at(body: Json, revision: int) -> Json:
    return {**body, "metadata": {**body["metadata"], "resourceVersion": str(revision)}}
