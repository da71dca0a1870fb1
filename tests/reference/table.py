"""The verdict table of docs/verdicts.md: who may answer for an address, and what becomes of a frame about it."""

from arpguard.model import VipEntry
from arpguard.verdict import Kind, Mode, Reason, Verdict
from reference.message import Message, is_own
from reference.reading import Unreadable, read_frame
from reference.situation import Judgement, Response, Situation
from reference.vouching import respond_vouching

_NOT_GUARDED = (Judgement(None, Verdict.PASS, Reason.NOT_GUARDED),)


def respond_ingress(data: bytes, situation: Situation) -> Response:
    """The verdict table for a frame that comes in. The sender is judged before the target."""
    vouching = respond_vouching(data, situation)
    if vouching is not None:
        return vouching
    message = read_frame(data, situation.control)
    if isinstance(message, Unreadable):
        return _respond_unreadable(data, message)
    claim = _respond_claim(data, message, situation)
    if claim.frame is None:
        return claim
    question = _respond_question(data, message, situation)
    judgements = claim.judgements + question.judgements or _NOT_GUARDED
    passed = claim.frame if question.frame == data else question.frame
    return Response(question.answered, passed, judgements, question.hidden)


def respond_egress(data: bytes, situation: Situation) -> Response:
    """The verdict table for a frame that this node sends."""
    message = read_frame(data, situation.control)
    if isinstance(message, Unreadable):
        return _respond_unreadable(data, message)
    entry = situation.rule(message.claimed)
    if entry is None:
        return Response(False, data, _NOT_GUARDED)
    reason = _judge_egress(message, entry, situation)
    judgements = (Judgement(message.claimed, reason.verdict, reason),)
    if not situation.enforces(entry) or reason.verdict is Verdict.PASS:
        return Response(False, data, judgements)
    if reason.verdict is Verdict.SUPPRESS or entry.primary is None:
        return Response(False, None, judgements)
    return Response(False, message.rewritten(entry.primary), judgements)


def _respond_unreadable(data: bytes, frame: Unreadable) -> Response:
    """What cannot be read is dropped where a kernel might answer it, as soon as any entry enforces."""
    if frame.reason is None:
        return Response(False, data, ())
    dropped = frame.reason.verdict is Verdict.SUPPRESS and frame.strictest is Mode.ENFORCE
    return Response(False, None if dropped else data, (Judgement(None, frame.reason.verdict, frame.reason),))


def _respond_claim(data: bytes, message: Message, situation: Situation) -> Response:
    """What becomes of the frame for the sake of the VIP that it claims, if it claims one."""
    entry = situation.entry(message.claimed)
    if entry is None:
        return Response(False, data, ())
    reason = _judge_claim(message, entry)
    judgements = (Judgement(message.claimed, reason.verdict, reason),)
    if not situation.enforces(entry):
        return Response(False, data, judgements)
    if reason.verdict in (Verdict.CONFLICT, Verdict.SUPPRESS):
        return Response(False, None, judgements)
    return Response(False, data if entry.kind is Kind.DELEGATED else message.disarmed(), judgements)


def _respond_question(data: bytes, message: Message, situation: Situation) -> Response:
    """What becomes of the frame for the sake of the VIP that it asks for, if it asks for one."""
    entry = situation.rule(message.asked)
    if entry is None:
        return Response(False, data, ())
    reason = _judge_question(message, entry, situation)
    judgements = (Judgement(message.asked, reason.verdict, reason),)
    if situation.enforces(entry) and reason.verdict is Verdict.SUPPRESS:
        return Response(False, None, judgements, hidden=entry.kind is Kind.CLOSED)
    if situation.enforces(entry) and reason.verdict is Verdict.ANSWER:
        return Response(True, message.answer(entry.answer_mac), judgements)
    return Response(False, data, judgements)


_CLAIMED = {Kind.DELEGATED: Reason.DELEGATED_CLAIM, Kind.OWNED: Reason.CONFLICT}
_NOT_OWNER = {
    Kind.FOREIGN: Reason.FOREIGN,
    Kind.EXTERNAL: Reason.EXTERNAL,
    Kind.UNCLAIMED: Reason.UNCLAIMED,
    Kind.CLOSED: Reason.UNKNOWN,
}


def _judge_claim(message: Message, entry: VipEntry) -> Reason:
    if not message.believed:
        return Reason.ND_INVALID_CLAIM
    if not message.sha.is_zero and is_own(message.sha, entry):
        return Reason.DELEGATED if entry.kind is Kind.DELEGATED else Reason.OWN_ECHO
    if entry.kind in _CLAIMED:
        return _CLAIMED[entry.kind]
    if entry.owner_mac.is_zero:
        return Reason.UNCLAIMED_CLAIM if entry.kind is Kind.UNCLAIMED else Reason.UNVERIFIED_CLAIM
    return Reason.OWNER_CLAIM if message.sha == entry.owner_mac else Reason.CONFLICT


def _judge_question(message: Message, entry: VipEntry, situation: Situation) -> Reason:
    if entry.kind is Kind.DELEGATED:
        return Reason.DELEGATED
    if entry.kind is Kind.CLOSED and not message.to.is_group and message.to != entry.link_mac:
        return Reason.GUEST
    if entry.kind is not Kind.OWNED:
        return _NOT_OWNER[entry.kind]
    refused = situation.refusal(entry) or message.objection(entry)
    if refused is not None:
        return refused
    return Reason.ANSWERED_THIRD_PARTY if message.third_party else Reason.ANSWERED


def _judge_egress(message: Message, entry: VipEntry, situation: Situation) -> Reason:
    if entry.kind is Kind.DELEGATED:
        return Reason.EGRESS_DELEGATED
    if entry.kind is Kind.OWNED and situation.refusal(entry) is None:
        return Reason.EGRESS_OWNER
    if entry.kind is Kind.CLOSED and message.sha != entry.link_mac:
        return Reason.GUEST
    if entry.kind is Kind.CLOSED and message.tells:
        return Reason.EGRESS_UNKNOWN
    if message.tells or message.sha != entry.link_mac:
        return Reason.EGRESS_NOT_OWNER
    return Reason.EGRESS_NO_SOURCE if entry.primary is None else Reason.EGRESS_REWRITTEN
