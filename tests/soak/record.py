"""What an agent uses, sample by sample, and whether it grows: pure, but for `take`.

A slope is the median of the slopes between all pairs of samples (Theil and Sen): one garbage collection, or one busy
second of this machine, does not bend it.
"""

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median

from arpguard.dataplane import loader
from arpguard.dataplane.maps import EntryTable
from arpguard_lab.cluster.topology import API_PORT, KubeAgent

_REMOTE, _INODE = 2, 9  # columns
_MOST_POINTS = 300  # of a series, for the slope: pairs grow with the square


@dataclass(frozen=True, slots=True)
class Quantity:
    """Something that is measured. `tolerance`: how much more of it there may be at the end than at the beginning."""

    unit: str
    tolerance: float


QUANTITIES: Mapping[str, Quantity] = {
    "rss_mb": Quantity("MB resident", 3.0),  # the kernel drops pages of files, and reads them again
    "anon_mb": Quantity("MB without pages of files", 2.0),
    "connections": Quantity("connections to the API server", 8.0),  # the slower it answers, the more there are
    "fds": Quantity("other file descriptors", 3.0),
    "threads": Quantity("threads", 2.0),
    "entries": Quantity("entries in the map", 1.0),
    "cpu_percent": Quantity("% of a core", 4.0),
}
Sample = dict[str, float]


def take(agent: KubeAgent, before: Mapping[str, float] | None, now_s: float) -> Sample:
    """One sample of a running agent; CPU is of the time since the one before."""
    pid = agent.pid
    assert pid is not None, f"the agent of {agent.host.name} has ended: {agent.said()[-500:]}"
    maps = loader.open_maps(agent.pin_dir)
    cpu_s = agent.cpu_s()
    elapsed = now_s - before["time_s"] if before else 0.0
    fds, connections = _descriptors(pid, API_PORT)
    return {
        "time_s": now_s,
        "rss_mb": agent.rss_kb() / 1024,
        "anon_mb": agent.rss_kb("RssAnon") / 1024,
        "connections": connections,
        "fds": fds - connections,
        "threads": len(os.listdir(f"/proc/{pid}/task")),
        "entries": len(EntryTable(maps["entries"], maps["counters"]).read().entries),
        "cpu_s": cpu_s,
        "cpu_percent": 100 * (cpu_s - before["cpu_s"]) / elapsed if before and elapsed else 0.0,
    }


def _descriptors(pid: int, port: int) -> tuple[int, int]:
    """How many descriptors a process has, and how many of them are TCP sockets to a port (proc_pid_net(5), tcp)."""
    fds = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):  # closed just now
            fds.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
    rows = (line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text(encoding="ascii").splitlines()[1:])
    sockets = {f"socket:[{row[_INODE]}]" for row in rows if row[_REMOTE].endswith(f":{port:04X}")}
    return len(fds), sum(fd in sockets for fd in fds)


def slope(points: Sequence[tuple[float, float]]) -> float:
    """How much a quantity grows in a second; 0 for fewer than two points."""
    step = max(1, len(points) // _MOST_POINTS)
    pairs = combinations(points[::step], 2)
    return median([(later[1] - one[1]) / (later[0] - one[0]) for one, later in pairs if later[0] > one[0]] or [0.0])


def growth(samples: Sequence[Sample], name: str) -> float:
    """How much more there is at the end than at the beginning, by the slope."""
    return slope(points(samples, name)) * (samples[-1]["time_s"] - samples[0]["time_s"]) if samples else 0.0


def points(samples: Sequence[Sample], name: str) -> list[tuple[float, float]]:
    """A quantity over time, in seconds."""
    return [(sample["time_s"], sample[name]) for sample in samples]


def growing(records: Mapping[str, Sequence[Sample]]) -> list[str]:
    """What grew by more than is tolerated, in words."""
    found = []
    for node, samples in records.items():
        for name, quantity in QUANTITIES.items():
            more = growth(samples, name)
            if more > quantity.tolerance:
                found.append(f"{node}: {more:.1f} {quantity.unit} more at the end ({quantity.tolerance:g} tolerated)")
    return found


def write_csv(path: Path, records: Mapping[str, Iterable[Sample]]) -> None:
    """All samples, one in a line."""
    with path.open("w", newline="", encoding="ascii") as file:
        writer = csv.writer(file)
        writer.writerow(["node", "time_s", *QUANTITIES])
        for node, samples in records.items():
            for sample in samples:
                writer.writerow([node, *(f"{sample[name]:.2f}" for name in ("time_s", *QUANTITIES))])
