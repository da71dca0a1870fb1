"""A server is asked as fast as it answers, and less where it is slow or refuses."""

from arpguard.core.pacing import LATE_NS, LEAST, LONGEST_PAUSE_NS, MOST, REST_NS, SOON_NS, START, Pacing
from arpguard.units import NS_PER_MS, NS_PER_S

NOW = 1_000 * NS_PER_S


def _answered(pacing: Pacing, took_ns: int, times: int = 1) -> int:
    """One request after the other, each sent when the one before is answered; the time after the last."""
    now = NOW
    for _ in range(times):
        now = max(now, pacing.not_before_ns) + took_ns
        pacing.answered(now - took_ns, now)
    return now


def test_as_many_requests_as_the_window_holds_may_be_under_way():
    pacing = Pacing(window=2.9)
    assert [pacing.allows(count, NOW) for count in range(4)] == [True, True, False, False]


def test_quick_answers_open_the_window_one_by_one_up_to_a_bound():
    pacing = Pacing()
    _answered(pacing, SOON_NS, int(START))
    assert START < pacing.window <= START + 1
    _answered(pacing, SOON_NS, 1000)
    assert pacing.window == MOST


def test_answers_that_are_neither_quick_nor_late_leave_it_as_it_is():
    pacing = Pacing()
    _answered(pacing, SOON_NS + 1, 10)
    assert pacing.window == START
    assert pacing.allows(0, NOW)


def test_late_answers_halve_it_once_for_all_that_were_under_way():
    pacing = Pacing()
    for moment in range(3):
        pacing.answered(NOW, NOW + LATE_NS + 1 + moment)
    assert pacing.window == START / 2
    pacing.answered(NOW + LATE_NS + 1, NOW + 3 * LATE_NS)
    assert pacing.window == START / 4


def test_a_server_that_is_slow_with_one_request_is_left_alone_for_a_while_after_each():
    pacing = Pacing(window=1.0)
    took = LATE_NS + NS_PER_MS
    now = _answered(pacing, took)
    assert pacing.window == 0.5
    assert not pacing.allows(0, now + took - 1)
    assert pacing.allows(0, now + took)
    assert not pacing.allows(1, now + took)


def test_the_pauses_are_bounded_and_end_when_answers_are_quick():
    pacing = Pacing()
    now = _answered(pacing, NS_PER_S, 20)
    assert pacing.window == LEAST
    assert pacing.not_before_ns <= now + LONGEST_PAUSE_NS
    for _ in range(8):
        now = max(now, pacing.not_before_ns) + NS_PER_MS
        pacing.answered(now - NS_PER_MS, now)
    assert pacing.window > 1


def test_nothing_is_sent_for_as_long_as_the_server_asks():
    pacing = Pacing()
    pacing.refused(NOW, NOW + NS_PER_MS, 3 * NS_PER_S)
    pacing.refused(NOW, NOW + NS_PER_MS, NS_PER_S)
    assert pacing.window == START / 2
    assert not pacing.allows(0, NOW + 3 * NS_PER_S)
    assert pacing.allows(0, NOW + NS_PER_MS + 3 * NS_PER_S)


def test_renewals_that_are_late_close_the_window_and_quick_ones_do_not_open_it():
    pacing = Pacing()
    pacing.renewed(NOW, NOW + SOON_NS)
    assert pacing.window == START
    pacing.renewed(NOW, NOW + LATE_NS + 1)
    assert pacing.window == START / 2
    assert pacing.allows(0, NOW + LATE_NS + 1)


def test_after_a_rest_the_pace_is_found_anew():
    pacing = Pacing(window=MOST)
    assert pacing.allows(0, NOW)
    assert pacing.window == START
    pacing.window = MOST
    assert pacing.allows(0, NOW + REST_NS)
    assert pacing.allows(int(START), NOW + 3 * REST_NS)
    assert pacing.window == MOST
    assert not pacing.allows(int(MOST), NOW + 3 * REST_NS)
    pacing.window = LEAST
    assert pacing.allows(0, NOW + 9 * REST_NS)
    assert pacing.window == LEAST
