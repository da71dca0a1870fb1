"""Raw frames on a cable: sent as they are, heard whole, and requests all the time."""

import itertools
import math
import os
import select
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from arpguard.addresses import BROADCAST_MAC, ZERO_MAC, MacAddress
from arpguard.units import NS_PER_S
from arpguard.wire.arp import ArpOp, ArpPacket, build_frame, parse_arp
from arpguard.wire.ethernet import ETHERTYPE_ARP, parse_ethernet
from arpguard_lab.neighbours import with_room
from arpguard_lab.netns import Netns
from arpguard_lab.topology import Host
from support.netns.waiting import ANSWER_S, until
from support.programs.prog_run import hexdump
from support.repeating import repeated

_numbers = itertools.count(1)
_SOL_PACKET, _PACKET_AUXDATA, _PACKET_IGNORE_OUTGOING = 263, 8, 23
_PACKET_VERSION, _PACKET_TX_RING = 10, 13
_ETH_P_ALL = 0x0003
_SO_RCVBUFFORCE, _SO_TIMESTAMPNS = 33, 35
_TIMESPEC = struct.Struct("=qq")
_AUXDATA = struct.Struct("=IIIHHHH")
_VLAN_VALID = 0x10
_CONTROL = socket.CMSG_SPACE(_AUXDATA.size) + socket.CMSG_SPACE(_TIMESPEC.size)


def arp_of(frame: bytes) -> ArpPacket | None:
    """The ARP packet in a frame, behind any tags; None when there is none."""
    parsed = parse_ethernet(frame)
    return parse_arp(parsed.payload) if parsed is not None and parsed.ethertype == ETHERTYPE_ARP else None


def claims(frames: Sequence[bytes], vip: IPv4Address) -> list[bytes]:
    """Those of the frames that say who has the VIP: any ARP with it as spa."""
    return [frame for frame in frames if (packet := arp_of(frame)) is not None and packet.spa == vip]


def shown(frames: Sequence[bytes]) -> str:
    """Frames for a person; what comes after the body and some padding is left out."""
    lines = []
    for frame in frames:
        lines += [f"{len(frame)} bytes, {arp_of(frame)}", hexdump(frame[:96])]
    return "\n".join(lines) or "  (nothing)"


