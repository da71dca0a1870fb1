"""Runs scenarios, each on a fresh lab, and says step by step who answered on the wire."""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from arpguard.dataplane import bpffs
from arpguard.errors import ConfigError, Problem
from arpguard.lab.scenarios import COLUMNS, SCENARIOS, Bench, Step
from arpguard.lab.topology import Lab

_PIN_PARENT = Path("/sys/fs/bpf")


class Show(Protocol):
    """Told of a scenario's steps once it is through."""

    def __call__(self, scenario: str, steps: Sequence[Step]) -> None:
        """Shows them."""


def catalogue() -> list[tuple[str, str]]:
    """(name, what it shows) of every scenario."""
    return [(name, scenario.summary) for name, scenario in SCENARIOS.items()]


def summary(name: str) -> str:
    """What a scenario shows."""
    return SCENARIOS[name].summary


def run(names: Sequence[str] | None, nodes: int, show: Show | None = None) -> list[Step]:
    """Runs scenarios (default: all); ConfigError for a name that is not there."""
    for name in names or ():
        if name not in SCENARIOS:
            raise ConfigError("arpguard lab", [Problem("--scenario", name, f"one of {', '.join(SCENARIOS)}")])
    steps: list[Step] = []
    folder = Path(tempfile.mkdtemp(prefix="arpguard-lab-"))
    pin_root = _PIN_PARENT / folder.name
    try:
        bpffs.prepare(pin_root)
        for name in dict.fromkeys(names or SCENARIOS):
            scenario = SCENARIOS[name]
            with Lab(nodes, folder, pin_root, scenario.others) as lab:
                done = list(scenario.run(Bench(lab, name)))
            steps += done
            if show is not None:
                show(name, done)
    finally:
        bpffs.remove(pin_root)
        shutil.rmtree(folder)
    return steps


__all__ = ["COLUMNS", "Show", "Step", "catalogue", "run", "summary"]
