"""Neighbour discovery as nobody sends it: odd extension headers, options, lengths and fragments, and wrong bytes.

What is made of a message is a `Mutant`: the frames to send, and what is odd about them, so that a test can see
whether everything occurs.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv6Address

from arpguard.addresses import MacAddress
from arpguard.wire.ethernet import VLAN_ETHERTYPES, VlanTag
from arpguard.wire.ndp import HEADER_LEN, MESSAGE_LEN, NEXT_HEADER_ICMPV6, NdMessage, NdOption, OptionType, checksum
from support.frames.builders import patched
from support.frames.nd_builders import (
    DESTINATION,
    HOP_BY_HOP,
    PAYLOAD_LEN,
    a_fragment_header,
    a_header,
    a_routing_header,
    chained,
    nd_frame,
    nonce,
)

MAX_LEN = 1514
ODD_UNITS = (b"\0", b"\2", b"\3", b"\xff")  # lengths of options
IPV6 = b"\x86\xdd"
PADDING = b"\x01\x04\0\0\0\0"  # PadN
LONG_PADDING = b"\x01\x0c" + bytes(12)
Header = tuple[int, bytes]
HEADERS: dict[str, Callable[[random.Random], Header]] = {
    "hop-by-hop": lambda _: a_header(HOP_BY_HOP, PADDING),
    "router alert": lambda _: a_header(HOP_BY_HOP, b"\x05\x02\0\0\x01\0"),
    "jumbo": lambda _: a_header(HOP_BY_HOP, b"\xc2\x04\0\x01\0\0"),
    "destination": lambda rng: a_header(DESTINATION, rng.choice((PADDING, LONG_PADDING))),
    "unknown option": lambda rng: a_header(DESTINATION, bytes((rng.choice((0x1E, 0x5E, 0x9E)), 4, 0, 0, 0, 0))),
    "routing": lambda rng: a_routing_header(rng.choice((0, 2, 3, 4, 253)), rng.choice((0, 0, 0, 1))),
    "atomic fragment": lambda _: a_fragment_header(),
    "later fragment": lambda rng: a_fragment_header(offset=rng.randrange(1, 9), more=rng.random() < 0.5),
}
_FIRST = (*("hop-by-hop",) * 4, "router alert", "router alert", "jumbo")
_REST = ("destination",) * 3 + ("routing",) * 3 + ("atomic fragment",) * 2 + ("unknown option", "later fragment")


@dataclass(frozen=True)
class Mutant:
    """What is sent: one frame, or the fragments of one; and what is odd about it."""

    frames: tuple[bytes, ...]
    oddities: tuple[str, ...] = field(compare=False)


def some_tags(rng: random.Random) -> tuple[VlanTag, ...]:
    """Mostly none; VID 0, but for some."""
    depth = rng.choice((0,) * 14 + (1, 1, 2, 3, 8, 9))
    vids = (11,) + (0,) * 20
    return tuple(
        VlanTag(rng.choice(vids), rng.randrange(8), rng.random() < 0.1, rng.choice(VLAN_ETHERTYPES))
        for _ in range(depth)
    )


def some_headers(rng: random.Random) -> tuple[str, ...]:
    """Names of extension headers; none for every second message."""
    if rng.random() < 0.5:
        return ()
    first = (rng.choice(_FIRST),) if rng.random() < 0.5 else ()
    return first + tuple(rng.choice(_REST) for _ in range(rng.choice((0, 1, 1, 1, 1, 2, 2, 3, 4, 5, 6, 7, 8))))


def some_options(rng: random.Random, kind: OptionType, mac: MacAddress, other: MacAddress) -> tuple[NdOption, ...]:
    """Mostly one link-layer address of the right kind, `mac`."""
    right, second = NdOption.link_layer(kind, mac), NdOption.link_layer(kind, other)
    wrong = NdOption.link_layer(OptionType(3 - kind), other)
    long, unknown = NdOption(kind, mac.octets + bytes(8)), NdOption(253, bytes(14))
    return rng.choice(
        (
            *((right,),) * 14,
            (),
            (),
            (second,),
            (nonce(), right),
            (right, second),
            (unknown, right),
            (right, long),
            (long,),
            (wrong, right),
            (wrong,),
            (right, *(NdOption(253, bytes(8 * 30 - 2)),) * rng.randrange(1, 5)),
            (*(nonce(),) * rng.choice((55, 59, 60, 61, 62)), right),
        )
    )


def a_mutant(
    rng: random.Random, message: NdMessage, dst: MacAddress, src: MacAddress, *, fragments: float = 0.1
) -> Mutant:
    """A message with odd things around it, and a few wrong bytes in it. `fragments`: how probable they are."""
    names, tags = some_headers(rng), some_tags(rng)
    oddities = [*names, *("tag",) * bool(tags)]
    body = message.build()
    if rng.random() < 0.15:
        body = mended(flipped(body, rng), message.src, message.dst)
        oddities.append("flipped, and mended")
    elif message.options and rng.random() < 0.05:
        body = mended(patched(body, MESSAGE_LEN + 1, rng.choice(ODD_UNITS)), message.src, message.dst)
        oddities.append("option length")
    elif rng.random() < 0.05:
        body = mended(body + rng.randbytes(rng.randrange(1, 8)), message.src, message.dst)
        oddities.append("no whole units")
    headers = [HEADERS[name](rng) for name in names]

    def framed(some: Sequence[Header], part: bytes, last: int = NEXT_HEADER_ICMPV6) -> bytes:
        return nd_frame(message, dst, src, tags, some, part, last)

    if rng.random() < fragments:
        return Mutant(in_fragments(framed, headers, body, rng), (*oddities, "fragments"))
    return Mutant((distorted(framed(headers, body), oddities, rng),), tuple(oddities))


def in_fragments(
    framed: Callable[..., bytes], headers: Sequence[Header], body: bytes, rng: random.Random
) -> tuple[bytes, ...]:
    """Two fragments, the later one first, perhaps; the frame of the first may hold more than belongs to its packet."""
    before = list(headers[:1]) if headers and headers[0][0] == HOP_BY_HOP else []
    first, rest = chained(headers[len(before) :], body)
    cut, number = rng.randrange(0, len(rest) // 8 + 1), rng.getrandbits(32)
    padding = rng.choice((b"", rng.randbytes(24), b"\x80" + bytes(63)))
    frames = [
        framed([*before, a_fragment_header(more=True, number=number)], rest[: 8 * cut], first) + padding,
        framed([*before, a_fragment_header(offset=cut, number=number)], rest[8 * cut :], first),
    ]
    return tuple(reversed(frames) if rng.random() < 0.3 else frames)


def distorted(frame: bytes, oddities: list[str], rng: random.Random) -> bytes:
    """The frame with other lengths and a few other bytes, perhaps; `oddities` grows by their names."""
    if rng.random() < 0.06 and frame[12:14] == IPV6:
        lengths = (0, 23, 24, 32, len(frame) - 14 - HEADER_LEN - 8, rng.randrange(1 << 16))
        frame = patched(frame, PAYLOAD_LEN, max(0, rng.choice(lengths)).to_bytes(2, "big"))
        oddities.append("payload length")
    if rng.random() < 0.06:
        frame += rng.randbytes(rng.randrange(1, 60))
        oddities.append("padding")
    if rng.random() < 0.06:
        frame = frame[: rng.randrange(14, len(frame))]
        oddities.append("cut")
    while rng.random() < 0.1:
        frame = flipped(frame, rng)
        oddities.append("flipped")
    return frame[:MAX_LEN]


def flipped(data: bytes, rng: random.Random) -> bytes:
    """One bit is another."""
    at = rng.randrange(len(data))
    return patched(data, at, bytes([data[at] ^ 1 << rng.randrange(8)]))


def mended(body: bytes, src: IPv6Address, dst: IPv6Address) -> bytes:
    """The message with a checksum that is right again."""
    return patched(body, 2, checksum(src, dst, patched(body, 2, b"\0\0")).to_bytes(2, "big"))
