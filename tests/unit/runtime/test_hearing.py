"""Reading reports at the cost of a share of a core."""

import asyncio
import os
from collections.abc import Iterator

import pytest

from arpguard.runtime.hearing import SHARE, Hearing


class Flooded:
    """Always readable; each round costs as much CPU as it is told. `enough` is set with the last of these."""

    def __init__(self, costs_s: list[float]) -> None:
        self.cpu_s = 0.0
        self.rounds = 0
        self.enough = asyncio.Event()
        self._costs_s = costs_s
        self._ends = os.pipe()
        os.write(self._ends[1], b"x")

    def fileno(self) -> int:
        return self._ends[0]

    def consume(self) -> int:
        self.cpu_s += self._costs_s[min(self.rounds, len(self._costs_s) - 1)]
        self.rounds += 1
        if self.rounds == len(self._costs_s):
            self.enough.set()
        return 256

    def close(self) -> None:
        for end in self._ends:
            os.close(end)


@pytest.fixture
def pauses(monkeypatch) -> list[float]:
    """What the loop is asked to wait, and does not."""
    asked: list[float] = []
    later = asyncio.BaseEventLoop.call_later

    def soon(loop, delay, callback, *args, **words):
        asked.append(delay)
        return later(loop, 0, callback, *args, **words)

    monkeypatch.setattr(asyncio.BaseEventLoop, "call_later", soon)
    return asked


@pytest.fixture
def flooded() -> Iterator[Flooded]:
    source = Flooded([0.004, 0.001, 0.0])
    yield source
    source.close()


def test_each_round_is_followed_by_a_pause_as_long_as_it_cost(flooded, pauses):
    async def hear() -> None:
        with Hearing(flooded, lambda: flooded.cpu_s):
            await flooded.enough.wait()

    asyncio.run(hear())
    spent = [0.004, 0.001, 0.0]
    assert pauses[:3] == pytest.approx([cost / SHARE - cost for cost in spent])
    assert [cost / (cost + pause) for cost, pause in zip(spent[:2], pauses, strict=False)] == pytest.approx([SHARE] * 2)


def test_nothing_is_heard_after_the_end(flooded, pauses):
    async def hear() -> int:
        with Hearing(flooded, lambda: flooded.cpu_s):
            await flooded.enough.wait()
        heard = flooded.rounds
        for _ in range(10):
            await asyncio.sleep(0)
        return heard

    assert asyncio.run(hear()) == flooded.rounds
