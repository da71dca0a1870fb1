"""An announcer that speaks where another node is followed is let through while nobody else answers."""

from ipaddress import ip_address

import pytest

from arpguard.addresses import MacAddress
from arpguard.core.speaking import ASKED_AT_ONCE, EVERY_NS, RANK_NS, RANKS, Speaking, is_of_speaker
from arpguard.model import Decision, EntryKey
from arpguard.units import NS_PER_MS
from arpguard.verdict import Hook, Kind, Mode, Reason
from arpguard.wire.arp import ArpOp
from arpguard.wire.ndp import NdType

IP = ip_address("192.0.2.40")
WEB = ("shop", "web"), IP
ASK_NS = 200 * NS_PER_MS
BEGAN = (WEB, "")


def place(number: int):
    return ("shop", "web"), ip_address("192.0.2.0") + number


class Node:
    """One node: what its announcer and the wire do, at a time that the test sets."""

    def __init__(self, rank: int = 0):
        self.speaking = Speaking()
        self.rank = rank
        self.now_ns = 1000 * EVERY_NS

    def speak(self) -> "Node":
        self.speaking.own_spoke(WEB, self.rank, self.now_ns)
        return self

    def wait(self, ns: int) -> "Node":
        self.now_ns += ns
        return self

    def begins_to_ask(self) -> bool:
        return self.speaking.take_due(self.now_ns) == [WEB]

    def asks(self, *, answered: bool) -> bool:
        """Whether it asked, and how that ended."""
        asked = self.begins_to_ask()
        self.speaking.asked(WEB, self.wait(ASK_NS).now_ns, answered=answered)
        return asked

    @property
    def is_alone(self) -> bool:
        return self.speaking.is_alone(WEB)

    @property
    def in_ns(self) -> int | None:
        """From now to the next question."""
        next_ns = self.speaking.next_ns()
        return None if next_ns is None else next_ns - self.now_ns


def alone(rank: int = 0) -> Node:
    node = Node(rank).speak()
    node.asks(answered=False)
    node.wait(node.in_ns).asks(answered=False)
    assert node.is_alone
    assert node.speaking.take_news() == [BEGAN]
    return node


def test_announcer_is_let_through_after_two_questions_that_nobody_answers():
    node = Node()
    assert node.in_ns is None
    node.speak()

    assert node.in_ns == 0
    assert node.asks(answered=False)
    assert not node.is_alone
    assert node.in_ns == 0
    assert node.asks(answered=False)
    assert node.is_alone
    assert node.speaking.take_news() == [BEGAN]
    assert node.speaking.take_news() == []
    assert node.in_ns == EVERY_NS


def test_nothing_is_asked_twice_at_once():
    node = Node().speak()
    assert node.begins_to_ask()
    node.speak()

    assert not node.begins_to_ask()
    assert node.in_ns is None


@pytest.mark.parametrize("question", [0, 1])
def test_while_somebody_answers_it_stays_suppressed_and_asks_again_when_it_speaks_again(question):
    node = Node().speak()
    for _ in range(question):
        node.asks(answered=False)
    node.asks(answered=True)

    assert not node.is_alone
    assert node.in_ns is None
    assert node.speaking.take_news() == []
    node.speak()
    assert node.in_ns == EVERY_NS - (question + 1) * ASK_NS
    node.wait(10 * EVERY_NS).asks(answered=True)
    node.wait(10 * EVERY_NS).speak()
    assert node.in_ns == 0


@pytest.mark.parametrize("rank", range(RANKS + 3))
def test_ranks_ask_for_the_second_time_one_after_the_other(rank):
    node = Node(rank).speak()
    node.asks(answered=False)

    assert node.in_ns == min(rank, RANKS) * RANK_NS
    assert node.wait(node.in_ns).asks(answered=False)
    assert node.is_alone
    assert node.in_ns == (0 if rank else EVERY_NS)
    assert node.wait(node.in_ns).asks(answered=False)
    assert node.in_ns == EVERY_NS


def test_of_two_that_speak_at_the_same_time_the_later_one_hears_the_first():
    first, second = Node(0).speak(), Node(1).speak()
    for node in (first, second):
        assert node.asks(answered=False)
    assert first.asks(answered=False)

    second.wait(second.in_ns)
    assert second.now_ns > first.now_ns
    assert second.asks(answered=first.is_alone)
    assert not second.is_alone


