"""bpf/arpguard.c compiled for user space (tests/fuzz/frames), as a plane like that of `prog_run`.

The clock is what a test says it is, frames may be linear in part only, and there is no verifier: so what the programs
would read and do can be seen where BPF_PROG_TEST_RUN shows nothing, and in a fraction of the time.
"""

import ctypes
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from arpguard.addresses import Address, Network
from arpguard.clock import boot_ns
from arpguard.dataplane import layout
from arpguard.dataplane.explain import Trial, _trial
from arpguard.dataplane.maps import _raw_control, _raw_entry, _raw_key, _raw_term, _tally, raw_range_key
from arpguard.model import EntryKey, Grants, LinkTerm, NodeControl, RangeKey, VipEntry
from arpguard.verdict import Hook, Vouched
from support.programs.compiling import BPF
from support.programs.prog_run import (
    ACTIONS,
    DROP,
    DROPPED,
    HIDE,
    LO,
    NO_GRANTS,
    Count,
    Outcome,
    counts_of,
    grants_value,
    vouched_of,
)

FOLDER = Path(__file__).parents[2] / "fuzz" / "frames"
MAX_ENTRIES = 64
MAX_RANGES = 8  # MAX_RANGES_HERE of programs.h
MAX_FRAME = 9216
WHOLE = MAX_FRAME  # every byte of a frame is linear
# What programs inline is called instead: quicker to compile, five times or more, and slower to run.
CALLED = "-DCALLED"


class World(ctypes.Structure):
    """struct world of programs.h."""

    _fields_ = (
        ("control", layout.ControlStruct),
        ("vouching", layout.VouchingStruct),
        ("grants", layout.GrantsStruct),
        ("ranges", ctypes.c_uint32),
        ("range_keys", layout.RangeKeyStruct * MAX_RANGES),
        ("range_values", layout.EntryStruct * MAX_RANGES),
        ("entries", ctypes.c_uint32),
        ("keys", layout.EntryKeyStruct * MAX_ENTRIES),
        ("values", layout.EntryStruct * MAX_ENTRIES),
        ("counters", layout.CountersStruct * (MAX_ENTRIES + MAX_RANGES)),
        ("totals", layout.Totals),
        ("events", ctypes.c_uint64),
        ("lookups", ctypes.c_uint64),
        ("missed", ctypes.c_uint64),
    )


class Arrival(ctypes.Structure):
    """struct arrival."""

    _fields_ = (
        ("hook", ctypes.c_uint32),
        ("length", ctypes.c_uint32),
        ("linear", ctypes.c_uint32),
        ("tag", ctypes.c_uint16),
        ("tagged", ctypes.c_uint8),
        ("summed", ctypes.c_uint8),
        ("ungainly", ctypes.c_uint8),
        ("twin", ctypes.c_uint8),
    )


class Departure(ctypes.Structure):
    """struct departure."""

    _fields_ = (
        ("code", ctypes.c_uint32),
        ("length", ctypes.c_uint32),
        ("redirected", ctypes.c_uint32),
        ("tagged", ctypes.c_uint32),
        ("hidden", ctypes.c_uint32),
        ("summed", ctypes.c_uint32),
        ("frame", ctypes.c_uint8 * MAX_FRAME),
    )


def flags(source: Path, max_entries: int = MAX_ENTRIES) -> list[str]:
    """What every build in user space needs."""
    folders = (FOLDER, FOLDER / "kernel", source)
    sizes = (f"-DMAX_ENTRIES={max_entries}", "-DRING_BYTES=4096")
    return ["-w", *sizes, *(f"-I{folder}" for folder in folders)]


def compiler() -> str:
    """Either will do; clang takes half the time."""
    return shutil.which("clang") or "gcc"


