"""Keeps the C library's heap small. It holds gRPC's memory, and Python objects of more than 512 bytes.

glibc gives threads arenas of their own, and returns only the free end of an arena to the kernel. So the agent would
keep what gRPC's threads needed for broken calls, and each change in the cluster would leave a few more nearly empty
pages. And once the agent has freed a large block, glibc takes the next block of that size from the arena, where it is
hard to return, instead of giving it a mapping of its own. With other C libraries, such as musl, this module does
nothing.
"""

import asyncio
import ctypes

TRIM_INTERVAL_S = 10.0
# malloc.h of glibc; arenas since 2.10.
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_LARGE = 128 * 1024  # bytes: what glibc begins with

_libc = ctypes.CDLL(None)


def keep_small() -> None:
    """Makes threads share the main arena, and keeps large blocks out of it (mallopt(3)). Call it with one thread."""
    if mallopt := getattr(_libc, "mallopt", None):
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, _LARGE)


class Trimming:
    """Returns free pages between blocks in use, too (malloc_trim(3), since glibc 2.8).

    The event loop waits meanwhile: 5 ms for 20 MB, and 0.4 µs for each gap, even if nothing is new.
    """

    async def run(self) -> None:
        """Runs until it is cancelled; returns at once if the C library cannot trim."""
        trim = getattr(_libc, "malloc_trim", None)
        while trim is not None:
            await asyncio.sleep(TRIM_INTERVAL_S)
            trim(0)
