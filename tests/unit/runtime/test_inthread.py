"""The event loop goes on while a thread waits for the kernel."""

import asyncio
import threading

import pytest

from arpguard.errors import DataPlaneError
from arpguard.runtime.inthread import in_thread
from support.kube.scripted_server import in_loop, until


class Lock:
    """What work waits for, and whether it came to its end."""

    def __init__(self) -> None:
        self.begun, self.free = threading.Event(), threading.Event()
        self.is_done = False

    async def work(self) -> str:
        self.begun.set()
        await asyncio.sleep(0)  # it may use a loop
        self.free.wait()
        self.is_done = True
        return "links"


@in_loop
async def test_the_loop_goes_on_meanwhile():
    lock = Lock()
    asked = asyncio.create_task(in_thread(lock.work))
    await until(lock.begun.is_set)
    lock.free.set()  # only a loop that goes on comes here
    assert await asked == "links"


@in_loop
async def test_what_fails_there_is_raised_here():
    async def fail() -> None:
        raise DataPlaneError("no links")

    with pytest.raises(DataPlaneError, match="no links"):
        await in_thread(fail)


@in_loop
async def test_a_caller_that_is_cancelled_leaves_no_work_behind():
    """Otherwise an agent that ends would remove its guard, and the thread would attach it again."""
    lock = Lock()
    asked = asyncio.create_task(in_thread(lock.work))
    await until(lock.begun.is_set)
    asked.cancel()
    threading.Timer(0.05, lock.free.set).start()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert lock.is_done
