"""The lines of a trace: which events and effects it has, and that tracing changes nothing."""

import json
from dataclasses import replace
from ipaddress import IPv4Address

import pytest

from arpguard.addresses import MacAddress
from arpguard.core.ownership.machine import Ownership
from arpguard.core.ownership.records import (
    Claim,
    ClearEntry,
    ClearTerm,
    Heartbeat,
    Kept,
    KernelTerm,
    Outcome,
    Probe,
    PublishedLink,
    ReportTaken,
    SetFence,
    SetTerm,
    Version,
    WriteClaim,
    WriteHeartbeat,
)
from arpguard.core.ownership.tracing import EVENTS, TracedOwnership, effect_line, plain
from arpguard.wire.vouching import VouchTerm
from support.protocol.one_node import TIMES, VIP, S

NOW = 100 * S
MAC = MacAddress.parse("02:00:00:00:00:0a")
BEAT = Heartbeat("b", "b-1", "b/1", 3 * S, Version("uid-b", "1"), links=(PublishedLink("eth0", MAC),))
CLAIM = Claim(VIP, "b", "b-1", Version("uid-vip", "5"))
KEPT = Kept("a-1", (VIP,), 7 * S, KernelTerm(3, bound=True, fence_ns=6 * S))


def traced(kept=KEPT):
    lines = []
    ownership = TracedOwnership(
        "a", "a/1", TIMES, lambda: "a-2", kept, tell=lambda event, what: lines.append((event, what))
    )
    return ownership, lines


def test_it_begins_with_what_the_kernel_has_and_the_lengths_of_time():
    _, lines = traced()

    (event, what), *more = lines
    assert (event, more) == ("started", [])
    assert what["kept"] == {
        "epoch": "a-1",
        "vips": [str(VIP)],
        "fence_ns": 7 * S,
        "term": {"number": 3, "bound": True, "fence_ns": 6 * S, "unheard": False},
    }
    assert what["times"]["margin_ns"] == TIMES.margin_ns


def test_events_are_told_with_their_arguments_and_have_the_same_effects():
    ownership, lines = traced()
    plain_one = Ownership("a", "a/1", TIMES, lambda: "a-2", KEPT)
    del lines[:]

    for each in (ownership, plain_one):
        each.heartbeat_seen("b", BEAT, NOW)
        each.claim_seen(VIP, CLAIM, NOW + 1)
    assert lines == [
        ("heartbeat seen", {"of": "b", "found": plain(BEAT), "now_ns": NOW}),
        ("claim seen", {"vip": str(VIP), "found": plain(CLAIM), "now_ns": NOW + 1}),
    ]
    assert ownership.want([VIP], NOW + 2) == plain_one.want([VIP], NOW + 2)
    assert ownership.holder(VIP, NOW + 3) == plain_one.holder(VIP, NOW + 3)


def test_an_event_is_told_before_it_has_effects():
    ownership, _ = traced()
    told = []
    ownership._tell = lambda event, _what: told.append((event, ownership.peers.known("b")))

    ownership.heartbeat_seen("b", BEAT, NOW)
    assert told == [("heartbeat seen", None)]
    assert ownership.peers.known("b") == BEAT


def test_an_argument_without_a_name_is_left_out():
    ownership, lines = traced()
    ownership.tick(NOW)
    del lines[:]

    ownership.own_claims_listed([CLAIM], NOW, NOW + 1)
    assert lines == [("own claims listed", {"sent_ns": NOW, "now_ns": NOW + 1})]


def test_times_are_told_when_they_change():
    ownership, lines = traced()
    del lines[:]
    longer = replace(TIMES, duration_ns=9 * S)

    ownership.set_times(TIMES, NOW)
    ownership.set_times(longer, NOW)
    ownership.set_times(longer, NOW)
    assert [(event, what["times"]["duration_ns"]) for event, what in lines] == [("times set", 9 * S)]
    assert ownership.peers.times == longer


@pytest.mark.parametrize("method", EVENTS)
def test_every_event_in_the_table_is_one_of_the_protocol(method):
    assert callable(getattr(Ownership, method))
    assert getattr(TracedOwnership, method) is not getattr(Ownership, method)


@pytest.mark.parametrize(
    ("effect", "event"),
    [
        (SetFence("a-1", 5 * S, 3 * S), "fence set"),
        (ClearEntry(VIP, drain=True, why="unwanted"), "entry taken out"),
        (SetTerm(VouchTerm("a", "a-1", "b", "b/1", "b-1", "t", S, S // 2)), "term set"),
        (ClearTerm(), "term cleared"),
        (WriteHeartbeat("a", "a-1", "a/1", None, 3 * S), "heartbeat sent"),
        (WriteClaim(VIP, "a", "a-1", Version("u", "2")), "claim sent"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_effects_are_lines(effect, event):
    told = effect_line(effect)

    assert told == (event, {"effect": plain(effect)})
    assert json.loads(json.dumps(told[1])) == told[1]


def test_probes_have_lines_by_their_answers_only_and_what_people_are_told_has_none():
    assert effect_line(Probe(VIP)) is None
    assert effect_line(ReportTaken(VIP, MAC)) is None


def test_a_version_is_one_string_and_what_no_rule_reads_is_left_out():
    assert plain(BEAT) == {
        "node": "b",
        "epoch": "b-1",
        "instance": "b/1",
        "duration_ns": 3 * S,
        "version": "uid-b/1",
        "voucher": None,
        "bound": False,
        "early": False,
    }
    assert plain(Outcome.CONFLICT) == "conflict"
    assert plain(IPv4Address("192.0.2.1")) == "192.0.2.1"
