"""What one frame costs: nanoseconds by BPF_PROG_TEST_RUN's own `duration`, pinned to a CPU.

The syscall itself takes about 16 ms, so wall time would tell nothing. Each round runs every case once, so that a
change of the machine's speed hits all alike; a case is compared with a bare program of its type in the same round.
The programs are a build with BENCH: the frame is not reset between repeats, and such a build answers a request with
as many stores, but writes a request again. A solicitation is rewritten to the address it has. That each frame went
the way it should is checked by the counters.
"""

import struct
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_network
from statistics import median

from bed import (
    CLIENT_IP,
    CLIENT_MAC,
    NODE_MAC,
    REQUEST,
    VIP,
    Plane,
    a_changed_build,
    a_pin_dir,
    an_entry,
    pinned_to_a_cpu,
)
from report import Row, Section

from arpguard.dataplane import syscall
from arpguard.dataplane.maps import read_totals
from arpguard.dataplane.syscall import Fd
from arpguard.verdict import Kind, Reason
from arpguard.wire.arp import ArpOp, ArpPacket, build_frame, build_request
from arpguard.wire.ndp import build_advertisement, build_solicitation, build_unsolicited_advertisement
from support.programs import raw_bpf

TITLE = "frames: ns for one frame (BPF_PROG_TEST_RUN), and what is left of it above a bare pass program"

LO = 1  # the test run takes frames as if they had come in on `lo`
MAX_ENTRIES = 1 << 17
HELD, FOREIGN = IPv4Address("10.20.0.2"), IPv4Address("10.20.0.3")
# Addresses between the first and the last VIP take a lookup to be told from VIPs; others take none.
AMONG, CLIENT_AMONG, OUTSIDE = IPv4Address("10.20.0.100"), IPv4Address("10.20.0.101"), IPv4Address("192.0.2.200")
CLOSED, UNKNOWN = [ip_network("10.19.0.0/16"), ip_network("10.18.7.0/24")], IPv4Address("10.19.0.7")
VIP6, HELD6, FOREIGN6 = (IPv6Address(f"2001:db8:20::{number}") for number in (1, 2, 3))
OTHER6, CLIENT_IP6, NODE_IP6 = (IPv6Address(f"2001:db8::{number}") for number in ("c8", "2", "1"))
SPECIAL = (
    (HELD, an_entry(unfenced=True)),
    (FOREIGN, an_entry(Kind.FOREIGN)),
    (VIP6, an_entry(primary=NODE_IP6)),
    (HELD6, an_entry(unfenced=True, primary=NODE_IP6)),
    (FOREIGN6, an_entry(Kind.FOREIGN, primary=FOREIGN6)),
)
INGRESS, EGRESS = ("ingress_tc", "ingress_xdp"), "egress_tc"
PASS, DROP, ANSWER = "pass", "drop", "answer"
TC = {PASS: 0xFFFFFFFF, DROP: 2, ANSWER: 7}
XDP = {PASS: 2, DROP: 1, ANSWER: 3}


@dataclass(frozen=True)
class Case:
    """A frame for a program, and what has to become of it. `limit_ns`: a goal for what it costs, net of the floor."""

    name: str
    program: str
    frame: bytes
    action: str
    reason: Reason | None = None
    limit_ns: int = 0
    net: bool = False

    @property
    def is_xdp(self) -> bool:
        return self.program == "ingress_xdp"

    @property
    def retval(self) -> int:
        return (XDP if self.is_xdp else TC)[self.action]

    def count(self, totals: Fd) -> int | None:
        """How often frames went this way so far; None: nobody counts that."""
        return None if self.reason is None else read_totals(totals)[0].enforced.get(self.reason, 0)

    def fits(self, frame: bytes) -> bool:
        """Whether that is what the frame has to be in the end."""
        return frame == self.frame


def ipv4_frame(length: int) -> bytes:
    """A TCP segment, as far as anybody here looks at it."""
    header = NODE_MAC.octets + CLIENT_MAC.octets + struct.pack("!H", 0x0800)
    return (header + struct.pack("!BBHHHBB", 0x45, 0, length - 14, 0, 0, 64, 6)).ljust(length, b"\0")


def _reply(vip: IPv4Address) -> bytes:
    return build_frame(ArpPacket(ArpOp.REPLY, NODE_MAC, vip, CLIENT_MAC, CLIENT_IP), CLIENT_MAC, NODE_MAC)


def _ask(vip: IPv4Address, spa: IPv4Address = CLIENT_IP) -> bytes:
    return build_request(CLIENT_MAC, spa, vip)


