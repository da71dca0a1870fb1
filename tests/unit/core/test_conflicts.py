"""Which claims of nodes are a split brain, and which are a VIP that moves."""

from dataclasses import replace
from ipaddress import ip_address

import pytest

from arpguard.addresses import Address, MacAddress
from arpguard.core.claimants import Claimant, ClaimantKind
from arpguard.core.conflicts import (
    AGAIN_NS,
    ATTEMPTS,
    CAPACITY,
    CHECK_NS,
    COUNTS_NS,
    FORGET_NS,
    GRACE_NS,
    MOVED_NS,
    PERSISTS_NS,
    KnownOwner,
    Strangers,
    Suspicions,
)
from arpguard.core.decisions import Report
from arpguard.units import NS_PER_MS, NS_PER_S
from support.frames.builders import a_claim

VIP = ip_address("192.0.2.50")
START = 1000 * NS_PER_S
ELSEWHERE = Claimant(ClaimantKind.CLUSTER_NODE, "node-2")
ME, NOBODY, THEIRS = KnownOwner("node-1", own_since_ns=0), KnownOwner(""), KnownOwner("node-2")


def a_report(at_ns: int, vip=VIP, host: int = 2) -> Report:
    mac = MacAddress(bytes((2, 0, 0, 0, 0, host)))
    return Report(1, "eth0", a_claim(vip, mac, at_ns), 1, at_ns)


class Table:
    """Suspicions, and a clock."""

    def __init__(self, owner: KnownOwner = ME) -> None:
        self.it = Suspicions()
        self.owner = owner
        self.checked: list[Address] = []
        self.refused = 0  # so many of the first checks

    def hear(self, *at_ns: int, **of) -> list[tuple[bool, Report | None]]:
        return [self.it.heard(a_report(at, **of), ELSEWHERE, self.owner, at) for at in at_ns]

    def due(self, now_ns: int) -> list[tuple[Report, Claimant]]:
        return list(self.it.due(lambda _: self.owner, self.check, now_ns))

    def check(self, vip: Address) -> bool:
        self.checked.append(vip)
        return len(self.checked) > self.refused


def test_claim_waits_for_the_grace_and_then_counts_where_this_node_had_the_vip_all_the_time():
    table = Table()

    assert table.hear(START) == [(True, None)]
    assert table.it.next_ns() == START + GRACE_NS
    assert table.due(START + GRACE_NS - 1) == []
    assert table.due(START + GRACE_NS) == [(a_report(START), ELSEWHERE)]
    assert table.it.next_ns() is None


@pytest.mark.parametrize("held_for_ns", [0, GRACE_NS - 1])
def test_single_frame_right_after_this_node_took_the_vip_is_a_late_one_of_the_owner_before(held_for_ns):
    table = Table(KnownOwner("node-1", own_since_ns=START - held_for_ns))
    table.hear(START)

    assert table.due(START + GRACE_NS) == []


@pytest.mark.parametrize("owner", [NOBODY, KnownOwner("node-3"), KnownOwner("node-1", own_since_ns=START)])
def test_claim_that_is_heard_again_counts_whoever_has_the_vip(owner):
    table = Table(owner)
    table.hear(START, START + AGAIN_NS)

    ((report, claimant),) = table.due(START + GRACE_NS)

    assert (report.count, report.first_ns, report.last_ns) == (2, START, START + AGAIN_NS)
    assert claimant == ELSEWHERE


def test_two_frames_at_once_are_not_heard_again():
    table = Table(NOBODY)
    table.hear(START, START + AGAIN_NS - 1)

    assert table.due(START + GRACE_NS) == []


def test_single_claim_is_kept_in_mind_until_it_is_heard_again():
    """An announcer that speaks once a minute. The second frame waits, too: the VIP may just have moved."""
    table = Table(NOBODY)
    table.hear(START)
    table.due(START + GRACE_NS)
    later = START + 60 * NS_PER_S
    table.hear(later)

    assert table.due(later) == []
    ((report, _),) = table.due(later + GRACE_NS)
    assert (report.count, report.first_ns) == (2, START)


