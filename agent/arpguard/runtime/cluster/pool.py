"""Runs jobs a few at a time, in order. A waiting job is a function, not yet a task: there may be thousands."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from arpguard.clock import boot_ns
from arpguard.core.pacing import Pacing
from arpguard.units import NS_PER_S

Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class TaskPool:
    """Runs at most `most` jobs at once. If one raises, `on_fault` gets the exception, and the others continue."""

    def __init__(self, most: int, on_fault: Callable[[BaseException], None]) -> None:
        self._most = most
        self._on_fault = on_fault
        self._waiting: deque[Work] = deque()
        self._running: set[asyncio.Task[None]] = set()

    def add(self, work: Work) -> None:
        """Queues a job; returns at once."""
        self._waiting.append(work)
        self._fill()

    def stop(self) -> None:
        """Cancels running jobs, and drops waiting ones."""
        self._waiting.clear()
        for task in self._running:
            task.cancel()

    def _fill(self) -> None:
        while self._waiting and self._may_begin():
            task = asyncio.get_running_loop().create_task(self._waiting.popleft()())
            self._running.add(task)
            task.add_done_callback(self._ended)

    def _may_begin(self) -> bool:
        return len(self._running) < self._most

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        fault = None if task.cancelled() else task.exception()
        if fault is not None:
            self._on_fault(fault)
        self._fill()


class PacedPool(TaskPool):
    """Runs as many jobs at once as a server's pace allows."""

    def __init__(self, pacing: Pacing, on_fault: Callable[[BaseException], None]) -> None:
        super().__init__(0, on_fault)
        self._pacing = pacing
        self._timer: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        """Cancels and drops all jobs, and starts none later."""
        super().stop()
        if self._timer is not None:
            self._timer.cancel()

    def _may_begin(self) -> bool:
        now_ns = boot_ns()
        if self._pacing.allows(len(self._running), now_ns):
            return True
        if now_ns < self._pacing.not_before_ns and self._timer is None:
            delay_s = (self._pacing.not_before_ns - now_ns) / NS_PER_S
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._go_on)
        return False

    def _go_on(self) -> None:
        self._timer = None
        self._fill()
