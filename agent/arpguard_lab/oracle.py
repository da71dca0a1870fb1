"""Judges what was heard: whether two nodes ever answered for one VIP.

Every request has an address of its own as sender, and every node hears every request. So two nodes that would both
answer do both answer, to the same request. Three things are wrong, each for itself:

    doubled    a request that two nodes answered
    overlap    a node that answered (or announced) less than MIN_GAP after another one did: whoever gives a VIP up
               drains for that long before anybody else may take it, and a fence leaves far more
    unbacked   an answer of a node that the claim in the API did not name at that moment, or named in an epoch that
               was not the node's any more (only where the API's own journal tells, see `Ledger`)

Pure: no clock, no sockets. Times are nanoseconds of the wall clock of the one machine that the lab runs on.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TypeVar

from arpguard.addresses import Address, MacAddress
from arpguard.units import NS_PER_MS
from arpguard_lab.asking import is_number
from arpguard_lab.capture import Said

V = TypeVar("V")

MIN_GAP_NS = 10 * NS_PER_MS
_REMEMBERED = 4096  # requests for which a second answer would be noticed


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that must not be: what, when, about which VIP, in words."""

    kind: str
    time_ns: int
    vip: Address
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.vip}: {self.text}"


@dataclass(frozen=True, slots=True)
class Handover:
    """From the last answer of one node to the first of another."""

    vip: Address
    before: MacAddress
    after: MacAddress
    last_ns: int
    first_ns: int

    @property
    def gap_ns(self) -> int:
        """How long nobody answered, as far as the requests tell."""
        return self.first_ns - self.last_ns


@dataclass(slots=True)
class _Record:
    """What is known of one VIP."""

    mac: MacAddress | None = None
    last_ns: int = 0
    answered: OrderedDict[Address, MacAddress] = field(default_factory=OrderedDict)


class Oracle:
    """Told everything in its order; `findings` has what was wrong, `handovers` what changed rightly."""

    def __init__(self, names: Mapping[MacAddress, str]) -> None:
        """`names`: of the hosts, for findings."""
        self._names = names
        self._records: dict[Address, _Record] = {}
        self.findings: list[Finding] = []
        self.handovers: list[Handover] = []
        self.answers = 0

    def hear(self, said: Iterable[Said]) -> None:
        """Judges what was recorded since the last time."""
        for each in said:
            self._hear(each)

    def _hear(self, said: Said) -> None:
        self.answers += 1
        record = self._records.setdefault(said.vip, _Record())
        if not said.is_announcement and is_number(said.asked_by):  # kernels ask from the same address again and again
            self._remember(record, said)
        if record.mac is not None and record.mac != said.mac:
            self._change(record.mac, record.last_ns, said)
        record.mac, record.last_ns = said.mac, said.time_ns

    def _remember(self, record: _Record, said: Said) -> None:
        other = record.answered.setdefault(said.asked_by, said.mac)
        if other != said.mac:
            who = f"{self._name(other)} and {self._name(said.mac)} answered the same request of {said.asked_by}"
            self.findings.append(Finding("doubled", said.time_ns, said.vip, who))
        if len(record.answered) > _REMEMBERED:
            record.answered.popitem(last=False)

    def _change(self, before: MacAddress, last_ns: int, said: Said) -> None:
        handover = Handover(said.vip, before, said.mac, last_ns, said.time_ns)
        if handover.gap_ns >= MIN_GAP_NS:
            self.handovers.append(handover)
            return
        text = (
            f"{self._name(said.mac)} {'announced' if said.is_announcement else 'answered'} "
            f"{handover.gap_ns / NS_PER_MS:.2f} ms after {self._name(before)} did"
        )
        self.findings.append(Finding("overlap", said.time_ns, said.vip, text))

    def _name(self, mac: MacAddress) -> str:
        return self._names.get(mac, str(mac))


