"""AgentService: hands each method to its answer."""

from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from google.protobuf.message import Message

from arpguard.api import answers, messages
from arpguard.api.calls import Meter
from arpguard.api.messages import WallClock
from arpguard.api.requests import stopping
from arpguard.api.watching import Broadcast
from arpguard.clock import boot_ns
from arpguard.node import Node
from arpguard.v1 import agent_pb2 as pb
from arpguard.v1 import agent_pb2_grpc

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)

_KEEP = 10  # an answer serves for ten times as long as it took to make: a tenth of the agent's time at most
_MAX_KEPT = 16


class _Kept:
    """Answers that many callers share for a moment: what they cost does not grow with the number of callers."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, bytes], tuple[int, Any]] = {}

    def answer(self, make: Callable[[Node, Request], Response], node: Node, request: Request) -> Response:
        """`make(node, request)`, or what that was a moment ago."""
        key = make.__name__, request.SerializeToString(deterministic=True)
        began_ns = boot_ns()
        until_ns, kept = self._answers.pop(key, (0, None))
        if kept is None or began_ns >= until_ns:
            kept = make(node, request)
            done_ns = boot_ns()
            until_ns = done_ns + (done_ns - began_ns) * _KEEP
        self._answers[key] = until_ns, kept
        if len(self._answers) > _MAX_KEPT:
            del self._answers[next(iter(self._answers))]
        return kept  # type: ignore[no-any-return]


class AgentService(agent_pb2_grpc.AgentServiceServicer):
    """The methods; RequestError becomes the call's status in api/calls.py."""

    def __init__(self, node: Node, broadcast: Broadcast, meter: Meter) -> None:
        self._node = node
        self._broadcast = broadcast
        self._meter = meter
        self._kept = _Kept()

    async def GetStatus(self, request: pb.GetStatusRequest, _context: object) -> pb.GetStatusResponse:  # noqa: D102, N802
        return self._kept.answer(answers.get_status, self._node, request)

    async def ListVips(self, request: pb.ListVipsRequest, _context: object) -> pb.ListVipsResponse:  # noqa: D102, N802
        return self._kept.answer(answers.list_vips, self._node, request)

    async def GetVip(self, request: pb.GetVipRequest, _context: object) -> pb.GetVipResponse:  # noqa: D102, N802
        return answers.get_vip(self._node, request)

    async def ExplainVip(self, request: pb.ExplainVipRequest, _context: object) -> pb.ExplainVipResponse:  # noqa: D102, N802
        return answers.explain_vip(self._node, request)

    async def ListDecisions(self, request: pb.ListDecisionsRequest, _context: object) -> pb.ListDecisionsResponse:  # noqa: D102, N802
        return answers.list_decisions(self._node, request)

    async def ListConflicts(self, request: pb.ListConflictsRequest, _context: object) -> pb.ListConflictsResponse:  # noqa: D102, N802
        return answers.list_conflicts(self._node, request)

    async def WatchDecisions(  # noqa: N802
        self, request: pb.WatchDecisionsRequest, _context: object
    ) -> AsyncIterator[pb.WatchDecisionsResponse]:
        """Subscribes before it looks back, in one go: nothing is missing between, and nothing comes twice."""
        wanted = answers.read_filter(request.filter, WallClock.now())
        self._meter.watchers_changed(1)
        try:
            with self._broadcast.reader(wanted) as reader:
                recent = list(self._node.decisions.newest(wanted)) if request.include_recent else []
                for report in reversed(recent):
                    yield pb.WatchDecisionsResponse(decision=messages.decision(report, WallClock.now()))
                while (found := await reader.next()) is not None:
                    report, lost = found
                    yield pb.WatchDecisionsResponse(decision=messages.decision(report, WallClock.now()), lost=lost)
        finally:
            self._meter.watchers_changed(-1)
        raise stopping()
