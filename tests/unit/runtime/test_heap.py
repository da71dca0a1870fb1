"""The agent returns free memory between blocks in use to the kernel, and its threads share one arena."""

import asyncio
import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Barrier, Thread

import pytest

from arpguard.runtime import heap
from support.processes import resident_kib

TESTS = Path(__file__).parents[2]
BLOCK = 4000  # bytes: of the C library, not of Python's own allocator, and too few for a mapping of its own
BLOCKS = 16_000
SETTINGS = ("MALLOC_ARENA_MAX", "GLIBC_TUNABLES")  # of glibc
HELD_KIB = BLOCK * BLOCKS // 1024

needs_glibc = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="this C library is not glibc")


async def trim_until(is_enough: Callable[[], bool]) -> None:
    trimming = asyncio.create_task(heap.Trimming().run())
    async with asyncio.timeout(60):
        while not is_enough():  # noqa: ASYNC110 - the kernel tells of no such event
            await asyncio.sleep(0.01)
    trimming.cancel()


@needs_glibc
def test_what_is_free_between_blocks_in_use_is_given_back(monkeypatch):
    monkeypatch.setattr(heap, "TRIM_INTERVAL_S", 0.01)
    kept = [bytes(BLOCK) for _ in range(BLOCKS)][::16]
    before = resident_kib(os.getpid())

    asyncio.run(trim_until(lambda: before - resident_kib(os.getpid()) > HELD_KIB / 2))

    assert len(kept) == BLOCKS // 16


def count_arenas(*, one: bool) -> None:
    """Holds memory in eight threads at once, and prints malloc_info(3). Run it in a process of its own."""
    if one:
        heap.keep_to_one_arena()
    all_hold = Barrier(9)

    def hold() -> None:
        held = bytes(BLOCK)
        all_hold.wait()
        all_hold.wait()
        del held

    threads = [Thread(target=hold) for _ in range(8)]
    for thread in threads:
        thread.start()
    all_hold.wait()
    sys.stdout.flush()
    ctypes.CDLL(None).malloc_info(0, ctypes.c_void_p.in_dll(ctypes.CDLL(None), "stdout"))
    ctypes.CDLL(None).fflush(None)
    all_hold.wait()


@needs_glibc
@pytest.mark.parametrize(("one", "arenas"), [(True, 1), (False, 2)], ids=["kept to one", "as glibc has it"])
def test_threads_share_one_arena(one, arenas):
    code = f"from unit.runtime import test_heap; test_heap.count_arenas(one={one})"
    words = [sys.executable, "-c", code]
    environment = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    said = subprocess.run(words, cwd=TESTS, env=environment, capture_output=True, text=True, check=True).stdout
    found = said.count("<heap nr=")
    assert found == arenas if one else found >= arenas


def test_another_c_library_is_left_alone(monkeypatch):
    monkeypatch.setattr(heap, "_libc", object())
    heap.keep_to_one_arena()
    asyncio.run(heap.Trimming().run())
