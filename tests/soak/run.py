"""Keeps a cluster of agents busy for hours, and shows that they need no more at the end than at the beginning.

    python tests/soak/run.py [--for SECONDS] [--every SECONDS] [--ask SECONDS] [--out FOLDER]         as root

Three agents, an API server and a client that asks all the time; every few seconds something changes: a drain, an edit
of the ConfigMap, a Service that comes and goes, an endpoint that moves, a burst of claims by a stranger. All changes
come round again, so whatever grows is a leak. Writes soak.csv and soak.png; exit code 1 when anything grew, an agent
ended, or two nodes answered.
"""

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import plot
import record

from arpguard.addresses import MacAddress
from arpguard.cli.options import positive
from arpguard.dataplane import bpffs
from arpguard.wire.arp import build_announcements
from arpguard_lab.cluster.bench import OFF, KubeBench, Watch, vip
from arpguard_lab.cluster.refused import OUTSIDER
from arpguard_lab.cluster.scene import a_bench
from arpguard_lab.cluster.topology import KubeLab

NODES = 3
VIPS = [vip(50 + number) for number in range(10)]
LOCAL = vip(60)
PASSING = [vip(70 + number) for number in range(5)]
CLAIMS = 200
REMEMBERED = 100  # decisions
WARM_UP = 0.2  # of the time: caches fill, and the interpreter settles
PIN_PARENT = Path("/sys/fs/bpf")


@dataclass
class Outcome:
    """`problems` is empty when all went well."""

    records: dict[str, list[record.Sample]]
    problems: list[str]
    facts: dict[str, object]


def remember_little(bench: KubeBench) -> None:
    """Starts the agents again, with less room for decisions: 10,000 take a quarter of an hour, and hide a leak."""
    for host in bench.nodes:
        agent = bench.agent(host)
        agent.kill(signal.SIGTERM)
        agent.configure(f"{bench.config()}decisions: {{capacity: {REMEMBERED}}}\n")
        agent.start()
    for host in bench.nodes:
        bench.agent(host).wait_for()


def changes(bench: KubeBench) -> list[Callable[[], object]]:
    """What happens, in this order, again and again."""
    first, second, third = bench.nodes
    stranger = MacAddress(bytes((2, 0, 0, 0, 2, 1)))

    def claim() -> None:
        ear = bench.lab.hosts[OUTSIDER[0]].listen()
        for number in range(CLAIMS):
            request, _ = build_announcements(MacAddress(stranger.octets[:5] + bytes([number])), LOCAL)
            ear.send(request)
        ear.close()

    return [
        lambda: bench.cordon(first),
        lambda: bench.cordon(first, cordoned=False),
        lambda: bench.publish("passing", PASSING),
        lambda: bench.configure(bench.config(lease=f"duration: 4s, renew: 1s, margin: 1s, {OFF}")),
        lambda: bench.set_ready(second, ready=False),
        lambda: bench.set_ready(second, ready=True),
        lambda: bench.configure(bench.config()),
        lambda: bench.withdraw("passing"),
        claim,
        lambda: bench.endpoints("local", {first: True, second: False, third: False}),
        lambda: bench.endpoints("local", dict.fromkeys(bench.nodes, True)),
        lambda: bench.lab.cut_off(third),
        lambda: bench.lab.reconnect(third),
    ]


def soak(bench: KubeBench, seconds: float, every_s: float, ask_s: float, tell: Callable[[str], None]) -> Outcome:
    """Keeps the cluster busy, and looks at the agents all the while."""
    remember_little(bench)
    bench.publish("web", VIPS)
    bench.publish("local", [LOCAL], local=True)
    bench.endpoints("local", dict.fromkeys(bench.nodes, True))
    bench.settle([*VIPS, LOCAL])
    bench.bind_everywhere(*VIPS, LOCAL)
    outcome = Outcome(defaultdict(list), [], {})
    began, menu = time.monotonic(), cycle(changes(bench))
    change_s = told_s = 0.0
    with bench.watch(VIPS, ask_s) as watch:
        while (now_s := time.monotonic() - began) < seconds:
            if now_s >= change_s:
                next(menu)()
                change_s = now_s + every_s
            for host in bench.nodes:
                samples = outcome.records[host.name]
                samples.append(record.take(bench.agent(host), samples[-1] if samples else None, now_s))
            judge(bench, watch)
            if now_s >= told_s:
                tell(f"{now_s:.0f} of {seconds:g} s: {bench.agent(bench.nodes[0]).rss_kb() // 1024} MB on node-1")
                told_s += seconds / 10
            time.sleep(min(1.0, every_s / 3, seconds / 60))
    judge(bench, watch)
    outcome.facts = watch.facts()
    outcome.records = {node: steady(samples, seconds) for node, samples in outcome.records.items()}
    outcome.problems = record.growing(outcome.records)
    found = [each for each in (*watch.oracle.findings, *watch.unbacked) if each.vip != LOCAL]  # a stranger claims it
    outcome.problems += [f"two answered: {each}" for each in found[:3]]
    outcome.facts["overlaps"], outcome.facts["never_two_at_once"] = len(found), not found
    outcome.facts.pop("finding", None)
    return outcome


def judge(bench: KubeBench, watch: Watch) -> None:
    """Forgets what is judged: the soak itself must not grow."""
    watch.poll()
    bench.check_against_journal(watch, skip=[*PASSING, LOCAL])
    watch.said.clear()


def steady(samples: list[record.Sample], seconds: float) -> list[record.Sample]:
    return [sample for sample in samples if sample["time_s"] >= WARM_UP * seconds]


def main() -> int:
    parser = argparse.ArgumentParser(description="Soak a cluster of agents, and see whether anything grows.")
    times = {"type": positive(float), "metavar": "SECONDS"}
    parser.add_argument("--for", dest="seconds", default=7200.0, help="default: 7200", **times)
    parser.add_argument("--every", default=5.0, help="between two changes; default: 5", **times)
    parser.add_argument("--ask", default=0.005, help="between two requests; default: 0.005", **times)
    parser.add_argument("--out", type=Path, default=Path("dist"), metavar="FOLDER", help="default: dist")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    options.out.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="arpguard-soak-"))
    pin_root = PIN_PARENT / folder.name
    try:
        bpffs.prepare(pin_root)
        with KubeLab(NODES, folder, pin_root, [OUTSIDER]) as lab, a_bench(lab, "soak") as bench:
            outcome = soak(bench, options.seconds, options.every, options.ask, lambda text: print(text, flush=True))
    finally:
        bpffs.remove(pin_root)
        shutil.rmtree(folder)
    record.write_csv(options.out / "soak.csv", outcome.records)
    plot.draw(options.out / "soak.png", outcome.records)
    for node, samples in outcome.records.items():
        grown = {name: round(record.growth(samples, name), 2) for name in record.QUANTITIES}
        resident, own = (3600 * record.slope(record.points(samples, name)) for name in ("rss_mb", "anon_mb"))
        print(f"{node}: grown by {grown}; an hour: {resident:+.2f} MB resident, {own:+.2f} MB without pages of files")
    print(", ".join(f"{name}={value}" for name, value in outcome.facts.items()))
    for problem in outcome.problems:
        print(f"NOT AS EXPECTED  {problem}")
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())
