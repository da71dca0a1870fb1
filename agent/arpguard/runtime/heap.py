"""Keeps the C library's heap small. It holds gRPC's memory, and Python objects of more than 512 bytes.

glibc gives threads arenas of their own, and returns only the free end of an arena to the kernel. So the agent would
keep what gRPC's threads needed for broken calls, and each change in the cluster would leave a few more nearly empty
pages. With other C libraries, such as musl, this module does nothing.
"""

import asyncio
import ctypes

TRIM_INTERVAL_S = 10.0
_M_ARENA_MAX = -8  # malloc.h of glibc 2.10 and later

_libc = ctypes.CDLL(None)


def keep_to_one_arena() -> None:
    """Makes threads share the main arena (mallopt(3)). Call it while there is one thread."""
    if mallopt := getattr(_libc, "mallopt", None):
        mallopt(_M_ARENA_MAX, 1)


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
