"""Trials: for which nodes this one would vouch, as pings and pongs without grants have shown, and with which d.

A node says in its heartbeat which voucher it seeks, and its kernel answers the pings of their trial. Both compute
its term from what both heartbeats say, so no node has to publish it. A trial grants nothing, and revokes no node.

The sought node accepts once a minute went by without a gap that is too long for the slowest profile, and the two clocks
go alike. A node that it revoked by mistake, and that is back without a reboot (the boot clock in the stamps kept
running), has to wait longer each time.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import NAMESPACE_OID, uuid5

from arpguard.core.rendezvous import fingerprint
from arpguard.core.vouching.profiles import SLOW, fastest_for
from arpguard.core.vouching.voucher import REPORT_NS, TermReport
from arpguard.units import NS_PER_MS, NS_PER_S
from arpguard.wire.vouching import VouchTerm

CLEAN_NS = 60 * NS_PER_S
TRIAL_VARIABLE = "ARPGUARD_LAB_TRIAL_MS"
CLOCKS_PER_MILLE = 1
MOST_NODES = 8  # each costs 20 exchanges a second
MISTAKE_NS, LONGEST_MISTAKE_NS = 600 * NS_PER_S, 86_400 * NS_PER_S


def clean_ns(environment: Mapping[str, str]) -> int:
    """How long a trial has to go well; in the lab, which has less time, as it says."""
    text = environment.get(TRIAL_VARIABLE, "")
    return int(text) * NS_PER_MS if text.isdecimal() else CLEAN_NS


class Quarantine:
    """Excludes something, for longer each time that it fails. `until_ns`: until when.

    Each time is twice as long as the one before, up to a longest one. After a calm of that length it is short again.
    """

    def __init__(self, first_ns: int, longest_ns: int) -> None:
        self._first_ns = first_ns
        self._longest_ns = longest_ns
        self._following_ns = first_ns
        self.until_ns = 0

    def begin(self, now_ns: int) -> None:
        """It has happened again: waits from now on."""
        if now_ns >= self.until_ns + self._following_ns:
            self._following_ns = self._first_ns
        self.until_ns = now_ns + self._following_ns
        self._following_ns = min(2 * self._following_ns, self._longest_ns)


def quarantine(first_ns: int, longest_ns: int, clean_ns: int) -> Quarantine:
    """One that is shorter than it should be by as much as a trial is."""
    return Quarantine(first_ns * clean_ns // CLEAN_NS, longest_ns * clean_ns // CLEAN_NS)


def trial_term(node: str, node_epoch: str, voucher: str, instance: str, voucher_epoch: str) -> VouchTerm:
    """The term of a trial; for ends of the same two heartbeats it is the same."""
    uuid = str(uuid5(NAMESPACE_OID, f"trial {node} {node_epoch} {voucher} {instance} {voucher_epoch}"))
    return VouchTerm(node, node_epoch, voucher, instance, voucher_epoch, uuid, SLOW.d_ns, SLOW.m_ns)


def on_trial(seekers: Iterable[str], vouched: Iterable[str]) -> list[str]:
    """The nodes that seek this one and that it tests: no more than it can vouch for besides."""
    ordered = sorted(seekers, key=fingerprint)
    return ordered[: max(0, MOST_NODES - len(set(vouched)))]


@dataclass(frozen=True, slots=True)
class TrialVerdict:
    """The result of the trials so far. `accepts`: nodes, and the least d of each; `again`: trials to begin again."""

    accepts: tuple[tuple[str, int], ...]
    again: tuple[str, ...]


class Trials:
    """What this node remembers of those that it vouched for. `clean_ns`: how long all has to go well."""

    def __init__(self, clean_ns: int = CLEAN_NS) -> None:
        self._clean_ns = clean_ns
        self._revoked: dict[str, tuple[int, Quarantine]] = {}  # the last stamp before, and the time since

    def revoked(self, node: str, stamp_ns: int, now_ns: int) -> None:
        """This node has revoked another early, after this stamp. Its next one tells whether that was a mistake."""
        new = quarantine(MISTAKE_NS, LONGEST_MISTAKE_NS, self._clean_ns)
        _, waits = self._revoked.get(node, (0, new))
        waits.begin(now_ns)
        self._revoked[node] = stamp_ns, waits

    def judge(self, reports: Mapping[str, TermReport], now_ns: int) -> TrialVerdict:
        """`reports`: of the trials that are under way, by node."""
        accepts, again = [], []
        for node, report in sorted(reports.items()):
            profile = fastest_for(report.gaps.longest_ns)
            if profile is None or report.clocks_differ(CLOCKS_PER_MILLE):
                again.append(node)
            elif self._is_long_enough(report, now_ns) and not self._waits(node, report, now_ns):
                accepts.append((node, profile.d_ns))
        return TrialVerdict(tuple(accepts), tuple(again))

    def _waits(self, node: str, report: TermReport, now_ns: int) -> bool:
        if node not in self._revoked or report.last is None:
            return False
        stamp_ns, waits = self._revoked[node]
        if report.last.stamp_ns < stamp_ns:
            del self._revoked[node]  # it has booted since: it was dead indeed
            return False
        return now_ns < waits.until_ns

    def _is_long_enough(self, report: TermReport, now_ns: int) -> bool:
        """Whether the pongs of a minute have come, and still come, as far as reports tell.

        Between two reports the answer stays the same: the node hears of it by a renewal, which takes a while.
        """
        if report.first is None or report.last is None:
            return False
        is_long = report.last.back_ns - report.first.back_ns >= self._clean_ns
        return is_long and now_ns - report.last.back_ns <= 2 * REPORT_NS
