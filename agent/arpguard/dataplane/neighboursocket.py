"""ARP and neighbour discovery on the wire of one interface (packet(7)).

Asks, and hears every frame, also those that tc drops afterwards.
"""

import errno
import os
import select
import socket
import struct
import time
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from arpguard.addresses import Address, MacAddress
from arpguard.dataplane import packetsocket
from arpguard.errors import DataPlaneError
from arpguard.wire.arp import ArpOp, build_request
from arpguard.wire.ethernet import ETHERTYPE_ARP, ETHERTYPE_IPV6
from arpguard.wire.facts import Facts, facts_of, facts_of_nd
from arpguard.wire.ndp import (
    NEXT_HEADER_ICMPV6,
    NdType,
    build_dad_solicitation,
    build_solicitation,
    parse_nd_frame,
)

_ETH_P_ALL = 0x0003  # taps of all protocols run before tc ingress
_PACKET_OUTGOING = 4
_RECEIVE_BUFFER = 4 << 20
_LONGEST = 2048
_MS_PER_S = 1000
# Classic BPF: ARP, and ICMPv6 of the two types that is behind no extension header; no other VLAN's. The kernel has
# taken a tag out of the frame before taps run, and a tap on a link hears what is for the VLAN devices on it, too.
_VLAN_TAG = packetsocket.ANCILLARY + 44  # SKF_AD_VLAN_TAG; 0 where there is none
_NEIGHBOURS = (
    (0x20, 0, 0, _VLAN_TAG),  # ld vlan_tci
    (0x45, 9, 0, 0x0FFF),  # jset VID, drop
    (0x28, 0, 0, 12),  # ldh [12]           ethertype
    (0x15, 6, 0, ETHERTYPE_ARP),  # jeq, accept
    (0x15, 0, 6, ETHERTYPE_IPV6),  # jeq, else drop
    (0x30, 0, 0, 20),  # ldb [20]           next header
    (0x15, 0, 4, NEXT_HEADER_ICMPV6),  # jeq, else drop
    (0x30, 0, 0, 54),  # ldb [54]           type
    (0x15, 1, 0, NdType.SOLICITATION),  # jeq, accept
    (0x15, 0, 1, NdType.ADVERTISEMENT),  # jeq, else drop
    (0x06, 0, 0, 0x40000),
    (0x06, 0, 0, 0),
)
# The same, but only what is sent to this host alone: ARP replies and neighbour advertisements.
_PACKET_TYPE = packetsocket.ANCILLARY + 4  # SKF_AD_PKTTYPE; 0 is PACKET_HOST: to the MAC of this link
_REPLIES = (
    (0x20, 0, 0, _VLAN_TAG),  # ld vlan_tci
    (0x45, 12, 0, 0x0FFF),  # jset VID, drop
    (0x20, 0, 0, _PACKET_TYPE),  # ld pkttype
    (0x15, 0, 10, 0),  # jeq PACKET_HOST, else drop
    (0x28, 0, 0, 12),  # ldh [12]           ethertype
    (0x15, 0, 2, ETHERTYPE_ARP),  # jeq, else look whether it is IPv6
    (0x28, 0, 0, 20),  # ldh [20]           operation
    (0x15, 5, 6, ArpOp.REPLY),  # jeq, accept, else drop
    (0x15, 0, 5, ETHERTYPE_IPV6),  # jeq, else drop
    (0x30, 0, 0, 20),  # ldb [20]           next header
    (0x15, 0, 3, NEXT_HEADER_ICMPV6),  # jeq, else drop
    (0x30, 0, 0, 54),  # ldb [54]           type
    (0x15, 0, 1, NdType.ADVERTISEMENT),  # jeq, accept, else drop
    (0x06, 0, 0, 0x40000),
    (0x06, 0, 0, 0),
)
_FEW_REPLIES = 256 << 10  # bytes of receive buffer: for some hundred replies; a flood finds no more room
_SOL_PACKET, _PACKET_STATISTICS = 263, 6  # linux/if_packet.h
_STATISTICS = struct.Struct("II")  # struct tpacket_stats: packets, drops


@dataclass(frozen=True, slots=True)
class HeardFrame:
    """A frame that came in, and when (nanoseconds of CLOCK_MONOTONIC). `nonce`: of a solicitation that has one."""

    packet: Facts
    eth_src: MacAddress
    time_ns: int
    nonce: bytes = b""


