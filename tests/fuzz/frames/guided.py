"""The programs in user space under libFuzzer (fuzz.c), and what it found, before the model and the kernel."""

import ctypes
import random
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from flood import some_seeds

from arpguard.clock import boot_ns
from arpguard.dataplane.maps import _control_from, _entry_from, _key_from, _split, _term_from, range_key_from
from arpguard.verdict import Hook, Reason
from reference import Situation, respond_egress, respond_ingress
from support.frames.builders import HOUR_NS
from support.programs.agreement import assert_agrees, at_time_of, expected_outcome
from support.programs.compiling import BPF
from support.programs.prog_run import Plane
from support.programs.user_space import CALLED, FOLDER, Arrival, UserPlane, build, flags

SOURCES = [FOLDER / f"{name}.c" for name in ("fuzz", "input", "mutate", "answers", "programs", "kernel")]
SANITIZERS = ["-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all"]
# BPF reads words where they are; kernels that cannot have the verifier see to it.
SANITIZERS += ["-fno-sanitize=alignment"]
VERDICTS = "-DVERDICTS=0," + ",".join(str(int(reason.verdict)) for reason in Reason)
LONGEST_TEST_RUN = 2048
HEAD = 32  # bytes in front of the frame: see input.h
LONGEST = HEAD + 9014
# Maps of which all VIPs are this node's, on an ordinary link; others come by themselves.
OWNED = bytes([4, 0, 0, 0]) + bytes([1, 0, 4, 0, 0, 1]) * 4 + bytes([0, 0]) + bytes([0, 0])
SEEDS = 800
CLOCK_NS = 1 << 60  # of fuzz.c


class GuidedError(AssertionError):
    """libFuzzer found a fault; the text has its last words and the input in hexadecimal."""


def lacking(folder: Path) -> str | None:
    """Why there is no libFuzzer here; None if there is."""
    if shutil.which("clang") is None:
        return "clang is not installed"
    source = folder / "nothing.c"
    source.write_text("int LLVMFuzzerTestOneInput(const void *data, unsigned long size) { return 0; }\n")
    try:
        build(folder / "nothing", [source], SANITIZERS)
    except RuntimeError:
        return "clang's runtime is not installed (Debian: libclang-rt-14-dev, of clang's version)"
    return None


@dataclass(frozen=True)
class Found:
    """An input: maps, and a frame."""

    situation: Situation
    frame: bytes


class Guided:
    """libFuzzer on a source, in `folder`. `short`: a run for which inlining takes longer than it saves."""

    def __init__(self, folder: Path, seed: int, source: Path = BPF, *, short: bool = False) -> None:
        self._folder, self._seed = folder, seed
        self.corpus = folder / "corpus"
        options = ["-g", "-O1", *([CALLED] if short else []), *SANITIZERS, VERDICTS, *flags(source, max_entries=4)]
        self._program = build(folder / "fuzz", SOURCES, options)
        self._write_seeds()

    def _write_seeds(self) -> None:
        rng = random.Random(self._seed)
        self.corpus.mkdir()
        for number, (_, frame) in enumerate(some_seeds(rng, SEEDS, CLOCK_NS)):
            head = rng.randbytes(HEAD) if number % 3 == 0 else OWNED
            (self.corpus / f"seed-{number}").write_bytes(head + frame)

    def run(self, limit: str) -> str:
        """Runs until `limit`, an option of libFuzzer; returns its figures, or raises GuidedError."""
        command = [str(self._program), limit, f"-max_len={LONGEST}", f"-seed={self._seed % 2**32}", "-timeout=20"]
        command += ["-rss_limit_mb=1024", "-print_final_stats=1", f"-artifact_prefix={self._folder}/", str(self.corpus)]
        limits = {"ASAN_OPTIONS": "quarantine_size_mb=8"}
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=limits, check=False)
        if done.returncode != 0:
            raise GuidedError(self._said(done.stderr))
        figures = re.findall(r"stat::(\w+): +(\d+)", done.stderr)
        return ", ".join(f"{name} {number}" for name, number in figures) + "\n"

    def _said(self, text: str) -> str:
        """What was wrong, from the first line that says so, and the input in hexadecimal."""
        lines = text.splitlines()
        first = next((at for at, line in enumerate(lines) if "violated:" in line or "ERROR" in line), 0)
        inputs = [path.read_bytes().hex() for path in self._folder.glob("*-*") if path.is_file()]
        return "\n".join((f"ARPGUARD_SEED={self._seed}", *lines[first : first + 25], *inputs))

    def found(self) -> list[bytes]:
        """The inputs of the corpus."""
        return [path.read_bytes() for path in sorted(self.corpus.iterdir())]


class Reader:
    """input.c, for Python."""

    def __init__(self, user_plane: UserPlane) -> None:
        self._plane = user_plane

    def read(self, data: bytes) -> Found | None:
        """What an input says; None if nothing."""
        arrival = Arrival()
        if not self._plane.library.read_input(data, ctypes.c_size_t(len(data)), ctypes.byref(arrival)):
            return None
        world = self._plane.world
        entries = {}
        for at in range(world.entries):
            entry = _entry_from(_split(bytes(world.values[at]))[1])
            assert entry is not None
            entries[_key_from(bytes(world.keys[at]))] = entry
        control = _control_from(bytes(world.control))
        assert control is not None
        ranges = {}
        for at in range(world.ranges):
            entry = _entry_from(_split(bytes(world.range_values[at]))[1])
            assert entry is not None
            ranges[range_key_from(bytes(world.range_keys[at]))] = entry
        term = _term_from(bytes(world.vouching)) if world.vouching.term else None
        situation = Situation(control, entries, 1, self._plane.now_ns, ranges, term, self._plane.grants)
        return Found(situation, data[HEAD:])


def is_taken(found: Found) -> bool:
    """Whether a test run in the kernel takes the frame, and cannot come to another end because time goes on."""
    least = {b"\x08\0": 34, b"\x86\xdd": 54}.get(found.frame[12:14], 14)
    control, grants = found.situation.control, found.situation.grants
    fences = [(control.fence_ns, control.lease_ns), (grants.fence_ns, grants.window_ns)]
    aheads = [(fence_ns - found.situation.now_ns, furthest_ns) for fence_ns, furthest_ns in fences]
    near = any(abs(ahead - edge) < HOUR_NS // 2 for ahead, furthest_ns in aheads for edge in (0, furthest_ns))
    return least <= len(found.frame) <= LONGEST_TEST_RUN and not near


def replay(data: bytes, reader: Reader, user_plane: UserPlane, plane: Plane | None) -> int:
    """Compares what becomes of the frame in user space, in the kernel, and by the model; in how many places it was."""
    user_plane.now_ns = boot_ns()
    found = reader.read(data)
    if found is None:
        return 0
    entries = {key.vip: entry for key, entry in found.situation.entries.items()}
    ranges = {key.network: entry for key, entry in found.situation.ranges.items()}
    state = {"ranges": ranges, "term": found.situation.term, "grants": found.situation.grants}
    planes = [user_plane, *([plane] if plane is not None and is_taken(found) else [])]
    for hook in Hook:
        respond = respond_egress if hook is Hook.TC_EGRESS else respond_ingress
        response = respond(found.frame, found.situation)
        expected = expected_outcome(response, hook, found.frame)
        for one in planes:
            one.set(entries, found.situation.control, **state)
            user_plane.now_ns = found.situation.now_ns
            outcome = at_time_of(found.situation, response, one.run(hook, found.frame))
            assert_agrees(outcome, one.shown(expected), found.frame, found.situation)
    return len(planes)
