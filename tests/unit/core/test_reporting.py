"""What happens a thousand times is one Event, and a flood stays outside."""

from dataclasses import replace

from arpguard.core.reporting import (
    CAPACITY,
    NODE_BURST,
    OBJECT_BURST,
    OBJECT_INTERVAL_NS,
    REFRESH_NS,
    SERIES_END_NS,
    EventBook,
    Notice,
    Subject,
)

SECOND = 10**9
START = 10**12
WALL = 1_700_000_000 * SECOND
NODE = Subject("v1", "Node", "", "node-1")
NOTICE = Notice(NODE, "Conflict", "Guard", "02:00:00:00:00:01 claims 192.0.2.1")


def _say(book: EventBook, notice: Notice = NOTICE, after_ns: int = 0):
    return book.say(notice, START + after_ns, WALL + after_ns)


def test_first_time_is_a_new_event():
    posting = _say(EventBook())

    assert (posting.notice, posting.count, posting.first_wall_ns) == (NOTICE, 1, WALL)
    assert posting.name == f"node-1.{WALL:x}"


def test_second_time_makes_it_a_series_and_later_ones_are_only_counted():
    book = EventBook()
    first, second, *others = [_say(book, after_ns=number * SECOND) for number in range(100)]

    assert (second.name, second.count, second.last_wall_ns) == (first.name, 2, WALL + SECOND)
    assert others == [None] * 98


def test_series_that_goes_on_is_refreshed():
    book = EventBook()
    minute = 60 * SECOND
    said = [(number, _say(book, after_ns=number * minute)) for number in range(100)]

    assert [(number, posting.count) for number, posting in said if posting] == [
        (0, 1),
        (1, 2),
        (31, 32),
        (61, 62),
        (91, 92),
    ]
    assert 30 * minute == REFRESH_NS


def test_last_count_is_written_when_the_series_has_ended():
    book = EventBook()
    for number in range(5):
        _say(book, after_ns=number * SECOND)

    assert book.take_ended(START + SERIES_END_NS) == []
    (last,) = book.take_ended(START + SERIES_END_NS + 4 * SECOND)
    assert (last.count, last.last_wall_ns) == (5, WALL + 4 * SECOND)
    assert book.take_ended(START + SERIES_END_NS * 9) == []


def test_series_that_was_written_in_full_needs_no_last_word():
    book = EventBook()
    _say(book)
    _say(book)

    assert book.take_ended(START + SERIES_END_NS) == []


def test_after_a_series_has_ended_there_is_a_new_event():
    book = EventBook()
    first = _say(book)
    again = _say(book, after_ns=SERIES_END_NS)

    assert again.count == 1
    assert again.name != first.name


def test_other_words_are_another_event():
    book = EventBook()

    assert _say(book).count == 1
    assert _say(book, replace(NOTICE, note="02:00:00:00:00:02 claims 192.0.2.1")).count == 1


def test_flood_about_one_object_is_limited_and_counted():
    book = EventBook()
    said = [_say(book, replace(NOTICE, note=str(number))) for number in range(1000)]

    assert sum(posting is not None for posting in said) == OBJECT_BURST
    assert book.suppressed == 1000 - OBJECT_BURST
    assert _say(book, replace(NOTICE, note="x"), OBJECT_INTERVAL_NS) is not None
    assert _say(book, replace(NOTICE, note="y"), OBJECT_INTERVAL_NS) is None


def test_flood_about_many_objects_is_limited():
    book = EventBook()
    said = [_say(book, replace(NOTICE, subject=replace(NODE, name=f"n{number}"))) for number in range(1000)]

    assert sum(posting is not None for posting in said) == NODE_BURST


def test_flood_about_some_objects_hides_no_news_of_another():
    book = EventBook()
    noisy = [replace(NODE, name=f"n{number}") for number in range(30)]
    for number in range(1000):
        _say(book, replace(NOTICE, subject=noisy[number % len(noisy)], note=str(number)))

    assert _say(book, replace(NOTICE, subject=replace(NODE, name="quiet"))) is not None


def test_event_that_was_lost_is_new_the_next_time():
    book = EventBook()
    _say(book)
    book.lost(NOTICE)

    assert _say(book, after_ns=SECOND).count == 1


def test_memory_is_bounded():
    book = EventBook()
    for number in range(2 * CAPACITY):
        _say(book, replace(NOTICE, subject=replace(NODE, name=f"n{number}")), number * SECOND)

    assert len(book._series) <= CAPACITY
    assert len(book._objects) <= CAPACITY


def test_name_of_an_event_is_never_too_long():
    name = "a" * 199 + "." + "b" * 53
    posting = _say(EventBook(), replace(NOTICE, subject=replace(NODE, name=name)))

    assert len(posting.name) <= 253
    assert ".." not in posting.name
