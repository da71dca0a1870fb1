"""What this node remembers of what it decided and heard."""

import random
from dataclasses import replace
from ipaddress import ip_address

import pytest

from arpguard.addresses import BROADCAST_MAC, ZERO_MAC, MacAddress
from arpguard.core.claimants import Claimant, ClaimantKind
from arpguard.core.decisions import ConflictLog, DecisionLog, Report, ReportFilter
from arpguard.model import Decision, EntryKey
from arpguard.verdict import Hook, Kind, Mode, Reason, Verdict

ALL = ReportFilter()
VIP, OTHER = ip_address("192.0.2.100"), ip_address("192.0.2.101")


def a_mac(number: int) -> MacAddress:
    return MacAddress(bytes((2, 0, 0, 0, 0, number)))


def a_decision(time_ns: int = 1, spa: int = 7, vip=VIP, **changes) -> Decision:
    """A request from 192.0.2.<spa> was suppressed."""
    decision = Decision(
        time_ns=time_ns,
        key=EntryKey(2, vip),
        verdict=Verdict.SUPPRESS,
        reason=Reason.FOREIGN,
        hook=Hook.TC_INGRESS,
        mode=Mode.ENFORCE,
        kind=Kind.FOREIGN,
        op=1,
        spa=ip_address(f"192.0.2.{spa}"),
        tpa=vip,
        sha=a_mac(spa),
        tha=ZERO_MAC,
        eth_src=a_mac(spa),
        eth_dst=BROADCAST_MAC,
    )
    return replace(decision, **changes)


def a_claim(time_ns: int = 1, host: int = 9, vip=VIP, **changes) -> Decision:
    return a_decision(time_ns, host, vip, verdict=Verdict.CONFLICT, reason=Reason.CONFLICT, **changes)


def a_log(*decisions: Decision, capacity: int = 100) -> DecisionLog:
    log = DecisionLog(capacity)
    for decision in decisions:
        log.add(decision, "eth0")
    return log


def shown(log: DecisionLog, wanted: ReportFilter = ALL, before: int | None = None) -> list[tuple[int, int, int, int]]:
    """(last number of spa, count, first, last) of each."""
    return [
        (int(report.decision.spa) & 255, report.count, report.first_ns, report.last_ns)
        for report in log.newest(wanted, before)
    ]


# ---- decisions ---------------------------------------------------------------------------------------------------


def test_equal_decisions_are_one_report_with_count_and_first_and_last_time():
    assert shown(a_log(a_decision(10), a_decision(20), a_decision(30))) == [(7, 3, 10, 30)]


