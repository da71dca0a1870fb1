"""Vouching on this node: whom its heartbeat names, whom it tries, and its voucher's process, which vouches for others.

`core/vouching/seeking` decides whom to seek, `trials` whom to accept, and `core/ownership` what the heartbeat names.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from arpguard.addresses import Network
from arpguard.clock import boot_ns
from arpguard.core.ownership.machine import Ownership
from arpguard.core.ownership.records import Heartbeat, NamedVoucher, PublishedLink, PublishedVouching, epoch_number
from arpguard.core.vouching.lingering import Lingering
from arpguard.core.vouching.ring import RingNode, vouchers_for
from arpguard.core.vouching.seeking import Seeking, VoucherChoice, VoucherView
from arpguard.core.vouching.trials import Trials, on_trial, trial_term
from arpguard.core.vouching.voucher import AdoptedTerm, TermReport
from arpguard.model import Link
from arpguard.runtime.cluster.here import Here
from arpguard.runtime.cluster.leases import POLL_S, Leases
from arpguard.runtime.cluster.publishing import LinkPublisher
from arpguard.runtime.cluster.terms import Terms
from arpguard.runtime.voucher.messages import Adopt, News, Phase, Started
from arpguard.units import NS_PER_MS, NS_PER_S
from arpguard.verdict import Mode
from arpguard.wire.vouching import VouchTerm, term_number

if TYPE_CHECKING:
    from arpguard.runtime.voucher.process import VoucherProcess

log = logging.getLogger(__name__)

RESTART_NS = NS_PER_S
TELL_NS = 300 * NS_PER_MS  # a renewal that tells the others goes out by then
FAREWELL_S = 0.5


@dataclass(frozen=True, slots=True)
class _Adopted:
    """A term that the voucher's process has been told, and where it finds the node."""

    term: VouchTerm
    ifname: str
    mac: bytes
    trial: bool


