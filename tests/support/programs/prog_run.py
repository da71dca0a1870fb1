"""The real programs on single frames: BPF_PROG_TEST_RUN, with the maps set through arpguard.dataplane.maps.

Nothing is attached. The kernel runs the programs as if the frame had come in on `lo` of this network namespace.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from arpguard.addresses import Address, Network
from arpguard.clock import boot_ns
from arpguard.dataplane import bpffs, layout, loader, syscall
from arpguard.dataplane.build import Build
from arpguard.dataplane.explain import Trial, try_frame
from arpguard.dataplane.maps import (
    ControlValue,
    EntryTable,
    K,
    RangeTable,
    Table,
    VouchingTable,
    read_grants,
    read_totals,
)
from arpguard.model import EntryKey, Grants, LinkTerm, NodeControl, RangeKey, Tally, VipEntry
from arpguard.verdict import Hook, Reason, Vouched

LO = 1  # ifindex of `lo` in every network namespace

PROGRAM = {Hook.TC_INGRESS: "ingress_tc", Hook.XDP: "ingress_xdp", Hook.TC_EGRESS: "egress_tc"}
INGRESS = (Hook.TC_INGRESS, Hook.XDP)
PASS, DROP, SEND_BACK = "pass", "drop", "send back"
HIDE = "hide"  # from this node's kernel; test runs do not tell it from PASS
_TC_ACTIONS = {0xFFFFFFFF: PASS, 2: DROP, 7: SEND_BACK}  # TC_ACT_UNSPEC, _SHOT, _REDIRECT
_XDP_ACTIONS = {2: PASS, 1: DROP, 3: SEND_BACK}
ACTIONS = {Hook.TC_INGRESS: _TC_ACTIONS, Hook.TC_EGRESS: _TC_ACTIONS, Hook.XDP: _XDP_ACTIONS}

_FENCE_AHEAD_NS, _FENCE_BEHIND_NS = 300_000_000, 5_000_000


@dataclass(frozen=True)
class Outcome:
    """What a program did: pass, drop, hide or send back, and the frame that goes on (None: dropped)."""

    action: str
    frame: bytes | None


DROPPED = Outcome(DROP, None)
NO_GRANTS = Grants()


def passed(frame: bytes) -> Outcome:
    return Outcome(PASS, frame)


def hidden(frame: bytes) -> Outcome:
    return Outcome(HIDE, frame)


def sent_back(frame: bytes) -> Outcome:
    return Outcome(SEND_BACK, frame)


@dataclass(frozen=True)
class Count:
    """One counter: of a VIP's entry or a range (None: of the node), by reason."""

    vip: Address | Network | None
    observed: bool
    reason: Reason


class Plane:
    """Loaded programs and their maps."""

    def __init__(self, pin_dir: Path, loaded: loader.Loaded) -> None:
        self.pin_dir = pin_dir
        self.programs = loaded.programs
        self.maps = loaded.maps
        self.table = EntryTable(loaded.maps["entries"], loaded.maps["counters"])
        self.ranges = RangeTable(loaded.maps["ranges"], loaded.maps["counters"])
        self.control = ControlValue(loaded.maps["control"])
        self.vouching = VouchingTable(loaded.maps["vouching"])
        self._vips: tuple[Address, ...] = ()
        self._networks: tuple[Network, ...] = ()

    def set(
        self,
        entries: Mapping[Address, VipEntry],
        control: NodeControl,
        ranges: Mapping[Network, VipEntry] | None = None,
        term: LinkTerm | None = None,
        grants: Grants = NO_GRANTS,
    ) -> None:
        """Makes these the only entries and ranges, all of `lo`, and this the control value; the term is `lo`'s."""
        _replace(self.table, {EntryKey(LO, vip): entry for vip, entry in entries.items()})
        _replace(self.ranges, {RangeKey(LO, network): entry for network, entry in (ranges or {}).items()})
        self.control.write(control)
        self.vouching.write({LO: term} if term else {})
        syscall.map_update(self.maps["grants"], bytes(4), bytes(grants_value(grants)))
        self._vips, self._networks = tuple(entries), tuple(ranges or {})

    def run(self, hook: Hook, frame: bytes) -> Outcome:
        done = syscall.program_test_run(self.programs[PROGRAM[hook]], frame)
        action = ACTIONS[hook][done.retval]
        return DROPPED if action == DROP else Outcome(action, done.frame)

    def run_across(self, hook: Hook, frame: bytes, set_fence: Callable[[int], None]) -> list[str]:
        """What becomes of a frame, from its answer before a fence to silence after it, with no write in between.

        The fence is set anew if it passed before the first run: the machine may stand still at any time.
        """
        seen: list[str] = []
        while SEND_BACK not in seen:
            fence_ns = boot_ns() + _FENCE_AHEAD_NS
            set_fence(fence_ns)
            seen = []
            while boot_ns() < fence_ns + _FENCE_BEHIND_NS or DROPPED.action not in seen:
                before, action, after = boot_ns(), self.run(hook, frame).action, boot_ns()
                assert action == SEND_BACK or after >= fence_ns
                assert action == DROPPED.action or before < fence_ns
                seen.append(action)
        return seen

    def shown(self, outcome: Outcome) -> Outcome:
        """An outcome as far as a test run shows it."""
        return replace(outcome, action=PASS) if outcome.action == HIDE else outcome

    def trial(self, hook: Hook, frame: bytes) -> Trial:
        """What the program's twin says."""
        return try_frame(self.programs, hook, LO, frame)

    def counts(self) -> Counter[Count]:
        """All counters that are not zero, of the node and of the VIPs that were set last."""
        found = counts_of(None, read_totals(self.maps["totals"])[0])
        for vip in self._vips:
            found |= counts_of(vip, self.table.tally(EntryKey(LO, vip)))
        for network in self._networks:
            found |= counts_of(network, self.ranges.tally(RangeKey(LO, network)))
        return found

    def counted(self, hook: Hook, frame: bytes) -> tuple[Outcome, Counter[Count]]:
        """The outcome, and by how much each counter went up."""
        before = self.counts()
        outcome = self.run(hook, frame)
        after = self.counts()
        assert not before - after, "a counter went down"
        return outcome, after - before

    @property
    def grants(self) -> Grants:
        """What the programs have of the voucher."""
        return read_grants(self.maps["grants"])

    def vouched(self) -> Counter[Vouched]:
        """What came of frames of vouching so far."""
        return +Counter(read_totals(self.maps["totals"])[2])

    def event_account(self) -> tuple[int, int, int]:
        """Events so far: (sent, limited, lost)."""
        account = read_totals(self.maps["totals"])[1]
        return account.delivered, account.limited, account.lost


