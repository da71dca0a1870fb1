"""Every ARP answer and announcement, and every neighbour advertisement, that enters the switch, and when.

Taken by a packet socket in the switch's namespace, before the bridge sees the frame, with the kernel's time stamps
(packet(7); SO_TIMESTAMPNS, socket(7)): how late this program reads does not matter. The kernel counts what it had to
drop for lack of room, and a record with losses proves nothing, so `drops` belongs to every verdict.
"""

import ctypes
import socket
import struct
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address

from arpguard.addresses import Address, MacAddress
from arpguard.units import NS_PER_S
from arpguard.wire.ndp import parse_nd_frame
from arpguard_lab.netns import Netns

_ETH_P_ALL = 0x0003
_SO_ATTACH_FILTER, _SO_RCVBUFFORCE, _SO_TIMESTAMPNS = 26, 33, 35
_SOL_PACKET, _PACKET_STATISTICS, _PACKET_IGNORE_OUTGOING = 263, 6, 23
_RECEIVE_BUFFER = 32 << 20
_TIMESPEC = struct.Struct("=qq")
_SPACE = socket.CMSG_SPACE(_TIMESPEC.size)
_ARP_LEN = 42
_NA_LEN = 86  # with the one option that matters
_WAIT_S = 0.1
# Classic BPF: ARP, and either a reply, or a request whose spa is its tpa; or ICMPv6 of the type advertisement.
_CLAIMS = (
    (0x28, 0, 0, 12),  # ldh [12]           ethertype
    (0x15, 0, 6, 0x0806),  # jeq #ARP, else IPv6?
    (0x28, 0, 0, 20),  # ldh [20]           op
    (0x15, 9, 0, 2),  # jeq #REPLY, accept
    (0x20, 0, 0, 28),  # ld [28]            spa
    (0x07, 0, 0, 0),  # tax
    (0x20, 0, 0, 38),  # ld [38]            tpa
    (0x1D, 5, 6, 0),  # jeq x, accept, else drop
    (0x15, 0, 5, 0x86DD),  # jeq #IPv6, else drop
    (0x30, 0, 0, 20),  # ldb [20]           next header
    (0x15, 0, 3, 58),  # jeq #ICMPv6, else drop
    (0x30, 0, 0, 54),  # ldb [54]           type
    (0x15, 0, 1, 136),  # jeq #advertisement, else drop
    (0x06, 0, 0, 0x40000),
    (0x06, 0, 0, 0),
)


@dataclass(frozen=True, slots=True)
class Said:
    """A host said that a VIP is its own.

    `time_ns` is the kernel's wall clock; `asked_by` got the answer: the sender's address of the request, and so its
    number. An announcement tells everybody, and so does the answer to an IPv6 probe: then it is the VIP itself.
    """

    time_ns: int
    vip: Address
    mac: MacAddress
    port: str
    asked_by: Address

    @property
    def is_announcement(self) -> bool:
        """Whether nobody had asked."""
        return self.asked_by == self.vip


class Capture:
    """Records in a thread of its own, from `start` to `stop`."""

    def __init__(self, switch: Netns, ports: str = "port") -> None:
        """`ports`: how the names of the switch's ports start that are listened at."""
        self._prefix = ports
        self._socket = switch.call(_open)
        self._said: deque[Said] = deque()
        self._drops = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lab-capture", daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Ends; what was recorded can still be taken."""
        self._stopping.set()
        self._thread.join()
        self._count_drops()
        self._socket.close()

    def take(self) -> list[Said]:
        """What was recorded since the last time, in the order in which it entered the switch."""
        return [self._said.popleft() for _ in range(len(self._said))]

    @property
    def drops(self) -> int:
        """Frames that the kernel could not keep for this program."""
        if not self._stopping.is_set():
            self._count_drops()
        return self._drops

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._record()
        self._socket.settimeout(0)
        while self._record():
            pass  # what was there when it was stopped

    def _record(self) -> bool:
        """Takes the next frame; False when none came in time."""
        try:
            data, control, _, address = self._socket.recvmsg(_NA_LEN, _SPACE)
        except (TimeoutError, BlockingIOError):
            return False
        except OSError:  # a port went down
            return True
        said = _parse(data, control, address[0]) if address[0].startswith(self._prefix) else None
        if said is not None:
            self._said.append(said)
        return True

    def _count_drops(self) -> None:
        statistics = self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8)
        self._drops += struct.unpack("II", statistics)[1]


def _parse(data: bytes, control: list[tuple[int, int, bytes]], port: str) -> Said | None:
    seconds, nanoseconds = next(_TIMESPEC.unpack(raw) for _, kind, raw in control if kind == _SO_TIMESTAMPNS)
    time_ns = seconds * NS_PER_S + nanoseconds
    if data[12:14] == b"\x08\x06" and len(data) >= _ARP_LEN:
        vip, mac, asked_by = IPv4Address(data[28:32]), MacAddress(data[22:28]), IPv4Address(data[38:42])
        return Said(time_ns, vip, mac, port, asked_by)
    packet = parse_nd_frame(data)
    if packet is None:
        return None
    target, dst = packet.message.target, packet.message.dst
    return Said(time_ns, target, packet.sha, port, target if dst.is_multicast else dst)


def _open() -> socket.socket:
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))  # on every port at once
    program = b"".join(struct.pack("HBBI", *step) for step in _CLAIMS)
    code = ctypes.create_string_buffer(program)

    opened.setsockopt(
        socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HxxxxxxP", len(_CLAIMS), ctypes.addressof(code))
    )
    opened.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER)
    opened.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    opened.settimeout(0)

    with suppress(BlockingIOError):
        while True:
            opened.recv(_NA_LEN)  # what came before there was a filter
    opened.settimeout(_WAIT_S)
    return opened
