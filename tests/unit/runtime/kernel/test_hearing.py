"""Reading reports at the cost of a share of a core."""

import asyncio
import os
from collections.abc import Iterator

import pytest

from arpguard.runtime.kernel.hearing import BURST_S, SHARE, Hearing


class Flooded:
    """Always readable; each round costs as much CPU as it is told. `enough` is set with the last of these."""

    def __init__(self, costs_s: list[float]) -> None:
        self.cpu_s = 0.0
        self.rounds = 0
        self.enough = asyncio.Event()
        self.costs_s = costs_s
        self._ends = os.pipe()
        os.write(self._ends[1], b"x")

    def fileno(self) -> int:
        return self._ends[0]

    def consume(self) -> int:
        self.cpu_s += self.costs_s[min(self.rounds, len(self.costs_s) - 1)]
        self.rounds += 1
        if self.rounds == len(self.costs_s):
            self.enough.set()
        return 256

    def close(self) -> None:
        for end in self._ends:
            os.close(end)


@pytest.fixture
def pauses(monkeypatch) -> list[float]:
    """What the loop is asked to wait; its clock goes on by that much, and by nothing else."""
    asked: list[float] = []
    later = asyncio.BaseEventLoop.call_later

    def soon(loop, delay, callback, *args, **words):
        asked.append(delay)
        return later(loop, 0, callback, *args, **words)

    monkeypatch.setattr(asyncio.BaseEventLoop, "call_later", soon)
    monkeypatch.setattr(asyncio.BaseEventLoop, "time", lambda _: 1000 + sum(asked))
    return asked


@pytest.fixture
def flooded() -> Iterator[Flooded]:
    source = Flooded([BURST_S, 0.004, 0.001, 0.0, 0.0])
    yield source
    source.close()


def hear(flooded: Flooded) -> None:
    async def until_enough() -> None:
        with Hearing(flooded, lambda: flooded.cpu_s):
            await flooded.enough.wait()

    asyncio.run(until_enough())


def test_a_burst_is_heard_at_once_and_what_costs_more_after_a_pause(flooded, pauses):
    hear(flooded)
    assert [round(pause, 6) for pause in pauses if pause > 1e-9] == [round(cost / SHARE, 6) for cost in (0.004, 0.001)]


def test_what_was_paid_for_in_time_counts_no_more(flooded, pauses):
    """After a pause the account is even; nothing is saved up by it."""
    flooded.costs_s = [BURST_S, BURST_S, BURST_S, BURST_S]
    hear(flooded)
    assert pauses == pytest.approx([BURST_S / SHARE] * 3)
    assert flooded.cpu_s / (sum(pauses) + BURST_S / SHARE) == pytest.approx(SHARE)


def test_one_round_that_cost_a_lot_is_not_paid_for_with_a_long_silence(flooded, pauses):
    flooded.costs_s = [60.0, 0.004, 0.0]
    hear(flooded)
    assert [pause for pause in pauses if pause > 1e-9] == pytest.approx([BURST_S / SHARE, 0.004 / SHARE])


def test_nothing_is_heard_after_the_end(flooded, pauses):
    async def go_on() -> int:
        with Hearing(flooded, lambda: flooded.cpu_s):
            await flooded.enough.wait()
        heard = flooded.rounds
        for _ in range(10):
            await asyncio.sleep(0)
        return heard

    assert asyncio.run(go_on()) == flooded.rounds
