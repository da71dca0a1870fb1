"""Tests of this repository, run on a kernel of the distribution: which, and what came of them."""

import os
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from arpguard_lab.netns import Netns
from kernels.machine import PROCESSORS, Cable, Machine
from kernels.packages import Kernel

_TESTS = Path(__file__).parents[1]
_GUEST_S = 4 * 3600.0
# An emulated processor needs about ten times as long, and here and there others want the real one.
_SLOWNESS = 20
_PYTEST = "-q -p no:cacheprovider -o junit_family=xunit1 -o timeout=3000 -o faulthandler_timeout=0"
# Of the table, only tc, which older kernels differ in, and only the node's own mode.
_SHORT = ("-k", "'not observe and not XDP and not entry_enforces'")
_NEEDED = ("ipvsadm", "ethtool", "tc", "teamd")
# A second one would be emulated in the same thread, where each waits for the other.
_SHORT_PROCESSORS = 1
QUEUES = 4


@dataclass(frozen=True)
class Suite:
    """Files of tests that stand for one row; `short`: part of the short run, too; `arm64`: run there, too, where there
    is little but Python."""

    name: str
    files: tuple[str, ...]
    short: bool = False
    arm64: bool = False


_WIRE = (
    *("netns/test_conformance_wire.py", "netns/test_ndp_wire.py", "netns/test_conformance_lifetime.py"),
    "netns/test_explain_wire.py",
)
SUITES = (
    Suite("programs pass the verifier", ("bpf/test_verified.py",), short=True, arm64=True),
    Suite("loading, pins, replacing", ("bpf/test_loader.py",), arm64=True),
    Suite("table of verdicts, both families", ("bpf/test_verdict_table.py",), short=True, arm64=True),
    Suite("conformance of the programs, ARP", ("bpf/test_conformance_arp.py",)),
    Suite("conformance of the programs, ND", ("bpf/test_conformance_ndp.py",)),
    Suite("closed ranges, fences", ("bpf/test_closed.py", "bpf/test_fence.py")),
    Suite("clsact filters", ("netns/test_clsact.py",)),
    Suite("attaching, repairing", ("netns/test_links.py", "netns/test_link_life.py")),
    Suite("conformance on the wire, both families", _WIRE),
    Suite("doctor", ("netns/test_doctor.py",)),
    Suite("IPVS on three nodes, guarded", ("netns/test_ipvs.py",), short=True),
    Suite("VLAN, bonds, VRF", ("netns/test_devices.py",)),
    Suite("loss, delay, duplication, reordering", ("netns/test_impaired.py",)),
    Suite("lab: flux, lvs-dr", ("kernels/on_lab.py",), arm64=True),
    Suite("team, Open vSwitch", ("kernels/on_daemons.py",)),
    Suite("native XDP on virtio_net", ("kernels/on_nics.py",)),
)


@dataclass(frozen=True)
class Outcome:
    """What came of a suite: of how many tests each; a figure that one of them told; what was said of the failed."""

    passed: int
    skipped: int
    failed: tuple[str, ...]
    figure: str = ""

    @property
    def holds(self) -> bool:
        """Whether something ran, and nothing failed."""
        return bool(self.passed) and not self.failed

    def __str__(self) -> str:
        if self.failed:
            return f"**{len(self.failed)} failed**"
        words = [f"{self.passed} passed", *([f"{self.skipped} not applicable"] if self.skipped else [])]
        return "; ".join([*words, *([self.figure] if self.figure else [])])


@dataclass(frozen=True)
class Run:
    """What came of the suites on one kernel, and how long it took, in seconds."""

    release: str
    took_s: float
    outcomes: dict[str, Outcome]

    @property
    def holds(self) -> bool:
        """Whether every suite does."""
        return all(each.holds for each in self.outcomes.values())


def missing() -> str | None:
    """Why the suites cannot run; None where they can."""
    lacking = [name for name in _NEEDED if shutil.which(name) is None]
    return f"{', '.join(lacking)} missing" if lacking else None


def suites_of(kernel: Kernel, *, short: bool) -> list[Suite]:
    """What runs on a kernel; all that is short as one suite, because pytest needs half a minute there to start."""
    found = [each for each in SUITES if (each.short or not short) and (each.arm64 or not kernel.is_foreign)]
    if not short:
        return found
    return [Suite("; ".join(each.name for each in found), tuple(file for each in found for file in each.files))]


