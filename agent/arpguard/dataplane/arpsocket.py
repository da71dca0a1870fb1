"""ARP on the wire of one interface: asks, and hears every frame, also those that tc drops afterwards (packet(7))."""

import ctypes
import select
import socket
import struct
import time
from dataclasses import dataclass
from ipaddress import IPv4Address

from arpguard.addresses import MacAddress
from arpguard.errors import DataPlaneError
from arpguard.wire.arp import ArpOp, ArpPacket, build_request, parse_arp_frame
from arpguard.wire.ethernet import ETHERTYPE_ARP

_ETH_P_ALL = 0x0003  # taps of all protocols run before tc ingress
_SO_ATTACH_FILTER = 26
_PACKET_OUTGOING = 4
_RECEIVE_BUFFER = 4 << 20
# Classic BPF: ldh [12]; jeq #0x0806, accept, drop
_ONLY_ARP = ((0x28, 0, 0, 12), (0x15, 0, 1, ETHERTYPE_ARP), (0x06, 0, 0, 0x40000), (0x06, 0, 0, 0))


@dataclass(frozen=True, slots=True)
class Heard:
    """An ARP packet that came in, and when (nanoseconds of CLOCK_MONOTONIC)."""

    packet: ArpPacket
    eth_src: MacAddress
    time_ns: int


class ArpSocket:
    """A raw socket on an interface of the calling thread's network namespace.

    Raises DataPlaneError when the interface is not there or raw sockets are refused.
    """

    def __init__(self, ifname: str) -> None:
        try:
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        except PermissionError as error:
            raise DataPlaneError("raw sockets are refused: run as root, or with CAP_NET_RAW") from error
        program = b"".join(struct.pack("HBBI", *step) for step in _ONLY_ARP)
        code = ctypes.create_string_buffer(program)
        try:
            self._socket.setsockopt(
                socket.SOL_SOCKET,
                _SO_ATTACH_FILTER,
                struct.pack("HxxxxxxP", len(_ONLY_ARP), ctypes.addressof(code)),
            )
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
            self._socket.bind((ifname, _ETH_P_ALL))
        except OSError as error:
            self._socket.close()
            raise DataPlaneError(
                f"cannot listen on interface {ifname} ({error.strerror}): name one that is there"
            ) from error
        self.mac = MacAddress(self._socket.getsockname()[4])

    def fileno(self) -> int:
        """What to wait for."""
        return self._socket.fileno()

    def send(self, frame: bytes) -> None:
        """Sends a whole frame."""
        self._socket.send(frame)

    def hear(self, wait_s: float) -> Heard | None:
        """The next ARP packet from outside; None after `wait_s` seconds without one."""
        deadline = time.monotonic() + wait_s
        while True:
            left = deadline - time.monotonic()
            if not select.select([self._socket], [], [], max(0.0, left))[0]:
                return None
            data, address = self._socket.recvfrom(2048)
            packet = parse_arp_frame(data) if address[2] != _PACKET_OUTGOING else None
            if packet is not None:
                return Heard(packet, MacAddress(data[6:12]), time.monotonic_ns())

    def ask(self, address: IPv4Address, spa: IPv4Address, *, count: int = 3, wait_s: float = 0.3) -> list[Heard]:
        """Asks `count` times who has `address`, and listens `wait_s` seconds each time: every reply that came."""
        replies = []
        for _ in range(count):
            self.send(build_request(self.mac, spa, address))
            deadline = time.monotonic() + wait_s
            while (heard := self.hear(deadline - time.monotonic())) is not None:
                packet = heard.packet
                if packet.op is ArpOp.REPLY and packet.spa == address and packet.tha == self.mac:
                    replies.append(heard)
        return replies

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()
