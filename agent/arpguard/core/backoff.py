"""How long to wait before trying something again."""

from collections.abc import Callable


class Backoff:
    """Waits that double from `base_s` to `cap_s`, each shortened at random by up to half: agents do not retry in step.

    `random` gives a number from 0 to 1.
    """

    def __init__(self, base_s: float, cap_s: float, random: Callable[[], float]) -> None:
        self._base_s = base_s
        self._cap_s = cap_s
        self._random = random
        self._failures = 0

    def next_s(self) -> float:
        """The wait after one more failure."""
        whole = self._cap_s if self._failures > 30 else min(self._cap_s, self._base_s * 2.0**self._failures)
        self._failures += 1
        return whole * (1 - self._random() / 2)

    def reset(self) -> None:
        """Makes waits start over, after a success."""
        self._failures = 0
