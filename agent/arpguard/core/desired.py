"""What the kernel is to be told: a function of the configuration and the surroundings, and of nothing before."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address

from arpguard.addresses import ZERO_MAC, Address, MacAddress
from arpguard.core.choosing import home_link
from arpguard.model import EntryKey, Link, OwnerKind, Route, Vip, VipEntry
from arpguard.verdict import Kind, Mode

_NO_VIP = IPv4Address("255.255.255.255")


@dataclass(frozen=True, slots=True)
class Delta:
    """What has to be written and deleted for the kernel to have what is wanted."""

    writes: dict[EntryKey, VipEntry]
    deletes: tuple[EntryKey, ...]

    def __bool__(self) -> bool:
        return bool(self.writes or self.deletes)


def wanted_entries(
    vips: Iterable[Vip], links: Sequence[Link], routes: Sequence[Route], node: str
) -> dict[EntryKey, VipEntry]:
    """One entry for each VIP on each guarded link.

    Static ownership needs no fence (`hold`): nobody else can take it over. A VIP of this node is answered on its
    home link only; on the others it is suppressed, for Linux would answer on any of them.
    """
    vips = tuple(vips)
    addresses = {vip.address for vip in vips}
    primaries = {link.ifindex: primary_address(link, addresses) for link in links}
    wanted = {}
    for vip in vips:
        home = home_link(vip.address, links, routes)
        for link in links:
            kind = _kind(vip, node, at_home=link == home)
            wanted[EntryKey(link.ifindex, vip.address)] = VipEntry(
                kind=kind,
                mode=vip.mode,
                hold=kind is Kind.OWNED,
                link_mac=link.mac,
                answer_mac=link.mac,
                owner_mac=vip.owner.mac or ZERO_MAC,
                primary4=primaries[link.ifindex],
            )
    return wanted


def primary_address(link: Link, vips: Iterable[Address]) -> IPv4Address | None:
    """The link's first IPv4 address that is no VIP: what its own ARP requests should carry (arp_announce=2)."""
    taken = set(vips)
    return next(
        (own.address for own in link.addresses if isinstance(own.address, IPv4Address) and own.address not in taken),
        None,
    )


def spoken_for(entries: Mapping[EntryKey, VipEntry], mode: Mode) -> dict[EntryKey, MacAddress]:
    """The VIPs that a node in this mode speaks for, and the MAC it does so with."""
    return {
        key: entry.answer_mac
        for key, entry in entries.items()
        if entry.kind is Kind.OWNED and (entry.mode or mode) is Mode.ENFORCE
    }


def strictest_mode(mode: Mode, entries: Mapping[EntryKey, VipEntry]) -> Mode:
    """ENFORCE if the node or any entry enforces."""
    return max(mode, max((entry.mode for entry in entries.values()), default=mode))


def vips4_of(keys: Iterable[EntryKey]) -> tuple[IPv4Address, IPv4Address]:
    """The first and last IPv4 address of some entries; the broadcast address, which is no VIP, when there are none."""
    addresses = [key.vip for key in keys if isinstance(key.vip, IPv4Address)]
    return min(addresses, default=_NO_VIP), max(addresses, default=_NO_VIP)


def plan(wanted: Mapping[EntryKey, VipEntry], programmed: Mapping[EntryKey, VipEntry]) -> Delta:
    """The difference between what is wanted and what the kernel has."""
    return Delta(
        writes={key: entry for key, entry in wanted.items() if programmed.get(key) != entry},
        deletes=tuple(key for key in programmed if key not in wanted),
    )


def _kind(vip: Vip, node: str, *, at_home: bool) -> Kind:
    if vip.owner.kind is OwnerKind.EXTERNAL:
        return Kind.EXTERNAL
    if vip.owner.kind is OwnerKind.ELECT or not vip.owner.node:
        return Kind.UNCLAIMED
    if vip.owner.node != node or not at_home:
        return Kind.FOREIGN
    return Kind.DELEGATED if vip.owner.delegated or vip.owner.kind is OwnerKind.FOLLOW else Kind.OWNED
