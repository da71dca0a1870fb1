"""With vouching at most one answers, too, however the steps fall; and when all is well again, exactly one does.

ARPGUARD_RUNS=1000 has more walks than those of every day.
"""

import pytest

from properties.vouched_walks import VouchedWalk
from support.chance import RUNS, SEED
from support.protocol.simulation import BrokenRuleError

STEPS = 60


@pytest.mark.parametrize("run", range(RUNS // 5))
def test_never_two_answer_and_one_does_in_the_end(run):
    walk = VouchedWalk(SEED + run)
    try:
        for _ in range(STEPS):
            walk.step()
        walk.sim.settle()
    except BrokenRuleError as error:
        pytest.fail(f"ARPGUARD_SEED={SEED + run}: {error}")
