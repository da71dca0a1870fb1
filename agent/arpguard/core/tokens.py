"""How often something may happen: a token bucket."""


class TokenBucket:
    """Gives `burst` tokens, then one in `interval_ns`. It begins full; times are CLOCK_BOOTTIME nanoseconds."""

    def __init__(self, burst: int, interval_ns: int) -> None:
        self._burst, self._interval_ns = burst, interval_ns
        self._tokens, self._filled_ns = float(burst), 0

    def has_one(self, now_ns: int) -> bool:
        """Whether there is a token."""
        return self._fill(now_ns) >= 1

    def is_full(self, now_ns: int) -> bool:
        """Whether no token was taken lately."""
        return self._fill(now_ns) == self._burst

    def take(self, now_ns: int) -> bool:
        """Takes a token; False where there is none."""
        if not self.has_one(now_ns):
            return False
        self._tokens -= 1
        return True

    def _fill(self, now_ns: int) -> float:
        self._tokens = min(self._burst, self._tokens + (now_ns - self._filled_ns) / self._interval_ns)
        self._filled_ns = now_ns
        return self._tokens
