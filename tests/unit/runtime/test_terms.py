"""The cluster's secret is asked for ever more rarely while it cannot be read."""

import asyncio
import itertools

from arpguard.errors import ArpguardError
from arpguard.runtime.cluster.terms import Terms

REFUSED = 20


def test_secret_that_cannot_be_read_is_asked_for_ever_more_rarely(monkeypatch):
    waits, asked = [], itertools.count()

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async def read_secret(_name: str) -> bytes:
        if next(asked) < REFUSED:
            raise ArpguardError("refused")
        return b"s" * 32

    monkeypatch.setattr("arpguard.runtime.cluster.terms.asyncio.sleep", sleep)
    terms = Terms(None, read_secret)
    asyncio.run(terms.learn_secret("arpguard-vouching"))

    assert terms.ready
    assert terms.problem == ""
    assert len(waits) == REFUSED
    assert sum(waits[:3]) > 8, "three reads in the first eight seconds"
    assert all(30 <= wait <= 60 for wait in waits[6:])
