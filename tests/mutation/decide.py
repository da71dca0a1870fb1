"""Mutation testing of bpf/decide.h, or another header: each small change must be noticed by the tests of the programs.

What judges a mutant is `first_difference` of tests/support/programs/judging.py: random frames against the model,
fences to the nanosecond, what frames cost, and every cell of the verdict table; all of these are tests of their own in
tests/bpf.
`decide.py [HEADER]` prints the score, and what survived; exit code 1 below `--least` percent. `--every N`: only each
Nth. `make mutate` runs it for decide.h and vouch.h.
"""

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "agent"), str(ROOT / "tests")]

from mutation.cmutants import Mutant, mutants_of  # noqa: E402
from support.programs.compiling import BPF  # noqa: E402
from support.programs.judging import Bench, first_quick_difference, judged  # noqa: E402
from support.programs.user_space import FOLDER, build, flags  # noqa: E402

LEAST = 97

# (what is changed, the line) -> why no test can tell. What compiles to the same code is found out, and not listed.
EQUIVALENT = {
    (
        "'(__u32)(' -> '('",
        "return addr[3] && __builtin_bswap32(addr[3]) - (__u32)vips4 <= (__u32)(vips4 >> 32);",
    ): "what is left of 64 bits shifted by 32 has 32",
}

NOT_COMPILED, KILLED, SAME, EXCUSED, SURVIVED = "not compiled", "killed", "same code", "equivalent", "survived"


def text_of(name: str) -> str:
    return (BPF / name).read_text()


def line_of(name: str, mutant: Mutant) -> str:
    """The line that a mutant changes, as it was."""
    return text_of(name).splitlines()[mutant.line - 1].strip()


class Judge:
    """Builds mutants of one file in `folder`, and has them judged."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._bench = Bench(folder)

    def verdict(self, mutant: Mutant) -> str:
        try:
            with self._bench.plane(self._name, mutant.text) as plane:
                if judged(plane, first_quick_difference) is not None:
                    return KILLED
                if self._optimized(self._bench.source) == self._code:
                    return SAME
                if judged(plane) is not None:
                    return KILLED
        except RuntimeError:
            return NOT_COMPILED
        return EXCUSED if (mutant.what, line_of(self._name, mutant)) in EQUIVALENT else SURVIVED

    @cached_property
    def _code(self) -> bytes:
        return self._optimized(BPF)

    def _optimized(self, source: Path) -> bytes:
        """The code that the compiler makes of it: mutants of which it makes the same are no faults."""
        options = ["-O2", "-c", "-fPIC", *flags(source)]
        return build(self._folder / "optimized.o", [FOLDER / "programs.c"], options).read_bytes()


def score(verdicts: Counter[str]) -> float:
    """Percent of the mutants that can be told from the program."""
    told = verdicts[KILLED] + verdicts[SURVIVED]
    return 100 * verdicts[KILLED] / told if told else 100.0


def judge_all(name: str, mutants: Iterable[Mutant]) -> tuple[Counter[str], list[Mutant]]:
    """How many came to what, and those that survived."""
    verdicts: Counter[str] = Counter()
    survived = []
    with tempfile.TemporaryDirectory(prefix="arpguard-mutation-") as folder:
        judge = Judge(Path(folder), name)
        for mutant in mutants:
            verdict = judge.verdict(mutant)
            verdicts[verdict] += 1
            if verdict == SURVIVED:
                survived.append(mutant)
                print(f"{name}:{mutant.line}: {mutant.what} survived: {line_of(name, mutant)}", flush=True)
    return verdicts, survived


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--least", type=float, default=LEAST)
    parser.add_argument("name", nargs="?", default="decide.h")
    given = parser.parse_args(arguments)
    verdicts, _ = judge_all(given.name, list(mutants_of(text_of(given.name)))[:: given.every])
    print(f"{given.name}: " + ", ".join(f"{number} {verdict}" for verdict, number in sorted(verdicts.items())))
    print(f"{score(verdicts):.1f} % killed of those that can be told")
    return 0 if score(verdicts) >= given.least else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
