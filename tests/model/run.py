"""Checks the claim protocol with Spin: every rule kept, and every rule broken in turn.

`make model` runs all; `run.py NAME ...` some; `run.py --quick` those that the tests run; `run.py --trace NAME` prints
how two come to answer (processes 2 to 4 are the first node). Every search is exhaustive and breadth first: a trace is
a shortest one, and "safe" means that there is no trace at all, within the bounds that the flags say.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

MODEL = Path(__file__).with_name("claim.pml")
MEMORY_MB = 5500
COMPILE = (
    "gcc",
    "-w",
    "-O1",
    "-DSAFETY",
    "-DBFS",
    "-DNOREDUCE",
    "-DCOLLAPSE",
    "-DVECTORSZ=2048",
    f"-DMEMLIM={MEMORY_MB}",
)
UNFINISHED = ("Search not completed", "max search depth too small")
ALL_FAULTS = ("RESTART=3", "STRAY=3", "STRAY_CLAIM=3", "HANDOVER=3")


class ModelError(Exception):
    """Spin or the compiler failed, or the search was not finished."""


@dataclass(frozen=True)
class Case:
    """`steps`: of the shortest trace that breaks the assertion; None: there is none."""

    name: str
    what: str
    flags: tuple[str, ...]
    steps: int | None
    quick: bool = False


@dataclass(frozen=True)
class Result:
    steps: int | None
    states: int
    seconds: float
    trace: tuple[str, ...] = ()


SAFE = [
    Case("plain", "slow and lost answers, late watches, pauses, restarts", ("RESTART=3",), None, quick=True),
    Case("stray", "stray writes of both nodes, and hand-over, besides", ALL_FAULTS, None),
    Case("anew", "new epochs without need, besides all that", (*ALL_FAULTS, "ANEW=3"), None),
    Case("deleted", "claims deleted, let go, created again; hand-over", ("RESTART=3", "HANDOVER=3", "DELETE"), None),
    Case(
        "deleted-stray",
        "deleted claims; stray claim writes of one node",
        ("RESTART=1", "DELETE", "STRAY_CLAIM=1"),
        None,
    ),
    Case("parted", "parting leases of one and a half lengths", ("RESTART=3", "P=3"), None),
    Case(
        "parted-stray", "one node parts; stray renewals", ("RESTART=3", "P=3", "PARTS=1", "STRAY=3", "HANDOVER=1"), None
    ),
    Case("clock", "clocks stand still for as long as the margin", ("RESTART=3", "D=3", "M=1", "SKIP=1"), None),
    Case("lost", "heartbeats are deleted, again and again", ("RESTART=3", "LOSE=3"), None),
    Case(
        "lost-parted", "the heartbeat of a node that parts is deleted", ("RESTART=3", "LOSE=1", "P=3", "PARTS=1"), None
    ),
    Case("lost-stuck", "a heartbeat is deleted while requests to create it are stuck", ("LOSE=1", "STRAY=3"), None),
    Case(
        "create-at-once",
        "a missing heartbeat is created at once: what that wait is not for, unless nodes part",
        ("LOSE=1", "CREATE_AT_ONCE"),
        None,
    ),
    Case(
        "uninstall",
        "claims are taken away by force once no node has anything of them",
        ("RESTART=3", "HANDOVER=3", "DELETE", "UNINSTALL"),
        None,
    ),
    Case("uninstall-stray", "the same, with stray claim writes", ("STRAY_CLAIM=1", "DELETE", "UNINSTALL"), None),
    Case("no-confirm", "an entry without a renewal after the claim: what CONFIRM is not for", ("NO_CONFIRM",), None),
]
BROKEN = [
    Case("no-epoch", "a claim is taken because its holder was revoked", ("NO_EPOCH",), 15, quick=True),
    Case("late-fence", "the fence counts from the answer", ("LATE_FENCE",), 14, quick=True),
    Case("early", "revocation one tick early", ("EARLY",), 13, quick=True),
    Case(
        "bad-release",
        "the claim is released first, then the kernel cleared",
        ("BAD_RELEASE", "HANDOVER=1"),
        12,
        quick=True,
    ),
    Case("bad-letgo", "the finalizer is taken off first, then the kernel cleared", ("BAD_LETGO", "DELETE"), 13),
    Case("no-cas", "answers because a read names it", ("NO_CAS", "HANDOVER=1", "STRAY_CLAIM=1"), 14),
    Case("ask-early", "claims with an epoch that no renewal has confirmed", ("ASK_EARLY",), 17),
    Case("keep-old", "a restart keeps entries of an old epoch", ("KEEP_OLD", "RESTART=1", "STRAY=1"), 18),
    Case("keep-revoked", "entries are kept though the renewal came too late", ("KEEP_REVOKED",), 17),
    Case("no-clamp", "a shorter lease is published before the kernel has it", ("NO_CLAMP", "P=3"), 16),
    Case(
        "flat-margin", "a parting lease with the margin of an ordinary one", ("FLAT_MARGIN", "P=4", "M=1", "SKIP=1"), 16
    ),
    Case("thin-margin", "a clock stands still for longer than the margin", ("D=3", "M=1", "SKIP=2"), 15),
    Case("take-missing", "claims are void when the heartbeat is missing", ("TAKE_MISSING", "LOSE=1"), 11),
    Case(
        "create-soon",
        "a missing heartbeat is created after the own lease, not the longest",
        ("CREATE_SOON", "LOSE=1", "P=5", "PARTS=1"),
        17,
    ),
    Case(
        "no-settle", "a heartbeat that was made anew makes claims void at once", ("NO_SETTLE", "LOSE=1", "STRAY=2"), 20
    ),
    Case("forced", "claims are taken away by force while a node has them", ("FORCED", "DELETE", "UNINSTALL"), 11),
]
HOLES = [
    Case(
        "lost-parted-stuck",
        "the heartbeat of a parted node is deleted while a request to create it is stuck",
        ("LOSE=1", "P=3", "PARTS=1", "STRAY=2"),
        23,
    ),
]
CURES = [
    Case(
        "cure",
        "a heartbeat that was made anew voids after the longest lease",
        (*HOLES[0].flags, "SETTLE_LONGEST"),
        None,
    ),
]
REACHED = [
    Case("moves", "a VIP moves", ("SEEK_MOVE",), 14),
    Case("returns", "a revoked node answers again", ("SEEK_RETURN",), 12),
    Case("keeps", "a restarted agent renews what its kernel kept", ("SEEK_KEPT", "RESTART=1"), 9),
    Case("parts", "a parting lease lasts longer", ("SEEK_PARTED", "P=4"), 5),
    Case("creates", "a claim that was let go is created again", ("SEEK_CREATED", "DELETE"), 11),
]
CASES = SAFE + BROKEN + HOLES + CURES + REACHED


def search(case: Case, *, depth: int = 0) -> Result:
    """`depth`: how far to search, 0 to the end. Raises ModelError when that was not reached."""
    with tempfile.TemporaryDirectory(prefix="arpguard-model-") as folder:
        flags = [f"-D{flag}" for flag in case.flags]
        _call(["spin", "-a", *flags, str(MODEL)], folder)
        _call([*COMPILE, "-o", "pan", "pan.c"], folder)
        began = time.monotonic()
        out = _call(["./pan", "-n", *([f"-m{depth}"] if depth else [])], folder)
        seconds = time.monotonic() - began
        states = re.search(r"(\d+) states, stored", out)
        trail = Path(folder, "claim.pml.trail")
        if states is None or (not trail.exists() and any(sign in out for sign in UNFINISHED)):
            raise ModelError(f"{case.name}: the search was not finished\n{out}")
        if not trail.exists():
            return Result(None, int(states[1]), seconds)
        lines = _call(["spin", "-k", str(trail), "-t", "-p", *flags, str(MODEL)], folder)
        trace = tuple(_steps(lines))
        return Result(len(trace), int(states[1]), seconds, trace)


def _call(command: Sequence[str], folder: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0 and not done.stdout:
        raise ModelError(f"{command[0]}: {done.stderr}")
    return done.stdout


def _steps(lines: str) -> Iterator[str]:
    """One line for each step after the start: which process does what."""
    source = MODEL.read_text().splitlines()
    last = ""
    for step, number, name, line in re.findall(
        r"^\s*(\d+):\s+proc +(\d+) \(([A-Z]\w*):\d+\) \S+:(\d+) ", lines, re.MULTILINE
    ):
        if step != last:
            last = step
            yield f"{number:>4} {name:10} {source[int(line) - 1].strip()}"


def wrong(case: Case, result: Result) -> str:
    """What is not as expected; empty if all is."""
    if result.steps == case.steps:
        return ""
    return f"{case.name}: {_told(result.steps)}, expected {_told(case.steps)}"


def _told(steps: int | None) -> str:
    return "safe" if steps is None else f"{steps} steps"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--trace", action="store_true", help="print the steps")
    parser.add_argument("names", nargs="*")
    given = parser.parse_args(arguments)
    chosen = [case for case in CASES if case.name in given.names] if given.names else CASES
    if given.quick:
        chosen = [case for case in chosen if case.quick]
    failures = []
    for case in chosen:
        result = search(case)
        figures = f"{result.states:>10,} states {result.seconds:7.1f} s"
        print(f"{case.name:17} {_told(result.steps):9} {figures}  {' '.join(case.flags)}", flush=True)
        if given.trace:
            print("\n".join(result.trace))
        failures += [wrong(case, result)] if wrong(case, result) else []
    print("\n".join(failures) or "all as expected")
    return 1 if failures or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
