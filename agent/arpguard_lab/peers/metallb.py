"""An announcer like MetalLB's speaker in layer 2 mode: no address on any link, all is answered by this process.

    python -m arpguard_lab.peers.metallb eth0 198.51.100.50

Like the speaker it has a packet socket for ARP alone, or a raw ICMPv6 socket. Such sockets get frames after tc
ingress, so it does not even hear what a guard on this node drops; what it sends goes through tc egress.
It announces as the speaker does after it took a VIP: at once, then every 1.1 s until 5 s have passed.
"""

import select
import sys
import time
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Protocol

from arpguard.addresses import MacAddress
from arpguard.wire.arp import parse_arp_frame
from arpguard_lab.peers.frames import (
    advertisement,
    metallb_announcements,
    metallb_answer,
    metallb_asked,
    metallb_hears,
)
from arpguard_lab.peers.sockets import ArpPort, NdPort, say

EVERY_S = 1.1
FOR_S = 5.0


class Speaker(Protocol):
    """Speaks for one VIP on one link."""

    def fileno(self) -> int:
        """What to wait for."""

    def announce(self) -> None:
        """Tells everybody."""

    def hear(self) -> None:
        """Answers what has come."""


class ArpSpeaker:
    """For an IPv4 VIP."""

    def __init__(self, ifname: str, vip: IPv4Address) -> None:
        self._port = ArpPort(ifname)
        self._vip = vip

    def fileno(self) -> int:
        """What to wait for."""
        return self._port.socket.fileno()

    def announce(self) -> None:
        """Tells everybody."""
        for frame in metallb_announcements(self._port.mac, self._vip):
            self._port.send(frame)

    def hear(self) -> None:
        """Answers a request for the VIP."""
        frame = self._port.hear()
        packet = parse_arp_frame(frame)
        if packet and packet.tpa == self._vip and metallb_hears(self._port.mac, MacAddress(frame[:6]), packet):
            self._port.send(metallb_answer(self._port.mac, packet))


class NdSpeaker:
    """For an IPv6 VIP."""

    def __init__(self, ifname: str, vip: IPv6Address) -> None:
        self._port = NdPort(ifname)
        self._port.join(vip)
        self._vip = vip

    def fileno(self) -> int:
        """What to wait for."""
        return self._port.socket.fileno()

    def announce(self) -> None:
        """Tells everybody."""
        self._port.send(advertisement(self._port.mac, self._port.address, self._vip))

    def hear(self) -> None:
        """Answers a solicitation of the VIP."""
        message, asker = self._port.hear()
        if metallb_asked(message) == self._vip:
            self._port.send(advertisement(self._port.mac, self._port.address, self._vip, asker), asker)


def run(speaker: Speaker) -> None:
    """Speaks for ever."""
    began = due = time.monotonic()
    while True:
        now = time.monotonic()
        if due <= now < began + FOR_S:
            speaker.announce()
            due += EVERY_S
        wait_s = max(0.0, due - now) if due < began + FOR_S else None
        if select.select([speaker], [], [], wait_s)[0]:
            speaker.hear()


def main(words: Sequence[str]) -> None:
    """The link, then the VIP."""
    ifname, vip = words[0], ip_address(words[1])
    speaker: Speaker = ArpSpeaker(ifname, vip) if isinstance(vip, IPv4Address) else NdSpeaker(ifname, vip)
    say(f"ready: {vip} on {ifname}")
    run(speaker)


if __name__ == "__main__":
    main(sys.argv[1:])
