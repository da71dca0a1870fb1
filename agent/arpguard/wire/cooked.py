"""Linux cooked captures (`tcpdump -i any`; LINKTYPE_LINUX_SLL and _SLL2): the Ethernet frame that was on the wire.

The kernel removed the Ethernet header, and keeps of it the source, the type, and the kind of destination. The
destination is made up from that: the guard needs no more of it.
"""

import struct
from typing import NamedTuple

from arpguard.addresses import BROADCAST_MAC, MacAddress
from arpguard.wire.ethernet import ETHERTYPE_ARP, ETHERTYPE_IPV6

LINKTYPE_ETHERNET, LINKTYPE_SLL, LINKTYPE_SLL2 = 1, 113, 276
_ARPHRD_ETHER = 1
_SLL = struct.Struct("!HHH8sH")
_SLL2 = struct.Struct("!HHIHBB8s")
_HOST, _BROADCAST, _MULTICAST, _OTHER_HOST, _OUTGOING = range(5)  # packet(7), sll_pkttype
_A_GROUP = MacAddress.parse("01:00:5e:00:00:00")
_SOMEBODY = MacAddress.parse("02:ff:ff:ff:ff:fc")


class Uncooked(NamedTuple):
    """`link` is the interface's number as "#7", empty where it is not told."""

    frame: bytes
    outgoing: bool
    link: str


def uncooked(linktype: int, data: bytes, own: MacAddress) -> Uncooked | None:
    """The frame in a cooked one; None for what was not on Ethernet. `own` is the MAC of the capturing host."""
    if linktype == LINKTYPE_SLL2:
        if len(data) < _SLL2.size:
            return None
        ethertype, _, ifindex, hardware, kind, size, source = _SLL2.unpack_from(data)
        payload, link = data[_SLL2.size :], f"#{ifindex}"
    else:
        if len(data) < _SLL.size:
            return None
        kind, hardware, size, source, ethertype = _SLL.unpack_from(data)
        payload, link = data[_SLL.size :], ""

    if hardware != _ARPHRD_ETHER or size != 6:
        return None

    destination = _destination(kind, ethertype, payload, own)
    frame = destination.octets + source[:6] + struct.pack("!H", ethertype) + payload
    return Uncooked(frame, kind == _OUTGOING, link)


def _destination(kind: int, ethertype: int, payload: bytes, own: MacAddress) -> MacAddress:
    if kind == _HOST:
        return own
    if kind == _BROADCAST:
        return BROADCAST_MAC
    if kind == _OTHER_HOST:
        return _SOMEBODY
    if ethertype == ETHERTYPE_IPV6 and payload[24:25] == b"\xff":  # RFC 2464 7
        return MacAddress(b"\x33\x33" + payload[36:40].ljust(4, b"\0"))
    if kind == _MULTICAST:
        return _A_GROUP
    # What went out: a request as a rule to all, a reply to whom it names.
    asked = ethertype == ETHERTYPE_ARP and payload[18:24] in (b"", bytes(6))
    return BROADCAST_MAC if asked else _SOMEBODY
