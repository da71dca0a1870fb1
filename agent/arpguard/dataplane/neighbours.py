"""The kernel's neighbour table, as it is: nobody is asked for anything."""

from ipaddress import ip_address
from typing import Any

from pyroute2 import AsyncIPRoute
from pyroute2.netlink.exceptions import NetlinkError

from arpguard.addresses import Address, MacAddress
from arpguard.errors import DataPlaneError

# linux/neighbour.h: states in which there is no MAC address that counts, or none is needed.
_NUD_INCOMPLETE, _NUD_FAILED, _NUD_NOARP = 0x01, 0x20, 0x40
_MAC_LENGTH = len("00:00:00:00:00:00")


async def read_neighbours() -> list[tuple[Address, MacAddress]]:
    """The neighbours of both families that have a MAC address, on whichever link. Raises DataPlaneError."""
    try:
        async with AsyncIPRoute() as ipr:
            found = [_neighbour(message) async for message in await ipr.neigh("dump")]
    except (NetlinkError, OSError) as error:
        raise DataPlaneError(f"the neighbour table cannot be read by rtnetlink ({error})") from error
    return [neighbour for neighbour in found if neighbour is not None]


def _neighbour(message: Any) -> tuple[Address, MacAddress] | None:
    address, mac = message.get("dst"), message.get("lladdr") or ""
    if message["state"] & (_NUD_INCOMPLETE | _NUD_FAILED | _NUD_NOARP) or not address or len(mac) != _MAC_LENGTH:
        return None
    return ip_address(address), MacAddress.parse(mac)
