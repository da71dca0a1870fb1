"""WatchDecisions: what a reader gets, what a slow one loses, how many there may be, and how they end."""

import asyncio
import itertools
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, suppress
from itertools import islice

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from api.apitools import EXHAUSTED, UNAVAILABLE, a_decision, a_node, an_api, ended, number_of, served
from api.conftest import FOREIGN, OWNED
from arpguard.api.calls import MAX_STREAMS, REQUEST_S
from arpguard.api.watching import QUEUE_LEN
from arpguard.v1 import agent_pb2 as pb
from arpguard.verdict import Reason
from arpguard_lab.topology import AgentProcess
from support.netns.agents import said
from support.netns.waiting import HUNG_S, until
from support.netns.wire import a_wire, asking

pytestmark = [pytest.mark.bpf, pytest.mark.netns]

FLOOD = 8000
LEAST_WINDOW = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1))


COMPLAINT = r"Traceback|ERROR|failed|\b[EF]\d{4} "  # the last is gRPC's own


@pytest.fixture
def node(loaded, tmp_path, caplog):
    """However its readers come and go, nothing is logged."""
    with served(a_node(loaded), tmp_path) as made:
        yield made
    assert [record.getMessage() for record in caplog.records] == []


@pytest.fixture
def watched(node):
    with an_api(node.address) as api:
        yield api


def readers(node) -> int:
    return node.on_loop(lambda: node.meter.watchers)


def opened(node, api, **fields) -> grpc.Future:
    """A stream that the server knows of."""
    before = readers(node)
    stream = api.WatchDecisions(timeout=HUNG_S, **fields)
    until(lambda: readers(node) == before + 1)
    return stream


def numbers(stream, count: int) -> list[int]:
    return [number_of(item.decision) for item in islice(stream, count)]


# ---- what comes --------------------------------------------------------------------------------------------------


def test_live_decisions_come_in_order_and_none_of_before(node, watched):
    node.decide(a_decision(1))
    stream = opened(node, watched)
    node.decide(a_decision(2), a_decision(3))
    node.decide(a_decision(4))

    assert numbers(stream, 3) == [2, 3, 4]
    stream.cancel()


def test_repeated_decision_comes_each_time_as_one(node, watched):
    stream = opened(node, watched)
    node.decide(*[a_decision(7)] * 3)

    assert [(number_of(item.decision), item.decision.count, item.lost) for item in islice(stream, 3)] == [(7, 1, 0)] * 3
    assert watched.ListDecisions().decisions[0].count == 3
    stream.cancel()


def test_recent_decisions_come_first_the_oldest_first_collapsed_and_then_what_comes(node, watched):
    node.decide(a_decision(1), a_decision(2), a_decision(1), a_decision(3))
    stream = opened(node, watched, include_recent=True)
    node.decide(a_decision(4), a_decision(1))

    found = [(number_of(item.decision), item.decision.count) for item in islice(stream, 5)]
    assert found == [(2, 1), (1, 2), (3, 1), (4, 1), (1, 1)]
    stream.cancel()


def test_between_recent_and_live_nothing_is_missing_and_nothing_comes_twice(node):
    """Decisions all the time, while ten readers come one after the other and read 50 more than there were."""
    stop = threading.Event()

    def publish() -> None:
        for number in itertools.count():
            node.decide(a_decision(number))
            if stop.wait(0.004):
                return

    with ThreadPoolExecutor() as pool:
        publisher = pool.submit(publish)
        try:
            for _ in range(10):
                with an_api(node.address) as api:
                    stream = api.WatchDecisions(timeout=HUNG_S, include_recent=True)
                    wanted = node.on_loop(lambda: node.node.decisions.received) + 50
                    assert numbers(stream, wanted) == list(range(wanted))
                    stream.cancel()
        finally:
            stop.set()
        publisher.result()


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, [1, 2, 3, 4]),
        ({"vip": "192.0.2.101"}, [2, 4]),
        ({"link": "eth2"}, [3]),
        ({"reason": pb.REASON_CONFLICT}, [4]),
        ({"verdict": pb.VERDICT_SUPPRESS}, [1, 2, 3]),
        ({"verdict": pb.VERDICT_SUPPRESS, "vip": "192.0.2.101"}, [2]),
    ],
    ids=str,
)
@pytest.mark.parametrize("recent", [True, False], ids=["recent", "live"])
def test_filter_holds_for_recent_and_live_decisions(node, watched, wanted, found, recent):
    """The last one, which every filter lets through, ends the stream."""
    decisions = [
        a_decision(1),
        a_decision(2, "192.0.2.101"),
        a_decision(3, ifindex=2),
        a_decision(4, "192.0.2.101", reason=Reason.CONFLICT),
    ]
    if recent:
        node.decide(*decisions)
    stream = opened(node, watched, filter=wanted, include_recent=recent)
    if not recent:
        node.decide(*decisions)
    seen = numbers(stream, len(found))
    stream.cancel()

    assert seen == found
    assert [number_of(item) for item in watched.ListDecisions(filter=wanted).decisions] == (found[::-1])


