"""From traces alone the checker names every broken rule of the claim protocol, and it accepts correct runs."""

from contextlib import suppress
from functools import partial

import pytest

from properties.broken_rules import RULES
from properties.broken_voucher_rules import VOUCHER_RULES
from properties.vouched_rules import OTHER_RULES
from properties.vouched_rules import RULES as VOUCHED_RULES
from properties.vouched_walks import VouchedWalk
from properties.walks import RandomWalk, TroubledWalk
from support.protocol import one_voucher
from support.protocol.simulation import Simulation, recording
from support.protocol.stories import SCENARIOS, a_pair
from support.protocol.trace_rules import AFTER, BEFORE, broken_rules
from support.protocol.vouched_stories import STORIES, agent_is_killed

ONE = "at most one node answers"
ITS_OWN = "who answers has the claim"
EPOCH_ENDS = "with its epoch a node's right to answer ends"
ONCE = "an epoch is used once"
PROBE = "a node probes before it takes a free claim"
FENCE = "1 Renew: the fence counts from when a renewal was sent that succeeded"
CONFIRMED_FENCE = "1 Renew: only success moves the fence"
READS = "1 Renew: after anything but success it reads"
FREE = "2 Claim: only what is free"
ENTRY = "2 Claim: an entry after a CAS and a renewal"
CONFIRMED_CLAIM = "2 Claim: only in a confirmed epoch"
SILENT = "3 Revoke: only what was silent for its lease, or V7, V17"
MISSING = "3 Revoke: a missing heartbeat comes after the longest lease"
SETTLES = "3 Revoke: a new heartbeat voids nothing for a lease"
VERSION = "3 Revoke: exactly the version that was seen"
CLAIM_VERSION = "2 Claim: exactly the version that was seen"
HAND_OVER = "4 Hand over: the kernel first"
CUT = "6 Part: the fence is cut before a shorter lease is sent"
TERM_ONCE = "V1 Name: a term is named once"
TERM_NAMED = "V2 Tell the kernel afterwards"
UN_BIND = "V8 Un-bind, V9 Begin again"
BIND = "V3 Bind: by grants, and no further than they allow"
NEW_STAMP = "V5 Grant: for its own ping, and a newer stamp"
DECIDE = "V6 Decide: bound, granted, and d has passed"
NOT_AFTERWARDS = "V6 Decide: nothing is granted afterwards"
STAYS_BOUND = "V10 Restart: what is bound stays bound"
OWN_TERMS = "V10 Restart: only in terms of its own instance"
SAYS_BOUND = "V15 Long lease: it says bound only when it is"
RIGHT = "V16 Grant within one's own right"
NOTHING_NEW = "quiet: a renewal that says nothing new"

