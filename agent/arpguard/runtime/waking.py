"""Sleeping until something happens, or until a moment has come."""

import asyncio

from arpguard.clock import boot_ns
from arpguard.units import NS_PER_S

RETRY_S = 0.5  # what this node itself refuses is tried again so soon


class Alarm:
    """Wakes a task that sleeps on it. If it rang while the task was awake, the next sleep ends immediately."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def wake(self) -> None:
        """Something has happened: ends the sleep."""
        self._event.set()

    @property
    def woken(self) -> bool:
        """Whether something has happened since the last `clear`."""
        return self._event.is_set()

    def clear(self) -> None:
        """Takes note of all that has happened so far."""
        self._event.clear()

    async def sleep_until(self, *moments_ns: int | None) -> bool:
        """Sleeps until the first of some moments of the boot clock (None: never), or until woken; True when woken."""
        first_ns = min((each for each in moments_ns if each is not None), default=None)
        return await self.sleep_for(None if first_ns is None else max(0, first_ns - boot_ns()) / NS_PER_S)

    async def sleep_for(self, seconds: float | None) -> bool:
        """Sleeps for so long (None: forever), or until woken; True when woken."""
        return await is_set_within(self._event, seconds)


async def is_set_within(event: asyncio.Event, seconds: float | None) -> bool:
    """Waits until an event is set, or for so long (None: forever); True when it is set."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
