"""pyroute2's rtnetlink, imported without the rest of the package."""

from arpguard.importing import import_part

import_part("pyroute2.iproute.linux")

from pyroute2.iproute.linux import AsyncIPRoute  # noqa: E402 - after its package was entered without being run
from pyroute2.netlink.exceptions import NetlinkError  # noqa: E402

__all__ = ["AsyncIPRoute", "NetlinkError"]
