"""Decisions for many readers: each has a bounded queue, and only a slow reader loses some."""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from arpguard.core.decisions import Report, ReportFilter

QUEUE_LEN = 1024


class Reader:
    """One reader's queue. When it is full the oldest report makes room, and is counted as lost."""

    def __init__(self, wanted: ReportFilter) -> None:
        self._wanted = wanted
        self._waiting: deque[Report] = deque(maxlen=QUEUE_LEN)
        self._lost = 0
        self._ready = asyncio.Event()
        self._closed = False

    def offer(self, report: Report) -> bool:
        """Takes a report if it is wanted; returns whether another one was lost for it."""
        if not self._wanted.matches(report):
            return False
        full = len(self._waiting) == QUEUE_LEN
        self._lost += full
        self._waiting.append(report)
        self._ready.set()
        return full

    def close(self) -> None:
        """No more will come."""
        self._closed = True
        self._ready.set()

    async def next(self) -> tuple[Report, int] | None:
        """The oldest report, and how many were lost since the last call; None when no more will come."""
        await self._ready.wait()
        if self._closed:
            return None
        report = self._waiting.popleft()
        if not self._waiting:
            self._ready.clear()
        lost, self._lost = self._lost, 0
        return report, lost


class Broadcast:
    """All readers."""

    def __init__(self) -> None:
        self._readers: set[Reader] = set()

    def publish(self, report: Report) -> int:
        """Offers a report to all readers and waits for none; returns how many reports were lost for it."""
        return sum(reader.offer(report) for reader in self._readers)

    @contextmanager
    def reader(self, wanted: ReportFilter) -> Iterator[Reader]:
        """A reader for as long as it is needed."""
        reader = Reader(wanted)
        self._readers.add(reader)
        try:
            yield reader
        finally:
            self._readers.discard(reader)

    def close(self) -> None:
        """Ends all readers."""
        for reader in self._readers:
            reader.close()