@pytest.mark.parametrize(
    "change",
    [
        {"key": EntryKey(3, VIP)},
        {"key": EntryKey(2, OTHER)},
        {"verdict": Verdict.PASS},
        {"reason": Reason.EXTERNAL},
        {"hook": Hook.XDP},
        {"mode": Mode.OBSERVE},
        {"kind": Kind.EXTERNAL},
        {"op": 2},
        {"spa": OTHER},
        {"tpa": OTHER},
        {"sha": a_mac(1)},
        {"tha": a_mac(1)},
        {"eth_src": a_mac(1)},
        {"eth_dst": a_mac(1)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_decisions_that_differ_in_anything_but_time_are_different_reports(change):
    assert [report.count for report in a_log(a_decision(1), replace(a_decision(2), **change)).newest(ALL)] == [1, 1]


def test_latest_report_comes_first_also_when_it_is_an_old_one_again():
    log = a_log(a_decision(1, spa=1), a_decision(2, spa=2), a_decision(3, spa=1))

    assert shown(log) == [(1, 2, 1, 3), (2, 1, 2, 2)]


def test_added_report_is_given_back_as_this_one_alone():
    log = a_log(a_decision(10))

    assert log.add(a_decision(20), "eth1") == Report(2, "eth1", a_decision(20), 1, 20)


def test_link_is_named_as_at_the_latest_report():
    log = a_log(a_decision(10))
    log.add(a_decision(20), "renamed")

    assert [report.link for report in log.newest(ALL)] == ["renamed"]


def test_full_log_forgets_what_was_not_reported_for_longest():
    """spa 1 came first, but again: spa 2 goes."""
    log = a_log(*(a_decision(at, spa) for at, spa in enumerate((1, 2, 3, 1, 4))), capacity=3)

    assert shown(log) == [(4, 1, 4, 4), (1, 2, 0, 3), (3, 1, 2, 2)]
    assert log.received == 5


def test_log_is_as_long_as_it_has_different_decisions_up_to_its_capacity():
    decisions = [a_decision(at, spa) for at, spa in enumerate((1, 2, 1, 3, 4))]

    assert [len(a_log(*decisions[:count], capacity=3)) for count in range(6)] == [0, 1, 2, 2, 3, 3]


def test_forgotten_decision_starts_again_at_one():
    log = a_log(a_decision(1, 1), a_decision(2, 2), a_decision(3, 1), capacity=1)

    assert shown(log) == [(1, 1, 3, 3)]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10, 11])
def test_pages_by_number_give_every_report_once_in_order(size):
    log = a_log(*(a_decision(at, at) for at in range(10)))
    found: list[int] = []
    before = None
    while page := [report for report, _ in zip(log.newest(ALL, before), range(size), strict=False)]:
        found += [report.last_ns for report in page]
        before = page[-1].number

    assert found == list(range(9, -1, -1))


def test_report_that_is_repeated_between_two_pages_is_not_listed_twice():
    log = a_log(*(a_decision(at, at) for at in range(4)))
    first = list(log.newest(ALL))[:2]
    log.add(a_decision(9, spa=3), "eth0")  # was on the first page
    log.add(a_decision(9, spa=8), "eth0")  # came since

    assert [report.decision.spa for report in log.newest(ALL, first[-1].number)] == [
        ip_address("192.0.2.1"),
        ip_address("192.0.2.0"),
    ]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        pytest.param(ALL, [3, 2, 1], id="everything"),
        pytest.param(ReportFilter(vip=OTHER), [3, 2], id="a VIP"),
        pytest.param(ReportFilter(link="eth1"), [3], id="a link"),
        pytest.param(ReportFilter(verdict=Verdict.CONFLICT), [2], id="a verdict"),
        pytest.param(ReportFilter(reason=Reason.FOREIGN), [3, 1], id="a reason"),
        pytest.param(ReportFilter(since_ns=20), [3, 2], id="since a time, that one included"),
        pytest.param(ReportFilter(since_ns=31), [], id="since later than all"),
        pytest.param(ReportFilter(vip=OTHER, reason=Reason.FOREIGN), [3], id="two that must both hold"),
        pytest.param(ReportFilter(vip=VIP, link="eth1"), [], id="two that never hold together"),
        pytest.param(ReportFilter(vip=ip_address("2001:db8::1")), [], id="the other family"),
    ],
)
def test_filter_lets_through_what_it_says(wanted, found):
    log = DecisionLog(10)
    log.add(a_decision(10, spa=1), "eth0")
    log.add(a_claim(20, host=2, vip=OTHER), "eth0")
    log.add(a_decision(30, spa=3, vip=OTHER), "eth1")

    assert [spa for spa, *_ in shown(log, wanted)] == found


# ---- conflicts ---------------------------------------------------------------------------------------------------


def a_conflict_log(*decisions: Decision, capacity: int = 100) -> ConflictLog:
    conflicts, log = ConflictLog(capacity), DecisionLog(100)
    for decision in decisions:
        conflicts.add(log.add(decision, "eth0"))
    return conflicts


def test_claims_of_a_host_for_a_vip_are_one_item_whatever_else_differs():
    log = a_conflict_log(a_claim(10, op=1), a_claim(20, op=2), a_claim(30, eth_dst=a_mac(1)))

    (claim,) = log.newest()
    assert (claim.mac, claim.count, claim.first_ns, claim.last_ns) == (a_mac(9), 3, 10, 30)


@pytest.mark.parametrize("other", [a_claim(2, host=8), a_claim(2, vip=OTHER), a_claim(2, key=EntryKey(3, VIP))])
def test_claims_by_another_host_for_another_vip_or_on_another_link_are_items_of_their_own(other):
    assert [claim.last_ns for claim in a_conflict_log(a_claim(1), other).newest()] == [2, 1]


@pytest.mark.parametrize("verdict", [Verdict.PASS, Verdict.ANSWER, Verdict.SUPPRESS, Verdict.REWRITE])
def test_what_is_no_foreign_claim_is_no_conflict(verdict):
    assert list(a_conflict_log(a_decision(verdict=verdict)).newest()) == []


