"""Waiting for whatever comes first: what happens, or a moment."""

import asyncio

from arpguard.clock import boot_ns
from arpguard.units import NS_PER_S


class Alarm:
    """Somebody to wake, and what he sleeps with: one that was woken while he was awake does not sleep."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def wake(self) -> None:
        """Something has happened."""
        self._event.set()

    @property
    def woken(self) -> bool:
        """Whether something has happened that nobody has taken note of yet."""
        return self._event.is_set()

    def clear(self) -> None:
        """All that has happened until now is taken note of."""
        self._event.clear()

    async def sleep_until(self, moment_ns: int | None) -> bool:
        """Sleeps until a moment of the boot clock, None: for ever; True when something has happened before."""
        return await self.sleep_for(None if moment_ns is None else max(0, moment_ns - boot_ns()) / NS_PER_S)

    async def sleep_for(self, seconds: float | None) -> bool:
        """Sleeps for so long, None: for ever; True when something has happened before."""
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return False
        return True
