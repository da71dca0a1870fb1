"""What the kernel is to be told."""

from dataclasses import replace
from ipaddress import IPv4Address, ip_address, ip_interface
from itertools import permutations

import pytest

from arpguard.addresses import ZERO_MAC, MacAddress
from arpguard.core.desired import (
    fitting,
    memberships_of,
    primary_address,
    primary_addresses,
    spoken_for,
    standing_of,
    strictest6_mode,
    strictest_mode,
    vips4_of,
    wanted_entries,
)
from arpguard.model import EntryKey, GroupMembership, InterfaceAddress, Link, Owner, OwnerKind, Vip, VipEntry
from arpguard.verdict import Kind, Mode

VIP = ip_address("192.0.2.50")
VIP6 = ip_address("2001:db8::50")
PINNED = MacAddress.parse("02:00:00:00:00:aa")


def a_link(ifindex: int, *addresses: str) -> Link:
    own = tuple(InterfaceAddress(ip_interface(text).ip, ip_interface(text).network) for text in addresses)
    return Link(
        ifindex=ifindex, name=f"eth{ifindex}", mac=MacAddress(bytes((2, 0, 0, 0, 0, ifindex))), up=True, addresses=own
    )


def entries(vip, links):
    primaries = primary_addresses(links, [vip.address])
    return wanted_entries([vip], links, [], primaries, "me", {})


HERE, ELSEWHERE = a_link(2, "192.0.2.1/24"), a_link(3, "198.51.100.1/24")


@pytest.mark.parametrize(
    ("owner", "at_home", "away"),
    [
        (Owner(OwnerKind.NODE, node="me"), Kind.OWNED, Kind.FOREIGN),
        (Owner(OwnerKind.NODE, node="other"), Kind.FOREIGN, Kind.FOREIGN),
        (Owner(OwnerKind.NODE, node="me", delegated=True), Kind.DELEGATED, Kind.FOREIGN),
        (Owner(OwnerKind.NODE, node="other", delegated=True), Kind.FOREIGN, Kind.FOREIGN),
        (Owner(OwnerKind.KEEPALIVED, instance="VI_1", node="me"), Kind.DELEGATED, Kind.FOREIGN),
        (Owner(OwnerKind.KEEPALIVED, instance="VI_1"), Kind.FOREIGN, Kind.FOREIGN),
        (Owner(OwnerKind.EXTERNAL), Kind.EXTERNAL, Kind.EXTERNAL),
        (Owner(OwnerKind.EXTERNAL, mac=PINNED), Kind.EXTERNAL, Kind.EXTERNAL),
        (Owner(OwnerKind.ELECT), Kind.UNCLAIMED, Kind.UNCLAIMED),
    ],
    ids=str,
)
def test_owner_decides_who_may_answer(owner, at_home, away):
    wanted = entries(Vip(VIP, owner), [HERE, ELSEWHERE])

    assert {key.ifindex: entry.kind for key, entry in wanted.items()} == {2: at_home, 3: away}


def test_owned_entry_is_answered_with_the_links_mac_and_without_a_fence():
    entry = entries(Vip(VIP, Owner(OwnerKind.NODE, node="me"), Mode.ENFORCE), [HERE])[EntryKey(2, VIP)]

    assert entry == VipEntry(
        kind=Kind.OWNED,
        mode=Mode.ENFORCE,
        unfenced=True,
        link_mac=HERE.mac,
        answer_mac=HERE.mac,
        owner_mac=ZERO_MAC,
        primary=IPv4Address("192.0.2.1"),
    )


