"""Limits how often a kind of line is logged: nobody must be able to flood the log."""

from arpguard.units import NS_PER_S

BURST = 200
LINES_PER_S = 10


class LogLimit:
    """Admits a burst of lines, then so many a second, and counts the rest. Times are CLOCK_BOOTTIME nanoseconds."""

    def __init__(self) -> None:
        self._lines = float(BURST)
        self._filled_ns = 0
        self._left_out = 0

    def admits(self, now_ns: int) -> bool:
        """Whether to write a line now."""
        self._lines = min(BURST, self._lines + (now_ns - self._filled_ns) * LINES_PER_S / NS_PER_S)
        self._filled_ns = now_ns
        if self._lines < 1:
            self._left_out += 1
            return False
        self._lines -= 1
        return True

    def take_left_out(self) -> int:
        """How many were not written since the last call."""
        left_out, self._left_out = self._left_out, 0
        return left_out
