"""The audit sends a request for every VIP now and then: only so can it hear hosts that only reply to requests.

One node asks for each VIP: of those that have a link in its subnet and do not own it, the one that rendezvous hashing
prefers; the owner, if no other node has such a link. Each node goes through all VIPs at an even pace, and asks for its
share of them. An unexpected answer counts when `CONFIRMATIONS` questions in a row, `AGAIN_NS` apart, got the same: a
VIP may be moving, and a frame may be lost. For a host outside two are enough: it cannot be the next owner. If it is the
only one that answers, it may still be the owner, whose MAC changed while it could not publish that: then questions go
on until such an owner's lease is over. Times are CLOCK_BOOTTIME nanoseconds.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import islice

from arpguard.addresses import ZERO_MAC, Address, MacAddress, Network, address_order
from arpguard.core.bounding import bounded, some
from arpguard.core.claimants import OUTSIDE, Claimant, ClaimantKind
from arpguard.core.conflicts import KnownOwner
from arpguard.core.members import Member
from arpguard.core.rendezvous import Scales, fingerprint
from arpguard.model import Decision, EntryKey, OwnerKind, Vip, VipEntry
from arpguard.units import NS_PER_S
from arpguard.verdict import Hook, Kind, Mode, Reason, Verdict
from arpguard.wire.arp import ArpOp
from arpguard.wire.ndp import NdType

CONFIRMATIONS = 3
OF_STRANGERS = 2
OF_LONE_STRANGERS = 5  # longer than a lease by default
AGAIN_NS = 3 * NS_PER_S // 2
CONFIRM_NS = 8 * NS_PER_S  # what is left of the period for the last VIP of a round
CATCH_UP_NS = 3 * NS_PER_S  # what a pause longer than this has left out is not made up for
MAX_PROBLEMS = 20

_ROUTERS = frozenset({ClaimantKind.VRRP_ROUTER, ClaimantKind.HSRP_ROUTER, ClaimantKind.GLBP_ROUTER})


# ---- whose turn it is ----


class Walk:
    """Goes through VIPs in their order, all of them once in a round, and starts over; VIPs may come and go."""

    def __init__(self, now_ns: int) -> None:
        self._last: EntryKey | None = None
        self._owed = 0.0
        self._then_ns = now_ns

    def due(self, keys: Sequence[EntryKey], round_ns: int, now_ns: int) -> Iterator[EntryKey]:
        """The VIPs whose turn has come, of `keys` in order. Whoever stops early gets the rest the next time."""
        pace = len(keys) / round_ns
        self._owed = min(self._owed + pace * (now_ns - self._then_ns), max(1.0, pace * CATCH_UP_NS))
        self._then_ns = now_ns

        while keys and self._owed >= 1:
            self._owed -= 1
            at = bisect_right(keys, self._last.order, key=lambda key: key.order) if self._last else 0
            self._last = keys[at % len(keys)]
            yield self._last


class Auditors:
    """Which node asks for which VIP. `members`: the cluster's nodes; None without a cluster, where each node asks."""

    def __init__(self, node: str, members: Sequence[Member] | None) -> None:
        self._node = node
        self.members = members
        self._alive = [member for member in members or () if member.alive or member.name == node]
        self._networks = tuple({network for member in self._alive for _, network in member.links})
        self._pools: dict[tuple[str, tuple[Network, ...]], _Pool] = {}

    def is_mine(self, vip: Address, interface: str, owner: str) -> bool:
        """Whether this node asks for a VIP of `owner`, on its links with that name (empty: any)."""
        if self.members is None:
            return True

        around = tuple(network for network in self._networks if vip in network)
        pool = self._pools.get((interface, around))
        if pool is None:
            names = [member.name for member in self._alive if member.reaches(vip, interface)]
            pool = self._pools[interface, around] = _Pool(names)
        return pool.auditor(vip, owner) == self._node


