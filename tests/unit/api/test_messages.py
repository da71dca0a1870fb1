"""Times of the boot clock become times of the wall clock."""

import time

import pytest

from arpguard import clock
from arpguard.api import messages
from arpguard.api.messages import MessageClock
from arpguard.clock import boot_ns
from arpguard.units import NS_PER_MS


@pytest.fixture
def skew(monkeypatch):
    """Moves the wall clock, as far as the agent sees it."""
    monkeypatch.setattr(clock.WallClock, "_latest_ns", None)
    ahead = time.time_ns() - boot_ns()
    moved = [0]
    monkeypatch.setattr(clock.time, "time_ns", lambda: ahead + moved[0])
    monkeypatch.setattr(clock, "boot_ns", lambda: 0)
    return ahead, moved


def test_time_is_that_of_the_wall_clock():
    before = time.time()
    at = MessageClock.now().timestamp(boot_ns())

    assert before - 0.1 < at.seconds + at.nanos / 1e9 < time.time() + 0.1


def test_time_is_in_whole_microseconds():
    at = MessageClock(1).timestamp(1_999_999_999)

    assert (at.seconds, at.nanos) == (2, 0)
    assert MessageClock(0).timestamp(1_999_999_999).nanos == 999_999_000


@pytest.mark.parametrize(
    ("moved_ns", "followed"), [(999_999, False), (-999_999, False), (NS_PER_MS, True), (-NS_PER_MS, True)]
)
def test_equal_times_stay_equal_until_the_clock_is_set(skew, moved_ns, followed):
    """A moment passes between the readings of two clocks, and each time another one."""
    ahead, moved = skew
    assert MessageClock.now().ahead_ns == ahead
    moved[0] = moved_ns

    assert MessageClock.now().ahead_ns == ahead + (moved_ns if followed else 0)
    assert clock.WallClock.now().ahead_ns == MessageClock.now().ahead_ns  # one for all who tell times


@pytest.mark.parametrize("known", [False, True])
def test_clocks_are_read_again_where_somebody_had_the_cpu_in_between(skew, monkeypatch, known):
    ahead, _ = skew
    if known:
        MessageClock.now()
    late = 6 * NS_PER_MS
    boot, real = iter([0, late, late, late]), iter([ahead + late, ahead + late])
    monkeypatch.setattr(clock, "boot_ns", lambda: next(boot))
    monkeypatch.setattr(clock.time, "time_ns", lambda: next(real))

    assert MessageClock.now().ahead_ns == ahead


@pytest.mark.parametrize(
    ("length_ns", "parts"), [(0, (0, 0)), (1, (0, 1)), (3_000_000_000, (3, 0)), (1_234_567_890, (1, 234_567_890))]
)
def test_duration_is_exact(length_ns, parts):
    length = messages.duration(length_ns)

    assert (length.seconds, length.nanos) == parts
