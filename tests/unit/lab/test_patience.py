"""What waits on a busy machine is given up late, and what hangs on a quiet one at its limit."""

import pytest

from arpguard_lab import patience
from arpguard_lab.patience import Debt, Patience


class Clock:
    """Seconds, and for how many of them a task wanted a CPU."""

    def __init__(self) -> None:
        self.now_s = self.lacked_s = 100.0

    def pass_by(self, seconds: float, lacking: float) -> None:
        self.now_s += seconds
        self.lacked_s += lacking


@pytest.fixture
def clock(monkeypatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(patience.time, "monotonic", lambda: made.now_s)
    monkeypatch.setattr(patience, "_without_cpu_s", lambda: made.lacked_s)
    return made


@pytest.mark.parametrize(
    ("waits", "last"),
    [
        pytest.param([(10, 0)], (0.1, 0), id="on a quiet machine at the limit"),
        pytest.param([(49.9, 49.9)], (0.2, 0.2), id="on a busy one after five times as long"),
        pytest.param([(9, 0), (4.9, 4.9)], (0.2, 0.2), id="only the busy seconds count less"),
    ],
)
def test_it_ends(clock, waits, last):
    waiting = Patience(10)
    for seconds, lacking in waits:
        clock.pass_by(seconds, lacking)
    assert not waiting.is_over
    clock.pass_by(*last)
    assert waiting.is_over


@pytest.mark.parametrize("holds", [True, False])
def test_who_stood_still_beyond_the_limit_looks_once_more(clock, holds):
    waiting = Patience(10)
    assert not waiting.is_in_vain(lambda: False)
    clock.pass_by(60, 0)
    assert waiting.is_in_vain(lambda: holds) is not holds


def test_debt_is_the_share_of_the_time_since_then_in_which_a_task_wanted_a_cpu(clock):
    clock.pass_by(10, 10)
    debt = Debt()
    clock.pass_by(8, 1)
    clock.pass_by(2, 2)
    assert debt.share == pytest.approx(0.3)


def test_who_has_waited_longer_checks_less_often(clock, monkeypatch):
    slept: list[float] = []
    monkeypatch.setattr(patience.time, "sleep", slept.append)
    waiting = Patience(600)
    for seconds in (0, 1, 60):
        clock.pass_by(seconds, 0)
        waiting.pause(0.005)
    assert slept == [0.005, 0.05, 0.1]


def test_several_processors_that_lack_at_once_count_as_one(clock):
    waiting = Patience(10)
    clock.pass_by(50.1, lacking=200)
    assert waiting.is_over


def test_progress_begins_it_anew(clock):
    waiting = Patience(10)
    clock.pass_by(20, lacking=0)
    waiting.renew()
    assert not waiting.is_over
    clock.pass_by(10.1, lacking=0)
    assert waiting.is_over


def test_this_machine_says_how_long_tasks_wanted_a_cpu():
    first = patience._without_cpu_s()
    assert first >= 0
    assert patience._without_cpu_s() >= first