def ipv6_frame(length: int, extension: bytes = b"") -> bytes:
    """The same over IPv6, perhaps behind an extension header."""
    header = NODE_MAC.octets + CLIENT_MAC.octets + struct.pack("!H", 0x86DD)
    fixed = struct.pack("!IHBB", 6 << 28, length - 54, 0 if extension else 6, 64)
    return (header + fixed + CLIENT_IP6.packed + NODE_IP6.packed + extension).ljust(length, b"\0")


def traffic_cases() -> list[Case]:
    """What is neither ARP nor neighbour discovery."""
    hop_by_hop = b"\x06\x00\x01\x04\0\0\0\0"
    frames = [(f"IPv4, {length} bytes", ipv4_frame(length), 5) for length in (60, 1514)]
    frames += [(f"IPv6, {length} bytes", ipv6_frame(length), 8) for length in (74, 1514)]
    frames.append(("IPv6 behind hop-by-hop options", ipv6_frame(1514, hop_by_hop), 0))
    return [
        Case(f"{program}: {name}", program, frame, PASS, None, limit, net=True)
        for program in (*INGRESS, EGRESS)
        for name, frame, limit in frames
    ]


def arp_cases() -> list[Case]:
    """One of each way through the programs. A client is outside the VIPs' range unless it is said to be among them."""
    cases = []
    for program in INGRESS:
        among = _ask(VIP, CLIENT_AMONG)
        cases += [
            Case(f"{program}: no VIP, outside their range", program, _ask(OUTSIDE), PASS, Reason.NOT_GUARDED),
            Case(f"{program}: no VIP, among them", program, _ask(AMONG, CLIENT_AMONG), PASS, Reason.NOT_GUARDED),
            Case(f"{program}: suppressed, foreign", program, _ask(FOREIGN), DROP, Reason.FOREIGN),
            Case(f"{program}: answered, fenced", program, REQUEST, ANSWER, Reason.ANSWERED, 120),
            Case(f"{program}: answered, fenced, client among", program, among, ANSWER, Reason.ANSWERED, 120),
            Case(f"{program}: answered, hold", program, _ask(HELD), ANSWER, Reason.ANSWERED),
        ]
    return [
        *cases,
        Case(f"{EGRESS}: no VIP, outside their range", EGRESS, _reply(OUTSIDE), PASS, Reason.NOT_GUARDED),
        Case(f"{EGRESS}: no VIP, among them", EGRESS, _reply(AMONG), PASS, Reason.NOT_GUARDED),
        Case(f"{EGRESS}: suppressed, foreign", EGRESS, _reply(FOREIGN), DROP, Reason.EGRESS_NOT_OWNER),
        Case(f"{EGRESS}: reply by the owner, fenced", EGRESS, _reply(VIP), PASS, Reason.EGRESS_OWNER),
    ]


def nd_cases() -> list[Case]:
    """The same for neighbour discovery, whose addresses take a lookup each as soon as there is an IPv6 VIP."""
    cases = []
    for program in INGRESS:
        claim = build_unsolicited_advertisement(CLIENT_MAC, FOREIGN6)
        cases += [
            Case(f"{program}: NS, no VIP", program, _solicit(OTHER6), PASS, Reason.NOT_GUARDED),
            Case(f"{program}: NS, suppressed, foreign", program, _solicit(FOREIGN6), DROP, Reason.FOREIGN),
            Case(f"{program}: NS, answered, fenced", program, _solicit(VIP6), ANSWER, Reason.ANSWERED, 250),
            Case(f"{program}: NS, answered, hold", program, _solicit(HELD6), ANSWER, Reason.ANSWERED, 250),
            Case(f"{program}: NA, a claim", program, claim, PASS, Reason.UNVERIFIED_CLAIM),
        ]
    rewritten = build_solicitation(NODE_MAC, FOREIGN6, OTHER6)
    return [
        *cases,
        Case(f"{EGRESS}: NA, no VIP", EGRESS, _advertise(OTHER6), PASS, Reason.NOT_GUARDED),
        Case(f"{EGRESS}: NA, suppressed, foreign", EGRESS, _advertise(FOREIGN6), DROP, Reason.EGRESS_NOT_OWNER),
        Case(f"{EGRESS}: NA by the owner, fenced", EGRESS, _advertise(VIP6), PASS, Reason.EGRESS_OWNER),
        Case(f"{EGRESS}: NS, rewritten", EGRESS, rewritten, PASS, Reason.EGRESS_REWRITTEN),
    ]


def closed_cases() -> list[Case]:
    """What closed ranges cost: an address among the VIPs but in none of them, and one in such a range."""
    cases = []
    for program in INGRESS:
        action = DROP if program == "ingress_xdp" else PASS  # at tc it is hidden from the kernel
        among = _ask(AMONG, CLIENT_AMONG)
        cases += [
            Case(f"{program}: no VIP, among them, in no closed range", program, among, PASS, Reason.NOT_GUARDED),
            Case(f"{program}: suppressed, unknown", program, _ask(UNKNOWN), action, Reason.UNKNOWN),
        ]
    return [
        *cases,
        Case(f"{EGRESS}: no VIP, among them, in no closed range", EGRESS, _reply(AMONG), PASS, Reason.NOT_GUARDED),
        Case(f"{EGRESS}: suppressed, unknown", EGRESS, _reply(UNKNOWN), DROP, Reason.EGRESS_UNKNOWN),
    ]


