"""ARP for IPv4 over Ethernet (RFC 826), with the probe and announcement of RFC 5227: bytes to values and back."""

import struct
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Address

from arpguard.addresses import BROADCAST_MAC, ZERO_MAC, MacAddress
from arpguard.wire.ethernet import ETHERTYPE_ARP, ETHERTYPE_IPV4, MIN_FRAME_LEN, EthernetFrame, parse_ethernet

HTYPE_ETHERNET = 1
HTYPE_IEEE802 = 6
_HEAD = struct.Struct("!HHBBH")
_BODY_LEN = 28


class ArpOp(IntEnum):
    """ar$op; other operations are not ARP proper and are never looked at."""

    REQUEST = 1
    REPLY = 2


@dataclass(frozen=True, slots=True)
class ArpPacket:
    """The fields of RFC 826 under their names there; `htype` is 1, except from hosts that send 6 (IEEE 802)."""

    op: ArpOp
    sha: MacAddress
    spa: IPv4Address
    tha: MacAddress
    tpa: IPv4Address
    htype: int = HTYPE_ETHERNET

    def build(self) -> bytes:
        """The 28 bytes of the packet."""
        head = _HEAD.pack(self.htype, ETHERTYPE_IPV4, 6, 4, self.op)
        return head + self.sha.octets + self.spa.packed + self.tha.octets + self.tpa.packed

    @property
    def is_announcement(self) -> bool:
        """A packet that claims its sender's address to everybody (RFC 5227 1.1; a gratuitous ARP)."""
        return self.spa == self.tpa


def parse_arp(data: bytes) -> ArpPacket | None:
    """The packet at the start of `data`, or None for what Linux's arp_rcv() and arp_process() would not read."""
    if len(data) < _BODY_LEN:
        return None

    htype, ptype, hlen, plen, op = _HEAD.unpack_from(data)
    if htype not in (HTYPE_ETHERNET, HTYPE_IEEE802) or (ptype, hlen, plen) != (ETHERTYPE_IPV4, 6, 4):
        return None
    if op not in (ArpOp.REQUEST, ArpOp.REPLY):
        return None

    return ArpPacket(
        op=ArpOp(op),
        sha=MacAddress(data[8:14]),
        spa=IPv4Address(data[14:18]),
        tha=MacAddress(data[18:24]),
        tpa=IPv4Address(data[24:28]),
        htype=htype,
    )


def parse_arp_frame(data: bytes) -> ArpPacket | None:
    """The ARP packet in an untagged Ethernet frame, or None."""
    frame = parse_ethernet(data)
    if frame is None or frame.tags or frame.ethertype != ETHERTYPE_ARP:
        return None
    return parse_arp(frame.payload)


def build_frame(packet: ArpPacket, dst: MacAddress, src: MacAddress, min_len: int = MIN_FRAME_LEN) -> bytes:
    """`packet` in an Ethernet frame of at least `min_len` bytes."""
    return EthernetFrame(dst, src, ETHERTYPE_ARP, packet.build()).build(min_len)


def build_request(sha: MacAddress, spa: IPv4Address, tpa: IPv4Address, dst: MacAddress = BROADCAST_MAC) -> bytes:
    """A request for `tpa`; with `spa` 0.0.0.0 a probe (RFC 5227 2.1.1)."""
    return build_frame(ArpPacket(ArpOp.REQUEST, sha, spa, ZERO_MAC, tpa), dst, sha)


def build_announcements(sha: MacAddress, vip: IPv4Address) -> tuple[bytes, bytes]:
    """Both forms that neighbours learn from: the request with tha 0 (RFC 5227 2.3) and the reply with tha = sha.

    Linux moves even an entry younger than its locktime on either; on a reply with broadcast tha it does not.
    """
    request = ArpPacket(ArpOp.REQUEST, sha, vip, ZERO_MAC, vip)
    reply = ArpPacket(ArpOp.REPLY, sha, vip, sha, vip)
    return build_frame(request, BROADCAST_MAC, sha), build_frame(reply, BROADCAST_MAC, sha)
