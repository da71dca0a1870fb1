"""Since when this node has a VIP."""

from ipaddress import ip_address

import pytest

from arpguard.core.tenures import Tenures
from arpguard.model import EntryKey
from arpguard.verdict import Kind, Mode
from support.frames.builders import an_entry

VIP, OTHER = ip_address("192.0.2.50"), ip_address("2001:db8::50")
HERE, ELSEWHERE = EntryKey(2, VIP), EntryKey(3, VIP)


@pytest.fixture
def tenures() -> Tenures:
    """Of a node that has had the VIP since 5."""
    tenures = Tenures()
    tenures.follow({HERE: an_entry(epoch=7), EntryKey(2, OTHER): an_entry(Kind.FOREIGN)}, 5)
    return tenures


@pytest.mark.parametrize("kind", Kind)
def test_vip_is_this_nodes_while_it_or_another_program_on_it_answers(kind):
    tenures = Tenures()
    tenures.follow({HERE: an_entry(kind)}, 5)
    assert tenures.since_ns(VIP) == (5 if kind in (Kind.OWNED, Kind.DELEGATED) else None)


@pytest.mark.parametrize(
    ("entries", "since_ns"),
    [
        pytest.param({HERE: an_entry(epoch=7, mode=Mode.OBSERVE)}, 5, id="another mode"),
        pytest.param({HERE: an_entry(Kind.FOREIGN), ELSEWHERE: an_entry(epoch=7)}, 5, id="another link"),
        pytest.param({HERE: an_entry(epoch=8)}, 9, id="another epoch"),
        pytest.param({HERE: an_entry(Kind.UNCLAIMED)}, None, id="given up"),
        pytest.param({}, None, id="gone"),
    ],
)
def test_change_of_entries(tenures, entries, since_ns):
    tenures.follow(dict(entries), 9)
    assert tenures.since_ns(VIP) == since_ns


def test_change_of_a_few_leaves_the_others_alone(tenures):
    tenures.change([OTHER], {EntryKey(2, OTHER): an_entry()}, 9)
    assert (tenures.since_ns(VIP), tenures.since_ns(OTHER)) == (5, 9)
    tenures.change([OTHER], {}, 10)
    assert (tenures.since_ns(VIP), tenures.since_ns(OTHER)) == (5, None)


def test_vip_that_was_lost_for_a_moment_begins_anew(tenures):
    tenures.follow({}, 8)
    tenures.follow({HERE: an_entry(epoch=7)}, 9)
    assert tenures.since_ns(VIP) == 9


def test_the_same_entries_are_looked_at_once():
    class Counted(dict):
        looks = 0

        def items(self):
            self.looks += 1
            return super().items()

    entries, tenures = Counted({HERE: an_entry()}), Tenures()
    tenures.follow(entries, 5)
    tenures.follow(entries, 6)
    assert (entries.looks, tenures.since_ns(VIP)) == (1, 5)


def test_changes_count_vips_that_come_and_go(tenures):
    assert (tenures.changes, set(tenures.vips)) == (1, {VIP})
    tenures.follow({HERE: an_entry(epoch=8)}, 6)
    assert tenures.changes == 1, "the same VIP in another epoch"
    tenures.follow({EntryKey(2, OTHER): an_entry()}, 7)
    assert (tenures.changes, set(tenures.vips)) == (3, {OTHER})
