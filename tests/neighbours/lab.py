"""The lab's scenarios and the API's rules on a real control plane, as `ARPGUARD_TEST_KUBECONFIG` names one.

    PYTHONPATH=tests python -m neighbours.lab [--part NAME] [--write docs/neighbours.md]

A control plane runs in a namespace of its own, and there `arpguard lab --kubernetes` and the tests that ask a real
server. Exits 1 when a step is not right or a test fails.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from arpguard_lab.cluster.real import VARIABLE
from arpguard_lab.netns import Netns
from neighbours.controlplane import ControlPlane, missing
from neighbours.pages import replace_table, surroundings
from neighbours.restored import restored
from neighbours.scene import end_by_signals
from support.lab.run import missed

ROOT = Path(__file__).parents[2]
_ADDRESS = "127.0.0.1"
_LIMIT_S = 3600.0
TRIES = 3
# Bars that a machine with much else to do may miss.
OF_TIME = {"gap_in_bounds", "median_in_bounds", "worst_in_bounds", "within_half_a_second"}
# What of a step is in the table, where it has it, besides whether it is right.
_FIGURES = (
    "first_answer_ms",
    "owned_after_s",
    "claims_gone_after_s",
    "longest_silence_ms",
    "silence_ms",
    "requests",
    "lost",
    "overlaps",
)


@dataclass(frozen=True, slots=True)
class Row:
    """One step of a scenario, or one file of tests."""

    part: str
    step: str
    was: str
    is_right: bool

    def __str__(self) -> str:
        return f"| {self.part} | `{self.step}` | {self.was if self.is_right else f'**{self.was}**'} |"


class Place:
    """A namespace with a control plane, in which commands run that ask it."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane = plane
        self.folder = folder

    def run(self, *words: object) -> "subprocess.CompletedProcess[str]":
        """Runs a Python program with the administrator's kubeconfig; its errors go to the terminal."""
        command = [*self.plane.place.prefix(), sys.executable, *map(str, words)]
        environment = {**os.environ, VARIABLE: str(self.plane.admin)}
        return subprocess.run(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False, timeout=_LIMIT_S
        )


def a_scenario(name: str, place: Place) -> Iterator[Row]:
    """A row for each step, as the lab judges it. Run again where only time was lacking, as on a busy machine."""
    for _ in range(TRIES):
        steps = _steps(name, place)
        if not steps or all(step["ok"] or not _is_only_late(step) for step in steps):
            break
    if not steps:
        yield Row(name, "all", "the lab ended without a step", is_right=False)
    for step in steps:
        yield Row(name, step["step"], _told(step), step["ok"])


def _steps(name: str, place: Place) -> list[dict[str, Any]]:
    said = place.run("-m", "arpguard", "lab", "--kubernetes", "--json", "--scenario", name).stdout
    try:
        return json.loads(said)
    except ValueError:
        print(said, file=sys.stderr)
        return []


def _is_only_late(step: dict[str, Any]) -> bool:
    """Whether a step misses bars of time, and nothing else."""
    wrong = missed(step)
    return bool(wrong) and OF_TIME.issuperset(wrong) and step["nodes"] == step["expected"]


def _told(step: dict[str, Any]) -> str:
    who = "as expected" if step["nodes"] == step["expected"] else f"answered by {step['nodes']}"
    figures = [f"{name} {step[name]}" for name in _FIGURES if step.get(name) is not None]
    wrong = [f"{name}: False" for name in missed(step)]
    return ", ".join([who, *figures, *wrong, *([str(step["error"])] if "error" in step else [])])


def a_suite(path: str, place: Place) -> Iterator[Row]:
    """A row for a file of tests."""
    report = place.folder / "report.xml"
    report.unlink(missing_ok=True)
    print(place.run("-m", "pytest", "-q", "--junit-xml", report, path).stdout, file=sys.stderr)
    if not report.exists():
        yield Row(path, "all tests", "none ran", is_right=False)
        return
    suite = ET.parse(report).getroot()[0].attrib
    count = {name: int(suite[name]) for name in ("tests", "failures", "errors", "skipped")}
    failed = count["failures"] + count["errors"]
    passed = count["tests"] - failed - count["skipped"]
    was = ", ".join(
        f"{number} {name}" for name, number in (("failed", failed), ("skipped", count["skipped"])) if number
    )
    yield Row(path, "all tests", f"{passed} passed{f', {was}' if was else ''}", is_right=passed > 0 and not failed)


def a_restore(place: Place) -> Iterator[Row]:
    """A row for each step; etcd and the server end, and start again with a backup."""
    found = place.plane.place.call(lambda: list(restored(place.plane)))
    return (Row("etcd restored from a backup", step, was, is_right) for step, was, is_right in found)


PARTS: dict[str, Callable[[Place], Iterator[Row]]] = {
    **{name: partial(a_scenario, name) for name in ("new-service", "drain", "load", "bad-image", "burst")},
    "restored": a_restore,
    **{
        Path(path).stem: partial(a_suite, path)
        for path in ("tests/kube/test_apiserver.py", "tests/deploy/test_admission.py")
    },
}


def table(rows: list[Row]) -> str:
    head = [surroundings(), "", "| scenario or tests | step | found |", "|---|---|---|"]
    return "\n".join([*head, *map(str, rows), ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--part", action="append", default=[], choices=list(PARTS), help="only these")
    parser.add_argument("--write", type=Path, help="the page whose table a whole run replaces")
    asked = parser.parse_args()
    if (why := missing()) is not None:
        print(f"neighbours: skipped: {why}")
        return 0
    end_by_signals()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="arpguard-neighbours-lab-") as folder:
        place = Netns(f"arpguard-neighbours-lab-{os.getpid()}")
        try:
            with ControlPlane(Path(folder), _ADDRESS, place) as plane:
                for name in asked.part or PARTS:
                    for row in PARTS[name](Place(plane, Path(folder))):
                        print(row, flush=True)
                        rows.append(row)
        finally:
            place.remove()
    if asked.write and not asked.part:
        replace_table(asked.write, "lab", table(rows))
    wrong = [row for row in rows if not row.is_right]
    print(f"neighbours: {len(rows)} rows, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
