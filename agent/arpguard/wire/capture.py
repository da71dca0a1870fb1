"""Capture files as tcpdump, dumpcap and tshark write them: pcap and pcapng (draft-ietf-opsawg-pcap and -pcapng).

A file is read once, from its beginning to its end or to where it breaks, and one frame of it is in memory at a time,
whatever lengths it claims. Readers for Python that exist do not tell a frame's interface, link type or length on the
wire, or read only one of the two formats, and take as much memory as a length in the file asks for.
"""

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from arpguard.errors import ArpguardError
from arpguard.units import NS_PER_S

MAX_FRAME_BYTES = 262_144  # what libpcap and Wireshark take at most
_MAX_OPTION_BYTES = 65_536
_MAX_INTERFACES = 65_536
_MAX_NAME_BYTES = 256  # of an interface; Linux takes 15, Windows has them with a GUID
_CHUNK = 65_536

_PCAP = {  # magic number as it stands in the file: byte order, nanoseconds in a unit of time
    b"\xd4\xc3\xb2\xa1": ("<", 1000),
    b"\xa1\xb2\xc3\xd4": (">", 1000),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1),
}
_PCAPNG = b"\x0a\x0d\x0d\x0a"
_BYTE_ORDERS = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}
_SECTION, _INTERFACE, _OLD_PACKET, _SIMPLE_PACKET, _PACKET = 0x0A0D0D0A, 1, 2, 3, 6
_END_OF_OPTIONS, _IF_NAME, _EPB_FLAGS, _IF_TSRESOL, _IF_TSOFFSET = 0, 2, 2, 9, 14
_DIRECTIONS = {1: False, 2: True}  # the lowest two bits of epb_flags


class Captured(NamedTuple):
    """A frame of a capture. `number` counts from 1, as Wireshark does; `time_ns` is since 1970, None: not told.

    `link` is the interface's name where the file has one. `length` is the frame's on the wire: `data` has less of it
    where the capture cut it off (snaplen). `outgoing` is None where the file does not tell.
    """

    number: int
    time_ns: int | None
    link: str
    linktype: int
    outgoing: bool | None
    data: bytes
    length: int


class NotACaptureError(ArpguardError):
    """The file has no format that this module reads."""


class BrokenCaptureError(ArpguardError):
    """The next frame cannot be read, nor anything after it; the frames before it are good."""

    def __init__(self, frames: int, offset: int, why: str) -> None:
        super().__init__(f"breaks off after frame {frames:,}, at byte {offset:,}: {why}")


class _Damage(Exception):  # noqa: N818 - becomes a BrokenCaptureError, which knows where
    """Why the file cannot be read on."""