class _Pool:
    """The nodes that could ask for a VIP."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = sorted(names)
        self._scales = Scales([fingerprint(name) for name in self._names])

    def auditor(self, vip: Address, owner: str) -> str | None:
        weights = zip(self._scales.weights(fingerprint(f"audit {vip}")), self._names, strict=True)
        others = max((pair for pair in weights if pair[1] != owner), default=None)
        return others[1] if others else owner if owner in self._names else None


# ---- what the answers mean ----


class AuditFinding(IntEnum):
    """Which answers came; the numbers are those of the API, as tests/unit/test_proto.py checks."""

    OWNER = 1
    NONE = 2
    ANOTHER = 3
    SEVERAL = 4


@dataclass(frozen=True, slots=True)
class Expected:
    """Which host should answer. `node`, `mac`: the owner's, as far as known; `outside`: a host outside owns the VIP.

    `here`: the node that asks should answer itself, and does not hear that. `may_be_silent`: no answer is fine,
    too. `is_sure` False: the owner's MACs are not known, so that any one of them may be the owner's.
    """

    node: str = ""
    mac: MacAddress = ZERO_MAC
    outside: bool = False
    delegated: bool = False
    here: bool = False
    may_be_silent: bool = False
    is_sure: bool = True

    def fits(self, mac: MacAddress, claimant: Claimant) -> bool:
        """Whether an answer may be the owner's."""
        if mac == self.mac != ZERO_MAC or (self.node and claimant.node == self.node):
            return True
        if self.delegated and claimant.kind in _ROUTERS:
            return True
        if self.outside:
            return self.mac == ZERO_MAC and not claimant.is_node
        return not self.is_sure

    @property
    def who(self) -> str:
        """The owner in words; empty: nobody."""
        if self.outside:
            return "a host outside" if self.mac == ZERO_MAC else str(self.mac)
        return self.node


_UNKNOWN = Expected(may_be_silent=True, is_sure=False)


def expected_of(
    entry: VipEntry, mode: Mode, vip: Vip | None, owner: KnownOwner, node: str, known: Container[str]
) -> Expected:
    """Who is to answer for a VIP, by this node's entry and mode. `known`: the nodes whose MACs are known."""
    if entry.kind is Kind.OWNED and entry.epoch and not (entry.unfenced or owner.is_here):
        return _UNKNOWN  # this node does not renew: another may have the VIP by now
    if entry.kind in (Kind.OWNED, Kind.DELEGATED):
        return Expected(node=node, here=True, delegated=entry.kind is Kind.DELEGATED)
    if entry.kind is Kind.EXTERNAL:
        return Expected(mac=entry.owner_mac, outside=True)
    if not owner.node or not owner.is_sure:
        return _UNKNOWN

    delegated = vip is not None and (vip.owner.delegated or vip.owner.kind is OwnerKind.FOLLOW)
    # While the owner observes, its program answers nothing, and perhaps its kernel does not have the VIP.
    observed = (entry.mode or mode) is Mode.OBSERVE and not delegated
    elsewhere = owner.node == node  # it answers on another link, perhaps of another segment
    return Expected(
        node=owner.node,
        mac=entry.owner_mac,
        delegated=delegated,
        may_be_silent=observed or elsewhere,
        is_sure=owner.node in known or entry.owner_mac != ZERO_MAC,
    )


@dataclass(frozen=True, slots=True)
class Answerer:
    """A MAC that answered, which host has it, and whether it may be the owner's."""

    mac: MacAddress
    claimant: Claimant = OUTSIDE
    fits: bool = True

    def __str__(self) -> str:
        if self.claimant == OUTSIDE:
            return str(self.mac) if self.fits else f"{self.mac} (a host outside the cluster)"
        return f"{self.mac} ({self.claimant})"


