"""What waits on a busy machine is given up late, and what hangs on a quiet one at its limit."""

import pytest

from arpguard_lab import patience
from arpguard_lab.patience import Patience


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


def test_on_a_quiet_machine_it_ends_at_the_limit(clock):
    waiting = Patience(10)
    clock.pass_by(10, lacking=0)
    assert not waiting.is_over
    clock.pass_by(0.1, lacking=0)
    assert waiting.is_over


def test_on_a_busy_one_it_lasts_five_times_as_long(clock):
    waiting = Patience(10)
    clock.pass_by(49.9, lacking=49.9)
    assert not waiting.is_over
    clock.pass_by(0.2, lacking=0.2)
    assert waiting.is_over


def test_only_the_busy_seconds_count_less(clock):
    waiting = Patience(10)
    clock.pass_by(9, lacking=0)
    clock.pass_by(4.9, lacking=4.9)
    assert not waiting.is_over
    clock.pass_by(0.2, lacking=0.2)
    assert waiting.is_over


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
