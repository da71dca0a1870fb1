"""What a process uses, as /proc says it (proc(5))."""

import re
from pathlib import Path


def resident_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(re.findall(r"^VmRSS:\s+(\d+)", status, re.MULTILINE)[0])


def waited_ns() -> int:
    """For how long this process's first thread has wanted a CPU that others had (sched-stats.rst, schedstat)."""
    return int(Path("/proc/self/schedstat").read_text(encoding="ascii").split()[1])


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
