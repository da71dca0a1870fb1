"""Frames of vouching for tests, and what the kernel has to have for them."""

from dataclasses import replace

from arpguard.addresses import MacAddress
from arpguard.model import Grants, LinkTerm, NodeControl
from arpguard.wire.ethernet import EthernetFrame, VlanTag
from arpguard.wire.vouching import VouchFrame, VouchType, pack, parse, siphash24
from support.frames.builders import GUARD, HOUR_NS, TESTER, a_control

ETHERTYPE = 0x88B5  # lease.vouching.ethertype, unless it says another
HEADER_LEN, TAG_LEN = 14, 4
STAMP_AT, MAC_AT, FRAME_LEN = 24, 48, 56
KEY = bytes(range(16))
OTHER_KEY = bytes(range(1, 17))
TERM = LinkTerm(0x1122334455667788, KEY, HOUR_NS)
OTHER_TERM = LinkTerm(0x8877665544332211, OTHER_KEY, HOUR_NS)


def a_vouching_control(term: LinkTerm | None = TERM, **changes) -> NodeControl:
    """A node that has a voucher, in `term`; None: on trial, or in none."""
    return a_control(**{"term": term.number if term else 0, "ethertype": ETHERTYPE, **changes})


def some_grants(fence_ns: int, term: LinkTerm = TERM) -> Grants:
    """As after a grant in `term`."""
    return Grants(fence_ns, term.number, term.window_ns)


def a_ping(**changes) -> VouchFrame:
    return replace(VouchFrame(VouchType.PING, TERM.number, number=7), **changes)


def a_grant(stamp_ns: int, **changes) -> VouchFrame:
    return replace(VouchFrame(VouchType.GRANT, TERM.number, number=7, stamp_ns=stamp_ns), **changes)


def in_frame(
    payload: bytes, dst: MacAddress = GUARD, src: MacAddress = TESTER, tags: tuple[VlanTag, ...] = (), min_len: int = 0
) -> bytes:
    return EthernetFrame(dst, src, ETHERTYPE, payload, tags).build(min_len)


def sealed(frame: VouchFrame, key: bytes = KEY, **how) -> bytes:
    """An Ethernet frame from the voucher; `how`: see `in_frame`."""
    return in_frame(pack(frame, key), **how)


def payload_of(frame: bytes) -> bytes:
    """What is behind the EtherType, or behind one tag."""
    return frame[HEADER_LEN + (TAG_LEN if frame[12:14] in (b"\x81\x00", b"\x88\xa8") else 0) :]


def read_back(frame: bytes, key: bytes = KEY) -> VouchFrame:
    found = parse(payload_of(frame), key)
    assert found is not None, frame.hex()
    return found


def resealed(payload: bytes, key: bytes = KEY) -> bytes:
    """A payload with the MAC that belongs to it, whatever else is in it."""
    return payload[:MAC_AT] + siphash24(key, payload[:MAC_AT]).to_bytes(8, "little") + payload[FRAME_LEN:]
