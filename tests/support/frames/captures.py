"""Capture files for tests, written out field by field: what is under test only reads."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

LITTLE, BIG = "<", ">"
MICRO, NANO = 0xA1B2C3D4, 0xA1B23C4D
ETHERNET, SLL, SLL2 = 1, 113, 276


def pcap(
    frames: Sequence[bytes], order=LITTLE, magic=MICRO, linktype=ETHERNET, snaplen=262144, first_s=1_700_000_000
) -> bytes:
    """A frame each second, at 7 units past it; none has more than `snaplen` bytes in the file."""
    parts = [struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, snaplen, linktype)]
    for number, frame in enumerate(frames):
        kept = frame[:snaplen]
        parts += [struct.pack(order + "IIII", first_s + number, 7, len(kept), len(frame)), kept]
    return b"".join(parts)


def option(code: int, value: bytes, order=LITTLE) -> bytes:
    return struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)


def block(kind: int, body: bytes, order=LITTLE) -> bytes:
    length = struct.pack(order + "I", 12 + len(body))
    return struct.pack(order + "I", kind) + length + body + length


def section(order=LITTLE) -> bytes:
    return block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def interface(name="", linktype=ETHERNET, order=LITTLE, snaplen=0, options: bytes = b"") -> bytes:
    named = option(2, name.encode(), order) if name else b""
    return block(1, struct.pack(order + "HHI", linktype, 0, snaplen) + named + options, order)


@dataclass(frozen=True)
class Packet:
    """A packet block's content; `stamp` is in units of its interface."""

    data: bytes
    index: int = 0
    stamp: int = 0
    length: int | None = None
    options: bytes = field(default=b"")


def packet(found: Packet, order=LITTLE) -> bytes:
    """An enhanced packet block."""
    size, length = len(found.data), len(found.data) if found.length is None else found.length
    head = struct.pack(order + "IIIII", found.index, found.stamp >> 32, found.stamp & 0xFFFFFFFF, size, length)
    return block(6, head + found.data + bytes(-size % 4) + found.options, order)


def pcapng(frames: Sequence[bytes], order=LITTLE) -> bytes:
    """All frames of one interface, eth0, a frame each second."""
    packets = (packet(Packet(frame, stamp=1_700_000_000_000_000 + n * 10**6), order) for n, frame in enumerate(frames))
    return section(order) + interface("eth0", order=order) + b"".join(packets)


def cooked(payload: bytes, ethertype=0x0806, kind=0, source=b"\x02\x00\x00\x00\x00\x07", hardware=1) -> bytes:
    """What LINKTYPE_LINUX_SLL has of a frame; `kind` as in packet(7): 0 to us, 1 to all, 3 to others, 4 from us."""
    return struct.pack("!HHH8sH", kind, hardware, len(source), source, ethertype) + payload


def cooked2(
    payload: bytes, ethertype=0x0806, kind=0, source=b"\x02\x00\x00\x00\x00\x07", hardware=1, ifindex=3
) -> bytes:
    """What LINKTYPE_LINUX_SLL2 has of it."""
    return struct.pack("!HHIHBB8s", ethertype, 0, ifindex, hardware, kind, len(source), source) + payload
