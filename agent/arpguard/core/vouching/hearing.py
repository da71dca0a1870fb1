"""Whether any frame arrives on this node's link: if none does, no host on the segment can ask for the node's VIPs.

| what happened                                                    | what follows                                |
| ---------------------------------------------------------------- | ------------------------------------------- |
| this node un-bound: its voucher is not heard, the API server is  | all frames on their common link are counted |
| none for SILENT_NS, and others are bound to each other           | the link is deaf                            |
| a frame                                                          | it is not                                   |

A deaf link counts as one that is down: this node hands its VIPs over.
"""

from collections.abc import Callable

from arpguard.units import NS_PER_MS, NS_PER_S

SILENT_NS = NS_PER_S
LOOK_NS = 200 * NS_PER_MS


class LinkHearing:
    """`heard` tells how many frames have ever come in over a link. `deaf`: the link over which none does, or ""."""

    def __init__(self, heard: Callable[[str], int]) -> None:
        self._heard = heard
        self._unbinds = 0
        self._suspect = ""
        self._since_ns = 0
        self._frames = 0
        self.deaf = ""

    def look(self, unbinds: int, link: str, *, others_bound: bool, now_ns: int) -> int | None:
        """Judges the link over which the voucher is, or was; returns when to look again.

        `unbinds`: how often this node has un-bound (`Naming`). `others_bound`: some node has another voucher than this
        one, and is bound.
        """
        if unbinds > self._unbinds:
            self._unbinds = unbinds
            if link and link != self._suspect:
                self._suspect, self._since_ns, self._frames = link, now_ns, self._heard(link)
        if not self._suspect:
            return None

        if self._heard(self._suspect) != self._frames:
            self._suspect = self.deaf = ""
            return None
        if now_ns >= self._since_ns + SILENT_NS and others_bound:
            self.deaf = self._suspect
        return self._next_ns(now_ns, others_bound=others_bound)

    def _next_ns(self, now_ns: int, *, others_bound: bool) -> int | None:
        """Soon, as a first frame ends it; that others are bound is news, which is looked at anyway."""
        if self.deaf:
            return now_ns + SILENT_NS
        return now_ns + LOOK_NS if others_bound else None
