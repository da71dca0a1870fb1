"""What one frame of vouching costs, and what a voucher makes other frames cost: nanoseconds, as in frames.py.

Each round runs everything twice, without a voucher and bound to one: what that adds is a difference within the round.
"""

from contextlib import ExitStack
from dataclasses import dataclass

from bed import CLIENT_MAC, NODE_MAC, REQUEST, Plane, a_changed_build, a_pin_dir
from frames import (
    ANSWER,
    DROP,
    EGRESS,
    INGRESS,
    LO,
    MAX_ENTRIES,
    PASS,
    Case,
    Stopwatch,
    add_floors,
    row_of,
    traffic_cases,
)
from report import Row, Section

from arpguard.clock import boot_ns
from arpguard.dataplane.maps import read_totals
from arpguard.dataplane.syscall import Fd
from arpguard.model import LinkTerm
from arpguard.units import NS_PER_S
from arpguard.verdict import Reason, Vouched
from arpguard.wire.ethernet import EthernetFrame
from arpguard.wire.vouching import VouchFrame, VouchType, pack, parse
from support.frames.vouch_builders import ETHERTYPE

TITLE = "vouched: ns for one frame of vouching, and what a voucher adds to others (BPF_PROG_TEST_RUN)"
TERM = LinkTerm(0x1122334455667788, bytes(range(16)), 3600 * NS_PER_S)
VIPS = 1_000
FRAME_NS, FENCE_NS, TRAFFIC_NS = 150, 5, 1  # goals
LLDP = EthernetFrame(NODE_MAC, CLIENT_MAC, 0x88CC, bytes(60)).build()


@dataclass(frozen=True)
class VouchCase(Case):
    """A frame of TERM, which is one of it in the end as well."""

    what: Vouched = Vouched.PING

    def count(self, totals: Fd) -> int | None:
        return read_totals(totals)[2][self.what]

    def fits(self, frame: bytes) -> bool:
        found = parse(frame[14:], TERM.key)
        return len(frame) == len(self.frame) and found is not None and found.number == 7


def vouch_cases() -> list[Case]:
    """A ping, whose pong is sent back, and a grant, at each hook."""
    ping, grant = (_sealed(kind) for kind in (VouchType.PING, VouchType.GRANT))
    cases: list[Case] = []
    for program in INGRESS:
        goal = {"limit_ns": FRAME_NS, "net": True}
        cases += [
            VouchCase(f"{program}: ping, pong", program, ping, ANSWER, what=Vouched.PING, **goal),
            VouchCase(f"{program}: grant", program, grant, DROP, what=Vouched.GRANT, **goal),
        ]
    return cases


def _sealed(kind: VouchType) -> bytes:
    frame = VouchFrame(kind, TERM.number, number=7, stamp_ns=boot_ns() if kind is VouchType.GRANT else 0)
    return EthernetFrame(NODE_MAC, CLIENT_MAC, ETHERTYPE, pack(frame, TERM.key)).build()


def other_cases() -> dict[Case, int]:
    """Frames that a voucher may add something to, and by how many ns at most; 0: there is no goal."""
    answers = [Case(f"{program}: answered, fenced", program, REQUEST, ANSWER, Reason.ANSWERED) for program in INGRESS]
    others = [Case(f"{program}: LLDP", program, LLDP, PASS) for program in (*INGRESS, EGRESS)]
    traffic = [case for case in traffic_cases() if "IPv4, 60" in case.name or "IPv6, 74" in case.name]
    return {
        **dict.fromkeys(answers, FENCE_NS),
        **dict.fromkeys(traffic, TRAFFIC_NS),
        **dict.fromkeys(others, 0),
    }


def measure(*, quick: bool) -> Section:
    """The section."""
    repeat, count = (50_000, 3) if quick else (1_000_000, 9)
    section, cases, others = Section(TITLE), vouch_cases(), other_cases()
    with ExitStack() as stack:
        pin_dir = stack.enter_context(a_pin_dir("vouched"))
        plane = Plane(pin_dir, a_changed_build("#define BENCH 1", MAX_ENTRIES), LO)
        plane.fill(VIPS, [])
        before, after = Stopwatch(plane, repeat), Stopwatch(plane, repeat)
        for _ in range(count):
            plane.vouch(None)
            before.rounds(1, list(others))
            plane.vouch(TERM)
            after.rounds(1, [*others, *cases])

    add_floors(section, after)
    for case in cases:
        section.add(row_of(after, case))
    for case, most_ns in others.items():
        section.add(_difference(case, before, after, most_ns))
    return section


def _difference(case: Case, before: Stopwatch, after: Stopwatch, most_ns: int) -> Row:
    """What the voucher adds to a case."""
    pairs = list(zip(before.net[case.name], after.net[case.name], strict=True))
    row = Row(f"{case.name}: with a voucher", [later - earlier for earlier, later in pairs], "ns more")
    if not most_ns:
        return row
    return Row(row.name, row.samples, row.unit, f"{most_ns} or less", row.median <= most_ns)