@dataclass(frozen=True, slots=True)
class LeaseWrite:
    """One write of a Lease as the API did it: a claim (`vip` set) or a heartbeat (`node` set).

    `holder` is empty for a claim that is released or gone. `uid`: of the heartbeat, or of the one that the claim names;
    `lease_ns`: what the heartbeat publishes.
    """

    time_ns: int
    vip: Address | None = None
    node: str = ""
    holder: str = ""
    epoch: str = ""
    uid: str = ""
    lease_ns: int = 0


class Ledger:
    """Who might answer for what, and when, by the API's own journal."""

    def __init__(self, macs: Mapping[str, MacAddress]) -> None:
        """`macs`: of the nodes, by their names in the API."""
        self._macs = macs
        self._claims: dict[Address, tuple[list[int], list[tuple[str, str, str]]]] = {}
        self._epochs: dict[str, tuple[list[int], list[tuple[str, str]]]] = {}
        self._first_leases_ns: dict[str, int] = {}  # of heartbeats, by their uid: what each published when it was new
        self._latest_ns = 0

    def write(self, writes: Iterable[LeaseWrite]) -> None:
        """Takes writes in, in their order."""
        for each in writes:
            self._latest_ns = max(self._latest_ns, each.time_ns)
            if each.vip is not None:
                _note(self._claims.setdefault(each.vip, ([], [])), each.time_ns, (each.holder, each.epoch, each.uid))
            else:
                _note(self._epochs.setdefault(each.node, ([], [])), each.time_ns, (each.epoch, each.uid))
                self._first_leases_ns.setdefault(each.uid, each.lease_ns)

    def judge(self, said: Sequence[Said], skip: frozenset[Address] = frozenset()) -> list[Finding]:
        """The answers that no valid claim stands behind. VIPs in `skip` have none, or are held without one."""
        judged = (self._judge(each) for each in said if each.vip not in skip)
        return [finding for finding in judged if finding is not None]

    def _judge(self, said: Said) -> Finding | None:
        holder, epoch, uid = _at(self._claims.get(said.vip), said.time_ns, ("", "", ""))
        void = holder != "" and self._is_void(holder, epoch, uid, said.time_ns)
        if self._macs.get(holder) == said.mac and not void:
            return None
        speaker = next((name for name, mac in self._macs.items() if mac == said.mac), str(said.mac))
        state = f"the claim named {holder or 'no node'}" + (", and was void" if void else "")
        return Finding("unbacked", said.time_ns, said.vip, f"{speaker} answered while {state}")

    def _is_void(self, holder: str, epoch: str, uid: str, now_ns: int) -> bool:
        """By another epoch in the same heartbeat, or by another heartbeat that has been there for long enough.

        Where nodes vouch for each other a heartbeat that somebody deleted is recreated at once. The claims of the one
        before stay valid for as long as the new one published at first (V18).
        """
        times, values = self._epochs.get(holder, ([], []))
        index = bisect_right(times, now_ns)
        current, current_uid = values[index - 1] if index else ("", "")
        if current == epoch or not uid or current_uid == uid:
            return current != epoch

        last = next((past for past, of in reversed(values[:index]) if of == uid), "")
        made_ns = next((at for at, (_, of) in zip(times, values, strict=True) if of == current_uid), 0)
        return last != epoch or now_ns >= made_ns + self._first_leases_ns[current_uid]


def _note(history: tuple[list[int], list[V]], time_ns: int, value: V) -> None:
    """Most writes are renewals, which change nothing."""
    times, values = history
    if not values or values[-1] != value:
        times.append(time_ns)
        values.append(value)


def _at(history: tuple[list[int], list[V]] | None, time_ns: int, default: V) -> V:
    if history is None:
        return default
    index = bisect_right(history[0], time_ns)
    return history[1][index - 1] if index else default


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and worst of some lengths of time, in whole milliseconds; None where there were none."""

    count: int
    median_ms: int | None
    worst_ms: int | None

    @classmethod
    def of(cls, lengths_ns: Sequence[int]) -> "Spread":
        """Sums up."""
        if not lengths_ns:
            return cls(0, None, None)
        return cls(len(lengths_ns), round(median(lengths_ns) / NS_PER_MS), round(max(lengths_ns) / NS_PER_MS))
