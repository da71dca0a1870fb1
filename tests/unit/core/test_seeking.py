"""Who may vouch for a node, whom it seeks and names, and whom it would vouch for itself."""

from dataclasses import replace
from ipaddress import IPv4Network

import pytest

from arpguard.core.ownership.records import NamedVoucher
from arpguard.core.vouching.gaps import Gaps
from arpguard.core.vouching.profiles import DEFAULT, FAST, PROFILES, SLOW
from arpguard.core.vouching.ring import vouchers_for
from arpguard.core.vouching.seeking import (
    LONGEST_UNBOUND_NS,
    MANY,
    PROOF_NS,
    REVOKED_NS,
    SHUN_NS,
    TURN_NS,
    UNACCEPTED_NS,
    UNBOUND_NS,
    Seeking,
    VoucherChoice,
    VoucherPlan,
    VoucherView,
)
from arpguard.core.vouching.trials import (
    CLEAN_NS,
    MISTAKE_NS,
    MOST_NODES,
    TRIAL_VARIABLE,
    Quarantine,
    Trials,
    clean_ns,
    on_trial,
    trial_term,
)
from arpguard.core.vouching.voucher import REPORT_NS, Exchange, TermReport
from arpguard.units import NS_PER_MS, NS_PER_S

S = NS_PER_S
NOW = 1000 * S
LAN, OTHER_LAN = IPv4Network("192.0.2.0/24"), IPv4Network("198.51.100.0/24")


# ---- the ring ----


def nodes(numbers: range) -> dict[str, frozenset[IPv4Network]]:
    return {f"n{number}": frozenset({LAN}) for number in numbers}


def first_choices(ring: dict[str, frozenset[IPv4Network]]) -> dict[str, str]:
    return {name: vouchers_for(name, networks, ring)[0] for name, networks in ring.items()}


@pytest.mark.parametrize("count", [2, 3, 20])
def test_the_first_choices_lead_through_all_nodes_and_back(count):
    following = first_choices(nodes(range(count)))
    seen, node = [], "n0"
    while node not in seen:
        seen.append(node)
        node = following[node]

    assert (len(seen), node) == (count, "n0")


def test_when_a_node_leaves_only_the_one_before_it_has_another_choice():
    before, after = first_choices(nodes(range(20))), first_choices(nodes(range(1, 20)))
    assert [name for name in after if after[name] != before[name]] == [name for name in after if before[name] == "n0"]


def test_nodes_on_another_segment_are_no_choice():
    here, both, there = frozenset({LAN}), frozenset({LAN, OTHER_LAN}), frozenset({OTHER_LAN})

    assert vouchers_for("a", here, {"a": here, "b": both, "c": there}) == ["b"]
    assert vouchers_for("a", here, {"c": there}) == []


# ---- waiting longer each time ----


def test_a_wait_doubles_to_the_longest_and_is_short_again_after_a_calm():
    quarantine, now_ns, waits = Quarantine(10, 50), 100, []
    for _ in range(5):
        quarantine.begin(now_ns)
        waits.append(quarantine.until_ns - now_ns)
        now_ns = quarantine.until_ns + 9
    assert waits == [10, 20, 40, 50, 50]

    quarantine.begin(quarantine.until_ns + 50)
    assert quarantine.until_ns == now_ns - 9 + 50 + 10


# ---- profiles ----


def test_margins_hold_for_clocks_that_go_wrong_and_guests_that_stand_still():
    """V12, with chrony's fastest slew, and 12 ms from the decision to the wire."""
    spare = [profile.m_ns - profile.d_ns * (2 / 12) / (1 + 1 / 12) - 12 * NS_PER_MS for profile in PROFILES]
    assert [int(ns / NS_PER_MS) for ns in spare] == [95, 234, 357]


# ---- whom a node seeks and names ----

B, C, D = (VoucherChoice(name, f"{name}/1", f"{name}-1") for name in "bcd")
VIEW = VoucherView((B, C, D), others_bound=True)


