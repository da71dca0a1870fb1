"""Random frames of vouching, genuine and not, and random states of the kernel that has to judge them."""

import random
from dataclasses import replace

from arpguard.addresses import BROADCAST_MAC, ZERO_MAC, MacAddress
from arpguard.model import Grants, LinkTerm, NodeControl
from arpguard.wire.ethernet import VlanTag
from arpguard.wire.vouching import VouchFrame, VouchType, pack
from support.frames.builders import GUARD, HOUR_NS, TESTER, patched
from support.frames.vouch_builders import ETHERTYPE, OTHER_TERM, TERM, in_frame, resealed

U64_MAX = 2**64 - 1
GROUP_MAC = MacAddress.parse("01:00:5e:00:00:01")
TAGS = ((), (), (), (VlanTag(0, 7),), (VlanTag(0), VlanTag(0)), (VlanTag(5),), (VlanTag(0, tpid=0x88A8),))


def random_state(rng: random.Random, control: NodeControl, now_ns: int) -> tuple[NodeControl, LinkTerm | None, Grants]:
    """The control value with some term and EtherType, the link's term, and grants; clocks come near no edge."""
    if rng.random() < 0.3:  # bound to a voucher that is silent, by which alone it may not answer
        control = replace(control, term=TERM.number, fence_ns=now_ns + HOUR_NS)
        return control, None, Grants(now_ns - 1, TERM.number, HOUR_NS)
    control = replace(
        control,
        term=rng.choice([TERM.number] * 3 + [OTHER_TERM.number, 0]),
        ethertype=rng.choice([ETHERTYPE] * 4 + [0]),
    )
    window_ns = rng.choice([HOUR_NS, 3 * HOUR_NS])
    grants = Grants(
        fence_ns=rng.choice([now_ns + HOUR_NS // 2] * 4 + [0, now_ns - 1, now_ns + 5 * HOUR_NS, U64_MAX]),
        bound_term=rng.choice([TERM.number] * 3 + [OTHER_TERM.number, 0]),
        window_ns=window_ns,
    )
    term = rng.choice([TERM] * 4 + [OTHER_TERM, None])
    return control, replace(term, window_ns=window_ns) if term else None, grants


def a_stimulus(rng: random.Random, now_ns: int) -> bytes:
    """Most are what a voucher sends, and some of them something else in one respect."""
    stamps = [now_ns - 1, now_ns - HOUR_NS // 4, now_ns - HOUR_NS, now_ns - 5 * HOUR_NS]
    stamps += [0, 1, now_ns + HOUR_NS, now_ns + 5 * HOUR_NS, U64_MAX]
    frame = VouchFrame(
        type=rng.choice([VouchType.PING, VouchType.GRANT, VouchType.GRANT, VouchType.PONG]),
        term=rng.choice([TERM.number] * 8 + [OTHER_TERM.number, 0]),
        number=rng.getrandbits(64),
        stamp_ns=max(0, rng.choice(stamps)),  # a machine may have booted less than 5 hours ago
        right_ns=rng.choice([0, rng.getrandbits(64)]),
        bound=rng.random() < 0.3,
        ending=rng.random() < 0.3,
    )
    dst = rng.choice([GUARD] * 8 + [ZERO_MAC, BROADCAST_MAC, GROUP_MAC])
    payload = _odd(rng, pack(frame, rng.choice([TERM.key] * 8 + [OTHER_TERM.key])))
    data = in_frame(payload, dst, TESTER, rng.choice(TAGS))
    data += rng.choice([b"", bytes(4), rng.randbytes(rng.randrange(40))])
    if rng.random() < 0.2:
        at = rng.randrange(len(data))
        data = rng.choice([data[:at], patched(data, at, bytes([data[at] ^ 1 << rng.randrange(8)]))])
    return data.ljust(64 if data[12:14] in (b"\x08\0", b"\x86\xdd") else 14, b"\0")


def _odd(rng: random.Random, payload: bytes) -> bytes:
    """At times of another version or type, or with bits that mean nothing yet; sealed all the same."""
    if rng.random() < 0.8:
        return payload
    at, octet = rng.choice([(0, 0), (0, 2), (1, 0), (1, 4), (1, 255), (2, 255), (3, 1), (7, 255), (40, 1), (47, 255)])
    return resealed(payload[:at] + bytes([octet]) + payload[at + 1 :])