def _replace(table: Table[K], wanted: dict[K, VipEntry]) -> None:
    stale = table.read().entries.keys() - wanted.keys()
    if stale:
        table.delete(stale)
    table.write(wanted)


def grants_value(grants: Grants) -> layout.GrantsStruct:
    """What only programs write, for a test to begin with."""
    return layout.GrantsStruct(grants.fence_ns, grants.bound_term, grants.window_ns)


def vouched_of(totals: layout.Totals) -> Counter[Vouched]:
    return Counter({what: totals.vouched[what] for what in Vouched if totals.vouched[what]})


def counts_of(vip: Address | Network | None, tally: Tally) -> Counter[Count]:
    rows = ((False, tally.enforced), (True, tally.observed))
    return Counter({Count(vip, observed, reason): n for observed, row in rows for reason, n in row.items()})


def one_count(reason: Reason, *, observed: bool = False, vip: Address | Network | None = None) -> Counter[Count]:
    """One decision: counted for the node, and for the VIP or range if it is about one."""
    return Counter({Count(about, observed, reason): 1 for about in {None, vip}})


@contextmanager
def a_pin_dir(name: str) -> Iterator[Path]:
    """A folder of this process's own in bpffs, which is removed afterwards."""
    path = Path(f"/sys/fs/bpf/arpguard-test-{os.getpid()}-{name}")
    bpffs.prepare(path)
    try:
        yield path
    finally:
        bpffs.remove(path)


@contextmanager
def a_plane(name: str, build: Build) -> Iterator[Plane]:
    """The programs of `build`, freshly loaded."""
    with a_pin_dir(name) as pin_dir:
        yield Plane(pin_dir, loader.load(pin_dir, build))


# ---- comparing ---------------------------------------------------------------------------------------------------


def hexdump(frame: bytes | None) -> str:
    if frame is None:
        return "  (no frame)"
    return "\n".join(f"  {at:04x}  {frame[at : at + 16].hex(' ')}" for at in range(0, len(frame), 16))


def assert_outcome(actual: Outcome, expected: Outcome, stimulus: bytes, entry: str = "") -> None:
    """Compares whole frames, and prints them when they differ, with the name of the VIP's entry."""
    if actual != expected:
        raise AssertionError(
            f"{entry}\nstimulus\n{hexdump(stimulus)}\nexpected: {expected.action}\n{hexdump(expected.frame)}\n"
            f"actual: {actual.action}\n{hexdump(actual.frame)}"
        )


def assert_counted(actual: Counter[Count], expected: Counter[Count]) -> None:
    if actual != expected:
        lines = [f"  {n:+d} {count}" for count, n in (actual - expected).items()]
        lines += [f"  {-n:+d} {count}" for count, n in (expected - actual).items()]
        raise AssertionError("counters differ from what is expected by\n" + "\n".join(lines))
