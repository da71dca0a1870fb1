"""What `arpguard watch` knows: polled at intervals, with rates from the differences of exact counters.

All guarded VIPs are read in turn, in pages, and for half of each interval at most. So with many thousands a round
takes several intervals, each VIP's rate is over the time between its own two readings, and the view does not lag.
"""

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from arpguard.cli.client import AgentQuestions
from arpguard.cli.exits import AskError
from arpguard.cli.words import frames
from arpguard.v1 import agent_pb2 as pb

_PAGE_SIZE = 1000
_DECISIONS = 100


@dataclass(frozen=True, slots=True)
class VipRate:
    """A VIP on a link, all its frames so far, and how many it had in a second between the last two readings."""

    vip: pb.Vip
    total: int
    at_s: float
    per_second: float = 0.0

    def next(self, vip: pb.Vip, at_s: float) -> "VipRate":
        """The rate after this one. A counter that is smaller now was reset."""
        total = frames(vip.reasons)
        return VipRate(vip, total, at_s, max(0, total - self.total) / max(at_s - self.at_s, 1e-3))


class Rates:
    """The latest reading of every VIP."""

    def __init__(self) -> None:
        self._readings: dict[tuple[int, str], VipRate] = {}
        self._unseen: set[tuple[int, str]] = set()

    def take(self, vips: Iterable[pb.Vip], at_s: float) -> None:
        """A page of a round, as it was at a time of time.monotonic()."""
        for vip in vips:
            key = vip.ifindex, vip.address
            known = self._readings.get(key)
            self._readings[key] = known.next(vip, at_s) if known else VipRate(vip, frames(vip.reasons), at_s)
            self._unseen.discard(key)

    def end_round(self) -> None:
        """Ends a round that has read every guarded VIP: drops those that it did not find: they are not guarded."""
        for key in self._unseen:
            del self._readings[key]
        self._unseen = set(self._readings)

    def busiest(self) -> list[VipRate]:
        """The readings by rate, then by total; those that are equal in the order of their addresses."""
        return sorted(self._readings.values(), key=lambda reading: (-reading.per_second, -reading.total))


@dataclass(frozen=True, slots=True)
class Sample:
    """What was known at one moment. `trouble`: why it is not newer; `at_s`: time.monotonic() of the last success."""

    number: int = 0
    status: pb.GetStatusResponse | None = None
    vips: Sequence[VipRate] = ()
    decisions: Sequence[pb.Decision] = ()
    per_second: float = 0.0
    trouble: str = ""
    at_s: float = 0.0


class Poller(threading.Thread):
    """Polls an agent, so that the screen never waits for an answer; `latest` is what it knows."""

    def __init__(self, agent: AgentQuestions, interval_s: float) -> None:
        super().__init__(daemon=True)
        self.latest = Sample()
        self._agent = agent
        self._interval_s = interval_s
        self._ended = threading.Event()
        self._rates = Rates()
        self._page_token = ""

    def run(self) -> None:
        """Until `end`."""
        due_s = time.monotonic()
        while not self._ended.wait(max(0.0, due_s - time.monotonic())):
            due_s = max(due_s + self._interval_s, time.monotonic())
            try:
                self.look()
            except AskError as error:
                self._page_token = ""
                self.latest = replace(self.latest, number=self.latest.number + 1, trouble=str(error))

    def end(self) -> None:
        """Asks no more."""
        self._ended.set()

    def look(self) -> Sample:
        """Asks once. Raises AskError."""
        before = self.latest
        status = self._agent.get_status(pb.GetStatusRequest())
        now_s = time.monotonic()
        grown = frames(status.reasons) - frames(before.status.reasons) if before.status else 0

        self._read_vips(now_s + self._interval_s / 2)
        recent = self._agent.list_decisions(pb.ListDecisionsRequest(page_size=_DECISIONS)).decisions
        self.latest = Sample(
            number=before.number + 1,
            status=status,
            vips=self._rates.busiest(),
            decisions=recent,
            per_second=max(0, grown) / max(now_s - before.at_s, 1e-3),
            at_s=now_s,
        )
        return self.latest

    def _read_vips(self, deadline_s: float) -> None:
        """The next page, and more as long as there is time; after the last page the next round begins."""
        while True:
            request = pb.ListVipsRequest(page_size=_PAGE_SIZE, page_token=self._page_token)
            page = self._agent.list_vips(request)
            self._rates.take(page.vips, time.monotonic())
            self._page_token = page.next_page_token
            if not self._page_token:
                self._rates.end_round()
            if not self._page_token or time.monotonic() >= deadline_s:
                return
