"""A voucher: it grants other nodes the right to answer for as long as they return its pings, and decides when one died.

Events and times come in, effects come out, in the order in which to perform them, at once. It implements V4 to V6, V14
and V16 of docs/vouching-rules.md, and of V10 that a new instance takes up no term of the one before.

Its caller has one thread. Each time that it wakes, it reads the clock, then the socket of a term until that is empty.
It passes on each pong with a right that it read *after* the pong, and a time that it read after the right. At the end
it calls `emptied`, with the time that it read *before* all of that, and then `tick`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from arpguard.core.vouching.gaps import Gaps
from arpguard.units import NS_PER_MS, NS_PER_S

PING_NS = 50 * NS_PER_MS
REPORT_NS = NS_PER_S  # how often its process reports
PATIENCE = 3  # so many pings have to stay without an answer


@dataclass(frozen=True, slots=True)
class AdoptedTerm:
    """A term in which this node vouches for another one.

    `instance`, `epoch`: of the voucher, as the term names them; the epoch by its number. `d_ns`: how long without a
    pong until the node counts as dead: the longer of its published d and this node's. `trial`: nothing is granted.
    """

    number: int
    instance: str
    epoch: int
    d_ns: int
    trial: bool = False


@dataclass(frozen=True, slots=True)
class Pong:
    """A ping that came back. `number`: the ping's. `stamp_ns`: the node's boot clock."""

    number: int
    stamp_ns: int
    bound: bool


@dataclass(frozen=True, slots=True)
class OwnRight:
    """Until when this node's own kernel may answer, and in which epoch: 0 and later, by its boot clock."""

    epoch: int
    until_ns: int


@dataclass(frozen=True, slots=True)
class Exchange:
    """A ping that came back: sent and back by the voucher's boot clock, and the stamp in between by the node's."""

    sent_ns: int
    stamp_ns: int
    back_ns: int


@dataclass(frozen=True, slots=True)
class TermReport:
    """The state of a term. `granted_ns`: when the last grant was sent, None before; `gaps`: between grants.

    In a trial `gaps` are those between pongs. `first`, `last`: exchanges.
    """

    number: int
    bound: bool
    granted_ns: int | None
    pings: int
    pongs: int
    gaps: Gaps
    first: Exchange | None
    last: Exchange | None

    def clocks_differ(self, per_mille: int) -> bool:
        """Whether the two clocks have certainly gone at rates that differ by more than this."""
        if self.first is None or self.last is None:
            return False
        theirs_ns = self.last.stamp_ns - self.first.stamp_ns
        shortest_ns = self.last.sent_ns - self.first.back_ns
        longest_ns = self.last.back_ns - self.first.sent_ns
        return not shortest_ns * (1000 - per_mille) <= theirs_ns * 1000 <= longest_ns * (1000 + per_mille)


# ---- effects ----


@dataclass(frozen=True, slots=True)
class SendPing:
    """Send a ping. `ending`: it says that this voucher is about to end."""

    term: int
    number: int
    ending: bool = False


@dataclass(frozen=True, slots=True)
class SendGrant:
    """Send the stamp of a pong back."""

    term: int
    number: int
    stamp_ns: int


@dataclass(frozen=True, slots=True)
class SeenBound:
    """A pong said for the first time that the kernel is bound to this term."""

    term: int


@dataclass(frozen=True, slots=True)
class Decided:
    """The node is dead, and the term over: nothing is sent in it any more. Its heartbeat may be revoked (V7)."""

    term: int
    report: TermReport


@dataclass(frozen=True, slots=True)
class EpochOver:
    """This node's own epoch is another than the term names: the term is dropped, and nothing is decided in it."""

    term: int
    report: TermReport


VoucherEffect: TypeAlias = SendPing | SendGrant | SeenBound | Decided | EpochOver


