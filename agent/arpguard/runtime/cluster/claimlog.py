"""Which claims are worth a log line: nobody on the segment can flood the log, or hide in a flood."""

from collections import OrderedDict
from typing import TypeVar

from arpguard.addresses import MacAddress
from arpguard.model import Decision, EntryKey
from arpguard.units import NS_PER_S
from arpguard.verdict import Reason

K = TypeVar("K")

REPEAT_NS = 60 * NS_PER_S
CAPACITY = 1024
LINES_PER_S = 10
FIRST_PER_S = 50


class ClaimLog:
    """Remembers recent claims: the same claim is news once a minute, and at most ten claims are in a second.

    The first claim to a VIP within a minute does not count against that limit: a thousand senders that claim one VIP
    do not hide the one that claims another.
    """

    def __init__(self) -> None:
        self._logged: OrderedDict[tuple[EntryKey, MacAddress, Reason], int] = OrderedDict()
        self._first: OrderedDict[EntryKey, int] = OrderedDict()
        self._second = 0
        self._lines = self._first_lines = 0

    def is_news(self, decision: Decision, now_ns: int) -> bool:
        """Whether to log this claim now."""
        claim = (decision.key, decision.sha, decision.reason)
        if _is_recent(self._logged, claim, now_ns):
            return False
        if now_ns // NS_PER_S != self._second:
            self._second, self._lines, self._first_lines = now_ns // NS_PER_S, 0, 0
        if not _is_recent(self._first, decision.key, now_ns) and self._first_lines < FIRST_PER_S:
            self._first_lines += 1
            _remember(self._first, decision.key, now_ns)
        elif self._lines < LINES_PER_S:
            self._lines += 1
        else:
            return False
        _remember(self._logged, claim, now_ns)
        return True


def _is_recent(memory: OrderedDict[K, int], key: K, now_ns: int) -> bool:
    last_ns = memory.get(key)
    return last_ns is not None and now_ns - last_ns < REPEAT_NS


def _remember(memory: OrderedDict[K, int], key: K, now_ns: int) -> None:
    memory[key] = now_ns
    memory.move_to_end(key)
    if len(memory) > CAPACITY:
        memory.popitem(last=False)
