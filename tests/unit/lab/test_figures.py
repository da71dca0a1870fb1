"""Figures of a step beside their bounds, for people and for machines."""

from dataclasses import replace
from ipaddress import IPv4Address

import pytest

from arpguard_lab import command
from arpguard_lab.bench import TOO_MUCH, Bounded, Step, judged

VIP = IPv4Address("198.51.100.50")


def a_step(**facts: object) -> Step:
    return judged("drain", "the owner is cordoned", VIP, [], [], facts)


@pytest.mark.parametrize(
    ("value", "ok", "said"),
    [
        (34, True, "gap 34 ms, limit 50 ms"),
        (50, False, "gap 50 ms, limit 50 ms: NOT kept"),
        (-1, False, "gap -1 ms, limit 50 ms: NOT kept"),
        (None, False, "gap unknown, limit 50 ms: NOT kept"),
    ],
)
def test_figure_stands_beside_its_bound(value, ok, said):
    step = a_step(gap_ms=Bounded(value, 50, "gap_in_bounds"))

    assert step.ok is ok
    assert step.remark() == said
    assert step.as_json()["gap_in_bounds"] is ok
    assert step.as_json().get("gap_ms") == value


def test_other_figures_and_failed_checks_follow():
    step = a_step(
        write_ms=3, worst_gap_ms=Bounded(60, 50, "in_bounds"), none_lost=False, said="why", nothing_missed=True
    )

    assert step.remark() == "worst gap 60 ms, limit 50 ms: NOT kept; write_ms=3 failed: none_lost why"
    assert a_step(lost=0).remark() == "lost=0"


LATE, WRONG = Bounded(60, 50, "in_bounds"), Bounded(None, 50, "in_bounds")


def test_step_that_is_only_late_is_not_judged_on_a_machine_that_is_too_busy():
    step = a_step(gap_ms=LATE, nothing_missed=True)

    assert step.on_a_machine_that_owed(TOO_MUCH - 0.01) == step
    late = step.on_a_machine_that_owed(0.72)
    assert (late.ok, late.judged, late.as_json()["judged"]) == (False, False, False)
    assert late.remark().endswith("not judged: tasks of this machine waited for a CPU 72% of the time")


@pytest.mark.parametrize(
    "facts",
    [{"gap_ms": WRONG}, {"gap_ms": LATE, "none_lost": False}, {"gap_ms": Bounded(-1, 50, "in_bounds")}, {}],
    ids=str,
)
def test_what_is_wrong_for_another_reason_is_judged_on_any_machine(facts):
    step = replace(a_step(**facts), ok=False)

    assert step.on_a_machine_that_owed(1.0) == step


def test_wrong_host_is_judged_on_any_machine():
    step = replace(a_step(gap_ms=LATE), nodes=("node-2",))

    assert step.on_a_machine_that_owed(1.0) == step


def test_what_is_in_time_is_right_on_any_machine():
    step = a_step(gap_ms=Bounded(34, 50, "in_bounds"))

    assert step.on_a_machine_that_owed(1.0) == step


def test_steps_that_are_not_judged_are_neither_right_nor_wrong_and_are_counted():
    right, wrong = a_step(), a_step(gap_ms=LATE)
    late = wrong.on_a_machine_that_owed(1.0)

    busy = "1 not judged, because this machine was too busy, in"
    assert command._sum([right, late], 1.0).startswith(f"2 steps, {busy} ")
    assert command._sum([wrong, late], 1.0).startswith(f"2 steps, 1 not as expected, {busy} ")
    assert [command._mark(step).text for step in (right, wrong, late)] == ["ok", "NOT AS EXPECTED", "NOT JUDGED"]
    assert [command._ending([right, *others]) for others in ([], [late], [wrong, late])] == [0, 0, 1]
    assert command._ending([]) == 1
