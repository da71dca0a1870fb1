"""IPv6 neighbour discovery over Ethernet (RFC 4861 4.3, 4.4; RFC 2464): bytes to values and back.

What is read is what Linux would read (ndisc_recv_ns(), ndisc_recv_na()) or what stands where it would: `flaw` tells
why a receiver has to discard a message (RFC 4861 7.1.1, 7.1.2), and the rest of it is there all the same.
"""

import struct
from dataclasses import dataclass
from enum import Enum, IntEnum, IntFlag, StrEnum
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
_EXTENSIONS = (_HOP_BY_HOP, _ROUTING, _FRAGMENT, _DESTINATION)
_NO_NEXT_HEADER = 59
_VERSION = 6
_PEEK = 4  # bytes of a header that have to be there for it to count as one
_FLAGS = 0xE0000000  # in the word that follows an advertisement's checksum
_SOLICITED_NODE = int(IPv6Address("ff02::1:ff00:0"))
_IP = struct.Struct("!IHBB")
_UNIT = 8


class NdType(IntEnum):
    """ICMPv6 types that say or ask which host has an address."""

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
    def link_layer_option(self) -> NdOption | None:
        """The option with a solicitation's source or an advertisement's target. The first one counts."""
        wanted = _LINK_LAYER[self.kind]
        return next((option for option in self.options if option.kind == wanted), None)

    @property
    def link_layer(self) -> MacAddress | None:
        """The MAC address in that option, which has room for one if it was read."""
        option = self.link_layer_option
        return MacAddress(option.data[:6]) if option is not None else None

    @property
    def nonce(self) -> bytes:
        """By what a solicitation's sender recognizes it (RFC 3971 5.3.2, RFC 7527); empty: it has none."""
        return next((option.data for option in self.options if option.kind == OptionType.NONCE), b"")

    def build(self) -> bytes:
        """The ICMPv6 message with its checksum."""
        word = int(self.flags) << 24 | self.reserved
        body = struct.pack("!BBHI", self.kind, self.code, 0, word) + self.target.packed
        body += b"".join(option.build() for option in self.options)
        return body[:2] + struct.pack("!H", checksum(self.src, self.dst, body)) + body[4:]

    def build_packet(self) -> bytes:
        """The message in an IPv6 packet."""
        body = self.build()
        head = _IP.pack(_VERSION << 28, len(body), NEXT_HEADER_ICMPV6, self.hop_limit)
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
    """The group to which the host that has an address listens (RFC 4291 2.7.1)."""
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


class Flaw(StrEnum):
    """Why a receiver discards a message, in the order of its checks.

    RFC 4861 7.1.1 and 7.1.2; ipv6_rcv(), ndisc_rcv(), ndisc_recv_ns(), ndisc_recv_na().
    """

    HOP_LIMIT = "hop limit"
    CODE = "code"
    LENGTH = "length"
    TARGET = "multicast target"
    DAD_DESTINATION = "sent from :: to an address that is not a solicited-node group"
    SOLICITED_TO_GROUP = "solicited, and to a group"
    OPTIONS = "options"
    LINK_LAYER = "length of the link-layer address"
    DAD_LINK_LAYER = "link-layer address from ::"
    CHECKSUM = "checksum"


class NoMessage(Enum):
    """Why there is no message to read."""

    NO_ND = "neither a solicitation nor an advertisement"
    CUT_OFF = "a message that ends before the end of its target address"
    UNWALKABLE = "more extension headers than the guard reads, or a fragment: the guard cannot tell what it carries"


@dataclass(frozen=True, slots=True)
class NdPacket:
    """What was read. `flaw` says why a receiver has to discard it; None: it is valid.

    `extensions` are the types of the extension headers before the message, outermost first. `length` is the message's
    as the headers tell, and `room` what is left of the frame for it.
    """

    message: NdMessage
    frame_src: MacAddress
    extensions: tuple[int, ...]
    length: int
    room: int
    flaw: Flaw | None

    @property
    def sha(self) -> MacAddress:
        """The MAC that the message is about: the option's, or else its sender's."""
        return self.message.link_layer or self.frame_src


def parse_nd_frame(data: bytes) -> NdPacket | None:
    """The solicitation or advertisement in a frame without VLAN tags; None where none can be read."""
    frame = parse_ethernet(data)
    if frame is None or frame.tags or frame.ethertype != ETHERTYPE_IPV6:
        return None
    read = parse_nd(frame)
    return read if isinstance(read, NdPacket) else None


def parse_nd(frame: EthernetFrame) -> NdPacket | NoMessage:
    """The solicitation or advertisement in a frame that carries IPv6, whatever its tags."""
    packet = frame.payload

    walked = _walk(packet)
    if isinstance(walked, NoMessage):
        return walked
    at, extensions = walked

    if len(packet) < at + MESSAGE_LEN:
        return NoMessage.CUT_OFF
    length = _end_of(packet) - at

    message, options_fit = _message(packet, at, length)

    return NdPacket(
        message=message,
        frame_src=frame.src,
        extensions=extensions,
        length=length,
        room=len(packet) - at,
        flaw=_flaw(message, packet, at, length, options_fit=options_fit),
    )


