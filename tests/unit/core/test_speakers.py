"""What an agent reports of the announcer on its node, by the requests and answers that it counts."""

from dataclasses import replace

import pytest

from arpguard.core.cluster import SpeakerReport
from arpguard.core.speakers import (
    LONGEST_RETRY_NS,
    MAX_REPORTS,
    MOVING_NS,
    QUICK_NS,
    RETRY_NS,
    SLOW_NS,
    UNANSWERED,
    UNANSWERED_NS,
    Look,
    Speakers,
)
from arpguard.units import NS_PER_S

WEB = ("shop", "web")
SILENT, ANSWERS = SpeakerReport("1", answers=False), SpeakerReport("1", answers=True)


class Node:
    """A node that is followed for a Service; requests and answers come as the test says."""

    def __init__(self) -> None:
        self.speakers = Speakers()
        self.seen = Look("1", followed=True)
        self.now_ns = NS_PER_S
        self.look()

    def look(self, wait_ns: int = 0, **what) -> SpeakerReport | None:
        self.now_ns += wait_ns
        self.seen = replace(self.seen, **what)
        self.speakers.look({WEB: self.seen}, self.now_ns)
        return self.speakers.reports.get(WEB)

    def asked(self, times: int = UNANSWERED, wait_ns: int = 0, **what) -> SpeakerReport | None:
        return self.look(wait_ns, requests=self.seen.requests + times, **what)

    def answered(self, **what) -> SpeakerReport | None:
        return self.look(answers=self.seen.answers + 1, **what)


def silent() -> Node:
    node = Node()
    node.asked()
    assert node.look(UNANSWERED_NS) == SILENT
    return node


def test_announcer_that_leaves_requests_unanswered_is_silent():
    node = Node()
    assert node.asked() is None
    assert node.look(UNANSWERED_NS - 1) is None
    assert node.look(1) == SILENT


def test_one_request_is_not_enough():
    node = Node()
    node.asked(UNANSWERED - 1)
    assert node.look(UNANSWERED_NS) is None
    assert node.asked(1) == SILENT


def test_silence_begins_with_the_last_answer():
    node = Node()
    node.asked()
    node.answered()
    assert node.look(UNANSWERED_NS) is None
    assert node.asked() is None
    assert node.look(UNANSWERED_NS) == SILENT


def test_nothing_is_unanswered_where_nothing_is_asked():
    node = Node()
    assert node.look(NS_PER_S) is None


def test_while_the_announcer_is_not_let_through_it_cannot_answer():
    node = Node()
    node.look(followed=False)
    node.asked()
    assert node.look(UNANSWERED_NS, followed=True) is None
    assert node.asked() is None
    assert node.look(UNANSWERED_NS) == SILENT


def test_where_nobody_else_is_silent_there_is_no_need_to_report_an_answer():
    node = Node()
    assert node.answered() is None


def test_where_another_is_silent_an_answer_is_reported():
    node = Node()
    assert node.answered(silent=True) == ANSWERS
    assert node.look(NS_PER_S) == ANSWERS


def test_announcer_that_answers_after_all_is_reported():
    node = silent()
    assert node.answered() == ANSWERS


def test_announcer_that_answered_once_may_fall_silent():
    node = Node()
    node.answered(silent=True)
    node.asked()
    assert node.look(UNANSWERED_NS) == SILENT


def test_last_word_of_the_announcer_outdates_the_report():
    assert silent().look(version="2") is None


def test_silence_is_taken_back_where_nobody_else_answers_each_time_later():
    node = silent()
    wait_ns = RETRY_NS
    while wait_ns <= 2 * LONGEST_RETRY_NS:
        lasts_ns = min(wait_ns, LONGEST_RETRY_NS)
        assert node.look(lasts_ns - 1, followed=False) == SILENT
        assert node.look(1) is None
        node.look(followed=True)
        node.asked()
        assert node.look(UNANSWERED_NS) == SILENT
        wait_ns *= 2


def test_silence_lasts_while_another_answers():
    node = silent()
    assert node.look(LONGEST_RETRY_NS, followed=False, answering=True) == SILENT


def test_node_that_all_still_follow_keeps_its_word():
    """Nobody else is named, or all are silent: to take it back would move nothing."""
    node = silent()
    assert node.look(LONGEST_RETRY_NS) == SILENT


@pytest.mark.parametrize(("age_ns", "wait_ns"), [(0, QUICK_NS), (MOVING_NS - 1, QUICK_NS), (MOVING_NS, SLOW_NS)])
def test_it_looks_often_while_the_announcer_moves(age_ns, wait_ns):
    node = Node()
    node.look(age_ns)
    assert node.speakers.next_ns(node.now_ns) == node.now_ns + wait_ns


def test_what_is_settled_is_watched_no_longer():
    node = silent()
    node.speakers.look({}, node.now_ns)
    assert (node.speakers.reports, node.speakers.next_ns(node.now_ns)) == ({}, None)


def test_reports_are_few():
    speakers = Speakers()
    looks = {("shop", str(number)): Look("1", followed=True) for number in range(MAX_REPORTS + 1)}
    speakers.look(looks, 0)
    speakers.look({key: replace(look, requests=UNANSWERED) for key, look in looks.items()}, 1)
    speakers.look({key: replace(look, requests=UNANSWERED) for key, look in looks.items()}, 1 + UNANSWERED_NS)
    assert len(speakers.reports) == MAX_REPORTS
