"""Work done a few at a time, in its order. What waits is a function, and no task: there may be thousands."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class Pool:
    """Does at most `most` at once. A fault of one is told to `on_fault`, and the others go on."""

    def __init__(self, most: int, on_fault: Callable[[BaseException], None]) -> None:
        self._most = most
        self._on_fault = on_fault
        self._waiting: deque[Work] = deque()
        self._running: set[asyncio.Task[None]] = set()

    def add(self, work: Work) -> None:
        """Takes work; returns at once."""
        self._waiting.append(work)
        self._fill()

    def stop(self) -> None:
        """Ends what runs, and forgets what waits."""
        self._waiting.clear()
        for task in self._running:
            task.cancel()

    def _fill(self) -> None:
        while self._waiting and len(self._running) < self._most:
            task = asyncio.get_running_loop().create_task(self._waiting.popleft()())
            self._running.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        fault = None if task.cancelled() else task.exception()
        if fault is not None:
            self._on_fault(fault)
        self._fill()
