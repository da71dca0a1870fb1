"""IPv6 neighbour discovery over Ethernet (RFC 4861 4.3, 4.4; RFC 2464): bytes to values and back.

What is read is what Linux would read (ndisc_recv_ns(), ndisc_recv_na()) or what stands where it would: `flaw` tells
why a receiver has to discard a message (RFC 4861 7.1.1, 7.1.2), and the rest of it is there all the same.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from ipaddress import IPv6Address
from typing import NamedTuple

from arpguard.addresses import MacAddress
from arpguard.wire.ethernet import ETHERTYPE_IPV6, EthernetFrame, parse_ethernet

NEXT_HEADER_ICMPV6 = 58
HOP_LIMIT = 255
ALL_NODES = IPv6Address("ff02::1")
UNSPECIFIED = IPv6Address("::")
HEADER_LEN = 40
MESSAGE_LEN = 24  # up to the first option
MAX_EXTENSION_HEADERS = 8
_HOP_BY_HOP, _ROUTING, _FRAGMENT, _DESTINATION = 0, 43, 44, 60
_SOLICITED_NODE = int(IPv6Address("ff02::1:ff00:0"))
_IP = struct.Struct("!IHBB")
_UNIT = 8


class NdType(IntEnum):
    """ICMPv6 types that say or ask whose an address is."""

    SOLICITATION = 135
    ADVERTISEMENT = 136


class NdFlag(IntFlag):
    """Flags of an advertisement: router, solicited, override."""

    NONE = 0
    ROUTER = 0x80
    SOLICITED = 0x40
    OVERRIDE = 0x20


class OptionType(IntEnum):
    """Options that matter here (RFC 4861 4.6.1, RFC 3971 5.3.2)."""

    SOURCE_LINK_LAYER = 1
    TARGET_LINK_LAYER = 2
    NONCE = 14


class NdOption(NamedTuple):
    """An option as it is: `data` is what follows its length, padded to whole units of 8 bytes."""

    kind: int
    data: bytes

    @classmethod
    def link_layer(cls, kind: OptionType, mac: MacAddress) -> "NdOption":
        """A source or target link-layer address."""
        return cls(kind, mac.octets)

    def build(self) -> bytes:
        """Its bytes."""
        units = (len(self.data) + 2 + _UNIT - 1) // _UNIT
        return bytes((self.kind, units)) + self.data.ljust(units * _UNIT - 2, b"\0")


@dataclass(frozen=True, slots=True)
class NdMessage:
    """A solicitation or advertisement, `src` and `dst` being those of its IPv6 header.

    `flags` are of an advertisement; `reserved` is the rest of that word, which receivers ignore.
    """

    kind: NdType
    src: IPv6Address
    dst: IPv6Address
    target: IPv6Address
    flags: NdFlag = NdFlag.NONE
    options: tuple[NdOption, ...] = ()
    hop_limit: int = HOP_LIMIT
    code: int = 0
    reserved: int = 0

    @property
    def is_dad(self) -> bool:
        """A solicitation that asks whether an address is free (RFC 4862 5.4.2)."""
        return self.kind is NdType.SOLICITATION and self.src == UNSPECIFIED

    @property
    def link_layer(self) -> MacAddress | None:
        """The link-layer address in it: a solicitation's source, an advertisement's target. The first one counts."""
        wanted = _LINK_LAYER[self.kind]
        first = next((option for option in self.options if option.kind == wanted), None)
        return MacAddress(first.data[:6]) if first is not None and len(first.data) >= 6 else None

    def build(self) -> bytes:
        """The ICMPv6 message with its checksum."""
        word = int(self.flags) << 24 | self.reserved
        body = struct.pack("!BBHI", self.kind, self.code, 0, word) + self.target.packed
        body += b"".join(option.build() for option in self.options)
        return body[:2] + struct.pack("!H", checksum(self.src, self.dst, body)) + body[4:]

    def build_packet(self) -> bytes:
        """The message in an IPv6 packet."""
        body = self.build()
        head = _IP.pack(6 << 28, len(body), NEXT_HEADER_ICMPV6, self.hop_limit)
        return head + self.src.packed + self.dst.packed + body

    def build_frame(self, dst: MacAddress, src: MacAddress) -> bytes:
        """The message in an Ethernet frame; no shorter than one has to be, as it is."""
        return EthernetFrame(dst, src, ETHERTYPE_IPV6, self.build_packet()).build()


_LINK_LAYER = {
    NdType.SOLICITATION: OptionType.SOURCE_LINK_LAYER,
    NdType.ADVERTISEMENT: OptionType.TARGET_LINK_LAYER,
}


def checksum(src: IPv6Address, dst: IPv6Address, body: bytes) -> int:
    """The checksum of an ICMPv6 message whose own field is 0 (RFC 4443 2.3): with it in place the sum is 0."""
    data = src.packed + dst.packed + struct.pack("!II", len(body), NEXT_HEADER_ICMPV6) + body + bytes(len(body) % 2)
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def solicited_node(address: IPv6Address) -> IPv6Address:
    """The group that whoever has an address listens to (RFC 4291 2.7.1)."""
    return IPv6Address(_SOLICITED_NODE | int(address) & 0xFFFFFF)


def multicast_mac(group: IPv6Address) -> MacAddress:
    """The Ethernet address that frames to a group have (RFC 2464 7)."""
    return MacAddress(b"\x33\x33" + group.packed[12:])


def build_solicitation(
    sha: MacAddress, src: IPv6Address, target: IPv6Address, dst_mac: MacAddress | None = None
) -> bytes:
    """A frame that asks who has `target`: of all who listen, or of the one with `dst_mac` (as NUD does)."""
    group = solicited_node(target)
    option = NdOption.link_layer(OptionType.SOURCE_LINK_LAYER, sha)
    message = NdMessage(NdType.SOLICITATION, src, group if dst_mac is None else target, target, options=(option,))
    return message.build_frame(dst_mac or multicast_mac(group), sha)


def build_dad_solicitation(sha: MacAddress, target: IPv6Address, nonce: bytes = b"") -> bytes:
    """A frame that asks whether anybody has `target`, and claims nothing (RFC 4862 5.4.2; nonce: RFC 7527)."""
    group = solicited_node(target)
    options = (NdOption(OptionType.NONCE, nonce),) if nonce else ()
    return NdMessage(NdType.SOLICITATION, UNSPECIFIED, group, target, options=options).build_frame(
        multicast_mac(group), sha
    )


def build_unsolicited_advertisement(mac: MacAddress, vip: IPv6Address) -> bytes:
    """A frame that tells all nodes that `vip` is at `mac` (RFC 4861 7.2.6): O=1 moves the entries they have."""
    return _advertisement(mac, vip, ALL_NODES, NdFlag.OVERRIDE).build_frame(multicast_mac(ALL_NODES), mac)


def build_advertisement(mac: MacAddress, vip: IPv6Address, dst: IPv6Address, dst_mac: MacAddress) -> bytes:
    """The answer to a solicitation from `dst`; to one from :: it goes to all nodes, with S=0 (RFC 4861 7.2.4)."""
    if dst == UNSPECIFIED:
        return build_unsolicited_advertisement(mac, vip)
    return _advertisement(mac, vip, dst, NdFlag.SOLICITED | NdFlag.OVERRIDE).build_frame(dst_mac, mac)


def _advertisement(mac: MacAddress, vip: IPv6Address, dst: IPv6Address, flags: NdFlag) -> NdMessage:
    option = NdOption.link_layer(OptionType.TARGET_LINK_LAYER, mac)
    return NdMessage(NdType.ADVERTISEMENT, vip, dst, vip, flags, (option,))


@dataclass(frozen=True, slots=True)
class NdPacket:
    """What was read. `flaw` says why a receiver has to discard it; None: it is valid.

    `extensions` are the types of the extension headers before the message, outermost first. `frame_src` is the
    Ethernet source. `offset` is where in the frame the message begins, `length` its length as the headers tell.
    """

    message: NdMessage
    frame_src: MacAddress
    frame_dst: MacAddress
    extensions: tuple[int, ...]
    offset: int
    length: int
    flaw: str | None

    @property
    def sha(self) -> MacAddress:
        """The MAC that the message is about: the option's, or else its sender's."""
        return self.message.link_layer or self.frame_src


def parse_nd_frame(data: bytes) -> NdPacket | None:
    """The solicitation or advertisement in a frame without VLAN tags; None where there is none, or it is cut off."""
    frame = parse_ethernet(data)
    if frame is None or frame.tags or frame.ethertype != ETHERTYPE_IPV6:
        return None
    return parse_nd(frame)


def parse_nd(frame: EthernetFrame) -> NdPacket | None:
    """The solicitation or advertisement in a frame, whatever its tags."""
    packet = frame.payload
    if len(packet) < HEADER_LEN:
        return None
    walked = _walk(packet)
    if walked is None:
        return None
    at, extensions = walked
    body = packet[at:]
    if len(body) < MESSAGE_LEN or body[0] not in list(NdType):
        return None
    _, payload_len, _, hop_limit = _IP.unpack_from(packet)
    src, dst = IPv6Address(packet[8:24]), IPv6Address(packet[24:40])
    length = HEADER_LEN + payload_len - at
    options, complete = _options(body[MESSAGE_LEN : max(length, MESSAGE_LEN)])
    flags = body[4] if body[0] == NdType.ADVERTISEMENT else 0
    message = NdMessage(
        kind=NdType(body[0]),
        src=src,
        dst=dst,
        target=IPv6Address(body[8:24]),
        flags=NdFlag(flags & 0xE0),
        options=options,
        hop_limit=hop_limit,
        code=body[1],
        reserved=int.from_bytes(body[4:8], "big") & (0x1FFFFFFF if flags else 0xFFFFFFFF),
    )
    flaw = _flaw(message, body, length, options_fit=complete)
    offset = len(frame.build()) - len(body)
    return NdPacket(message, frame.src, frame.dst, extensions, offset, length, flaw)


def _walk(packet: bytes) -> tuple[int, tuple[int, ...]] | None:
    """Where the ICMPv6 message begins, and the extension headers before it; None when there is no such message."""
    kind, at = packet[6], HEADER_LEN
    seen: list[int] = []
    while kind in (_HOP_BY_HOP, _ROUTING, _FRAGMENT, _DESTINATION) and len(seen) < MAX_EXTENSION_HEADERS:
        header = packet[at : at + _UNIT]
        if len(header) < _UNIT or (kind == _FRAGMENT and int.from_bytes(header[2:4], "big") >> 3):
            return None
        seen.append(kind)
        at += _UNIT if kind == _FRAGMENT else (header[1] + 1) * _UNIT
        kind = header[0]
    return (at, tuple(seen)) if kind == NEXT_HEADER_ICMPV6 else None


def _options(data: bytes) -> tuple[tuple[NdOption, ...], bool]:
    """The options, and whether they fill the message to its last byte."""
    found: list[NdOption] = []
    while data:
        size = data[1] * _UNIT if len(data) > 1 else 0
        if not size or size > len(data):
            return tuple(found), False
        found.append(NdOption(data[0], data[2:size]))
        data = data[size:]
    return tuple(found), True


def _flaw(message: NdMessage, body: bytes, length: int, *, options_fit: bool) -> str | None:
    """RFC 4861 7.1.1 and 7.1.2, in the order in which Linux asks."""
    dad = message.is_dad
    asks = message.kind is NdType.SOLICITATION
    flaws = (
        (message.hop_limit != HOP_LIMIT, "hop limit"),
        (message.code != 0, "code"),
        (length < MESSAGE_LEN or length > len(body), "length"),
        (message.target.is_multicast, "multicast target"),
        (dad and message.dst != solicited_node(message.dst), "asked from :: of no solicited-node group"),
        (not options_fit, "options"),
        (any(_is_odd(option, message.kind) for option in message.options), "length of a link-layer address"),
        (dad and message.link_layer is not None, "link-layer address from ::"),
        (not asks and message.dst.is_multicast and NdFlag.SOLICITED in message.flags, "solicited, and to a group"),
        (bool(checksum(message.src, message.dst, body[:length])), "checksum"),
    )
    return next((text for holds, text in flaws if holds), None)


def _is_odd(option: NdOption, kind: NdType) -> bool:
    """A link-layer address that is none of Ethernet's."""
    return option.kind == _LINK_LAYER[kind] and len(option.data) != _UNIT - 2
