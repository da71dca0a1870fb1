"""The loop of the voucher's process, with a scripted node in place of its sockets.

On a cable a sender that lacks a CPU for a moment leaves the socket empty: here it has more to read as long as a test
wants it to.
"""

import json
import os
import socket
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from arpguard.clock import boot_ns
from arpguard.core.vouching.voucher import AdoptedTerm, OwnRight
from arpguard.runtime.tracefile import BufferedTrace, TraceFile
from arpguard.runtime.voucher import loop
from arpguard.runtime.voucher.messages import Adopt, News, Phase, Priority, TermNews, decode_news, encode
from arpguard.units import NS_PER_MS, NS_PER_S
from arpguard.wire.vouching import VouchFrame, VouchType, pack, parse

TERM, EPOCH, KEY, D_NS = 5, 7, b"k" * 16, 300 * NS_PER_MS
FORGED = pack(VouchFrame(VouchType.PONG, TERM, 1, 1), b"x" * 16)


class Node:
    """Answers pings until it dies. `flooded`: its socket always has one more frame, which somebody else forged."""

    def __init__(self) -> None:
        self.alive, self.flooded = True, False
        self._readable, self._wakes = os.pipe()  # nothing is ever read: the loop is woken each time
        os.write(self._wakes, b"x")
        self._pongs: deque[bytes] = deque()
        self._heard = 0

    def socket(self, *_: object) -> "Node":
        return self

    def fileno(self) -> int:
        return self._readable

    def send(self, payload: bytes) -> bool:
        frame = parse(payload, KEY)
        if self.alive and frame.type is VouchType.PING:
            stamp_ns = boot_ns()
            pong = VouchFrame(VouchType.PONG, TERM, frame.number, stamp_ns, stamp_ns + NS_PER_S, bound=True)
            self._pongs.append(pack(pong, KEY))
        return True

    def hear(self) -> bytes | None:
        return self._pongs.popleft() if self._pongs else FORGED if self.flooded else None

    def frames_heard(self) -> int:
        self._heard += 1
        return self._heard

    def close(self) -> None:
        os.close(self._readable)
        os.close(self._wakes)


class Agent:
    """The other end of the loop's channel."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._channel.settimeout(30)

    def hear(self) -> News:
        return decode_news(self._channel.recv(loop.LONGEST_COMMAND * 4))

    def phase_at(self, moment_ns: int) -> Phase:
        """The phase that the voucher reports after that moment."""
        while True:
            news = self.hear()
            if isinstance(news, TermNews) and boot_ns() > moment_ns:
                return news.phase

    def granted_ns(self) -> int:
        while True:
            news = self.hear()
            if isinstance(news, TermNews) and news.report and news.report.bound and news.report.granted_ns:
                return news.report.granted_ns


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def trace(tmp_path) -> Path:
    return tmp_path / "trace"


@pytest.fixture
def agent(node, trace, monkeypatch) -> Iterator[Agent]:
    """The agent of a voucher that vouches for the node, and leaves a trace."""
    monkeypatch.setattr(loop, "VouchSocket", node.socket)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    buffered = BufferedTrace(TraceFile(trace, "node-1", "of the agent"))
    running = loop.Loop("instance", 0x88B5, theirs, lambda: OwnRight(EPOCH, boot_ns() + NS_PER_S), buffered)
    thread = threading.Thread(target=running.run, args=(Priority.ORDINARY,))

    ours.send(encode(Adopt(AdoptedTerm(TERM, "instance", EPOCH, D_NS), "eth0", bytes(6), KEY)))
    thread.start()
    try:
        yield Agent(ours)
    finally:
        ours.close()
        thread.join()
        running.close()


def test_nothing_is_decided_while_there_is_something_to_read(node, agent):
    """V6: what waits in the socket may be a pong."""
    granted_ns = agent.granted_ns()
    node.flooded, node.alive = True, False
    assert agent.phase_at(granted_ns + 4 * D_NS) is Phase.VOUCHING

    node.flooded = False
    while agent.phase_at(0) is not Phase.DECIDED:
        pass


def test_the_trace_has_what_was_granted_and_by_what_and_why_the_term_ended(node, agent, trace):
    agent.granted_ns()
    node.alive = False
    while '"term decided"' not in trace.read_text():  # written once the agent has been told
        agent.hear()

    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    adopted, *others = lines
    assert adopted["term"] == {"number": TERM, "instance": "instance", "epoch": EPOCH, "d_ns": D_NS, "trial": False}
    assert others[0]["event"] == "granted"
    assert {line["event"] for line in others} == {"granted", "bound seen", "term decided"}

    granted = [line for line in lines if line["event"] == "granted"]
    for line in granted:
        assert line["number"] == TERM
        assert line["ping"] <= line["stamp_ns"] <= line["heard_ns"] <= line["noted_ns"] <= line["ns"]
        assert line["right"]["epoch"] == EPOCH
    assert lines[-1]["ns"] >= granted[-1]["noted_ns"] + D_NS
