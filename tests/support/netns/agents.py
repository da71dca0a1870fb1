"""Agents and commands in namespaces: what they said, and standing still."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from arpguard_lab import warm
from arpguard_lab.topology import AgentProcess
from support.netns.waiting import HUNG_S, SLOWNESS, until


class RoomyAgent(AgentProcess):
    """An agent; `room` is its map's, for the next start. None: as many entries as by default."""

    room: int | None = None

    @property
    def own_settings(self) -> str:
        settings = super().own_settings
        return settings if self.room is None else settings.replace("bpf: {", f"bpf: {{max_entries: {self.room}, ")


def arpguard(
    *words: str, prefix: Sequence[str] = (), env: Mapping[str, str] | None = None, timeout: float = HUNG_S
) -> "subprocess.CompletedProcess[str]":
    """Runs the command line and gives what came of it."""
    command = [*prefix, sys.executable, "-m", "arpguard", *words]
    return warm.run(command, timeout=timeout * SLOWNESS, env={**os.environ, **(env or {})})


def pid_of(agent: AgentProcess) -> int:
    assert agent._process is not None, "the agent does not run"
    return agent._process.pid


def said(agent: AgentProcess, pattern: str) -> int:
    """How many lines of the log match."""
    return len(re.findall(pattern, agent.log.read_text(encoding="utf-8", errors="replace")))


@contextmanager
def hung(agent: AgentProcess) -> Iterator[None]:
    """The agent stands still meanwhile, and cannot mend what is damaged."""
    agent.send(signal.SIGSTOP)
    try:
        stat = Path(f"/proc/{pid_of(agent)}/stat")
        until(lambda: stat.read_text(encoding="ascii").rpartition(")")[2].split()[0] == "T", what="it stands still")
        yield
    finally:
        agent.send(signal.SIGCONT)
