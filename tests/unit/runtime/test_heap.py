"""Memory that is free goes back to the kernel: between blocks in use; and threads share one arena."""

import asyncio
import ctypes
import subprocess
import sys
from pathlib import Path
from threading import Barrier, Thread

import pytest

from arpguard.runtime import heap

BLOCK = 4000  # bytes: of the C library, not of Python's own allocator, and too few for a mapping of its own
BLOCKS = 16_000
HELD_KIB = BLOCK * BLOCKS // 1024

needs_glibc = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="this C library is not glibc")


def resident_kib() -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


async def trim_for_a_while() -> None:
    try:
        async with asyncio.timeout(0.5):
            await heap.Trimming().run()
    except TimeoutError:
        pass


@needs_glibc
def test_what_is_free_between_blocks_in_use_is_given_back(monkeypatch):
    monkeypatch.setattr(heap, "TRIM_INTERVAL_S", 0.01)
    kept = [bytes(BLOCK) for _ in range(BLOCKS)][::16]
    before = resident_kib()

    asyncio.run(trim_for_a_while())

    assert len(kept) == BLOCKS // 16
    assert before - resident_kib() > HELD_KIB / 2


def count_arenas(*, one: bool) -> None:
    """Prints how many arenas eight threads have that hold memory at the same time. In a process of its own."""
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
    code = f"import test_heap; test_heap.count_arenas(one={one})"
    words = [sys.executable, "-c", code]
    said = subprocess.run(words, cwd=Path(__file__).parent, capture_output=True, text=True, check=True).stdout
    found = said.count("<heap nr=")
    assert found == arenas if one else found >= arenas


def test_another_c_library_is_left_alone(monkeypatch):
    monkeypatch.setattr(heap, "_libc", object())
    heap.keep_to_one_arena()
    asyncio.run(heap.Trimming().run())
