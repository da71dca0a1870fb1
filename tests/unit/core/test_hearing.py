"""When a link is deaf: nothing comes in over it, while others hear each other."""

from collections import Counter

from arpguard.core.vouching.hearing import LOOK_NS, SILENT_NS, LinkHearing
from arpguard.units import NS_PER_S

NOW = 1000 * NS_PER_S


class Ear:
    """A node that un-bound at NOW; `frames` have come in by link."""

    def __init__(self, link: str = "eth0") -> None:
        self.frames = Counter({"eth0": 7, "eth1": 9})
        self.hearing = LinkHearing(self.frames.__getitem__)
        self.hearing.look(0, link, others_bound=True, now_ns=NOW - NS_PER_S)
        self.next_ns = self.look(0, link=link)

    def look(self, after_ns: int, *, unbinds: int = 1, link: str = "eth0", others_bound: bool = True) -> int | None:
        return self.hearing.look(unbinds, link, others_bound=others_bound, now_ns=NOW + after_ns)


def test_a_link_over_which_nothing_came_for_a_second_is_deaf():
    ear = Ear()
    assert (ear.hearing.deaf, ear.next_ns) == ("", NOW + LOOK_NS)
    ear.look(SILENT_NS - 1)
    assert ear.hearing.deaf == ""
    assert ear.look(SILENT_NS) == NOW + 2 * SILENT_NS
    assert ear.hearing.deaf == "eth0"


def test_it_is_deaf_until_a_frame_comes():
    ear = Ear()
    ear.look(SILENT_NS)
    ear.look(60 * NS_PER_S, others_bound=False)  # it learns nothing of others then
    assert ear.hearing.deaf == "eth0"

    ear.frames["eth0"] += 1
    assert ear.look(61 * NS_PER_S) is None
    assert ear.hearing.deaf == ""


def test_any_frame_of_that_link_counts_and_none_of_another():
    ear = Ear()
    ear.frames["eth0"] += 1
    assert ear.look(1) is None
    ear.look(SILENT_NS)
    assert ear.hearing.deaf == ""

    ear = Ear()
    ear.frames["eth1"] += 1
    ear.look(SILENT_NS)
    assert ear.hearing.deaf == "eth0"


def test_no_link_is_deaf_until_others_are_bound():
    ear = Ear()
    assert ear.look(SILENT_NS, others_bound=False) is None
    assert ear.hearing.deaf == ""
    ear.look(9 * SILENT_NS)
    assert ear.hearing.deaf == "eth0"


def test_a_second_un_bind_does_not_begin_the_second_anew():
    ear = Ear()
    ear.look(SILENT_NS - 1, unbinds=2)
    ear.look(SILENT_NS, unbinds=2)
    assert ear.hearing.deaf == "eth0"


def test_without_an_un_bind_or_a_link_to_the_voucher_nothing_is_counted():
    ear = Ear(link="")
    assert ear.next_ns is None
    ear.look(SILENT_NS)
    assert ear.hearing.deaf == ""

    calm = LinkHearing(Counter({"eth0": 7}).__getitem__)
    assert calm.look(0, "eth0", others_bound=True, now_ns=NOW) is None
    assert calm.look(0, "eth0", others_bound=True, now_ns=NOW + SILENT_NS) is None
    assert calm.deaf == ""