@contextmanager
def _nics() -> Iterator[list[Cable]]:
    """Two NICs for a guest, which are on one network; the first has several queues."""
    place = Netns(f"arpguard-nics-{os.getpid()}")
    cables = [Cable(place, "nic0", QUEUES), Cable(place, "nic1")]
    try:
        place.batch([
            "link add br0 type bridge forward_delay 0 mcast_snooping 0",
            "tuntap add nic0 mode tap multi_queue", "tuntap add nic1 mode tap",
            "link set nic0 master br0", "link set nic1 master br0",
            *(f"link set {name} up" for name in ("br0", "nic0", "nic1")),
        ])  # fmt: skip
        yield cables
    finally:
        place.remove()


Told: TypeAlias = Callable[[str, Outcome], None]


def run(
    kernel: Kernel, folder: Path, suites: Sequence[Suite], openvswitch: Path | None, told: Told, *, short: bool
) -> dict[str, Outcome]:
    """One boot, in which each suite has a process and a report of its own.

    `openvswitch`: where that is unpacked, if a suite needs it. `told` gets what came of each suite as soon as that is
    over.
    """
    shared = folder / "suites"
    shared.mkdir(parents=True)
    reports = {suite: shared / f"{number:02}.xml" for number, suite in enumerate(suites, 1)}
    script = shared / "suites.sh"
    script.write_text("".join(_commands(kernel, *each, short=short) for each in reports.items()), encoding="utf-8")
    environment = {
        "PYTHONPATH": os.pathsep.join(map(str, (_TESTS, *kernel.path))),
        "PYTHONDONTWRITEBYTECODE": "1",
        "ARPGUARD_SLOWNESS": str(_SLOWNESS),
        "ARPGUARD_OPENVSWITCH": str(openvswitch or ""),
    }

    found: dict[str, Outcome] = {}

    def look() -> None:
        for suite, report in reports.items():
            if suite.name not in found and report.exists():
                found[suite.name] = outcome_of(report.read_text(encoding="utf-8"))
                told(suite.name, found[suite.name])

    gone = ""
    with _nics() if not kernel.is_foreign else nullcontext([]) as nics:
        try:
            Machine(kernel, shared, nics, _SHORT_PROCESSORS if short else PROCESSORS).run(
                ["sh", script], environment, _GUEST_S, look
            )
        except RuntimeError as error:
            gone = str(error)
    look()
    for suite, report in reports.items():
        if suite.name not in found:
            log = report.with_suffix(".log")
            found[suite.name] = Outcome(0, 0, (f"did not run to its end: {gone or _last_line(log)}",))
            told(suite.name, found[suite.name])
    return found


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.exists() else []
    return next((line for line in reversed(lines) if line.strip()), "it said nothing")


def _commands(kernel: Kernel, suite: Suite, report: Path, *, short: bool) -> str:
    """Lines of a shell. A report has its name once it is whole."""
    draft, log = report.with_suffix(".new"), report.with_suffix(".log")
    files = [_TESTS / file for file in suite.files]
    words = [kernel.python, "-m", "pytest", _PYTEST, f"--junitxml={draft}", *(_SHORT if short else ()), *files]
    return f"{' '.join(map(str, words))} >{log} 2>&1\n[ ! -e {draft} ] || mv {draft} {report}\n"


def outcome_of(report: str) -> Outcome:
    """What a report of pytest's (JUnit's XML) says."""
    cases = ET.fromstring(report).findall(".//testcase")
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = sum(case.find("skipped") is not None for case in cases)
    figures = [each.get("value", "") for case in cases for each in case.findall(".//property[@name='figure']")]
    names = tuple(f"{case.get('name')}: {_reason(case)}" for case in failed)
    return Outcome(len(cases) - skipped - len(failed), skipped, names, "; ".join(figures))


def _reason(case: ET.Element) -> str:
    found = next(each for each in (case.find("failure"), case.find("error")) if each is not None)
    return (found.get("message") or "").partition("\n")[0]


def table(runs: Sequence[Run]) -> str:
    """The runs as Markdown."""
    lines = [
        f"| what ran |{'|'.join(f' Linux {each.release} ' for each in runs)}|",
        "|---|" + "---|" * len(runs),
        *(f"| {name} |{'|'.join(_cell(each, name) for each in runs)}|" for name in runs[0].outcomes),
        f"| duration of the run | {' | '.join(f'{each.took_s / 60:.0f} min' for each in runs)} |",
    ]
    return "\n".join([*lines, ""])


def _cell(run: Run, name: str) -> str:
    return f" {run.outcomes[name]} " if name in run.outcomes else " "
