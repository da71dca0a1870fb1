"""What this node decided and heard lately: two bounded memories, filled from the kernel's reports.

The kernel reports only some of many equal decisions, so what is counted here is reports; counters have all frames.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from arpguard.addresses import Address, MacAddress
from arpguard.core.claimants import OUTSIDE, Claimant
from arpguard.model import Decision, EntryKey
from arpguard.verdict import Mode, Reason, Verdict


@dataclass(frozen=True, slots=True)
class Report:
    """Equal decisions: the latest of them, how many were reported, and when (CLOCK_BOOTTIME).

    `number` grows with every report of the node; a report that is repeated gets a new one. `link` is the name that
    the link had then.
    """

    number: int
    link: str
    decision: Decision
    count: int
    first_ns: int

    @property
    def last_ns(self) -> int:
        """When the latest was made."""
        return self.decision.time_ns


@dataclass(frozen=True, slots=True)
class ReportFilter:
    """Which reports are wanted; what is None does not matter. `since_ns` is CLOCK_BOOTTIME."""

    vip: Address | None = None
    link: str | None = None
    verdict: Verdict | None = None
    reason: Reason | None = None
    since_ns: int | None = None

    def matches(self, report: Report) -> bool:
        """Whether all that is set holds."""
        decision = report.decision
        pairs = (
            (self.vip, decision.key.vip),
            (self.link, report.link),
            (self.verdict, decision.verdict),
            (self.reason, decision.reason),
        )
        if self.since_ns is not None and report.last_ns < self.since_ns:
            return False
        return all(wanted is None or wanted == found for wanted, found in pairs)


class DecisionLog:
    """The last `capacity` different decisions."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._reports: OrderedDict[Decision, Report] = OrderedDict()
        self._received = 0

    def __len__(self) -> int:
        return len(self._reports)

    @property
    def received(self) -> int:
        """All reports so far, also of decisions that are forgotten."""
        return self._received

    def add(self, decision: Decision, link: str) -> Report:
        """Takes a report in; gives it back as this one alone (`count` 1)."""
        self._received += 1
        known = self._reports.pop(decision, None)
        alone = Report(self._received, link, decision, 1, decision.time_ns)
        self._reports[decision] = replace(alone, count=known.count + 1, first_ns=known.first_ns) if known else alone
        if len(self._reports) > self._capacity:
            self._reports.popitem(last=False)
        return alone

    def newest(self, wanted: ReportFilter, before: int | None = None) -> Iterator[Report]:
        """Reports that match, the latest first; `before`: only those with a smaller number."""
        for report in reversed(self._reports.values()):
            if (before is None or report.number < before) and wanted.matches(report):
                yield report


@dataclass(frozen=True, slots=True)
class RivalClaim:
    """A host that claimed a VIP that is not its own, times in CLOCK_BOOTTIME nanoseconds; `number` as in Report."""

    number: int
    key: EntryKey
    link: str
    mac: MacAddress
    first_ns: int
    last_ns: int
    count: int
    reason: Reason
    dropped: bool
    claimant: Claimant = OUTSIDE


class ConflictLog:
    """Who claimed what: `capacity` hosts and VIPs, those that were heard last.

    Whoever claims a VIP with ever other MACs pushes out what was heard of that VIP, and not of another.
    """

    def __init__(self, capacity: int = 1024) -> None:
        self._capacity = capacity
        self._size = 0
        # What was heard last is last. VIPs by how many claims there are of each: a flood must not search through all.
        self._claims: dict[EntryKey, OrderedDict[MacAddress, RivalClaim]] = {}
        self._by_count: dict[int, OrderedDict[EntryKey, None]] = {}

    def add(self, report: Report, claimant: Claimant = OUTSIDE) -> None:
        """Takes a report, of one claim or several, and who makes it; what is no foreign claim does not matter."""
        decision = report.decision
        if decision.verdict not in (Verdict.CONFLICT, Verdict.REPORT):
            return

        claims = self._claims.setdefault(decision.key, OrderedDict())
        before = len(claims)
        known = claims.pop(decision.sha, None)
        claims[decision.sha] = RivalClaim(
            number=report.number,
            key=decision.key,
            link=report.link,
            mac=decision.sha,
            first_ns=known.first_ns if known else report.first_ns,
            last_ns=decision.time_ns,
            count=(known.count if known else 0) + report.count,
            reason=decision.reason,
            dropped=decision.verdict is Verdict.CONFLICT and decision.mode is Mode.ENFORCE,
            claimant=claimant,
        )

        self._recount(decision.key, before)
        if self._size > self._capacity:
            self._forget_one()

    def _recount(self, key: EntryKey, before: int) -> None:
        """There are more claims of a VIP than before, or fewer, or another one was heard last."""
        now = len(self._claims[key])
        self._size += now - before
        if before:
            del self._by_count[before][key]
            if not self._by_count[before]:
                del self._by_count[before]
        if now:
            self._by_count.setdefault(now, OrderedDict())[key] = None
        else:
            del self._claims[key]

    def _forget_one(self) -> None:
        """The oldest of the VIP that has the most claims."""
        most = max(self._by_count)
        key = next(iter(self._by_count[most]))
        self._claims[key].popitem(last=False)
        self._recount(key, most)

    def newest(self, before: int | None = None) -> Iterator[RivalClaim]:
        """The claims, the latest first; `before`: only those with a smaller number.

        One that was held back for a while was heard before some that are listed already.
        """
        heard = (claim for claims in self._claims.values() for claim in claims.values())
        ordered = sorted(heard, key=lambda claim: claim.number, reverse=True)
        return (claim for claim in ordered if before is None or claim.number < before)

    def latest_by_key(self) -> dict[EntryKey, RivalClaim]:
        """The latest claim for each VIP on each link."""
        return {claim.key: claim for claim in reversed(list(self.newest()))}