def accepted(choice: VoucherChoice, d_ns: int = FAST.d_ns) -> VoucherChoice:
    return replace(choice, least_ns=d_ns)


def named(choice: VoucherChoice, profile=FAST) -> NamedVoucher:
    return NamedVoucher(choice.node, choice.instance, choice.epoch, "", profile.d_ns, profile.m_ns)


def test_the_first_choice_is_sought_and_named_once_it_accepts():
    seeking = Seeking(FAST)
    assert seeking.decide(VIEW, NOW) == VoucherPlan("b", next_ns=NOW + UNACCEPTED_NS)
    assert seeking.decide(replace(VIEW, choices=(C, B, D)), NOW + S).seeks == "b"

    view = replace(VIEW, choices=(accepted(B), accepted(C), D))
    assert seeking.decide(view, NOW + 60 * S) == VoucherPlan(names=named(B))


def test_with_nobody_to_choose_nobody_is_sought_or_named():
    seeking = Seeking(FAST)
    assert seeking.decide(VoucherView(()), NOW) == VoucherPlan()
    assert seeking.decide(VoucherView((), named=named(B), bound=True), NOW) == VoucherPlan()


@pytest.mark.parametrize(
    ("least", "accepts_ns", "profile"),
    [
        (FAST, FAST.d_ns, FAST),
        (SLOW, FAST.d_ns, SLOW),
        (FAST, DEFAULT.d_ns, DEFAULT),
        (DEFAULT, FAST.d_ns + 1, DEFAULT),
        (FAST, 60 * S, SLOW),
    ],
)
def test_the_profile_is_slow_enough_for_both(least, accepts_ns, profile):
    view = replace(VIEW, choices=(accepted(B, accepts_ns),))
    assert Seeking(least).decide(view, NOW).names == named(B, profile)


def test_a_voucher_stays_as_long_as_it_is_who_it_was():
    seeking = Seeking(FAST)
    view = replace(VIEW, choices=(C, B, D), named=named(B), bound=True)
    assert seeking.decide(view, NOW) == VoucherPlan(names=named(B))
    assert seeking.decide(replace(view, choices=(C, D)), NOW).names == named(B)  # its grants tell whether it lives

    again = replace(view, choices=(replace(B, instance="b/2"), C, D))
    plan = seeking.decide(again, NOW)
    assert (plan.seeks, plan.names) == ("b", None)


def bound(choice: VoucherChoice, voucher: str) -> VoucherChoice:
    return replace(choice, names=voucher, bound=True)


def a_pair(node: str, *choices: VoucherChoice) -> VoucherView:
    """A node and b name each other."""
    return VoucherView((replace(B, names=node), *choices), node, named(B), bound=True)


def test_of_two_that_name_each_other_the_last_by_name_finds_another_one():
    leaving = Seeking(FAST)
    view = a_pair("e", bound(C, "d"), bound(D, "c"))
    assert leaving.decide(view, NOW) == VoucherPlan("c", next_ns=NOW + UNACCEPTED_NS)

    unnamed = replace(view, named=None, bound=False, choices=(accepted(view.choices[0]), *view.choices[1:]))
    assert leaving.decide(unnamed, NOW + S).seeks == "c"  # and not b again, which would take it at once
    assert Seeking(FAST).decide(unnamed, NOW).seeks == "c"
    assert Seeking(FAST).decide(a_pair("a", bound(C, "d")), NOW).names == named(B)


def test_of_two_that_name_each_other_the_one_that_can_finds_another_one():
    only_a_can = a_pair("a", bound(C, "b"))
    only_b_can = a_pair("e", bound(C, "e"))
    assert Seeking(FAST).decide(only_a_can, NOW).seeks == "c"
    assert Seeking(FAST).decide(only_b_can, NOW).names == named(B)
    assert Seeking(FAST).decide(a_pair("e"), NOW).names == named(B)


def test_of_two_that_name_each_other_the_first_does_not_wait_for_the_last_in_vain():
    first, both_can = Seeking(FAST), a_pair("a", bound(C, "d"), bound(D, "c"))
    assert first.decide(both_can, NOW).names == named(B)
    assert first.decide(both_can, NOW + TURN_NS - 1).names == named(B)
    assert first.decide(both_can, NOW + TURN_NS).seeks == "c"