class NeighbourSocket:
    """A raw socket on an interface of the calling thread's network namespace.

    `replies_only`: it hears only replies to this host's questions.
    Raises DataPlaneError when the interface is not there or raw sockets are refused.
    """

    def __init__(self, ifname: str, *, replies_only: bool = False) -> None:
        self._socket = packetsocket.open_raw()
        try:
            packetsocket.attach_filter(self._socket, _REPLIES if replies_only else _NEIGHBOURS)
            buffer = _FEW_REPLIES if replies_only else _RECEIVE_BUFFER
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            self._socket.bind((ifname, _ETH_P_ALL))
        except OSError as error:
            self._socket.close()
            raise DataPlaneError(
                f"cannot listen on interface {ifname} ({error.strerror}): name an interface that exists"
            ) from error

        self._ready = select.poll()  # select(2) takes no descriptor above 1023
        self._ready.register(self._socket, select.POLLIN)

    @property
    def mac(self) -> MacAddress:
        """The interface's MAC at this moment: a bond that fails over changes it, and so does a bridge's new port.

        OSError when the interface has gone.
        """
        octets = self._socket.getsockname()[4]
        if not octets:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        return MacAddress(octets)

    def fileno(self) -> int:
        """What to wait for."""
        return self._socket.fileno()

    def send(self, frame: bytes) -> None:
        """Sends a whole frame."""
        self._socket.send(frame)

    def hear(self, wait_s: float) -> HeardFrame | None:
        """The next packet from outside that a receiver would believe; None after `wait_s` seconds without one."""
        deadline = time.monotonic() + wait_s
        while True:
            left = deadline - time.monotonic()
            if not self._ready.poll(max(0.0, left) * _MS_PER_S):
                return None
            data, address = self._socket.recvfrom(_LONGEST)
            heard = _read(data) if address[2] != _PACKET_OUTGOING else None
            if heard is not None:
                return heard

    def ask(self, address: Address, spa: Address, *, count: int = 3, wait_s: float = 0.3) -> list[HeardFrame]:
        """Asks `count` times who has `address`, and listens `wait_s` seconds each time: every reply that came.

        `spa` is the sender's address, of the same family; 0.0.0.0 or :: for a probe, which claims nothing.
        """
        question, replies = build_question(self.mac, spa, address), []
        for _ in range(count):
            self.send(question)
            deadline = time.monotonic() + wait_s
            while (heard := self.hear(deadline - time.monotonic())) is not None:
                if heard.packet.spa == address and self.is_for_me(heard.packet, spa):
                    replies.append(heard)
        return replies

    def take_lost(self) -> int:
        """How many frames were dropped for lack of room since the last call."""
        raw = self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, _STATISTICS.size)
        lost: int = _STATISTICS.unpack(raw)[1]
        return lost

    def is_for_me(self, facts: Facts, spa: Address) -> bool:
        """Whether it is a reply to a question of `spa`; to a probe for an IPv6 address the answer goes to all nodes."""
        if facts.op is ArpOp.REPLY:
            return facts.tha == self.mac
        return facts.op is NdType.ADVERTISEMENT and (
            facts.tpa == spa or (spa.is_unspecified and facts.tpa.is_multicast)
        )

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()


def build_question(sha: MacAddress, spa: Address, address: Address, nonce: bytes = b"") -> bytes:
    """The frame that asks who has an address; from ::, with a nonce by which to recognize it (RFC 7527), if given."""
    if isinstance(address, IPv4Address):
        return build_request(sha, IPv4Address(spa), address)
    if spa.is_unspecified:
        return build_dad_solicitation(sha, address, nonce)
    return build_solicitation(sha, IPv6Address(spa), address)


def _read(data: bytes) -> HeardFrame | None:
    """What a frame says; of neighbour discovery only what is valid, because the rest may come from anywhere."""
    packet = parse_nd_frame(data)
    if packet is not None and packet.flaw is not None:
        return None
    facts = facts_of(data) if packet is None else facts_of_nd(packet)
    nonce = packet.message.nonce if packet is not None else b""
    return HeardFrame(facts, MacAddress(data[6:12]), time.monotonic_ns(), nonce) if facts is not None else None
