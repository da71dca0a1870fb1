"""Listens to multicast groups: NICs let in what is sent to them, and switches that snoop (MLD, RFC 4541) forward it.

Memberships are those of sockets (ipv6(7), IPV6_ADD_MEMBERSHIP): they end with the process. The kernel tells the
network of the first member on a link and of the last (RFC 3810), and again when the link comes up.
"""

import errno
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv6Address
from pathlib import Path

from arpguard.errors import DataPlaneError
from arpguard.model import GroupMembership

_MEMBERSHIPS = Path("/proc/thread-self/net/igmp6")
_FULL = (errno.ENOMEM, errno.ENOBUFS)  # net.core.optmem_max: 2340 memberships of a socket where it is 128 KiB


@dataclass(slots=True)
class _Ear:
    """A socket, and how many memberships it has."""

    socket: socket.socket
    count: int = 0


class Groups:
    """The memberships of one owner, over as many sockets as they need."""

    def __init__(self) -> None:
        self._ears: list[_Ear] = []
        self._ear_of: dict[GroupMembership, _Ear] = {}

    @property
    def joined(self) -> frozenset[GroupMembership]:
        """What is listened to."""
        return frozenset(self._ear_of)

    def join(self, membership: GroupMembership) -> None:
        """Listens to a group, or continues to. Raises DataPlaneError when the kernel refuses."""
        if membership not in self._ear_of:
            self._ear_of[membership] = self._add(membership)

    def leave(self, membership: GroupMembership) -> None:
        """Stops listening to a group."""
        ear = self._ear_of.pop(membership, None)
        if ear is not None:
            self._drop(ear, membership)

    def leave_forgotten(self) -> None:
        """Leaves the groups that the kernel has forgotten, as it does while a link's MTU is too small for IPv6.

        It still refuses to join them again. While too many files are open, this can read nothing, and leaves none.
        """
        if not self._ear_of:
            return
        with suppress(OSError):
            for membership in self.joined - _known():
                self.leave(membership)

    def close(self) -> None:
        """Leaves all."""
        for ear in self._ears:
            ear.socket.close()
        self._ears.clear()
        self._ear_of.clear()

    def _add(self, membership: GroupMembership) -> _Ear:
        for ear in reversed(self._ears):  # the youngest has room most likely
            if self._add_to(ear, membership):
                return ear
        try:
            ear = _Ear(socket.socket(socket.AF_INET6, socket.SOCK_DGRAM))
        except OSError as error:
            raise DataPlaneError(f"cannot open an IPv6 socket ({error.strerror})") from error
        self._ears.append(ear)
        if not self._add_to(ear, membership):
            raise DataPlaneError("no memory for a multicast group: raise net.core.optmem_max")
        return ear

    def _add_to(self, ear: _Ear, membership: GroupMembership) -> bool:
        """False when the socket has no room for it."""
        try:
            ear.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, _mreq(membership))
        except OSError as error:
            if error.errno in _FULL:
                return False
            raise DataPlaneError(f"cannot join multicast group {membership.group} ({error.strerror})") from error
        ear.count += 1
        return True

    def _drop(self, ear: _Ear, membership: GroupMembership) -> None:
        with suppress(OSError):  # the link is gone, and with it its listeners
            ear.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_LEAVE_GROUP, _mreq(membership))
        ear.count -= 1
        if not ear.count:
            ear.socket.close()
            self._ears.remove(ear)


def _mreq(membership: GroupMembership) -> bytes:
    """Struct ipv6_mreq."""
    return membership.group.packed + struct.pack("=i", membership.ifindex)


def _known() -> set[GroupMembership]:
    """All memberships in this network namespace, of all processes (/proc/net/igmp6: index, name, group...).

    It is there where there is IPv6, and so wherever anything was joined.
    """
    rows = (line.split() for line in _MEMBERSHIPS.read_bytes().splitlines())
    return {GroupMembership(int(row[0]), IPv6Address(bytes.fromhex(row[2].decode()))) for row in rows}
