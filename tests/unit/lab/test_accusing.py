"""Which reports of agents the random rounds take for false."""

from types import SimpleNamespace

import pytest

from arpguard.addresses import MacAddress
from arpguard.core.auditing import AuditBook, Expected, judge
from arpguard.core.claimants import OUTSIDE
from arpguard.core.decisions import CONTESTED
from arpguard.model import EntryKey
from arpguard_lab.cluster.rounds import EVERY, _Record, _wrongly_accused

VIP, OTHER = EVERY[:2]
MAC = MacAddress.parse("02:00:00:00:00:99")


def problems(heard: dict) -> list[str]:
    """The audit's about a VIP that node-1 has."""
    book = AuditBook()
    book.settle(judge(EntryKey(2, VIP), "eth0", Expected("node-1"), heard, 1))
    return book.problems


def a_bench(problems=(), notes=(), reason="") -> SimpleNamespace:
    """A node with these problems, and Events of one Service."""
    events = [{"reason": reason, "note": note} for note in notes]
    events.append({"reason": "VIPMoved", "note": f"node-2 answers for {VIP}"})
    return SimpleNamespace(
        nodes=["node-1"],
        agent=lambda _: SimpleNamespace(wait_for=lambda: None),
        status=lambda _: {"problems": list(problems)} if problems else {},
        events=lambda _, name: events if name == "web" else [],
    )


def a_watch(*doubled) -> SimpleNamespace:
    return SimpleNamespace(findings=[SimpleNamespace(vip=vip) for vip in doubled])


ACCUSING = [*problems({MAC: OUTSIDE}), CONTESTED.format(vip=VIP)]


@pytest.mark.parametrize("text", ACCUSING)
def test_problem_that_names_a_host_or_a_claim_is_false_unless_two_answered(text):
    assert _wrongly_accused(a_bench([text]), a_watch()) == {text}
    assert _wrongly_accused(a_bench([text]), a_watch(OTHER)) == {text}
    assert _wrongly_accused(a_bench([text]), a_watch(VIP)) == set()


@pytest.mark.parametrize("reason", ["VIPAnsweredByOthers", "VIPConflict", "VIPSplitBrain"])
def test_event_is_as_a_problem_is(reason):
    note = f"on eth0 of node-2, {MAC} answers for {VIP}, which node-1 has"

    assert _wrongly_accused(a_bench(notes=[note], reason=reason), a_watch()) == {note}
    assert _wrongly_accused(a_bench(notes=[note], reason=reason), a_watch(VIP)) == set()


def test_silence_and_other_problems_accuse_nobody():
    assert _wrongly_accused(a_bench([*problems({}), "link eth0 is down", f"claims: {VIP} moves"]), a_watch()) == set()


def test_each_false_report_breaks_a_promise_and_fails_the_rounds():
    record = _Record(accused=set(ACCUSING))

    assert record.violations([])["p6_violations"] == 2
    assert record.facts()["nobody_wrongly_accused"] is False
    assert str(VIP) in str(record.facts()["accused"])
