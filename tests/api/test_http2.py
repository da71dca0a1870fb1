"""Frames of HTTP/2 that no honest client sends: the agent stays small, and others are answered meanwhile."""

import time

import grpc
import pytest

from api import rawhttp2 as h2
from api.apitools import an_api
from api.conftest import OWNED
from api.rawhttp2 import Connection, frame, literal, settings
from api.test_fuzz import COMPLAINT
from arpguard.runtime.memory import GIVE_BACK_INTERVAL_S
from support.netns.agents import pid_of
from support.netns.waiting import until
from support.processes import descriptors, resident_kib

pytestmark = [pytest.mark.bpf, pytest.mark.netns]

MOST_KIB = 40 << 10
LEFT_KIB = 8 << 10
ROUNDS = 20
FEWEST = 4  # connections of a flood; what the agent opens itself meanwhile is fewer
BATCH = 1000
BATCHES = 10  # of each connection


def settings_flood(connection: Connection, _round: int) -> bool:
    """Each asks for an answer (CVE-2019-9515)."""
    return connection.send(settings(header_table_size=4096) * BATCH)


def ping_flood(connection: Connection, _round: int) -> bool:
    """CVE-2019-9512."""
    return connection.send(frame(h2.PING, payload=b"12345678") * BATCH)


def rapid_reset(connection: Connection, number: int) -> bool:
    """Calls that are taken back at once (CVE-2023-44487)."""
    first = 1 + 2 * BATCH * number
    streams = range(first, first + 2 * BATCH, 2)
    cancel = (8).to_bytes(4, "big")
    return connection.send(b"".join(h2.request(each) + frame(h2.RST_STREAM, 0, each, cancel) for each in streams))


def made_reset(connection: Connection, number: int) -> bool:
    """The server is made to take calls back (CVE-2025-8671): by window updates of nothing."""
    first = 1 + 2 * 100 * number
    update = lambda each: frame(h2.WINDOW_UPDATE, 0, each, bytes(4))  # noqa: E731
    return connection.send(b"".join(h2.request(each) + update(each) for each in range(first, first + 200, 2)))


def continuation_flood(connection: Connection, number: int) -> bool:
    """Headers that do not end (CVE-2024-27316)."""
    begin = frame(h2.HEADERS, 0, 1, literal(":method", "POST")) if not number else b""
    return connection.send(begin + frame(h2.CONTINUATION, 0, 1, literal("x", "y" * 1000)) * BATCH)


def empty_continuations(connection: Connection, number: int) -> bool:
    begin = frame(h2.HEADERS, 0, 1) if not number else b""
    return connection.send(begin + frame(h2.CONTINUATION, 0, 1) * BATCH)


def huge_headers(connection: Connection, number: int) -> bool:
    return connection.send(h2.request(1 + 2 * number, {"x-huge": "x" * 15_000}))


def empty_data(connection: Connection, number: int) -> bool:
    """CVE-2019-9518."""
    begin = h2.request(1, ended=False) if not number else b""
    return connection.send(begin + frame(h2.DATA, 0, 1) * BATCH)


def large_message(connection: Connection, number: int) -> bool:
    """A message that says it has 4 GiB."""
    first = h2.request(1 + 2 * number, ended=False) + frame(
        h2.DATA, 0, 1 + 2 * number, b"\0\xff\xff\xff\xff" + bytes(16_000)
    )
    return connection.send(first)


def priorities(connection: Connection, number: int) -> bool:
    """Of streams that there are not, each to depend on the one before it (CVE-2019-9513)."""
    first = 1 + 2 * BATCH * number
    depends = lambda on: on.to_bytes(4, "big") + b"\xff"  # noqa: E731
    streams = range(first + 2, first + 2 * BATCH, 2)
    return connection.send(b"".join(frame(h2.PRIORITY, 0, each, depends(each - 2)) for each in streams))


def unknown_frames(connection: Connection, _round: int) -> bool:
    return connection.send(frame(0x42, 0xFF, 0x7FFFFFFF, b"x" * 100) * BATCH)


def window_updates(connection: Connection, _round: int) -> bool:
    return connection.send(frame(h2.WINDOW_UPDATE, payload=(1).to_bytes(4, "big")) * BATCH)