@pytest.mark.parametrize(
    "between",
    [
        VoucherView((B, bound(C, "d"), bound(D, "c")), "a", named(B), bound=True),
        a_pair("a"),
        replace(a_pair("a", bound(C, "d"), bound(D, "c")), named=None, bound=False),
    ],
    ids=["the last has left", "the last cannot leave", "the first has left"],
)
def test_the_wait_for_the_last_of_two_begins_anew(between):
    first, both_can = Seeking(FAST), a_pair("a", bound(C, "d"), bound(D, "c"))
    first.decide(both_can, NOW)
    first.decide(between, NOW + S)
    assert first.decide(both_can, NOW + TURN_NS).names == named(B)
    assert first.decide(both_can, NOW + 2 * TURN_NS).seeks == "c"


def test_two_that_name_each_other_stay_while_nobody_else_is_bound_to_a_third():
    assert Seeking(FAST).decide(a_pair("e", replace(C, names="d"), D), NOW).names == named(B)
    assert Seeking(FAST).decide(a_pair("e", C, bound(D, "c")), NOW).seeks != ""


def test_two_that_name_each_other_stay_while_one_could_not_be_named_soon():
    shunning = Seeking(FAST)
    shunning.decide(replace(VIEW, node="e", named=named(C), bound=True), NOW)
    shunning.decide(replace(VIEW, node="e", unbinds=1), NOW)
    view = replace(a_pair("e", bound(C, "b")), unbinds=1)
    assert shunning.decide(view, NOW + SHUN_NS - 1).names == named(B)
    assert shunning.decide(view, NOW + SHUN_NS).seeks == "c"


def test_one_that_failed_may_be_sought_again_once_its_agent_has_started_again():
    shunning = Seeking(FAST)
    shunning.decide(replace(VIEW, node="e", named=named(C), bound=True), NOW)
    shunning.decide(replace(VIEW, node="e", unbinds=1), NOW)
    view = replace(a_pair("e", replace(bound(C, "b"), instance="c/2")), unbinds=1)
    assert shunning.decide(view, NOW + UNACCEPTED_NS).seeks == "c"


def test_two_that_name_each_other_stay_while_one_waits_after_a_mistake():
    pausing = Seeking(FAST)
    view = replace(a_pair("e", bound(C, "b")), revocations=1)
    pausing.decide(view, NOW)
    assert pausing.decide(view, NOW + REVOKED_NS - 1).names == named(B)
    assert pausing.decide(view, NOW + REVOKED_NS).seeks == "c"


