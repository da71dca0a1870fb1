"""An announcer like MetalLB's speaker in layer 2 mode: no address on any link, all is answered by this process.

    python -m arpguard.lab.peers.metallb eth0 198.51.100.50 ...

Like the speaker it has a packet socket for ARP alone. Such a socket gets frames after tc ingress, so it does not
even hear what a guard on this node drops; what it sends goes through tc egress.
It announces as the speaker does after it took a VIP: at once, then every 1.1 s until 5 s have passed.
"""

import select
import socket
import sys
import time
from collections.abc import Sequence
from ipaddress import IPv4Address

from arpguard.addresses import MacAddress
from arpguard.lab.peers.frames import metallb_announcements, metallb_answer, metallb_hears
from arpguard.wire.arp import parse_arp_frame
from arpguard.wire.ethernet import ETHERTYPE_ARP

EVERY_S = 1.1
FOR_S = 5.0


class Speaker:
    """Answers for some VIPs on one link, in the current network namespace."""

    def __init__(self, ifname: str, vips: Sequence[IPv4Address]) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE_ARP))
        self._socket.bind((ifname, ETHERTYPE_ARP))
        self._mac = MacAddress(self._socket.getsockname()[4])
        self._vips = tuple(vips)

    def run(self) -> None:
        """For ever."""
        began = due = time.monotonic()
        while True:
            now = time.monotonic()
            if due <= now < began + FOR_S:
                self._announce()
                due += EVERY_S
            wait_s = max(0.0, due - now) if due < began + FOR_S else None
            if select.select([self._socket], [], [], wait_s)[0]:
                self._hear(self._socket.recv(2048))

    def _announce(self) -> None:
        for vip in self._vips:
            for frame in metallb_announcements(self._mac, vip):
                self._send(frame)

    def _hear(self, frame: bytes) -> None:
        packet = parse_arp_frame(frame)
        if (
            packet is None
            or packet.tpa not in self._vips
            or not metallb_hears(self._mac, MacAddress(frame[:6]), packet)
        ):
            return
        self._send(metallb_answer(self._mac, packet))

    def _send(self, frame: bytes) -> None:
        """What tc egress drops fails with ENOBUFS; the speaker logs that and goes on."""
        try:
            self._socket.send(frame)
        except OSError as error:
            _say(f"failed to send: {error}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(words: Sequence[str]) -> None:
    """The link, then the VIPs."""
    speaker = Speaker(words[0], [IPv4Address(word) for word in words[1:]])
    _say(f"ready: {' '.join(words[1:])} on {words[0]}")
    speaker.run()


if __name__ == "__main__":
    main(sys.argv[1:])
