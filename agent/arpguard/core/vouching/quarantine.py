"""Leaves something alone, for longer each time that it went wrong."""


class Quarantine:
    """`until_ns`: how long to leave it alone.

    Each time is twice as long as the one before, up to a longest one. After a calm of that length it is short again.
    """

    def __init__(self, first_ns: int, longest_ns: int) -> None:
        self._first_ns = first_ns
        self._longest_ns = longest_ns
        self._following_ns = first_ns
        self.until_ns = 0

    def begin(self, now_ns: int) -> None:
        """It has happened again: waits from now on."""
        if now_ns >= self.until_ns + self._following_ns:
            self._following_ns = self._first_ns
        self.until_ns = now_ns + self._following_ns
        self._following_ns = min(2 * self._following_ns, self._longest_ns)
