"""The frames of other announcers, byte for byte as they are on the wire.

    MetalLB    internal/layer2/arp.go, ndp.go; the frames are those of mdlayher/arp and mdlayher/ndp
    kube-vip   pkg/vip/arp.go, ndp.go

They differ from what arpguard and the kernel say: see `arpguard.wire.arp.build_announcements` for which of them moves
a neighbour entry at once.
"""

from ipaddress import IPv4Address

from arpguard.addresses import BROADCAST_MAC, MacAddress
from arpguard.wire.arp import ArpOp, ArpPacket, build_frame


def metallb_announcements(mac: MacAddress, vip: IPv4Address) -> list[bytes]:
    """A request and a reply, both with broadcast tha."""
    packets = [ArpPacket(op, mac, vip, BROADCAST_MAC, vip) for op in (ArpOp.REQUEST, ArpOp.REPLY)]
    return [build_frame(packet, BROADCAST_MAC, mac) for packet in packets]


def metallb_answer(mac: MacAddress, request: ArpPacket) -> bytes:
    """To the MAC that stands in the request as its sender's, whatever the frame came from."""
    packet = ArpPacket(ArpOp.REPLY, mac, request.tpa, request.sha, request.spa)
    return build_frame(packet, request.sha, mac)


def metallb_hears(mac: MacAddress, dst: MacAddress, request: ArpPacket) -> bool:
    """Whether it looks at a frame at all: a request, broadcast or to this MAC."""
    return request.op is ArpOp.REQUEST and dst in (BROADCAST_MAC, mac)


def kube_vip_announcements(mac: MacAddress, vip: IPv4Address) -> list[bytes]:
    """ARP packets without an Ethernet header, sent in turns: a reply with tha = sha, a request with broadcast tha."""
    return [
        ArpPacket(ArpOp.REPLY, mac, vip, mac, vip).build(),
        ArpPacket(ArpOp.REQUEST, mac, vip, BROADCAST_MAC, vip).build(),
    ]
