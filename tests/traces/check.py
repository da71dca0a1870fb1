"""Judges traces by the rules of the protocol: `PYTHONPATH=tests python -m traces.check FOLDER`.

FOLDER is what `arpguard lab --kubernetes --traces FOLDER` wrote: a folder for each scenario, with the traces of the
agents and the API server's journal. Prints each rule that is broken, with the node, the VIP and the lines. Exit code 1
if one is, 2 if there is nothing to judge.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from support.protocol.trace_files import JOURNAL, Json, of_folder
from support.protocol.trace_rules import BrokenLine, Checker

SHOWN = 10  # broken lines of each folder, in full


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args(words).folder
    found = sorted(path.parent for path in folder.rglob(JOURNAL))
    judged = [judge(each) for each in found]
    if not any(lines for lines, _ in judged):
        print(f"{folder}: no traces, or no journal of the API server")
        return 2
    return 1 if any(broken for _, broken in judged) else 0


def judge(folder: Path) -> tuple[int, int]:
    """How many lines of agents there were, and how many broke a rule."""
    checker, rules, agents, lines = Checker(), Counter[str](), set(), 0
    for line in of_folder(folder):
        agents |= {line["instance"]} if "instance" in line else set()
        lines += "instance" in line
        for broken in checker.take(line):
            rules[broken.rule] += 1
            if rules.total() <= SHOWN:
                print(*_told(broken, checker.shown(broken)), sep="\n", flush=True)

    verdict = "no rule broken" if not rules else "; ".join(f"{rule}: {count}" for rule, count in rules.items())
    print(
        f"{folder}: {lines} lines of {len(agents)} agents, {checker.number - lines} writes of the API server: {verdict}"
    )
    return lines, rules.total()


def _told(broken: BrokenLine, lines: Sequence[Json]) -> Iterator[str]:
    yield str(broken)
    yield from (f"  {line.get('where')}: {json.dumps({**line, 'where': ''})}" for line in lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
