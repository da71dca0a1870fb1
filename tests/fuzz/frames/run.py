"""`make fuzz`: libFuzzer on the programs in user space, and mutated frames through those in the kernel.

`--for`: seconds of libFuzzer; `--frames`: how many go through the kernel. ARPGUARD_SEED repeats a run.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "agent"), str(ROOT / "tests"), str(Path(__file__).parent)]

from flood import Flood  # noqa: E402
from guided import Guided, Reader, lacking, replay  # noqa: E402

from arpguard.dataplane.build import read_build  # noqa: E402
from support.chance import SEED  # noqa: E402
from support.programs.compiling import BPF  # noqa: E402
from support.programs.prog_run import Plane, a_plane  # noqa: E402
from support.programs.user_space import UserPlane  # noqa: E402

SAMPLES = 20_000


def fuzz(folder: Path, plane: Plane, seconds: int) -> None:
    """Coverage-guided; whatever libFuzzer kept goes to the model and the kernel, too."""
    reason = lacking(folder)
    if reason is not None:
        raise SystemExit(f"no libFuzzer: {reason}")
    guided = Guided(folder, SEED)
    print(guided.run(f"-max_total_time={seconds}"), end="", flush=True)
    user_plane = UserPlane(folder, BPF)
    reader = Reader(user_plane)
    compared = [replay(data, reader, user_plane, plane) for data in guided.found()]
    print(f"{len(compared)} inputs kept, {sum(compared)} comparisons with the model", flush=True)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--for", dest="seconds", type=int, default=600)
    parser.add_argument("--frames", type=int, default=10_000_000)
    given = parser.parse_args(arguments)
    print(f"ARPGUARD_SEED={SEED}")
    with a_plane("fuzz", read_build()) as plane, tempfile.TemporaryDirectory(prefix="arpguard-fuzz-") as name:
        fuzz(Path(name), plane, given.seconds)
        began = time.monotonic()
        print(Flood(Path(name), plane, SEED).run(given.frames, SAMPLES), end="")
        print(f"{given.frames:,} frames through the kernel in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
