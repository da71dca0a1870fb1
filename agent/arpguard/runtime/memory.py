"""Keeps the process small: gives back memory that the C library and the kernel hold for it needlessly.

The heap holds gRPC's memory, and Python objects of more than 512 bytes. glibc gives threads arenas of their own, and
returns only the free end of an arena to the kernel. So the agent would keep what gRPC's threads needed for broken
calls, and each change in the cluster would leave a few more nearly empty pages. And once the agent has freed a large
block, glibc takes the next block of that size from the arena, where it is hard to return, instead of giving it a
mapping of its own. With other C libraries, such as musl, the heap stays as it is.

The kernel maps the files of libraries page by page, as the agent uses them; most of these pages it uses only while it
starts.
"""

import asyncio
import ctypes
import gc
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

GIVE_BACK_INTERVAL_S = 10.0
# malloc.h of glibc; arenas since 2.10.
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_LARGE = 128 * 1024  # bytes: what glibc begins with
_MIDDLE_EVERY, _FULL_EVERY = 5, 1  # collections of the generation before; CPython begins with 10 of each
_MADV_DONTNEED = 4  # asm-generic/mman-common.h

_SMAPS = Path("/proc/self/smaps")  # kept: pathlib interns the parts of each new one

_libc = ctypes.CDLL(None)
_libc_locked = ctypes.PyDLL(None)  # its calls keep Python's lock, which a busy thread gives back only after 5 ms

Mapping: TypeAlias = tuple[str, str, str]  # as /proc/self/smaps has it: start and end in hexadecimal, path
_FIELDS = r"(?:[A-Z].*\n)*?"
_UNWRITTEN = re.compile(
    rf"^([0-9a-f]+)-([0-9a-f]+) r-[x-]p \S+ \S+ [1-9][0-9]* +(/.*)\n{_FIELDS}Anonymous: +0 kB\n{_FIELDS}Swap: +0 kB$",
    re.MULTILINE,
)


def keep_heap_small() -> None:
    """Makes threads share the main arena, and keeps large blocks out of it (mallopt(3)). Call it with one thread."""
    if mallopt := getattr(_libc, "mallopt", None):
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, _LARGE)


def freeze() -> None:
    """Keeps all objects that exist now out of garbage collections: with thousands of VIPs, each would take 0.1 s.

    Few objects come later, so full collections are cheap and can be frequent. Garbage that survives collections of the
    younger generations, such as messages of netlink, then takes less memory. But CPython begins a full collection only
    when there are a quarter as many new objects as the last one left, and counts the frozen ones among these; the
    second collection here leaves none.
    """
    gc.collect()
    gc.freeze()
    gc.collect()
    gc.set_threshold(gc.get_threshold()[0], _MIDDLE_EVERY, _FULL_EVERY)


def forget_names() -> None:
    """Empties CPython's cache of attributes, which keeps the name that was looked up last in each of its 4,096 places.

    Many names are made for one lookup, by `match` and by C code, and would stay until their places are needed.
    """
    if forget := getattr(sys, "_clear_type_cache", None):  # no public name; deprecated since 3.13
        forget()


class GivingBack:
    """Gives back free pages of the heap, also between blocks in use, and pages of files.

    This blocks the event loop: 5 ms for a heap of 20 MB and 0.4 µs for each gap, even if nothing is new, and 3 ms for
    the files where 50 MB are resident.
    """

    def __init__(self) -> None:
        self._seen: frozenset[Mapping] = frozenset()

    async def run(self) -> None:
        """Runs until it is cancelled."""
        while True:
            await asyncio.sleep(GIVE_BACK_INTERVAL_S)
            forget_names()
            if trim := getattr(_libc, "malloc_trim", None):  # malloc_trim(3), since glibc 2.8
                trim(0)
            self.unmap_files()

    def unmap_files(self) -> None:
        """Unmaps pages of libraries, which stay in the page cache; the kernel maps those in use again.

        Under memory pressure the kernel drops unmapped pages sooner, so it may have to read rarely used code from disk.
        Only read-only mappings count that hold nothing but the file's pages, now and a round ago: in newer ones, the
        loader's writes could be lost.
        """
        with suppress(OSError):
            found = unwritten(_SMAPS.read_text(encoding="utf-8", errors="replace"))
            for start, end, _ in found & self._seen:
                address, size = int(start, 16), int(end, 16) - int(start, 16)
                _libc_locked.madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), _MADV_DONTNEED)
            self._seen = found


def unwritten(smaps: str) -> frozenset[Mapping]:
    """The read-only mappings in /proc/PID/smaps whose pages are all the file's (proc(5))."""
    return frozenset(_UNWRITTEN.findall(smaps))