def test_single_claim_is_forgotten_in_the_end():
    table = Table(NOBODY)
    table.hear(START)
    table.due(START + GRACE_NS)
    later = START + FORGET_NS + 1

    assert table.hear(later) == [(True, None)]
    assert table.due(later + GRACE_NS) == []
    assert table.due(later + FORGET_NS + 1) == []
    assert len(table.it) == 0


def test_claim_of_the_holder_is_nothing():
    table = Table(THEIRS)

    assert table.hear(START, START + AGAIN_NS) == [(False, None), (False, None)]
    assert len(table.it) == 0


def test_move_that_is_read_of_after_it_was_heard_of_is_nothing():
    table = Table(NOBODY)
    table.hear(START, START + AGAIN_NS, START + 2 * AGAIN_NS)
    table.owner = THEIRS

    assert table.due(START + GRACE_NS) == []
    assert len(table.it) == 0


def test_move_that_is_over_before_the_grace_is_nothing():
    """There and back: it was that node's when it was heard."""
    table = Table()
    table.hear(START, START + AGAIN_NS)
    table.hear(START, START + AGAIN_NS, vip=VIP + 1)
    table.it.moved(VIP, START + AGAIN_NS)

    ((report, _),) = table.due(START + GRACE_NS)
    assert report.decision.key.vip == VIP + 1


def test_move_that_was_read_of_before_its_frames_is_nothing():
    """The agent was stopped: it read two moves from the watch, and only then the kernel's reports of the frames."""
    table = Table(NOBODY)
    table.it.moved(VIP, START + 2 * AGAIN_NS)
    late = table.hear(START, START + AGAIN_NS, START + 2 * AGAIN_NS)

    assert late == [(False, None)] * 3
    assert table.due(START + GRACE_NS) == []
    assert table.hear(START + 2 * AGAIN_NS + 1) == [(True, None)]


def test_what_is_heard_while_it_is_not_known_who_has_the_vip_does_not_count():
    """It may have moved there and away again."""
    table = Table(replace(NOBODY, is_sure=False))
    table.hear(START, START + AGAIN_NS)

    assert table.due(START + GRACE_NS) == []
    assert table.it.next_ns() is None
    table.owner = NOBODY
    assert table.due(START + 2 * GRACE_NS) == []

    later = START + 2 * GRACE_NS
    table.hear(later, later + AGAIN_NS)
    assert len(table.due(later + GRACE_NS)) == 1


def test_claim_that_counts_is_told_at_once_when_it_comes_again_until_the_vip_is_that_nodes():
    table = Table()
    table.hear(START)
    table.due(START + GRACE_NS)
    later = START + GRACE_NS + 100 * NS_PER_MS

    assert table.hear(later) == [(False, a_report(later))]
    table.owner = THEIRS
    assert table.hear(later + 1) == [(False, None)]
    table.owner = ME
    assert table.hear(later + 2) == [(True, None)]


def test_claim_that_counted_long_ago_waits_again():
    """The VIP may be about to move to that node: its first frame comes before its claim is read."""
    table = Table(NOBODY)
    table.hear(START, START + AGAIN_NS)
    assert len(table.due(START + GRACE_NS)) == 1

    later = START + AGAIN_NS + COUNTS_NS + 1
    assert table.hear(later) == [(True, None)]
    assert table.due(later + GRACE_NS) == []


def test_moves_are_forgotten_once_no_report_can_be_from_before_them():
    table = Table(NOBODY)
    for number in range(3):
        table.it.moved(VIP + number, START + number)
    table.it.moved(VIP + 3, START + MOVED_NS + 2)

    assert table.hear(START + 1, vip=VIP + 1) == [(True, None)]
    assert table.hear(START + 2, vip=VIP + 2) == [(False, None)]


def test_claims_of_nodes_that_are_made_up_are_bounded():
    table = Table(NOBODY)
    for number in range(2 * CAPACITY):
        table.hear(START + number, vip=VIP + number)

    assert len(table.it) == CAPACITY
    table.hear(START + AGAIN_NS + 2 * CAPACITY, vip=VIP + 2 * CAPACITY - 1)
    assert [report.decision.key.vip for report, _ in table.due(START + 2 * GRACE_NS)] == [VIP + 2 * CAPACITY - 1]


