"""How fast to send requests to the API server: as fast as it answers them (AIMD, RFC 5681 3.1).

Requests that the server cannot serve at once queue there in front of heartbeats. So if it answers slowly, or refuses
requests, fewer are sent at a time; if even single requests are slow, there is a pause after each. An old pace means
nothing: after a rest the search for a pace starts over (RFC 5681 4.1).
"""

from dataclasses import dataclass

from arpguard.units import NS_PER_MS, NS_PER_S

MOST = 16.0
LEAST = 1 / 4
START = 4.0
SOON_NS = 200 * NS_PER_MS  # an answer within it allows more
LATE_NS = 400 * NS_PER_MS  # a later one allows less: a renewal has 0.9 s (`core/leasetimes`)
REST_NS = NS_PER_S
LONGEST_PAUSE_NS = 2 * NS_PER_S


@dataclass(slots=True)
class Pacing:
    """`window`: how many requests may be under way; less than one: the share of time in which one may be.

    Times are CLOCK_BOOTTIME in nanoseconds.
    """

    window: float = START
    not_before_ns: int = 0
    _eased_ns: int = 0  # requests that were sent before this say nothing about the current window
    _busy_ns: int = 0

    def allows(self, under_way: int, now_ns: int) -> bool:
        """Whether one more request may be sent now."""
        if not under_way and now_ns - self._busy_ns > REST_NS:
            self.window = min(self.window, START)
        self._busy_ns = now_ns
        return now_ns >= self.not_before_ns and under_way < max(1, int(self.window))

    def renewed(self, sent_ns: int, now_ns: int) -> None:
        """Notes an answered heartbeat: if the answer took long, too many requests were queued before it."""
        if now_ns - sent_ns > LATE_NS:
            self._ease(sent_ns, now_ns)

    def answered(self, sent_ns: int, now_ns: int) -> None:
        """Notes that a paced request was answered, whatever the answer."""
        took_ns = now_ns - sent_ns
        if took_ns > LATE_NS:
            self._ease(sent_ns, now_ns)
        elif took_ns <= SOON_NS:
            self.window = min(MOST, self.window + min(self.window, 1 / max(1.0, self.window)))
        if self.window < 1:
            pause_ns = int(took_ns * (1 / self.window - 1))
            self._wait(now_ns + min(pause_ns, LONGEST_PAUSE_NS))

    def refused(self, sent_ns: int, now_ns: int, wait_ns: int) -> None:
        """Waits for `wait_ns`: the server takes no more for now (429, 503, 504), or did not answer in time."""
        self._ease(sent_ns, now_ns)
        self._wait(now_ns + wait_ns)

    def _wait(self, until_ns: int) -> None:
        self.not_before_ns = max(self.not_before_ns, until_ns)

    def _ease(self, sent_ns: int, now_ns: int) -> None:
        """Halves the window, once for all requests that were under way in it."""
        if sent_ns >= self._eased_ns:
            self.window = max(LEAST, self.window / 2)
            self._eased_ns = now_ns
