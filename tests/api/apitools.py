"""What tests/api needs: channels, how a call ends, and the API of a node that a test has made of real maps."""

import asyncio
import os
import shutil
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, TypeVar

import grpc
import pytest
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from grpc_health.v1 import health_pb2, health_pb2_grpc

from arpguard.addresses import BROADCAST_MAC, ZERO_MAC, MacAddress
from arpguard.api.server import ApiServer
from arpguard.clock import boot_ns
from arpguard.config.model import GrpcConfig
from arpguard.core.decisions import ConflictLog, DecisionLog
from arpguard.dataplane import loader
from arpguard.dataplane.maps import ControlValue, EntryTable, RangeTable
from arpguard.model import Decision, EntryKey, Link, NodeControl, NodeState, RangeKey, Surroundings, VipEntry
from arpguard.node import ThisNode
from arpguard.overlay import Overlay
from arpguard.v1 import agent_pb2 as pb
from arpguard.v1 import agent_pb2_grpc
from arpguard.verdict import Hook, Kind, Mode, Reason, Verdict
from arpguard_lab.topology import AgentProcess
from support.netns.waiting import HUNG_S

T = TypeVar("T")

SERVICE = pb.DESCRIPTOR.services_by_name["AgentService"]
UNARY = [method.name for method in SERVICE.methods if not method.server_streaming]
OK = grpc.StatusCode.OK
INVALID = grpc.StatusCode.INVALID_ARGUMENT
NOT_FOUND = grpc.StatusCode.NOT_FOUND
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


def needs_grpcurl() -> str:
    """Where grpcurl is; the test is skipped when it is nowhere."""
    found = shutil.which("grpcurl", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if found is None:
        pytest.skip("grpcurl is not installed: `make .venv/bin/grpcurl` builds it with Go")
    return found


class Api:
    """A channel to an agent and its services."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.channel = channel
        self.agent = agent_pb2_grpc.AgentServiceStub(channel)
        self.health = health_pb2_grpc.HealthStub(channel)

    def __getattr__(self, method: str) -> Callable[..., Any]:
        """`api.GetVip(address=...)`: the answer, within HUNG_S unless the test says otherwise."""

        def call(timeout: float | None = HUNG_S, **fields: object) -> Any:
            return getattr(self.agent, method)(request_of(method)(**fields), timeout=timeout)

        return call

    def raw(self, method: str, data: bytes, service: str = "arpguard.v1.AgentService") -> bytes:
        """A call with these bytes for a request; the answer's bytes."""
        return self.channel.unary_unary(f"/{service}/{method}")(data, timeout=HUNG_S)

    def status_of(self, component: str) -> str:
        """What the health service says of a component."""
        answer = self.health.Check(health_pb2.HealthCheckRequest(service=component), timeout=HUNG_S)
        return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)


def request_of(method: str) -> type[Message]:
    return getattr(pb, SERVICE.methods_by_name[method].input_type.name)


@contextmanager
def an_api(target: str | AgentProcess, *options: tuple[str, int]) -> Iterator[Api]:
    """A connection of its own, however many others this process has."""
    address = target.api if isinstance(target, AgentProcess) else target
    with grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1), *options]) as channel:
        yield Api(channel)


