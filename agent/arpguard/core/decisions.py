"""What this node recently decided and heard: two bounded logs, filled from the kernel's reports.

The kernel reports only some of many equal decisions, so these count reports; the kernel's counters count all frames.
"""

from collections import OrderedDict
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, replace

from arpguard.addresses import Address, MacAddress, address_order
from arpguard.core.bounding import bounded
from arpguard.core.claimants import OUTSIDE, Claimant
from arpguard.model import Decision, EntryKey
from arpguard.units import NS_PER_S
from arpguard.verdict import Mode, Reason, Verdict


@dataclass(frozen=True, slots=True)
class Report:
    """Equal decisions: the latest of them, how many were reported, and when (CLOCK_BOOTTIME).

    `number` grows with every report of the node; a repeated report gets a new one. `link` is the link's name then.
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
    """Selects reports; a field that is None selects all. `since_ns` is CLOCK_BOOTTIME."""

    vip: Address | None = None
    link: str | None = None
    verdict: Verdict | None = None
    reason: Reason | None = None
    since_ns: int | None = None

    def matches(self, report: Report) -> bool:
        """Whether a report matches all fields that are set."""
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
    """The last `capacity` different decisions. `received` counts all reports, also those of forgotten decisions."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._reports: OrderedDict[Decision, Report] = OrderedDict()
        self.received = 0

    def __len__(self) -> int:
        return len(self._reports)

    def add(self, decision: Decision, link: str) -> Report:
        """Adds a report; returns it by itself (`count` 1)."""
        self.received += 1
        known = self._reports.pop(decision, None)
        alone = Report(self.received, link, decision, 1, decision.time_ns)
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
    """A host that claimed another's VIP; times in CLOCK_BOOTTIME nanoseconds; `number` as in Report."""

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

    @property
    def is_certain(self) -> bool:
        """Whether the host is known not to be the owner."""
        return self.reason is Reason.CONFLICT or self.claimant.is_node


RECENT_NS = 300 * NS_PER_S  # how long a claim is a problem after it was last heard
MAX_PROBLEMS = 20
CONTESTED = "a host that is not the owner claims {vip}: `arpguard conflicts` names that host"


class ConflictLog:
    """Which host claimed which VIP: the latest `capacity` pairs.

    A host that claims a VIP with ever new MACs pushes out claims to that VIP, not claims to other VIPs.
    """

    def __init__(self, capacity: int = 1024) -> None:
        self._capacity = capacity
        self._size = 0
        # The latest is last. VIPs are indexed by how many claims each has, so that a flood need not search through all.
        self._claims: dict[EntryKey, OrderedDict[MacAddress, RivalClaim]] = {}
        self._by_count: dict[int, OrderedDict[EntryKey, None]] = {}

    def add(self, report: Report, claimant: Claimant = OUTSIDE) -> None:
        """Adds a report of one or several claims, and who makes them; ignores reports that are not of rival claims."""
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
        """Notes that the number of claims to a VIP has changed, or that another claim is the latest."""
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
        """Drops the oldest claim to the VIP that has the most."""
        most = max(self._by_count)
        key = next(iter(self._by_count[most]))
        self._claims[key].popitem(last=False)
        self._recount(key, most)

    def has(self, key: EntryKey, mac: MacAddress) -> bool:
        """Whether a host's claim to a VIP is listed."""
        return mac in self._claims.get(key, ())

    def withdraw(self, macs: Container[MacAddress]) -> None:
        """Drops what hosts outside claimed with these MACs: a node of the cluster has them."""
        for key, claims in list(self._claims.items()):
            before = len(claims)
            for mac in [mac for mac, claim in claims.items() if mac in macs and not claim.claimant.is_node]:
                del claims[mac]
            if len(claims) != before:
                self._recount(key, before)

    def newest(self, before: int | None = None) -> Iterator[RivalClaim]:
        """The claims, the latest first; `before`: only those with a smaller number.

        A claim that was held back for a while was heard before some that are listed already.
        """
        heard = (claim for claims in self._claims.values() for claim in claims.values())
        ordered = sorted(heard, key=lambda claim: claim.number, reverse=True)
        return (claim for claim in ordered if before is None or claim.number < before)

    def problems(self, now_ns: int) -> list[str]:
        """Each VIP that another host certainly claimed lately, a sentence each, in a lasting order.

        It does not say who: whoever claims with ever new MACs would make a new problem with each.
        """
        vips = {key.vip for key, claims in self._claims.items() if _is_contested(claims.values(), now_ns)}
        told = [CONTESTED.format(vip=vip) for vip in sorted(vips, key=address_order)]
        return bounded(told, MAX_PROBLEMS)

    def latest_by_key(self) -> dict[EntryKey, RivalClaim]:
        """The latest claim for each VIP on each link."""
        return {claim.key: claim for claim in reversed(list(self.newest()))}


def _is_contested(claims: Iterable[RivalClaim], now_ns: int) -> bool:
    return any(claim.is_certain and claim.last_ns > now_ns - RECENT_NS for claim in claims)
