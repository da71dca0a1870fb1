"""Boots kernels of the distribution and runs in each what no kernel of this machine can be asked for.

    PYTHONPATH=tests python -m kernels.run --write docs/neighbours.md

So far that is the real kube-proxy in IPVS mode, on three nodes in one guest. The control plane runs outside, where it
is quick, in the namespace in which the guest's network ends.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from arpguard_lab.cluster import objects
from arpguard_lab.cluster.real import Heartbeats
from arpguard_lab.cluster.topology import API_ADDRESS
from arpguard_lab.netns import Netns
from arpguard_lab.topology import NETWORK
from kernels import machine, packages
from kernels.incident import Row
from neighbours import controlplane
from neighbours.announcers import SHOP
from neighbours.controlplane import BINARIES, ControlPlane
from neighbours.pages import replace_table
from neighbours.scene import HOME, NODES, end_by_signals, manifests
from neighbours.versions import KUBERNETES

CACHE = Path(__file__).parents[2] / ".cache" / "kernels"
GUEST_S = 7200.0
NAMES = [f"worker-{number}" for number in range(1, NODES + 1)]
_TESTS = Path(__file__).parents[1]
_TAP = "guest0"
_ITS_NEEDS = ("ipset", "iptables")


@dataclass(frozen=True)
class Run:
    """What was seen on one kernel, and how long it took, in seconds."""

    release: str
    took_s: float
    rows: Sequence[Row]


def missing() -> str | None:
    """Why nothing can be run; None where it can."""
    if os.geteuid() != 0:
        return "needs root"
    lacking = [name for name in _ITS_NEEDS if shutil.which(name) is None]
    if not (BINARIES / "kube-proxy").exists():
        lacking.append("kube-proxy (make neighbours builds it)")
    return machine.missing() or controlplane.missing() or (f"{', '.join(lacking)} missing" if lacking else None)


@contextmanager
def a_place() -> Iterator[Netns]:
    """A namespace with the network that the guest's eth0 is on, and the address of the API server."""
    place = Netns(f"arpguard-kernels-{os.getpid()}")
    try:
        lines = [f"tuntap add {_TAP} mode tap", f"addr add {API_ADDRESS}/24 dev {_TAP}", f"link set {_TAP} up"]
        place.batch(lines)
        yield place
    finally:
        place.remove()


def prepare(plane: ControlPlane, shared: Path) -> None:
    """Installs what `deploy/base` does but the DaemonSet, and writes what the guest's programs come with."""
    plane.apply(objects.namespace(SHOP), *manifests(plane, plane.folder))
    plane.certify("kube-proxy", "/CN=system:kube-proxy")
    for user in ("admin", "kube-proxy"):
        plane.write_kubeconfig(shared / f"{user}.kubeconfig", user)
    for number, name in enumerate(NAMES, 1):
        plane.write_account(shared / f"node-{number}-agent.kubeconfig", HOME, objects.ACCOUNT)
        plane.api.create("/api/v1/nodes", objects.node(name, IPv4Address(f"{NETWORK}.{number}")))


def run(kernel: packages.Kernel, folder: Path) -> Run:
    """One boot."""
    shared, plane_folder = folder / "shared", folder / "plane"
    for each in (shared, plane_folder):
        each.mkdir(parents=True)
    began_s = time.monotonic()
    with a_place() as place, ControlPlane(plane_folder, API_ADDRESS, place) as plane:
        prepare(plane, shared)
        heartbeats = Heartbeats(plane.api, NAMES)
        heartbeats.start()
        try:
            guest = machine.Machine(kernel, shared, place, _TAP)
            guest.run([sys.executable, "-m", "kernels.incident", shared], {"PYTHONPATH": str(_TESTS)}, GUEST_S)
        finally:
            heartbeats.stop()
    rows = [Row(**each) for each in json.loads((shared / "result.json").read_text(encoding="utf-8"))]
    return Run(kernel.release, time.monotonic() - began_s, rows)


def table(runs: Sequence[Run]) -> str:
    """The runs as Markdown."""
    first, *_ = runs
    lines = [
        f"| what is done | what has to be |{'|'.join(f' Linux {each.release} ' for each in runs)}|",
        "|---|---|" + "---|" * len(runs),
    ]
    for number, row in enumerate(first.rows):
        cells = [_cell(each.rows[number]) for each in runs]
        lines.append(f"| {row.done} | {row.expected} | {' | '.join(cells)} |")
    lines.append(f"| time it took | | {' | '.join(f'{each.took_s / 60:.0f} min' for each in runs)} |")
    return "\n".join([*lines, ""])


def _cell(row: Row) -> str:
    if not row.holds:
        return f"**{row.found}**"
    return "so it is" if row.found == row.expected else row.found


def made_with() -> str:
    """When and with what a table was made."""
    said = subprocess.run([machine.QEMU, "--version"], capture_output=True, text=True, check=True).stdout
    version = said.split()[3].partition("(")[0]
    return f"{time.strftime('%Y-%m-%d', time.gmtime())}; kube-proxy {KUBERNETES}, QEMU {version} without KVM."


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kernel", choices=packages.KERNELS, help="this one only; nothing is written then")
    parser.add_argument("--write", type=Path, metavar="PAGE")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="an empty folder for all logs")
    asked = parser.parse_args()
    if reason := missing():
        print(f"kernels: skipped: {reason}")
        return 0
    end_by_signals()
    runs = []
    with tempfile.TemporaryDirectory(prefix="arpguard-kernels-") as temporary:
        for series in [asked.kernel] if asked.kernel else packages.KERNELS:
            kernel = packages.fetch(series, CACHE)
            if kernel is None:
                print(f"kernels: {series} skipped: there is no such kernel package here")
                continue
            print(f"kernels: {kernel.release}", flush=True)
            runs.append(run(kernel, (asked.keep or Path(temporary)).absolute() / series))
            for row in runs[-1].rows:
                print(f"{'ok  ' if row.holds else 'FAIL'} {row.done}: {row.found}", flush=True)
    if runs and asked.write and not asked.kernel:
        replace_table(asked.write, "kube-proxy", f"{made_with()}\n\n{table(runs)}")
    return int(not all(row.holds for each in runs for row in each.rows))


if __name__ == "__main__":
    sys.exit(main())