def test_external_owner_is_pinned_to_its_mac():
    entry = entries(Vip(VIP, Owner(OwnerKind.EXTERNAL, mac=PINNED)), [HERE])[EntryKey(2, VIP)]

    assert (entry.owner_mac, entry.unfenced) == (PINNED, False)


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        (["192.0.2.50/32", "192.0.2.1/24"], "192.0.2.1"),
        (["192.0.2.1/24", "192.0.2.2/24"], "192.0.2.1"),
        (["192.0.2.50/24"], None),
        (["2001:db8::1/64"], None),
        ([], None),
    ],
)
def test_primary_address_is_the_first_that_is_no_vip(addresses, expected):
    assert primary_address(a_link(2, *addresses), 4, [VIP]) == (IPv4Address(expected) if expected else None)


def an_address(text: str, **facts: bool) -> InterfaceAddress:
    return InterfaceAddress(ip_interface(text).ip, ip_interface(text).network, **facts)


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        ([an_address("fe80::1/64")], None),
        ([an_address("fe80::1/64"), an_address("2001:db8::1/64")], "2001:db8::1"),
        ([an_address("2001:db8::50/128"), an_address("2001:db8::1/64")], "2001:db8::1"),
        ([an_address("2001:db8::1/64", usable=False)], None),
        ([an_address("2001:db8::1/64", deprecated=True), an_address("2001:db8::2/64")], "2001:db8::2"),
        ([an_address("2001:db8::1/64", temporary=True), an_address("2001:db8::2/64")], "2001:db8::2"),
        ([an_address("2001:db8::1/64", deprecated=True), an_address("2001:db8::2/64", temporary=True)], "2001:db8::2"),
        ([an_address("2001:db8::1/64", deprecated=True)], "2001:db8::1"),
        ([an_address("192.0.2.1/24")], None),
    ],
    ids=["link-local", "global", "no-vip", "tentative", "preferred", "lasting", "temporary", "deprecated", "ipv4"],
)
def test_primary_ipv6_address_is_global_and_preferred_and_lasting(addresses, expected):
    link = replace(a_link(2), addresses=tuple(addresses))
    vips = [ip_address("2001:db8::50")]

    assert primary_address(link, 6, vips) == (ip_address(expected) if expected else None)


def test_entry_has_the_primary_address_of_its_vips_family():
    both = a_link(2, "192.0.2.1/24", "2001:db8::1/64")
    vip = Vip(ip_address("2001:db8::50"), Owner(OwnerKind.NODE, node="other"))

    assert entries(vip, [both])[EntryKey(2, vip.address)].primary == ip_address("2001:db8::1")


def test_node_speaks_for_what_it_owns_and_enforces():
    entries = {
        EntryKey(2, VIP): VipEntry(Kind.OWNED, answer_mac=PINNED),
        EntryKey(2, VIP + 1): VipEntry(Kind.FOREIGN),
        EntryKey(2, VIP + 2): VipEntry(Kind.OWNED, mode=Mode.OBSERVE),
        EntryKey(2, VIP + 3): VipEntry(Kind.OWNED, mode=Mode.ENFORCE, answer_mac=PINNED),
    }

    assert spoken_for(entries, Mode.ENFORCE) == {EntryKey(2, VIP): PINNED, EntryKey(2, VIP + 3): PINNED}
    assert spoken_for(entries, Mode.OBSERVE) == {EntryKey(2, VIP + 3): PINNED}


@pytest.mark.parametrize(
    ("node", "entry", "expected"),
    [
        (Mode.OBSERVE, Mode.INHERIT, Mode.OBSERVE),
        (Mode.OBSERVE, Mode.ENFORCE, Mode.ENFORCE),
        (Mode.ENFORCE, Mode.OBSERVE, Mode.ENFORCE),
    ],
)
def test_strictest_mode_is_enforce_if_anybody_enforces(node, entry, expected):
    assert strictest_mode(node, {EntryKey(2, VIP): VipEntry(Kind.FOREIGN, mode=entry)}) is expected
    assert strictest_mode(node, {}) is node


def test_range_spans_all_addresses():
    assert vips4_of([EntryKey(2, VIP + 5), EntryKey(3, VIP), EntryKey(2, VIP + 2)]) == (VIP, VIP + 5)