@pytest.mark.parametrize(
    ("verdict", "mode", "dropped"),
    [
        (Verdict.CONFLICT, Mode.ENFORCE, True),
        (Verdict.CONFLICT, Mode.OBSERVE, False),
        (Verdict.REPORT, Mode.ENFORCE, False),
        (Verdict.REPORT, Mode.OBSERVE, False),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_claim_was_dropped_only_if_it_was_a_conflict_and_enforced(verdict, mode, dropped):
    """As of the latest claim: the one before it was the opposite."""
    before = a_claim(1, mode=Mode.OBSERVE if dropped else Mode.ENFORCE)
    (claim,) = a_conflict_log(before, replace(a_claim(2), verdict=verdict, mode=mode)).newest()

    assert claim.dropped is dropped


def test_reason_is_the_latest_claims():
    later = a_decision(2, 9, verdict=Verdict.REPORT, reason=Reason.UNCLAIMED_CLAIM)

    assert [claim.reason for claim in a_conflict_log(a_claim(1), later).newest()] == [Reason.UNCLAIMED_CLAIM]


def test_full_log_forgets_the_host_that_was_not_heard_for_longest():
    log = a_conflict_log(*(a_claim(at, host) for at, host in enumerate((1, 2, 3, 1, 4))), capacity=3)

    assert [claim.mac for claim in log.newest()] == [a_mac(4), a_mac(1), a_mac(3)]


def test_storm_about_one_vip_pushes_out_nothing_of_another():
    elsewhere = EntryKey(2, ip_address("192.0.2.51"))
    true = replace(a_claim(0, host=200), key=elsewhere)
    log = a_conflict_log(true, *(a_claim(at, host=at) for at in range(1, 200)), capacity=10)

    found = list(log.newest())
    assert len(found) == 10
    assert [claim.key for claim in found].count(elsewhere) == 1
    assert [claim.last_ns for claim in found if claim.key != elsewhere] == list(range(199, 190, -1))


def test_conflicts_are_paged_by_the_number_of_their_report():
    log = a_conflict_log(a_claim(1, 1), a_decision(2), a_claim(3, 2), a_claim(4, 3))

    assert [claim.number for claim in log.newest()] == [4, 3, 1]
    assert [claim.number for claim in log.newest(before=3)] == [1]


def test_latest_claim_of_each_vip_on_each_link_is_found():
    elsewhere = a_claim(3, host=8, key=EntryKey(3, VIP))
    log = a_conflict_log(a_claim(1, host=1), a_claim(2, host=2), elsewhere, a_claim(4, host=1))

    assert {key: claim.mac for key, claim in log.latest_by_key().items()} == {
        EntryKey(2, VIP): a_mac(1),
        EntryKey(3, VIP): a_mac(8),
    }


def test_claim_says_who_makes_it_as_of_the_latest():
    conflicts, log = ConflictLog(), DecisionLog(100)
    router = Claimant(ClaimantKind.VRRP_ROUTER, router=51)
    conflicts.add(log.add(a_claim(1), "eth0"))
    conflicts.add(log.add(a_claim(2), "eth0"), router)

    assert [claim.claimant for claim in conflicts.newest()] == [router]


def test_reports_that_were_held_back_count_from_the_first():
    conflicts, log = ConflictLog(), DecisionLog(100)
    conflicts.add(replace(log.add(a_claim(30), "eth0"), count=3, first_ns=10))
    conflicts.add(log.add(a_claim(40), "eth0"))

    assert [(claim.first_ns, claim.last_ns, claim.count) for claim in conflicts.newest()] == [(10, 40, 4)]


def test_claim_that_was_held_back_stands_where_it_was_heard():
    """Else pages would leave out what was heard since."""
    conflicts, log = ConflictLog(), DecisionLog(100)
    held = log.add(a_claim(1, host=1), "eth0")
    conflicts.add(log.add(a_claim(2, host=2), "eth0"))
    conflicts.add(held)

    assert [claim.mac for claim in conflicts.newest()] == [a_mac(2), a_mac(1)]
    assert [claim.mac for claim in conflicts.newest(before=2)] == [a_mac(1)]
    assert conflicts.latest_by_key()[EntryKey(2, VIP)].mac == a_mac(2)


def test_vip_whose_only_claim_made_room_is_forgotten():
    claims = [a_claim(number, vip=VIP + number) for number in (1, 2, 3)]
    conflicts = a_conflict_log(*claims, capacity=2)

    assert [claim.last_ns for claim in conflicts.newest()] == [3, 2]
    assert list(conflicts._claims) == [claim.key for claim in claims[1:]]


def test_room_is_made_by_a_vip_with_the_most_claims_whatever_came_before():
    rng, conflicts, log = random.Random(1), ConflictLog(20), DecisionLog(2000)

    def known() -> dict[tuple[EntryKey, MacAddress], int]:
        return {(claim.key, claim.mac): claim.last_ns for claim in conflicts.newest()}

    for number in range(2000):
        claim = a_claim(number, host=rng.randrange(12), vip=VIP + min(rng.randrange(8), rng.randrange(8)))
        before = known()
        conflicts.add(log.add(claim, "eth0"))
        heard = before | {(claim.key, claim.sha): number}
        gone = heard.keys() - known().keys()
        claims = {key: [each for each in heard if each[0] == key] for key, _ in heard}
        assert len(gone) == max(0, len(heard) - 20)
        for each in gone:
            of_vip = claims[each[0]]
            assert len(of_vip) == max(map(len, claims.values()))
            assert heard[each] == min(heard[other] for other in of_vip)


# ---- claims that are problems ------------------------------------------------------------------------------------

NODE = Claimant(ClaimantKind.CLUSTER_NODE, "node-2")
UNSURE = {"verdict": Verdict.REPORT, "reason": Reason.UNVERIFIED_CLAIM}
OTHER_FAMILY = ip_address("2001:db8::50")


def problems(*heard: Decision | tuple[Decision, Claimant], now_ns: int = 2) -> list[str]:
    log = ConflictLog()
    for number, item in enumerate(heard):
        decision, *claimant = item if isinstance(item, tuple) else (item,)
        log.add(Report(number, "eth0", decision, 1, decision.time_ns), *claimant)
    return log.problems(now_ns)


CLAIMED = "a host that is not the owner claims 192.0.2.100: `arpguard conflicts` names that host"


def test_each_vip_that_hosts_claim_is_one_problem_in_a_lasting_order():
    claims = [a_claim(vip=vip, host=host) for vip in (OTHER_FAMILY, OTHER, VIP) for host in (8, 9)]

    assert problems(*claims) == problems(*reversed(claims))
    assert problems(*claims) == [CLAIMED.replace(str(VIP), str(vip)) for vip in (VIP, OTHER, OTHER_FAMILY)]


def test_host_that_claims_with_ever_new_macs_makes_no_new_problem():
    """Each would be a line in the log, and the end of the last one another."""
    log, found = ConflictLog(capacity=20), []
    for number in range(100):
        log.add(Report(number, "eth0", a_claim(number, host=number), 1, number))
        found.append(log.problems(number))

    assert found == [[CLAIMED]] * 100


def test_claim_that_may_be_its_owners_is_not_a_problem_unless_a_node_makes_it():
    assert problems(a_decision(**UNSURE)) == []
    assert problems((a_decision(**UNSURE), NODE)) == [CLAIMED]
    assert problems(a_claim(host=8), a_decision(**UNSURE)) == [CLAIMED]


def test_claim_is_a_problem_for_five_minutes():
    assert problems(a_claim(time_ns=7), now_ns=300 * 10**9 + 6)
    assert problems(a_claim(time_ns=7), now_ns=300 * 10**9 + 7) == []


def test_flood_of_claims_to_many_vips_makes_few_problems():
    found = problems(*(a_claim(vip=VIP + number) for number in range(99)))

    assert len(found) == 21
    assert found[-1] == "and 79 more problems"


def test_what_a_node_claimed_by_a_mac_that_was_not_known_yet_is_withdrawn():
    conflicts, log = ConflictLog(), DecisionLog(100)
    conflicts.add(log.add(a_claim(1, host=1), "eth0"))
    conflicts.add(log.add(a_claim(2, host=2), "eth0"))
    conflicts.add(log.add(a_claim(3, host=1, vip=OTHER), "eth0"), Claimant(ClaimantKind.CLUSTER_NODE, "node-2"))
    conflicts.add(log.add(a_claim(4, host=1, vip=VIP + 2), "eth0"))

    assert conflicts.has(EntryKey(2, VIP), a_mac(1))

    conflicts.withdraw({a_mac(1)})

    assert not conflicts.has(EntryKey(2, VIP), a_mac(1))
    assert not conflicts.has(EntryKey(2, VIP + 9), a_mac(1))

    assert [(claim.key.vip, claim.mac) for claim in conflicts.newest()] == [(OTHER, a_mac(1)), (VIP, a_mac(2))]
