"""Whether this node's announcer answers for a Service, where objects do not settle which node announces it.

An announcer may stop silently (docs/follow-metallb.md). The agent on the followed node notices: the announcer does not
answer requests that the guard lets through. The agent reports that in its heartbeat, and all agents follow the node
that was named before. The agent there reports whether its announcer answers; if it reports nothing, because it is gone,
the first agent withdraws its report after a while.

A report is about the objects as they were when it was made: whatever the announcer writes later overrides it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from arpguard.core.cluster import Key, SpeakerReport
from arpguard.units import NS_PER_MS, NS_PER_S

QUICK_NS, SLOW_NS = 10 * NS_PER_MS, NS_PER_S
MOVING_NS = 3 * NS_PER_S  # a speaker that begins alone finds the others within a second, and ceases
UNANSWERED_NS = 50 * NS_PER_MS  # a speaker answers within a millisecond
UNANSWERED = 2
RETRY_NS, LONGEST_RETRY_NS = 2 * NS_PER_S, 64 * NS_PER_S
MAX_REPORTS = 64  # in a heartbeat


@dataclass(frozen=True, slots=True)
class Look:
    """What this node sees of a Service that its announcer may have.

    `version`: of the last Event or object that says who announces the Service. `followed`: agents follow this node, so
    the guard lets the announcer through. `requests`, `answers`: frames so far; requests that the guard let through, and
    the announcer's answers. `silent`, `answering`: another node that objects name has reported that its announcer does
    not answer, or that it does.
    """

    version: str
    followed: bool
    requests: int = 0
    answers: int = 0
    silent: bool = False
    answering: bool = False


class Speakers:
    """What this node reports, by Service. Synchronous, and without IO. Times are CLOCK_BOOTTIME nanoseconds."""

    def __init__(self) -> None:
        self.reports: dict[Key, SpeakerReport] = {}
        self._watched: dict[Key, _Watched] = {}

    def look(self, looks: Mapping[Key, Look], now_ns: int) -> None:
        """Takes a look at all Services that objects name this node for, among others."""
        self._watched = {
            key: watched if watched is not None and watched.version == look.version else _Watched(look, now_ns)
            for key, look in looks.items()
            for watched in [self._watched.get(key)]
        }

        reports = ((key, self._watched[key].report(look, now_ns)) for key, look in looks.items())
        self.reports = {key: report for key, report in reports if report is not None}
        for key in list(self.reports)[MAX_REPORTS:]:
            del self.reports[key]

    def next_ns(self, now_ns: int) -> int | None:
        """When to look next; None when nothing is watched."""
        moving = any(now_ns < watched.since_ns + MOVING_NS for watched in self._watched.values())
        return now_ns + (QUICK_NS if moving else SLOW_NS) if self._watched else None


class _Watched:
    """One Service, as long as the announcer writes nothing new about it."""

    def __init__(self, look: Look, now_ns: int) -> None:
        self.version = look.version
        self.since_ns = now_ns
        self._before = look
        self._unanswered = 0
        self._unanswered_ns = now_ns
        self._answers: bool | None = None  # None: nothing is reported
        self._silent_ns = now_ns
        self._retry_ns = RETRY_NS

    def report(self, look: Look, now_ns: int) -> SpeakerReport | None:
        """What there is to report after another look."""
        self._count(look, now_ns)
        if look.followed:
            self._judge(now_ns)
        elif self._answers is False and not look.answering and now_ns >= self._silent_ns + self._retry_ns:
            self._answers = None
            self._retry_ns = min(2 * self._retry_ns, LONGEST_RETRY_NS)
        return None if self._answers is None else SpeakerReport(self.version, answers=self._answers)

    def _count(self, look: Look, now_ns: int) -> None:
        """An announcer that is not let through cannot answer."""
        before, self._before = self._before, look
        if look.answers > before.answers or not look.followed:
            self._unanswered = 0
        elif look.requests > before.requests:
            self._unanswered_ns = self._unanswered_ns if self._unanswered else now_ns
            self._unanswered += look.requests - before.requests
        if look.followed and look.answers > before.answers and (look.silent or self._answers is False):
            self._answers = True

    def _judge(self, now_ns: int) -> None:
        lasting = now_ns >= self._unanswered_ns + UNANSWERED_NS
        if self._unanswered >= UNANSWERED and lasting and self._answers is not False:
            self._answers, self._silent_ns = False, now_ns
