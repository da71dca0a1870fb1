"""A silent rogue: a host that answers those who ask for a VIP, by unicast, and announces nothing."""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import closing, contextmanager
from ipaddress import IPv4Address

from arpguard.addresses import Address, MacAddress
from arpguard.dataplane.neighboursocket import HeardFrame, NeighbourSocket
from arpguard.wire.arp import ArpOp, ArpPacket, build_frame
from arpguard.wire.ndp import NdType, build_advertisement
from arpguard_lab.netns import Netns
from support.repeating import repeated

_QUESTIONS = (ArpOp.REQUEST, NdType.SOLICITATION)


@contextmanager
def a_rogue(netns: Netns, vips: AbstractSet[Address], *macs: MacAddress) -> Iterator[None]:
    """Answers from eth0 of a namespace with each of these MACs."""
    socket = netns.call(lambda: NeighbourSocket("eth0"))

    def answer_next() -> None:
        heard = socket.hear(0.1)
        if heard is not None and heard.packet.op in _QUESTIONS and heard.packet.tpa in vips:
            for mac in macs:
                socket.send(_answer(heard, mac))

    with closing(socket), repeated(answer_next, 0):
        yield


def _answer(heard: HeardFrame, mac: MacAddress) -> bytes:
    asked = heard.packet
    if isinstance(asked.tpa, IPv4Address):
        return build_frame(ArpPacket(ArpOp.REPLY, mac, asked.tpa, asked.sha, asked.spa), asked.sha, mac)
    return build_advertisement(mac, asked.tpa, asked.spa, asked.sha)