TOLD = {
    "fence counted from the response": FENCE,
    "no margin": FENCE,
    "half the margin": FENCE,
    "revoked too early": SILENT,
    "revoked a little too early": SILENT,
    "published lease ignored": SILENT,
    "unknown renewal counted": READS,
    "late taken for void without a revocation": FREE,
    "silence in an outage held against others": SILENT,
    "lease of a deleted heartbeat forgotten": MISSING,
    "void concluded from a stale heartbeat": FREE,
    "void by an object that was made just now": SETTLES,
    "release of an epoch that is over taken for a hand-over": PROBE,
    "missing heartbeat taken for void": FREE,
    "same epoch kept after a revocation": ONCE,
    "answered before a renewal confirms": ENTRY,
    "answered after a renewal that was sent before": ENTRY,
    "answered on the strength of a read": ENTRY,
    "released before it is cleared": HAND_OVER,
    "released before it is drained": HAND_OVER,
    "a shorter lease published under a longer fence": CUT,
    "a cut fence extended again": FENCE,
    "older heartbeat taken for this node's last one": ONE,
}
VOUCHED_TOLD = {
    "v-unbinds-early": UN_BIND,
    "v-unbinds-unsure": UN_BIND,
    "v-term-first": UN_BIND,
    "v-parts-swapped": UN_BIND,
    "v-binds-early": TERM_NAMED,
    "v-term-again": TERM_ONCE,
    "v-no-reread": SILENT,
    "v-no-version": EPOCH_ENDS,
    "v-old-revokes": SILENT,
    "v-flat-margin": FENCE,
    "v-no-cut": CUT,
    "v-parts-uncut": CUT,
    "v-short-wait": SILENT,
    "v-chain-unbound": SILENT,
    "v-chain-early": SILENT,
    "v-chain-no-version": VERSION,
    "v-settles-early": SETTLES,
    "v-quiet-lease-shown": SILENT,
    "v-quiet-decided-unread": SILENT,
    "v-quiet-chain-unread": SILENT,
    "settles when a bound node would be silent": ITS_OWN,
    "a claim that names no heartbeat is void by any": SETTLES,
    "revoked by one that has not renewed since": SILENT,
    "silence in an outage held against others": SILENT,
    "v-no-bound": DECIDE,
    "v-early": DECIDE,
    "v-count-from-ping": DECIDE,
    "v-grants-on": NOT_AFTERWARDS,
    "v-late-fence": BIND,
    "v-restart-unbinds": STAYS_BOUND,
    "v-bound-for-all": DECIDE,
    "v-other-term": BIND,
    "v-old-grants": OWN_TERMS,
    "v-thin-margin": BIND,
    "v-no-margin": BIND,
    "v-says-early": SAYS_BOUND,
    "v-chain-grants-on": RIGHT,
    "v-mutual-no-right": RIGHT,
    "v-mutual-api-right": RIGHT,
    "v-ring-no-right": RIGHT,
    "v-mutual-looks-early": RIGHT,
    "v-mutual-regrant": RIGHT,
    "v-quiet-no-version": VERSION,
    "a renewal that says something new is not shown": NOTHING_NEW,
}
# No line of a trace shows that these are broken, and why.
KERNEL = "the kernel does not what it was told: a capture shows that"
ANOTHER = "another program wrote the map: an agent that finds it wiped cannot tell who did that"
PROGRESS = "no promise depends on it: VIPs are silent longer, or move"
UNTOLD = {
    "v-no-fence": KERNEL,
    "v-late-write": ANOTHER,
    "v-keeps-term": PROGRESS,
    "v-never-unbinds": PROGRESS,
    "v-quiet-unswept": PROGRESS,
    "v-quiet-swept-once": PROGRESS,
    "V19: rests on a voucher that cannot revoke": PROGRESS,
    "V19: leaves it for what was silent in an outage": PROGRESS,
    "a bound node is silent because its renewals are not shown": PROGRESS,
    "V19: leaves a voucher because its renewals are not shown": PROGRESS,
    "nobody makes a heartbeat again that was deleted unseen": PROGRESS,
}


# Of the rules of one voucher by itself, which has no API server to judge it by.
VOUCHER_TOLD = {
    "V5: d counted from the ping": DECIDE,
    "V5: the time noted before the pong came": DECIDE,
    "V5: a pong of another adoption counts": NEW_STAMP,
    "V5: a pong to no ping counts": NEW_STAMP,
    "V5: a stamp counts twice": NEW_STAMP,
    "V5: an older stamp counts": NEW_STAMP,
    "V6: one tick before d": DECIDE,
    "V6: d without the margin": DECIDE,
    "V6: without bound": DECIDE,
    "V6: without a grant": DECIDE,
    "V6: grants after the decision": DECIDE,
    "V6: a term taken up again after the decision": OWN_TERMS,
    "V16: grants beyond this node's right": RIGHT,
    "V16: grants without knowing this node's right": RIGHT,
    "V16: grants in an epoch that the term does not name": RIGHT,
    "V16: a term taken up again in a new epoch": NOT_AFTERWARDS,
    "a trial grants": NOT_AFTERWARDS,
}
VOUCHER_UNTOLD = {
    "V6: without having emptied the socket": "what waits in a socket is in no trace",
    "V10: a term of another instance": "only the API server shows which instance a term names: v-old-grants",
    "V14: no patience": PROGRESS,
    "V14: a dead link held against the node": PROGRESS,
    "V14: waits for ever where nobody else sends": PROGRESS,
    "V14: what was heard before": PROGRESS,
}