class Adoption:
    """One term, from its adoption to its end.

    The number of a ping is the time at which it was sent: so it is that of no other ping, of whatever term.
    """

    def __init__(self, term: AdoptedTerm, now_ns: int) -> None:
        self.term = term
        self._adopted_ns = now_ns
        self._due_ns = now_ns
        self._pinged_ns = -1

        self._unanswered = 0  # pings sent since the last pong
        self._heard_before: int | None = None  # frames on the link by the time when patience ended

        self._bound = False
        self._stamp_ns = 0  # the newest
        self._noted_ns: int | None = None  # V5: before the last grant was sent; in a trial, when the last pong came

        self._pings = self._pongs = 0
        self._gaps = Gaps()
        self._first: Exchange | None = None
        self._last: Exchange | None = None

    @property
    def report(self) -> TermReport:
        """The state of the term."""
        return TermReport(
            number=self.term.number,
            bound=self._bound,
            granted_ns=None if self.term.trial else self._noted_ns,
            pings=self._pings,
            pongs=self._pongs,
            gaps=self._gaps,
            first=self._first,
            last=self._last,
        )

    def next_ns(self, now_ns: int) -> int:
        """When there is something to do next, if nothing is heard: a ping, or perhaps a decision."""
        over_ns = self._over_ns
        decides_ns = [] if over_ns is None else [over_ns, over_ns + self.term.d_ns]
        return min([self._due_ns, *(moment_ns for moment_ns in decides_ns if moment_ns > now_ns)])

    @property
    def _over_ns(self) -> int | None:
        """When d has passed since the last grant; None before there was one, and in a trial."""
        return None if self.term.trial or self._noted_ns is None else self._noted_ns + self.term.d_ns

    def tick(self, ending: bool, now_ns: int) -> list[VoucherEffect]:  # noqa: FBT001 - what the ping says
        """A ping, if one is due. A late one does not delay the next; those that were missed are not made up for."""
        if now_ns < self._due_ns:
            return []
        late_ns = now_ns - self._due_ns
        self._due_ns += PING_NS if late_ns < PING_NS else late_ns + PING_NS
        self._pinged_ns = now_ns
        self._unanswered += 1
        self._pings += 1
        return [SendPing(self.term.number, now_ns, ending)]

    def pong(self, pong: Pong, right: OwnRight | None, now_ns: int) -> list[VoucherEffect]:
        """V5: a grant, if it is an answer to a ping of this adoption, with a newer stamp, and this node may answer."""
        if not self._adopted_ns <= pong.number <= self._pinged_ns or pong.stamp_ns <= self._stamp_ns:
            return []
        self._take(pong, now_ns)
        effects: list[VoucherEffect] = []

        if self.term.trial:
            self._note(now_ns)
        elif right is not None and now_ns < right.until_ns:
            self._note(now_ns)
            effects.append(SendGrant(self.term.number, pong.number, pong.stamp_ns))

        if pong.bound and not self._bound:
            self._bound = True
            effects.append(SeenBound(self.term.number))
        return effects

    def _take(self, pong: Pong, now_ns: int) -> None:
        self._stamp_ns = pong.stamp_ns
        self._unanswered = 0
        self._heard_before = None

        self._pongs += 1
        self._last = Exchange(pong.number, pong.stamp_ns, now_ns)
        self._first = self._first or self._last

    def _note(self, now_ns: int) -> None:
        if self._noted_ns is not None:
            self._gaps = self._gaps.with_gap(now_ns - self._noted_ns)
        self._noted_ns = now_ns

    def decides(self, heard: Callable[[], int], now_ns: int) -> bool:
        """V6, V14: whether the term ends. The socket has been read empty since `now_ns`.

        `heard` gives how many frames have ever come over the link, whatever they were; it is asked while pings stay
        without an answer. If none has come since, this node's own link may be dead, and it waits for twice as long: a
        node that lives has un-bound by then (V8).
        """
        over_ns = self._over_ns
        if over_ns is None or self._unanswered <= PATIENCE:  # the last of them may still be answered
            return False
        if self._heard_before is None:
            self._heard_before = heard()
        decides_ns = over_ns if heard() > self._heard_before else over_ns + self.term.d_ns
        return self._bound and now_ns >= decides_ns


class Voucher:
    """Every term in which one instance vouches. After a restart it is another one, without any of the terms before."""

    def __init__(self, instance: str) -> None:
        self._instance = instance
        self._terms: dict[int, Adoption] = {}
        self._over: set[int] = set()
        self._ending = False

    @property
    def idle(self) -> bool:
        """Whether there is no term."""
        return not self._terms

    def reports(self) -> list[TermReport]:
        """The state of each term."""
        return [adoption.report for adoption in self._terms.values()]

    def next_ns(self, now_ns: int) -> int | None:
        """When there is something to do next, if nothing is heard; None: nothing."""
        return min((adoption.next_ns(now_ns) for adoption in self._terms.values()), default=None)

    def adopt(self, term: AdoptedTerm, now_ns: int) -> bool:
        """Begins to ping. False, and nothing happens, if it names another instance, is over, or was adopted before."""
        if term.instance != self._instance or term.number in self._over or term.number in self._terms:
            return False
        self._terms[term.number] = Adoption(term, now_ns)
        return True

    def drop(self, number: int) -> None:
        """The heartbeat does not name this term any more, or the trial is over."""
        self._terms.pop(number, None)

    def end(self) -> None:
        """Makes pings say from now on that this voucher is about to end."""
        self._ending = True

    def tick(self, now_ns: int) -> list[VoucherEffect]:
        """Time has passed: sends pings that are due."""
        return [effect for adoption in self._terms.values() for effect in adoption.tick(self._ending, now_ns)]

    def pong(self, number: int, pong: Pong, right: OwnRight | None, now_ns: int) -> list[VoucherEffect]:
        """A pong of a term. `right`: this node's, read after the pong came, None if unknown; `now_ns`: read then."""
        adoption = self._terms.get(number)
        if adoption is None:
            return []
        if right is not None and right.epoch != adoption.term.epoch:
            self._finish(number)
            return [EpochOver(number, adoption.report)]
        return adoption.pong(pong, right, now_ns)

    def emptied(self, number: int, heard: Callable[[], int], now_ns: int) -> list[VoucherEffect]:
        """All that had come in a term by `now_ns` has been handled; `heard`: on its link, as in Adoption.decides."""
        adoption = self._terms.get(number)
        if adoption is None or not adoption.decides(heard, now_ns):
            return []
        self._finish(number)
        return [Decided(number, adoption.report)]

    def _finish(self, number: int) -> None:
        """This instance takes no such term up again."""
        del self._terms[number]
        self._over.add(number)
