"""From bytes to what a frame says: the Ethernet header, VLAN tags with VID 0, and ARP or neighbour discovery."""

from dataclasses import dataclass

from arpguard.model import NodeControl
from arpguard.verdict import Mode, Reason
from arpguard.wire.arp import parse_arp
from arpguard.wire.ethernet import ETHERTYPE_ARP, ETHERTYPE_IPV6, VLAN_ETHERTYPES, EthernetFrame, parse_ethernet
from arpguard.wire.ndp import NdPacket, NoMessage, parse_nd
from reference.arp import HeardArp
from reference.message import Message
from reference.nd import HeardNd

MAX_TAGS = 8
"""Linux removes any number of nested VID-0 tags; this is how many are read through."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A frame that says nothing, or nothing that can be read. `reason` is None where it is not even looked at.

    `strictest`: the mode that decides whether one that a kernel might answer is dropped.
    """

    reason: Reason | None
    strictest: Mode


def read_frame(data: bytes, control: NodeControl) -> Message | Unreadable:
    """What a frame says."""
    unread = _unread_tags(data)
    if unread is not None:
        return Unreadable(unread, control.strictest)
    frame = parse_ethernet(data)
    if frame is not None and frame.ethertype == ETHERTYPE_IPV6:
        return _read_nd(frame, control)
    packet = parse_arp(frame.payload) if frame is not None and frame.ethertype == ETHERTYPE_ARP else None
    if frame is None or packet is None:
        looked_at = int.from_bytes(data[12:14], "big") in (ETHERTYPE_ARP, *VLAN_ETHERTYPES)
        return Unreadable(Reason.NOT_ARP if looked_at else None, control.strictest)
    return HeardArp(frame, packet)


_NO_MESSAGE = {NoMessage.NO_ND: None, NoMessage.CUT_OFF: Reason.NOT_ND, NoMessage.UNWALKABLE: Reason.UNWALKABLE}


def _read_nd(frame: EthernetFrame, control: NodeControl) -> Message | Unreadable:
    packet = parse_nd(frame)
    if isinstance(packet, NdPacket):
        return HeardNd(frame, packet)
    return Unreadable(_NO_MESSAGE[packet], control.strictest6)


def _unread_tags(data: bytes) -> Reason | None:
    """Why the tags of a frame end its reading. Of one that is cut off neither VID nor what is behind it is known."""
    depth, at = 0, 12
    while int.from_bytes(data[at : at + 2], "big") in VLAN_ETHERTYPES:
        if depth == MAX_TAGS:
            return Reason.UNWALKABLE
        if len(data) < at + 6:
            return None
        if int.from_bytes(data[at + 2 : at + 4], "big") & 0xFFF:
            return Reason.OTHER_VLAN
        depth, at = depth + 1, at + 4
    return None
