"""The frames that stand for a question about an address, and frames in words."""

from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv4Address, IPv6Address
from typing import Self

from arpguard.addresses import Address, MacAddress
from arpguard.wire.arp import ArpOp, ArpPacket, build_frame, build_request
from arpguard.wire.facts import facts_of
from arpguard.wire.ndp import (
    NdType,
    build_advertisement,
    build_dad_solicitation,
    build_solicitation,
    build_unsolicited_advertisement,
)


class Operation(Enum):
    """What a host does with an address, and whether the frame comes in or goes out."""

    meaning: str  # in words

    REQUEST = "request", "in: request for it"
    PROBE = "probe", "in: probe for it"
    REPLY = "reply", "in: reply that claims it"
    ANNOUNCEMENT = "announcement", "in: announcement of it"
    OUT_REQUEST = "out-request", "out: request sent from it"
    OUT_REPLY = "out-reply", "out: reply that claims it"
    OUT_ANNOUNCEMENT = "out-announcement", "out: announcement of it"

    def __new__(cls, word: str, meaning: str = "") -> Self:
        """A member, which is known by its word."""
        member = object.__new__(cls)
        member._value_, member.meaning = word, meaning
        return member

    @property
    def outgoing(self) -> bool:
        """Whether this node sends the frame."""
        return self.name.startswith("OUT_")


_ANNOUNCES = (Operation.ANNOUNCEMENT, Operation.OUT_ANNOUNCEMENT)
_NOBODY = IPv4Address("0.0.0.0")  # noqa: S104 - the sender of a probe, not a bind


@dataclass(frozen=True, slots=True)
class Party:
    """A host that sends or is sent to."""

    mac: MacAddress
    address: Address


# Of no real host, by family: a locally administered MAC, RFC 7600's dummy address, one of RFC 6666's to discard.
STRANGER_MAC = MacAddress.parse("02:ff:ff:ff:ff:fe")
STRANGERS = {
    4: Party(STRANGER_MAC, IPv4Address("192.0.0.8")),
    6: Party(STRANGER_MAC, IPv6Address("100::1")),
}


def build_stimulus(operation: Operation, vip: Address, node: MacAddress, peer: Party | None = None) -> bytes:
    """The frame of an operation on `vip`, between this node's link with MAC `node` and a peer, by default a stranger.

    60 bytes of ARP; of neighbour discovery what stands for the same. ValueError when the peer is of another family.
    """
    peer = peer or STRANGERS[vip.version]
    sender, receiver = (node, peer.mac) if operation.outgoing else (peer.mac, node)
    if isinstance(vip, IPv4Address) and isinstance(peer.address, IPv4Address):
        return _arp(operation, vip, peer.address, sender, receiver)
    if isinstance(vip, IPv6Address) and isinstance(peer.address, IPv6Address):
        return _nd(operation, vip, peer.address, sender, receiver)
    raise ValueError(f"{peer.address} is not of the same family as {vip}")


def _arp(operation: Operation, vip: IPv4Address, peer: IPv4Address, sender: MacAddress, receiver: MacAddress) -> bytes:
    asked = {
        Operation.REQUEST: (peer, vip),
        Operation.PROBE: (_NOBODY, vip),
        Operation.OUT_REQUEST: (vip, peer),
        **dict.fromkeys(_ANNOUNCES, (vip, vip)),
    }.get(operation)
    if asked is None:
        return build_frame(ArpPacket(ArpOp.REPLY, sender, vip, receiver, peer), dst=receiver, src=sender)
    return build_request(sender, *asked)


def _nd(operation: Operation, vip: IPv6Address, peer: IPv6Address, sender: MacAddress, receiver: MacAddress) -> bytes:
    if operation is Operation.REQUEST:
        return build_solicitation(sender, peer, vip)
    if operation is Operation.PROBE:
        return build_dad_solicitation(sender, vip)
    if operation is Operation.OUT_REQUEST:
        return build_solicitation(sender, vip, peer)
    if operation in _ANNOUNCES:
        return build_unsolicited_advertisement(sender, vip)
    return build_advertisement(sender, vip, peer, receiver)


def describe(frame: bytes) -> str:
    """A frame of ARP or neighbour discovery in tcpdump's words."""
    facts = facts_of(frame)
    if facts is None:
        return f"{len(frame)} bytes that are neither ARP nor neighbour discovery"
    return _WORDS[facts.op].format(facts)


_WORDS = {
    ArpOp.REQUEST: "who-has {0.tpa} tell {0.spa}",
    ArpOp.REPLY: "{0.spa} is-at {0.sha}",
    NdType.SOLICITATION: "neighbor solicitation, who has {0.tpa} tell {0.spa}",
    NdType.ADVERTISEMENT: "neighbor advertisement, tgt is {0.spa} at {0.sha}",
}
