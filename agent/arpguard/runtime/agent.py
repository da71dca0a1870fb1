"""The running agent: how its parts start, run side by side, and end. `wiring` builds it."""

import asyncio
import logging
import signal
from collections.abc import Sequence
from contextlib import closing
from typing import Protocol

from arpguard.dataplane.events import EventReader
from arpguard.runtime.cluster.leaving import End
from arpguard.runtime.controlplane import ControlPlane
from arpguard.runtime.kernel.hearing import Hearing
from arpguard.runtime.kernel.listening import Listening
from arpguard.runtime.passes import Passes, Upkeep
from arpguard.runtime.serving import Serving

log = logging.getLogger(__name__)


class Runner(Protocol):
    """A part that runs beside the others."""

    async def run(self) -> None:
        """Runs until it is cancelled, or has nothing left to do."""


class Agent:
    """The complete agent; `others` are parts that only have to run."""

    def __init__(
        self,
        plane: ControlPlane,
        passes: Passes,
        upkeep: Upkeep,
        listening: Listening,
        serving: Serving,
        events: EventReader,
        others: Sequence[Runner],
    ) -> None:
        self._plane = plane
        self._passes = passes
        self._upkeep = upkeep
        self._listening = listening
        self._serving = serving
        self._events = events
        self._others = others

    async def run(self, stopping: asyncio.Event) -> End:
        """Guards the node until `stopping` is set; returns why. Raises DataPlaneError if the first pass fails."""
        with closing(self._events), closing(self._listening):
            await self._listening.follow()  # first of all: questions for the last agent's VIPs arrive meanwhile
            try:
                await self._passes.make_first()
                await self._serving.serve()
                self._passes.say_when_ready()
                return await self._run_parts(stopping)
            finally:
                await self._serving.stop()

    async def _run_parts(self, stopping: asyncio.Event) -> End:
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stopping.set)
        parts: list[Runner] = [self._upkeep, self._listening, self._serving, self._plane, *self._others]

        with Hearing(self._events):
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(part.run()) for part in parts]
                await stopping.wait()
                end = await self._plane.leave()
                for task in running:
                    task.cancel()

        if end is not End.REMOVED:
            log.info("stopped: the guard stays in place; `arpguard cleanup` removes it")
        return end
