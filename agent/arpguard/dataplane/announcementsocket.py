"""Sends frames on links by AF_PACKET (packet(7)).

They pass the egress program like all other frames: what this node must not send does not leave.
"""

from ipaddress import IPv4Address

from arpguard.addresses import Address, MacAddress
from arpguard.dataplane import packetsocket
from arpguard.model import EntryKey, Link
from arpguard.wire.arp import build_announcements
from arpguard.wire.ndp import build_unsolicited_advertisement


class AnnouncementSocket:
    """One raw socket for all links."""

    def __init__(self) -> None:
        self._socket = packetsocket.open_raw()
        self._socket.setblocking(False)  # a slow link must not hold up the agent

    def announce(self, key: EntryKey, link: Link, mac: MacAddress) -> bool:
        """Announces a VIP; False when a frame did not leave: suppressed, the link down, or its queue full."""
        try:
            for frame in _announcements(mac, key.vip):
                self._socket.sendto(frame, (link.name, 0))
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Announces no more."""
        self._socket.close()


def _announcements(mac: MacAddress, vip: Address) -> tuple[bytes, ...]:
    """The frames from which neighbours learn, each once."""
    if isinstance(vip, IPv4Address):
        return build_announcements(mac, vip)
    return (build_unsolicited_advertisement(mac, vip),)
