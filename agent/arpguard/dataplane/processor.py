"""What the kernel says about this machine's processor."""

from pathlib import Path

_ENOUGH = 16 << 10  # for the first processor; the kernel writes no more than is asked for, which may be one in hundreds


def read_cpuinfo(path: Path = Path("/proc/cpuinfo")) -> str:
    """The beginning of /proc/cpuinfo, with all of the first processor; empty if it cannot be read."""
    try:
        with path.open(encoding="ascii", errors="replace") as file:
            return file.read(_ENOUGH)
    except OSError:
        return ""
