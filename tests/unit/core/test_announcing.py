"""When announcements are due."""

from ipaddress import ip_address

from arpguard.core.announcing import (
    ANNOUNCE_COUNT,
    ANNOUNCE_INTERVAL_NS,
    BURST,
    DEFEND_INTERVAL_NS,
    RATE_INTERVAL_NS,
    AnnouncementSchedule,
)
from arpguard.model import EntryKey

KEY = EntryKey(2, ip_address("192.0.2.50"))
START = 10**12


def _run(schedule: AnnouncementSchedule, until_ns: int) -> list[tuple[int, EntryKey]]:
    """Everything sent until then, as (nanoseconds after START, VIP), asking when the schedule says so."""
    sent, now = [], START
    while now is not None and now <= until_ns:
        sent += [(now - START, key) for key in schedule.take_due(now)]
        now = schedule.next_ns(now)
    return sent


def test_takeover_is_announced_at_once_and_again_beyond_the_neighbours_locktime():
    schedule = AnnouncementSchedule()
    schedule.take_over(KEY, START)

    assert _run(schedule, START + 10**11) == [(n * ANNOUNCE_INTERVAL_NS, KEY) for n in range(ANNOUNCE_COUNT)]
    assert ANNOUNCE_INTERVAL_NS > 10**9


def test_announcing_ends_with_ownership():
    schedule = AnnouncementSchedule()
    schedule.take_over(KEY, START)
    schedule.take_due(START)
    schedule.give_up(KEY)

    assert schedule.next_ns(START) is None


def test_conflict_is_answered_once_in_the_defend_interval():
    schedule = AnnouncementSchedule()
    answered = [schedule.conflict(KEY, START + n * 10**9) for n in range(21)]

    assert [n for n, yes in enumerate(answered) if yes] == [0, 10, 20]
    assert DEFEND_INTERVAL_NS == 10 * 10**9


def test_defence_is_one_announcement():
    schedule = AnnouncementSchedule()
    schedule.conflict(KEY, START)

    assert _run(schedule, START + 10**11) == [(0, KEY)]


def test_each_vip_is_defended_by_itself():
    schedule = AnnouncementSchedule()
    other = EntryKey(2, KEY.vip + 1)

    assert schedule.conflict(KEY, START)
    assert schedule.conflict(other, START)


def test_nothing_is_due_at_first():
    assert AnnouncementSchedule().next_ns(START) is None


def test_thousand_takeovers_are_paced():
    schedule = AnnouncementSchedule()
    for offset in range(1000):
        schedule.take_over(EntryKey(2, ip_address("10.0.0.0") + offset), START)
    sent = _run(schedule, START + 60 * 10**9)

    assert len(sent) == 1000 * ANNOUNCE_COUNT
    at_once = [at for at, _ in sent if at == 0]
    assert len(at_once) == BURST
    times = [at for at, _ in sent]
    assert times == sorted(times)
    assert sum(1 for at, _ in sent if at <= 10**9) <= BURST + 10**9 // RATE_INTERVAL_NS


def test_link_that_comes_back_is_announced_at_once_and_again():
    schedule = AnnouncementSchedule()
    schedule.link_up(KEY, START)

    assert _run(schedule, START + 10**11) == [(n * ANNOUNCE_INTERVAL_NS, KEY) for n in range(ANNOUNCE_COUNT)]


def test_link_that_comes_and_goes_is_announced_no_more_often_than_a_takeover():
    schedule = AnnouncementSchedule()
    sent = []
    for number in range(100):
        now_ns = START + number * ANNOUNCE_INTERVAL_NS // 10
        schedule.link_up(KEY, now_ns)
        for key in schedule.take_due(now_ns):
            schedule.sent(key, now_ns)
            sent.append(now_ns)

    assert len(sent) == 10


def test_what_was_due_while_the_link_was_down_is_made_up_for_when_it_is_up():
    schedule = AnnouncementSchedule()
    schedule.take_over(KEY, START)
    schedule.take_due(START)  # and not sent
    schedule.link_up(KEY, START + 1)

    assert schedule.take_due(START + 1) == [KEY]


def test_link_that_flaps_for_long_leaves_nothing_behind():
    """What is due at another time is forgotten, though nobody asks for it meanwhile."""
    schedule = AnnouncementSchedule()
    for number in range(10_000):
        schedule.link_up(KEY, START + number)
    assert len(schedule._queue) < 200

    assert schedule.take_due(START + ANNOUNCE_INTERVAL_NS) == [KEY]
