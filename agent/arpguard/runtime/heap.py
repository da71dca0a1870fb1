"""Keeps the C library's heap as small as what is in use: gRPC's memory is there, and objects of more than 512 bytes.

glibc gives each thread an arena of its own, and returns to the kernel only what is free at the end of an arena. So an
agent would keep what gRPC's threads once needed for broken calls, and with each change in the cluster a few more pages
with next to nothing in them. With other C libraries, such as musl, nothing here has an effect.
"""

import asyncio
import ctypes

TRIM_INTERVAL_S = 10.0
_M_ARENA_MAX = -8  # malloc.h of glibc 2.10 and later

_libc = ctypes.CDLL(None)


def keep_to_one_arena() -> None:
    """Lets threads that start from now on share the main arena (mallopt(3))."""
    if mallopt := getattr(_libc, "mallopt", None):
        mallopt(_M_ARENA_MAX, 1)


class Trimming:
    """Returns what is free between blocks in use, too (malloc_trim(3), since glibc 2.8): 0.01 ms; 5 ms for 20 MB."""

    async def run(self) -> None:
        """Runs until it is cancelled."""
        trim = getattr(_libc, "malloc_trim", None)
        while trim is not None:
            await asyncio.sleep(TRIM_INTERVAL_S)
            trim(0)
