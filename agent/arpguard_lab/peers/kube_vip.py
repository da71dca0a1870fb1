"""An announcer like kube-vip in ARP mode: the address is put on the link, and the kernel answers for it.

    python -m arpguard_lab.peers.kube_vip eth0 500 198.51.100.50

The second word is the time between two announcements in milliseconds; kube-vip's own default is 3000, its least 500.
The address is looked after with every announcement. SIGTERM takes it off again; SIGKILL leaves it where it is, as
with kube-vip, and the kernel keeps answering.
"""

import itertools
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address

from arpguard.addresses import Address
from arpguard.errors import DataPlaneError
from arpguard_lab.netns import command
from arpguard_lab.peers.frames import advertisement, kube_vip_announcements
from arpguard_lab.peers.sockets import ArpPort, NdPort, say


def by_arp(ifname: str, vip: IPv4Address) -> Callable[[], None]:
    """Announces in two forms, by turns."""
    port = ArpPort(ifname, cooked=True)
    forms = itertools.cycle(kube_vip_announcements(port.mac, vip))
    return lambda: port.send(next(forms))


def by_nd(ifname: str, vip: IPv6Address) -> Callable[[], None]:
    """Announces by unsolicited advertisements."""
    port = NdPort(ifname)
    return lambda: port.send(advertisement(port.mac, port.address, vip))


def hold(ifname: str, vip: Address) -> None:
    """Puts the address on the link, where it is not there yet; IPv6 without duplicate address detection."""
    words = ["addr", "replace", f"{vip}/{vip.max_prefixlen}", "dev", ifname]
    command("ip", *words, *(["nodad"] if vip.version == 6 else []))


def release(ifname: str, vip: Address) -> None:
    """Takes it off."""
    try:
        command("ip", "addr", "del", f"{vip}/{vip.max_prefixlen}", "dev", ifname)
    except DataPlaneError as error:  # another process did
        say(str(error))


def main(words: Sequence[str]) -> None:
    """The link, milliseconds, then the VIP."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    ifname, every_s, vip = words[0], int(words[1]) / 1000, ip_address(words[2])
    announce = by_arp(ifname, vip) if isinstance(vip, IPv4Address) else by_nd(ifname, vip)
    hold(ifname, vip)
    say(f"ready: {vip} on {ifname}")
    while True:
        hold(ifname, vip)
        announce()
        if stopping.wait(every_s):
            break
    release(ifname, vip)


if __name__ == "__main__":
    main(sys.argv[1:])
