"""The agent's event loop keeps running while a thread waits for the kernel."""

import asyncio
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from arpguard.errors import DataPlaneError
from arpguard.runtime import inthread
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
async def test_the_loop_keeps_running_meanwhile():
    lock = Lock()
    asked = asyncio.create_task(in_thread(lock.work))
    await until(lock.begun.is_set)
    lock.free.set()  # a blocked event loop would never get here
    assert await asked == "links"


@in_loop
async def test_after_a_while_the_loop_waits_too(monkeypatch):
    """An agent that cannot look at its node must not renew its claims for ever."""
    monkeypatch.setattr(inthread, "PATIENCE_S", 0.05)
    lock, turns = Lock(), [0]

    async def go_round() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0.001)

    def free_once_the_loop_waits() -> bool:
        lock.begun.wait()
        for _ in range(50):
            before = turns[0]
            time.sleep(0.2)
            if turns[0] == before:
                break
        lock.free.set()
        return turns[0] == before

    going = asyncio.create_task(go_round())
    with ThreadPoolExecutor(1) as pool:
        freed = pool.submit(free_once_the_loop_waits)
        assert await in_thread(lock.work) == "links"
        assert freed.result()
    going.cancel()


@in_loop
async def test_an_agent_that_gets_no_thread_is_told_so(monkeypatch):
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(inthread, "_pool", ThreadPoolExecutor(1))
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(DataPlaneError, match="cannot start a thread that asks the kernel"):
        await in_thread(Lock().work)


@in_loop
async def test_an_agent_that_has_too_many_files_open_is_told_so(monkeypatch):
    monkeypatch.setattr(inthread, "_runner", asyncio.Runner())
    monkeypatch.setattr(asyncio.events, "new_event_loop", lambda: os.open("/nowhere/at/all", os.O_RDONLY))
    with pytest.raises(DataPlaneError, match="cannot begin to ask the kernel"):
        await in_thread(Lock().work)


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