def test_since_leaves_out_what_was_last_reported_before(node, watched):
    """The time of a decision, asked for again, includes that decision."""
    for number in range(3):
        node.decide(a_decision(number))
        time.sleep(0.002)
    middle = watched.ListDecisions().decisions[1].last_time
    wanted = pb.DecisionFilter(since=middle)
    stream = opened(node, watched, filter=wanted, include_recent=True)

    assert numbers(stream, 2) == [1, 2]
    assert [number_of(item) for item in watched.ListDecisions(filter=wanted).decisions] == [2, 1]
    stream.cancel()


# ---- who is slow -------------------------------------------------------------------------------------------------


def test_slow_reader_loses_the_oldest_and_is_told_exactly_how_many_and_nobody_else_is_disturbed(node):
    """It reads one message, and then nothing while FLOOD decisions are published; its connection buffers little."""
    read: list[int] = []
    with an_api(node.address, *LEAST_WINDOW) as idle, an_api(node.address) as busy, ThreadPoolExecutor() as pool:
        slow, quick = opened(node, idle), opened(node, busy)
        keeps_up = pool.submit(lambda: read.extend(number_of(item.decision) for item in islice(quick, FLOOD + 1)))
        node.decide(a_decision(0))
        assert numbers(slow, 1) == [0]
        for at in range(1, FLOOD + 1, 10):
            node.decide(*(a_decision(number) for number in range(at, at + 10)))
            until(lambda at=at: at - len(read) < QUEUE_LEN // 2, HUNG_S, "the quick reader keeps up")
        keeps_up.result(timeout=HUNG_S)
        found = []
        while not found or found[-1][0] < FLOOD:
            item = next(slow)
            found.append((number_of(item.decision), item.lost))
        slow.cancel()
        quick.cancel()

    assert read == list(range(FLOOD + 1))
    lost = [count for _, count in found if count]
    assert len(found) + sum(lost) == FLOOD
    assert len(lost) == 1, "told once, with the first decision after the gap"
    assert lost[0] == node.on_loop(lambda: node.meter.losses) > FLOOD // 10
    before = 0
    for number, missing in found:
        assert number == before + missing + 1
        before = number
    assert [number for number, _ in found[-QUEUE_LEN:]] == list(range(FLOOD - QUEUE_LEN + 1, FLOOD + 1))


def test_calls_are_answered_while_a_reader_is_stuck(node):
    with an_api(node.address, *LEAST_WINDOW) as idle, an_api(node.address) as other:
        stuck = opened(node, idle)
        node.decide(*(a_decision(number) for number in range(FLOOD)))
        for _ in range(20):
            other.ListConflicts()
        stuck.cancel()
        until(lambda: readers(node) == 0)


def stuck(node, api, time_s: float) -> grpc.Future | None:
    """A stream of which nothing is read, with decisions lost already; nothing where its time was up before that."""
    stream = api.WatchDecisions(timeout=time_s)
    until(lambda: readers(node) == 1 or not stream.is_active())
    before = node.on_loop(lambda: node.meter.losses)
    while node.on_loop(lambda: node.meter.losses) == before:
        if readers(node) == 0:
            return None
        node.decide(*(a_decision(number) for number in range(100)))
    return stream


@pytest.mark.parametrize("how", ["time is up", "cancelled", "connection closed"])
def test_stuck_reader_that_leaves_is_no_failure(node, how):
    """A message is on its way then. The log stays empty, as the fixture sees, and nothing is left of the reader."""
    times_s = (0.3, 1, 3, 10) if how == "time is up" else (60,)
    for _ in range(5):
        with an_api(node.address, *LEAST_WINDOW) as api:
            stream = next(stream for time_s in times_s if (stream := stuck(node, api, time_s)))
            if how == "cancelled":
                stream.cancel()
            if how == "time is up":
                until(lambda: readers(node) == 0, times_s[-1])
        until(lambda: readers(node) == 0)


# ---- how many ----------------------------------------------------------------------------------------------------


def test_64_streams_may_be_open_and_the_next_is_refused_until_one_ends(node):
    """Whatever stands in the way of their ending: half of them are stuck."""
    with ExitStack() as stack:
        connections = [stack.enter_context(an_api(node.address, *LEAST_WINDOW)) for _ in range(2)]
        streams = [opened(node, connections[number % 2]) for number in range(MAX_STREAMS)]
        for call in (
            lambda: next(connections[0].WatchDecisions(timeout=HUNG_S)),
            lambda: next(connections[1].health.Watch(health_pb2.HealthCheckRequest(), timeout=HUNG_S)),
        ):
            code, message = ended(call)
            assert (code, message) == (EXHAUSTED, "64 streams are open: close one of them")
        assert connections[0].GetStatus().node == "node-1"
        assert node.on_loop(lambda: node.meter.calls["WatchDecisions", "RESOURCE_EXHAUSTED"]) == 1
        node.decide(*(a_decision(number) for number in range(FLOOD)))
        streams[0].cancel()
        until(lambda: readers(node) == MAX_STREAMS - 1)
        streams[0] = opened(node, connections[0])
        for stream in streams:
            stream.cancel()
        until(lambda: readers(node) == 0, 10)
        assert opened(node, connections[0]).cancel()


def test_256_calls_may_wait_for_their_request_and_the_next_is_refused_until_they_have_waited_too_long(agent, api):
    """A call counts from its first byte; one whose request does not come gives its place up."""

    async def fill() -> None:
        async with AsyncExitStack() as stack:
            options = [("grpc.use_local_subchannel_pool", 1)]
            channels = [
                await stack.enter_async_context(grpc.aio.insecure_channel(agent.api, options)) for _ in range(2)
            ]
            calls = [asyncio.create_task(call_without_end(channel)) for channel in channels * 128]
            await asyncio.to_thread(until, lambda: code() is EXHAUSTED, 6 * REQUEST_S)
            refused.set()
            await asyncio.to_thread(until, lambda: code() is grpc.StatusCode.OK, REQUEST_S + 5)
            await asyncio.gather(*calls)

    refused = threading.Event()

    async def call_without_end(channel: grpc.aio.Channel) -> None:
        """Opens a call without a request, again if the agent gives it up before all 256 are open."""
        while not refused.is_set():
            with suppress(grpc.RpcError):
                await channel.stream_unary("/arpguard.v1.AgentService/GetStatus")()

    def code() -> grpc.StatusCode:
        try:
            api.GetStatus()
        except grpc.RpcError as error:
            return error.code()
        return grpc.StatusCode.OK

    asyncio.run(fill())


# ---- how they end ------------------------------------------------------------------------------------------------


@pytest.fixture
def mortal(agent) -> Iterator[AgentProcess]:
    """The agent, which the test may stop."""
    yield agent
    agent.kill(signal.SIGTERM)
    agent.start()
    agent.wait_for()


def test_stopping_ends_every_stream_and_says_why(pair, mortal):
    with an_api(mortal) as api:
        watching = api.WatchDecisions(timeout=HUNG_S, include_recent=True)
        health = api.health.Watch(health_pb2.HealthCheckRequest(), timeout=HUNG_S)
        assert next(health).status == health_pb2.HealthCheckResponse.SERVING
        with a_wire(pair.client) as wire:
            wire.exchange([wire.request(FOREIGN)], OWNED)
        while next(watching).decision.vip != str(FOREIGN):
            pass
        mortal.kill(signal.SIGTERM)
        why = (UNAVAILABLE, "the agent is stopping; the guard stays in the kernel")
        assert ended(lambda: list(watching)) == why
        assert ended(lambda: list(health)) == why
        assert ended(api.GetStatus)[0] == UNAVAILABLE
    assert said(mortal, COMPLAINT) == 0


def test_stopping_waits_for_nobody_and_does_not_complain(mortal):
    """For a call whose request never comes, and for a conversation with reflection that the client keeps open."""
    leave = threading.Event()

    def never() -> Iterator[reflection_pb2.ServerReflectionRequest]:
        leave.wait(HUNG_S)
        yield from ()

    def one() -> Iterator[reflection_pb2.ServerReflectionRequest]:
        yield reflection_pb2.ServerReflectionRequest(list_services="")
        yield from never()

    with an_api(mortal) as api:
        waiting = api.channel.stream_unary("/arpguard.v1.AgentService/GetStatus").future(never())
        talking = reflection_pb2_grpc.ServerReflectionStub(api.channel).ServerReflectionInfo(one())
        assert len(next(talking).list_services_response.service) == 3
        process = mortal._process
        mortal.kill(signal.SIGTERM)
        assert process.returncode == 0, "the agent ended by itself"
        leave.set()
        assert ended(waiting.result)[0] == UNAVAILABLE
        assert ended(lambda: list(talking))[0] == UNAVAILABLE
    assert said(mortal, COMPLAINT) == 0


def test_live_stream_follows_the_traffic(pair, agent, api):
    stream = api.WatchDecisions(timeout=HUNG_S, filter={"vip": str(FOREIGN)})
    with asking(pair.client, FOREIGN):
        item = next(stream)
    stream.cancel()

    asker = str(pair.client.address)
    assert (item.decision.spa, item.decision.reason, item.lost) == (asker, pb.REASON_FOREIGN, 0)
