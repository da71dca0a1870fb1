"""How long the agent may take, and waiting for it on a machine that others use."""

import os
import time
from collections.abc import Callable

from arpguard_lab.patience import Patience
from arpguard_lab.topology import READY_S

# How many times longer all of it takes on the machine at hand: an emulated one, say.
SLOWNESS = float(os.environ.get("ARPGUARD_SLOWNESS", "1"))
START_S = READY_S * SLOWNESS  # until an agent is ready
REPAIR_S = 1.0  # how long the agent may take to follow a change
ANSWER_S = 10.0  # how long an answer may take on a loaded machine
HUNG_S = 400.0  # whatever takes longer has hung, even on a busy machine


def until(condition: Callable[[], object], timeout_s: float = ANSWER_S, what: str | Callable[[], object] = "") -> float:
    """Waits until the condition holds, and says how many seconds that took; fails when patience is over.

    `what` it waits for, or what says then what there is instead.
    """
    timeout_s *= SLOWNESS
    began, patience = time.monotonic(), Patience(timeout_s)
    while not condition():
        waited_for = what or getattr(condition, "__name__", condition)
        assert not patience.is_in_vain(condition), (
            f"not within {timeout_s} s: {what() if callable(what) else waited_for}"
        )
        patience.pause(0.005)
    return time.monotonic() - began
