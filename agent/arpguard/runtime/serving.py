"""Serves the API and the metrics; while an address is taken, the agent still guards the node, and retries.

Readers can wait, but clients of the VIPs cannot. So the agent imports the modules that serve only once the node is
guarded: importing them takes as long as importing all modules that guard.
"""

import asyncio

from arpguard.core.decisions import Report
from arpguard.errors import ListenError
from arpguard.node import Auditor, ThisNode
from arpguard.runtime.settings import Settings
from arpguard.runtime.waking import RETRY_S, Alarm


class _Servers:
    """What serves: the gRPC API and, on `metrics`, the exporter. Raises ConfigError for TLS files it cannot use."""

    def __init__(self, node: ThisNode, auditor: Auditor, settings: Settings) -> None:
        from arpguard.api.server import ApiServer  # noqa: PLC0415 - see above
        from arpguard.observe.exporter import Exporter  # noqa: PLC0415
        from arpguard.observe.metrics import ApiMetrics, node_registry  # noqa: PLC0415

        self.registry = node_registry(node)
        self.api = ApiServer(node, ApiMetrics(self.registry), settings.config.grpc, auditor)
        self.exporter = Exporter()
        self._metrics = settings.started_with.metrics.listen

    async def serve(self) -> list[str]:
        """Starts what does not serve yet; returns what is in the way."""
        problems = await self.api.serve()
        try:
            if not self.exporter.port:
                self.exporter.start(self._metrics, self.registry)
        except ListenError as error:
            problems.append(str(error))
        return problems

    async def stop(self) -> None:
        """Stops serving."""
        self.exporter.close()
        await self.api.stop()


class Serving:
    """Wakes `passes` when its `problems` have changed."""

    def __init__(self, node: ThisNode, auditor: Auditor, settings: Settings, passes: Alarm) -> None:
        self._node = node
        self._auditor = auditor
        self._settings = settings
        self._passes = passes
        # TLS files that cannot be used end a start before it guards anything.
        self._servers = _Servers(node, auditor, settings) if settings.config.grpc.tls else None
        self.problems: tuple[str, ...] = ()

    async def run(self) -> None:
        """Tries again until it serves everything."""
        while self.problems:
            await asyncio.sleep(RETRY_S)
            await self.serve()

    async def serve(self) -> None:
        """Starts what it does not serve yet."""
        self._servers = self._servers or _Servers(self._node, self._auditor, self._settings)
        problems = tuple(await self._servers.serve())
        if problems != self.problems:
            self.problems = problems
            self._passes.wake()

    def publish(self, report: Report) -> None:
        """Sends a decision to all clients that watch; there are none before it serves."""
        if self._servers is not None:
            self._servers.api.publish(report)

    async def stop(self) -> None:
        """Stops serving."""
        if self._servers is not None:
            await self._servers.stop()