def ended(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    """How a call that fails ends: its status code and message."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code(), caught.value.details()


def seconds(timestamp: Timestamp) -> float:
    return timestamp.seconds + timestamp.nanos / 1e9


# ---- a node without an agent -------------------------------------------------------------------------------------


class Counted:
    """Counts calls by method and status code, readers, and what these lost."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self.watchers = 0
        self.losses = 0

    def observe(self, method: str, code: str, seconds: float) -> None:
        assert seconds >= 0
        self.calls[method, code] += 1

    def watchers_changed(self, delta: int) -> None:
        self.watchers += delta

    def lost(self, count: int) -> None:
        self.losses += count


class Served:
    """A node whose API is served by an event loop in a thread of its own."""

    def __init__(self, node: ThisNode, address: str) -> None:
        self.node = node
        self.address = address
        self.meter = Counted()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def start(self) -> None:
        self._thread.start()
        self._server = self.run(self._started())

    def stop(self) -> None:
        self.run(self._server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Any) -> Any:
        """Waits for a coroutine that runs in the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=HUNG_S)

    def on_loop(self, function: Callable[[], T]) -> T:
        """Calls a function in the server's loop, as the agent's event reader does."""

        async def call() -> T:
            return function()

        return self.run(call())

    def decide(self, *decisions: Decision) -> None:
        """The kernel reported decisions."""
        self.on_loop(lambda: self.publish(*decisions))

    def publish(self, *decisions: Decision) -> None:
        """What the agent does with decisions, in its loop."""
        for decision in decisions:
            report = self.node.decisions.add(decision, self.node.link_name(decision.key.ifindex))
            self.node.conflicts.add(report)
            self._server.publish(report)

    async def _started(self) -> ApiServer:
        server = ApiServer(self.node, self.meter, GrpcConfig(listen=(self.address,)))
        assert await server.serve() == []
        return server


@contextmanager
def served(node: ThisNode, folder: Path) -> Iterator[Served]:
    made = Served(node, f"unix://{folder}/api.sock")
    made.start()
    try:
        yield made
    finally:
        made.stop()


def a_mac(number: int) -> MacAddress:
    return MacAddress(b"\x02\0\0" + number.to_bytes(3, "big"))


def a_link(ifindex: int) -> Link:
    return Link(ifindex, f"eth{ifindex}", a_mac(ifindex), up=True)


def a_node(
    loaded: loader.Loaded,
    entries: Mapping[EntryKey, VipEntry] | None = None,
    control: NodeControl | None = None,
    capacity: int = 10_000,
    links: int = 2,
    ranges: Mapping[RangeKey, VipEntry] | None = None,
) -> ThisNode:
    """A node whose kernel maps have exactly these entries and ranges, and this control."""
    table, value = EntryTable(loaded.maps["entries"], loaded.maps["counters"]), ControlValue(loaded.maps["control"])
    closed = RangeTable(loaded.maps["ranges"], loaded.maps["counters"])
    for kernel, wanted_there in ((table, entries), (closed, ranges)):
        kernel.delete(kernel.read().entries)
        kernel.write(wanted_there or {})
    wanted = control or NodeControl(Mode.ENFORCE, generation=1)
    value.write(wanted)
    known = tuple(a_link(ifindex) for ifindex in range(1, links + 1))
    read_back = dict(sorted(table.read().entries.items(), key=lambda item: item[0].order))
    return ThisNode(
        name="node-1",
        table=table,
        ranges=closed,
        control=value,
        totals=loaded.maps["totals"],
        grants=loaded.maps["grants"],
        programs=loaded.programs,
        state=NodeState(links=known, guarded=Overlay(read_back), ranges=dict(ranges or {}), control=wanted),
        surroundings=Surroundings(known),
        decisions=DecisionLog(capacity),
        conflicts=ConflictLog(capacity),
    )


def a_decision(
    number: int, vip: str = "192.0.2.100", reason: Reason = Reason.FOREIGN, ifindex: int = 1, mode: Mode = Mode.ENFORCE
) -> Decision:
    """A request of host `number`, which is another one for each number."""
    address = IPv4Address(vip)
    return Decision(
        time_ns=boot_ns(),
        key=EntryKey(ifindex, address),
        verdict=Verdict(reason.verdict),
        reason=reason,
        hook=Hook.TC_INGRESS,
        mode=mode,
        kind=Kind.FOREIGN,
        op=1,
        spa=IPv4Address(0x0A000000 + number),
        tpa=address,
        sha=a_mac(number),
        tha=ZERO_MAC,
        eth_src=a_mac(number),
        eth_dst=BROADCAST_MAC,
    )


def number_of(decision: pb.Decision) -> int:
    """The host's number."""
    return int(IPv4Address(decision.spa)) - 0x0A000000