class _Stream:
    """Takes exactly so many bytes, and knows how many were taken."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self.offset = 0

    def take(self, size: int) -> bytes:
        """So many bytes; _Damage when the file ends before."""
        data = self.take_if_any(size)
        if len(data) < size:
            raise _Damage("the file ends too early")
        return data

    def take_if_any(self, size: int) -> bytes:
        """So many bytes, or none at the end of the file."""
        try:
            data = self._read(size)
        except (OSError, EOFError, zlib.error) as error:
            raise _Damage(str(error) or "the rest cannot be read") from error
        if data and len(data) < size:
            raise _Damage("the file ends within a record")
        self.offset += len(data)
        return data

    def skip(self, size: int) -> None:
        """Passes over any number of bytes."""
        while size:
            size -= len(self.take(min(size, _CHUNK)))


def read_capture(read: Callable[[int], bytes]) -> Iterator[Captured]:
    """The frames of a capture file in their order. `read` gives as many bytes as are asked for, fewer at the end.

    Raises NotACaptureError at once; BrokenCaptureError comes in place of the frame that cannot be read.
    """
    stream = _Stream(read)
    try:
        magic = stream.take(4)
    except _Damage as damage:
        raise NotACaptureError(f"is not a capture: {damage}") from damage
    if magic in _PCAP:
        return _numbered(stream, _read_pcap(stream, *_PCAP[magic]))
    if magic == _PCAPNG:
        return _numbered(stream, _read_pcapng(stream))
    raise NotACaptureError(f"begins with {magic.hex(' ')}, which is neither pcap nor pcapng")


def _numbered(stream: _Stream, frames: Iterator["_Frame"]) -> Iterator[Captured]:
    number, read_to = 0, stream.offset
    try:
        for time_ns, link, linktype, outgoing, data, length in frames:
            number, read_to = number + 1, stream.offset
            yield Captured(number, time_ns, link, linktype, outgoing, data, max(length, len(data)))
    except _Damage as damage:
        raise BrokenCaptureError(number, read_to, str(damage)) from damage


_Frame = tuple[int | None, str, int, bool | None, bytes, int]


def _sized(size: int) -> int:
    if size > MAX_FRAME_BYTES:
        raise _Damage(f"a frame of {size:,} bytes, more than the limit of {MAX_FRAME_BYTES:,}")
    return size


# ---- pcap --------------------------------------------------------------------------------------------------------


def _read_pcap(stream: _Stream, order: str, unit_ns: int) -> Iterator[_Frame]:
    """The file header's link type has flags above its 16 bits; a record's header is seconds, units, sizes."""
    *_, linktype = struct.unpack(order + "HHIIII", stream.take(20))
    header = struct.Struct(order + "IIII")
    while raw := stream.take_if_any(16):
        seconds, units, size, length = header.unpack(raw)
        yield seconds * NS_PER_S + units * unit_ns, "", linktype & 0xFFFF, None, stream.take(_sized(size)), length


# ---- pcapng ------------------------------------------------------------------------------------------------------


class _Interface(NamedTuple):
    """`per_second`: how many units of its time stamps a second has; `offset_ns`: what is to be added to them."""

    name: str
    linktype: int
    snaplen: int
    per_second: int = 1_000_000
    offset_ns: int = 0

    def time_ns(self, stamp: int) -> int | None:
        """A time stamp, in nanoseconds since 1970; None for one before that, which tells nothing."""
        time_ns = stamp * NS_PER_S // self.per_second + self.offset_ns
        return time_ns if time_ns >= 0 else None


class _Block:
    """What is left of a block; its parts are taken in their order."""

    def __init__(self, stream: _Stream, size: int) -> None:
        self._stream = stream
        self.left = size

    def take(self, size: int) -> bytes:
        """The next bytes of it; _Damage when it has fewer."""
        if size > self.left:
            raise _Damage("a block is shorter than its content")
        self.left -= size
        return self._stream.take(size)

    def skip(self) -> None:
        """Passes over what is left of it."""
        self._stream.skip(self.left)
        self.left = 0


def _read_pcapng(stream: _Stream) -> Iterator[_Frame]:
    """Sections one behind the other, each with a byte order and interfaces of its own; other blocks are left out."""
    order, interfaces = "", list[_Interface]()
    kind = _SECTION  # its four bytes were the magic number

    while True:
        if kind == _SECTION:
            size = stream.take(4)
            order = _order_of(stream.take(4))
            interfaces.clear()
            (total,) = struct.unpack(order + "I", size)
            block = _Block(stream, _body(total, 16))
        else:
            (total,) = struct.unpack(order + "I", stream.take(4))
            block = _Block(stream, _body(total, 12))

        if kind == _INTERFACE:
            interfaces.append(_interface(block, order))
            if len(interfaces) > _MAX_INTERFACES:
                raise _Damage(f"more than {_MAX_INTERFACES:,} interfaces")
        elif kind in _PACKETS:
            yield _PACKETS[kind](block, order, interfaces)

        block.skip()
        if stream.take(4) != struct.pack(order + "I", total):
            raise _Damage("the length at the end of a block differs from that at its beginning")

        raw = stream.take_if_any(4)
        if not raw:
            return
        kind = _SECTION if raw == _PCAPNG else struct.unpack(order + "I", raw)[0]


def _order_of(magic: bytes) -> str:
    order = _BYTE_ORDERS.get(magic)
    if order is None:
        raise _Damage("a section without a byte order")
    return order


def _body(total: int, around: int) -> int:
    """How long a block is without its kind and its two lengths, and, of a section, its byte order."""
    if total < around or total % 4:
        raise _Damage(f"a block of {total:,} bytes, which is not a valid length")
    return total - around


def _interface(block: _Block, order: str) -> _Interface:
    linktype, _, snaplen = struct.unpack(order + "HHI", block.take(8))
    options = _options(block, order)
    name = options.get(_IF_NAME, b"")[:_MAX_NAME_BYTES].split(b"\0")[0].decode(errors="replace")
    resolution = options.get(_IF_TSRESOL, b"\x06")[:1] or b"\x06"
    power = resolution[0]
    per_second = 1 << (power & 0x7F) if power & 0x80 else 10**power
    offset = options.get(_IF_TSOFFSET, b"")
    offset_ns = struct.unpack(order + "q", offset)[0] * NS_PER_S if len(offset) == 8 else 0
    return _Interface(name, linktype, snaplen, per_second, offset_ns)


def _options(block: _Block, order: str) -> dict[int, bytes]:
    """The options in what is left of a block, the first of each kind; no more than there is room for."""
    raw, at, found = block.take(min(block.left, _MAX_OPTION_BYTES)), 0, dict[int, bytes]()
    while len(raw) - at >= 4:
        code, size = struct.unpack_from(order + "HH", raw, at)
        if code == _END_OF_OPTIONS:
            break
        found.setdefault(code, raw[at + 4 : at + 4 + size])
        at += 4 + size + -size % 4
    return found


def _of(interfaces: list[_Interface], index: int) -> _Interface:
    if index >= len(interfaces):
        raise _Damage(f"a frame of interface {index}, which the file does not describe")
    return interfaces[index]


def _packet(block: _Block, order: str, interfaces: list[_Interface]) -> _Frame:
    index, high, low, size, length = struct.unpack(order + "IIIII", block.take(20))
    return _stamped(block, order, _of(interfaces, index), high << 32 | low, (size, length))


def _old_packet(block: _Block, order: str, interfaces: list[_Interface]) -> _Frame:
    index, _, high, low, size, length = struct.unpack(order + "HHIIII", block.take(20))
    return _stamped(block, order, _of(interfaces, index), high << 32 | low, (size, length))


def _stamped(block: _Block, order: str, interface: _Interface, stamp: int, sizes: tuple[int, int]) -> _Frame:
    size, length = sizes
    data = block.take(_sized(size))
    block.take(min(-size % 4, block.left))
    flags = _options(block, order).get(_EPB_FLAGS, b"")
    direction = struct.unpack(order + "I", flags)[0] & 3 if len(flags) == 4 else 0
    outgoing = _DIRECTIONS.get(direction)
    return interface.time_ns(stamp), interface.name, interface.linktype, outgoing, data, length


def _simple_packet(block: _Block, order: str, interfaces: list[_Interface]) -> _Frame:
    """It is of the first interface, and has no time."""
    interface = _of(interfaces, 0)
    (length,) = struct.unpack(order + "I", block.take(4))
    size = min(length, interface.snaplen or length, block.left)
    return None, interface.name, interface.linktype, None, block.take(_sized(size)), length


_PACKETS: dict[int, Callable[[_Block, str, list[_Interface]], _Frame]] = {
    _PACKET: _packet,
    _OLD_PACKET: _old_packet,
    _SIMPLE_PACKET: _simple_packet,
}