@pytest.mark.parametrize("clean_ns", [CLEAN_NS, CLEAN_NS // 20])
def test_one_that_does_not_accept_for_long_is_not_sought_again_soon(clean_ns):
    seeking = Seeking(FAST, clean_ns)
    seeking.decide(VIEW, NOW)
    now_ns = NOW + UNACCEPTED_NS

    assert seeking.decide(VIEW, now_ns).seeks == "c"
    assert seeking.decide(VIEW, now_ns + UNACCEPTED_NS).seeks == "d"
    assert seeking.decide(VIEW, now_ns + 2 * UNACCEPTED_NS).seeks == "b"  # of those that failed, the first


def unbound(seeking: Seeking, times: int, now_ns: int) -> VoucherPlan:
    """It is bound to b, and un-binds, so many times."""
    view = replace(VIEW, choices=(accepted(B),))
    for number in range(seeking._unbinds, seeking._unbinds + times):
        seeking.decide(replace(view, named=named(B), bound=True, unbinds=number), now_ns)
        plan = seeking.decide(replace(view, unbinds=number + 1), now_ns)
    return plan


def test_after_an_un_bind_another_one_comes_first():
    seeking = Seeking(FAST)
    seeking.decide(replace(VIEW, named=named(B), bound=True), NOW)

    view = replace(VIEW, unbinds=1)
    assert seeking.decide(view, NOW + S).seeks == "c"
    assert seeking.decide(replace(view, choices=(B,)), NOW + S).seeks == "b"  # there is none besides


def test_after_many_un_binds_there_is_no_voucher_for_a_while_and_ever_longer():
    seeking, now_ns = Seeking(FAST), NOW
    assert unbound(seeking, MANY - 1, now_ns).names == named(B)

    waits = []
    for times in (1, MANY, MANY, MANY, MANY, MANY, MANY, MANY):
        plan = unbound(seeking, times, now_ns)
        assert (plan.seeks, plan.names) == ("", None)
        waits.append(plan.next_ns - now_ns)
        now_ns = plan.next_ns

    assert waits == [min(UNBOUND_NS << number, LONGEST_UNBOUND_NS) for number in range(8)]
    assert seeking.decide(replace(VIEW, unbinds=seeking._unbinds), now_ns).seeks != ""


def test_un_binds_that_are_far_apart_are_not_many():
    seeking, now_ns = Seeking(FAST), NOW
    for _ in range(2 * MANY):
        assert unbound(seeking, 1, now_ns).names == named(B)
        now_ns += SHUN_NS


def test_a_node_that_was_revoked_by_mistake_has_no_voucher_for_long():
    seeking = Seeking(FAST)
    seeking.decide(replace(VIEW, named=named(B), bound=True), NOW)

    view = replace(VIEW, revocations=1)
    assert seeking.decide(view, NOW) == VoucherPlan(next_ns=NOW + REVOKED_NS)
    assert seeking.decide(view, NOW + REVOKED_NS).seeks == "b"


def test_in_the_lab_waits_are_shorter_by_as_much_as_trials():
    seeking = Seeking(FAST, CLEAN_NS // 20)
    seeking.decide(replace(VIEW, named=named(B), bound=True), NOW)
    view = replace(VIEW, revocations=1)
    assert seeking.decide(view, NOW) == VoucherPlan(next_ns=NOW + REVOKED_NS // 20)

    shunning = Seeking(FAST, CLEAN_NS // 20)
    unbound(shunning, 1, NOW)
    pair = replace(
        a_pair("e", bound(C, "b")), named=named(C), choices=(bound(B, "c"), replace(C, names="e")), unbinds=1
    )
    assert shunning.decide(pair, NOW + SHUN_NS // 20 - 1).names == named(C)
    assert shunning.decide(pair, NOW + SHUN_NS // 20).seeks == "b"

    trials = Trials(CLEAN_NS // 20)
    trials.revoked("b", NOW - 10 * S, NOW - 9 * S)
    assert trials.judge({"b": report()}, NOW + 61 * S).accepts == (("b", FAST.d_ns),)


def isolated(choices: tuple[VoucherChoice, ...], **changes) -> bool:
    """After all of them failed, one after the other."""
    seeking, now_ns = Seeking(FAST), NOW
    view = replace(VIEW, choices=choices, **changes)
    for _ in choices:
        seeking.decide(view, now_ns)
        now_ns += UNACCEPTED_NS
    plan = seeking.decide(view, now_ns)
    assert not seeking.decide(replace(view, choices=(accepted(choices[0]),)), now_ns).isolated
    return plan.isolated


def test_a_node_whose_vouchers_all_fail_while_others_have_some_is_isolated():
    assert isolated((B, C, D))
    assert isolated((B, C))
    assert not isolated((B,))
    assert not isolated((B, C, D), others_bound=False)


def test_a_node_that_is_bound_is_not_isolated():
    seeking, now_ns = Seeking(FAST), NOW
    for _ in range(2):
        seeking.decide(replace(VIEW, choices=(B, C)), now_ns)
        now_ns += UNACCEPTED_NS
    assert seeking.decide(replace(VIEW, choices=(B, C)), now_ns).isolated

    bound = replace(VIEW, choices=(B, C), named=named(B), bound=True)
    assert not seeking.decide(bound, now_ns).isolated


def test_a_node_that_waits_may_be_isolated():
    seeking = Seeking(FAST)
    view = replace(VIEW, choices=(B, C))
    seeking.decide(view, NOW)
    seeking.decide(view, NOW + UNACCEPTED_NS)
    plan = seeking.decide(replace(view, revocations=1), NOW + 2 * UNACCEPTED_NS)
    assert plan.isolated
    assert plan.seeks == ""


# ---- doubts ----


def unheard(**changes) -> tuple[Seeking, VoucherView]:
    """A node that un-bound, whose voucher had pinged it and not heard it, while other nodes hear each other."""
    seeking = Seeking(FAST)
    view = replace(VIEW, choices=(B, C), others_hear=True)
    assert not seeking.decide(replace(view, named=named(B), bound=True), NOW).doubted

    view = replace(view, **{"unbinds": 1, "unheard": True} | changes)
    plan = seeking.decide(view, NOW)
    assert (plan.doubted, plan.names) == (False, None)
    return seeking, view


def test_a_node_that_its_voucher_did_not_hear_is_doubted_unless_a_ping_of_its_own_comes_back_soon():
    seeking, view = unheard()
    assert seeking.decide(view, NOW).next_ns == NOW + PROOF_NS
    assert not seeking.decide(view, NOW + PROOF_NS - 1).doubted
    plan = seeking.decide(view, NOW + PROOF_NS)
    assert (plan.doubted, plan.seeks, plan.next_ns) == (True, "c", NOW + PROOF_NS + REPORT_NS)

    seeking, view = unheard()
    assert not seeking.decide(replace(view, heard_ns=NOW + 1), NOW + PROOF_NS).doubted
    assert not seeking.decide(view, NOW + 2 * PROOF_NS).doubted


@pytest.mark.parametrize(
    "shown", [{"heard_ns": NOW + S}, {"choices": (B, accepted(C))}, {"named": named(C), "bound": True}], ids=str
)
def test_a_node_is_doubted_until_another_one_shows_that_it_hears_it(shown):
    seeking, view = unheard()
    assert seeking.decide(replace(view, heard_ns=NOW), NOW + PROOF_NS).doubted

    assert not seeking.decide(replace(view, **shown), NOW + 10 * S).doubted
    assert not seeking.decide(view, NOW + 11 * S).doubted


@pytest.mark.parametrize(
    "changes", [{"unheard": False}, {"others_hear": False}, {"unbinds": 0, "revocations": 1}], ids=str
)
def test_a_node_is_not_doubted_without_evidence_against_it(changes):
    seeking, view = unheard(**changes)

    assert not seeking.decide(view, NOW + PROOF_NS).doubted
    assert not seeking.decide(replace(view, others_hear=True), NOW + 2 * PROOF_NS).doubted


def test_a_doubted_node_is_tested_even_while_it_may_name_no_voucher():
    seeking, view = unheard(revocations=1)
    assert seeking.decide(view, NOW + PROOF_NS).seeks == "c"

    tested = replace(view, choices=(B, accepted(C)))
    assert seeking.decide(tested, NOW + 10 * S) == VoucherPlan(next_ns=NOW + REVOKED_NS)
    assert seeking.decide(tested, NOW + 11 * S) == VoucherPlan(next_ns=NOW + REVOKED_NS)


def test_a_node_that_is_isolated_may_never_have_been_heard_and_is_not_doubted():
    seeking, view = Seeking(FAST), replace(VIEW, choices=(B, C), others_hear=True)
    plans = [seeking.decide(view, NOW + count * UNACCEPTED_NS) for count in range(3)]

    assert [(plan.isolated, plan.doubted) for plan in plans] == [(False, False), (False, False), (True, False)]


# ---- trials ----


def report(pongs_s: float = 61, longest_ms: float = 60, rate: float = 1.0, boot_ns: int = 0) -> TermReport:
    first, last = NOW, NOW + int(pongs_s * S)
    exchanges = (
        Exchange(at, boot_ns + int(at * rate), at + NS_PER_MS) for at in (first, last)
    )  # the stamp is of when the ping was sent
    gaps = Gaps().with_gap(int(longest_ms * NS_PER_MS))
    return TermReport(1, False, None, 100, 100, gaps, *exchanges)


def accepts(trial: TermReport, now_ns: int = NOW + 61 * S) -> tuple:
    verdict = Trials().judge({"b": trial}, now_ns)
    return verdict.accepts, verdict.again


@pytest.mark.parametrize(("longest_ms", "profile"), [(200, FAST), (201, DEFAULT), (300, DEFAULT), (450, SLOW)])
def test_a_minute_without_long_gaps_is_accepted_with_what_the_gaps_allow(longest_ms, profile):
    assert accepts(report(longest_ms=longest_ms)) == ((("b", profile.d_ns),), ())


def test_a_trial_goes_on_until_it_was_a_minute_and_while_pongs_come():
    assert accepts(report(pongs_s=59.9)) == ((), ())
    assert accepts(report(), NOW + 64 * S) == ((), ())
    assert accepts(replace(report(), first=None, last=None)) == ((), ())


@pytest.mark.parametrize("age_ms", [0, 300, 1000, 1900])
def test_a_node_stays_accepted_from_one_report_to_the_next(age_ms):
    assert accepts(report(), NOW + 61 * S + age_ms * NS_PER_MS) == ((("b", FAST.d_ns),), ())


def test_a_trial_with_a_long_gap_or_another_rate_begins_again():
    assert accepts(report(longest_ms=451)) == ((), ("b",))
    assert accepts(report(rate=1.002)) == ((), ("b",))
    assert accepts(report(rate=1.0005)) == ((("b", FAST.d_ns),), ())


def test_who_was_revoked_and_has_not_booted_since_waits():
    trials = Trials()
    trials.revoked("b", NOW - 10 * S, NOW - 9 * S)
    now_ns, again = NOW + 61 * S, NOW - 9 * S + MISTAKE_NS

    assert trials.judge({"b": report()}, now_ns).accepts == ()
    later = report(pongs_s=(again - NOW) / S)
    assert trials.judge({"b": later}, again).accepts == (("b", FAST.d_ns),)

    trials.revoked("b", again, again)
    assert trials.judge({"b": report(pongs_s=(again - NOW) / S + MISTAKE_NS / S)}, again + MISTAKE_NS).accepts == ()


def test_who_has_booted_since_it_was_revoked_was_dead():
    trials = Trials()
    trials.revoked("b", NOW - 10 * S, NOW - 9 * S)
    booted = report(boot_ns=-NOW + S)

    assert trials.judge({"b": booted}, NOW + 61 * S).accepts == (("b", FAST.d_ns),)
    assert trials.judge({"b": report()}, NOW + 61 * S).accepts == (("b", FAST.d_ns),)


@pytest.mark.parametrize(("text", "length_ns"), [("", CLEAN_NS), ("1500", 1500 * NS_PER_MS), ("soon", CLEAN_NS)])
def test_a_trial_lasts_a_minute_unless_the_lab_says_another_length(text, length_ns):
    assert clean_ns({TRIAL_VARIABLE: text}) == length_ns


def test_both_ends_have_the_same_term_for_a_trial_and_others_have_another():
    names = ("a", "a-1", "b", "b/1", "b-1")
    terms = [trial_term(*names)]
    terms += [trial_term(*names[:place], "x", *names[place + 1 :]) for place in range(5)]

    assert trial_term(*names) == terms[0]
    assert len({term.uuid for term in terms}) == 6
    assert (terms[0].node, terms[0].voucher, terms[0].instance) == ("a", "b", "b/1")


def test_a_voucher_tries_no_more_nodes_than_it_can_vouch_for():
    seekers = [f"n{number}" for number in range(20)]

    assert len(on_trial(seekers, [])) == MOST_NODES
    assert on_trial(reversed(seekers), ["x", "y"]) == on_trial(seekers, [])[: MOST_NODES - 2]
    assert on_trial(seekers, seekers) == []
    assert on_trial(["n1"], []) == ["n1"]
    assert CLEAN_NS == 60 * S
