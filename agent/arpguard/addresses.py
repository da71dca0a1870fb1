"""MAC and IP addresses as values.

An IP address is `ipaddress.IPv4Address | IPv6Address`; in kernel maps it is 16 bytes, IPv4 being v4-mapped
(RFC 4291 2.5.5.2).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

_MAC_PATTERN = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_V4_MAPPED = bytes(10) + b"\xff\xff"


@dataclass(frozen=True, slots=True, order=True)
class MacAddress:
    """An Ethernet address of 6 bytes (IEEE 802)."""

    octets: bytes

    def __post_init__(self) -> None:
        if len(self.octets) != 6:
            raise ValueError(f"a MAC address has 6 bytes, not {len(self.octets)}")

    @classmethod
    def parse(cls, text: str) -> "MacAddress":
        """Reads "02:00:00:00:00:aa" (case does not matter); ValueError for anything else."""
        if not _MAC_PATTERN.fullmatch(text.lower()):
            raise ValueError(f"{text!r} is not a MAC address such as 02:00:00:00:00:aa")
        return cls(bytes.fromhex(text.replace(":", "")))

    def __str__(self) -> str:
        return self.octets.hex(":")

    @property
    def is_zero(self) -> bool:
        """Whether all bits are 0, which no host has."""
        return self.octets == bytes(6)

    @property
    def is_group(self) -> bool:
        """Whether the I/G bit is set: multicast or broadcast."""
        return bool(self.octets[0] & 1)


ZERO_MAC = MacAddress(bytes(6))
# Who asks without claiming anything, by IP version (RFC 5227 1.1, RFC 4862 5.4.2).
NOBODY: Mapping[int, Address] = {4: IPv4Address(0), 6: IPv6Address(0)}
BROADCAST_MAC = MacAddress(b"\xff" * 6)


def to_mapped(address: Address) -> bytes:
    """The 16 bytes of an address in kernel maps."""
    return _V4_MAPPED + address.packed if address.version == 4 else address.packed


def from_mapped(octets: bytes) -> Address:
    """The address in 16 bytes of a kernel map; ValueError when they are not 16."""
    if len(octets) == 16 and octets.startswith(_V4_MAPPED):
        return IPv4Address(octets[12:])
    return IPv6Address(octets)


def is_everywhere(network: Network) -> bool:
    """Whether a network is on every link (RFC 4291 2.5.6: fe80::/64), and so says nothing about any of them."""
    return network.version == 6 and network.is_link_local


def address_order(address: Address) -> tuple[int, int]:
    """What to sort addresses of both families by, which Python does not compare: IPv4 first."""
    return address.version, int(address)


def reserved_address(network: Network) -> Address | None:
    """The address of a subnet that no host has: IPv4's broadcast address, IPv6's subnet-router anycast address.

    RFC 1122 3.2.1.3, RFC 4291 2.6.1; none where there are but two addresses (RFC 3021, RFC 6164) or one. The first one
    of IPv4 may be a host's: Linux has it so from 5.14 on.
    """
    if network.num_addresses <= 2:
        return None
    return network.broadcast_address if network.version == 4 else network.network_address


def vip_refusal(address: Address) -> str | None:
    """Why no host can be asked to own this address, or None.

    RFC 1122 3.2.1.3 and RFC 4291 2: the unspecified, loopback, multicast and limited broadcast addresses
    name no single host; link-local ones (RFC 3927 2.7, RFC 4291 2.5.6) belong to whoever claimed them on its link.
    """
    refusals = (
        (address.is_unspecified, "is the unspecified address"),
        (address.is_loopback, "is a loopback address"),
        (address.is_multicast, "is a multicast address"),
        (address == IPv4Address("255.255.255.255"), "is the broadcast address"),
        (address.is_link_local, "is a link-local address"),
        (getattr(address, "ipv4_mapped", None) is not None, "is an IPv4 address in IPv6 form"),
        (
            getattr(address, "scope_id", None) is not None,
            "has a zone (the part after %), which is valid on one host only",
        ),
    )
    return next((text for holds, text in refusals if holds), None)
