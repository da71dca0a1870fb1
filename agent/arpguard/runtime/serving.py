"""Serves the API and the metrics; while an address is taken, the agent guards the node all the same, and retries."""

import asyncio

from prometheus_client import CollectorRegistry

from arpguard.api.server import ApiServer
from arpguard.errors import ListenError
from arpguard.observe.exporter import Exporter
from arpguard.runtime.waking import RETRY_S, Alarm


class Serving:
    """Wakes `passes` when its `problems` have changed. `metrics` is the address to serve metrics on; empty: none."""

    def __init__(self, api: ApiServer, registry: CollectorRegistry, metrics: str, passes: Alarm) -> None:
        self._api = api
        self._exporter = Exporter()
        self._registry = registry
        self._metrics = metrics
        self._passes = passes
        self.problems: tuple[str, ...] = ()

    async def run(self) -> None:
        """Tries again until it serves everything."""
        while self.problems:
            await asyncio.sleep(RETRY_S)
            await self.serve()

    async def serve(self) -> None:
        """Starts what it does not serve yet."""
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
        """Stops serving."""
        self._exporter.close()
        await self._api.stop()