def found_in(run, *, ended_by=AssertionError):
    """What the checker finds in the traces of all clusters that a run makes, even if such an error ends the run."""
    with recording() as recorded, suppress(ended_by):
        run()
    assert recorded, "no cluster"
    return [each for trace in recorded for each in broken_rules(trace.lines, trace.rates)]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_the_trace_tells_a_broken_rule(rule, monkeypatch):
    rule.apply(monkeypatch)

    assert TOLD[rule.name] in {each.rule for each in found_in(rule.scenario)}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_no_capture_is_needed_for_it(rule, monkeypatch):
    """The same, while the simulation looks at nothing that happens."""
    for check in ("check", "check_right", "check_bound"):
        monkeypatch.setattr(Simulation, check, lambda *_: None)
    rule.apply(monkeypatch)

    assert TOLD[rule.name] in {each.rule for each in found_in(rule.scenario)}


@pytest.mark.parametrize(
    "rule", [each for each in (*VOUCHED_RULES, *OTHER_RULES) if each.name in VOUCHED_TOLD], ids=lambda rule: rule.name
)
def test_the_trace_tells_a_broken_rule_of_vouching(rule, monkeypatch):
    rule.apply(monkeypatch)

    assert VOUCHED_TOLD[rule.name] in {each.rule for each in found_in(rule.story)}


@pytest.mark.parametrize("rule", VOUCHER_RULES, ids=lambda rule: rule.name)
def test_the_trace_of_one_voucher_tells_a_broken_rule_and_nothing_else(rule, monkeypatch):
    lines = []
    monkeypatch.setattr(one_voucher, "Voucher", partial(one_voucher.ToldVoucher, lines=lines))
    rule.scenario()
    assert rules_of(lines) == []

    rule.apply(monkeypatch)
    lines.clear()
    with suppress(AssertionError, ValueError):
        rule.scenario()
    told = {VOUCHER_TOLD[rule.name]} if rule.name in VOUCHER_TOLD else set()
    assert told <= set(rules_of(lines))


def test_every_broken_rule_is_in_a_table():
    assert TOLD.keys() == {rule.name for rule in RULES}
    assert {*VOUCHED_TOLD, *UNTOLD} == {rule.name for rule in (*VOUCHED_RULES, *OTHER_RULES)}
    assert not VOUCHED_TOLD.keys() & UNTOLD.keys()
    assert {*VOUCHER_TOLD, *VOUCHER_UNTOLD} == {rule.name for rule in VOUCHER_RULES}


@pytest.mark.parametrize("story", [*SCENARIOS, *STORIES], ids=lambda story: story.__name__)
def test_a_story_goes_well_and_breaks_no_rule(story):
    assert found_in(story, ended_by=()) == []


@pytest.mark.parametrize("walk", [RandomWalk, TroubledWalk])
@pytest.mark.parametrize("seed", range(2))
def test_a_random_walk_breaks_no_rule(seed, walk):
    def run():
        walked = walk(seed, (1.0, 1.18, 0.82))
        for _ in range(1500):
            walked.step()
        walked.sim.settle()

    assert found_in(run) == []


@pytest.mark.parametrize("seed", range(6))
def test_a_random_walk_with_vouching_breaks_no_rule(seed):
    def run():
        walked = VouchedWalk(seed)
        for _ in range(60):
            walked.step()

    assert found_in(run) == []


# ---- lines that are changed afterwards: the rules of which no broken code reminds ----


def a_trace():
    """Both nodes had the VIP, one after the other."""
    with recording() as recorded:
        sim, owner, _ = a_pair()
        owner.wish(())
        sim.run_quickly(10)
    return recorded[0].lines


def rules_of(lines):
    return [each.rule for each in broken_rules(lines)]


def first(lines, event, node):
    return next(number for number, line in enumerate(lines) if line["event"] == event and line["node"] == node)


def test_two_nodes_that_answer_are_named_with_the_lines():
    lines = a_trace()
    put_in = first(lines, "entry put in", "n0")
    taken_out = first(lines, "entry taken out", "n0")
    del lines[taken_out]

    found = [each for each in broken_rules(lines) if each.rule == ONE]
    assert [(each.node, each.vip) for each in found[:1]] == [("n1", "192.0.2.1")]
    assert put_in + 1 in found[0].lines
    assert str(found[0]).startswith(f"{ONE}: n1, 192.0.2.1: n0 answers, too (lines {put_in + 1}, ")


