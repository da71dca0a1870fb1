"""How long a voucher waits, and how much of it is margin: d and m (docs/vouching.md, V12), and which of them fit."""

from dataclasses import dataclass

from arpguard.units import NS_PER_MS


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


def fastest_allowed(setting: str, *, virtual: bool) -> Profile:
    """The fastest that a node may have, by its name or by `auto`. A virtual machine may stand still, clock and all."""
    if setting == "auto":
        return SLOW if virtual else FAST
    return next(profile for profile in PROFILES if profile.name == setting)
