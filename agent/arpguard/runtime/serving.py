"""Serves the API and the metrics: what is in their way does not keep the guard from its work, and is tried again."""

import asyncio

from prometheus_client import CollectorRegistry

from arpguard.api.server import ApiServer
from arpguard.errors import ListenError
from arpguard.observe.exporter import Exporter
from arpguard.runtime.waking import Alarm

RETRY_S = 0.5


class Serving:
    """`problems` are what is in the way; wakes `passes` when they are others. `metrics` is where to listen."""

    def __init__(self, api: ApiServer, registry: CollectorRegistry, metrics: str, passes: Alarm) -> None:
        self._api = api
        self._exporter = Exporter()
        self._registry = registry
        self._metrics = metrics
        self._passes = passes
        self.problems: tuple[str, ...] = ()

    async def run(self) -> None:
        """Tries again until all is served."""
        while self.problems:
            await asyncio.sleep(RETRY_S)
            await self.serve()

    async def serve(self) -> None:
        """Starts what is not served yet."""
        problems = await self._api.serve()
        try:
            if not self._exporter.port:
                self._exporter.start(self._metrics, self._registry)
        except ListenError as error:
            problems.append(str(error))
        if tuple(problems) != self.problems:
            self.problems = tuple(problems)
            self._passes.wake()

    async def stop(self) -> None:
        """Answers nobody any more."""
        self._exporter.close()
        await self._api.stop()
