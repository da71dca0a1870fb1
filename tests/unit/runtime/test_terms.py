"""The cluster's secret: how often it is asked for while it cannot be read, and when that is a problem."""

import asyncio
import itertools
import logging
from types import SimpleNamespace

import pytest

from arpguard.config.model import LeaseConfig, VouchingConfig
from arpguard.errors import ArpguardError
from arpguard.kube.clustersecret import NoRightError
from arpguard.runtime.cluster.outlook import Outlook
from arpguard.runtime.cluster.terms import Terms

REFUSED = 20


ASKED, UNASKED = VouchingConfig(asked=True), VouchingConfig()


def here(vouching: VouchingConfig) -> SimpleNamespace:
    return SimpleNamespace(outlook=Outlook(LeaseConfig(vouching=vouching)))


def test_secret_that_cannot_be_read_is_asked_for_ever_more_rarely(monkeypatch):
    waits, asked = [], itertools.count()

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async def read_secret(_name: str) -> bytes:
        if next(asked) < REFUSED:
            raise ArpguardError("refused")
        return b"s" * 32

    monkeypatch.setattr("arpguard.runtime.cluster.terms.asyncio.sleep", sleep)
    terms = Terms(here(ASKED), read_secret)
    asyncio.run(terms.learn_secret("arpguard-vouching"))

    assert terms.ready
    assert terms.problem == ""
    assert len(waits) == REFUSED
    assert sum(waits[:3]) > 8, "three reads in the first eight seconds"
    assert all(30 <= wait <= 60 for wait in waits[6:])


@pytest.mark.parametrize(
    ("vouching", "error", "problem", "lacks_right"),
    [
        pytest.param(UNASKED, NoRightError("403"), "", True, id="nobody asked"),
        pytest.param(ASKED, NoRightError("403"), "403", False, id="asked"),
        pytest.param(UNASKED, ArpguardError("no key"), "no key", False, id="not a right"),
    ],
)
def test_missing_right_is_a_problem_only_where_vouching_is_asked_for(
    caplog, monkeypatch, vouching, error, problem, lacks_right
):
    asked, seen = itertools.count(), []

    async def sleep(_seconds: float) -> None:
        seen.append((terms.problem, terms.lacks_right))

    async def read_secret(_name: str) -> bytes:
        if next(asked) < REFUSED:
            raise error
        return b"s" * 32

    monkeypatch.setattr("arpguard.runtime.cluster.terms.asyncio.sleep", sleep)
    caplog.set_level(logging.INFO, "arpguard")
    terms = Terms(here(vouching), read_secret)
    asyncio.run(terms.learn_secret("arpguard-vouching"))

    assert seen == [(problem, lacks_right)] * REFUSED
    assert (terms.problem, terms.lacks_right) == ("", False)
    lines = [record.getMessage() for record in caplog.records if "has no voucher" in record.getMessage()]
    assert lines == (["vouching: this node has no voucher: 403"] if lacks_right else [])


def test_server_that_was_away_leaves_no_problem_where_only_the_right_is_missing(caplog, monkeypatch):
    errors, seen = iter([NoRightError("403"), ArpguardError("away"), NoRightError("403")]), []

    async def sleep(_seconds: float) -> None:
        seen.append((terms.problem, terms.lacks_right))

    async def read_secret(_name: str) -> bytes:
        error = next(errors, None)
        if error is None:
            return b"s" * 32
        raise error

    monkeypatch.setattr("arpguard.runtime.cluster.terms.asyncio.sleep", sleep)
    caplog.set_level(logging.INFO, "arpguard")
    terms = Terms(here(UNASKED), read_secret)
    asyncio.run(terms.learn_secret("arpguard-vouching"))

    assert seen == [("", True), ("away", False), ("", True)]
    assert sum("has no voucher" in record.getMessage() for record in caplog.records) == 1
