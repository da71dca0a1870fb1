"""How many cases tests try that leave them to chance, and from which seed; both are named in the environment.

`make test-long` tries a few, of another seed in each run; `make fuzz` sets ARPGUARD_RUNS=500. A failure prints the
seed, and ARPGUARD_SEED repeats it.
"""

import os
import random

RUNS = int(os.environ.get("ARPGUARD_RUNS", "20"))
SEED = int(os.environ.get("ARPGUARD_SEED") or random.SystemRandom().getrandbits(32))
