"""What commands check before they do anything."""

import os
from ipaddress import AddressValueError, IPv4Address

from arpguard.addresses import vip_refusal
from arpguard.errors import ConfigError, DataPlaneError, Problem


def need_root() -> None:
    """Raises DataPlaneError for anybody but root."""
    if os.geteuid() != 0:
        raise DataPlaneError("this needs root: run it with sudo")


def host_address(command: str, text: str) -> IPv4Address:
    """The address of a host; ConfigError for anything else."""
    try:
        address = IPv4Address(text)
    except AddressValueError:
        raise ConfigError(f"arpguard {command}", [Problem("ADDRESS", text, "must be an IPv4 address")]) from None
    refusal = vip_refusal(address)
    if refusal:
        raise ConfigError(f"arpguard {command}", [Problem("ADDRESS", text, f"must be a host's address, but {refusal}")])
    return address
