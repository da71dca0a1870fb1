"""What the lab waits for is bounded by what goes on, not by how fast a machine is."""

from ipaddress import IPv4Address
from types import SimpleNamespace

import pytest

from arpguard.addresses import MacAddress
from arpguard.errors import DataPlaneError
from arpguard_lab import patience
from arpguard_lab.cluster import bench as benches
from arpguard_lab.cluster import scenarios
from arpguard_lab.cluster.bench import KubeBench

A, B = MacAddress.parse("02:00:00:00:00:01"), MacAddress.parse("02:00:00:00:00:02")
VIPS = [IPv4Address("198.18.0.0") + number for number in range(1, 6)]
LIMIT_S = 10.0


class Clock:
    """Goes on by so much each time that somebody is asked."""

    def __init__(self, step_s: float) -> None:
        self.now_s, self._step_s = 0.0, step_s

    def monotonic(self) -> float:
        return self.now_s

    def tick(self) -> None:
        self.now_s += self._step_s


def a_bench(clock: Clock, answers) -> KubeBench:
    """Asked for the n-th time, `answers(n)` of the VIPs are answered for by one node."""
    bench = KubeBench.__new__(KubeBench)
    bench.lab = SimpleNamespace(nodes=[SimpleNamespace(mac=A)], who=str)
    count = 0

    def who(*vips):
        nonlocal count
        count += 1
        clock.tick()
        return {vip: [A] if number < answers(count) else [] for number, vip in enumerate(vips)}

    bench.who = who
    return bench


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock(LIMIT_S * 0.9)
    for module in (benches, scenarios, patience):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(patience, "_without_cpu_s", lambda: 0.0)
    return clock


def test_many_vips_may_take_long_as_long_as_there_are_ever_more(clock):
    a_bench(clock, lambda asked: asked).settle(VIPS, limit_s=LIMIT_S)
    assert clock.now_s > 4 * LIMIT_S


def test_it_is_over_once_there_are_no_more_of_them(clock):
    with pytest.raises(DataPlaneError, match="no progress within 10 s") as raised:
        a_bench(clock, lambda asked: min(asked, 3)).settle(VIPS, limit_s=LIMIT_S)
    assert all(str(vip) in str(raised.value) for vip in VIPS[3:])
    assert str(VIPS[0]) not in str(raised.value)


def test_an_answer_that_was_not_heard_is_asked_for_again_and_a_second_one_counts(clock):
    clock._step_s = 0.1
    replies = iter([{VIPS[0]: [A], VIPS[1]: [], VIPS[2]: [A, B]}, {VIPS[1]: [B]}])
    bench = SimpleNamespace(who=lambda *_vips: next(replies))
    found = KubeBench.who_in_the_end(bench, VIPS[:3], lambda _, macs: bool(macs))
    assert found == {VIPS[0]: {A}, VIPS[1]: {B}, VIPS[2]: {A, B}}
