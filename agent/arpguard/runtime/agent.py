"""The running agent: how its parts start, run side by side, and end. `wiring` builds it."""

import asyncio
import logging
import signal
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

from arpguard.dataplane.events import EventReader
from arpguard.errors import RestoredError
from arpguard.runtime.controlplane import ControlPlane, End
from arpguard.runtime.kernel.hearing import Hearing
from arpguard.runtime.kernel.listening import Listening
from arpguard.runtime.passes import Passes, Upkeep
from arpguard.runtime.serving import Serving

log = logging.getLogger(__name__)


class Runner(Protocol):
    """A part that runs beside the others."""

    async def run(self) -> None:
        """Runs until it is cancelled, or has nothing left to do."""


@dataclass(frozen=True, slots=True)
class Agent:
    """The complete agent; `others` are parts that only have to run."""

    plane: ControlPlane
    passes: Passes
    upkeep: Upkeep
    listening: Listening
    serving: Serving
    events: EventReader
    others: Sequence[Runner]

    async def run(self, stopping: asyncio.Event) -> End:
        """Guards the node until `stopping` is set; returns why.

        Raises DataPlaneError if the first pass fails, and RestoredError when another agent has to start.
        """
        with closing(self.events), closing(self.listening):
            await self.listening.follow()  # first of all: questions for the last agent's VIPs arrive meanwhile
            try:
                await self.passes.make_first()
                await self.serving.serve()
                self.passes.say_when_ready()
                return await self._run_parts(stopping)
            except ExceptionGroup as group:
                _, others = group.split(RestoredError)
                if others is not None:
                    raise
                raise RestoredError from None
            finally:
                await self.serving.stop()

    async def _run_parts(self, stopping: asyncio.Event) -> End:
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stopping.set)
        parts: list[Runner] = [self.upkeep, self.listening, self.serving, self.plane, *self.others]

        with Hearing(self.events):
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(part.run()) for part in parts]
                await stopping.wait()
                end = await self.plane.leave()
                for task in running:
                    task.cancel()

        if not end.removes_guard:
            log.info("stopped: the guard stays in place; `arpguard cleanup` removes it")
        return end
