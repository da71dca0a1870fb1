"""In place of the API while the agent waits for the previous one to end: tells probes that it is well.

The agent before it has the TCP ports of the node; a socket in the Pod's own folder is this one's alone.
"""

from contextlib import suppress
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from arpguard.api.server import Listener
from arpguard.config.model import GrpcConfig
from arpguard.errors import ListenError

WAITS = "this agent is on standby until this node's current agent stops: ask that agent"


class Standby:
    """Answers API calls while on standby, on those of the configured sockets that can be opened."""

    def __init__(self, config: GrpcConfig) -> None:
        self._addresses = [address for address in config.listen if address.startswith("unix:")]
        self._listeners: list[Listener] = []

    async def start(self) -> None:
        """Starts; obstacles show once this agent is no longer on standby."""
        for address in self._addresses:
            with suppress(ListenError):
                listener = Listener(address)
                health_pb2_grpc.add_HealthServicer_to_server(_Health(), listener.server)
                listener.server.add_generic_rpc_handlers((_Refusal(),))
                await listener.start()
                self._listeners.append(listener)

    async def stop(self) -> None:
        """Ends it, and takes the sockets away."""
        for listener in self._listeners:
            await listener.stop()


class _Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc] # no types
    async def Check(  # noqa: N802
        self, _request: health_pb2.HealthCheckRequest, _context: object
    ) -> health_pb2.HealthCheckResponse:
        return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)


class _Refusal(grpc.GenericRpcHandler):  # type: ignore[type-arg] # generic in the stubs only
    """Refuses every other call."""

    def service(self, _details: grpc.HandlerCallDetails) -> Any:
        return grpc.unary_unary_rpc_method_handler(_refuse)


async def _refuse(_request: bytes, context: "grpc.aio.ServicerContext[Any, Any]") -> None:
    await context.abort(grpc.StatusCode.UNAVAILABLE, WAITS)
