"""Frames by which one node vouches for another (docs/vouching.md): bytes to values and back, and the keys for them.

The payload of an Ethernet frame to one host: 56 bytes, and padding that nobody reads. All numbers are little-endian, as
those of the programs are (bpf/vouch.h, which reads and builds the same).
"""

import hashlib
import hmac
import struct
from dataclasses import dataclass
from enum import IntEnum
from uuid import UUID

KEY_LEN = 16

_VERSION = 1
_BODY = struct.Struct("<BBB5xQQQQ8x")
_WORD = struct.Struct("<Q")
_KEY = struct.Struct("<QQ")
_FRAME_LEN = _BODY.size + _WORD.size
_BOUND, _ENDING = 1, 2

_ONES = (1 << 64) - 1


class VouchType(IntEnum):
    """What a frame is: the voucher's ping, the pong that a node's kernel makes of it, the grant that answers it."""

    PING = 1
    PONG = 2
    GRANT = 3


@dataclass(frozen=True, slots=True)
class VouchFrame:
    """A frame of `term`, the number of a term (`term_number`).

    `number` is of the ping, and in its pong and grant the same. `stamp_ns`, in pongs and grants, is CLOCK_BOOTTIME of
    the node that is vouched for, and `right_ns`, in pongs, its fence by the API server on the same clock. `bound`, in
    pongs: its kernel answers before the voucher's fence only. `ending`, in pings: the voucher is about to end.
    """

    type: VouchType
    term: int
    number: int
    stamp_ns: int = 0
    right_ns: int = 0
    bound: bool = False
    ending: bool = False


@dataclass(frozen=True, slots=True)
class VouchTerm:
    """What makes a term: which node vouches for which, and for how long each time.

    `uuid` is used once (V1). It, the epochs and the voucher's `instance` are text, as in heartbeats.
    """

    node: str
    node_epoch: str
    voucher: str
    instance: str
    voucher_epoch: str
    uuid: str
    d_ns: int
    m_ns: int


def pack(frame: VouchFrame, key: bytes) -> bytes:
    """The 56 bytes of `frame` under the key of its term. struct.error: a number has more than 64 bits, or a sign."""
    flags = frame.bound * _BOUND | frame.ending * _ENDING
    body = _BODY.pack(_VERSION, frame.type, flags, frame.term, frame.number, frame.stamp_ns, frame.right_ns)
    return body + _WORD.pack(siphash24(key, body))


def parse(payload: bytes, key: bytes) -> VouchFrame | None:
    """The frame at the start of `payload`; None if it is of another version, no frame at all, or not under this key."""
    if len(payload) < _FRAME_LEN:
        return None

    version, kind, flags, term, number, stamp_ns, right_ns = _BODY.unpack_from(payload)
    if version != _VERSION or not VouchType.PING <= kind <= VouchType.GRANT:
        return None
    (mac,) = _WORD.unpack_from(payload, _BODY.size)
    if mac != siphash24(key, payload[: _BODY.size]):
        return None

    return VouchFrame(
        VouchType(kind), term, number, stamp_ns, right_ns, bound=bool(flags & _BOUND), ending=bool(flags & _ENDING)
    )


def term_number(uuid: str) -> int:
    """What frames and maps call a term: 64 bits of a digest of its UUID, never 0. ValueError if it is not a UUID."""
    return int.from_bytes(hashlib.sha256(UUID(uuid).bytes).digest()[:8], "little") or 1


def term_key(secret: bytes, term: VouchTerm) -> bytes:
    """The 16 bytes under which frames of a term are sent; both nodes compute them from the cluster's secret.

    ValueError if the term's `uuid` is none; struct.error if a time has more than 64 bits, or a sign.
    """
    names = (term.node, term.node_epoch, term.voucher, term.instance, term.voucher_epoch)
    times = (_WORD.pack(ns) for ns in (term.d_ns, term.m_ns))
    fields = (*(name.encode() for name in names), UUID(term.uuid).bytes, *times)

    # Each behind its length, so that no two terms are the same bytes.
    message = b"".join(struct.pack("<I", len(field)) + field for field in fields)
    return hmac.digest(secret, message, "sha256")[:KEY_LEN]


def siphash24(key: bytes, data: bytes) -> int:
    """SipHash-2-4 of `data` under 16 bytes of key (Aumasson and Bernstein, "SipHash: a fast short-input PRF")."""
    k0, k1 = _KEY.unpack(key)
    v0, v1, v2, v3 = k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573

    whole = len(data) & ~7
    last = data[whole:].ljust(7, b"\0") + bytes((len(data) & 0xFF,))
    for (word,) in _WORD.iter_unpack(data[:whole] + last):
        v0, v1, v2, v3 = _sip_rounds(2, v0, v1, v2, v3 ^ word)
        v0 ^= word

    v0, v1, v2, v3 = _sip_rounds(4, v0, v1, v2 ^ 0xFF, v3)
    return v0 ^ v1 ^ v2 ^ v3


def _sip_rounds(count: int, v0: int, v1: int, v2: int, v3: int) -> tuple[int, int, int, int]:
    # Rotations are written out: this is most of what a frame costs its voucher.
    for _ in range(count):
        v0 = v0 + v1 & _ONES
        v1 = (v1 << 13 & _ONES | v1 >> 51) ^ v0
        v0 = v0 << 32 & _ONES | v0 >> 32
        v2 = v2 + v3 & _ONES
        v3 = (v3 << 16 & _ONES | v3 >> 48) ^ v2
        v0 = v0 + v3 & _ONES
        v3 = (v3 << 21 & _ONES | v3 >> 43) ^ v0
        v2 = v2 + v1 & _ONES
        v1 = (v1 << 17 & _ONES | v1 >> 47) ^ v2
        v2 = v2 << 32 & _ONES | v2 >> 32
    return v0, v1, v2, v3
