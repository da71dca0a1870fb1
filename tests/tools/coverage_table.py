"""Branch coverage by package, from what `coverage json` writes; exits 1 where one has less than it must."""

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath

FLOORS = {"core": 100.0, "wire": 100.0}
OTHERS = 90.0


def package_of(path: str) -> str:
    """agent/arpguard/core/ownership/claims.py is in core; modules beside the packages are taken together."""
    _, top, *inside = PurePath(path).parts
    if top != "arpguard":
        return top
    return inside[0] if len(inside) > 1 else "(modules)"


def by_package(files: Mapping[str, Mapping]) -> dict[str, tuple[int, int]]:
    """What was done of the statements and branches of each package, and how many there are."""
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for path, each in files.items():
        summary, counts = each["summary"], found[package_of(path)]
        counts[0] += summary["covered_lines"] + summary["covered_branches"]
        counts[1] += summary["num_statements"] + summary["num_branches"]
    return {name: (done, total) for name, (done, total) in sorted(found.items())}


def rows(packages: Mapping[str, tuple[int, int]]) -> Iterable[tuple[str, float, float]]:
    """Name, percent, and the percent that it must have."""
    for name, (done, total) in packages.items():
        yield name, 100 * done / total, FLOORS.get(name, OTHERS)


def main(path: Path) -> int:
    files = json.loads(path.read_text())["files"]
    short = False
    for name, percent, floor in rows(by_package(files)):
        short |= percent < floor
        print(f"{name:13}{percent:6.2f} %  of {floor:g} %{'  TOO LITTLE' if percent < floor else ''}")
    return int(short)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
