"""What grpc.aio logs with a traceback, and is no failure of the agent, is left out of the log."""

import asyncio
import logging

import grpc
import pytest

from arpguard.api import calls  # noqa: F401 - sets the filter


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (grpc.aio.InternalError('Failed "execute_batch"'), False),
        (asyncio.CancelledError(), False),
        (RuntimeError("a bug"), True),
        (grpc.aio.UsageError("a bug"), True),
    ],
    ids=repr,
)
def test_caller_that_has_gone_is_no_news_and_a_bug_is(caplog, error, told):
    logging.getLogger("grpc._cython.cygrpc").error("raised by servicer method", exc_info=error)

    assert bool(caplog.records) is told


def test_line_without_an_error_is_told(caplog):
    logging.getLogger("grpc._cython.cygrpc").warning("something else")

    assert [record.getMessage() for record in caplog.records] == ["something else"]
