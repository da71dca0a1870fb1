"""This node as a voucher: the process that grants others the right to answer, and in which terms.

It grants in terms that other nodes' heartbeats name (`core/ownership/revoking`), and for a while after they cease to do
so, or a link went down (`core/vouching/lingering`). It also tests nodes that seek this one (`core/vouching/trials`).
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from arpguard.clock import boot_ns
from arpguard.core.ownership.machine import Ownership
from arpguard.core.ownership.records import Heartbeat, PublishedLink, epoch_number
from arpguard.core.vouching.gaps import Gaps
from arpguard.core.vouching.lingering import Lingering
from arpguard.core.vouching.state import VouchedNode
from arpguard.core.vouching.trials import Trials, TrialVerdict, on_trial, trial_term
from arpguard.core.vouching.voucher import AdoptedTerm, TermReport
from arpguard.model import Link
from arpguard.runtime.cluster.here import Here
from arpguard.runtime.cluster.leases import POLL_S, Leases
from arpguard.runtime.cluster.terms import Terms
from arpguard.runtime.tracefile import TraceFile
from arpguard.runtime.voucher.messages import Adopt, News, Phase, Priority, Started
from arpguard.units import NS_PER_MS, NS_PER_S
from arpguard.wire.vouching import VouchTerm, term_number

if TYPE_CHECKING:
    from arpguard.runtime.voucher.process import VoucherProcess

log = logging.getLogger(__name__)

RESTART_NS = NS_PER_S
FAREWELL_S = 0.5


@dataclass(frozen=True, slots=True)
class _Adopted:
    """A term that the voucher's process has, and where it finds the node."""

    term: VouchTerm
    ifname: str
    mac: bytes
    trial: bool
    since_ns: int = field(default=0, compare=False)


