"""The agent gives back free memory and unused pages of files; its threads share one arena, without large blocks."""

import asyncio
import ctypes
import mmap
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Barrier, Thread

import pytest

from arpguard.runtime import memory
from arpguard.runtime.memory import GivingBack, unwritten
from support.processes import resident_kib

TESTS = Path(__file__).parents[2]
BLOCK = 4000  # bytes: of the C library, not of Python's own allocator, and too few for a mapping of its own
BLOCKS = 16_000
LARGE = 2_000_000  # bytes
SETTINGS = ("MALLOC_ARENA_MAX", "GLIBC_TUNABLES")  # of glibc
HELD_KIB = BLOCK * BLOCKS // 1024

needs_glibc = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="this C library is not glibc")


async def trim_until(is_enough: Callable[[], bool]) -> None:
    giving_back = asyncio.create_task(GivingBack().run())
    async with asyncio.timeout(60):
        while not is_enough():  # noqa: ASYNC110 - the kernel tells of no such event
            await asyncio.sleep(0.01)
    giving_back.cancel()


@needs_glibc
def test_what_is_free_between_blocks_in_use_is_given_back(monkeypatch):
    monkeypatch.setattr(memory, "GIVE_BACK_INTERVAL_S", 0.01)
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
    first = "test_memory.memory.keep_heap_small(); " if small else ""
    code = f"from unit.runtime import test_memory; {first}test_memory.{function.__name__}()"
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


def test_a_name_that_was_made_for_one_lookup_is_forgotten(monkeypatch):
    monkeypatch.setattr(memory, "GIVE_BACK_INTERVAL_S", 0.001)
    name = f"name_{os.getpid()}"
    before = sys.getrefcount(name)
    assert getattr(int, name, None) is None
    assert sys.getrefcount(name) > before, "CPython keeps it"

    asyncio.run(trim_until(lambda: sys.getrefcount(name) == before))


def test_another_c_librarys_heap_is_left_alone(monkeypatch):
    rounds = []
    monkeypatch.setattr(memory, "_libc", object())
    monkeypatch.setattr(memory, "GIVE_BACK_INTERVAL_S", 0.001)
    monkeypatch.setattr(GivingBack, "unmap_files", lambda _self: rounds.append(1))
    memory.keep_heap_small()
    asyncio.run(trim_until(lambda: len(rounds) > 1))


# ---- pages of files ----------------------------------------------------------------------------------------------

PAGES = 64
SMAPS = """\
7f0000000000-7f0000010000 {mode} {offset} {device} {inode}                   {path}
Size:                 64 kB
Rss:                  64 kB
Anonymous:         {anonymous:>6} kB
KSM:                   0 kB
Swap:              {swap:>6} kB
SwapPss:               0 kB
VmFlags: rd mr mw me sd
7f0000020000-7f0000021000 rw-p 00000000 00:00 0
Size:                  4 kB
Anonymous:             0 kB
Swap:                  0 kB
"""
LIBRARY = {
    "mode": "r-xp",
    "offset": "00000000",
    "device": "fe:00",
    "inode": "131",
    "path": "/usr/lib/a library.so",
    "anonymous": 0,
    "swap": 0,
}


@pytest.mark.parametrize("mode", ["r-xp", "r--p"])
def test_a_librarys_code_and_constants_may_go(mode):
    assert unwritten(SMAPS.format(**LIBRARY | {"mode": mode})) == {
        ("7f0000000000", "7f0000010000", "/usr/lib/a library.so")
    }


@pytest.mark.parametrize(
    "otherwise",
    [
        {"mode": "rw-p"},
        {"mode": "r--s"},
        {"mode": "---p"},
        {"anonymous": 4},
        {"swap": 4},
        {"inode": "0", "device": "00:00", "path": ""},
        {"inode": "0", "device": "00:00", "path": "[vdso]"},
    ],
    ids=["writable", "shared", "no access", "relocated", "relocated and swapped out", "no file", "the kernel's"],
)
def test_what_is_not_as_in_a_file_stays(otherwise):
    assert unwritten(SMAPS.format(**LIBRARY | otherwise)) == frozenset()


@pytest.fixture
def mapping(tmp_path) -> Iterator[tuple[mmap.mmap, int]]:
    """A private mapping of a file whose pages are all there, and where it is."""
    path = tmp_path / "file"
    path.write_bytes(b"from the file".ljust(mmap.PAGESIZE) * PAGES)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as made:
        assert made[:: mmap.PAGESIZE] == b"f" * PAGES
        view = ctypes.c_char.from_buffer(made)
        yield made, ctypes.addressof(view)
        del view


def protect(address: int) -> None:
    """Makes it read-only, as the loader does with what it has relocated."""
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address), PAGES * mmap.PAGESIZE, mmap.PROT_READ) == 0


def resident_pages(address: int) -> int:
    """How many pages of a mapping this process has."""
    found = re.search(
        rf"^{address:x}-.*\n(?:[A-Z].*\n)*?Rss: +(\d+) kB", Path("/proc/self/smaps").read_text(), re.MULTILINE
    )
    return int(found[1]) * 1024 // mmap.PAGESIZE


def test_pages_go_only_when_their_mapping_was_there_the_last_time_too(mapping):
    made, address = mapping
    protect(address)
    giving_back = GivingBack()
    giving_back.unmap_files()
    assert resident_pages(address) == PAGES
    giving_back.unmap_files()
    assert resident_pages(address) == 0
    assert made[:13] == b"from the file"


def test_what_was_written_before_a_mapping_became_read_only_stays(mapping):
    made, address = mapping
    made[:13] = b"relocated now"
    protect(address)
    giving_back = GivingBack()
    for _ in range(3):
        giving_back.unmap_files()
    assert made[:13] == b"relocated now"


def test_a_process_with_libraries_goes_on_with_a_third_of_their_pages():
    code = """
import grpc.aio, re, ssl
from arpguard.runtime.memory import GivingBack

def file_kib():
    return int(re.search(r"RssFile:\\s+(\\d+)", open("/proc/self/status").read())[1])

before, giving_back = file_kib(), GivingBack()
for _ in range(3):
    giving_back.unmap_files()
after = file_kib()
ssl.create_default_context()
grpc.aio.init_grpc_aio()
print(before, after)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert after < before / 3


def test_frozen_objects_do_not_let_garbage_pile_up():
    """Cycles that live through young collections wait for a full one, as messages of netlink do."""
    code = """
import gc
from arpguard.runtime import memory

FROZEN, ROUNDS, HELD = 200_000, 100, 3_000

kept = [[number] for number in range(FROZEN)]
memory.freeze()
assert gc.get_freeze_count() > FROZEN

most, held = 0, []
for _ in range(ROUNDS):
    held.clear()
    for _ in range(HELD):
        cycle = []
        cycle.append(cycle)
        held.append(cycle)
    most = max(most, len(gc.get_objects()))
print(most / FROZEN)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 1 / 20
