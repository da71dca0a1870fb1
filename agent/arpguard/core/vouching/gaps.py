"""How long the gaps between grants are: counts in steps, as a histogram has them."""

from bisect import bisect_left
from dataclasses import dataclass

from arpguard.units import NS_PER_MS

STEPS_NS = tuple(
    ms * NS_PER_MS for ms in (55, 60, 70, 80, 100, 120, 150, 200, 250, 300, 350, 400, 450, 500, 600, 800, 1000, 1500)
)


@dataclass(frozen=True, slots=True)
class Gaps:
    """Gaps so far: how many in each step (up to and with STEPS_NS, and above the last), their sum, and the longest."""

    counts: tuple[int, ...] = (0,) * (len(STEPS_NS) + 1)
    sum_ns: int = 0
    longest_ns: int = 0

    @property
    def total(self) -> int:
        """How many gaps there were."""
        return sum(self.counts)

    def with_gap(self, gap_ns: int) -> "Gaps":
        """These gaps and one more."""
        at = bisect_left(STEPS_NS, gap_ns)
        counts = (*self.counts[:at], self.counts[at] + 1, *self.counts[at + 1 :])
        return Gaps(counts, self.sum_ns + gap_ns, max(self.longest_ns, gap_ns))

    def __add__(self, other: "Gaps") -> "Gaps":
        """The gaps of both."""
        counts = tuple(one + more for one, more in zip(self.counts, other.counts, strict=True))
        return Gaps(counts, self.sum_ns + other.sum_ns, max(self.longest_ns, other.longest_ns))

    def within_ns(self, per_mille: int) -> int:
        """An upper bound of the per-mille quantile of the gaps: never below the true value; 0 without gaps."""
        wanted = -(-self.total * per_mille // 1000)
        seen = 0
        for step_ns, count in zip(STEPS_NS, self.counts, strict=False):
            seen += count
            if seen >= wanted:
                return min(step_ns, self.longest_ns)
        return self.longest_ns