def test_it_ends_when_another_host_answers_and_begins_anew():
    node = alone()
    node.wait(EVERY_NS).asks(answered=False)
    assert node.is_alone
    node.wait(EVERY_NS).asks(answered=True)

    assert not node.is_alone
    assert node.speaking.take_news() == [(WEB, "another host answers for the VIP")]
    assert node.in_ns is None
    node.speak()
    assert node.asks(answered=False) or node.wait(EVERY_NS).asks(answered=False)
    node.asks(answered=False)
    assert node.is_alone


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (lambda speaking: speaking.other_spoke(WEB), "another host claims the VIP"),
        (lambda speaking: speaking.named(WEB, "n3"), "objects name n3"),
        (lambda speaking: speaking.forget(WEB), "the Service does not have it any more"),
    ],
)
@pytest.mark.parametrize("asking", [False, True])
def test_what_ends_it_counts_at_once_and_what_the_wire_says_later_does_not(event, why, asking):
    node = alone()
    node.wait(EVERY_NS)
    if asking:
        node.begins_to_ask()
    event(node.speaking)

    assert not node.is_alone
    assert node.speaking.take_news() == [(WEB, why)]
    for _ in range(3):
        node.speaking.asked(WEB, node.now_ns, answered=False)
    assert not node.is_alone
    assert node.in_ns is None
    event(node.speaking)
    assert node.speaking.take_news() == []


def test_what_was_asked_before_it_began_anew_does_not_count():
    node = Node().speak()
    node.begins_to_ask()
    node.speaking.forget(WEB)
    node.speak()

    assert not node.begins_to_ask()
    node.speaking.asked(WEB, node.now_ns, answered=False)
    assert node.asks(answered=False)
    assert not node.is_alone


def test_before_it_spoke_nothing_is_alone():
    node = Node()
    node.speaking.other_spoke(WEB)

    assert not node.is_alone
    assert node.speaking.take_news() == []


def test_only_so_many_are_asked_for_at_once():
    speaking = Speaking()
    for number in range(ASKED_AT_ONCE + 10):
        speaking.own_spoke(place(number), 0, 5)
    first = speaking.take_due(5)

    assert len(first) == ASKED_AT_ONCE
    assert speaking.take_due(5) == []
    assert speaking.next_ns() is None
    speaking.asked(first[0], 7, answered=True)
    assert speaking.next_ns() == 5
    assert speaking.take_due(7) == [place(ASKED_AT_ONCE)]


_MAC = MacAddress(bytes((2, 0, 0, 0, 0, 1)))
IP6, ALL_NODES = ip_address("2001:db8::40"), ip_address("ff02::1")


@pytest.mark.parametrize(
    ("reason", "op", "spa", "tpa", "expected"),
    [
        (Reason.EGRESS_NOT_OWNER, ArpOp.REPLY, IP, IP, True),
        (Reason.EGRESS_NOT_OWNER, ArpOp.REQUEST, IP, IP, True),
        (Reason.EGRESS_NOT_OWNER, ArpOp.REQUEST, IP, IP + 1, False),
        (Reason.EGRESS_NOT_OWNER, NdType.ADVERTISEMENT, IP6, ALL_NODES, True),
        (Reason.EGRESS_NOT_OWNER, NdType.SOLICITATION, IP6, IP6, False),
        (Reason.EGRESS_REWRITTEN, ArpOp.REQUEST, IP, IP + 1, False),
        (Reason.EGRESS_UNKNOWN, ArpOp.REPLY, IP, IP, False),
        (Reason.DELEGATED_CLAIM, ArpOp.REPLY, IP, IP + 1, True),
        (Reason.DELEGATED_CLAIM, ArpOp.REQUEST, IP, IP + 1, False),
        (Reason.UNVERIFIED_CLAIM, ArpOp.REPLY, IP, IP, True),
        (Reason.UNCLAIMED_CLAIM, ArpOp.REQUEST, IP, IP, True),
        (Reason.FOREIGN, ArpOp.REQUEST, IP + 1, IP, False),
    ],
)
def test_what_an_announcer_says_is_told_from_ordinary_requests(reason, op, spa, tpa, expected):
    about = (1, EntryKey(2, spa), reason.verdict, reason, Hook.TC_EGRESS, Mode.ENFORCE, Kind.FOREIGN)
    assert is_of_speaker(Decision(*about, op, spa, tpa, _MAC, _MAC, _MAC, _MAC)) is expected