def test_lease_of_an_elected_vip_is_read_before_a_claim_counts():
    """The watch may lag, and not show the move yet."""
    late = Table(replace(NOBODY, seen_ns=START + GRACE_NS))
    late.hear(START, START + AGAIN_NS)
    assert (late.due(START + GRACE_NS), late.checked) == ([], [VIP])
    late.it.moved(VIP, START + GRACE_NS + 1)
    assert late.due(START + GRACE_NS + CHECK_NS) == []

    split = Table(replace(NOBODY, seen_ns=START + GRACE_NS))
    split.hear(START, START + AGAIN_NS)
    split.due(START + GRACE_NS)
    assert split.it.next_ns() == START + GRACE_NS + CHECK_NS
    assert len(split.due(START + GRACE_NS + CHECK_NS)) == 1
    assert split.checked == [VIP]


@pytest.mark.parametrize(("refused", "asked"), [(2, 3), (ATTEMPTS, ATTEMPTS)])
def test_where_too_many_leases_are_asked_for_a_claim_waits_but_not_for_ever(refused, asked):
    table = Table(replace(NOBODY, seen_ns=START + GRACE_NS))
    table.refused = refused
    table.hear(START, START + AGAIN_NS)

    for number in range(asked):
        assert table.due(START + GRACE_NS + number * CHECK_NS) == []
    assert len(table.due(START + GRACE_NS + asked * CHECK_NS)) == 1
    assert len(table.checked) == asked


def test_claims_count_only_once_it_is_known_who_had_the_vip_meanwhile():
    """What was heard after the watch last showed anything may be a move that it has not shown yet."""
    table = Table(replace(NOBODY, seen_ns=START))
    table.hear(START, START + AGAIN_NS, START + 2 * AGAIN_NS)

    assert table.due(START + GRACE_NS) == []
    table.owner = replace(NOBODY, seen_ns=START + AGAIN_NS - 1)
    assert table.due(START + 2 * GRACE_NS) == []
    table.owner = replace(NOBODY, seen_ns=START + AGAIN_NS)
    assert (table.due(START + 3 * GRACE_NS), table.checked) == ([], [VIP])
    ((report, _),) = table.due(START + 3 * GRACE_NS + CHECK_NS)
    assert report.count == 3


def heard(strangers: Strangers, *at_ns: int, **of) -> list[bool]:
    return [strangers.heard(a_report(at, **of), at) for at in at_ns]


def test_stranger_counts_once_it_has_claimed_the_vip_for_long():
    """Until then it may be the owner, by a MAC that it has not published yet."""
    strangers = Strangers()
    end = START + PERSISTS_NS

    assert heard(strangers, START, end - 1, end, end + 1) == [False, False, True, True]
    assert heard(strangers, end, host=3) == [False]
    assert heard(strangers, end, vip=VIP + 1) == [False]


def test_stranger_that_was_silent_for_long_begins_anew():
    strangers = Strangers()

    assert heard(strangers, START, START + FORGET_NS) == [False, True]
    assert heard(strangers, START + 2 * FORGET_NS + 1) == [False]


def test_stranger_that_turns_out_to_be_a_node_is_none():
    strangers = Strangers()
    heard(strangers, START, host=1)
    heard(strangers, START, host=2)

    strangers.withdraw({a_report(START, host=1).decision.sha})

    assert heard(strangers, START + PERSISTS_NS, host=1) == [False]
    assert heard(strangers, START + PERSISTS_NS, host=2) == [True]


def test_macs_that_are_made_up_are_bounded():
    strangers = Strangers(capacity=2)
    for host in range(3):
        heard(strangers, START, host=host)

    assert heard(strangers, START + PERSISTS_NS, host=0) == [False]
    assert heard(strangers, START + PERSISTS_NS, host=2) == [True]


@pytest.mark.parametrize(
    ("owner", "may_be_elsewhere"),
    [
        (THEIRS, True),
        (KnownOwner("", is_sure=False), True),
        (KnownOwner("", seen_ns=START), True),  # elected; its last owner may live, and announce
        (KnownOwner("node-1", is_here=True, seen_ns=START), False),
        (KnownOwner("node-1", is_here=True, is_sure=False), False),
        (NOBODY, False),  # as with `owner: external`
    ],
)
def test_vip_may_be_elsewhere_unless_this_node_has_it_or_no_node_ever_does(owner, may_be_elsewhere):
    assert owner.may_be_elsewhere is may_be_elsewhere
