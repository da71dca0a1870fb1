"""What entries depend on: with an equal basis they are equal, and what differs is named."""

from dataclasses import replace
from ipaddress import ip_address, ip_interface, ip_network

import pytest

from arpguard.addresses import MacAddress
from arpguard.config.model import AgentConfig
from arpguard.core.basis import Asked, Basis
from arpguard.core.choosing import Choice
from arpguard.core.closing import Closing
from arpguard.model import EntryKey, InterfaceAddress, Link, Owner, OwnerKind, RangeKey, Route, Standing, Surroundings
from arpguard.model import Vip as AVip
from arpguard.verdict import Kind

A, B = (ip_address(f"192.0.2.{number}") for number in (50, 51))
OWN = ip_interface("192.0.2.1/24")
ETH0 = Link(
    2,
    "eth0",
    MacAddress.parse("02:00:00:00:00:01"),
    up=True,
    addresses=(InterfaceAddress(OWN.ip, OWN.network),),
)
VIPS = {A: AVip(A, Owner(OwnerKind.ELECT)), B: AVip(B, Owner(OwnerKind.NODE, node="me"))}
ASKED = Asked(AgentConfig(), 1, VIPS, problems=["asked"], closing=Closing(closed=(OWN.network,), problems=("closing",)))
HOME, ELSEWHERE = Route(OWN.network, 2), Route(ip_network("10.0.0.0/8"), 9)
CHOICE = Choice((ETH0,), ("choice",))


def a_basis(asked: Asked = ASKED, routes=(HOME, ELSEWHERE), choice: Choice = CHOICE) -> Basis:
    return Basis.of(asked, Surroundings((ETH0,), routes), choice)


def test_routes_of_other_links_do_not_count():
    assert a_basis().routes == (HOME,)
    assert a_basis().is_like(a_basis(routes=(HOME,)))


def test_neither_a_vip_nor_a_closed_address_is_primary():
    assert a_basis().primaries[2, 4] is None
    assert a_basis(replace(ASKED, closing=Closing())).primaries[2, 4] == OWN.ip


def test_all_problems_are_told():
    assert a_basis().problems == ["asked", "closing", "choice"]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(a_basis(replace(ASKED, config=AgentConfig())), id="configuration"),
        pytest.param(a_basis(replace(ASKED, complete=False)), id="not all was read"),
        pytest.param(a_basis(choice=Choice((replace(ETH0, up=False),), ())), id="link"),
        pytest.param(a_basis(replace(ASKED, closing=Closing())), id="primary address"),
        pytest.param(a_basis(routes=()), id="route"),
    ],
)
def test_entries_of_the_same_vips_may_differ_by_all_else(other):
    assert not a_basis().differs_in_vips_only(other)
    assert not a_basis().is_like(other)


def test_vips_that_are_others_or_gone_are_changes():
    moved = AVip(A, Owner(OwnerKind.EXTERNAL))
    asked = replace(ASKED, vips={A: moved})

    assert a_basis().changes(asked.vips) == {A: moved, B: None}
    assert a_basis().differs_in_vips_only(a_basis(asked))
    assert not a_basis().is_like(a_basis(asked))


def test_vips_that_are_the_same_objects_in_another_mapping_are_no_change():
    assert a_basis().is_like(a_basis(replace(ASKED, vips=dict(VIPS))))


def test_elected_are_those_that_an_election_decides_about():
    assert a_basis().elected([A, B, ip_address("192.0.2.99")]) == {A: VIPS[A]}


def test_entries_follow_owners_and_standings():
    entries = a_basis().entries(VIPS.values(), "me", {A: Standing(Kind.FOREIGN)})

    assert {key: entry.kind for key, entry in entries.items()} == {
        EntryKey(2, A): Kind.FOREIGN,
        EntryKey(2, B): Kind.OWNED,
    }


def test_nothing_is_gone_before_all_was_read():
    asked = replace(ASKED, complete=False)

    assert a_basis().gone([A, B], {EntryKey(2, B): object()}) == [EntryKey(2, A)]
    assert a_basis(asked).gone([A, B], {}) == []


def test_ranges_are_closed_on_every_guarded_link():
    assert {key: entry.kind for key, entry in a_basis().ranges.items()} == {RangeKey(2, OWN.network): Kind.CLOSED}
