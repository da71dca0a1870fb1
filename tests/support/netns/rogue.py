"""A silent rogue: a host that answers those who ask for a VIP, by unicast, and announces nothing."""

import threading
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from ipaddress import IPv4Address

from arpguard.addresses import Address, MacAddress
from arpguard.dataplane.neighboursocket import HeardFrame, NeighbourSocket
from arpguard.wire.arp import ArpOp, ArpPacket, build_frame
from arpguard.wire.ndp import NdType, build_advertisement
from arpguard_lab.netns import Netns

_QUESTIONS = (ArpOp.REQUEST, NdType.SOLICITATION)


@contextmanager
def a_rogue(netns: Netns, vips: AbstractSet[Address], *macs: MacAddress) -> Iterator[None]:
    """Answers from eth0 of a namespace with each of these MACs."""
    socket = netns.call(lambda: NeighbourSocket("eth0"))
    ended = threading.Event()

    def serve() -> None:
        while not ended.is_set():
            heard = socket.hear(0.1)
            if heard is not None and heard.packet.op in _QUESTIONS and heard.packet.tpa in vips:
                for mac in macs:
                    socket.send(_answer(heard, mac))

    server = threading.Thread(target=serve)
    server.start()
    try:
        yield
    finally:
        ended.set()
        server.join()
        socket.close()


def _answer(heard: HeardFrame, mac: MacAddress) -> bytes:
    asked = heard.packet
    if isinstance(asked.tpa, IPv4Address):
        return build_frame(ArpPacket(ArpOp.REPLY, mac, asked.tpa, asked.sha, asked.spa), asked.sha, mac)
    return build_advertisement(mac, asked.tpa, asked.spa, asked.sha)
