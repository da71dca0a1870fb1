"""Which MACs claimed which addresses in a capture: the result of a replay, of bounded size."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from arpguard.addresses import Address, MacAddress, address_order
from arpguard.core.replay import ABOUT_NO_VIP, About, Passed, Protocol
from arpguard.model import Vip
from arpguard.verdict import Reason, Verdict
from arpguard.wire.arp import ArpOp, ArpPacket, parse_arp
from arpguard.wire.ethernet import ETHERTYPE_ARP, ETHERTYPE_IPV6, parse_ethernet
from arpguard.wire.ndp import NdFlag, NdPacket, NdType, parse_nd

MAX_SIGHTINGS = 100_000  # about 50 MB
_MAX_LINKS = 1000


class Act(Enum):
    """How a frame claims an address: in an answer, unsolicited, or as the sender of a request."""

    ANSWER = "answer"
    ANNOUNCEMENT = "announcement"
    REQUEST = "request"


@dataclass(frozen=True, slots=True)
class Message:
    """What a frame says: the address that it asks for, and the address that it claims for a MAC.

    `believed`: whether receivers may believe the claim, or have to discard the message (RFC 4861 7.1).
    """

    asked: Address | None
    claimed: Address | None
    act: Act
    mac: MacAddress
    believed: bool = True


def read_message(frame: bytes) -> Message | None:
    """What a frame says; None where it says nothing, or belongs to another VLAN."""
    parsed = parse_ethernet(frame)
    if parsed is None or any(tag.vid for tag in parsed.tags):
        return None
    if parsed.ethertype == ETHERTYPE_ARP:
        packet = parse_arp(parsed.payload)
        return None if packet is None else _of_arp(packet)
    if parsed.ethertype == ETHERTYPE_IPV6:
        found = parse_nd(parsed)
        return _of_nd(found) if isinstance(found, NdPacket) else None
    return None


def _of_arp(packet: ArpPacket) -> Message:
    claimed = None if packet.spa.is_unspecified else packet.spa
    if packet.is_announcement:
        return Message(None, claimed, Act.ANNOUNCEMENT, packet.sha)
    if packet.op is ArpOp.REPLY:
        return Message(None, claimed, Act.ANSWER, packet.sha)
    return Message(packet.tpa, claimed, Act.REQUEST, packet.sha)


def _of_nd(packet: NdPacket) -> Message:
    message, believed = packet.message, packet.flaw is None
    if message.kind is NdType.SOLICITATION:
        claimed = None if message.src.is_unspecified else message.src
        return Message(message.target, claimed, Act.REQUEST, packet.sha, believed)
    act = Act.ANSWER if NdFlag.SOLICITED in message.flags else Act.ANNOUNCEMENT
    return Message(None, message.target, act, packet.sha, believed)


@dataclass(slots=True)
class Sighting:
    """What a MAC said about an address, and when (nanoseconds since 1970; None: the capture tells no time).

    `kept` and `silenced`: how much of it the guard of the node that sent it would have let out, and how much not.
    """

    first_ns: int | None
    last_ns: int | None
    acts: Counter[Act] = field(default_factory=Counter)
    kept: int = 0
    silenced: int = 0

    @property
    def answers(self) -> bool:
        """Whether it answered or announced, rather than only asked in the address's name."""
        return bool(self.acts[Act.ANSWER] or self.acts[Act.ANNOUNCEMENT])

    @property
    def unjudged(self) -> int:
        """How many claims came from a MAC without a known node."""
        return self.acts.total() - self.kept - self.silenced


class Sightings:
    """Which MAC said what about which address; `missed` counts the sightings for which there was no room."""

    def __init__(self, limit: int = MAX_SIGHTINGS) -> None:
        self.found: dict[Address, dict[MacAddress, Sighting]] = {}
        self.missed = 0
        self._left = limit

    def add(self, address: Address, mac: MacAddress, act: Act, time_ns: int | None) -> Sighting | None:
        """Notes a claim; None when there is no room."""
        of_address = self.found.get(address, {})
        sighting = of_address.get(mac)
        if sighting is None:
            if not self._left:
                self.missed += 1
                return None
            self._left -= 1
            sighting = self.found.setdefault(address, of_address)[mac] = Sighting(time_ns, time_ns)
        sighting.acts[act] += 1
        if time_ns is not None:
            sighting.first_ns, sighting.last_ns = _span(sighting, time_ns)
        return sighting

    def answering(self, address: Address) -> dict[MacAddress, Sighting]:
        """The MACs that answered for an address, or announced it."""
        return {mac: seen for mac, seen in self.found.get(address, {}).items() if seen.answers}


