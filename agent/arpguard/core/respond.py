"""The reference answer to "what must happen to this frame?", in Python.

bpf/decide.h says the same in C; tests/bpf compares verdict, reasons and bytes of the two on random frames.
Written for reading, not for speed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Address

from arpguard.addresses import MacAddress
from arpguard.model import EntryKey, NodeControl, VipEntry
from arpguard.verdict import Kind, Mode, Reason, Verdict
from arpguard.wire.arp import HTYPE_ETHERNET, ArpOp, ArpPacket, build_frame, parse_arp
from arpguard.wire.ethernet import ETHERTYPE_ARP, MIN_FRAME_LEN, EthernetFrame, parse_ethernet

MAX_TAGS = 8
_ARP_FRAME_LEN = 42


@dataclass(frozen=True, slots=True)
class Judgement:
    """One decision: about which VIP (None: about none), what, and why."""

    vip: IPv4Address | None
    verdict: Verdict
    reason: Reason


@dataclass(frozen=True, slots=True)
class Response:
    """What happens: `frame` is what goes on or is sent back, None when it is dropped."""

    answered: bool
    frame: bytes | None
    judgements: tuple[Judgement, ...]


@dataclass(frozen=True, slots=True)
class Situation:
    """What the kernel knows: the control value, the entries of the link, and the boot clock in nanoseconds."""

    control: NodeControl
    entries: Mapping[EntryKey, VipEntry]
    ifindex: int
    now_ns: int

    def entry(self, address: IPv4Address) -> VipEntry | None:
        """The entry for an address on this link."""
        return self.entries.get(EntryKey(self.ifindex, address))

    def enforces(self, entry: VipEntry) -> bool:
        """Whether decisions about this entry are carried out."""
        return (entry.mode or self.control.mode) == Mode.ENFORCE

    def refusal(self, entry: VipEntry) -> Reason | None:
        """Why an owned entry may not be answered now."""
        if entry.is_stale(self.control):
            return Reason.STALE_EPOCH
        ahead = self.control.fence_ns - self.now_ns
        if entry.hold or 0 < ahead <= self.control.lease_ns:
            return None
        return Reason.FENCED


def respond_ingress(data: bytes, situation: Situation) -> Response:
    """The verdict table for a frame that comes in (docs/verdicts.md)."""
    frame, packet, reason = _read(data)
    if frame is None or packet is None:
        return _unread(data, situation, reason)
    claim = _respond_claim(data, frame, packet, situation)
    if claim.frame is None:
        return claim
    question = _respond_request(data, frame, packet, situation)
    judgements = claim.judgements + question.judgements or (Judgement(None, Verdict.PASS, Reason.NOT_GUARDED),)
    passed = claim.frame if question.frame == data else question.frame
    return Response(question.answered, passed, judgements)


def _respond_claim(data: bytes, frame: EthernetFrame, packet: ArpPacket, situation: Situation) -> Response:
    """What becomes of the frame for the sake of its sender, if that is a VIP."""
    entry = situation.entry(packet.spa) if not packet.spa.is_unspecified else None
    if entry is None:
        return Response(False, data, ())
    verdict, reason = _judge_claim(packet, entry)
    judgements = (Judgement(packet.spa, verdict, reason),)
    if not situation.enforces(entry):
        return Response(False, data, judgements)
    if verdict in (Verdict.CONFLICT, Verdict.SUPPRESS):
        return Response(False, None, judgements)
    answerable = packet.op is ArpOp.REQUEST and packet.is_announcement and entry.kind is not Kind.DELEGATED
    return Response(False, _disarmed(frame, packet) if answerable else data, judgements)


def _respond_request(data: bytes, frame: EthernetFrame, packet: ArpPacket, situation: Situation) -> Response:
    """What becomes of the frame for the sake of its target, if that is a VIP that is asked for."""
    entry = situation.entry(packet.tpa) if _is_question(packet) else None
    if entry is None:
        return Response(False, data, ())
    verdict, reason = _judge_request(frame, packet, entry, situation)
    judgements = (Judgement(packet.tpa, verdict, reason),)
    if situation.enforces(entry) and verdict is Verdict.SUPPRESS:
        return Response(False, None, judgements)
    if situation.enforces(entry) and verdict is Verdict.ANSWER:
        return Response(True, _reply(data, frame, packet, entry.answer_mac), judgements)
    return Response(False, data, judgements)


def respond_egress(data: bytes, situation: Situation) -> Response:
    """The verdict table for a frame that this node sends."""
    frame, packet, reason = _read(data)
    if frame is None or packet is None:
        return _unread(data, situation, reason)
    entry = situation.entry(packet.spa) if not packet.spa.is_unspecified else None
    if entry is None:
        return Response(False, data, (Judgement(None, Verdict.PASS, Reason.NOT_GUARDED),))
    verdict, why = _judge_egress(packet, entry, situation)
    judgements = (Judgement(packet.spa, verdict, why),)
    if not situation.enforces(entry) or verdict is Verdict.PASS:
        return Response(False, data, judgements)
    if verdict is Verdict.SUPPRESS or not isinstance(entry.primary, IPv4Address):
        return Response(False, None, judgements)
    return Response(False, _with_packet(frame, replace(packet, spa=entry.primary)), judgements)


def _read(data: bytes) -> tuple[EthernetFrame | None, ArpPacket | None, Reason]:
    frame = parse_ethernet(data)
    tags = _tags(data)
    if any(vid for vid in tags[:MAX_TAGS]):
        return None, None, Reason.OTHER_VLAN
    if len(tags) > MAX_TAGS:
        return None, None, Reason.UNWALKABLE
    if frame is None or frame.ethertype != ETHERTYPE_ARP:
        return None, None, Reason.NOT_ARP
    return frame, parse_arp(frame.payload), Reason.NOT_ARP


def _tags(data: bytes) -> list[int]:
    """VLAN ids of the tags that are complete together with the EtherType behind them; one more may be cut off."""
    vids: list[int] = []
    at = 12
    while data[at : at + 2] in (b"\x81\x00", b"\x88\xa8"):
        if len(vids) == MAX_TAGS:
            return [*vids, 0]
        if len(data) < at + 6:
            break
        vids.append(int.from_bytes(data[at + 2 : at + 4], "big") & 0xFFF)
        if vids[-1]:
            break
        at += 4
    return vids


def _unread(data: bytes, situation: Situation, reason: Reason) -> Response:
    if reason is not Reason.UNWALKABLE:
        return Response(False, data, (Judgement(None, Verdict.PASS, reason),))
    dropped = situation.control.strictest is Mode.ENFORCE
    return Response(False, None if dropped else data, (Judgement(None, Verdict.SUPPRESS, reason),))


def _is_special(address: IPv4Address) -> bool:
    return address.is_multicast or address.is_loopback or address == IPv4Address("255.255.255.255")


def _is_question(packet: ArpPacket) -> bool:
    possible = not (packet.tpa.is_unspecified or _is_special(packet.tpa))
    return packet.op is ArpOp.REQUEST and not packet.is_announcement and possible


def _is_own(mac: MacAddress, entry: VipEntry) -> bool:
    return mac in (entry.answer_mac, entry.link_mac)


def _judge_claim(packet: ArpPacket, entry: VipEntry) -> tuple[Verdict, Reason]:
    if not packet.sha.is_zero and _is_own(packet.sha, entry):
        delegated = entry.kind is Kind.DELEGATED
        return (Verdict.PASS, Reason.DELEGATED) if delegated else (Verdict.SUPPRESS, Reason.OWN_ECHO)
    if entry.kind in _CLAIMED:
        return _CLAIMED[entry.kind]
    if entry.owner_mac.is_zero:
        unclaimed = entry.kind is Kind.UNCLAIMED
        return Verdict.REPORT, Reason.UNCLAIMED_CLAIM if unclaimed else Reason.UNVERIFIED_CLAIM
    if packet.sha == entry.owner_mac:
        return Verdict.PASS, Reason.OWNER_CLAIM
    return Verdict.CONFLICT, Reason.CONFLICT


_CLAIMED = {
    Kind.DELEGATED: (Verdict.REPORT, Reason.DELEGATED_CLAIM),
    Kind.OWNED: (Verdict.CONFLICT, Reason.CONFLICT),
}
_NOT_OWNER = {Kind.FOREIGN: Reason.FOREIGN, Kind.EXTERNAL: Reason.EXTERNAL, Kind.UNCLAIMED: Reason.UNCLAIMED}


def _judge_request(
    frame: EthernetFrame, packet: ArpPacket, entry: VipEntry, situation: Situation
) -> tuple[Verdict, Reason]:
    if entry.kind is Kind.DELEGATED:
        return Verdict.PASS, Reason.DELEGATED
    if entry.kind is not Kind.OWNED:
        return Verdict.SUPPRESS, _NOT_OWNER[entry.kind]
    refused = situation.refusal(entry) or _not_strict(frame, packet, entry)
    if refused is not None:
        return Verdict.SUPPRESS, refused
    if packet.sha != frame.src:
        return Verdict.ANSWER, Reason.ANSWERED_THIRD_PARTY
    return Verdict.ANSWER, Reason.ANSWERED


def _not_strict(frame: EthernetFrame, packet: ArpPacket, entry: VipEntry) -> Reason | None:
    unicast = not frame.dst.is_group
    rules = (
        (entry.link_mac.is_zero or entry.answer_mac.is_zero, Reason.NO_LINK),
        (_is_own(packet.sha, entry), Reason.OWN_ECHO),
        (packet.sha.is_group or packet.sha.is_zero, Reason.BAD_SENDER),
        (frame.src.is_group or _is_special(packet.spa), Reason.BAD_SENDER),
        (frame.dst.is_group and not frame.dst.is_broadcast, Reason.NOT_STRICT),
        (unicast and not _is_own(frame.dst, entry), Reason.OTHER_HOST),
        (packet.htype != HTYPE_ETHERNET or len(frame.tags) > 1, Reason.NOT_STRICT),
    )
    return next((reason for broken, reason in rules if broken), None)


def _judge_egress(packet: ArpPacket, entry: VipEntry, situation: Situation) -> tuple[Verdict, Reason]:
    if entry.kind is Kind.DELEGATED:
        return Verdict.PASS, Reason.EGRESS_DELEGATED
    if entry.kind is Kind.OWNED and situation.refusal(entry) is None:
        return Verdict.PASS, Reason.EGRESS_OWNER
    if packet.op is ArpOp.REPLY or packet.is_announcement or packet.sha != entry.link_mac:
        return Verdict.SUPPRESS, Reason.EGRESS_NOT_OWNER
    if entry.primary is None:
        return Verdict.SUPPRESS, Reason.EGRESS_NO_SOURCE
    return Verdict.REWRITE, Reason.EGRESS_REWRITTEN


def _reply(data: bytes, frame: EthernetFrame, packet: ArpPacket, mac: MacAddress) -> bytes:
    """The answer: 60 bytes for a frame of 60 or more (without its tag), else 42; padding is zero."""
    answer = ArpPacket(ArpOp.REPLY, sha=mac, spa=packet.tpa, tha=packet.sha, tpa=packet.spa)
    untagged_len = len(data) - 4 * len(frame.tags)
    min_len = MIN_FRAME_LEN if untagged_len >= MIN_FRAME_LEN else _ARP_FRAME_LEN
    return build_frame(answer, dst=packet.sha, src=mac, min_len=min_len)


def _disarmed(frame: EthernetFrame, packet: ArpPacket) -> bytes:
    """The same claim as a reply, which the kernel learns from and never answers."""
    return _with_packet(frame, replace(packet, op=ArpOp.REPLY, tha=packet.sha))


def _with_packet(frame: EthernetFrame, packet: ArpPacket) -> bytes:
    return replace(frame, payload=packet.build() + frame.payload[28:]).build()
