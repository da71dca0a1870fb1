"""Audits VIPs and keeps the results: regularly, and immediately when a caller of the API asks."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence

from arpguard.addresses import Address, MacAddress
from arpguard.clock import boot_ns
from arpguard.core.auditing import (
    CONFIRM_NS,
    Audited,
    AuditFinding,
    Auditors,
    Expected,
    Walk,
    expected_of,
    judge,
    replied,
)
from arpguard.core.claimants import Claimant, ClaimantKind
from arpguard.core.decisions import Report
from arpguard.dataplane.asking import Asker, Question, Replies
from arpguard.model import Decision, EntryKey, Vip
from arpguard.node import Busy, ThisNode
from arpguard.runtime.controlplane import ControlPlane
from arpguard.runtime.settings import Settings
from arpguard.runtime.waking import Alarm
from arpguard.units import NS_PER_S
from arpguard.verdict import Reason

TICK_S = 1.5
WAIT_S = 0.4  # for replies; a neighbour that needs longer is asked again in the next round
URGENT_TIMES = 3
MOST_URGENT = 16
RECHECKED = 100  # at most so many wrong findings are looked at in each round: their owner may have changed


class Auditing:
    """Asks for VIPs from this node's own address, so that no host mistakes a request for a claim."""

    def __init__(self, node: ThisNode, settings: Settings, plane: ControlPlane) -> None:
        self._node = node
        self._settings = settings
        self._plane = plane
        self._book = node.audits
        self._asker = Asker()
        self._auditors = Auditors(node.name, None)
        self._keys: Sequence[EntryKey] = ()
        self._awaited: dict[EntryKey, Replies] = {}
        self._reported: set[tuple[EntryKey, MacAddress]] = set()
        self._urgent: dict[Address, asyncio.Future[list[Audited]]] = {}
        self._due = Alarm()

    async def ask(self, address: Address) -> list[Audited]:
        """Asks for a VIP now, on each link where this node can. Raises Busy."""
        if address not in self._urgent:
            if len(self._urgent) >= MOST_URGENT:
                raise Busy
            self._urgent[address] = asyncio.get_running_loop().create_future()
            self._due.wake()
        return await asyncio.shield(self._urgent[address])

    def heard(self, decision: Decision) -> bool:
        """The kernel reports a claim. True if it answers a request of this node, and may be right.

        A program at XDP drops a stranger's reply before any process can see it.
        """
        replies = self._awaited.get(decision.key)
        if replies is None or decision.spa != decision.key.vip:
            return False
        replies.macs.setdefault(decision.key, set()).add(decision.sha)
        self._reported.add((decision.key, decision.sha))
        return decision.reason is Reason.UNVERIFIED_CLAIM

    async def run(self) -> None:
        """Runs until it is cancelled."""
        walk, then_ns = Walk(boot_ns()), boot_ns()
        try:
            while True:
                self._due.clear()
                await self._ask_urgent()
                now_ns = boot_ns()
                await self._ask_regularly(walk, min(now_ns - then_ns, 2 * NS_PER_S))
                then_ns = now_ns
                await self._due.sleep_for(TICK_S)
        finally:
            self._asker.close()
            for waiting in self._urgent.values():
                waiting.cancel()

    # ---- which VIPs ----

    async def _ask_regularly(self, walk: Walk, elapsed_ns: int) -> None:
        """Asks for the VIPs whose turn it is, and those whose last answer has to be confirmed."""
        config, now_ns = self._settings.config.audit, boot_ns()
        self._follow()
        if not config.every_ns:
            self._book.keep(())
            return

        allowed = max(1, config.rate * elapsed_ns // NS_PER_S)
        asked = dict.fromkeys(self._book.again(now_ns)[:allowed])
        for key in walk.due(self._node.state.keys, config.every_ns - CONFIRM_NS, now_ns):
            self._place(key.vip)
            if not self._is_mine(key):
                self._book.forget([key])
            else:
                asked[key] = None
            if len(asked) >= allowed:
                break
        for audited in await self._audit(asked, times=1):
            self._note(audited)

    def _follow(self) -> None:
        """Forgets results about VIPs that are gone, that have another owner now, or that other nodes audit."""
        state, cluster = self._node.state, self._node.cluster
        members = cluster.members if cluster is not None else None
        if members is not self._auditors.members:
            self._auditors = Auditors(self._node.name, members)
        if state.keys is not self._keys:
            self._keys = state.keys
            self._book.keep(state.entries)
            self._asker.keep({(link.ifindex, link.name) for link in state.links})

        if wrong := self._book.wrong(RECHECKED):
            known = self._known()
            self._book.forget([each.key for each in wrong if self._expected(each.key, known) != each.expected])
        self._book.forget([key for key in self._book.again(boot_ns()) if not self._is_mine(key)])

    def _place(self, address: Address) -> None:
        """Notes a VIP that no node can ask for; for an elected one the election says why it has no owner."""
        vip, cluster, links = self._vip(address), self._node.cluster, self._node.state.links
        astray = vip is not None and not vip.elected and not any(link.reaches(address) for link in links)
        if cluster is not None and self._plane.owner_of(address).node != self._node.name:
            astray = astray and not any(member.reaches(address, "") for member in cluster.members)
        self._book.place(address, astray=astray)

    def _is_mine(self, key: EntryKey) -> bool:
        """Whether this node is to ask for a VIP, and can."""
        if self._question(key) is None:
            return False
        vip = self._vip(key.vip)
        return self._auditors.is_mine(key.vip, vip.interface if vip else "", self._plane.owner_of(key.vip).node)

    def _question(self, key: EntryKey) -> Question | None:
        """How to ask for a VIP on a link: in its subnet, and with an address of its family."""
        entry = self._node.state.entries.get(key)
        link = next((link for link in self._node.state.links if link.ifindex == key.ifindex), None)
        if entry is None or link is None or not link.up or entry.primary is None:
            return None
        return Question(key, link.name, entry.primary) if link.reaches(key.vip) else None

    def _vip(self, address: Address) -> Vip | None:
        if self._node.cluster is not None:
            return self._node.cluster.vips.get(address)
        return self._node.in_force.find(address)[1] if self._node.in_force else None

    def _known(self) -> frozenset[str]:
        """The nodes whose MACs are known."""
        cluster = self._node.cluster
        return frozenset(cluster.published().values()) if cluster is not None else frozenset()

    def _expected(self, key: EntryKey, known: frozenset[str]) -> Expected | None:
        entry = self._node.state.entries.get(key)
        if entry is None:
            return None
        mode, owner = self._settings.config.mode, self._plane.owner_of(key.vip)
        return expected_of(entry, mode, self._vip(key.vip), owner, self._node.name, known)

    # ---- asking ----

    async def _ask_urgent(self) -> None:
        """Audits VIPs for which a caller waits. The result counts immediately, if this node audits the VIP."""
        waiting = dict(self._urgent)
        if not waiting:
            return

        keys = [key for key in self._node.state.keys if key.vip in waiting]
        found = list(await self._audit(keys, times=URGENT_TIMES))
        for audited in found:
            if self._is_mine(audited.key):
                self._book.settle(audited)
        for address, future in waiting.items():
            del self._urgent[address]
            if not future.done():
                future.set_result([audited for audited in found if audited.key.vip == address])

    async def _audit(self, keys: Iterable[EntryKey], times: int) -> Iterator[Audited]:
        """Asks for VIPs, and judges the answers; leaves out those that it could not ask for."""
        questions = [question for key in keys if (question := self._question(key)) is not None]
        if not questions:
            return iter(())

        replies, asked_ns = Replies(), boot_ns()
        self._awaited, self._reported = {question.key: replies for question in questions}, set()
        await self._asker.ask(questions, replies, times, WAIT_S)
        self._awaited = {}
        claimants = {mac: await self._who(mac) for macs in replies.macs.values() for mac in macs}
        return self._judged(questions, replies, claimants, asked_ns)

    async def _who(self, mac: MacAddress) -> Claimant:
        """Whose a MAC is: even without a cluster this node knows its own."""
        if any(link.mac == mac for link in self._node.surroundings.links):
            return Claimant(ClaimantKind.CLUSTER_NODE, self._node.name)
        return await self._plane.who(mac)

    def _judged(
        self, questions: Iterable[Question], replies: Replies, claimants: Mapping[MacAddress, Claimant], asked_ns: int
    ) -> Iterator[Audited]:
        known = self._known()
        for question in questions:
            key, macs = question.key, replies.macs.get(question.key, set())
            expected = self._expected(key, known)
            if expected is None or (key in replies.unasked and len(macs) < 2):
                continue
            heard = {mac: claimants[mac] for mac in macs}
            yield judge(key, question.ifname, expected, heard, asked_ns, self._plane.owner_of(key.vip).seen_ns)

    def _note(self, audited: Audited) -> None:
        known = self._book.note(audited)
        if known.is_known and known.finding in (AuditFinding.ANOTHER, AuditFinding.SEVERAL):
            self._plane.answered_by_others(known)
            self._list(known)

    def _list(self, audited: Audited) -> None:
        """Lists the other hosts that answered: of several replies to one request the kernel reports only the first."""
        entry = self._node.state.entries.get(audited.key)
        for answer in audited.answers:
            pair = audited.key, answer.mac
            is_listed = pair in self._reported and self._node.conflicts.has(*pair)  # not one that is held back
            if entry is None or answer.fits or is_listed:
                continue
            claim = replied(audited.key, entry, self._settings.config.mode, answer.mac, audited.asked_ns)
            report = Report(self._node.decisions.received, audited.link, claim, 1, audited.asked_ns)
            self._node.conflicts.add(report, answer.claimant)