def _span(seen: Sighting, time_ns: int) -> tuple[int, int]:
    """Times need not be in the order of the file."""
    first_ns = time_ns if seen.first_ns is None else min(seen.first_ns, time_ns)
    return first_ns, time_ns if seen.last_ns is None else max(seen.last_ns, time_ns)


def at_once(sightings: Iterable[Sighting]) -> bool:
    """Whether some spoke while others did; not when each had fallen silent before the next began."""
    latest: int | None = None
    for first_ns, last_ns in sorted((seen.first_ns or 0, seen.last_ns or 0) for seen in sightings):
        if latest is not None and first_ns <= latest:
            return True
        latest = last_ns if latest is None else max(latest, last_ns)
    return False


@dataclass(slots=True)
class VipAccount:
    """Requests for a VIP, and the decisions about it."""

    requests: int = 0
    decisions: Counter[tuple[Verdict, Reason]] = field(default_factory=Counter)


class Ledger:
    """The result of a replay, for `vips`.

    `judged` are the ARP and NDP frames that were given to the programs, `about` those of them about a VIP, `tagged`
    those of another VLAN. `passed` are all others, `linktypes` the link types that were not read. `links` are the
    interfaces that anything was captured on, `judged_links` those of frames that were judged; both up to a limit.
    """

    def __init__(self, vips: Iterable[Vip]) -> None:
        self.vips = {vip.address: vip for vip in vips}
        self.accounts = {address: VipAccount() for address in self.vips}
        self.guarded, self.others = Sightings(), Sightings()
        self.read = self.about = self.tagged = 0
        self.judged: Counter[Protocol] = Counter()
        self.passed: Counter[Passed] = Counter()
        self.linktypes: Counter[int] = Counter()
        self.links: set[str] = set()
        self.judged_links: set[str] = set()
        self.first_ns: int | None = None
        self.last_ns: int | None = None

    def take(self, time_ns: int | None, link: str) -> None:
        """Counts a frame that was read."""
        self.read += 1
        _add(self.links, link)
        if time_ns is not None:
            self.first_ns = time_ns if self.first_ns is None else min(self.first_ns, time_ns)
            self.last_ns = time_ns if self.last_ns is None else max(self.last_ns, time_ns)

    def judge(self, protocol: Protocol, link: str) -> None:
        """Counts a frame that was given to the programs."""
        self.judged[protocol] += 1
        _add(self.judged_links, link)

    def passed_by(self, why: Passed, linktype: int) -> None:
        """Counts a frame that was not judged."""
        self.passed[why] += 1
        if why is Passed.OTHER_TYPE:
            self.linktypes[linktype] += 1

    def note(self, message: Message, time_ns: int | None) -> Sighting | None:
        """Notes what a frame said; gives the sighting of a VIP, for what the guard makes of it."""
        if message.asked in self.accounts:
            self.accounts[message.asked].requests += 1
        if message.claimed is None or not message.believed:
            return None
        if message.claimed in self.vips:
            return self.guarded.add(message.claimed, message.mac, message.act, time_ns)
        self.others.add(message.claimed, message.mac, message.act, time_ns)
        return None

    def decide(self, decisions: Iterable[About]) -> bool:
        """Notes decisions; says whether any is about a VIP, told or not."""
        concerned = False
        for found in decisions:
            concerned |= found.reason not in ABOUT_NO_VIP
            self.tagged += found.reason is Reason.OTHER_VLAN
            if found.vip in self.accounts:
                self.accounts[found.vip].decisions[found.verdict, found.reason] += 1
        self.about += concerned
        return concerned

    def doubled(self) -> dict[Address, dict[MacAddress, Sighting]]:
        """The addresses that more than one MAC answered for, those of the configuration first."""
        found: dict[Address, dict[MacAddress, Sighting]] = {}
        for sightings in (self.guarded, self.others):
            for address in sorted(sightings.found, key=address_order):
                macs = sightings.answering(address)
                if len(macs) > 1:
                    found[address] = macs
        return found


def _add(links: set[str], link: str) -> None:
    if len(links) < _MAX_LINKS:
        links.add(link)
