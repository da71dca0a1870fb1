"""Frames of vouching that a node sends are lost, late, doubled or replayed, on their way through the switch.

A program at the switch's port loses frames (`loss`). A packet socket hears them before that, and sends them again:
later, more than once, or long after, in whatever term they were.
"""

import heapq
import socket
import threading
import time
from collections import Counter, deque
from contextlib import suppress
from enum import Enum
from random import Random

from arpguard.dataplane.packetsocket import attach_filter
from arpguard.dataplane.syscall import Fd
from arpguard_lab.cluster.loss import lose
from arpguard_lab.netns import Netns
from arpguard_lab.topology import Host

ETHERTYPE = 0x88B5  # lease.vouching.ethertype, unless it says another

_ETH_P_ALL = 0x0003
_SOL_PACKET, _PACKET_IGNORE_OUTGOING = 263, 23
_SO_RCVBUFFORCE, _RECEIVE_BUFFER = 33, 4 << 20
_LONGEST = 256
_TURN_S = 0.005
_REMEMBERED = 20_000  # about two minutes of three nodes
_LATEST_S, _DOUBLED_S = 1.5, 0.05
_FILTER = (
    (0x28, 0, 0, 12),  # ldh [12]
    (0x15, 0, 1, ETHERTYPE),
    (0x06, 0, 0, 0x40000),
    (0x06, 0, 0, 0),
)


class Way(Enum):
    """What happens to the frames that a node sends, and how many of a hundred are lost."""

    SOME_LOST = ("20 % lost", 20)
    MANY_LOST = ("60 % lost", 60)
    LOST = ("lost", 100)
    LATE = ("late", 100)
    DOUBLED = ("doubled", 0)
    REPLAYED = ("replayed", 0)

    def __init__(self, text: str, percent: int) -> None:
        self.text = text
        self.percent = percent


class Meddler:
    """Meddles in a thread of its own, from `start` to `stop`.

    `heard`: how many frames nodes have sent; `sent`: how many it sent again, by way.
    """

    def __init__(self, switch: Netns, seed: int) -> None:
        self._switch = switch
        self._dice = Random(f"{seed} frames")  # noqa: S311 - no secret
        self._socket = switch.call(_open)
        self._ways: dict[str, Way] = {}  # of ports
        self._links: dict[str, list[Fd]] = {}
        self._before: deque[bytes] = deque(maxlen=_REMEMBERED)
        self._due: list[tuple[float, int, bytes]] = []
        self._number = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lab-meddler", daemon=True)
        self.heard = 0
        self.sent: Counter[Way] = Counter()

    def start(self) -> None:
        """Begins to listen."""
        self._thread.start()

    def stop(self) -> None:
        """Ends all of it."""
        self._stopping.set()
        self._thread.join()
        for port in list(self._ways):
            self._end(port)
        self._socket.close()

    @property
    def waiting(self) -> int:
        """How many frames it is still to send."""
        return len(self._due)

    def begin(self, host: Host, way: Way) -> None:
        """From now on this happens to what a node sends."""
        self._end(host.port)
        if way.percent:
            self._links[host.port] = self._switch.call(lambda: lose(host.port, way.percent, ETHERTYPE))
        self._ways[host.port] = way

    def end(self, host: Host) -> None:
        """The end of `begin`."""
        self._end(host.port)

    def _end(self, port: str) -> None:
        self._ways.pop(port, None)
        for link in self._links.pop(port, []):
            link.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            with suppress(TimeoutError, OSError):  # a port may go down at any time
                data, address = self._socket.recvfrom(_LONGEST)
                self._hear(address[0], data)
            now_s = time.monotonic()
            while self._due and self._due[0][0] <= now_s:
                _, _, frame = self._due[0]
                with suppress(OSError):
                    self._socket.sendto(frame, (_port_to(frame), 0))
                heapq.heappop(self._due)

    def _hear(self, port: str, frame: bytes) -> None:
        self._before.append(frame)
        way = self._ways.get(port)
        if way is Way.LATE:
            self._send(way, frame, _LATEST_S)
        elif way is Way.DOUBLED:
            for _ in range(self._dice.randint(1, 3)):
                self._send(way, frame, _DOUBLED_S)
        elif way is Way.REPLAYED:
            self._send(way, self._dice.choice(self._before), _DOUBLED_S)
        self.heard += 1

    def _send(self, way: Way, frame: bytes, within_s: float) -> None:
        self._number += 1
        self.sent[way] += 1
        heapq.heappush(self._due, (time.monotonic() + self._dice.uniform(0.0, within_s), self._number, frame))


def _port_to(frame: bytes) -> str:
    """The switch's port behind which the node is that a frame is for: MACs end as ports do (topology.py)."""
    return f"port{frame[5]}"


def _open() -> socket.socket:
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
    attach_filter(opened, _FILTER)
    opened.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER)
    opened.settimeout(_TURN_S)
    return opened
