"""The entries that the kernel should have: a function of VIPs, guarded links, routes, and who has each elected VIP.

Only `fitting` depends on the past: entries that are in a full map stay there.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import TypeAlias

from arpguard.addresses import ZERO_MAC, Address, MacAddress, address_order, is_everywhere
from arpguard.core.choosing import home_link
from arpguard.model import EntryKey, GroupMembership, Link, OwnerKind, Route, Standing, Vip, VipEntry
from arpguard.verdict import Kind, Mode
from arpguard.wire.ndp import solicited_node

Primaries: TypeAlias = Mapping[tuple[int, int], Address | None]  # by index of the link, and IP version

NO_VIP = IPv4Address("255.255.255.255")
NOBODY = Standing(Kind.UNCLAIMED)
_ON_ONE_LINK = (Kind.OWNED, Kind.DELEGATED)
_OF_ANNOUNCERS = (OwnerKind.FOLLOW, OwnerKind.KEEPALIVED)


def wanted_entries(
    vips: Iterable[Vip],
    links: Sequence[Link],
    routes: Sequence[Route],
    primaries: Primaries,
    node: str,
    standings: Mapping[Address, Standing],
) -> dict[EntryKey, VipEntry]:
    """One entry for each VIP on each guarded link that it may be on. `node`: this one; `standings`: of elected VIPs.

    An owner that the configuration names needs no fence: nobody else can take the VIP over. A VIP of this node is
    answered on its home link only, and suppressed on the others, for Linux would answer on any of them.
    """
    wanted: dict[EntryKey, VipEntry] = {}
    for vip in vips:
        standing = standing_of(vip, node, standings)
        possible = [link for link in links if vip.interface in ("", link.name)]
        home = home_link(vip.address, possible, routes)
        for link in possible:
            primary = primaries[link.ifindex, vip.address.version]
            entry = _entry(vip, standing, link, primary, is_home=link is home)
            wanted[EntryKey(link.ifindex, vip.address)] = entry
    return wanted


def _entry(vip: Vip, standing: Standing, link: Link, primary: Address | None, *, is_home: bool) -> VipEntry:
    kind = standing.kind if is_home or standing.kind not in _ON_ONE_LINK else Kind.FOREIGN
    return VipEntry(
        kind=kind,
        mode=vip.mode,
        unfenced=kind is Kind.OWNED and (vip.unfenced or not standing.epoch),
        epoch=standing.epoch if kind is Kind.OWNED else 0,
        link_mac=link.mac,
        answer_mac=link.mac,
        owner_mac=standing.mac if is_home or standing.kind is Kind.EXTERNAL else ZERO_MAC,
        primary=primary,
    )


def primary_addresses(links: Iterable[Link], vips: Iterable[Address]) -> dict[tuple[int, int], Address | None]:
    """The primary address of each link in each family, by its index and the IP version."""
    taken = set(vips)
    return {(link.ifindex, version): primary_address(link, version, taken) for link in links for version in (4, 6)}


def primary_address(link: Link, version: int, vips: Container[Address]) -> Address | None:
    """The link's first address of a family that is not a VIP: the source of its own requests (arp_announce=2).

    Of IPv6 addresses only global ones count, as VIPs are; preferred and lasting ones come first (RFC 6724 5, rule 3).
    """
    fit = (
        own
        for own in link.addresses
        if own.address.version == version and own.usable and own.address not in vips and not is_everywhere(own.network)
    )
    best = min(fit, key=lambda own: (own.deprecated, own.temporary), default=None)
    return best.address if best else None


def spoken_for(entries: Mapping[EntryKey, VipEntry], mode: Mode) -> dict[EntryKey, MacAddress]:
    """The VIPs that a node in this mode answers for, and the MAC it uses."""
    return {
        key: entry.answer_mac
        for key, entry in entries.items()
        if entry.kind is Kind.OWNED and (entry.mode or mode) is Mode.ENFORCE
    }


def membership_of(key: EntryKey) -> GroupMembership | None:
    """The multicast group for an entry's address (RFC 4861 7.2.3, RFC 4291 2.7.1); None for IPv4."""
    return GroupMembership(key.ifindex, solicited_node(key.vip)) if isinstance(key.vip, IPv6Address) else None


def memberships_of(entries: Mapping[EntryKey, VipEntry]) -> frozenset[GroupMembership]:
    """The groups that a node joins for the VIPs that it owns; some VIPs share one.

    It joins even while it only observes: otherwise a switch that snoops would keep frames from it.
    """
    owned = (key for key, entry in entries.items() if entry.kind is Kind.OWNED)
    return frozenset(membership for membership in map(membership_of, owned) if membership is not None)


def strictest_mode(mode: Mode, entries: Mapping[EntryKey, VipEntry]) -> Mode:
    """ENFORCE if the node or any entry enforces."""
    return max(mode, max((entry.mode for entry in entries.values()), default=mode))


def strictest6_mode(mode: Mode, entries: Mapping[EntryKey, VipEntry]) -> Mode:
    """ENFORCE if any IPv6 entry enforces, on a node in this mode; INHERIT when there is none."""
    modes = (entry.mode or mode for key, entry in entries.items() if key.vip.version == 6)
    return max(modes, default=Mode.INHERIT)


def vips4_of(keys: Iterable[EntryKey]) -> tuple[IPv4Address, IPv4Address]:
    """The first and last IPv4 address of some entries; the broadcast address, never a VIP, when there are none."""
    addresses = [key.vip for key in keys if isinstance(key.vip, IPv4Address)]
    return min(addresses, default=NO_VIP), max(addresses, default=NO_VIP)


def fitting(
    wanted: Mapping[EntryKey, VipEntry], programmed: Container[EntryKey], room: int
) -> Mapping[EntryKey, VipEntry]:
    """The wanted entries that a map has room for: first those that it has already, then by address.

    So guarded VIPs stay guarded whoever adds more, and nodes that start with the same VIPs guard the same ones.
    """
    if len(wanted) <= room:
        return wanted
    first = sorted(wanted, key=lambda key: (key not in programmed, address_order(key.vip), key.ifindex))[:room]
    return {key: wanted[key] for key in first}


def standing_of(vip: Vip, node: str, standings: Mapping[Address, Standing]) -> Standing:
    """Who has a VIP, according to its source or, if it is elected, to `standings`."""
    owner = vip.owner
    if owner.kind is OwnerKind.ELECT:
        return standings.get(vip.address, NOBODY)
    if owner.kind is OwnerKind.EXTERNAL:
        return Standing(Kind.EXTERNAL, mac=owner.mac or ZERO_MAC)
    if not owner.node and owner.kind is not OwnerKind.KEEPALIVED:
        return NOBODY
    if owner.node != node:
        return Standing(Kind.FOREIGN)
    return Standing(Kind.DELEGATED if owner.delegated or owner.kind in _OF_ANNOUNCERS else Kind.OWNED)
