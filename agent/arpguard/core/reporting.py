"""Which Kubernetes Events to write, so that what happens a thousand times is one Event, and floods cause few Events.

This works as client-go's recorders do. An Event that repeats within SERIES_END is a series (tools/events): the second
time is written at once, later ones are counted and written every REFRESH, and the last count when the series has ended.
New Events are limited for each object (tools/record, spam filter), and for the node, which may guard many objects:
once for those without a recent Event, and once for the rest, so that no noise hides what is new.
"""

from collections import OrderedDict
from dataclasses import dataclass, replace

from arpguard.core.bounding import remember
from arpguard.core.tokens import TokenBucket
from arpguard.units import NS_PER_S

SERIES_END_NS = 360 * NS_PER_S
REFRESH_NS = 1800 * NS_PER_S
OBJECT_BURST, OBJECT_INTERVAL_NS = 25, 300 * NS_PER_S
NODE_BURST, NODE_INTERVAL_NS = 100, 1 * NS_PER_S
CAPACITY = 4096  # of series, and of objects with a limit; client-go's caches have this size
_LONGEST_PREFIX = 200  # a name has at most 253 characters, and 17 of them are the time


@dataclass(frozen=True, slots=True)
class Subject:
    """The object that an Event is about; without a namespace, the object is cluster-scoped."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something to report. Notices with the same `note` are one series, so it holds no counts and no times."""

    subject: Subject
    reason: str
    action: str
    note: str
    warning: bool = True


@dataclass(frozen=True, slots=True)
class Posting:
    """An Event to write: a new Event if `count` is 1, else the series of an existing one. Times: wall clock."""

    name: str
    notice: Notice
    count: int
    first_wall_ns: int
    last_wall_ns: int


@dataclass(slots=True)
class _Series:
    posting: Posting
    written: int
    written_ns: int
    heard_ns: int


class EventBook:
    """The recent Events. `now_ns` is CLOCK_BOOTTIME, and decides; `wall_ns` is what the Event shows."""

    def __init__(self) -> None:
        self._series: OrderedDict[Notice, _Series] = OrderedDict()
        self._objects: OrderedDict[Subject, TokenBucket] = OrderedDict()
        self._quiet, self._noisy = (TokenBucket(NODE_BURST, NODE_INTERVAL_NS) for _ in range(2))
        self.suppressed = 0

    def say(self, notice: Notice, now_ns: int, wall_ns: int) -> Posting | None:
        """The Event to write now that this has happened; None: only counted, or over the limit."""
        series = self._series.get(notice)
        if series is None or now_ns - series.heard_ns >= SERIES_END_NS:
            return self._begin(notice, now_ns, wall_ns)
        series.heard_ns = now_ns
        series.posting = replace(series.posting, count=series.posting.count + 1, last_wall_ns=wall_ns)
        self._series.move_to_end(notice)
        is_due = series.posting.count == 2 or now_ns - series.written_ns >= REFRESH_NS
        return self._written(series, now_ns) if is_due else None

    def take_ended(self, now_ns: int) -> list[Posting]:
        """The series that have ended, and whose last count nobody has seen."""
        ended = []
        while self._series:
            notice, series = next(iter(self._series.items()))
            if now_ns - series.heard_ns < SERIES_END_NS:
                break
            del self._series[notice]
            if series.written < series.posting.count:
                ended.append(series.posting)
        return ended

    def lost(self, notice: Notice) -> None:
        """Notes that a series' Event is gone, or could not be written: the next one is a new Event."""
        self._series.pop(notice, None)

    def _begin(self, notice: Notice, now_ns: int, wall_ns: int) -> Posting | None:
        own = self._bucket(notice.subject)
        node = self._quiet if own.is_full(now_ns) else self._noisy
        if not (own.take(now_ns) and node.take(now_ns)):
            self.suppressed += 1
            return None
        name = f"{notice.subject.name[:_LONGEST_PREFIX].rstrip('.-')}.{wall_ns:x}"
        posting = Posting(name, notice, 1, wall_ns, wall_ns)
        remember(self._series, notice, _Series(posting, 1, now_ns, now_ns), CAPACITY)
        return posting

    def _bucket(self, subject: Subject) -> TokenBucket:
        bucket = self._objects.get(subject) or TokenBucket(OBJECT_BURST, OBJECT_INTERVAL_NS)
        remember(self._objects, subject, bucket, CAPACITY)
        return bucket

    def _written(self, series: _Series, now_ns: int) -> Posting:
        series.written, series.written_ns = series.posting.count, now_ns
        return series.posting
