"""How many lines of a kind the log takes."""

from arpguard.runtime.loglimit import BURST, LINES_PER_S, LogLimit
from arpguard.units import NS_PER_S

START = 10**12


def test_a_burst_is_written_and_then_some_in_a_second():
    limit = LogLimit()
    assert [limit.admits(START) for _ in range(BURST + 1)] == [True] * BURST + [False]
    # A hundred in a second, for a minute.
    written = sum(limit.admits(START + number * NS_PER_S // 100) for number in range(1, 6001))
    assert 60 * LINES_PER_S - 1 <= written <= 60 * LINES_PER_S


def test_what_is_left_out_is_counted_once():
    limit = LogLimit()
    for _ in range(BURST + 7):
        limit.admits(START)
    assert [limit.take_left_out(), limit.take_left_out()] == [7, 0]


def test_quiet_makes_room_for_a_burst_and_no_more():
    limit = LogLimit()
    assert all(limit.admits(START) for _ in range(BURST))
    assert sum(limit.admits(START + 1000 * NS_PER_S) for _ in range(2 * BURST)) == BURST
