"""ARP and neighbour discovery as fast as one core makes it, every frame from another host.

A test run of a BPF program sends its frames (BPF_F_TEST_XDP_LIVE_FRAMES, Linux 5.18): it writes each one anew, with
other addresses of its sender. What it is about is one of `2**bits` addresses from `first` on, in turn by chance.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from arpguard.addresses import Address, MacAddress
from arpguard.dataplane import syscall
from arpguard.dataplane.syscall import Fd
from arpguard.lab.netns import Netns
from arpguard.wire.arp import build_announcements, build_request
from arpguard.wire.ndp import build_solicitation
from rawbpf import Patch, Word, random_generator

BATCH = 20_000
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