def _end_of(packet: bytes) -> int:
    """Where the packet ends by its header; where that says 0 before a hop-by-hop header, Linux takes all there is."""
    payload_len = int.from_bytes(packet[4:6], "big")
    return HEADER_LEN + payload_len if payload_len or packet[6] != _HOP_BY_HOP else len(packet)


def _walk(packet: bytes) -> tuple[int, tuple[int, ...]] | NoMessage:
    """Where a solicitation or advertisement begins, and the extension headers before it.

    A fragmented one cannot be read: receivers ignore it, unless they are configured not to (RFC 6980 5,
    suppress_frag_ndisc). Fragments but the first say nothing.
    """
    if len(packet) < HEADER_LEN or packet[0] >> 4 != _VERSION:
        return NoMessage.NO_ND
    chain = _Chain(packet)
    if not chain.may_be_nd:
        return NoMessage.NO_ND
    if chain.fragmented or chain.too_long:
        return NoMessage.UNWALKABLE
    return NoMessage.NO_ND if chain.cut_off else (chain.at, tuple(chain.extensions))


class _Chain:
    """Extension headers, walked as far as there are any: `kind` is what comes at the offset `at`, before `end`."""

    def __init__(self, packet: bytes) -> None:
        self._packet = packet
        self.kind, self.at, self.end = packet[6], HEADER_LEN, len(packet)
        self.extensions: list[int] = []
        self.fragmented = False
        while self.kind in _EXTENSIONS and not self.too_long and not self.cut_off:
            self._step()

    @property
    def too_long(self) -> bool:
        """Whether the header at hand is one too many."""
        return self.kind in _EXTENSIONS and len(self.extensions) == MAX_EXTENSION_HEADERS

    @property
    def cut_off(self) -> bool:
        """Whether the header at hand is not there."""
        return self.at + _PEEK > self.end

    @property
    def may_be_nd(self) -> bool:
        """Whether it leads to a solicitation or advertisement, as far as it can be seen."""
        if self.kind == NEXT_HEADER_ICMPV6 and not self.cut_off:
            return self._packet[self.at] in list(NdType)
        return self.kind in (*_EXTENSIONS, NEXT_HEADER_ICMPV6)

    def _step(self) -> None:
        kind, header = self.kind, self._packet[self.at : self.at + _UNIT]
        self.extensions.append(kind)
        self.at += _UNIT if kind == _FRAGMENT else (header[1] + 1) * _UNIT
        self.kind = header[0]
        if kind == _FRAGMENT:
            self._enter_fragment(int.from_bytes(header[2:4], "big"))

    def _enter_fragment(self, offset_and_more: int) -> None:
        """The first of several ends where the packet does: what follows in this frame is not what will follow."""
        if offset_and_more >> 3:
            self.kind = _NO_NEXT_HEADER
        elif offset_and_more & 1:
            self.fragmented = True
            self.end = min(self.end, _end_of(self._packet))


def _message(packet: bytes, at: int, length: int) -> tuple[NdMessage, bool]:
    """The message at an offset, and whether its options fill it to its last byte."""
    body = packet[at:]
    kind = NdType(body[0])

    options, fit = _options(body[MESSAGE_LEN : max(length, MESSAGE_LEN)])
    flag_bits = _FLAGS if kind is NdType.ADVERTISEMENT else 0
    word = int.from_bytes(body[4:8], "big")

    message = NdMessage(
        kind=kind,
        src=IPv6Address(packet[8:24]),
        dst=IPv6Address(packet[24:40]),
        target=IPv6Address(body[8:24]),
        flags=NdFlag((word & flag_bits) >> 24),
        options=options,
        hop_limit=packet[7],
        code=body[1],
        reserved=word & ~flag_bits,
    )
    return message, fit


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


def _flaw(message: NdMessage, packet: bytes, at: int, length: int, *, options_fit: bool) -> Flaw | None:
    """The first of the flaws."""
    solicits = message.kind is NdType.SOLICITATION
    tells_group = not solicits and message.dst.is_multicast
    option = message.link_layer_option

    flaws = (
        (message.hop_limit != HOP_LIMIT, Flaw.HOP_LIMIT),
        (message.code != 0, Flaw.CODE),
        (length < MESSAGE_LEN or at + length > len(packet), Flaw.LENGTH),
        (message.target.is_multicast, Flaw.TARGET),
        (message.is_dad and message.dst != solicited_node(message.dst), Flaw.DAD_DESTINATION),
        (tells_group and NdFlag.SOLICITED in message.flags, Flaw.SOLICITED_TO_GROUP),
        (not options_fit, Flaw.OPTIONS),
        (option is not None and len(option.data) != _UNIT - 2, Flaw.LINK_LAYER),
        (message.is_dad and option is not None, Flaw.DAD_LINK_LAYER),
        (bool(checksum(message.src, message.dst, packet[at : at + length])), Flaw.CHECKSUM),
    )

    return next((flaw for holds, flaw in flaws if holds), None)
