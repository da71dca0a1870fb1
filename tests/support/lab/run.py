"""`arpguard lab` as a process, and what on this machine is its own."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.netns.waiting import HUNG_S

LIMIT_S = 1100  # of a run of many scenarios, or of random faults
_MARK = "ARPGUARD_TEST_RUN"
# Bars that only hold on a machine with nothing else to do: in tests, a figure may be so much, in the unit of its name.
_LENIENT = {
    "gap_in_bounds": ("gap_ms", 4000),
    "none_lost": ("longest_silence_ms", 4000),  # two requests to the API server time out after 0.9 s each
    "median_in_bounds": ("median_ms", 8000),
    "worst_in_bounds": ("worst_ms", 8000),
    "recovered_within_2_s": ("recovered_worst_ms", 8000),
    "as_after_a_crash": ("longest_silence_ms", 8000),
    "within_half_a_second": ("first_answer_ms", 4000),
    "within_1_s": ("followed_worst_ms", 4000),
    "dead_in_time": ("worst_ms", 8000),
    "all_answered_in_time": ("all_answered_ms", 8000),
    "cpu_under_2_percent": ("cpu_tenths_of_percent", 60),
}
_TOO_BUSY = 5  # times as much, where the lab does not judge, because tasks of this machine waited for a CPU
_VERDICTS = ("ok", "judged")
NODES = 2
NOTHING: dict[str, list] = {"namespaces": [], "folders": [], "pins": [], "processes": []}


class LabRun:
    """One run of the lab. `folder` is where it has its temporary files."""

    def __init__(self, folder: Path, *words: str) -> None:
        value = str(uuid.uuid4())
        self.folder = folder
        self._mark = f"{_MARK}={value}".encode()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "arpguard", "lab", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, _MARK: value, "TMPDIR": str(folder)},
            process_group=0,  # as a shell starts it
        )

    def namespaces(self) -> list[str]:
        return [path.name for path in Path("/run/netns").glob(f"arpguard-{self.process.pid}-*")]

    def folders(self) -> list[Path]:
        return list(self.folder.iterdir())

    def others(self, words: str = "") -> list[int]:
        """Processes that the lab started, which inherit its environment; those with `words` in the command line."""
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                text, line = path.read_bytes(), path.with_name("cmdline").read_bytes()
            except OSError:
                continue
            is_own = self._mark in text.split(b"\0") and int(path.parent.name) != self.process.pid
            if is_own and words.encode() in line.replace(b"\0", b" "):
                found.append(int(path.parent.name))
        return found

    def leftovers(self) -> dict[str, list]:
        """What of the lab is still there, by kind."""
        return {"namespaces": self.namespaces(), "folders": self.folders(), "processes": self.others()}


class SmallRun(LabRun):
    """A run on two nodes, without Kubernetes. Its user calls `sweep` at the end."""

    def __init__(self, folder: Path, *words: str) -> None:
        super().__init__(folder, "--nodes", str(NODES), *words)
        self._names: set[str] = set()

    def pins(self) -> list[Path]:
        """Known by the name of the folder, as long as that is or was seen."""
        self._names |= {path.name for path in self.folders()}
        return [path for name in self._names if (path := Path("/sys/fs/bpf") / name).exists()]

    def leftovers(self) -> dict[str, list]:
        return {**super().leftovers(), "pins": self.pins()}

    def sweep(self) -> None:
        """Removes what the lab should have removed, so that one failure stays one."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
        for pid in self.others():
            os.kill(pid, signal.SIGKILL)
        for name in self.namespaces():
            subprocess.run(["ip", "netns", "del", name], check=True)
        for path in self.pins():
            subprocess.run(["rm", "-r", str(path)], check=True)


@contextmanager
def kubernetes_run(folder: Path, *words: str) -> Iterator[LabRun]:
    """A run with Kubernetes, which is ended if need be."""
    run = LabRun(folder, "--kubernetes", "--json", *words)
    try:
        yield run
    finally:
        if run.process.poll() is None:
            run.process.send_signal(signal.SIGTERM)
            run.process.communicate(timeout=HUNG_S)


def missed(step: Mapping[str, Any]) -> list[str]:
    """The names of the checks of a step that failed."""
    return [name for name, fact in step.items() if fact is False and name not in _VERDICTS]


def as_expected(step: Mapping[str, Any]) -> bool:
    """As the lab says, but for the bars of time."""
    wrong, times = missed(step), 1 if step["judged"] else _TOO_BUSY
    lenient = all(name in _LENIENT and (step[_LENIENT[name][0]] or 0) < times * _LENIENT[name][1] for name in wrong)
    return step["ok"] or (bool(wrong) and lenient and step["nodes"] == step["expected"])
