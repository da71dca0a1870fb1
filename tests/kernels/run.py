"""Boots kernels of the distribution and runs in each what no kernel of this machine can be asked for.

    PYTHONPATH=tests python -m kernels.run --write docs/kernels.md --write-incident docs/neighbours.md

First suites of tests (`suites`). Then, in a boot of its own, the real kube-proxy in IPVS mode, on three nodes in one
guest: the control plane runs outside, where it is quick, in the namespace in which the guest's network ends.
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
from functools import partial
from ipaddress import IPv4Address
from multiprocessing import Pool
from pathlib import Path

from arpguard_lab.cluster import objects
from arpguard_lab.cluster.real import Heartbeats
from arpguard_lab.cluster.topology import API_ADDRESS
from arpguard_lab.netns import Netns
from arpguard_lab.topology import NETWORK
from kernels import arm64, boot, machine, packages, suites
from kernels.incident import Row
from neighbours import controlplane
from neighbours.announcers import SHOP
from neighbours.controlplane import BINARIES, ControlPlane
from neighbours.pages import replace_table
from neighbours.scene import HOME, NODES, end_by_signals, manifests
from neighbours.versions import KUBERNETES

CACHE = Path(__file__).parents[2] / ".cache" / "kernels"
KERNELS = (*packages.KERNELS, arm64.NAME)
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
    return "needs root" if os.geteuid() != 0 else machine.missing()


def incident_missing() -> str | None:
    """Why kube-proxy cannot be run in a guest; None where it can."""
    lacking = [name for name in _ITS_NEEDS if shutil.which(name) is None]
    if not (BINARIES / "kube-proxy").exists():
        lacking.append("kube-proxy (make neighbours builds it)")
    return controlplane.missing() or (f"{', '.join(lacking)} missing" if lacking else None)


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
            guest = machine.Machine(kernel, shared, [machine.Cable(place, _TAP)])
            guest.run([sys.executable, "-m", "kernels.incident", shared], {"PYTHONPATH": str(_TESTS)}, GUEST_S)
        finally:
            heartbeats.stop()
    rows = [Row(**each) for each in json.loads((shared / "result.json").read_text(encoding="utf-8"))]
    return Run(kernel.release, time.monotonic() - began_s, rows)


def table(runs: Sequence[Run]) -> str:
    """The runs as Markdown."""
    first, *_ = runs
    lines = [
        f"| step | expected |{'|'.join(f' Linux {each.release} ' for each in runs)}|",
        "|---|---|" + "---|" * len(runs),
    ]
    for number, row in enumerate(first.rows):
        cells = [_cell(each.rows[number]) for each in runs]
        lines.append(f"| {row.done} | {row.expected} | {' | '.join(cells)} |")
    lines.append(f"| duration of the run | | {' | '.join(f'{each.took_s / 60:.0f} min' for each in runs)} |")
    return "\n".join([*lines, ""])


def _cell(row: Row) -> str:
    if not row.holds:
        return f"**{row.found}**"
    return "as expected" if row.found == row.expected else row.found


def qemus_version() -> str:
    """As QEMU says it."""
    said = subprocess.run(
        [machine.EMULATORS["amd64"].name, "--version"], capture_output=True, text=True, check=True
    ).stdout
    return said.split()[3].partition("(")[0]


def made_with(*programs: str) -> str:
    """When and with what a table was made."""
    with_these = ", ".join([*programs, f"QEMU {qemus_version()} without KVM"])
    return f"{time.strftime('%Y-%m-%d', time.gmtime())}; {with_these}."


def run_suites(
    kernel: packages.Kernel, folder: Path, words: Sequence[str], openvswitch: Path | None, *, short: bool
) -> suites.Run:
    """The suites on a kernel, those of which a name has one of the words. `openvswitch`: as in `suites.run`."""

    def is_wanted(name: str) -> bool:
        return any(word in name for word in words)

    def told(name: str, outcome: suites.Outcome) -> None:
        mark, at_s = "ok  " if outcome.holds else "FAIL", time.monotonic() - began_s
        tell(kernel, f"{mark} {name}: {outcome} (after {at_s:.0f} s)", *outcome.failed)

    began_s, place = time.monotonic(), folder / kernel.series
    wanted = [each for each in suites.suites_of(kernel, short=short) if is_wanted(each.name)]
    tell(kernel, f"{len(wanted)} suites")
    outcomes = suites.run(kernel, place, wanted, openvswitch, told, short=short) if wanted else {}
    if is_wanted(boot.NAME) and not short and not kernel.is_foreign:
        outcomes[boot.NAME] = boot.run(kernel, place)
        told(boot.NAME, outcomes[boot.NAME])
    return suites.Run(kernel.release, time.monotonic() - began_s, outcomes)


def run_incident(kernel: packages.Kernel, folder: Path) -> Run | None:
    """The same of the real kube-proxy; there is none for arm64 here."""
    if kernel.is_foreign:
        return None
    tell(kernel, "kube-proxy")
    ran = run(kernel, folder / kernel.series)
    for row in ran.rows:
        tell(kernel, f"{'ok  ' if row.holds else 'FAIL'} {row.done}: {row.found}")
    return ran


def tell(kernel: packages.Kernel, *lines: str) -> None:
    """At once: several kernels tell at the same time."""
    sys.stdout.write("\n     ".join((f"kernels: {kernel.release}: {lines[0]}", *lines[1:])) + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kernel", choices=KERNELS, help="this one only; nothing is written then")
    parser.add_argument(
        "--suite", action="append", metavar="WORD", help="suites with this in their names only, and no kube-proxy"
    )
    parser.add_argument("--short", action="store_true", help="a few suites on the oldest kernel, and no kube-proxy")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the table of the suites")
    parser.add_argument("--write-incident", type=Path, metavar="PAGE", help="write the table of kube-proxy")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="an empty folder for all logs")
    asked = parser.parse_args()

    if reason := missing() or suites.missing():
        print(f"kernels: skipped: {reason}")
        return 0
    end_by_signals()
    wanted = [asked.kernel] if asked.kernel else KERNELS[: 1 if asked.short else None]
    kernels = [kernel for series in wanted if (kernel := fetched(series))]
    writes = not (asked.kernel or asked.short or asked.suite) and len(kernels) == len(wanted)

    reason = "not asked for" if asked.short or asked.suite else incident_missing()
    if reason:
        print(f"kernels: kube-proxy skipped: {reason}")
    openvswitch = None if asked.short else packages.fetch_openvswitch(CACHE)

    # A guest's tests run one after the other, so each kernel has a processor of this machine for itself.
    with tempfile.TemporaryDirectory(prefix="arpguard-kernels-") as temporary, Pool(initializer=end_by_signals) as pool:
        folder = (asked.keep or Path(temporary)).absolute()
        suites_on = partial(
            run_suites, folder=folder, words=asked.suite or [""], openvswitch=openvswitch, short=asked.short
        )
        incident_on = partial(run_incident, folder=folder)
        tested = pool.map_async(suites_on, kernels, chunksize=1)
        incidents = pool.map_async(incident_on, [] if reason else kernels, chunksize=1)
        ran = tested.get()
        if writes and asked.write:
            replace_table(asked.write, "suites", f"{made_with()}\n\n{suites.table(ran)}")

        runs = [each for each in incidents.get() if each is not None]
        if runs and writes and asked.write_incident:
            made = made_with(f"kube-proxy {KUBERNETES}")
            replace_table(asked.write_incident, "kube-proxy", f"{made}\n\n{table(runs)}")
        pool.close()  # or the end of this block would interrupt its processes, which say so
        pool.join()

    held = all(each.holds for each in ran) and all(row.holds for each in runs for row in each.rows)
    return int(not held)


def fetched(series: str) -> packages.Kernel | None:
    """The kernel of a series; says so where there is none."""
    if series == arm64.NAME:
        return fetched_arm64()
    kernel = packages.fetch(series, CACHE)
    if kernel is None:
        print(f"kernels: {series} skipped: there is no such kernel package here")
    return kernel


def fetched_arm64() -> packages.Kernel | None:
    """The same of arm64."""
    if reason := machine.missing(arm64.NAME):
        print(f"kernels: {arm64.NAME} skipped: {reason}")
        return None
    return arm64.fetch(CACHE)


if __name__ == "__main__":
    sys.exit(main())
