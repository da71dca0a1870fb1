"""Figures of a step beside their bounds, for people and for machines."""

from ipaddress import IPv4Address

import pytest

from arpguard_lab.bench import Bounded, Step, judged

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