class Granting:
    """`instance`: of this agent, as its heartbeat names it. `decided`: how many nodes its vouchers found dead.

    `gaps`: between grants in terms that are over. `trace`: the agent's, to which its vouchers append as well.
    """

    def __init__(
        self,
        here: Here,
        ownership: Ownership,
        instance: str,
        leases: Leases,
        terms: Terms,
        trials: Trials,
        trace: TraceFile | None = None,
    ) -> None:
        self._here = here
        self._ownership = ownership
        self._instance = instance
        self._leases = leases
        self._terms = terms
        self._trials = trials
        self._trace = trace

        self._process: VoucherProcess | None = None
        self._started_ns = 0
        self._adopted: dict[int, _Adopted] = {}
        self._spent: set[int] = set()  # terms of processes that have ended: no other takes them up (V10)
        self._lingering = Lingering()
        self._ending = False
        self._reports: dict[int, TermReport] = {}
        self._silent: dict[str, tuple[VouchTerm, int]] = {}  # nodes that are to be revoked, and their last stamps
        self.priority: Priority | None = None
        self.decided = 0
        self.heard_ns = 0  # when a ping last came back
        self.gaps = Gaps()

    def close(self) -> None:
        """Ends the process."""
        self._discard_process()

    def look(self, others: Mapping[str, Heartbeat], now_ns: int) -> int | None:
        """Makes the process vouch for the nodes that it should; returns when to look again. `others` take part, too."""
        self._judge_silent(now_ns)
        vouched = self._vouches_for()
        return self._vouch(vouched, self._tried(others, vouched), now_ns)

    def judge(self, now_ns: int) -> TrialVerdict:
        """Judges the trials; those that did not go well begin again."""
        tried = {adopted.term.node: number for number, adopted in self._adopted.items() if adopted.trial}
        reports = {node: self._reports[number] for node, number in tried.items() if number in self._reports}
        verdict = self._trials.judge(reports, now_ns)
        for node in verdict.again:
            self._drop(tried[node])
        if verdict.again:
            self._leases.wake()
        return verdict

    # ---- for those who read ----

    def vouched(self) -> tuple[VouchedNode, ...]:
        """The nodes that it vouches for, or tests."""
        found = [self._vouched(number, adopted) for number, adopted in self._adopted.items()]
        return tuple(sorted(found, key=lambda each: (each.trial, each.node)))

    def _vouched(self, number: int, adopted: _Adopted) -> VouchedNode:
        report = self._reports.get(number)
        return VouchedNode(
            adopted.term.node,
            adopted.term.d_ns,
            adopted.since_ns,
            adopted.trial,
            bound=report is not None and report.bound,
            pings=report.pings if report else 0,
            pongs=report.pongs if report else 0,
            gaps=report.gaps if report else Gaps(),
        )

    # ---- the terms ----

    def _vouches_for(self) -> dict[int, VouchTerm]:
        terms = {
            term_number(term.uuid): term
            for term in self._ownership.revocations.vouches_for(self._ownership.heartbeat.epoch)
        }
        return {number: term for number, term in terms.items() if number not in self._spent}

    def _tried(self, others: Mapping[str, Heartbeat], vouched: Mapping[int, VouchTerm]) -> dict[int, VouchTerm]:
        """The trials of the nodes that seek this one."""
        seekers = [name for name, each in others.items() if each.vouching and each.vouching.seeks == self._here.node]
        names = on_trial(seekers, (term.node for term in vouched.values()))
        epoch = self._ownership.heartbeat.epoch
        terms = [trial_term(name, others[name].epoch, self._here.node, self._instance, epoch) for name in names]
        return {term_number(term.uuid): term for term in terms}

    def _vouch(self, vouched: Mapping[int, VouchTerm], tried: Mapping[int, VouchTerm], now_ns: int) -> int | None:
        """Makes the process vouch in these terms only; returns when to check whether it has to end another one."""
        found = {**self._adoptions(vouched, trial=False), **self._adoptions(tried, trial=True)}
        for number in [number for number in self._adopted if self._is_over(number, found, now_ns)]:
            self._drop(number)

        if found and self._running(now_ns) is not None:
            for number in found.keys() - self._adopted.keys():
                self._adopt(number, found[number])
        return self._lingering.next_ns

    def _adoptions(self, terms: Mapping[int, VouchTerm], *, trial: bool) -> dict[int, _Adopted]:
        """Those whose nodes are on links of this node."""
        found = {number: self._adoption(term, trial=trial) for number, term in terms.items()}
        return {number: adopted for number, adopted in found.items() if adopted is not None}

    def _is_over(self, number: int, found: Mapping[int, _Adopted], now_ns: int) -> bool:
        adopted = self._adopted[number]
        if number in found:
            self._lingering.named(number)
            return found[number] != adopted
        if adopted.trial or number in self._spent:
            return True
        term = adopted.term
        return self._lingering.is_over(number, term, self._ownership.peers.known(term.node), now_ns)

    def _adoption(self, term: VouchTerm, *, trial: bool) -> _Adopted | None:
        """None: that node is on none of this node's links."""
        found = meeting_point(self._here.kernel.state.links, self._ownership.peers.links(term.node))
        return _Adopted(term, found[0].name, found[1].mac.octets, trial) if found else None

    def _adopt(self, number: int, adopted: _Adopted) -> None:
        process, term = self._process, adopted.term
        if process is None:
            return
        self._adopted[number] = replace(adopted, since_ns=boot_ns())
        d_ns = max(term.d_ns, self._terms.profile.d_ns)
        known = AdoptedTerm(number, process.instance, epoch_number(term.voucher_epoch), d_ns, adopted.trial)
        process.adopt(Adopt(known, adopted.ifname, adopted.mac, self._terms.key(term)))
        if not adopted.trial:
            log.info("vouching for %s: d=%d ms", term.node, d_ns // NS_PER_MS)

    def _drop(self, number: int) -> None:
        adopted = self._adopted.pop(number)
        self._lingering.named(number)
        self._keep_gaps(number, adopted)
        if self._process is not None:
            self._process.drop(number)
        if not adopted.trial:
            log.info("no longer vouching for %s", adopted.term.node)

    def _keep_gaps(self, number: int, adopted: _Adopted) -> None:
        report = self._reports.pop(number, None)
        if report is not None and not adopted.trial:
            self.gaps += report.gaps

    # ---- the process ----

    def _running(self, now_ns: int) -> "VoucherProcess | None":
        """The process, started if there is none; None: not yet again."""
        config = self._terms.config
        if self._process is None and config is not None and not self._ending:
            if now_ns < self._started_ns + RESTART_NS:
                asyncio.get_running_loop().call_later(RESTART_NS / NS_PER_S, self._leases.wake)
                return None
            self._started_ns = now_ns
            traced = self._trace.words if self._trace else ()
            self._process = self._here.kernel.vouched.maps.start_voucher(config.ethertype, *traced)
            asyncio.get_running_loop().add_reader(self._process.fileno(), self._hear)
        return self._process

    def _hear(self) -> None:
        process = self._process
        if process is None:
            return
        for news in process.news():
            self._take(news)
        if process.ended:
            nodes = len(self._adopted)
            log.warning("the voucher process exited (vouching for or testing %d nodes); starting another", nodes)
            self._discard_process()
            self._leases.wake()

    def _take(self, news: News) -> None:
        if isinstance(news, Started):
            self.priority = news.priority
            log.info("voucher: process running, priority %s", news.priority.value)
            return

        adopted = self._adopted.get(news.number)
        if adopted is None:
            return

        if news.report is not None:
            self._reports[news.number] = news.report
            if news.report.last is not None:
                self.heard_ns = max(self.heard_ns, news.report.last.back_ns)
        if news.phase is Phase.DECIDED:
            self._decided(news.number, adopted.term)
        elif news.phase in (Phase.NO_LINK, Phase.REFUSED):
            self._drop(news.number)  # and tried again with the next news of anything
        elif adopted.trial:
            self._leases.wake()

    def _decided(self, number: int, term: VouchTerm) -> None:
        if number not in self._spent:
            self._spent.add(number)
            last = self._reports[number].last if number in self._reports else None
            self._silent[term.node] = term, last.stamp_ns if last else 0
            self._leases.do(self._ownership.revocations.decided(term.node, term.uuid, boot_ns()))
            self._leases.wake()

    def _judge_silent(self, now_ns: int) -> None:
        """A node that left the term before this node had read so did not return a ping either, and is not dead."""
        for node, (term, stamp_ns) in list(self._silent.items()):
            known = self._ownership.peers.known(node)
            if known is None or (known.epoch == term.node_epoch and known.voucher and known.voucher.term == term.uuid):
                continue

            del self._silent[node]
            if known.epoch != term.node_epoch:
                self.decided += 1
                log.warning("node %s is dead: it has not returned a ping for %d ms", node, term.d_ns // NS_PER_MS)
                self._trials.revoked(node, stamp_ns, now_ns)

    def _discard_process(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            asyncio.get_running_loop().remove_reader(process.fileno())
            process.close()
        self._spent |= {number for number, adopted in self._adopted.items() if not adopted.trial}
        for number, adopted in self._adopted.items():
            self._keep_gaps(number, adopted)
        self._adopted.clear()
        self._lingering = Lingering()

    # ---- the end ----

    async def leave(self) -> None:
        """Says in pings that it ends, and waits a while for those that it vouches for to name another one, or none."""
        self._ending = True
        if self._process is None:
            return
        self._process.end()
        self._leases.wake()
        deadline_ns = boot_ns() + round(FAREWELL_S * NS_PER_S)
        while self._vouches_for() and boot_ns() < deadline_ns:  # noqa: ASYNC110 - `Leases.run` waits for what ends it
            await asyncio.sleep(POLL_S)


def meeting_point(own: Iterable[Link], theirs: Iterable[PublishedLink]) -> tuple[Link, PublishedLink] | None:
    """The first two links of two nodes that are in the same network; None: they do not meet."""
    return next(
        ((mine, other) for mine in own if mine.up for other in theirs if set(mine.subnets) & set(other.networks)), None
    )
