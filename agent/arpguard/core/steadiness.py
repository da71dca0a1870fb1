"""On which links this node may own VIPs: those that are up, and did not come up only a moment ago.

A link that went down is trusted again only after it has been up for a while; that time doubles with every loss, and is
reset after a minute without one. So a loose contact moves its VIPs away once, and later costs neither the API server
nor other nodes anything. If there is no other node to move to, the first wait is enough: a switch that restarts takes
down the links of all nodes, several times, and all would wait in vain.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from arpguard.model import Link
from arpguard.units import NS_PER_S

FIRST_WAIT_NS = NS_PER_S
LONGEST_WAIT_NS = 32 * NS_PER_S
CALM_NS = 60 * NS_PER_S
MOST = 1024  # at most so many links are remembered: there are many names if each container brings a link


@dataclass(slots=True)
class _Record:
    """Since when a link is up or down, and how long it has to be up before it is trusted."""

    up: bool
    since_ns: int
    wait_ns: int = 0

    @property
    def believed_ns(self) -> int:
        return self.since_ns + self.wait_ns

    def is_held_back(self, now_ns: int) -> bool:
        """Whether the link has been up for the first wait, and is not trusted yet."""
        return self.up and self.since_ns + FIRST_WAIT_NS <= now_ns < self.believed_ns

    def lost(self, now_ns: int) -> None:
        calm = now_ns - self.believed_ns >= CALM_NS or not self.wait_ns
        self.wait_ns = FIRST_WAIT_NS if calm else min(2 * self.wait_ns, LONGEST_WAIT_NS)
        self.up, self.since_ns = False, now_ns

    def found(self, now_ns: int) -> None:
        self.up, self.since_ns = True, now_ns


class Steadiness:
    """Remembers links by name: a device that is replaced is the same link. Times are CLOCK_BOOTTIME nanoseconds."""

    def __init__(self) -> None:
        self._records: dict[str, _Record] = {}

    def steady(self, links: Iterable[Link], now_ns: int) -> tuple[Link, ...]:
        """The links that are up and trusted. One that is seen for the first time is trusted at once."""
        up = {link.name: link for link in links if link.up}
        for name, record in self._records.items():
            if record.up and name not in up:
                record.lost(now_ns)
            elif not record.up and name in up:
                record.found(now_ns)
        for name in up.keys() - self._records.keys():
            self._records[name] = _Record(up=True, since_ns=now_ns)
        self._forget(len(self._records) - max(MOST, len(up)))
        return tuple(link for name, link in up.items() if self._records[name].believed_ns <= now_ns)

    def held_back(self, links: Iterable[Link], now_ns: int) -> tuple[Link, ...]:
        """The links that have been up for the first wait, and are not trusted yet."""
        records = ((link, self._records.get(link.name)) for link in links if link.up)
        return tuple(link for link, record in records if record is not None and record.is_held_back(now_ns))

    def believe(self, name: str, now_ns: int) -> None:
        """Trusts a link from now on, until it is lost again; that does not shorten its next wait."""
        record = self._records[name]
        record.since_ns = now_ns - record.wait_ns

    def _forget(self, too_many: int) -> None:
        """Forgets the links that have been down for longest."""
        if too_many > 0:
            down = [name for name, record in self._records.items() if not record.up]
            for name in sorted(down, key=lambda name: self._records[name].since_ns)[:too_many]:
                del self._records[name]

    def next_ns(self, now_ns: int) -> int | None:
        """When the next link will or may be trusted, if it stays up; None when there is nothing to wait for."""
        waiting = [record for record in self._records.values() if record.up and record.believed_ns > now_ns]
        times = (at_ns for each in waiting for at_ns in (each.since_ns + FIRST_WAIT_NS, each.believed_ns))
        return min((at_ns for at_ns in times if at_ns > now_ns), default=None)
