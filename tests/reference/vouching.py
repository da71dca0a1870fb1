"""Frames of vouching (docs/vouching.md): which are for this node's kernel, and what comes of them."""

from dataclasses import replace

from arpguard.model import Grants, LinkTerm
from arpguard.verdict import Vouched
from arpguard.wire.ethernet import ETHERTYPE_IPV4, EthernetFrame, parse_ethernet
from arpguard.wire.vouching import VouchFrame, VouchType, pack, parse
from reference.situation import Response, Situation

_VERSION, _TYPE, _TERM = 0, 1, slice(8, 16)  # where they are
_LEN = 56
_NO_TERM = LinkTerm(0, bytes(16), 0)


def respond_vouching(data: bytes, situation: Situation) -> Response | None:
    """What becomes of a frame of vouching; None if it is another one. Whatever is not this node's passes unchanged."""
    frame = parse_ethernet(data)
    if frame is None or not _is_vouching(frame, situation):
        return None
    term = situation.term or _NO_TERM
    found = _examine(frame, term)
    if isinstance(found, Vouched):
        return Response(False, data, (), vouched=found)
    if found.type is VouchType.PING:
        return Response(True, _pong(frame, found, term, situation), (), vouched=Vouched.PING)
    return _respond_grant(data, found, term, situation)


def _is_vouching(frame: EthernetFrame, situation: Situation) -> bool:
    """By its EtherType, behind one tag at most, whose VID is 0."""
    told = bool(frame.ethertype) and frame.ethertype != ETHERTYPE_IPV4 and not any(tag.vid for tag in frame.tags)
    return told and frame.ethertype == situation.control.ethertype and len(frame.tags) <= 1


def _examine(frame: EthernetFrame, term: LinkTerm) -> VouchFrame | Vouched:
    """The frame, if it is a genuine ping or grant of the term; else what it is instead."""
    payload = frame.payload
    if frame.dst.is_group or len(payload) < _LEN or payload[_VERSION] != 1 or payload[_TYPE] not in (1, 2, 3):
        return Vouched.UNREADABLE
    if payload[_TYPE] == VouchType.PONG:
        return Vouched.PONG
    if not term.number or payload[_TERM] != term.number.to_bytes(8, "little"):
        return Vouched.OTHER_TERM
    return parse(payload, term.key) or Vouched.FORGED


def _pong(frame: EthernetFrame, ping: VouchFrame, term: LinkTerm, situation: Situation) -> bytes:
    """The ping turned round: the rest of the frame, its tag and its padding, stays."""
    control = situation.control
    pong = VouchFrame(
        VouchType.PONG,
        ping.term,
        ping.number,
        stamp_ns=situation.now_ns,
        right_ns=control.fence_ns,
        bound=control.term == term.number and situation.grants.binds(control.term),
    )
    payload = pack(pong, term.key) + frame.payload[_LEN:]
    return replace(frame, dst=frame.src, src=frame.dst, payload=payload).build()


def _respond_grant(data: bytes, grant: VouchFrame, term: LinkTerm, situation: Situation) -> Response:
    """A grant moves the fence of its term forward, never back, and binds this node; nobody else gets it."""
    if situation.control.term != term.number:
        return Response(False, data, (), vouched=Vouched.OTHER_TERM)
    if not 0 < grant.stamp_ns <= situation.now_ns:
        return Response(False, data, (), vouched=Vouched.BAD_STAMP)
    before, fence_ns = situation.grants, grant.stamp_ns + term.window_ns
    if before.bound_term == term.number and before.fence_ns <= situation.now_ns + term.window_ns:
        fence_ns = max(fence_ns, before.fence_ns)
    grants = Grants(fence_ns, term.number, term.window_ns)
    return Response(False, None, (), vouched=Vouched.GRANT, grants=grants)
