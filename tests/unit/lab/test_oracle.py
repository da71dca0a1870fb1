"""What the lab calls wrong: each kind on its own, and none where all is right."""

from ipaddress import IPv4Address, ip_address

import pytest

from arpguard.addresses import MacAddress
from arpguard.units import NS_PER_MS
from arpguard_lab.capture import Said
from arpguard_lab.oracle import MIN_GAP_NS, LeaseWrite, Ledger, Oracle, Spread

VIP, OTHER = IPv4Address("198.51.100.50"), IPv4Address("198.51.100.51")
A, B = MacAddress.parse("02:00:00:00:00:01"), MacAddress.parse("02:00:00:00:00:02")
NAMES = {A: "node-1", B: "node-2"}
MACS = {"node-1": A, "node-2": B}


def said(at_ms: float, mac: MacAddress, request: int, vip: IPv4Address = VIP) -> Said:
    return Said(round(at_ms * NS_PER_MS), vip, mac, "port1", IPv4Address("10.0.0.0") + request)


def announced(at_ms: float, mac: MacAddress) -> Said:
    return Said(round(at_ms * NS_PER_MS), VIP, mac, "port1", VIP)


def judged(*heard: Said) -> Oracle:
    oracle = Oracle(NAMES)
    oracle.hear(heard)
    return oracle


def kinds(oracle: Oracle) -> list[str]:
    return [finding.kind for finding in oracle.findings]


def test_one_node_may_answer_as_often_as_it_likes():
    oracle = judged(*(said(number, A, number) for number in range(100)), announced(100, A), said(100, A, 99))
    assert (kinds(oracle), oracle.handovers) == ([], [])
    assert oracle.answers == 102


def test_a_request_that_two_answer_is_found_even_if_one_of_them_is_slow():
    oracle = judged(said(0, A, 1), said(50, B, 1))
    assert kinds(oracle) == ["doubled"]
    assert str(oracle.findings[0]) == "doubled: 198.51.100.50: node-1 and node-2 answered the same request of 10.0.0.1"


@pytest.mark.parametrize(("gap_ms", "found"), [(0, ["overlap"]), (9.9, ["overlap"]), (10, []), (2000, [])])
def test_whoever_follows_waits_until_the_other_has_drained(gap_ms, found):
    oracle = judged(said(0, A, 1), said(gap_ms, B, 2))
    assert kinds(oracle) == found
    assert [each.gap_ns for each in oracle.handovers] == ([] if found else [gap_ms * NS_PER_MS])


def test_two_that_take_turns_are_found_at_every_turn():
    oracle = judged(*(said(number, (A, B)[number % 2], number) for number in range(10)))
    assert kinds(oracle) == ["overlap"] * 9


def test_an_announcement_of_the_old_owner_is_found():
    oracle = judged(said(0, A, 1), said(20, B, 2), announced(25, A), said(26, B, 3))
    assert kinds(oracle) == ["overlap", "overlap"]
    assert "node-1 announced 5.00 ms after node-2" in str(oracle.findings[0])


@pytest.mark.parametrize("asker", ["0.0.0.0", "198.51.100.100", "fe80::64"], ids=["probe", "host", "link-local"])
def test_two_questions_of_one_that_asks_again_are_not_one_request(asker):
    by = ip_address(asker)
    first, second = (Said(at_ms * NS_PER_MS, VIP, mac, "port1", by) for at_ms, mac in ((0, A), (50, B)))
    assert kinds(judged(first, second)) == []


def test_vips_are_judged_each_for_itself():
    assert kinds(judged(said(0, A, 1), said(1, B, 2, OTHER), said(2, A, 3))) == []


# ---- the journal -------------------------------------------------------------------------------------------------


def claim(at_ms: float, holder: str, epoch: str) -> LeaseWrite:
    return LeaseWrite(round(at_ms * NS_PER_MS), vip=VIP, holder=holder, epoch=epoch)


def beat(at_ms: float, node: str, epoch: str) -> LeaseWrite:
    return LeaseWrite(round(at_ms * NS_PER_MS), node=node, epoch=epoch)


HISTORY = (
    beat(0, "node-1", "e1"),
    beat(0, "node-2", "e2"),
    claim(10, "node-1", "e1"),
    beat(100, "node-1", "x"),
    claim(110, "node-2", "e2"),
    claim(200, "", ""),
)


@pytest.mark.parametrize(
    ("at_ms", "mac", "text"),
    [
        (5, A, "node-1 answered while the claim named no node"),
        (50, A, None),
        (50, B, "node-2 answered while the claim named node-1"),
        (105, A, "node-1 answered while the claim named node-1, and was void"),
        (115, A, "node-1 answered while the claim named node-2"),
        (115, B, None),
        (201, B, "node-2 answered while the claim named no node"),
    ],
)
def test_an_answer_needs_a_valid_claim_at_its_time(at_ms, mac, text):
    ledger = Ledger(MACS)
    ledger.write(HISTORY)
    found = ledger.judge([said(at_ms, mac, 1)])
    assert [finding.text for finding in found] == ([text] if text else [])


MADE_ANEW = (
    LeaseWrite(0, node="node-1", epoch="e0", uid="u1", lease_ns=3000 * NS_PER_MS),
    LeaseWrite(1, node="node-1", epoch="e1", uid="u1", lease_ns=9000 * NS_PER_MS),
    LeaseWrite(2, vip=VIP, holder="node-1", epoch="e1", uid="u1"),
    LeaseWrite(100 * NS_PER_MS, node="node-1", epoch="x", uid="u2", lease_ns=9000 * NS_PER_MS),
    LeaseWrite(5000 * NS_PER_MS, node="node-1", epoch="y", uid="u2", lease_ns=3000 * NS_PER_MS),
)


@pytest.mark.parametrize(("at_ms", "found"), [(50, 0), (101, 0), (5001, 0), (9099, 0), (9100, 1)])
def test_a_claim_outlives_its_heartbeat_for_as_long_as_the_next_one_publishes_at_first(at_ms, found):
    ledger = Ledger(MACS)
    ledger.write(MADE_ANEW)
    assert len(ledger.judge([said(at_ms, A, 1)])) == found


@pytest.mark.parametrize(
    ("epoch", "uid"), [("e0", "u1"), ("e1", ""), ("e1", "u2"), ("x", "u1")], ids=["over", "no uid", "other uid", "new"]
)
def test_a_heartbeat_that_is_made_anew_revives_no_claim(epoch, uid):
    ledger = Ledger(MACS)
    ledger.write([*MADE_ANEW, LeaseWrite(6000 * NS_PER_MS, vip=VIP, holder="node-1", epoch=epoch, uid=uid)])
    assert [finding.kind for finding in ledger.judge([said(6001, A, 1)])] == ["unbacked"]


def test_renewals_take_no_room():
    ledger = Ledger(MACS)
    ledger.write([*HISTORY, *(beat(300 + number, "node-2", "e2") for number in range(1000))])
    assert [len(times) for times, _ in ledger._epochs.values()] == [2, 1]
    assert len(ledger.judge([said(1200, B, 1)])) == 1


def test_a_vip_without_a_claim_may_be_skipped():
    assert Ledger(MACS).judge([said(0, A, 1)], frozenset({VIP})) == []
    assert len(Ledger(MACS).judge([said(0, A, 1)])) == 1


def test_lengths_are_summed_up():
    assert Spread.of([]) == Spread(0, None, None)
    assert Spread.of([NS_PER_MS, 3 * NS_PER_MS, 40 * NS_PER_MS]) == Spread(3, 3, 40)
    assert MIN_GAP_NS == 10 * NS_PER_MS
