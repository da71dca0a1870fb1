"""The agent returns free memory to the kernel, its threads share one arena, and large blocks are kept out of that."""

import asyncio
import ctypes
import os
import re
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
LARGE = 2_000_000  # bytes
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


def count_arenas() -> None:
    """Holds memory in eight threads at once, and says how the heap is then."""
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
    describe_heap()
    all_hold.wait()


def hold_a_large_block() -> None:
    """After another one was freed; says how the heap is then."""
    held = bytes(LARGE)
    del held
    held = bytes(LARGE)
    describe_heap()
    del held


def describe_heap() -> None:
    """Prints malloc_info(3)."""
    sys.stdout.flush()
    ctypes.CDLL(None).malloc_info(0, ctypes.c_void_p.in_dll(ctypes.CDLL(None), "stdout"))
    ctypes.CDLL(None).fflush(None)


def described(function: Callable[[], None], *, small: bool) -> str:
    """What such a function says of the heap of a process of its own, that is kept small or not."""
    first = "test_heap.heap.keep_small(); " if small else ""
    code = f"from unit.runtime import test_heap; {first}test_heap.{function.__name__}()"
    environment = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=TESTS, env=environment, capture_output=True, text=True, check=True
    ).stdout


@needs_glibc
@pytest.mark.parametrize("small", [True, False], ids=["kept small", "as glibc has it"])
def test_threads_share_one_arena(small):
    found = described(count_arenas, small=small).count("<heap nr=")
    assert found == 1 if small else found > 1


@needs_glibc
@pytest.mark.parametrize("small", [True, False], ids=["kept small", "as glibc has it"])
def test_a_large_block_has_a_mapping_of_its_own_also_after_one_was_freed(small):
    found = re.search(r'<total type="mmap" count="(\d+)" size="(\d+)"', described(hold_a_large_block, small=small))
    assert (int(found[2]) >= LARGE) is small, found[0]


def test_another_c_library_is_left_alone(monkeypatch):
    monkeypatch.setattr(heap, "_libc", object())
    heap.keep_small()
    asyncio.run(heap.Trimming().run())
