"""Breaks `core/ownership` in every small way that mutmut knows, and counts what its tests notice.

`make mutate` runs all, in 15 minutes of a core, and fails below 90 %. `ownership.py '*mutmut_7'`: only the mutants of
such names. It works on a copy of what it needs, in a folder of its own; nothing in the tree is touched.
Properties, constants and defaults are not mutated (mutmut replaces functions while a process runs): rules that stand in
those are broken in `properties/broken_rules`; but every row of the table of transitions is, here: it leads to another
stage.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LEAST = 90.0  # per cent
TESTS = (
    "tests/unit/core/test_ownership.py",
    "tests/unit/core/test_ownership_parts.py",
    "tests/unit/core/test_ownership_vouched.py",
    "tests/properties/test_ownership_scenarios.py",
)
NEEDED = tuple(f"tests/support/protocol/{name}.py" for name in ("one_node", "simulation", "stories"))
NOTICED = ("killed", "timeout")
MUTMUT = f"""\
[mutmut]
source_paths = src
only_mutate = src/arpguard/core/ownership/{{}}
pytest_add_cli_args_test_selection =
{"".join(f"    {test}" + chr(10) for test in TESTS)}
timeout_multiplier = 5
use_git_change_detection = false
track_dependencies = false
"""
TABLE = "arpguard/core/ownership/stages.py"
ROW = re.compile(r"^    \((\w+), Cause\.(\w+)\): (\w+),$", flags=re.MULTILINE)
PYTEST = """\
[pytest]
addopts = --import-mode=importlib -p no:cacheprovider
pythonpath = tests
filterwarnings = error
"""


class MutationError(Exception):
    """mutmut failed; or the tests do, on what is not mutated; or no mutant has such a name."""


@dataclass(frozen=True)
class Result:
    """`survived`: names, which `show` knows."""

    mutants: int
    survived: tuple[str, ...]

    @property
    def percent(self) -> float:
        """Of the mutants, how many were noticed."""
        return 100 * (self.mutants - len(self.survived)) / self.mutants


def prepare(folder: Path, only: str = "*") -> None:
    """Puts a copy of what mutmut needs there. `only`: the modules that it is to mutate, as a glob."""
    shutil.copytree(ROOT / "agent/arpguard", folder / "src/arpguard", ignore=shutil.ignore_patterns("__pycache__"))
    for name in (*TESTS, *NEEDED):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / "setup.cfg").write_text(MUTMUT.format(only), encoding="utf-8")
    (folder / "pytest.ini").write_text(PYTEST, encoding="utf-8")


def mutmut(folder: Path, *args: str) -> str:
    """What it printed. Raises MutationError."""
    command = [sys.executable, "-m", "mutmut", *args]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise MutationError(f"{' '.join(args)}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def run(folder: Path, names: Sequence[str]) -> Result:
    """Tests every mutant of these names (as globs), or all. Raises MutationError."""
    mutmut(folder, "run", "--max-children", "1", *names)
    lines = mutmut(folder, "results", "--all", "true").splitlines()
    found = dict(line.strip().rsplit(": ", 1) for line in lines if line.strip())
    tested = {name: status for name, status in found.items() if status != "not checked"}
    return Result(len(tested), tuple(name for name, status in tested.items() if status not in NOTICED))


def run_table(folder: Path, every: int = 1) -> Result:
    """Tests every row of the table of transitions (or one of so many) with another stage. Raises MutationError."""
    table = folder / "src" / TABLE
    source = table.read_text(encoding="utf-8")
    rows = list(ROW.finditer(source))[::every]
    if not rows or not _passes(folder):
        raise MutationError(f"{TABLE}: no rows, or the tests fail without a mutant")

    survived = []
    for row in rows:
        other = "Draining" if row[3] == "Idle" else "Idle"
        stage = f"lambda *holds: {other}()"
        table.write_text(source[: row.start(3)] + stage + source[row.end(3) :], encoding="utf-8")
        if _passes(folder):
            survived.append(f"TRANSITIONS[{row[1]}, {row[2]}] = {other}")
    table.write_text(source, encoding="utf-8")
    return Result(len(rows), tuple(survived))


def _passes(folder: Path) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-x", *TESTS]
    path = {**os.environ, "PYTHONPATH": str(folder / "src")}
    return subprocess.run(command, cwd=folder, env=path, capture_output=True, check=False).returncode == 0


def show(folder: Path, name: str) -> str:
    """The lines that the mutant changes."""
    lines = mutmut(folder, "show", name).splitlines()
    changed = [line for line in lines if line[:1] in ("+", "-") and not line.startswith(("+++", "---"))]
    return "\n".join([name, *changed])


def main() -> int:
    """0 when enough was noticed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these mutants; a glob")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="arpguard-mutation-") as name:
        folder = Path(name)
        prepare(folder)
        result = run(folder, args.names)
        for survivor in result.survived:
            print(show(folder, survivor))
        if not args.names:
            table = run_table(folder)
            print(*table.survived, sep="\n")
            result = Result(result.mutants + table.mutants, result.survived + table.survived)
        killed = result.mutants - len(result.survived)
        print(f"mutants {result.mutants}, killed {killed}, survived {len(result.survived)}: {result.percent:.1f} %")
    return 0 if result.percent >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
