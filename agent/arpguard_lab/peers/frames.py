"""The frames of other announcers, byte for byte as they are on the wire.

    MetalLB    internal/layer2/arp.go, ndp.go; the frames are those of mdlayher/arp and mdlayher/ndp
    kube-vip   pkg/vip/arp.go, ndp.go

They differ from what arpguard and the kernel say: see `arpguard.wire.arp.build_announcements` for which of them moves
a neighbour entry at once.
"""

from ipaddress import IPv4Address, IPv6Address

from arpguard.addresses import BROADCAST_MAC, MacAddress
from arpguard.wire.arp import ArpOp, ArpPacket, build_frame
from arpguard.wire.ndp import ALL_NODES, MESSAGE_LEN, NdFlag, NdMessage, NdOption, NdType, OptionType

_UNIT = 8  # bytes in which options are counted


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


def advertisement(mac: MacAddress, src: IPv6Address, vip: IPv6Address, asked_by: IPv6Address | None = None) -> bytes:
    """What both say in IPv6, without an IPv6 header: to all with O=1 and S=0; as an answer S=1, and O=0.

    The kernel answers with O=1 (RFC 4861 7.2.4).
    """
    option = NdOption.link_layer(OptionType.TARGET_LINK_LAYER, mac)
    flags = NdFlag.OVERRIDE if asked_by is None else NdFlag.SOLICITED
    return NdMessage(NdType.ADVERTISEMENT, src, asked_by or ALL_NODES, vip, flags, (option,)).build()


def metallb_asked(message: bytes) -> IPv6Address | None:
    """The target of a solicitation, an ICMPv6 message; None where MetalLB looks no further: it has no SLLA.

    So it answers neither duplicate address detection nor probes without that option.
    """
    options = message[MESSAGE_LEN:]
    while len(options) >= _UNIT and options[1]:
        if options[0] == OptionType.SOURCE_LINK_LAYER:
            return IPv6Address(message[8:MESSAGE_LEN])
        options = options[options[1] * _UNIT :]
    return None
