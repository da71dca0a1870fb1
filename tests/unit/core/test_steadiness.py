"""Which links are believed to be up."""

import pytest

from arpguard.addresses import MacAddress
from arpguard.core.steadiness import CALM_NS, FIRST_WAIT_NS, LONGEST_WAIT_NS, MOST, Steadiness
from arpguard.model import Link
from arpguard.units import NS_PER_MS, NS_PER_S

START_NS = 10**15


def a_link(name: str = "eth0", *, up: bool = True, ifindex: int = 2) -> Link:
    return Link(ifindex, name, MacAddress(bytes((2, 0, 0, 0, 0, ifindex))), up=up)


UP, DOWN = a_link(), a_link(up=False)


class Scene:
    """One link over time; times are nanoseconds since the beginning."""

    def __init__(self) -> None:
        self.steadiness = Steadiness()

    def at(self, when_ns: int, *links: Link) -> list[str]:
        return [link.name for link in self.steadiness.steady(links, START_NS + when_ns)]

    def believed_ns(self, when_ns: int) -> int:
        """When the link is believed by itself; that it may be earlier is told before."""
        while (later_ns := self.steadiness.next_ns(START_NS + when_ns)) is not None:
            when_ns = later_ns - START_NS
        return when_ns

    def bounce(self, when_ns: int) -> None:
        assert self.at(when_ns, DOWN) == []
        self.at(when_ns, UP)


def test_link_that_is_seen_for_the_first_time_is_believed():
    assert Scene().at(0, UP) == ["eth0"]


def test_link_that_was_never_up_is_believed_when_it_comes():
    scene = Scene()

    assert scene.at(0, DOWN) == []
    assert scene.at(1, UP) == ["eth0"]


@pytest.mark.parametrize("gone", [(DOWN,), ()], ids=["down", "missing"])
def test_lost_link_is_believed_again_after_a_second(gone):
    scene = Scene()
    scene.at(0, UP)

    assert scene.at(NS_PER_S, *gone) == []
    assert scene.at(2 * NS_PER_S, UP) == []
    assert scene.at(2 * NS_PER_S + FIRST_WAIT_NS - 1, UP) == []
    assert scene.at(2 * NS_PER_S + FIRST_WAIT_NS, UP) == ["eth0"]


def test_device_that_was_replaced_is_the_same_link():
    scene = Scene()
    scene.at(0, UP)
    scene.at(1, DOWN)

    assert scene.at(2, a_link(ifindex=9)) == []


def test_link_that_goes_up_and_down_all_the_time_is_not_believed():
    scene = Scene()
    scene.at(0, UP)
    for number in range(600):
        scene.bounce(number * 100 * NS_PER_MS)
        assert scene.at(number * 100 * NS_PER_MS + 50 * NS_PER_MS, UP) == []


def test_wait_doubles_with_every_loss_and_has_an_end():
    """Whenever it is believed, it is lost: in an hour that is so few times that nobody feels it."""
    scene = Scene()
    scene.at(0, UP)
    now_ns, waits = 0, []
    for _ in range(9):
        scene.bounce(now_ns)
        believed_ns = scene.believed_ns(now_ns)
        waits.append((believed_ns - now_ns) // NS_PER_S)
        now_ns = believed_ns
        assert scene.at(now_ns, UP) == ["eth0"]

    assert waits == [1, 2, 4, 8, 16, 32, 32, 32, 32]
    assert LONGEST_WAIT_NS == 32 * NS_PER_S


def test_losses_are_forgotten_after_a_calm_minute():
    scene = Scene()
    scene.at(0, UP)
    scene.bounce(0)
    scene.bounce(1)
    calm_ns = 1 + 2 * FIRST_WAIT_NS + CALM_NS
    scene.bounce(calm_ns)

    assert scene.at(calm_ns + FIRST_WAIT_NS, UP) == ["eth0"]


def test_one_link_does_not_wait_for_another():
    scene = Scene()
    scene.at(0, UP, a_link("eth1", ifindex=3))
    scene.at(1, DOWN, a_link("eth1", ifindex=3))

    assert scene.at(2, UP, a_link("eth1", ifindex=3)) == ["eth1"]


def test_there_is_nothing_to_wait_for_while_it_is_down_or_believed():
    scene = Scene()
    scene.at(0, UP)
    assert scene.steadiness.next_ns(START_NS) is None
    scene.at(1, DOWN)

    assert scene.steadiness.next_ns(START_NS + 1) is None


def test_links_that_never_come_back_are_forgotten():
    """Where each container brings a link of its own name; what flaps is remembered longer."""
    scene = Scene()
    seen = MOST + MOST // 4
    for number in range(seen):
        scene.at(2 * number * NS_PER_MS, a_link(f"veth{number}"))
        scene.at((2 * number + 1) * NS_PER_MS, a_link(f"veth{number}", up=False))

    assert len(scene.steadiness._records) <= MOST + 1
    last = 2 * seen * NS_PER_MS
    assert scene.at(last, a_link(f"veth{seen - 1}"), a_link("veth0")) == ["veth0"]


def test_links_that_are_up_are_all_remembered():
    scene = Scene()
    links = [a_link(f"eth{number}") for number in range(MOST + 100)]
    scene.at(0, *links)
    scene.at(NS_PER_S, *links)

    assert len(scene.steadiness._records) == MOST + 100


def test_link_that_is_held_back_may_be_believed_after_the_first_wait_and_until_it_is_lost():
    scene = Scene()
    scene.at(0, UP)
    for number in range(3):
        scene.bounce(number)
    steadiness, back_ns = scene.steadiness, START_NS + 2
    assert steadiness.held_back([UP], back_ns + FIRST_WAIT_NS - 1) == ()
    assert steadiness.next_ns(back_ns) == back_ns + FIRST_WAIT_NS
    assert steadiness.held_back([UP], back_ns + FIRST_WAIT_NS) == (UP,)
    assert steadiness.next_ns(back_ns + FIRST_WAIT_NS) == back_ns + 4 * FIRST_WAIT_NS
    assert steadiness.held_back([UP], back_ns + 4 * FIRST_WAIT_NS) == ()

    steadiness.believe("eth0", back_ns + FIRST_WAIT_NS)

    assert steadiness.held_back([UP], back_ns + FIRST_WAIT_NS) == ()
    assert steadiness.steady([UP], back_ns + FIRST_WAIT_NS) == (UP,)
    assert steadiness.next_ns(back_ns + FIRST_WAIT_NS) is None
    scene.bounce(10 * NS_PER_S)
    assert scene.at(10 * NS_PER_S + 8 * FIRST_WAIT_NS - 1, UP) == []
    assert scene.at(10 * NS_PER_S + 8 * FIRST_WAIT_NS, UP) == ["eth0"]


def test_only_links_that_are_up_are_held_back():
    scene = Scene()
    scene.at(0, UP)
    scene.at(1, DOWN)

    assert scene.steadiness.held_back([DOWN, a_link("eth1", ifindex=3)], START_NS + 2 * FIRST_WAIT_NS) == ()
