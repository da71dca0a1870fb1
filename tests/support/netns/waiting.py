"""How long the agent may take, and waiting for it on a machine that others use."""

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

from arpguard_lab.topology import READY_S

# How many times longer all of it takes on the machine at hand: an emulated one, say.
SLOWNESS = float(os.environ.get("ARPGUARD_SLOWNESS", "1"))
START_S = READY_S * SLOWNESS  # until an agent is ready
REPAIR_S = 1.0  # how long the agent may take to follow a change
ANSWER_S = 10.0  # how long an answer may take on a loaded machine


def _without_cpu_s() -> float:
    """For how many seconds so far a task of this machine wanted a CPU that others had: tasks (Linux,
    Documentation/accounting/psi.rst) or other guests of the host (`steal` of proc_stat(5))."""
    tasks, stat = Path("/proc/pressure/cpu"), Path("/proc/stat").read_text(encoding="ascii")
    waited = re.search(r"total=(\d+)", tasks.read_text(encoding="ascii")) if tasks.exists() else None
    return int(stat.split(maxsplit=9)[8]) / os.sysconf("SC_CLK_TCK") + (int(waited[1]) / 1e6 if waited else 0.0)


def until(condition: Callable[[], object], timeout_s: float = ANSWER_S, what: str = "") -> float:
    """Waits until the condition holds, and says how many seconds that took; fails after `timeout_s`.

    For as long as somebody had to wait for a CPU meanwhile it waits longer, as long again at most.
    """
    timeout_s *= SLOWNESS
    began, lacked = time.monotonic(), _without_cpu_s()
    while not condition():
        late = time.monotonic() - began - timeout_s
        assert late < min(_without_cpu_s() - lacked, timeout_s), (
            f"not within {timeout_s} s: {what or getattr(condition, '__name__', condition)}"
        )
        time.sleep(0.005)
    return time.monotonic() - began
