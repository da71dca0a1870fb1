"""Neighbour discovery: what a message says, when it may be answered, and with what (RFC 4861, RFC 4862)."""

from ipaddress import IPv6Address

from arpguard.addresses import Address, MacAddress
from arpguard.model import VipEntry
from arpguard.verdict import Reason
from arpguard.wire.ethernet import EthernetFrame
from arpguard.wire.ndp import (
    ALL_NODES,
    UNSPECIFIED,
    Flaw,
    NdPacket,
    NdType,
    build_advertisement,
    multicast_mac,
    solicited_node,
)
from reference.message import Message, first_broken, is_own

MAX_READ_LEN = 512
"""Of a longer message neither options nor checksum are looked at. Real ones have a few dozen bytes."""
_OF_THE_REST = (Flaw.OPTIONS, Flaw.LINK_LAYER, Flaw.DAD_LINK_LAYER, Flaw.CHECKSUM)
_SOURCE_AT, _CHECKSUM_AT = 8, 2  # in the IPv6 header, in the message


class HeardNd(Message):
    """A neighbour solicitation or advertisement in its frame."""

    def __init__(self, frame: EthernetFrame, packet: NdPacket) -> None:
        self._frame, self._packet = frame, packet
        message = packet.message
        solicits = message.kind is NdType.SOLICITATION
        self._unread = min(packet.length, packet.room) > MAX_READ_LEN
        self._flaw = None if self._unread and packet.flaw in _OF_THE_REST else packet.flaw
        self.claimed = _of_a_host(message.src if solicits else message.target)
        self.asked = _of_a_host(message.target) if solicits else None
        self.sha = frame.src if self._unread else packet.sha
        self.believed = self._flaw is None
        self.tells = not solicits
        self.third_party = self.sha != frame.src
        self.to = frame.dst

    def objection(self, entry: VipEntry) -> Reason | None:
        """What RFC 4861 7.1.1 and 7.2 ask nobody to answer."""
        dst, sha, src = self._frame.dst, self.sha, self._packet.message.src
        to_its_group = self._packet.message.dst.is_multicast and dst == multicast_mac(self._packet.message.dst)
        return first_broken(
            (
                (entry.link_mac.is_zero or entry.answer_mac.is_zero, Reason.NO_LINK),
                (self._flaw is Flaw.CHECKSUM, Reason.ND_CHECKSUM),
                (self._flaw is not None, Reason.ND_INVALID),
                (self._unread, Reason.NOT_STRICT),
                (is_own(sha, entry), Reason.OWN_ECHO),
                (sha.is_group or sha.is_zero or self._frame.src.is_group, Reason.BAD_SENDER),
                (src != UNSPECIFIED and _of_a_host(src) is None, Reason.BAD_SENDER),
                (dst.is_group and not to_its_group, Reason.NOT_STRICT),
                (not dst.is_group and not is_own(dst, entry), Reason.OTHER_HOST),
                (self._is_odd, Reason.NOT_STRICT),
            )
        )

    @property
    def _is_odd(self) -> bool:
        """What no host sends, though a kernel may answer it."""
        message = self._packet.message
        if self._packet.extensions or len(self._frame.tags) > 1:
            return True
        if message.dst == message.target:
            return False
        nowhere_to_answer = not message.is_dad and message.link_layer is None
        return nowhere_to_answer or message.dst not in (solicited_node(message.target), ALL_NODES)

    def answer(self, mac: MacAddress) -> bytes:
        """The advertisement, untagged."""
        message = self._packet.message
        return build_advertisement(mac, message.target, message.src, self.sha)

    def disarmed(self) -> bytes:
        """The frame as it is: no kernel takes it for a question, but where it is judged as one."""
        return self._frame.build()

    def rewritten(self, primary: Address) -> bytes:
        """The solicitation with another source; its checksum is as right, or as wrong, as before (RFC 1624)."""
        data = self._frame.build()
        source_at = len(data) - len(self._frame.payload) + _SOURCE_AT
        checksum_at = len(data) - self._packet.room + _CHECKSUM_AT
        source, checksum = data[source_at : source_at + 16], data[checksum_at : checksum_at + 2]
        data = _patched(data, checksum_at, _adjusted(checksum, source, primary.packed))
        return _patched(data, source_at, primary.packed)


def _of_a_host(address: IPv6Address) -> IPv6Address | None:
    """The address, unless it is none of a host: the unspecified, multicast, loopback and v4-mapped ones."""
    no_host = address.is_unspecified or address.is_multicast or address.is_loopback
    return None if no_host or address.ipv4_mapped is not None else address


def _adjusted(checksum: bytes, old: bytes, new: bytes) -> bytes:
    """HC' = ~(~HC + ~m + m') of RFC 1624, over all 16-bit words."""
    total = sum(0xFFFF - word for word in _words(checksum + old)) + sum(_words(new))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return (0xFFFF - total).to_bytes(2, "big")


def _words(data: bytes) -> list[int]:
    return [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]


def _patched(data: bytes, at: int, octets: bytes) -> bytes:
    return data[:at] + octets + data[at + len(octets) :]
