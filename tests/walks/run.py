"""Lives of simulated clusters, one after the other, until they have had so many days together.

    PYTHONPATH=tests python -m walks.run [--days DAYS] [--seed SEED] [--jobs JOBS] [--shrink TRIES]

Each cluster lives for LIFE days, by a seed of its own: SEED, SEED + 1, and so on. Exit code 1 when a rule was broken or
nobody answered: then it prints the seed of that life, and the shortest list of steps that it finds.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from multiprocessing import Pool
from random import SystemRandom

from walks.days import HOUR, HOURS, Played, live, shortened

LIFE = 5  # days
TELL_EVERY_S = 60
SHOWN = 60  # lines of what was found


def main(words: Sequence[str]) -> int:
    options = _parser().parse_args(words)
    seed = SystemRandom().getrandbits(32) if options.seed is None else options.seed
    print(f"{options.days} days, seed {seed}", flush=True)
    began, told, days, played = time.monotonic(), 0.0, 0.0, []
    life = min(LIFE, options.days)

    with Pool(options.jobs) as pool:
        seeds = [seed + number for number in range(-(-options.days // life))]
        for each, one in pool.imap_unordered(partial(_live, days=life), seeds):
            days += one.calendar / HOUR / HOURS
            played.append(one)
            if one.error:
                pool.terminate()
                for line in _found(each, one, life, options.shrink):
                    print(line, flush=True)
                return 1
            if time.monotonic() - told >= TELL_EVERY_S:
                told = time.monotonic()
                print(f"{days:.0f} days, {(told - began) / 60:.1f} min", flush=True)

    faults, simulated = sum(each.faults for each in played), sum(each.simulated for each in played)
    minutes = (time.monotonic() - began) / 60
    print(
        f"{days:.0f} days in {minutes:.1f} min: {faults} faults and restarts, {simulated / HOUR:.1f} h step by step, "
        f"the rest at rest; at most one answered, and one in the end of each hour"
    )
    return 0


def _live(seed: int, days: int) -> tuple[int, Played]:
    return seed, live(seed, days)


def _found(seed: int, played: Played, days: int, tries: int) -> Iterator[str]:
    yield f"after {len(played.steps)} steps of the life of seed {seed}: {played.error.splitlines()[0]}"
    yield f"the same again: make walks SEED={seed} DAYS={days}; looking for fewer steps"
    short = shortened(played, tries)
    yield f"{len(short.steps)} steps are enough. {short.start}"
    yield from (f"  {step}" for step in short.steps)
    said = short.error.splitlines()
    yield from [said[0], *said[1:][-SHOWN:]]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("--days", type=int, default=1000)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--shrink", type=int, default=500, metavar="TRIES")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
