"""An announcer like kube-vip in ARP mode: the address is put on the link, and the kernel answers for it.

    python -m arpguard.lab.peers.kube_vip eth0 500 198.51.100.50 ...

The second word is the time between two announcements in milliseconds; kube-vip's own default is 3000, its least 500.
The address is looked after with every announcement. SIGTERM takes it off again; SIGKILL leaves it where it is, as
with kube-vip, and the kernel goes on answering.
"""

import itertools
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from ipaddress import IPv4Address

from arpguard.addresses import BROADCAST_MAC, MacAddress
from arpguard.errors import DataPlaneError
from arpguard.lab.netns import command
from arpguard.lab.peers.frames import kube_vip_announcements
from arpguard.wire.ethernet import ETHERTYPE_ARP


class Announcer:
    """Holds some VIPs on one link, in the current network namespace."""

    def __init__(self, ifname: str, every_s: float, vips: Sequence[IPv4Address]) -> None:
        self._ifname = ifname
        self._every_s = every_s
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
        self._socket.bind((ifname, ETHERTYPE_ARP))
        mac = MacAddress(self._socket.getsockname()[4])
        self._vips = tuple(vips)
        self._turns = {vip: itertools.cycle(kube_vip_announcements(mac, vip)) for vip in vips}

    def hold(self) -> None:
        """Puts the addresses on the link, where they are not there yet."""
        for vip in self._vips:
            command("ip", "addr", "replace", f"{vip}/32", "dev", self._ifname)

    def announce(self) -> None:
        """One announcement for each VIP, in the form whose turn it is."""
        for turns in self._turns.values():
            try:
                self._socket.sendto(next(turns), (self._ifname, ETHERTYPE_ARP, 0, 1, BROADCAST_MAC.octets))
            except OSError as error:  # what tc egress drops fails with ENOBUFS; kube-vip logs that and goes on
                _say(f"failed to send: {error}")

    def run(self, stopping: threading.Event) -> None:
        """Until it is told to stop; then the addresses are gone."""
        try:
            while True:
                self.hold()
                self.announce()
                if stopping.wait(self._every_s):
                    return
        finally:
            self._release()

    def _release(self) -> None:
        for vip in self._vips:
            try:
                command("ip", "addr", "del", f"{vip}/32", "dev", self._ifname)
            except DataPlaneError as error:  # somebody else took it off
                _say(str(error))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(words: Sequence[str]) -> None:
    """The link, milliseconds, then the VIPs."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    announcer = Announcer(words[0], int(words[1]) / 1000, [IPv4Address(word) for word in words[2:]])
    announcer.hold()
    _say(f"ready: {' '.join(words[2:])} on {words[0]}")
    announcer.run(stopping)


if __name__ == "__main__":
    main(sys.argv[1:])
