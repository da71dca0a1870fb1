"""How long to wait for something on a machine that others use too: long enough that only what hangs is given up."""

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

_TASKS, _STAT = Path("/proc/pressure/cpu"), Path("/proc/stat")
_STEAL = 8  # its place in the first line of /proc/stat, proc_stat(5)
_LONGEST_PAUSE_S = 0.1
_BUSY = 5  # how many times longer all of it may take while tasks wait for a CPU


class Debt:
    """For how much of the time since it was made this machine owed its tasks a CPU."""

    def __init__(self) -> None:
        self._began_s, self._lacked_s = time.monotonic(), _without_cpu_s()

    @property
    def waited_s(self) -> float:
        """How long ago it was made."""
        return time.monotonic() - self._began_s

    @property
    def owed_s(self) -> float:
        """For how long tasks have wanted a CPU since; longer than `waited_s` if several CPUs were lacking at once."""
        return _without_cpu_s() - self._lacked_s

    @property
    def share(self) -> float:
        """The second as a share of the first: 1 is all of the time."""
        return self.owed_s / max(self.waited_s, 1e-9)


class Patience:
    """A limit of time, from now on. While tasks of this machine wait for a CPU, its clock runs slower."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.renew()

    def renew(self) -> None:
        """Starts again: there is progress."""
        self._debt = Debt()

    @property
    def is_over(self) -> bool:
        """Whether the limit is reached."""
        waited_s = self._debt.waited_s
        if waited_s <= self.limit_s:
            return False

        busy_s = min(self._debt.owed_s, waited_s)
        return waited_s - busy_s + busy_s / _BUSY > self.limit_s

    def is_in_vain(self, condition: Callable[[], object]) -> bool:
        """Whether the limit is reached, and a condition still does not hold.

        The waiter may have stood still since it last looked, so it looks once more.
        """
        return self.is_over and not condition()

    def pause(self, shortest_s: float) -> None:
        """Sleeps until the waiter should check again: for a twentieth of its wait so far, but `shortest_s` or more."""
        time.sleep(min(max(shortest_s, self._debt.waited_s / 20), _LONGEST_PAUSE_S))


def _without_cpu_s() -> float:
    """For how many seconds so far a task of this machine wanted a CPU that others had.

    Others are tasks (Linux, Documentation/accounting/psi.rst), or other guests of the host (`steal`).
    """
    waited = re.search(r"total=(\d+)", _TASKS.read_text(encoding="ascii")) if _TASKS.exists() else None
    stolen = int(_STAT.read_text(encoding="ascii").split(maxsplit=_STEAL + 1)[_STEAL])
    return stolen / os.sysconf("SC_CLK_TCK") + (int(waited[1]) / 1e6 if waited else 0.0)
