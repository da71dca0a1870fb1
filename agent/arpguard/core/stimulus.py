"""The frames that a question about an address is put with, and frames in words."""

from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv4Address

from arpguard.addresses import BROADCAST_MAC, ZERO_MAC, MacAddress
from arpguard.wire.arp import ArpOp, ArpPacket, build_frame, parse_arp_frame


class Operation(Enum):
    """What somebody does with an address, and whether that comes in or goes out."""

    REQUEST = "request"
    PROBE = "probe"
    REPLY = "reply"
    ANNOUNCEMENT = "announcement"
    OUT_REQUEST = "out-request"
    OUT_REPLY = "out-reply"
    OUT_ANNOUNCEMENT = "out-announcement"

    @property
    def outgoing(self) -> bool:
        """Whether this node sends the frame."""
        return self.value.startswith("out-")

    @property
    def meaning(self) -> str:
        """The operation in words."""
        return _MEANINGS[self]


_MEANINGS = {
    Operation.REQUEST: "in: request by a stranger",
    Operation.PROBE: "in: probe (RFC 5227)",
    Operation.REPLY: "in: reply by a stranger",
    Operation.ANNOUNCEMENT: "in: announcement of it",
    Operation.OUT_REQUEST: "out: request in its name",
    Operation.OUT_REPLY: "out: reply for it",
    Operation.OUT_ANNOUNCEMENT: "out: announcement of it",
}
_NOBODY = IPv4Address("0.0.0.0")  # noqa: S104 - the sender of a probe, not a bind


@dataclass(frozen=True, slots=True)
class Party:
    """A host that sends or is sent to. A locally administered MAC that nobody has stands for a stranger."""

    mac: MacAddress
    address: IPv4Address


STRANGER = Party(MacAddress.parse("02:ff:ff:ff:ff:fe"), IPv4Address("192.0.0.8"))  # RFC 7600: a dummy address


def build_stimulus(operation: Operation, vip: IPv4Address, node: MacAddress, peer: Party = STRANGER) -> bytes:
    """The frame of an operation on `vip`, between this node's link with MAC `node` and a peer; 60 bytes."""
    asks = ArpPacket(ArpOp.REQUEST, peer.mac, peer.address, ZERO_MAC, vip)
    sender = node if operation.outgoing else peer.mac
    receiver = peer.mac if operation.outgoing else node
    packets = {
        Operation.REQUEST: asks,
        Operation.PROBE: ArpPacket(ArpOp.REQUEST, peer.mac, _NOBODY, ZERO_MAC, vip),
        Operation.OUT_REQUEST: ArpPacket(ArpOp.REQUEST, sender, vip, ZERO_MAC, peer.address),
        Operation.ANNOUNCEMENT: ArpPacket(ArpOp.REQUEST, sender, vip, ZERO_MAC, vip),
        Operation.OUT_ANNOUNCEMENT: ArpPacket(ArpOp.REQUEST, sender, vip, ZERO_MAC, vip),
    }
    reply = ArpPacket(ArpOp.REPLY, sender, vip, receiver, peer.address)
    packet = packets.get(operation, reply)
    return build_frame(packet, dst=BROADCAST_MAC if packet.op is ArpOp.REQUEST else receiver, src=sender)


def describe(frame: bytes) -> str:
    """An ARP frame in tcpdump's words."""
    packet = parse_arp_frame(frame)
    if packet is None:
        return f"{len(frame)} bytes that are no ARP"
    if packet.op is ArpOp.REPLY:
        return f"{packet.spa} is-at {packet.sha}"
    return f"who-has {packet.tpa} tell {packet.spa}"
