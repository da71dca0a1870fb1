"""Values as protobuf messages. Times of the boot clock become Timestamps by one `MessageClock` for a message."""

from collections.abc import Iterable

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from arpguard import clock
from arpguard.addresses import MacAddress
from arpguard.core.auditing import Audited
from arpguard.core.claimants import Claimant
from arpguard.core.decisions import Report, RivalClaim
from arpguard.core.stimulus import Operation, describe
from arpguard.model import Attachment, EntryKey, Link, Tally, VipEntry
from arpguard.units import NS_PER_S
from arpguard.v1 import agent_pb2 as pb
from arpguard.verdict import Kind, Mode
from arpguard.wire.arp import ArpOp
from arpguard.wire.ethernet import parse_ethernet
from arpguard.wire.facts import facts_of
from arpguard.wire.ndp import NdType

_NS_PER_US = 1000
_OPS = {int(op): op.name.lower() for op in (*ArpOp, *NdType)}
OPERATIONS = {operation: pb.Operation.Value(f"OPERATION_{operation.name}") for operation in Operation}


class MessageClock(clock.WallClock):
    """The wall clock, in Timestamps."""

    def timestamp(self, at_ns: int) -> Timestamp:
        """A time of the boot clock, in whole microseconds."""
        whole, rest = divmod(self.real_ns(at_ns) // _NS_PER_US * _NS_PER_US, NS_PER_S)
        return Timestamp(seconds=whole, nanos=rest)


def duration(length_ns: int) -> Duration:
    """A length of time."""
    seconds, nanos = divmod(length_ns, NS_PER_S)
    return Duration(seconds=seconds, nanos=nanos)


def reason_counts(tally: Tally) -> list[pb.ReasonCount]:
    """Counts by reason, in the order of the reasons; none for what never happened."""
    seen = tally.enforced.keys() | tally.observed.keys()
    return [
        pb.ReasonCount(
            reason=pb.Reason.ValueType(reason),
            enforced=tally.enforced.get(reason, 0),
            observed=tally.observed.get(reason, 0),
        )
        for reason in sorted(seen)
    ]


def vip(key: EntryKey, entry: VipEntry, link: str, node_mode: Mode, tally: Tally) -> pb.Vip:
    """An entry as the kernel has it; owner, source and the last conflict are the caller's to add."""
    return pb.Vip(
        address=str(key.vip),
        link=link,
        ifindex=key.ifindex,
        kind=pb.Kind.ValueType(entry.kind),
        mode=pb.Mode.ValueType(entry.mode or node_mode),
        epoch=entry.epoch,
        hold=entry.unfenced,
        answer_mac=str(entry.answer_mac) if entry.kind is Kind.OWNED else "",
        owner_mac=_known(entry.owner_mac),
        reasons=reason_counts(tally),
    )


def link(of: Link, attachments: Iterable[Attachment], vips: int) -> pb.Link:
    """A guarded link."""
    addresses = [f"{own.address}/{own.network.prefixlen}" for own in of.addresses]
    return pb.Link(
        ifindex=of.ifindex,
        name=of.name,
        mac=str(of.mac),
        up=of.up,
        device_kind=of.kind,
        addresses=addresses,
        attachments=[
            pb.Attachment(hook=pb.Hook.ValueType(made.hook), how=made.how, program_id=made.program_id)
            for made in attachments
        ],
        vips=vips,
    )


def decision(report: Report, clock: MessageClock) -> pb.Decision:
    """Equal decisions, as they were reported."""
    made = report.decision
    return pb.Decision(
        vip=str(made.key.vip),
        link=report.link,
        hook=pb.Hook.ValueType(made.hook),
        verdict=pb.Verdict.ValueType(made.verdict),
        reason=pb.Reason.ValueType(made.reason),
        mode=pb.Mode.ValueType(made.mode),
        kind=pb.Kind.ValueType(made.kind),
        op=_OPS.get(made.op, str(made.op)),
        sha=str(made.sha),
        spa=str(made.spa),
        tha=str(made.tha),
        tpa=str(made.tpa),
        eth_src=str(made.eth_src),
        eth_dst=str(made.eth_dst),
        count=report.count,
        first_time=clock.timestamp(report.first_ns),
        last_time=clock.timestamp(report.last_ns),
    )


def conflict(claim: RivalClaim, clock: MessageClock) -> pb.Conflict:
    """A foreign claim."""
    return pb.Conflict(
        vip=str(claim.key.vip),
        link=claim.link,
        mac=str(claim.mac),
        first_time=clock.timestamp(claim.first_ns),
        last_time=clock.timestamp(claim.last_ns),
        count=claim.count,
        reason=pb.Reason.ValueType(claim.reason),
        dropped=claim.dropped,
        claimant=claimant(claim.claimant),
    )


def audit(audited: Audited, clock: MessageClock) -> pb.Audit:
    """Who answers for a VIP."""
    return pb.Audit(
        vip=str(audited.key.vip),
        link=audited.link,
        finding=pb.Audit.Finding.ValueType(audited.finding),
        right=audited.is_right,
        owner=audited.expected.who,
        own=audited.expected.here,
        answers=[
            pb.Answer(mac=str(answer.mac), claimant=claimant(answer.claimant), owner=answer.fits)
            for answer in audited.answers
        ],
        time=clock.timestamp(audited.asked_ns),
    )


def claimant(who: Claimant) -> pb.Claimant:
    """Who claims; the numbers are the same."""
    return pb.Claimant(kind=pb.Claimant.Kind.ValueType(who.kind), node=who.node, router=who.router)


def frame(data: bytes) -> pb.Frame:
    """A frame, decoded as far as it is ARP or neighbour discovery."""
    outer, facts = parse_ethernet(data), facts_of(data)
    message = pb.Frame(hex=data.hex(), text=describe(data))
    if outer is not None:
        message.eth_dst, message.eth_src = str(outer.dst), str(outer.src)
    if facts is not None:
        message.op = _OPS[facts.op]
        message.sha, message.spa = str(facts.sha), str(facts.spa)
        message.tha, message.tpa = str(facts.tha), str(facts.tpa)
    return message


def _known(mac: MacAddress) -> str:
    return "" if mac.is_zero else str(mac)
