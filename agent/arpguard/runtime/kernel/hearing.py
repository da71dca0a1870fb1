"""Reads the kernel's reports, with at most a share of a core: a flood on the link makes many reports."""

import asyncio
import time
from collections.abc import Callable
from typing import Self

from arpguard.dataplane.events import EventReader

SHARE = 0.03  # of one core
BURST_S = 0.1  # of CPU, for thousands of reports: so much is saved up in quiet times


class Hearing:
    """Reads a source on the running loop, within its `with` block, and pauses when that has cost more than its share.

    Meanwhile reports wait in the ring buffer; the kernel counts those that it has no room for. However much one round
    has cost, as on a starved machine, no pause is longer than BURST_S / SHARE: a few seconds.
    """

    def __init__(self, source: EventReader, cpu_s: Callable[[], float] = time.thread_time) -> None:
        self._source = source
        self._cpu_s = cpu_s
        self._loop = asyncio.get_running_loop()
        self._credit_s, self._counted_s = BURST_S, self._loop.time()
        self._pause: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self._listen()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.remove_reader(self._source.fileno())
        if self._pause is not None:
            self._pause.cancel()

    def _listen(self) -> None:
        self._loop.add_reader(self._source.fileno(), self._take)

    def _take(self) -> None:
        began_s = self._cpu_s()
        self._source.consume()
        now_s, spent_s = self._loop.time(), self._cpu_s() - began_s
        saved_s = min(BURST_S, self._credit_s + SHARE * (now_s - self._counted_s))
        self._credit_s = max(-BURST_S, saved_s - spent_s)
        self._counted_s = now_s
        if self._credit_s < 0:
            self._loop.remove_reader(self._source.fileno())
            self._pause = self._loop.call_later(-self._credit_s / SHARE, self._listen)
