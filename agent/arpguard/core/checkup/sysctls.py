"""Settings of the kernel under /proc/sys/net, and how it combines the value of `all` with that of a link.

As in include/linux/inetdevice.h (IN_DEV_MAXCONF and its like) and net/ipv6, Linux 6.18.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from arpguard.core.checkup.findings import shell

_OF_ALL_TOO = (  # the greater of the two counts; of truth values: either
    "ipv4/arp_ignore",
    "ipv4/arp_announce",
    "ipv4/rp_filter",
    "ipv4/arp_filter",
    "ipv4/accept_local",
    "ipv4/proxy_arp",
    "ipv4/drop_gratuitous_arp",
)
_OF_THE_LINK = ("ipv4/forwarding", "ipv6/disable_ipv6", "ipv6/drop_unsolicited_na", "ipv6/suppress_frag_ndisc")
NAMES = (*_OF_ALL_TOO, *_OF_THE_LINK)
ALL = "all"


@dataclass(frozen=True, slots=True)
class Sysctls:
    """Values by (name as in NAMES, link); what could not be read is not there."""

    values: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def own(self, name: str, link: str) -> int | None:
        """The value of the link itself."""
        return self.values.get((name, link))

    def effective(self, name: str, link: str) -> int | None:
        """The value that the kernel uses for a link; None when that is not known."""
        own, common = self.own(name, link), self.own(name, ALL)
        if name not in _OF_ALL_TOO or own is None or common is None:
            return own
        return max(own, common)

    def set(self, name: str, link: str, value: int) -> tuple[str, ...]:
        """Shell lines after which the kernel uses `value` for the link."""
        lines = []
        common = self.own(name, ALL)
        if name in _OF_ALL_TOO and common is not None and common > value:
            lines.append(_line(name, ALL, value))
        if self.own(name, link) != value:
            lines.append(_line(name, link, value))
        return tuple(lines)


def shown(name: str) -> str:
    """A setting as people call it."""
    return name.partition("/")[2]


def _line(name: str, link: str, value: int) -> str:
    """sysctl(8) takes slashes, too: a link's name may hold dots."""
    family, _, setting = name.partition("/")
    key = f"net/{family}/conf/{link}/{setting}" if "." in link else f"net.{family}.conf.{link}.{setting}"
    return shell("sysctl", "-w", f"{key}={value}")
