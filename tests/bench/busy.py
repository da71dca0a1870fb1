"""Nodes that vouch for each other on a machine that is busy with other work: what is lost, and what moves for nothing.

Three of the lab's nodes, 12 VIPs, and tasks that only compute, two for each core. Nothing is done to the nodes. A
client asks for each VIP 20 times a second, minute after minute: a silence is a time without an answer, once a request
was lost. Revocations and unbinds are what the agents count.
"""

import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from labs import a_lab
from report import Row, Section

from arpguard.addresses import Address
from arpguard.units import NS_PER_MS
from arpguard_lab.cluster.bench import KubeBench, Watch
from arpguard_lab.cluster.scene import a_bench
from arpguard_lab.cluster.vouched import LEASE, VIPS, until_all_publish, until_bound

TITLE = "busy: nodes that vouch for each other, while other work keeps every core busy"
SECONDS, WINDOW_S = 3600, 60
INTERVAL_S = 0.05 / len(VIPS)
SILENT_MS = 200
TASKS = 2 * (os.cpu_count() or 1)


@dataclass
class _Record:
    """What was seen in all windows."""

    sent: int = 0
    lost: int = 0
    moves: int = 0
    missed: int = 0
    silent_ms: dict[Address, float] = field(default_factory=lambda: dict.fromkeys(VIPS, 0.0))
    longest_ms: float = 0.0

    def add(self, watch: Watch) -> None:
        if watch.findings:
            raise RuntimeError(f"two nodes answered: {watch.findings[0]}")
        self.sent += watch.sent
        self.moves += len(watch.gaps())
        self.missed += watch.drops

        for address in VIPS:
            self.lost += watch.stream.lost(address)
            silences_ms = [each.length_ns / NS_PER_MS for each in watch.stream.silences(address)]
            self.silent_ms[address] += sum(silences_ms)
            self.longest_ms = max(self.longest_ms, *silences_ms, 0.0)


def measure(*, quick: bool = False) -> Section:
    """An hour; `quick`: some seconds."""
    seconds, window_s = (4, 2) if quick else (SECONDS, WINDOW_S)
    record = _Record()
    with a_lab(3) as lab, a_bench(lab, "busy", lease=LEASE) as bench:
        until_all_publish(bench)
        bench.set_out(*VIPS)
        until_bound(bench)
        owners = bench.who(*VIPS)

        with _other_work(TASKS):
            began_s, waited_s = time.monotonic(), _pressure_s()
            for _ in range(seconds // window_s):
                with bench.watch(VIPS, INTERVAL_S) as watch:
                    time.sleep(window_s)
                record.add(watch)
            waited = (_pressure_s() - waited_s) / (time.monotonic() - began_s)
        counted = _counted(bench)
        moved = [address for address, who in bench.who(*VIPS).items() if who != owners[address]]

    section = Section(TITLE)
    for row in _rows(record, counted, len(moved)):
        section.add(row)
    section.add(Row("a task waited for a core", [100 * waited], "% of the time"))
    return section


def _rows(record: _Record, counted: dict[str, int], moved: int) -> Iterator[Row]:
    worst_ms = max(record.silent_ms.values())
    note = f"of {record.sent:,} requests" + (f"; {record.missed} frames not seen" if record.missed else "")
    yield Row("requests lost", [record.lost], "", note=note)
    yield _judged("silent in all, of each VIP", list(record.silent_ms.values()), "ms", SILENT_MS, worst_ms)
    yield Row("longest silence", [record.longest_ms], "ms")
    yield _judged("VIPs with another owner at the end", [moved], "", 0, moved)
    yield Row("changes of the answering node", [record.moves], "")
    yield _judged("nodes revoked while they lived", [counted["revocations"]], "", 0, counted["revocations"])
    yield Row("unbinds", [counted["unbinds"]], "")


def _judged(name: str, samples: Sequence[float], unit: str, most: int, worst: float) -> Row:
    return Row(name, samples, unit, goal=f"{most} or less", met=worst <= most)


def _counted(bench: KubeBench) -> dict[str, int]:
    """The sums of what the agents have counted."""
    found = [bench.status(host)["kubernetes"]["vouching"] for host in bench.nodes]
    return {name: sum(int(each.get(name, 0)) for each in found) for name in ("revocations", "unbinds")}


@contextmanager
def _other_work(tasks: int) -> Iterator[None]:
    processes = [multiprocessing.get_context("spawn").Process(target=_compute, daemon=True) for _ in range(tasks)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def _compute() -> None:
    while True:
        sum(range(10_000))


def _pressure_s() -> float:
    """How long at least one task has waited for a core, since the boot (Documentation/accounting/psi.rst)."""
    with open("/proc/pressure/cpu", encoding="ascii") as file:
        some = file.readline()
    return int(some.rpartition("total=")[2]) / 1_000_000
