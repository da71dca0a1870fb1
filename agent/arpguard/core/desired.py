"""What the kernel is to be told: a function of VIPs, guarded links, routes, and who has each elected VIP.

What it was told before counts in `fitting` only: what is in a full map stays.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
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


def wanted_entries(
    vips: Iterable[Vip],
    links: Sequence[Link],
    routes: Sequence[Route],
    primaries: Primaries,
    standing: Callable[[Vip], Standing],
) -> dict[EntryKey, VipEntry]:
    """One entry for each VIP on each guarded link. `standing` says who has a VIP.

    Static ownership needs no fence (`hold`): nobody else can take it over. A VIP of this node is answered on its
    home link only; on the others it is suppressed, for Linux would answer on any of them.
    """
    wanted: dict[EntryKey, VipEntry] = {}
    for vip in vips:
        wanted.update(entries_of(vip, links, routes, primaries, standing(vip)))
    return wanted


def entries_of(
    vip: Vip,
    links: Sequence[Link],
    routes: Sequence[Route],
    primaries: Primaries,
    standing: Standing,
) -> dict[EntryKey, VipEntry]:
    """The entries of one VIP, one for each guarded link that it may be on."""
    links = [link for link in links if vip.interface in ("", link.name)]
    home = home_link(vip.address, links, routes)
    entries = {}

    for link in links:
        kind = standing.kind if link == home or standing.kind not in _ON_ONE_LINK else Kind.FOREIGN
        known = link == home or standing.kind is Kind.EXTERNAL
        entries[EntryKey(link.ifindex, vip.address)] = VipEntry(
            kind=kind,
            mode=vip.mode,
            hold=kind is Kind.OWNED and (vip.hold or not standing.epoch),
            epoch=standing.epoch if kind is Kind.OWNED else 0,
            link_mac=link.mac,
            answer_mac=link.mac,
            owner_mac=standing.mac if known else ZERO_MAC,
            primary=primaries[link.ifindex, vip.address.version],
        )
    return entries


def primary_addresses(links: Iterable[Link], vips: Iterable[Address]) -> dict[tuple[int, int], Address | None]:
    """The primary address of each link in each family, by its index and the IP version."""
    taken = set(vips)
    return {(link.ifindex, version): primary_address(link, version, taken) for link in links for version in (4, 6)}


def primary_address(link: Link, version: int, vips: Container[Address]) -> Address | None:
    """The link's first address of a family that is no VIP: what its own requests should carry (arp_announce=2).

    Of IPv6 ones only those in a VIP's scope, which is global; first those that are preferred (RFC 6724 5, rule 3), and
    that last.
    """
    fit = (
        own
        for own in link.addresses
        if own.address.version == version and own.usable and own.address not in vips and not is_everywhere(own.network)
    )
    best = min(fit, key=lambda own: (own.deprecated, own.temporary), default=None)
    return best.address if best else None


def spoken_for(entries: Mapping[EntryKey, VipEntry], mode: Mode) -> dict[EntryKey, MacAddress]:
    """The VIPs that a node in this mode speaks for, and the MAC it does so with."""
    return {
        key: entry.answer_mac
        for key, entry in entries.items()
        if entry.kind is Kind.OWNED and (entry.mode or mode) is Mode.ENFORCE
    }


def membership_of(key: EntryKey) -> GroupMembership | None:
    """What whoever has an address listens to (RFC 4861 7.2.3, RFC 4291 2.7.1): a group of IPv6, nothing of IPv4."""
    return GroupMembership(key.ifindex, solicited_node(key.vip)) if isinstance(key.vip, IPv6Address) else None


def memberships_of(entries: Mapping[EntryKey, VipEntry]) -> frozenset[GroupMembership]:
    """What a node listens to for the VIPs that it owns; some share a group.

    Also while it only observes: a switch that snoops would else keep from it what it is to decide about.
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
    """The first and last IPv4 address of some entries; the broadcast address, which is no VIP, when there are none."""
    addresses = [key.vip for key in keys if isinstance(key.vip, IPv4Address)]
    return min(addresses, default=NO_VIP), max(addresses, default=NO_VIP)


def fitting(
    wanted: Mapping[EntryKey, VipEntry], programmed: Container[EntryKey], room: int
) -> Mapping[EntryKey, VipEntry]:
    """The wanted entries that a map with room for so many takes: first those that it has, then by address.

    What is guarded stays so, whoever adds VIPs; and nodes that start with the same VIPs guard the same ones.
    """
    if len(wanted) <= room:
        return wanted
    first = sorted(wanted, key=lambda key: (key not in programmed, address_order(key.vip), key.ifindex))[:room]
    return {key: wanted[key] for key in first}


def standing_of(vip: Vip, node: str, standings: Mapping[Address, Standing]) -> Standing:
    """Who has a VIP: the source says so, or, for an elected one, `standings`."""
    owner = vip.owner
    if owner.kind is OwnerKind.ELECT:
        return standings.get(vip.address, NOBODY)
    if owner.kind is OwnerKind.EXTERNAL:
        return Standing(Kind.EXTERNAL, mac=owner.mac or ZERO_MAC)
    if not owner.node:
        return NOBODY
    if owner.node != node:
        return Standing(Kind.FOREIGN)
    return Standing(Kind.DELEGATED if owner.delegated or owner.kind is OwnerKind.FOLLOW else Kind.OWNED)
