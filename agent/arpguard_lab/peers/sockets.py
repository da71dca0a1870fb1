"""How the announcers listen and send, in the current network namespace.

What tc egress drops fails with ENOBUFS on a packet socket, and silently on a raw ICMPv6 socket (raw(7), packet(7)).
Both log such a thing and continue.
"""

import json
import socket
import struct
import sys
from ipaddress import IPv6Address

from arpguard.addresses import BROADCAST_MAC, MacAddress
from arpguard.errors import DataPlaneError
from arpguard.wire.ethernet import ETHERTYPE_ARP
from arpguard.wire.ndp import ALL_NODES, HOP_LIMIT, NdType, solicited_node
from arpguard_lab.netns import command

_ICMPV6_FILTER = 1
_PACKET_HOST = 0
_LONGEST = 2048


def say(text: str) -> None:
    """A line for whoever started this program."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class ArpPort:
    """ARP on a link: whole frames in; out with a header, or (`cooked`) behind one that the kernel makes."""

    def __init__(self, ifname: str, *, cooked: bool = False) -> None:
        kind = socket.SOCK_DGRAM if cooked else socket.SOCK_RAW
        self.socket = socket.socket(socket.AF_PACKET, kind, socket.htons(ETHERTYPE_ARP))
        self.socket.bind((ifname, ETHERTYPE_ARP))
        self.mac = MacAddress(self.socket.getsockname()[4])
        self._cooked = (ifname, ETHERTYPE_ARP, _PACKET_HOST, 1, BROADCAST_MAC.octets) if cooked else None

    def send(self, frame: bytes) -> None:
        """Sends a frame; of a cooked port to everybody."""
        try:
            if self._cooked:
                self.socket.sendto(frame, self._cooked)
            else:
                self.socket.send(frame)
        except OSError as error:
            say(f"failed to send: {error}")

    def hear(self) -> bytes:
        """The next frame."""
        return self.socket.recv(_LONGEST)


class NdPort:
    """Neighbour solicitations on a link, by a raw ICMPv6 socket of its link-local address: the kernel's headers."""

    def __init__(self, ifname: str) -> None:
        self._index = socket.if_nametoindex(ifname)
        self.mac, self.address = _link_local(ifname)
        self.socket = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
        self.socket.setsockopt(socket.IPPROTO_ICMPV6, _ICMPV6_FILTER, _only(NdType.SOLICITATION))
        for option, value in (
            (socket.IPV6_MULTICAST_IF, self._index),
            (socket.IPV6_MULTICAST_HOPS, HOP_LIMIT),
            (socket.IPV6_UNICAST_HOPS, HOP_LIMIT),
            (socket.IPV6_MULTICAST_LOOP, 0),
        ):
            self.socket.setsockopt(socket.IPPROTO_IPV6, option, value)
        self.socket.bind((str(self.address), 0, 0, self._index))

    def join(self, vip: IPv6Address) -> None:
        """Listens to the VIP's solicited-node group."""
        request = solicited_node(vip).packed + struct.pack("=I", self._index)
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, request)

    def send(self, message: bytes, to: IPv6Address = ALL_NODES) -> None:
        """Sends an ICMPv6 message."""
        try:
            self.socket.sendto(message, (str(to), 0, 0, self._index))
        except OSError as error:
            say(f"failed to send: {error}")

    def hear(self) -> tuple[bytes, IPv6Address]:
        """The next solicitation, and whose it is."""
        message, sender = self.socket.recvfrom(_LONGEST)
        return message, IPv6Address(sender[0].partition("%")[0])


def _only(kind: NdType) -> bytes:
    """The filter that lets one type in (RFC 3542 3.2): a bit for each that is kept out."""
    words = [0xFFFFFFFF] * 8
    words[kind >> 5] &= ~(1 << (kind & 31))
    return struct.pack("=8I", *words)


def _link_local(ifname: str) -> tuple[MacAddress, IPv6Address]:
    rows = json.loads(command("ip", "-json", "-6", "addr", "show", "dev", ifname, "scope", "link"))
    links = json.loads(command("ip", "-json", "link", "show", "dev", ifname))
    found = [IPv6Address(entry["local"]) for row in rows for entry in row.get("addr_info", ()) if entry]
    if not found:
        raise DataPlaneError(f"{ifname} has no link-local address: enable IPv6 on it")
    return MacAddress.parse(links[0]["address"]), found[0]
