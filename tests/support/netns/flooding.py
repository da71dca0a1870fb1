"""ARP and neighbour discovery as fast as one core makes it, every frame from another host.

A test run of a BPF program sends its frames (BPF_F_TEST_XDP_LIVE_FRAMES, Linux 5.18): it writes each one anew, with
other addresses of its sender. What it is about is one of `2**bits` addresses from `first` on, in turn by chance.
"""

import ctypes
import errno
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from arpguard.addresses import Address, MacAddress
from arpguard.dataplane import syscall
from arpguard.dataplane.syscall import Fd
from arpguard.wire.arp import ArpOp, build_announcements, build_request, parse_arp_frame
from arpguard.wire.ethernet import ETHERTYPE_ARP
from arpguard.wire.ndp import build_solicitation
from arpguard_lab.netns import Netns
from support.programs.raw_bpf import Patch, Word, random_generator

BATCH = 20_000
_SO_ATTACH_FILTER = 26
_SENDER = MacAddress(bytes((2, 0, 0, 0, 0, 0)))
_SENDER6 = MacAddress(bytes((2, 0, 0, 0, 0xFF, 0xFF)))
_SENDER_IP = IPv4Address("10.99.0.0")
_SENDER_IP6 = 0x20010DB8_00990000 << 64
# Where the frames have it: the low bits of addresses; the source's MAC twice.
_FROM = [Patch(8, Word.RANDOM), Patch(10, Word.ANOTHER)]
_ARP_MACS = [*_FROM, Patch(24, Word.RANDOM), Patch(26, Word.ANOTHER)]
_ARP_SPA, _ARP_TPA = 30, 40
_ND_SOURCE, _ND_GROUP, _ND_TARGET, _ND_OPTION = 30, 52, 76, 80


@dataclass(frozen=True)
class Frames:
    """A program that makes frames, and how long they are."""

    program: Fd
    length: int


def _frames(frame: bytes, ifindex: int, patches: list[Patch], first: Address, bits: int) -> Frames:
    frame += bytes(-len(frame) % 4)
    return Frames(random_generator(frame, ifindex, patches, int(first) & 0xFFFF, bits), len(frame))


def requests(ifindex: int, first: IPv4Address, bits: int) -> Frames:
    """ARP requests."""
    patches = [*_ARP_MACS, Patch(_ARP_SPA, Word.ANOTHER), Patch(_ARP_TPA, Word.TARGET)]
    return _frames(build_request(_SENDER, _SENDER_IP, first), ifindex, patches, first, bits)


def claims(ifindex: int, first: IPv4Address, bits: int) -> Frames:
    """ARP announcements: each from another host that has one of the addresses, as it says."""
    patches = [*_ARP_MACS, Patch(_ARP_SPA, Word.TARGET), Patch(_ARP_TPA, Word.TARGET)]
    frame, _ = build_announcements(_SENDER, first)
    return _frames(frame, ifindex, patches, first, bits)


def solicitations(ifindex: int, first: IPv6Address, bits: int) -> Frames:
    """Neighbour solicitations with a source link-layer address, of which the checksum is right.

    A random word has its complement somewhere, and the target's, which is also in the group's, is twice in the source.
    """
    low = int(first) & 0xFFFF
    source = IPv6Address(_SENDER_IP6 | 0xFFFF << 32 | (low ^ 0xFFFF) << 16 | low ^ 0xFFFF)
    patches = [
        Patch(4, Word.TARGET),
        Patch(8, Word.RANDOM),
        Patch(10, Word.RANDOM, inverted=True),
        Patch(_ND_SOURCE, Word.ANOTHER),
        Patch(_ND_SOURCE + 2, Word.ANOTHER, inverted=True),
        Patch(_ND_SOURCE + 4, Word.TARGET, inverted=True),
        Patch(_ND_SOURCE + 6, Word.TARGET, inverted=True),
        Patch(_ND_GROUP, Word.TARGET),
        Patch(_ND_TARGET, Word.TARGET),
        Patch(_ND_OPTION + 2, Word.RANDOM),
        Patch(_ND_OPTION + 4, Word.RANDOM, inverted=True),
    ]
    return _frames(build_solicitation(_SENDER6, source, first), ifindex, patches, first, bits)


class Flood:
    """Frames of a generator, from one core, until they are enough."""

    def __init__(self, netns: Netns, frames: Frames) -> None:
        self.sent = 0
        self.kernel_ns = 0
        self._netns = netns
        self._frames = frames

    def run(self, enough: Callable[[], bool]) -> None:
        """Sends BATCH after BATCH until it is enough."""
        self._netns.call(lambda: self._run(enough))

    def _run(self, enough: Callable[[], bool]) -> None:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # of this thread, which ends
        while not enough():
            room, live = bytes(self._frames.length), syscall.TEST_XDP_LIVE_FRAMES
            run = syscall.program_test_run(self._frames.program, room, repeat=BATCH, flags=live)
            self.sent += BATCH
            self.kernel_ns += BATCH * run.duration_ns

    @contextmanager
    def running(self) -> Iterator[None]:
        """Goes on meanwhile."""
        done = threading.Event()
        thread = threading.Thread(target=self.run, args=(done.is_set,))
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


class Asker:
    """Asks who has an address, and hears what is said to this host and nobody else."""

    def __init__(self, netns: Netns, mac: MacAddress, address: IPv4Address, wait_s: float) -> None:
        self._mac, self._address, self._wait_s = mac, address, wait_s
        self._ear = netns.call(self._open)

    def _open(self) -> socket.socket:
        ear = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        high, low = struct.unpack("!IH", self._mac.octets)
        load_word, load_half, equal, give = 0x20, 0x28, 0x15, 0x06  # linux/filter.h
        steps = [(load_word, 0, 0, 0), (equal, 0, 5, high), (load_half, 0, 0, 4), (equal, 0, 3, low)]
        steps += [(load_half, 0, 0, 12), (equal, 0, 1, ETHERTYPE_ARP), (give, 0, 0, 0xFFFF), (give, 0, 0, 0)]
        code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
        ear.setsockopt(
            socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code))
        )
        ear.bind(("eth0", ETHERTYPE_ARP))
        return ear

    def is_answered(self, vip: IPv4Address) -> bool:
        """Asks once, and waits for the answer."""
        deadline_s = time.monotonic() + self._wait_s
        if not self._has_asked(build_request(self._mac, self._address, vip)):
            return False

        while select.select([self._ear], [], [], max(0.0, deadline_s - time.monotonic()))[0]:
            packet = parse_arp_frame(self._ear.recv(2048))
            if packet is not None and packet.op is ArpOp.REPLY and packet.spa == vip:
                return True
        return False

    def _has_asked(self, request: bytes) -> bool:
        """The flood may leave no room in the link's queue, and then the kernel drops what is sent."""
        try:
            self._ear.send(request)
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            return False
        return True

    def close(self) -> None:
        self._ear.close()
