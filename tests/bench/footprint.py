"""The agent process: memory once it has settled, and the time from spawn to its log line `ready:`.

Cold is with an empty pin directory, so that programs are loaded; warm finds them pinned. Memory is that of a warm
agent (/proc/PID/smaps_rollup).
Much of a cold start is the verifier's, so the instructions it walked through are given as well.
"""

import re
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bed import a_namespace, a_pin_dir
from report import Row, Section

from arpguard.dataplane import bpffs, syscall
from arpguard.dataplane.build import PROGRAMS
from arpguard.runtime.memory import GIVE_BACK_INTERVAL_S
from arpguard_lab.netns import Netns

TITLE = "agent: time to `ready:`, and memory"
MEMORY_MB, COLD_S, WARM_S = 45, 1.5, 0.5
COUNTS = (10, 1000)
_LIMIT_S = 30.0
_POLL_S = 0.002
_INFO_SIZE, _VERIFIED_AT = 232, 216
_NODE_IP = IPv4Address("10.20.0.1")
_FIRST_VIP = IPv4Address("10.20.0.10")


@dataclass(frozen=True)
class Where:
    """Where agents are started."""

    netns: Netns
    folder: Path
    pin_dir: Path

    def config(self, vips: int) -> Path:
        """A configuration in which this node owns `vips` VIPs."""
        lines = [f"bpf: {{pin_dir: {self.pin_dir}}}", f'grpc: {{listen: ["unix://{self.folder}/api"]}}']
        lines += ["mode: enforce", "interfaces: [eth0]", "vips:"]
        lines += [f"  - {{address: {_FIRST_VIP + number}, owner: {{node: n}}}}" for number in range(vips)]
        path = self.folder / f"{vips}.yaml"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path


@dataclass
class Memory:
    """Samples of one configuration, in MB."""

    rss: list[float] = field(default_factory=list)
    pss: list[float] = field(default_factory=list)

    def add(self, pid: int) -> None:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
        kilobytes = {name: int(value) for name, value in re.findall(r"^(\w+): +(\d+) kB", text, re.MULTILINE)}
        self.rss.append(kilobytes["Rss"] / 1024)
        self.pss.append(kilobytes["Pss"] / 1024)


def settle(*, quick: bool) -> None:
    """Waits until an agent has unmapped what only its start needed, and mapped what it uses; if `quick`, one second."""
    time.sleep(1.0 if quick else 3 * GIVE_BACK_INTERVAL_S - 2.0)


@contextmanager
def an_agent(where: Where, config: Path) -> Iterator[tuple[int, float]]:
    """A running agent: its process id, and the seconds it took to be ready."""
    words = [sys.executable, "-m", "arpguard", "agent", "--config", str(config), "--node-name", "n"]
    path = where.folder / "log"
    with path.open("wb") as log:
        began = time.perf_counter()
        agent = subprocess.Popen([*where.netns.prefix(), *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        while b"ready:" not in path.read_bytes():
            if agent.poll() is not None or time.perf_counter() - began > _LIMIT_S:
                last = path.read_text(encoding="utf-8").strip().splitlines()[-1:]
                raise RuntimeError(f"the agent did not get ready: {' '.join(last) or 'it said nothing'}")
            time.sleep(_POLL_S)
        yield agent.pid, time.perf_counter() - began
    finally:
        agent.kill()
        agent.wait()


def measure(*, quick: bool) -> Section:
    """The section."""
    rounds = 2 if quick else 5
    cold, warm = [], []
    memory = {count: Memory() for count in COUNTS}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="arpguard-bench-")))
        where = Where(stack.enter_context(_a_node()), folder, stack.enter_context(a_pin_dir("agent")))
        for _ in range(rounds):
            bpffs.remove(where.pin_dir)
            cold.append(_start_s(where, COUNTS[0]))
            warm.append(_start_s(where, COUNTS[0]))
            for count in COUNTS:
                with an_agent(where, where.config(count)) as (pid, _):
                    settle(quick=quick)
                    memory[count].add(pid)
        section = _section(cold, warm, memory)
        for name in PROGRAMS:
            section.add(
                Row(f"{name}: verified", [_verified(where.pin_dir, name)], "insns", note="1,000,000 are allowed")
            )
    return section


def _verified(pin_dir: Path, name: str) -> int:
    """How many instructions the verifier went through (bpf_prog_info.verified_insns, kernel 5.16)."""
    (path,) = pin_dir.glob(f"programs-*/{name}")
    with syscall.obj_get(str(path)) as program:
        return int(struct.unpack_from("=I", syscall._info(program, _INFO_SIZE), _VERIFIED_AT)[0])


@contextmanager
def _a_node() -> Iterator[Netns]:
    with a_namespace("agent") as netns:
        netns.batch(
            [
                "link add eth0 type veth peer name port0",
                "link set eth0 up",
                "link set port0 up",
                f"addr add {_NODE_IP}/16 dev eth0",
            ]
        )
        yield netns


def _start_s(where: Where, vips: int) -> float:
    """How long the agent takes to be ready."""
    with an_agent(where, where.config(vips)) as (_, took):
        return took


def _section(cold: list[float], warm: list[float], memory: dict[int, Memory]) -> Section:
    section = Section(TITLE)
    section.add(Row("cold start, programs loaded", cold, "s", f"under {COLD_S}", median(cold) < COLD_S))
    section.add(Row("warm start, reopened", warm, "s", f"under {WARM_S}", median(warm) < WARM_S))
    for count, found in memory.items():
        met = median(found.rss) < MEMORY_MB
        section.add(Row(f"RSS, {count:,} VIPs", found.rss, "MB", f"under {MEMORY_MB}", met))
        section.add(Row(f"PSS, {count:,} VIPs", found.pss, "MB"))
    return section
