"""How the steps of the lab are judged on a real server; a name states the fact."""

import json
from types import SimpleNamespace

import pytest

from neighbours import lab

RIGHT = {"step": "x", "nodes": ["node-1"], "expected": ["node-1"], "ok": True, "overlaps": 0}
LATE = {**RIGHT, "ok": False, "judged": False, "within_half_a_second": False, "first_answer_ms": 800}
DOUBLED = {**RIGHT, "ok": False, "never_two": False, "overlaps": 3}
SILENT = {**RIGHT, "ok": False, "nodes": []}


class Place:
    """Each run of the lab says the next of these."""

    def __init__(self, *runs: object) -> None:
        self.runs = [run if isinstance(run, str) else json.dumps([run]) for run in runs]

    def run(self, *_words: object) -> SimpleNamespace:
        return SimpleNamespace(stdout=self.runs.pop(0))


def rows(*runs: object) -> tuple[list[lab.Row], int]:
    """What comes out, and how many runs were not needed."""
    place = Place(*runs)
    return list(lab.a_scenario("new-service", place)), len(place.runs)


def test_step_that_is_right_is_run_once():
    (row,), left = rows(RIGHT, RIGHT)
    assert (str(row), left) == ("| new-service | `x` | as expected, overlaps 0 |", 1)


def test_step_that_is_only_late_is_run_again_and_the_last_run_counts():
    (row,), left = rows(LATE, RIGHT, RIGHT)
    assert (row.is_right, left) == (True, 1)


def test_step_that_is_late_each_time_is_wrong():
    (row,), left = rows(LATE, LATE, LATE, RIGHT)
    assert (row.is_right, left) == (False, 1)
    assert row.was == "as expected, first_answer_ms 800, overlaps 0, within_half_a_second: False"


@pytest.mark.parametrize("wrong", [DOUBLED, SILENT, {**LATE, "never_two": False}])
def test_what_is_wrong_otherwise_counts_at_once(wrong):
    (row,), left = rows(wrong, RIGHT)
    assert (row.is_right, left) == (False, 1)


def test_lab_that_ends_without_a_step_is_wrong():
    (row,), _ = rows("no such server")
    assert not row.is_right


def test_every_bar_of_time_is_one_of_the_labs():
    source = "".join(path.read_text(encoding="utf-8") for path in (lab.ROOT / "agent/arpguard_lab").rglob("*.py"))
    assert [name for name in lab.OF_TIME if f'"{name}"' not in source] == []