def test_a_claim_in_an_epoch_that_no_renewal_confirmed():
    lines = a_trace()
    lines[first(lines, "claim sent", "n0")]["effect"]["epoch"] = "another"

    assert CONFIRMED_CLAIM in rules_of(lines)


def test_a_fence_in_an_epoch_that_no_renewal_confirmed():
    lines = a_trace()
    fence = next(line for line in lines if line["event"] == "fence set" and line["effect"]["fence_ns"])
    fence["effect"]["epoch"] = "another"

    assert CONFIRMED_FENCE in rules_of(lines)


def test_a_cas_that_replaced_another_version():
    lines = a_trace()
    answered = [line for line in lines if line["event"] == "claim answered"][-1]
    answered["sent"]["version"] = "uid-9/9"

    assert CLAIM_VERSION in rules_of(lines)


def test_a_grant_by_a_stamp_that_came_before():
    with recording() as recorded:
        agent_is_killed()
    lines = recorded[0].lines
    one, other = [line for line in lines if line["event"] == "granted"][:2]
    other["number"], other["stamp_ns"] = one["number"], one["stamp_ns"]

    assert NEW_STAMP in rules_of(lines)


def test_a_renewal_counts_by_the_margin_that_the_agent_had_when_it_sent_it():
    lines = a_trace()
    sent = first(lines, "heartbeat sent", "n0")
    answered = next(n for n, line in enumerate(lines) if n > sent and line["event"] == "heartbeat answered")
    set_before = next(line for line in lines if line["event"] == "started" and line["node"] == "n0")
    before = {**lines[sent], "event": "times set", "times": set_before["times"]}
    thick = {**before, "times": {**before["times"], "margin_ns": before["times"]["duration_ns"] * 2 // 3}}

    lines[answered + 1 : answered + 1] = [before]
    lines[sent + 1 : sent + 1] = [thick]
    assert rules_of(lines) == []
    lines[sent:sent] = [thick]
    assert FENCE in rules_of(lines), "a renewal that is sent after the change"


def a_removal():
    """A claim is deleted by hand, and its owner lets it go."""
    with recording() as recorded:
        sim, _, _ = a_pair()
        sim.api.delete_claim(sim.vips[0])
        sim.run_quickly(5000)
    lines = recorded[0].lines
    return lines, next(line for line in lines if line["event"] == "claim answered" and line["sent"]["let_go"])


def test_a_claim_that_is_let_go_may_come_back_in_the_version_that_was_removed():
    lines, answered = a_removal()
    answered["version"] = answered["sent"]["version"]

    assert rules_of(lines) == []


def test_lines_of_an_agent_whose_beginning_is_missing_are_left_out():
    lines = a_trace()

    assert rules_of(lines[first(lines, "started", "n0") + 1 :]) == []


def test_what_an_agent_without_a_trace_granted_is_not_missed():
    """An agent of that node that ran before it has one."""
    with recording() as recorded:
        agent_is_killed()
    lines = recorded[0].lines
    granted = next(line for line in lines if line["event"] == "granted")
    started = next(line for line in lines if line["event"] == "started" and line["node"] == granted["node"])
    others = [line for line in lines if line.get("instance") != granted["instance"]]
    assert any(line["event"] == "term looked at" and line["seen"]["bound"] for line in others)

    assert rules_of([{**started, "instance": "before"}, *others]) == []


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_journal_that_ends_early_breaks_no_rule(scenario):
    """It is read now and then, and agents write on after the last time."""
    with recording() as recorded:
        scenario()
    lines = recorded[0].lines
    stored = [number for number, line in enumerate(lines) if line["event"].endswith(" stored")]
    late = set(stored[len(stored) // 2 :])

    cut = [line for number, line in enumerate(lines) if number not in late]
    assert list(broken_rules(cut, recorded[0].rates)) == []


def test_every_rule_of_the_checker_has_been_seen_to_be_told():
    known = {rule for rules in (*BEFORE.values(), *AFTER.values()) for rule, _ in rules}

    changed = {ONE, CONFIRMED_CLAIM, CONFIRMED_FENCE, CLAIM_VERSION, NEW_STAMP}
    assert known == {*TOLD.values(), *VOUCHED_TOLD.values(), *changed}
