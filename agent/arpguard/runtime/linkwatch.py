"""Watches the links, addresses and routes of this node."""

import asyncio
import logging
import time

from arpguard.dataplane.netlink import read_surroundings, watch_changes
from arpguard.errors import DataPlaneError
from arpguard.model import Surroundings
from arpguard.runtime.inthread import in_thread
from arpguard.runtime.waking import RETRY_S, Alarm

log = logging.getLogger(__name__)

LOOK_PAUSE = 3  # times as long as reading links and routes takes: with BGP, routes may change all the time


class LinkWatch:
    """Reads the surroundings; wakes `passes` when they have `changed` since."""

    def __init__(self, passes: Alarm) -> None:
        self._passes = passes
        self._surroundings = Surroundings()
        self._look_s = 0.0
        self.changed = True

    async def look(self, *, anew: bool) -> Surroundings:
        """The surroundings as they are now; reread if `anew`, otherwise as of the kernel's last report of a change.

        Raises DataPlaneError.
        """
        if anew or self.changed:
            self.changed = False
            try:
                self._surroundings, self._look_s = await in_thread(_read)
            except BaseException:
                self._note_change()  # whatever it was, it has not been read
                raise
        return self._surroundings

    async def run(self) -> None:
        """Watches until it is cancelled."""
        while True:
            try:
                async for _ in watch_changes():
                    self._note_change()
                    await asyncio.sleep(LOOK_PAUSE * self._look_s)
            except DataPlaneError as error:
                log.warning("%s; trying again", error)
                self._note_change()
                await asyncio.sleep(RETRY_S)

    def _note_change(self) -> None:
        self.changed = True
        self._passes.wake()


async def _read() -> tuple[Surroundings, float]:
    """The surroundings, and how long the CPU took to read them, in seconds."""
    began_s = time.thread_time()
    return await read_surroundings(), time.thread_time() - began_s
