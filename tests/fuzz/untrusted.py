"""Random configurations and objects, judged: `python tests/fuzz/untrusted.py --configs 100000 --objects 100000`.

Case N of a run with seed S is the only case of a run with seed S + N, but for what it finds in a cluster that others
have been in. Exit code 1 when any case failed; at most MAX_BYTES of memory may be asked for.
"""

import argparse
import re
import resource
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzz.config_cases import ConfigFuzzer, ConfigJudge
from fuzz.object_cases import ObjectFuzzer, ObjectJudge
from support.chance import SEED

MAX_BYTES = 1 << 30
MAX_TOLD = 5


def peak_kib() -> int:
    """The most memory that this process had, in KiB (VmHWM, proc_pid_status(5)); ru_maxrss begins with its parent's."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.findall(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)[0])


def run(what: str, count: int, seed: int, make: Callable, judge) -> int:
    """Judges `count` cases; gives how many failed, and tells of the first ones."""
    began_s, failed = time.monotonic(), 0
    for number in range(seed, seed + count):
        case = make(number)
        try:
            judge.judge(case)
        except Exception:  # noqa: BLE001 - that there is none is what is tested
            failed += 1
            if failed <= MAX_TOLD:
                print(f"{what} {number - seed}, seed {number}: {case[:2000]!r}\n{traceback.format_exc(limit=-6)}")
    took_s = time.monotonic() - began_s
    ends = ", ".join(f"{end} {times}" for end, times in sorted(judge.ends.items()))
    peak = peak_kib() >> 10
    print(f"{what}s={count} failed={failed} seconds={took_s:.0f} peak_mb={peak} seed={seed} ({ends})", flush=True)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configs", type=int, default=0)
    parser.add_argument("--objects", type=int, default=0)
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
    failed = run(
        "config", options.configs, options.seed, lambda n: ConfigFuzzer(n).text_of_config(), ConfigJudge()
    ) + run("object", options.objects, options.seed, lambda n: ObjectFuzzer(n).json_of_object(), ObjectJudge())
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
