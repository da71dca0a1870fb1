"""What the agent does about rival claims: it lists and logs them, and defends VIPs against hosts outside."""

import logging
from collections import OrderedDict
from collections.abc import Container, Sequence
from typing import TypeVar

from arpguard.addresses import MacAddress
from arpguard.clock import boot_ns
from arpguard.core.bounding import remember
from arpguard.core.claimants import Claimant
from arpguard.core.decisions import ConflictLog, Report
from arpguard.model import Decision, EntryKey
from arpguard.runtime.kernel.announcing import Announcing
from arpguard.units import NS_PER_S
from arpguard.verdict import Reason

log = logging.getLogger(__name__)

K = TypeVar("K")

REPEAT_NS = 60 * NS_PER_S
CAPACITY = 1024
LINES_PER_S = 10
FIRST_PER_S = 50


class Conflicts:
    """Reports claims in the list and in the log, and defends against claims by hosts outside."""

    def __init__(self, heard: ConflictLog, announcing: Announcing) -> None:
        self._heard = heard
        self._announcing = announcing
        self._news = ClaimLog()

    @property
    def problems(self) -> Sequence[str]:
        """The claims of the last minutes that certainly came from other hosts."""
        return self._heard.problems(boot_ns())

    def withdraw(self, macs: Container[MacAddress]) -> None:
        """Drops what hosts outside claimed with these MACs: a node of the cluster has them."""
        self._heard.withdraw(macs)

    def tell(self, report: Report, claimant: Claimant) -> bool:
        """Reports a claim that counts; True if it is news. Against nodes of this cluster only the protocol defends."""
        decision = report.decision
        self._heard.add(report, claimant)
        if not claimant.is_node:
            self._announcing.defend(decision)

        if not self._news.is_news(decision, boot_ns()):
            return False

        log.warning(
            "claim: vip=%s interface=%s sha=%s verdict=%s reason=%s claimant=%s",
            decision.key.vip,
            report.link,
            decision.sha,
            decision.verdict.name.lower(),
            decision.reason.name.lower(),
            f'"{claimant}"',
        )
        return True


class ClaimLog:
    """Remembers recent claims: the same claim is logged once a minute, and at most ten claims are logged in a second.

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
            remember(self._first, decision.key, now_ns, CAPACITY)
        elif self._lines < LINES_PER_S:
            self._lines += 1
        else:
            return False
        remember(self._logged, claim, now_ns, CAPACITY)
        return True


def _is_recent(memory: OrderedDict[K, int], key: K, now_ns: int) -> bool:
    last_ns = memory.get(key)
    return last_ns is not None and now_ns - last_ns < REPEAT_NS
