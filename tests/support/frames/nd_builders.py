"""Neighbour discovery for tests, in the notation of docs/conformance.md: NS, NA6, and what surrounds them."""

import struct
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import IPv6Address

from arpguard.addresses import MacAddress
from arpguard.model import VipEntry
from arpguard.verdict import Kind, Mode
from arpguard.wire.ethernet import ETHERTYPE_IPV6, EthernetFrame, VlanTag
from arpguard.wire.ndp import (
    ALL_NODES,
    HEADER_LEN,
    NEXT_HEADER_ICMPV6,
    UNSPECIFIED,
    NdFlag,
    NdMessage,
    NdOption,
    NdType,
    OptionType,
    build_advertisement,
    multicast_mac,
    solicited_node,
)
from support.frames.builders import GUARD, TESTER, a_control, an_entry, patched

VIP6 = IPv6Address("2001:db8::100")
OTHER_VIP6 = IPv6Address("2001:db8::101")
TESTER_IP6 = IPv6Address("2001:db8::7")
TESTER_LINK_LOCAL = IPv6Address("fe80::7")
NEIGHBOUR_IP6 = IPv6Address("2001:db8::55")  # guarded by nobody
PRIMARY_IP6 = IPv6Address("2001:db8::1")

HOP_BY_HOP, ROUTING, FRAGMENT, DESTINATION = 0, 43, 44, 60

# Offsets in an untagged frame without extension headers.
VERSION, PAYLOAD_LEN, NEXT_HEADER, HOP_LIMIT_AT, SOURCE, DESTINATION_AT = 14, 18, 20, 21, 22, 38
TYPE, CODE, CHECKSUM, RESERVED, TARGET, OPTIONS = 54, 55, 56, 58, 62, 78


def slla(mac: MacAddress) -> NdOption:
    return NdOption.link_layer(OptionType.SOURCE_LINK_LAYER, mac)


def tlla(mac: MacAddress) -> NdOption:
    return NdOption.link_layer(OptionType.TARGET_LINK_LAYER, mac)


def nonce(octets: bytes = b"\x01\x02\x03\x04\x05\x06") -> NdOption:
    return NdOption(OptionType.NONCE, octets)


def a_solicitation(**changes) -> NdMessage:
    """NS: the tester asks for the VIP."""
    target = changes.get("target", VIP6)
    asked = NdMessage(NdType.SOLICITATION, TESTER_IP6, solicited_node(target), target, options=(slla(TESTER),))
    return replace(asked, **changes)


def a_dad_solicitation(**changes) -> NdMessage:
    """The tester asks whether the VIP is free."""
    return a_solicitation(**{"src": UNSPECIFIED, "options": (), **changes})


def an_advertisement(**changes) -> NdMessage:
    """The tester tells all nodes that it has the VIP."""
    target = changes.get("target", VIP6)
    told = NdMessage(NdType.ADVERTISEMENT, target, ALL_NODES, target, NdFlag.OVERRIDE, (tlla(TESTER),))
    return replace(told, **changes)


def a_header(kind: int, body: bytes = b"\x01\x04\0\0\0\0") -> tuple[int, bytes]:
    """An extension header of whole units: its type, and its bytes without the next header's; PadN by default."""
    units, rest = divmod(len(body) + 2, 8)
    assert not rest
    return kind, bytes((units - 1,)) + body


def a_routing_header(kind: int = 0, segments_left: int = 0) -> tuple[int, bytes]:
    return a_header(ROUTING, bytes((kind, segments_left, 0, 0, 0, 0)))


def a_fragment_header(offset: int = 0, *, more: bool = False, number: int = 1) -> tuple[int, bytes]:
    """`offset` counts units of 8 bytes."""
    return FRAGMENT, b"\0" + struct.pack("!HI", offset << 3 | more, number)


def chained(headers: Sequence[tuple[int, bytes]], body: bytes, last: int = NEXT_HEADER_ICMPV6) -> tuple[int, bytes]:
    """The type of the first header, and all of them with the body behind."""
    for kind, rest in reversed(headers):
        last, body = kind, bytes((last,)) + rest + body
    return last, body


def nd_frame(
    message: NdMessage,
    dst: MacAddress | None = None,
    src: MacAddress = TESTER,
    tags: tuple[VlanTag, ...] = (),
    headers: Sequence[tuple[int, bytes]] = (),
    body: bytes | None = None,
    last: int = NEXT_HEADER_ICMPV6,
) -> bytes:
    """A message in a frame, behind extension headers; to its group's MAC, or to the guard's.

    `body` stands for the message, and `last` is what the headers say that it is.
    """
    first, payload = chained(headers, message.build() if body is None else body, last)
    packet = message.build_packet()[:HEADER_LEN]
    packet = patched(packet, 4, struct.pack("!HB", len(payload), first)) + payload
    if dst is None:
        dst = multicast_mac(message.dst) if message.dst.is_multicast else GUARD
    return EthernetFrame(dst, src, ETHERTYPE_IPV6, packet, tags).build()


def an_ns(dst=None, src=TESTER, tags=(), headers=(), **changes) -> bytes:
    """NS; keywords other than the frame's are fields of the message."""
    return nd_frame(a_solicitation(**changes), dst, src, tags, headers)


def a_dad_ns(dst=None, src=TESTER, tags=(), headers=(), **changes) -> bytes:
    return nd_frame(a_dad_solicitation(**changes), dst, src, tags, headers)


def an_na(dst=None, src=TESTER, tags=(), headers=(), **changes) -> bytes:
    return nd_frame(an_advertisement(**changes), dst, src, tags, headers)


def na6(asked: NdMessage, sha: MacAddress = TESTER, mac: MacAddress = GUARD) -> bytes:
    """NA6: the one correct answer to a solicitation of a host with this MAC."""
    return build_advertisement(mac, asked.target, asked.src, sha)


def an_entry6(kind=Kind.OWNED, **changes) -> VipEntry:
    return an_entry(kind, **{"primary": PRIMARY_IP6, **changes})


def a_control6(mode=Mode.ENFORCE, **changes):
    """A node with IPv6 entries that enforce."""
    return a_control(mode, **{"strictest6": Mode.ENFORCE, **changes})
