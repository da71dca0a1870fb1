"""TCP from the client into the node, by iperf3 over veth: with nothing attached, and with the guard at tc both ways.

A round runs nothing, the guard, and nothing again, and the next one the other way round: how far the two bare runs
of a round differ is the noise, in whose range the guarded median has to be, or above. The CPU time moves less than
the throughput does on a busy machine, so it is given as well.
"""

import json
import shutil
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

from bed import NODE_IP, Bed, a_bed
from report import Row, Section

from arpguard.errors import DataPlaneError
from arpguard.verdict import Hook

TITLE = "throughput: TCP client to node over veth (iperf3), 300 VIPs in the map"
VIPS = 300
_LIMIT_S = 60
HOOKS = (Hook.TC_INGRESS, Hook.TC_EGRESS)
BARE, GUARDED, AGAIN = "nothing attached", "guard at tc, both ways", "nothing attached, again"


@dataclass(frozen=True)
class Run:
    """Gbit/s, and CPU milliseconds of both ends for one Gbit."""

    gbits: float
    cpu_ms: float


@contextmanager
def a_server(bed: Bed) -> Iterator[None]:
    """iperf3 -s on the node."""
    if shutil.which("iperf3") is None:
        raise DataPlaneError("iperf3 is missing: apt-get install iperf3")
    words = [*bed.node.prefix(), "iperf3", "-s", "-B", str(NODE_IP)]
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        try:
            yield
        finally:
            server.kill()


def measure(*, quick: bool) -> Section:
    """The section."""
    rounds, amount = (3, "1G") if quick else (8, "2G")
    runs: dict[str, list[Run]] = defaultdict(list)
    with a_bed("throughput", VIPS) as bed, a_server(bed):
        _connected(bed)
        for number in range(rounds):
            for name in (BARE, GUARDED, AGAIN) if number % 2 else (AGAIN, GUARDED, BARE):
                runs[name].append(_run(bed, amount, guarded=name == GUARDED))
    return _section(runs)


def _connected(bed: Bed, limit_s: float = 5.0) -> None:
    """Returns once the server listens."""
    deadline = time.monotonic() + limit_s
    while ":1451 " not in bed.node.run("cat", "/proc/self/net/tcp", "/proc/self/net/tcp6"):
        if time.monotonic() > deadline:
            raise RuntimeError("iperf3 -s does not listen")
        time.sleep(0.05)


def _run(bed: Bed, amount: str, *, guarded: bool) -> Run:
    words = [*bed.client.prefix(), "iperf3", "-c", str(NODE_IP), "-n", amount, "-J"]
    if guarded:
        bed.attach(*HOOKS)
    try:
        text = subprocess.run(words, capture_output=True, timeout=_LIMIT_S, check=False).stdout
    finally:
        bed.detach(*HOOKS)
    done = json.loads(text)
    if "error" in done:
        raise RuntimeError(f"iperf3: {done['error']}")
    done = done["end"]
    gbits = done["sum_received"]["bits_per_second"] / 1e9
    cpu = done["cpu_utilization_percent"]
    return Run(gbits, 10 * (cpu["host_total"] + cpu["remote_total"]) / gbits)


def _section(runs: dict[str, list[Run]]) -> Section:
    section = Section(TITLE)
    for name in (BARE, AGAIN, GUARDED):
        section.add(Row(name, [run.gbits for run in runs[name]], "Gbit/s"))
    for name in (BARE, AGAIN, GUARDED):
        section.add(Row(f"CPU of both ends, {name}", [run.cpu_ms for run in runs[name]], "ms/Gbit"))
    noise, ratios = (
        [run.gbits / bare.gbits for run, bare in zip(runs[name], runs[BARE], strict=True)] for name in (AGAIN, GUARDED)
    )
    section.add(Row("again / nothing attached, by round", noise, "times", note="the noise"))
    within = median(ratios) >= min(noise)
    section.add(Row("guarded / nothing attached, by round", ratios, "times", "within noise", within))
    return section