def build(out: Path, sources: list[Path], options: list[str]) -> Path:
    """Compiles and links; RuntimeError with the compiler's words."""
    command = [compiler(), *options, "-o", str(out), *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")
    return out


@cache
def _objects(folder: Path) -> list[Path]:
    """What is the same whatever the programs are."""
    options = ["-O2", "-fPIC", "-c", *flags(BPF)]
    return [build(folder / f"{name}.o", [FOLDER / f"{name}.c"], options) for name in ("kernel", "input")]


class UserPlane:
    """The programs of a source, in this process. `folder`: for what is built, one for many planes."""

    def __init__(self, folder: Path, source: Path, name: str = "programs") -> None:
        objects = [FOLDER / "programs.c", *_objects(folder)]
        built = build(folder / f"{name}.so", objects, ["-O0", CALLED, "-shared", "-fPIC", *flags(source)])
        self.library = ctypes.CDLL(str(built))
        self.world = World.in_dll(self.library, "world")
        self._clock_ns = ctypes.c_uint64.in_dll(self.library, "clock_ns")
        self._clock_reads = ctypes.c_uint32.in_dll(self.library, "clock_reads")
        self._left = Departure()
        self._rows: dict[int, Address | Network] = {}

    @property
    def now_ns(self) -> int:
        """What the clock says."""
        return self._clock_ns.value

    @now_ns.setter
    def now_ns(self, now_ns: int) -> None:
        self._clock_ns.value = now_ns

    def set(
        self,
        entries: Mapping[Address, VipEntry],
        control: NodeControl,
        now_ns: int | None = None,
        ranges: Mapping[Network, VipEntry] | None = None,
        term: LinkTerm | None = None,
        grants: Grants = NO_GRANTS,
    ) -> None:
        """Makes these the only entries and ranges, this the control value, and all counters 0."""
        ranges = ranges or {}
        world = World(control=layout.ControlStruct.from_buffer_copy(_raw_control(control)), entries=len(entries))
        world.grants = grants_value(grants)
        if term is not None:
            world.vouching = layout.VouchingStruct.from_buffer_copy(_raw_term(term))
        for slot, (vip, entry) in enumerate(entries.items()):
            world.keys[slot] = layout.EntryKeyStruct.from_buffer_copy(_raw_key(EntryKey(LO, vip)))
            world.values[slot] = layout.EntryStruct.from_buffer_copy(_raw_entry(entry, slot))
        world.ranges = len(ranges)
        for at, (network, entry) in enumerate(ranges.items()):
            world.range_keys[at] = layout.RangeKeyStruct.from_buffer_copy(raw_range_key(RangeKey(LO, network)))
            world.range_values[at] = layout.EntryStruct.from_buffer_copy(_raw_entry(entry, MAX_ENTRIES + at))
        ctypes.pointer(self.world)[0] = world
        self.now_ns = boot_ns() if now_ns is None else now_ns
        self._rows = {**dict(enumerate(entries)), **dict(enumerate(ranges, MAX_ENTRIES))}

    def run(self, hook: Hook, frame: bytes, *, linear: int = WHOLE, **how: int) -> Outcome:
        """`linear`: so many bytes can be read directly at tc; `how`: further fields of Arrival."""
        code, left = self._run(Arrival(hook=hook, length=len(frame), linear=linear, **how), frame)
        action = HIDE if self._left.hidden else ACTIONS[hook][code]
        return DROPPED if action == DROP else Outcome(action, left)

    def shown(self, outcome: Outcome) -> Outcome:
        """An outcome as far as it is seen here: wholly."""
        return outcome

    def trial(self, hook: Hook, frame: bytes) -> Trial:
        """What the program's twin says."""
        code, left = self._run(Arrival(hook=hook, length=len(frame), linear=WHOLE, twin=1), frame)
        return _trial(hook, code, left)

    def cost(self, hook: Hook, frame: bytes) -> tuple[int, int]:
        """How often a frame makes the program look an entry or a range up, and read the clock. Reports are left out."""
        lookups, reads = self.world.lookups, self._clock_reads.value
        self.trial(hook, frame)
        return self.world.lookups - lookups, self._clock_reads.value - reads

    def counts(self) -> Counter[Count]:
        """All counters that are not zero."""
        found = counts_of(None, _tally(bytes(self.world.totals), layout.Totals))
        for slot, about in self._rows.items():
            found |= counts_of(about, _tally(bytes(self.world.counters[slot]), layout.CountersStruct))
        return found

    def counted(self, hook: Hook, frame: bytes) -> tuple[Outcome, Counter[Count]]:
        """The outcome, and by how much each counter went up."""
        before = self.counts()
        outcome = self.run(hook, frame)
        return outcome, self.counts() - before

    @property
    def left_summed(self) -> bool:
        """Whether the kernel takes what the NIC has summed up for the sum of the last frame (CHECKSUM_COMPLETE)."""
        return bool(self._left.summed)

    @property
    def grants(self) -> Grants:
        """What the programs have of the voucher."""
        found = self.world.grants
        return Grants(found.fence_ns, found.bound_term, found.window_ns, found.pinged_ns)

    def vouched(self) -> Counter[Vouched]:
        """What came of frames of vouching."""
        return vouched_of(self.world.totals)

    def _run(self, arrival: Arrival, frame: bytes) -> tuple[int, bytes]:
        self.library.run_program(ctypes.byref(arrival), frame, ctypes.byref(self._left))
        return self._left.code, bytes(memoryview(self._left.frame)[: self._left.length])
