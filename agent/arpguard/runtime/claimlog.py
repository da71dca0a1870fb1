"""Which claims are worth a line in the log: whoever is on the segment must not be able to fill it."""

from collections import OrderedDict

from arpguard.addresses import MacAddress
from arpguard.model import Decision, EntryKey
from arpguard.units import NS_PER_S
from arpguard.verdict import Reason

REPEAT_NS = 60 * NS_PER_S
CAPACITY = 1024
LINES_PER_S = 10


class ClaimLog:
    """Remembers who claimed what lately: the same claim is news once a minute, and ten claims are in a second."""

    def __init__(self) -> None:
        self._logged: OrderedDict[tuple[EntryKey, MacAddress, Reason], int] = OrderedDict()
        self._second = 0
        self._lines = 0

    def is_news(self, decision: Decision, now_ns: int) -> bool:
        """Whether to log this claim now."""
        claim = (decision.key, decision.sha, decision.reason)
        last_ns = self._logged.get(claim)
        if last_ns is not None and now_ns - last_ns < REPEAT_NS:
            return False
        if now_ns // NS_PER_S != self._second:
            self._second, self._lines = now_ns // NS_PER_S, 0
        if self._lines >= LINES_PER_S:
            return False
        self._lines += 1
        self._logged[claim] = now_ns
        self._logged.move_to_end(claim)
        if len(self._logged) > CAPACITY:
            self._logged.popitem(last=False)
        return True
