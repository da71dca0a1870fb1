"""What a voucher leaves in a trace: a line for each thing that it decides, and the same effects as without one."""

from arpguard.core.vouching.tracing import TracedVoucher
from arpguard.core.vouching.voucher import PATIENCE, PING_NS, AdoptedTerm, OwnRight, Pong, SendPing, Voucher
from arpguard.units import NS_PER_S

NOW, D = 100 * NS_PER_S, NS_PER_S
EPOCH = 7
RIGHT = OwnRight(EPOCH, NOW + 60 * NS_PER_S)
TERM = AdoptedTerm(3, "b/1", EPOCH, D)


class Pair:
    """A traced voucher and a plain one, which hear the same."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict]] = []
        self.traced = TracedVoucher("b/1", lambda event, what: self.lines.append((event, dict(what))))
        self.plain = Voucher("b/1")

    def both(self, name, *arguments):
        found = getattr(self.traced, name)(*arguments)
        assert found == getattr(self.plain, name)(*arguments)
        return found

    @property
    def last(self):
        return self.lines[-1]


def an_adopted_pair():
    pair = Pair()
    assert pair.both("adopt", TERM, NOW)
    return pair


def test_an_adopted_term_and_its_end_are_told():
    pair = an_adopted_pair()
    adopted = {"number": 3, "instance": "b/1", "epoch": EPOCH, "d_ns": D, "trial": False}
    assert pair.lines == [("term adopted", {"term": adopted})]

    assert not pair.both("adopt", TERM, NOW)
    assert len(pair.lines) == 1, "a refusal leaves no line"

    pair.both("drop", 3)
    assert pair.last == ("term dropped", {"number": 3})


def test_a_grant_is_told_with_all_that_it_was_decided_by():
    pair = an_adopted_pair()
    (ping,) = pair.both("tick", NOW)
    assert isinstance(ping, SendPing)
    pair.traced.heard_ns = NOW + 5

    pair.both("pong", 3, Pong(ping.number, 41, bound=True), RIGHT, NOW + 6)
    assert pair.lines[1:] == [
        (
            "granted",
            {
                "number": 3,
                "ping": ping.number,
                "pinged_ns": NOW,
                "stamp_ns": 41,
                "right": {"epoch": EPOCH, "until_ns": RIGHT.until_ns},
                "heard_ns": NOW + 5,
                "noted_ns": NOW + 6,
            },
        ),
        ("bound seen", {"number": 3}),
    ]


def test_a_pong_that_is_not_granted_leaves_no_line():
    pair = an_adopted_pair()
    (ping,) = pair.both("tick", NOW)

    pair.both("pong", 3, Pong(ping.number, 41, bound=False), None, NOW + 6)
    assert len(pair.lines) == 1


def test_the_end_of_the_own_epoch_is_told():
    pair = an_adopted_pair()
    (ping,) = pair.both("tick", NOW)

    pair.both("pong", 3, Pong(ping.number, 41, bound=True), OwnRight(EPOCH + 1, NOW + D), NOW + 6)
    assert pair.last == ("epoch over", {"number": 3})


def test_the_decision_that_a_node_is_dead_is_told():
    pair = an_adopted_pair()
    (ping,) = pair.both("tick", NOW)
    pair.both("pong", 3, Pong(ping.number, 41, bound=True), RIGHT, NOW)
    for number in range(1, PATIENCE + 2):
        pair.both("tick", NOW + number * PING_NS)

    assert pair.both("emptied", 3, lambda: 1, NOW + D) == []
    assert pair.last[0] != "term decided"
    assert pair.both("emptied", 3, lambda: 1, NOW + 2 * D) != []
    assert pair.last == ("term decided", {"number": 3})
