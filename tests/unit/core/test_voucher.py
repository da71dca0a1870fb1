"""A voucher: what it sends when, and what it reports. That each of its rules is needed: tests/properties."""

import inspect
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest

from arpguard.core.vouching.gaps import STEPS_NS, Gaps
from arpguard.core.vouching.profiles import DEFAULT, FAST, PROFILES, SLOW, fastest_for
from arpguard.core.vouching.voucher import (
    PATIENCE,
    PING_NS,
    Decided,
    EpochOver,
    Exchange,
    OwnRight,
    SeenBound,
    SendGrant,
    SendPing,
    Voucher,
)
from support.protocol import one_voucher
from support.protocol.one_voucher import AHEAD, EPOCH, INSTANCE, MS, TERM, TRIAL, D, S, VoucherBench, bound

STORIES = [
    story
    for name, story in inspect.getmembers(one_voucher, inspect.isfunction)
    if story.__module__ == one_voucher.__name__ and name != "bound"
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_voucher_keeps_its_rules(story):
    story()


def test_pings_twenty_times_a_second_and_grants_what_comes_back():
    bench = VoucherBench()
    bench.run(S)

    pings, grants = bench.effects(SendPing), bench.effects(SendGrant)
    assert [later.number - ping.number for ping, later in pairwise(pings)] == [PING_NS] * 19
    assert [grant.number for grant in grants] == [ping.number for ping in pings[: len(grants)]]
    assert grants[0].stamp_ns == pings[0].number + MS + AHEAD
    assert len(grants) >= 19


def test_a_ping_that_is_late_does_not_delay_the_next():
    bench = VoucherBench()
    bench.run(PING_NS)
    bench.stop(20 * MS)
    bench.run(PING_NS)

    began = bench.times(SendPing)[0]
    assert [at - began for at in bench.times(SendPing)] == [0, PING_NS + 20 * MS, 2 * PING_NS]


def test_pings_that_were_missed_are_not_made_up_for():
    bench = VoucherBench()
    bench.run(PING_NS)
    bench.stop(10 * PING_NS)
    bench.run(PING_NS)

    assert len(bench.effects(SendPing)) == 2


def test_says_once_that_the_kernel_is_bound():
    bench = bound()
    bench.run(S)

    assert bench.effects(SeenBound) == [SeenBound(TERM.number)]


def test_several_terms_go_side_by_side():
    other = replace(TERM, number=TERM.number + 5)
    bench = VoucherBench(TERM, TRIAL, other)
    bench.run(4 * PING_NS)
    assert {ping.term for ping in bench.effects(SendPing)} == {TERM.number, TRIAL.number, other.number}
    assert {grant.term for grant in bench.effects(SendGrant)} == {TERM.number, other.number}

    bench.voucher.drop(other.number)
    bench.voucher.drop(other.number)
    bench.did.clear()
    bench.on_the_way = []
    bench.run(4 * PING_NS)
    assert {grant.term for grant in bench.effects(SendGrant)} == {TERM.number}
    assert not bench.voucher.adopt(TERM, bench.now)


def test_patience_ends_when_three_pings_have_had_the_time_of_one():
    bench = bound()
    bench.node.alive = False
    bench.on_the_way = []
    bench.stop(3 * D)
    bench.did.clear()
    bench.run(D)

    (decided_ns,) = bench.times(Decided)
    assert sum(at < decided_ns for at in bench.times(SendPing)) == PATIENCE + 1


def test_nothing_is_granted_from_the_fence_on():
    bench = bound()
    bench.run(PING_NS - MS)
    bench.do(bench.voucher.tick(bench.now))
    pong = bench.node.pong(bench.effects(SendPing)[-1].number, bench.now)

    right = OwnRight(EPOCH, bench.now)
    assert bench.voucher.pong(TERM.number, pong, right, bench.now) == []


def test_what_is_over_with_an_epoch_is_told():
    bench = bound()
    report = bench.report()
    pong = bench.node.pong(bench.effects(SendPing)[-1].number, bench.now)

    effects = bench.voucher.pong(TERM.number, pong, OwnRight(EPOCH + 1, 10**18), bench.now)
    assert effects == [EpochOver(TERM.number, report)]


def test_one_that_ends_says_so():
    bench = bound()
    assert not any(ping.ending for ping in bench.effects(SendPing))
    bench.voucher.end()
    bench.did.clear()
    bench.run(4 * PING_NS)

    assert all(ping.ending for ping in bench.effects(SendPing))
    assert len(bench.effects(SendGrant)) >= 3
    assert not bench.voucher.idle
    bench.voucher.drop(TERM.number)
    assert bench.voucher.idle


def test_what_is_not_vouched_for_has_no_effect():
    bench = VoucherBench(TRIAL)
    pong = bench.node.pong(bench.now, bench.now)

    assert bench.voucher.pong(99, pong, bench.right, bench.now) == []
    assert bench.voucher.emptied(99, lambda: 1, bench.now) == []


def test_sleeps_until_the_next_ping_or_decision():
    assert Voucher(INSTANCE).next_ns(S) is None
    bench = bound()
    (granted_ns, pinged_ns) = (bench.times(SendGrant)[-1], bench.times(SendPing)[-1])
    assert bench.voucher.next_ns(bench.now) == pinged_ns + PING_NS

    bench.node.alive = False
    bench.on_the_way = []
    while not pinged_ns < granted_ns + D < pinged_ns + PING_NS:
        bench.run(MS)
        pinged_ns = bench.times(SendPing)[-1]
    assert bench.voucher.next_ns(bench.now) == granted_ns + D
    assert bench.voucher.next_ns(granted_ns + D) == pinged_ns + PING_NS, "it does not ask again and again"


def test_reports_how_a_term_goes():
    bench = bound()
    bench.run(S)
    bench.stop(80 * MS)
    bench.run(PING_NS)

    report = bench.report()
    assert report.granted_ns == bench.times(SendGrant)[-1]
    assert (report.pings, report.pongs) == (len(bench.effects(SendPing)), len(bench.effects(SendGrant)))
    assert report.gaps.total == report.pongs - 1
    assert PING_NS + 10 * MS <= report.gaps.longest_ns <= 80 * MS + PING_NS
    assert report.first == Exchange(100 * S, 100 * S + MS + AHEAD, 100 * S + 2 * MS)
    assert report.last.sent_ns == bench.effects(SendGrant)[-1].number


def test_what_is_over_is_reported_with_its_end():
    bench = bound()
    bench.node.alive = False
    bench.run(2 * D)

    (decided,) = bench.effects(Decided)
    assert decided.report.granted_ns == bench.times(SendGrant)[-1]
    assert bench.voucher.reports() == []


def test_a_trial_reports_gaps_between_pongs():
    bench = VoucherBench(TRIAL)
    bench.run(S)

    report = bench.report(TRIAL.number)
    assert report.granted_ns is None
    assert report.gaps.total == report.pongs - 1 >= 18


@pytest.mark.parametrize(
    ("theirs_ns", "differ"), [(60 * S, False), (60 * S + 61 * MS, False), (60 * S + 70 * MS, True), (59 * S, True)]
)
def test_clocks_differ_only_if_no_delay_explains_it(theirs_ns, differ):
    report = VoucherBench().report()
    first = Exchange(S, 100 * S, S + MS)
    last = Exchange(61 * S, 100 * S + theirs_ns, 61 * S + MS)

    assert replace(report, first=first, last=last).clocks_differ(per_mille=1) is differ
    assert not replace(report, first=first).clocks_differ(per_mille=1)
    assert not report.clocks_differ(per_mille=1)


def test_gaps_of_several_terms_add_up():
    both = Gaps().with_gap(52 * MS) + Gaps().with_gap(90 * MS).with_gap(2000 * MS)

    assert both == Gaps().with_gap(52 * MS).with_gap(90 * MS).with_gap(2000 * MS)
    assert (both.total, both.sum_ns, both.longest_ns) == (3, 2142 * MS, 2000 * MS)


def test_gaps_are_counted_in_steps():
    gaps = Gaps()
    assert (gaps.total, gaps.within_ns(999)) == (0, 0)
    for gap_ms in [50] * 997 + [55, 56, 2000]:
        gaps = gaps.with_gap(gap_ms * MS)

    assert gaps.counts[:2] == (998, 1)
    assert gaps.counts[-1] == 1
    assert gaps.sum_ns == (997 * 50 + 55 + 56 + 2000) * MS
    assert gaps.within_ns(500) == gaps.within_ns(998) == STEPS_NS[0]
    assert gaps.within_ns(999) == STEPS_NS[1]
    assert gaps.within_ns(1000) == gaps.longest_ns == 2000 * MS
    assert Gaps().with_gap(52 * MS).within_ns(1000) == 52 * MS


@pytest.mark.parametrize(
    ("gap_ms", "profile"),
    [(50, FAST), (200, FAST), (201, DEFAULT), (300, DEFAULT), (301, SLOW), (450, SLOW), (451, None)],
)
def test_grants_count_for_twice_the_gap(gap_ms, profile):
    assert fastest_for(gap_ms * MS) == profile


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_the_margin_is_enough_for_a_clock_that_is_slewed(profile):
    slewed = 2 * Fraction(1, 12) / (1 + Fraction(1, 12))  # V12: r is chrony's fastest
    to_the_wire_ns = 12 * MS

    assert profile.m_ns - profile.d_ns * slewed - to_the_wire_ns > 90 * MS, "for how long a guest may stand still"
