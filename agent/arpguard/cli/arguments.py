"""Checks of commands before they do anything."""

import argparse
import os
import socket
from ipaddress import ip_address

from arpguard.addresses import Address, vip_refusal
from arpguard.errors import ConfigError, DataPlaneError, Problem


def need_root() -> None:
    """Raises DataPlaneError unless root runs this."""
    if os.geteuid() != 0:
        raise DataPlaneError("this command needs root: run it with sudo")


def node_name(options: argparse.Namespace) -> str:
    """This node's name: the given one, or the host's."""
    return options.node_name or socket.gethostname()


def host_address(command: str, text: str) -> Address:
    """The address of a host; ConfigError for anything else."""
    try:
        address = ip_address(text)
    except ValueError:
        raise _wrong(command, text, "must be an IPv4 or IPv6 address") from None
    refusal = vip_refusal(address)
    if refusal:
        raise _wrong(command, text, f"must be a host's address, but {refusal}")
    return address


def _wrong(command: str, text: str, allowed: str) -> ConfigError:
    return ConfigError(f"arpguard {command}", [Problem("ADDRESS", f"{text}: {allowed}")])
