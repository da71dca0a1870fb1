"""Waits grow, and are not the same for everybody."""

from hypothesis import given
from hypothesis import strategies as st

from arpguard.core.backoff import Backoff


def test_waits_double_up_to_the_cap():
    backoff = Backoff(0.25, 30, lambda: 0)

    assert [backoff.next_s() for _ in range(9)] == [0.25, 0.5, 1, 2, 4, 8, 16, 30, 30]


def test_success_makes_the_next_wait_the_first():
    backoff = Backoff(0.25, 30, lambda: 0)
    backoff.next_s()
    backoff.next_s()
    backoff.reset()

    assert backoff.next_s() == 0.25


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50))
def test_each_wait_is_between_half_and_all_of_it(numbers):
    whole, jittered = Backoff(0.25, 30, lambda: 0), Backoff(0.25, 30, iter(numbers).__next__)
    for _ in numbers:
        full = whole.next_s()

        assert full / 2 <= jittered.next_s() <= full


def test_waits_stay_at_the_cap_for_ever():
    backoff = Backoff(0.25, 30, lambda: 0)

    assert {backoff.next_s() for _ in range(5000)} >= {30}
    assert backoff.next_s() == 30
