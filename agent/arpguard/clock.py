"""CLOCK_BOOTTIME, the one clock of ownership: it counts suspend, and is what bpf_ktime_get_boot_ns() reads."""

import time


def boot_ns() -> int:
    """Nanoseconds since boot, suspend included (clock_gettime(2), CLOCK_BOOTTIME)."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
