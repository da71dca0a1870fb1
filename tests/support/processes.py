"""What a process uses, as /proc says it (proc(5))."""

import re
from pathlib import Path


def resident_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(re.findall(r"^VmRSS:\s+(\d+)", status, re.MULTILINE)[0])


def waited_ns() -> int:
    """For how long the threads of this process have wanted a CPU that others had (sched-stats.rst, schedstat)."""
    return sum(int(path.read_text(encoding="ascii").split()[1]) for path in Path("/proc/self/task").glob("*/schedstat"))


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