def _solicit(target: IPv6Address) -> bytes:
    return build_solicitation(CLIENT_MAC, CLIENT_IP6, target)


def _advertise(vip: IPv6Address) -> bytes:
    return build_advertisement(NODE_MAC, vip, CLIENT_IP6, CLIENT_MAC)


class Stopwatch:
    """Runs cases, and keeps the nanoseconds of each: as they are, and above the round's floor."""

    def __init__(self, plane: Plane, repeat: int) -> None:
        self._plane = plane
        self._repeat = repeat
        self._floors = {True: raw_bpf.bare(raw_bpf.XDP), False: raw_bpf.bare(raw_bpf.SCHED_CLS)}
        self._clock = raw_bpf.clock_reader()
        self.whole: dict[str, list[int]] = defaultdict(list)
        self.net: dict[str, list[int]] = defaultdict(list)

    def rounds(self, count: int, cases: Sequence[Case]) -> None:
        """Every case once in every round."""
        with pinned_to_a_cpu():
            for _ in range(count):
                self._round(cases)

    def _round(self, cases: Sequence[Case]) -> None:
        floors = {is_xdp: self._run(program, REQUEST).duration_ns for is_xdp, program in self._floors.items()}
        self.whole["bare XDP program"].append(floors[True])
        self.whole["bare tc program"].append(floors[False])
        self._keep("boot clock read", self._run(self._clock, REQUEST).duration_ns, floors[True])
        for case in cases:
            self._keep(case.name, self._time(case), floors[case.is_xdp])

    def _keep(self, name: str, whole: int, floor: int) -> None:
        self.whole[name].append(whole)
        self.net[name].append(whole - floor)

    def _run(self, program: Fd, frame: bytes) -> syscall.TestRun:
        return syscall.program_test_run(program, frame, repeat=self._repeat)

    def _time(self, case: Case) -> int:
        totals = self._plane.maps["totals"]
        before = case.count(totals)
        done = self._run(self._plane.programs[case.program], case.frame)
        after = case.count(totals)
        counted = self._repeat if before is None or after is None else after - before
        if done.retval != case.retval or not case.fits(done.frame) or counted < self._repeat:
            raise RuntimeError(f"{case.name}: went another way (returned {done.retval}, counted {counted} times)")
        return done.duration_ns


def row_of(watch: Stopwatch, case: Case, suffix: str = "") -> Row:
    """What a case has cost so far."""
    whole, net = watch.whole[case.name], median(watch.net[case.name])
    met = goal = None
    if case.limit_ns and case.net:
        goal, met = f"floor + {case.limit_ns} or less", net <= case.limit_ns
    elif case.limit_ns:
        goal, met = f"under {case.limit_ns}", median(whole) < case.limit_ns
    return Row(case.name + suffix, whole, "ns", goal or "", met, f"floor {net:+.0f}")


def measure(*, quick: bool) -> Section:
    """The section."""
    repeat, count = (10_000, 3) if quick else (1_000_000, 5)
    section = Section(TITLE)
    with ExitStack() as stack:
        pin_dir = stack.enter_context(a_pin_dir("frames"))
        plane = Plane(pin_dir, a_changed_build("#define BENCH 1", MAX_ENTRIES), LO)
        watch = Stopwatch(plane, repeat)
        watch.rounds(count, traffic_cases())
        add_floors(section, watch)
        for case in traffic_cases():
            section.add(row_of(watch, case))
        for vips in (1_000, 100_000):
            plane.fill(vips, SPECIAL)
            watch = Stopwatch(plane, repeat)
            cases = arp_cases() + nd_cases()
            watch.rounds(count, cases)
            for case in cases:
                section.add(row_of(watch, case, f" ({vips:,} VIPs)"))
        plane.close(CLOSED)
        watch = Stopwatch(plane, repeat)
        watch.rounds(count, closed_cases())
        for case in closed_cases():
            section.add(row_of(watch, case, " (ranges are closed)"))
    return section


def add_floors(section: Section, watch: Stopwatch) -> None:
    """What is taken off of all that was measured."""
    for name in ("bare XDP program", "bare tc program"):
        section.add(Row(name, watch.whole[name], "ns", note="the floor"))
    section.add(
        Row(
            "boot clock read, alone",
            watch.net["boot clock read"],
            "ns",
            note="net of the floor; goal of an answer has about 40 for it",
        )
    )
