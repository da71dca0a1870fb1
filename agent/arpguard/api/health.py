"""grpc.health.v1: what probes ask. Computed for each request from the node's state, so no code keeps it up to date.

The package's own servicer holds a lock while it writes to a slow reader, and its setter waits for that lock.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TypeAlias

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from arpguard.api.clustering import is_well
from arpguard.api.requests import RequestError, stopping
from arpguard.node import ThisNode

_LOOK_S = 0.5
_Status: TypeAlias = int  # of health_pb2.HealthCheckResponse.ServingStatus, which has no types


def statuses(node: ThisNode) -> dict[str, _Status]:
    """The status of each component; "" and the service's name stand for the whole.

    A wrong edit of the configuration makes `config` not serving and nothing else: the last good one is in force.
    `kubernetes` is UNKNOWN while the agent runs without it. It is not part of the whole: an agent that is restarted
    because the API server is unreachable comes no nearer to it.
    """
    cluster = node.cluster
    attached = {attachment.ifindex for attachment in node.state.attachments}
    guarded = all(link.ifindex in attached for link in node.state.links)
    told = node.state.control is not None and node.control.read() is not None
    dataplane = _serving(holds=guarded and told)
    config = _serving(holds=node.in_force is not None and not node.in_force.problem)
    return {
        "": dataplane,
        "arpguard.v1.AgentService": dataplane,
        "dataplane": dataplane,
        "config": config,
        "kubernetes": _serving(holds=is_well(cluster)) if cluster else int(health_pb2.HealthCheckResponse.UNKNOWN),
    }


def _serving(*, holds: bool) -> _Status:
    return int(health_pb2.HealthCheckResponse.SERVING if holds else health_pb2.HealthCheckResponse.NOT_SERVING)


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc] # no types
    """The service."""

    def __init__(self, node: ThisNode) -> None:
        self._node = node
        self._stopping = asyncio.Event()

    def close(self) -> None:
        """Ends all watches."""
        self._stopping.set()

    async def Check(  # noqa: D102, N802
        self, request: health_pb2.HealthCheckRequest, _context: object
    ) -> health_pb2.HealthCheckResponse:
        status = statuses(self._node).get(request.service)
        if status is None:
            known = ", ".join(repr(name) for name in statuses(self._node))
            raise RequestError(grpc.StatusCode.NOT_FOUND, f"service: no such component; the components are {known}")
        return health_pb2.HealthCheckResponse(status=status)

    async def List(  # noqa: D102, N802
        self, _request: health_pb2.HealthListRequest, _context: object
    ) -> health_pb2.HealthListResponse:
        found = statuses(self._node).items()
        return health_pb2.HealthListResponse(
            statuses={name: health_pb2.HealthCheckResponse(status=status) for name, status in found}
        )

    async def Watch(  # noqa: D102, N802
        self, request: health_pb2.HealthCheckRequest, _context: object
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        last = None
        while not self._stopping.is_set():
            unknown = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
            status = statuses(self._node).get(request.service, unknown)
            if status != last:
                yield health_pb2.HealthCheckResponse(status=status)
            last = status
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _LOOK_S)
        raise stopping()