def test_range_of_nothing_contains_no_host():
    assert vips4_of([]) == (IPv4Address("255.255.255.255"),) * 2


@pytest.mark.parametrize(
    ("node", "modes", "expected"),
    [
        (Mode.ENFORCE, [], Mode.INHERIT),
        (Mode.OBSERVE, [Mode.INHERIT], Mode.OBSERVE),
        (Mode.ENFORCE, [Mode.INHERIT], Mode.ENFORCE),
        (Mode.ENFORCE, [Mode.OBSERVE], Mode.OBSERVE),
        (Mode.OBSERVE, [Mode.OBSERVE, Mode.ENFORCE], Mode.ENFORCE),
    ],
)
def test_strictest_mode_of_ipv6_is_that_of_its_entries(node, modes, expected):
    entries = {EntryKey(2, VIP6 + number): VipEntry(Kind.FOREIGN, mode) for number, mode in enumerate(modes)}
    others = {EntryKey(2, VIP): VipEntry(Kind.FOREIGN, Mode.ENFORCE)}

    assert strictest6_mode(node, entries | others) is expected


def test_node_listens_to_the_groups_of_the_ipv6_addresses_that_it_owns_and_to_each_once():
    shares_its_group = ip_address("2001:db8:1::50")
    entries = {
        EntryKey(2, VIP): VipEntry(Kind.OWNED),
        EntryKey(2, VIP6): VipEntry(Kind.OWNED, Mode.OBSERVE),
        EntryKey(2, shares_its_group): VipEntry(Kind.OWNED),
        EntryKey(3, VIP6): VipEntry(Kind.OWNED),
        EntryKey(2, VIP6 + 1): VipEntry(Kind.FOREIGN),
    }
    group = ip_address("ff02::1:ff00:50")

    assert memberships_of(entries) == {GroupMembership(2, group), GroupMembership(3, group)}


def test_address_that_nobody_is_found_to_announce_is_unclaimed():
    followed = Owner(OwnerKind.FOLLOW)

    assert standing_of(Vip(VIP, followed), "me", {}).kind is Kind.UNCLAIMED
    assert standing_of(Vip(VIP, replace(followed, node="other")), "me", {}).kind is Kind.FOREIGN
    assert standing_of(Vip(VIP, replace(followed, node="me")), "me", {}).kind is Kind.DELEGATED


# ---- more than fit ---------------------------------------------------------------------------------------------------


def _entries_on(ifindex: int, *addresses: str) -> dict[EntryKey, str]:
    return {EntryKey(ifindex, ip_address(address)): f"{address} on {ifindex}" for address in addresses}


def test_all_that_fit_are_taken_as_they_are():
    wanted = _entries_on(2, "10.0.0.9", "10.0.0.1")
    assert fitting(wanted, {}, 2) is wanted


def test_first_addresses_fit_in_whatever_order_they_are_asked_for():
    wanted = _entries_on(2, "2001:db8::1", "10.0.0.10", "10.0.0.9", "10.0.0.200")
    for order in permutations(wanted.items()):
        assert fitting(dict(order), {}, 2) == _entries_on(2, "10.0.0.9", "10.0.0.10")


def test_a_vip_fits_on_all_links_before_the_next_one_does():
    wanted = _entries_on(2, "10.0.0.1", "10.0.0.2") | _entries_on(3, "10.0.0.1", "10.0.0.2")
    assert fitting(wanted, {}, 2) == _entries_on(2, "10.0.0.1") | _entries_on(3, "10.0.0.1")


def test_what_the_map_has_is_not_thrown_out_by_what_comes_later():
    wanted = _entries_on(2, "10.0.0.1", "10.0.0.2", "10.0.0.9")
    assert fitting(wanted, _entries_on(2, "10.0.0.9", "10.0.0.5"), 2) == _entries_on(2, "10.0.0.1", "10.0.0.9")
