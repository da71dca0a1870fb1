"""CLOCK_BOOTTIME, the one clock of ownership: it counts suspend, and is what bpf_ktime_get_boot_ns() reads."""

import time
from dataclasses import dataclass
from typing import ClassVar, Self

from arpguard.units import NS_PER_MS

_READINGS = 5


def boot_ns() -> int:
    """Nanoseconds since boot, suspend included (clock_gettime(2), CLOCK_BOOTTIME)."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


@dataclass(frozen=True)
class WallClock:
    """How far CLOCK_REALTIME is ahead of CLOCK_BOOTTIME, in nanoseconds."""

    ahead_ns: int
    _latest_ns: ClassVar[int | None] = None

    @classmethod
    def now(cls) -> Self:
        """The last value, unless the clocks have moved: two clocks cannot be read together, and equal times stay equal.

        If other tasks had the CPU in between, it reads them again.
        """
        for _ in range(_READINGS):
            before_ns, real_ns = boot_ns(), time.time_ns()
            if boot_ns() - before_ns < NS_PER_MS:
                break
        read_ns, latest_ns = real_ns - before_ns, WallClock._latest_ns
        if latest_ns is None or abs(read_ns - latest_ns) >= NS_PER_MS:
            WallClock._latest_ns = latest_ns = read_ns
        return cls(latest_ns)

    def real_ns(self, at_ns: int) -> int:
        """A time of the boot clock, in nanoseconds since 1970."""
        return at_ns + self.ahead_ns