@contextmanager
def _one_cpu() -> Iterator[None]:
    """veth keeps the order of what one CPU sends."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def a_raw_socket(netns: Netns, ethertype: int = 0, device: str = "eth0") -> socket.socket:
    """Sends frames as they are; with an EtherType it hears frames of it, as they are behind the programs, too."""

    def opened() -> socket.socket:
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        made.bind((device, ethertype))
        return made

    return netns.call(opened)


class Wire:
    """The raw end of a host's cable: sends frames as they are, and hears every ARP frame, VLAN tags in their place.

    `also` is another EtherType that is heard.
    """

    def __init__(self, host: Host, device: str = "eth0", also: int = ETHERTYPE_ARP) -> None:
        self.mac = host.mac
        self.address = host.address
        self.heard_ns = 0  # when the kernel had the last frame that was heard, by the wall clock
        self._heard = (ETHERTYPE_ARP, also)
        self._socket = host.netns.call(lambda: self._open(device))

    @staticmethod
    def _open(device: str) -> socket.socket:
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        opened.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
        opened.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        opened.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 16 << 20)
        opened.bind((device, _ETH_P_ALL))
        return opened

    def send(self, frame: bytes) -> None:
        self._socket.send(frame)

    def hear(self, wait_s: float) -> bytes | None:
        """The next frame from outside; None after `wait_s` seconds without one."""
        deadline = time.monotonic() + wait_s
        while select.select([self._socket], [], [], max(0.0, deadline - time.monotonic()))[0]:
            try:
                data, control, _, _ = self._socket.recvmsg(65536, _CONTROL)
            except OSError:  # the link went down
                continue

            said = {(level, kind): raw for level, kind, raw in control}
            status, _, _, _, _, tci, tpid = _AUXDATA.unpack_from(said[_SOL_PACKET, _PACKET_AUXDATA])
            if status & _VLAN_VALID:
                data = data[:12] + struct.pack("!HH", tpid or 0x8100, tci) + data[12:]

            parsed = parse_ethernet(data)
            if parsed is not None and parsed.ethertype in self._heard:
                seconds, rest_ns = _TIMESPEC.unpack_from(said[socket.SOL_SOCKET, _SO_TIMESTAMPNS])
                self.heard_ns = seconds * NS_PER_S + rest_ns
                return data

        return None

    def listen(self, seconds: float, until_ns: float = math.inf) -> list[bytes]:
        """Everything that comes in for so long; of that, what the kernel had before a time."""
        deadline = time.monotonic() + seconds
        heard = []
        while (frame := self.hear(deadline - time.monotonic())) is not None:
            if self.heard_ns < until_ns:
                heard.append(frame)
        return heard

    def exchange(
        self, frames: Sequence[bytes], mark: IPv4Address, send: Callable[[bytes], None] | None = None
    ) -> list[bytes]:
        """Sends frames (by `send`, if given), then a probe for `mark`; gives what was heard before its answer.

        Frames are worked on in the order they were sent in, so whatever they cause comes before that answer:
        this is how to hear that nothing comes, without waiting for it. A probe leaves no neighbour entry behind.
        """
        heard, answered = self._exchange(frames, mark, ANSWER_S, send or self.send)
        assert answered, f"{mark} was not answered; heard\n{shown(heard)}"
        return heard

    def answers(self, mark: IPv4Address, wait_s: float = 0.1) -> bool:
        """Whether anybody answers a probe for an address."""
        try:
            return self._exchange([], mark, wait_s, self.send)[1]
        except OSError:  # the link is down
            return False

    def _exchange(
        self, frames: Sequence[bytes], mark: IPv4Address, wait_s: float, send: Callable[[bytes], None]
    ) -> tuple[list[bytes], bool]:
        while self.hear(0) is not None:
            pass
        sha = MacAddress(b"\x02\xee" + next(_numbers).to_bytes(4, "big"))
        probe = ArpPacket(ArpOp.REQUEST, sha, IPv4Address(0), ZERO_MAC, mark)
        with _one_cpu():
            for frame in frames:
                send(frame)
            self.send(build_frame(probe, BROADCAST_MAC, sha))
        heard = []
        deadline = time.monotonic() + wait_s
        while (frame := self.hear(deadline - time.monotonic())) is not None:
            packet = arp_of(frame)
            if packet is not None and packet.op is ArpOp.REPLY and packet.spa == mark and packet.tha == sha:
                return heard, True
            heard.append(frame)
        return heard, False

    def request(self, vip: IPv4Address, spa: IPv4Address | None = None) -> bytes:
        """An ordinary request of this host."""
        packet = ArpPacket(ArpOp.REQUEST, self.mac, spa or self.address, ZERO_MAC, vip)
        return build_frame(packet, BROADCAST_MAC, self.mac)

    def who(self, vip: IPv4Address, mark: IPv4Address) -> list[MacAddress]:
        """The MACs that answer a request for the VIP, one for each answer.

        Asked again where nobody did, and a kernel had no room for whom to answer.
        """
        return with_room(lambda: self._who(vip, mark), bool)

    def _who(self, vip: IPv4Address, mark: IPv4Address) -> list[MacAddress]:
        heard = claims(self.exchange([self.request(vip)], mark), vip)
        replies = [packet for frame in heard if (packet := arp_of(frame)) is not None and packet.op is ArpOp.REPLY]
        return [packet.sha for packet in replies if packet.tpa != vip]  # announcements have the form of replies too

    def close(self) -> None:
        self._socket.close()


@contextmanager
def a_wire(host: Host, device: str = "eth0", also: int = ETHERTYPE_ARP) -> Iterator[Wire]:
    wire = Wire(host, device, also)
    try:
        yield wire
    finally:
        wire.close()


@contextmanager
def asking(host: Host, vip: IPv4Address) -> Iterator[None]:
    """The host asks for the VIP all the time."""
    with a_wire(host) as wire, repeated(lambda: wire.send(wire.request(vip)), 0.02):
        yield


@dataclass
class Stream:
    """What came of a stream of requests."""

    sent: int = 0
    replies: Counter[IPv4Address] = field(default_factory=Counter)
    macs: set[MacAddress] = field(default_factory=set)

    @property
    def lost(self) -> int:
        return self.sent - len(self.replies)

    @property
    def doubled(self) -> int:
        return sum(self.replies.values()) - len(self.replies)


class _Disturbance(threading.Thread):
    """Runs a function beside the stream, and keeps what it raised."""

    def __init__(self, function: Callable[[], object]) -> None:
        super().__init__()
        self._function = function
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._function()
        except BaseException as error:  # noqa: BLE001 - raised again by the stream
            self.failure = error


def stream(host: Host, vip: IPv4Address, disturb: Callable[[], object], margin: int = 300) -> Stream:
    """A request each millisecond, each from another address: `margin` of them, more while `disturb` runs, and
    `margin` after it."""
    seen = Stream()
    worker = _Disturbance(disturb)
    with a_wire(host) as wire:

        def ask(count: int) -> None:
            for _ in range(count):
                seen.sent += 1
                wire.send(wire.request(vip, IPv4Address(0x0A000000 + seen.sent)))
                take(0.001)

        def take(wait_s: float) -> None:
            while (frame := wire.hear(wait_s)) is not None:
                packet = arp_of(frame)
                if packet is not None and packet.op is ArpOp.REPLY and (packet.spa, packet.tha) == (vip, wire.mac):
                    seen.replies[packet.tpa] += 1
                    seen.macs.add(packet.sha)

        ask(margin)
        worker.start()
        while worker.is_alive():
            ask(1)
        ask(margin)
        take(0.3)
    if worker.failure is not None:
        raise worker.failure
    return seen


class FragmentSender:
    """Sends frames of which only the Ethernet header is in the linear part of the skb (packet(7), PACKET_TX_RING)."""

    _BLOCK = 4096

    def __init__(self, host: Host, device: str = "eth0") -> None:
        import mmap  # noqa: PLC0415 - for this class only

        def opened() -> socket.socket:
            made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            made.setsockopt(_SOL_PACKET, _PACKET_VERSION, 1)  # TPACKET_V2
            made.setsockopt(_SOL_PACKET, _PACKET_TX_RING, struct.pack("=IIII", self._BLOCK, 1, self._BLOCK, 1))
            made.bind((device, 0))
            return made

        self._socket = host.netns.call(opened)
        self._ring = mmap.mmap(self._socket.fileno(), self._BLOCK)

    def send(self, frame: bytes) -> None:
        data_at = 32  # TPACKET_ALIGN(sizeof(struct tpacket2_hdr))
        until(lambda: struct.unpack_from("=I", self._ring, 0)[0] == 0, what="the ring's slot is free")
        self._ring[data_at : data_at + len(frame)] = frame
        struct.pack_into("=II", self._ring, 0, 1, len(frame))  # TP_STATUS_SEND_REQUEST
        self._socket.send(b"")

    def close(self) -> None:
        self._ring.close()
        self._socket.close()
