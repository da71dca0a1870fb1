"""At most one answers, however the steps fall; and when all is well again, exactly one does."""

import pytest

from properties.walks import RandomWalk, TroubledWalk
from support.chance import RUNS, SEED
from support.protocol.simulation import BrokenRuleError

STEPS = 3000
RATES = (1.0, 1.18, 0.82)  # of the nodes' clocks: nearly what the margin allows for


@pytest.mark.parametrize("walk", [RandomWalk, TroubledWalk])
@pytest.mark.parametrize("run", range(RUNS // 2))
def test_never_two_answer_and_one_does_in_the_end(run, walk):
    walk = walk(SEED + run, RATES)
    try:
        for _ in range(STEPS):
            walk.step()
        walk.sim.settle()
    except BrokenRuleError as error:
        pytest.fail(f"ARPGUARD_SEED={SEED + run}: {error}")
