"""How long a voucher waits, and how much of that is margin: d and m (docs/vouching-rules.md, V12); which pairs fit."""

import re
from dataclasses import dataclass

from arpguard.config.model import VouchingProfile
from arpguard.units import NS_PER_MS

_FLAGS = re.compile(r"^flags\s*:(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Profile:
    """d and m, in nanoseconds."""

    name: str
    d_ns: int
    m_ns: int

    @property
    def window_ns(self) -> int:
        """How long a grant counts from its stamp on."""
        return self.d_ns - self.m_ns


FAST = Profile("fast", 600 * NS_PER_MS, 200 * NS_PER_MS)
DEFAULT = Profile("default", 1000 * NS_PER_MS, 400 * NS_PER_MS)
SLOW = Profile("slow", 1500 * NS_PER_MS, 600 * NS_PER_MS)
PROFILES = (FAST, DEFAULT, SLOW)


def fastest_for(gap_ns: int) -> Profile | None:
    """The first whose grants count twice as long as the gap that 999 of 1,000 do not exceed; None: no voucher fits."""
    return next((profile for profile in PROFILES if profile.window_ns >= 2 * gap_ns), None)


def profile_of(configured: VouchingProfile | None, cpuinfo: str) -> Profile:
    """The fastest that a node may have: the configured one; without that SLOW where a hypervisor may migrate the node.

    `cpuinfo`: /proc/cpuinfo, or its beginning; empty if it cannot be read, so that it counts as virtual.
    """
    if configured is not None:
        return next(profile for profile in PROFILES if profile.name == configured.value)
    return DEFAULT if is_virtual(cpuinfo) is False else SLOW


def is_virtual(cpuinfo: str) -> bool | None:
    """Whether the machine is a virtual one, by CPUID's bit for hypervisors; None: unknown, because it is not x86."""
    flags = _FLAGS.search(cpuinfo)
    return "hypervisor" in flags[1].split() if flags else None
