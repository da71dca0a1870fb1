"""AgentService: hands each method to its answer."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from google.protobuf.message import Message

from arpguard.api import answers, messages
from arpguard.api.calls import Meter
from arpguard.api.messages import MessageClock
from arpguard.api.requests import MAX_PAGE_SIZE, stopping
from arpguard.api.watching import Broadcast
from arpguard.clock import boot_ns
from arpguard.node import Auditor, ThisNode
from arpguard.units import NS_PER_MS, NS_PER_S
from arpguard.v1 import agent_pb2 as pb
from arpguard.v1 import agent_pb2_grpc

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)

_KEEP = 10  # an answer serves for ten times as long as it took to make
_MAX_KEPT = 16
_CHEAP_NS = NS_PER_MS


class _Kept:
    """Answers that many callers share for a moment, made one at a time.

    After a slow answer it pauses for as long: however many callers ask for different things, half of the agent's time
    is left for its other work.
    """

    def __init__(self) -> None:
        self._answers: dict[tuple[str, bytes], tuple[int, Any]] = {}
        self._turn = asyncio.Lock()

    async def answer(self, make: Callable[[ThisNode, Request], Response], node: ThisNode, request: Request) -> Response:
        """`make(node, request)`, or its result from a moment ago."""
        key = make.__name__, request.SerializeToString(deterministic=True)
        kept = self._fresh(key)
        if kept is None:
            async with self._turn:
                kept = self._fresh(key) or await self._make(key, make, node, request)
        return kept  # type: ignore[no-any-return]

    def _fresh(self, key: tuple[str, bytes]) -> Any:
        until_ns, kept = self._answers.get(key, (0, None))
        return kept if boot_ns() < until_ns else None

    async def _make(
        self, key: tuple[str, bytes], make: Callable[[ThisNode, Request], Response], node: ThisNode, request: Request
    ) -> Response:
        began_ns = boot_ns()
        answer = make(node, request)
        cost_ns = boot_ns() - began_ns
        self._answers.pop(key, None)
        self._answers[key] = began_ns + cost_ns * (_KEEP + 1), answer
        if len(self._answers) > _MAX_KEPT:
            del self._answers[next(iter(self._answers))]
        if cost_ns > _CHEAP_NS:
            await asyncio.sleep(cost_ns / NS_PER_S)
        return answer


class AgentService(agent_pb2_grpc.AgentServiceServicer):
    """The methods; RequestError becomes the call's status in api/calls.py."""

    def __init__(self, node: ThisNode, broadcast: Broadcast, meter: Meter, auditor: Auditor | None) -> None:
        self._node = node
        self._auditor = auditor
        self._broadcast = broadcast
        self._meter = meter
        self._kept = _Kept()

    async def GetStatus(self, request: pb.GetStatusRequest, _context: object) -> pb.GetStatusResponse:  # noqa: D102, N802
        return await self._kept.answer(answers.get_status, self._node, request)

    async def ListVips(self, request: pb.ListVipsRequest, _context: object) -> pb.ListVipsResponse:  # noqa: D102, N802
        request.page_size = min(request.page_size, MAX_PAGE_SIZE)  # more is taken for this: the same answer
        return await self._kept.answer(answers.list_vips, self._node, request)

    async def GetVip(self, request: pb.GetVipRequest, _context: object) -> pb.GetVipResponse:  # noqa: D102, N802
        return answers.get_vip(self._node, request)

    async def ExplainVip(self, request: pb.ExplainVipRequest, _context: object) -> pb.ExplainVipResponse:  # noqa: D102, N802
        return await self._kept.answer(answers.explain_vip, self._node, request)

    async def ListDecisions(self, request: pb.ListDecisionsRequest, _context: object) -> pb.ListDecisionsResponse:  # noqa: D102, N802
        return await self._kept.answer(answers.list_decisions, self._node, request)

    async def ListConflicts(self, request: pb.ListConflictsRequest, _context: object) -> pb.ListConflictsResponse:  # noqa: D102, N802
        return await self._kept.answer(answers.list_conflicts, self._node, request)

    async def ListAudits(self, request: pb.ListAuditsRequest, _context: object) -> pb.ListAuditsResponse:  # noqa: D102, N802
        return await self._kept.answer(answers.list_audits, self._node, request)

    async def AuditVip(self, request: pb.AuditVipRequest, _context: object) -> pb.AuditVipResponse:  # noqa: D102, N802
        return await answers.audit_vip(self._node, self._auditor, request)

    async def WatchDecisions(  # noqa: N802
        self, request: pb.WatchDecisionsRequest, _context: object
    ) -> AsyncIterator[pb.WatchDecisionsResponse]:
        """Subscribes and looks back in one step: no decision is missing in between, and none comes twice."""
        wanted = answers.read_filter(request.filter, MessageClock.now())
        self._meter.watchers_changed(1)
        try:
            with self._broadcast.reader(wanted) as reader:
                recent = list(self._node.decisions.newest(wanted)) if request.include_recent else []
                while recent:  # none is kept longer than it has to be
                    report = recent.pop()
                    yield pb.WatchDecisionsResponse(decision=messages.decision(report, MessageClock.now()))
                while (found := await reader.next()) is not None:
                    report, lost = found
                    yield pb.WatchDecisionsResponse(decision=messages.decision(report, MessageClock.now()), lost=lost)
        finally:
            self._meter.watchers_changed(-1)
        raise stopping()
