"""What a frame says about who has which address, in RFC 826's terms for both families.

| field | ARP | solicitation                                 | advertisement                     |
| ----- | --- | -------------------------------------------- | --------------------------------- |
| spa   | spa | the packet's source; :: claims nothing       | target                            |
| tpa   | tpa | target                                       | the packet's destination          |
| sha   | sha | its option, or else the Ethernet source      | its option, or else the same      |
| tha   | tha | zero                                         | zero                              |
| op    | op  | 135                                          | 136                               |
"""

from dataclasses import dataclass

from arpguard.addresses import ZERO_MAC, Address, MacAddress
from arpguard.wire.arp import ArpOp, parse_arp_frame
from arpguard.wire.ndp import NdPacket, NdType, parse_nd_frame


@dataclass(frozen=True, slots=True)
class Facts:
    """Which host claims which address, and which address is asked for."""

    op: ArpOp | NdType
    sha: MacAddress
    spa: Address
    tha: MacAddress
    tpa: Address

    @property
    def is_question(self) -> bool:
        """A request or a solicitation."""
        return self.op in (ArpOp.REQUEST, NdType.SOLICITATION)

    @property
    def is_probe(self) -> bool:
        """A question that claims nothing: whether an address is free (RFC 5227 1.1, RFC 4862 5.4.2)."""
        return self.is_question and self.spa.is_unspecified


def facts_of(data: bytes) -> Facts | None:
    """The facts in an untagged frame; None when it is about no address."""
    packet = parse_arp_frame(data)
    if packet is not None:
        return Facts(packet.op, packet.sha, packet.spa, packet.tha, packet.tpa)
    found = parse_nd_frame(data)
    return facts_of_nd(found) if found is not None else None


def facts_of_nd(packet: NdPacket) -> Facts:
    """The facts in a solicitation or advertisement, valid or not."""
    message = packet.message
    asks = message.kind is NdType.SOLICITATION
    claimed, other = (message.src, message.target) if asks else (message.target, message.dst)
    return Facts(message.kind, packet.sha, claimed, ZERO_MAC, other)
