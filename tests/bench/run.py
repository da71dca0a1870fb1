"""Measures arpguard on this machine: `python tests/bench/run.py [--quick] [--json] [SECTION ...]`, as root.

Absolute times differ between machines; what counts are ratios to a baseline measured in the same run. A goal that is
missed is said, and is no failure: on a busy machine it means little. Exit code 1: something could not be measured.
"""

import argparse
import signal
import sys
from pathlib import Path
from types import ModuleType

sys.path.append(str(Path(__file__).parents[1]))

import answers
import audit
import busy
import cluster
import deaths
import electing
import flood
import footprint
import frames
import members
import replace
import scale
import serving
import throughput
import vouched
import vouching
from report import Section, to_json

from arpguard.errors import ArpguardError

SECTIONS: dict[str, ModuleType] = {
    "frames": frames,
    "answers": answers,
    "throughput": throughput,
    "agent": footprint,
    "api": serving,
    "cluster": cluster,
    "electing": electing,
    "replace": replace,
    "flood": flood,
    "scale": scale,
    "vouched": vouched,
    "vouching": vouching,
    "deaths": deaths,
    "members": members,
    "audit": audit,
    "busy": busy,
}
LONG = {"busy"}  # takes an hour, and is measured only when it is named


def main() -> int:
    options = _options()
    # So that a kill, too, leaves nothing behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    done: dict[str, Section] = {}
    for name in options.sections or (each for each in SECTIONS if each not in LONG):
        try:
            done[name] = SECTIONS[name].measure(quick=options.quick)
        except (ArpguardError, OSError, RuntimeError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 1
        if not options.json:
            print(done[name].text(), end="\n\n", flush=True)
    if options.json:
        print(to_json(done))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure arpguard on this machine.")
    parser.add_argument(
        "sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}; default: all but {', '.join(LONG)}"
    )
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds; about a minute for all")
    parser.add_argument("--json", action="store_true", help="print JSON, with every sample")
    options = parser.parse_args()
    unknown = set(options.sections) - SECTIONS.keys()
    if unknown:
        parser.error(f"no section {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