@dataclass(frozen=True, slots=True)
class Audited:
    """What a request for a VIP found. `count`: how many requests in a row found the same.

    `seen_ns`: until when the watch on claims had shown who owns the VIP; None where no claim says that.
    """

    key: EntryKey
    link: str
    expected: Expected
    finding: AuditFinding
    answers: tuple[Answerer, ...]
    asked_ns: int
    count: int = 1
    seen_ns: int | None = None

    @property
    def is_right(self) -> bool:
        """Whether the owner alone answers, or no host where none has to."""
        return self.finding is AuditFinding.OWNER or (self.finding is AuditFinding.NONE and self.expected.may_be_silent)

    @property
    def is_known(self) -> bool:
        """Whether the result counts: it is right, or enough requests in a row found it."""
        return self.is_right or self.count >= self.needed

    @property
    def needed(self) -> int:
        """How many requests in a row have to find this, if it is not right."""
        if all(answer.fits or answer.claimant.is_node for answer in self.answers):
            return CONFIRMATIONS
        is_alone = self.finding is AuditFinding.ANOTHER and self.answers[0].claimant == OUTSIDE
        return OF_LONE_STRANGERS if is_alone and self.expected.node else OF_STRANGERS

    @property
    def macs(self) -> int:
        """How many MACs answer, including the asking node's own answer, which it does not hear."""
        return len(self.answers) + self.expected.here

    def after(self, last: "Audited") -> "Audited":
        """The same, with how often it was found in a row. What was heard of the owner before `last` proves nothing."""
        if not last.is_like(self):
            return self
        is_news = self.seen_ns is None or self.seen_ns >= last.asked_ns
        return replace(self, count=last.count + is_news)

    def is_like(self, other: "Audited") -> bool:
        """Whether another request found the same."""
        mine, theirs = (self.finding, self.expected, self.answers), (other.finding, other.expected, other.answers)
        return mine == theirs


def judge(
    key: EntryKey,
    link: str,
    expected: Expected,
    heard: Mapping[MacAddress, Claimant],
    asked_ns: int,
    seen_ns: int | None = None,
) -> Audited:
    """The result of an audit that these hosts answered."""
    answers = tuple(Answerer(mac, heard[mac], expected.fits(mac, heard[mac])) for mac in sorted(heard, key=str))
    if expected.here:
        answers = tuple(answer for answer in answers if answer.claimant.node != expected.node)  # its other links
        finding = AuditFinding.SEVERAL if answers else AuditFinding.OWNER
    elif not answers:
        finding = AuditFinding.NONE
    elif len(answers) > 1:
        finding = AuditFinding.SEVERAL
    else:
        finding = AuditFinding.OWNER if answers[0].fits else AuditFinding.ANOTHER
    return Audited(key, link, expected, finding, answers, asked_ns, seen_ns=seen_ns)


def replied(key: EntryKey, entry: VipEntry, mode: Mode, mac: MacAddress, time_ns: int) -> Decision:
    """What the kernel reports of a stranger's reply to a question of this node, as far as lists show it.

    `mode`: the node's. The kernel lets a reply pass that may be the owner's as far as the entry tells.
    """
    is_judged = entry.kind is Kind.OWNED or (entry.kind is not Kind.DELEGATED and entry.owner_mac != ZERO_MAC)
    return Decision(
        time_ns=time_ns,
        key=key,
        verdict=Verdict.CONFLICT if is_judged else Verdict.REPORT,
        reason=Reason.CONFLICT,
        hook=Hook.TC_INGRESS,
        mode=entry.mode or mode,
        kind=entry.kind,
        op=ArpOp.REPLY if key.vip.version == 4 else NdType.ADVERTISEMENT,
        spa=key.vip,
        tpa=entry.primary or key.vip,
        sha=mac,
        tha=entry.link_mac,
        eth_src=mac,
        eth_dst=entry.link_mac,
    )


# ---- what was found ----