FLOODS = [
    settings_flood,
    ping_flood,
    rapid_reset,
    made_reset,
    continuation_flood,
    empty_continuations,
    huge_headers,
    empty_data,
    large_message,
    priorities,
    unknown_frames,
    window_updates,
]


def path_of(agent) -> str:
    return agent.api.removeprefix("unix://")


@pytest.fixture
def steady(agent):
    """Afterwards the agent is as large as before, has no descriptors of theirs, and has complained of nothing."""
    pid = pid_of(agent)
    until(lambda: is_answered(agent), 20)
    until(lambda: descriptors(pid) < 60, 20)
    before = resident_kib(pid), descriptors(pid)
    yield
    until(lambda: descriptors(pid) < before[1] + FEWEST, 20, "the connections' descriptors are closed")
    until(lambda: resident_kib(pid) - before[0] < MOST_KIB, 40, "the memory of their calls is given back")
    assert COMPLAINT.findall(agent.log.read_text(encoding="utf-8", errors="replace")) == []


def is_answered(agent) -> bool:
    """A caller of its own; one that comes while all places are taken is let in when one is free."""
    with an_api(agent) as api:
        try:
            return api.GetVip(address=str(OWNED)).vips[0].owner == "node-1"
        except grpc.RpcError:
            return False


@pytest.mark.parametrize("flood", FLOODS)
@pytest.mark.parametrize("reads", [True, False], ids=["who reads", "who does not read"])
def test_flood_costs_little_memory_and_nobody_else(agent, steady, flood, reads):
    """Who does not read makes the server keep what it has to say."""
    connections = [Connection(path_of(agent), reads=reads) for _ in range(FEWEST)]
    for number in range(BATCHES):
        for connection in list(connections):
            connection.patience(20 if reads else 0.2)
            if not flood(connection, number):  # the server has ended it, or reads no more
                connections.remove(connection)
                connection.close()
    until(lambda: is_answered(agent), 20)
    for connection in connections:
        connection.close()


def many_fields(number: int) -> bytes:
    """Part of a call's headers that never end: 30,000 fields."""
    begin = frame(h2.HEADERS, 0, 1, literal(":method", "POST")) if not number else b""
    return begin + frame(h2.CONTINUATION, 0, 1, literal("x", "y") * 3000) * 10


def test_memory_of_calls_with_thousands_of_fields_is_given_back(agent):
    """gRPC needs tens of MB for such calls, and glibc would keep them."""
    pid = pid_of(agent)
    until(lambda: is_answered(agent), 20)
    time.sleep(2 * GIVE_BACK_INTERVAL_S)  # the agent first returns what the floods above have left
    before, most = resident_kib(pid), 0
    for _ in range(ROUNDS):
        connection = Connection(path_of(agent), reads=False)
        for number in range(ROUNDS):
            connection.send(many_fields(number))
        most = max(most, resident_kib(pid))
        connection.close()

    assert most - before > 4 * LEFT_KIB
    until(lambda: resident_kib(pid) - before < LEFT_KIB, 40, "the memory of broken calls is given back")
    assert is_answered(agent)


def test_callers_that_take_no_answer_leave_places_to_others(agent, steady):
    """With a window of nothing no answer goes out: of 60 connections with 100 calls each."""
    first = h2.PREFACE + settings(initial_window_size=0)
    connections = [Connection(path_of(agent), first) for _ in range(60)]
    for connection in connections:
        connection.send(b"".join(h2.request(1 + 2 * number) for number in range(100)))
    try:
        until(lambda: is_answered(agent), 30)
    finally:
        for connection in connections:
            connection.close()


def test_slow_and_half_closed_callers_lose_their_places(agent, steady):
    """Who sends a byte now and then; who has said all, and is not gone."""
    slow = [Connection(path_of(agent), b"P") for _ in range(40)]
    half = [Connection(path_of(agent)) for _ in range(20)]
    for connection in half:
        connection.send(h2.request(1))
        connection.say_no_more()
    for byte in h2.PREFACE[1:6]:
        for connection in slow:
            connection.send(bytes([byte]))
    try:
        until(lambda: is_answered(agent), 30)
    finally:
        for connection in slow + half:
            connection.close()