class Vouching:
    """`look` is called in each decision. `instance`: of this agent, as its heartbeat names it."""

    def __init__(
        self,
        here: Here,
        ownership: Ownership,
        instance: str,
        leases: Leases,
        links: LinkPublisher,
        terms: Terms,
        trials: Trials,
    ) -> None:
        self._here = here
        self._ownership = ownership
        self._instance = instance
        self._leases = leases
        self._links = links
        self._terms = terms
        self._trials = trials
        self._seeking: Seeking | None = None  # None: this node takes no part yet
        self._reading: asyncio.Task[None] | None = None

        self._process: VoucherProcess | None = None
        self._started_ns = 0
        self._adopted: dict[int, _Adopted] = {}
        self._spent: set[int] = set()  # terms of processes that have ended: no other takes them up (V10)
        self._lingering = Lingering()
        self._ending = False
        self._seeks = ""
        self._plan_ns: int | None = None
        self.reports: dict[int, TermReport] = {}

    def close(self) -> None:
        """Ends the voucher's process."""
        if self._reading is not None:
            self._reading.cancel()
        self._discard_process()

    # ---- in a decision ----

    def look(self, now_ns: int, *, takes_part: bool) -> int | None:
        """Does what is to be done now; returns when to look again."""
        config = self._terms.config
        if config is None:
            self._name_nobody(now_ns)
            return None
        if not self._terms.ready:
            self._reading = self._reading or asyncio.create_task(self._learn_secret(config.secret))
            return None

        own = self._ownership.heartbeat
        is_able = takes_part and not (own.lease.parting or self._ending)
        others = self._others(now_ns) if is_able else {}
        if own.holds:  # without an answer of the API server all stays as it is
            self._seek(others, now_ns, may=is_able and self._enforces)

        vouched = self._vouches_for()
        moments = [self._plan_ns, self._vouch(vouched, self._tried(others, vouched), now_ns)]
        moments.append(self._publish(now_ns, takes_part=is_able))
        return min((moment for moment in moments if moment is not None), default=None)

    def _others(self, now_ns: int) -> dict[str, Heartbeat]:
        """The nodes that are alive and take part, too."""
        peers = self._ownership.peers
        return {each.node: each for each in peers.heartbeats if each.vouching and peers.alive(each.node, now_ns)}

    async def _learn_secret(self, name: str) -> None:
        await self._terms.learn_secret(name)
        self._leases.wake()

    # ---- as the node that is vouched for ----

    @property
    def _enforces(self) -> bool:
        control = self._here.kernel.state.control
        return control is not None and control.mode is Mode.ENFORCE

    def _name_nobody(self, now_ns: int) -> None:
        self._seeks, self._plan_ns = "", None
        if self._ownership.heartbeat.naming.named is not None:
            self._leases.do(self._ownership.heartbeat.name(None, now_ns))
        self._terms.try_out(None)

    def _seek(self, others: Mapping[str, Heartbeat], now_ns: int, *, may: bool) -> None:
        """Names a voucher, or has one try this node."""
        if not may:  # V13, among others
            self._name_nobody(now_ns)
            return

        self._seeking = self._seeking or Seeking(self._terms.profile)
        plan = self._seeking.decide(self._view(others), now_ns)
        self._seeks, self._plan_ns = plan.seeks, plan.next_ns
        self._leases.do(self._ownership.heartbeat.name(plan.names, now_ns))

        own, sought = self._ownership.heartbeat, others.get(plan.seeks)
        trial = sought and (self._here.node, own.epoch, sought.node, sought.instance, sought.epoch)
        self._terms.try_out(trial_term(*trial) if trial else None)

    def _view(self, others: Mapping[str, Heartbeat]) -> VoucherView:
        naming = self._ownership.heartbeat.naming
        return VoucherView(
            choices=() if self._is_left(naming.named) else self._choices(others),
            named=naming.named,
            bound=naming.kernel.bound,
            unbinds=naming.unbinds,
            revocations=naming.revocations,
            others_bound=any(other.bound for other in others.values()),
        )

    def _is_left(self, named: NamedVoucher | None) -> bool:
        """Whether the voucher takes no part any more: its agent ends, and says so before it does (V11)."""
        found = self._ownership.peers.known(named.node) if named else None
        return found is not None and found.instance != "" and found.vouching is None

    def _choices(self, others: Mapping[str, Heartbeat]) -> tuple[VoucherChoice, ...]:
        own = frozenset(network for link in self._here.kernel.state.links if link.up for network in link.subnets)
        ring = [RingNode(each.node, _networks(each)) for each in others.values()]
        names = vouchers_for(RingNode(self._here.node, own), ring)
        return tuple(self._choice(others[name]) for name in names)

    def _choice(self, other: Heartbeat) -> VoucherChoice:
        accepts = dict(other.vouching.accepts) if other.vouching else {}
        return VoucherChoice(other.node, other.instance, other.epoch, accepts.get(self._here.node))

    # ---- as a voucher ----

    def _vouches_for(self) -> dict[int, VouchTerm]:
        terms = {
            term_number(term.uuid): term
            for term in self._ownership.revocations.vouches_for(self._ownership.heartbeat.epoch)
        }
        return {number: term for number, term in terms.items() if number not in self._spent}

    def _tried(self, others: Mapping[str, Heartbeat], vouched: Mapping[int, VouchTerm]) -> dict[int, VouchTerm]:
        """The trials of those that seek this node."""
        seekers = [name for name, each in others.items() if each.vouching and each.vouching.seeks == self._here.node]
        names = on_trial(seekers, (term.node for term in vouched.values()))
        epoch = self._ownership.heartbeat.epoch
        terms = [trial_term(name, others[name].epoch, self._here.node, self._instance, epoch) for name in names]
        return {term_number(term.uuid): term for term in terms}

    def _vouch(self, vouched: Mapping[int, VouchTerm], tried: Mapping[int, VouchTerm], now_ns: int) -> int | None:
        """Has the process vouch in these terms only; returns when to look whether it is to end another one."""
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
        self._adopted[number] = adopted
        d_ns = max(term.d_ns, self._terms.profile.d_ns)
        known = AdoptedTerm(number, process.instance, epoch_number(term.voucher_epoch), d_ns, adopted.trial)
        process.adopt(Adopt(known, adopted.ifname, adopted.mac, self._terms.key(term)))
        if not adopted.trial:
            log.info("vouching for %s: d=%d ms", term.node, d_ns // NS_PER_MS)

    def _drop(self, number: int) -> None:
        adopted = self._adopted.pop(number)
        self._lingering.named(number)
        self.reports.pop(number, None)
        if self._process is not None:
            self._process.drop(number)
        if not adopted.trial:
            log.info("no longer vouching for %s", adopted.term.node)

    def _publish(self, now_ns: int, *, takes_part: bool) -> int | None:
        """Tells the others whom it seeks and accepts; returns when to look whether a renewal can do that now."""
        tried = {adopted.term.node: number for number, adopted in self._adopted.items() if adopted.trial}
        reports = {node: self.reports[number] for node, number in tried.items() if number in self.reports}
        verdict = self._trials.judge(reports, now_ns)
        for node in verdict.again:
            self._drop(tried[node])
        if verdict.again:
            self._leases.wake()

        self._links.vouching = PublishedVouching(self._seeks, verdict.accepts) if takes_part else None
        return None if self._links.told_vouching else now_ns + TELL_NS

    # ---- the process ----

    def _running(self, now_ns: int) -> "VoucherProcess | None":
        """The process, started if there is none; None: not yet again."""
        config = self._terms.config
        if self._process is None and config is not None and not self._ending:
            if now_ns < self._started_ns + RESTART_NS:
                asyncio.get_running_loop().call_later(RESTART_NS / NS_PER_S, self._leases.wake)
                return None
            self._started_ns = now_ns
            self._process = self._here.kernel.vouched.start_voucher(config.ethertype)
            asyncio.get_running_loop().add_reader(self._process.fileno(), self._hear)
        return self._process

    def _hear(self) -> None:
        process = self._process
        if process is None:
            return
        for news in process.news():
            self._take(news)
        if process.ended:
            log.warning("the voucher's process has ended (%d terms); starting another one", len(self._adopted))
            self._discard_process()
            self._leases.wake()

    def _take(self, news: News) -> None:
        if isinstance(news, Started):
            log.info("voucher: its process runs, priority %s", news.priority.value)
            return
        adopted = self._adopted.get(news.number)
        if adopted is None:
            return
        if news.report is not None:
            self.reports[news.number] = news.report
        if news.phase is Phase.DECIDED:
            self._decided(news.number, adopted.term)
        elif news.phase in (Phase.NO_LINK, Phase.REFUSED):
            self._drop(news.number)  # and tried again with the next news of anything
        elif adopted.trial:
            self._leases.wake()

    def _decided(self, number: int, term: VouchTerm) -> None:
        if number not in self._spent:
            self._spent.add(number)
            log.warning("%s is dead: it has not returned a ping for %d ms", term.node, term.d_ns // NS_PER_MS)
            last = self.reports[number].last if number in self.reports else None
            self._trials.revoked(term.node, last.stamp_ns if last else 0, boot_ns())
            self._leases.do(self._ownership.revocations.decided(term.node, term.uuid, boot_ns()))
            self._leases.wake()

    def _discard_process(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            asyncio.get_running_loop().remove_reader(process.fileno())
            process.close()
        self._spent |= {number for number, adopted in self._adopted.items() if not adopted.trial}
        self._adopted.clear()
        self._lingering = Lingering()
        self.reports.clear()

    # ---- the end ----

    async def leave(self) -> None:
        """Takes no part any more, and waits a while for those that it vouches for to name another one, or none."""
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


def _networks(heartbeat: Heartbeat) -> frozenset[Network]:
    return frozenset(network for link in heartbeat.links for network in link.networks)