class AuditBook:
    """What the last audit found about each VIP that this node asks for."""

    def __init__(self) -> None:
        self.found: dict[EntryKey, Audited] = {}
        self._wrong: dict[EntryKey, Audited] = {}  # the part of it that is
        self._suspected: dict[EntryKey, Audited] = {}
        self._astray: set[Address] = set()

    def place(self, vip: Address, *, astray: bool) -> None:
        """Whether a VIP is in the subnet of no guarded link, so that no host asks for it."""
        (self._astray.add if astray else self._astray.discard)(vip)

    def note(self, audited: Audited) -> Audited:
        """Takes in the result of a request. Returns what is known of the VIP now."""
        last = self._suspected.pop(audited.key, None) or self.found.get(audited.key)
        if last is not None:
            audited = audited.after(last)

        if audited.is_known:
            self.settle(audited)
        else:
            self._suspected[audited.key] = audited
        return audited

    def settle(self, audited: Audited) -> None:
        """Makes a result count, however often it was found."""
        self.forget([audited.key])
        audited = replace(audited, count=max(audited.count, audited.needed))
        self.found[audited.key] = audited
        if not audited.is_right:
            self._wrong[audited.key] = audited

    def again(self, now_ns: int) -> list[EntryKey]:
        """The VIPs to ask for again, to know for certain."""
        return [key for key, audited in self._suspected.items() if audited.asked_ns + AGAIN_NS <= now_ns]

    def forget(self, keys: Iterable[EntryKey]) -> None:
        """Drops VIPs that other nodes audit now, or none does."""
        for key in keys:
            for memory in (self.found, self._wrong, self._suspected):
                memory.pop(key, None)

    def keep(self, keys: Container[EntryKey]) -> None:
        """Forgets all others."""
        self._astray.clear()
        self.forget([key for key in (*self.found, *self._suspected) if key not in keys])

    def wrong(self, limit: int | None = None) -> list[Audited]:
        """The results that are not right."""
        return list(islice(self._wrong.values(), limit))

    def findings(self) -> Counter[AuditFinding]:
        """How many VIPs have each finding; right ones count as OWNER."""
        counts = Counter(audited.finding for audited in self._wrong.values())
        counts[AuditFinding.OWNER] = len(self.found) - len(self._wrong)
        return counts

    def oldest_ns(self) -> int | None:
        """When the last request was sent for the VIP that has waited longest."""
        return min((audited.asked_ns for audited in self.found.values()), default=None)

    @property
    def problems(self) -> list[str]:
        """VIPs for which no host answers, or the wrong one: a sentence for each owner or host."""
        vips: dict[tuple[AuditFinding, str], set[Address]] = {}
        for audited in self._wrong.values():
            for who in _concerned(audited):
                vips.setdefault((audited.finding, who), set()).add(audited.key.vip)

        groups = sorted(vips, key=lambda group: (min(map(address_order, vips[group])), group))
        told = [_PROBLEMS[group[0]].format(who=group[1], vips=_in_order(vips[group])) for group in groups]
        astray = [_ASTRAY.format(vips=_in_order(self._astray))] if self._astray else []
        return bounded([*astray, *told], MAX_PROBLEMS)


_PROBLEMS = {
    AuditFinding.NONE: "audit: no host answers for {vips}, although {who} should; see `arpguard explain`",
    AuditFinding.ANOTHER: "audit: {who} answers for {vips}, but the owner does not; see `arpguard audit`",
    AuditFinding.SEVERAL: "audit: {who} answers for {vips}, and so does another host; see `arpguard audit`",
}

_ASTRAY = (
    "audit: {vips}: in no guarded link's subnet, so no host on the guarded links asks for such an address: correct the "
    "address, or add a route to its network on the right link"
)


def _concerned(audited: Audited) -> list[str]:
    """Whom to name: the owner that is silent, or the hosts that answer though they are not the owner."""
    if audited.finding is AuditFinding.NONE:
        return [audited.expected.who]
    strangers = [str(answer) for answer in audited.answers if not answer.fits]
    return strangers or [str(answer) for answer in audited.answers]


def _in_order(vips: Iterable[Address]) -> str:
    ordered: list[Address] = sorted(vips, key=address_order)
    return some(ordered)
