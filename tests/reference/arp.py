"""ARP: what a packet says, when it may be answered, and with what (RFC 826, RFC 5227)."""

from dataclasses import replace
from ipaddress import IPv4Address

from arpguard.addresses import BROADCAST_MAC, Address, MacAddress
from arpguard.model import VipEntry
from arpguard.verdict import Reason
from arpguard.wire.arp import HTYPE_ETHERNET, ArpOp, ArpPacket, build_frame
from arpguard.wire.ethernet import MIN_FRAME_LEN, EthernetFrame
from reference.message import Message, first_broken, is_own

_FRAME_LEN = 42
_BODY_LEN = 28
_LIMITED_BROADCAST = IPv4Address("255.255.255.255")


class HeardArp(Message):
    """An ARP packet in its frame."""

    believed = True

    def __init__(self, frame: EthernetFrame, packet: ArpPacket) -> None:
        self._frame, self._packet = frame, packet
        self.claimed = None if packet.spa.is_unspecified else packet.spa
        self.asked = packet.tpa if _is_question(packet) else None
        self.sha = packet.sha
        self.tells = packet.op is ArpOp.REPLY or packet.is_announcement
        self.third_party = packet.sha != frame.src
        self.to = frame.dst

    def objection(self, entry: VipEntry) -> Reason | None:
        """What RFC 826 asks nobody to answer."""
        packet, dst, src = self._packet, self._frame.dst, self._frame.src
        return first_broken(
            (
                (entry.link_mac.is_zero or entry.answer_mac.is_zero, Reason.NO_LINK),
                (is_own(packet.sha, entry), Reason.OWN_ECHO),
                (packet.sha.is_group or packet.sha.is_zero, Reason.BAD_SENDER),
                (src.is_group or _is_special(packet.spa), Reason.BAD_SENDER),
                (dst.is_group and dst != BROADCAST_MAC, Reason.NOT_STRICT),
                (not dst.is_group and not is_own(dst, entry), Reason.OTHER_HOST),
                (packet.htype != HTYPE_ETHERNET or len(self._frame.tags) > 1, Reason.NOT_STRICT),
            )
        )

    def answer(self, mac: MacAddress) -> bytes:
        """The reply: 60 bytes to a frame of 60 or more (without its tag), else 42; padding is zero."""
        packet = self._packet
        reply = ArpPacket(ArpOp.REPLY, sha=mac, spa=packet.tpa, tha=packet.sha, tpa=packet.spa)
        untagged_len = len(self._frame.build()) - 4 * len(self._frame.tags)
        min_len = MIN_FRAME_LEN if untagged_len >= MIN_FRAME_LEN else _FRAME_LEN
        return build_frame(reply, dst=packet.sha, src=mac, min_len=min_len)

    def disarmed(self) -> bytes:
        """A claim in the form of a request for the same address, as a reply: the kernel learns, and never answers."""
        packet = self._packet
        if packet.op is ArpOp.REQUEST and packet.is_announcement:
            packet = replace(packet, op=ArpOp.REPLY, tha=packet.sha)
        return self._with(packet)

    def rewritten(self, primary: Address) -> bytes:
        """The request with another spa."""
        if not isinstance(primary, IPv4Address):
            raise TypeError(f"{primary} is no IPv4 address")
        return self._with(replace(self._packet, spa=primary))

    def _with(self, packet: ArpPacket) -> bytes:
        return replace(self._frame, payload=packet.build() + self._frame.payload[_BODY_LEN:]).build()


def _is_question(packet: ArpPacket) -> bool:
    """An announcement only looks like a request (RFC 5227 2.5)."""
    possible = not (packet.tpa.is_unspecified or _is_special(packet.tpa))
    return packet.op is ArpOp.REQUEST and not packet.is_announcement and possible


def _is_special(address: IPv4Address) -> bool:
    return address.is_multicast or address.is_loopback or address == _LIMITED_BROADCAST
