"""The install as it is shipped, at rest on a real control plane: nothing is elected, so there is nothing to tell.

    PYTHONPATH=tests python -m neighbours.resting --for 3600

Agents with the account, the rights and the ConfigMap of `deploy/base`, and what they did for so long: the lines of
their logs by level, what `arpguard_nodes_alive` and `arpguard_problems` said every few seconds and `arpguard status`
every minute, and each of their watches, from the server's audit log. Prints JSON; exits with 1 if anything is not
as it should be.
"""

import argparse
import json
import re
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import yaml

from arpguard_lab.cluster import objects
from arpguard_lab.cluster.bench import KubeBench
from arpguard_lab.cluster.real import Heartbeats
from arpguard_lab.topology import Host
from neighbours.controlplane import ControlPlane, missing
from neighbours.pages import replace_table, surroundings
from neighbours.scene import HOME, Server, a_control_plane, pins

READY_S = 300.0
SAMPLE_S, STATUS_S = 5.0, 60.0
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_LINE = re.compile(rf"^\S+ ({'|'.join(LEVELS)}) ")
_METRICS_PORT = 9469
_MIN_REQUEST_TIMEOUT_S = (
    1800.0  # of kube-apiserver: it ends a watch whose client does not say when after one to two of these
)
_ROUNDING_S = 1.0
_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "users": [f"system:serviceaccount:{HOME}:{objects.ACCOUNT}"]},
        {"level": "None"},
    ],
}


@dataclass(frozen=True)
class Stream:
    """One watch of an agent: when it began, how long it lasted, and how long it was to last at least, in seconds.

    `lasted_s` is None for one that still goes on.
    """

    node: str
    resource: str
    began_s: float
    lasted_s: float | None
    promised_s: float

    @property
    def is_short(self) -> bool:
        """Whether it was over before the server had to end it."""
        return self.lasted_s is not None and self.lasted_s < self.promised_s - _ROUNDING_S


@dataclass
class Figures:
    """What a time at rest came to. `wrong` has all that should not have been, in sentences."""

    seconds: int = 0
    nodes: int = 0
    lines: dict[str, int] = field(default_factory=dict)
    streams: dict[str, int] = field(default_factory=dict)
    short_streams: int = 0
    samples: int = 0
    alive: list[int] = field(default_factory=list)
    problems: list[int] = field(default_factory=list)
    statuses: int = 0
    wrong: list[str] = field(default_factory=list)


def streams_of(audit: Iterable[str], nodes: dict[str, str]) -> list[Stream]:
    """The watches in an audit log (audit.k8s.io/v1, one event a line); `nodes`: the name for each source address."""
    began: dict[str, Stream] = {}
    for line in audit:
        event = json.loads(line)
        if event["verb"] != "watch":
            continue
        at_s = datetime.fromisoformat(event["stageTimestamp"]).timestamp()
        key = event["auditID"]
        if event["stage"] == "ResponseStarted":
            query = parse_qs(urlsplit(event["requestURI"]).query)
            promised_s = float(query.get("timeoutSeconds", [_MIN_REQUEST_TIMEOUT_S])[0])
            node = nodes.get(event["sourceIPs"][0], event["sourceIPs"][0])
            began[key] = Stream(node, event["objectRef"]["resource"], at_s, None, promised_s)
        elif key in began:
            first = began[key]
            began[key] = Stream(first.node, first.resource, first.began_s, at_s - first.began_s, first.promised_s)
    return list(began.values())


def levels_of(log: str) -> tuple[Counter[str], list[str]]:
    """How many lines there are of each level, and those that are worse than INFO."""
    counts: Counter[str] = Counter()
    bad = []
    for line in log.splitlines():
        found = _LINE.match(line)
        level = found[1] if found else "ERROR"  # a traceback
        counts[level] += 1
        if LEVELS.index(level) > LEVELS.index("INFO"):
            bad.append(line)
    return counts, bad


class Resting(KubeBench):
    """Agents with nothing to do."""

    def config(self, **_: object) -> str:  # type: ignore[override]
        """What the agents begin with: the ConfigMap says the same."""
        return shipped_config()

    def set_up(self) -> None:
        """Nodes, and agents that are ready; the ConfigMap is installed already."""
        for host in self.nodes:
            self.server.api.create("/api/v1/nodes", objects.node(self.server.node_name(host), host.address))
        for host in self.nodes:
            self.prepare(host)
            self.agent(host).start()
        for host in self.nodes:
            self.agent(host).wait_for(timeout_s=READY_S)

    def metric(self, host: Host, name: str) -> int:
        """The value of a metric without labels."""
        text = host.netns.call(_metrics)
        row = next(line for line in text.splitlines() if line.startswith(f"{name} "))
        return int(float(row.split()[-1]))

    def is_complete(self) -> bool:
        """Whether every node knows of all that they live."""
        return all(self.metric(host, "arpguard_nodes_alive") == len(self.nodes) for host in self.nodes)


def rest(bench: Resting, plane: ControlPlane, seconds: float) -> Figures:
    """Lets time pass, from when all nodes are known to live, and says what came of it."""
    bench.until(bench.is_complete, READY_S, "every node knows that all live")
    figures = Figures(seconds=round(seconds), nodes=len(bench.nodes))
    before = {host: len(bench.agent(host).said()) for host in bench.nodes}
    end_s, next_status_s = time.monotonic() + seconds, time.monotonic()
    alive, problems = set(), set()
    while time.monotonic() < end_s:
        for host in bench.nodes:
            alive.add(_noted(figures, bench, host, "arpguard_nodes_alive", len(bench.nodes)))
            problems.add(_noted(figures, bench, host, "arpguard_problems", 0))
        figures.samples += 1
        if time.monotonic() >= next_status_s:
            next_status_s += STATUS_S
            _note_status(figures, bench)
        time.sleep(max(0.0, min(SAMPLE_S, end_s - time.monotonic())))
    figures.alive, figures.problems = sorted(alive), sorted(problems)
    _note_logs(figures, bench, before)
    _note_streams(figures, bench, plane)
    return figures


def _noted(figures: Figures, bench: Resting, host: Host, name: str, right: int) -> int:
    found = bench.metric(host, name)
    if found != right:
        figures.wrong.append(f"{_now()} {host.name}: {name} {found}, not {right}")
    return found


def _note_status(figures: Figures, bench: Resting) -> None:
    for host in bench.nodes:
        status = bench.status(host)
        figures.statuses += 1
        if status.get("problems"):
            figures.wrong.append(f"{_now()} {host.name}: status has problems: {status['problems']}")


def _note_logs(figures: Figures, bench: Resting, before: dict[Host, int]) -> None:
    total: Counter[str] = Counter()
    for host, length in before.items():
        counts, bad = levels_of(bench.agent(host).said()[length:])
        total += counts
        figures.wrong += [f"{host.name}: {line}" for line in bad]
    figures.lines = dict(total)


def _note_streams(figures: Figures, bench: Resting, plane: ControlPlane) -> None:
    nodes = {f"203.0.113.{bench.lab.number(host)}": host.name for host in bench.nodes}
    found = streams_of((plane.folder / "audit.log").read_text(encoding="utf-8").splitlines(), nodes)
    figures.streams = dict(Counter(f"{each.node} {each.resource}" for each in found))
    short = [each for each in found if each.is_short]
    figures.short_streams = len(short)
    figures.wrong += [
        f"{each.node}: a watch of {each.resource} lasted {each.lasted_s:.1f} s of {each.promised_s:.0f} s"
        for each in short
    ]


def table(figures: Figures) -> str:
    """The figures as a table."""
    streams = sorted(set(figures.streams.values()))
    ill = sum(": status has problems" in line for line in figures.wrong)
    rows = {
        "log lines": ", ".join(f"{count} {level}" for level, count in figures.lines.items()) or "none",
        "watches that one agent opened for one resource": " to ".join(
            map(str, dict.fromkeys((streams[0], streams[-1])))
        ),
        "watches that ended before their timeout": figures.short_streams,
        f"`arpguard_nodes_alive`, read {figures.samples} times from each agent": ", ".join(map(str, figures.alive)),
        f"`arpguard_problems`, read {figures.samples} times from each agent": ", ".join(map(str, figures.problems)),
        "`arpguard status` with a problem": f"{ill} of {figures.statuses}",
        "deviations in total": len(figures.wrong),
    }
    head = [surroundings(), "", f"| {figures.nodes} nodes, {figures.seconds} s | |", "|---|---|"]
    return "\n".join([*head, *(f"| {name} | {value} |" for name, value in rows.items()), ""])


def shipped_config() -> str:
    """The configuration in the ConfigMap of `deploy/base`."""
    path = Path(__file__).parents[2] / "deploy" / "base" / "configmap.yaml"
    return str(yaml.safe_load(path.read_text(encoding="utf-8"))["data"]["config.yaml"])


@contextmanager
def agents_at_rest(folder: Path) -> Iterator[tuple[Resting, ControlPlane]]:
    """Nodes with agents on a control plane that keeps an audit log of them."""
    policy = folder / "policy.yaml"
    policy.write_text(yaml.safe_dump(_POLICY), encoding="utf-8")
    audit = [f"--audit-policy-file={policy}", f"--audit-log-path={folder}/plane/audit.log"]
    with pins() as pin_root, a_control_plane(folder, pin_root, audit) as (lab, plane):
        server = Server(lab, plane)
        server.start()
        bench = Resting(lab, server, "resting")
        heartbeats = Heartbeats(plane.api, [server.node_name(host) for host in lab.nodes])
        heartbeats.start()
        try:
            bench.set_up()
            yield bench, plane
        finally:
            bench.tear_down()
            heartbeats.stop()


def _metrics() -> str:
    with closing(socket.create_connection(("127.0.0.1", _METRICS_PORT), 10.0)) as opened:
        opened.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        parts = []
        while part := opened.recv(1 << 16):
            parts.append(part)
    return b"".join(parts).decode(errors="replace")


def _now() -> str:
    return time.strftime("%H:%M:%S")


def main() -> int:
    """Runs it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--for", dest="seconds", type=float, default=3600.0, help="seconds at rest (default: 3600)")
    parser.add_argument("--write", type=Path, help="the page whose table this run replaces")
    parser.add_argument("--keep", type=Path, help="a folder for logs and the audit log (default: a temporary one)")
    asked = parser.parse_args()
    if (why := missing()) is not None:
        print(f"neighbours: skipped: {why}")
        return 0
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="arpguard-resting-") as temporary:
        folder = asked.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        with agents_at_rest(folder) as (bench, plane):
            print(f"{_now()} resting for {asked.seconds:g} s", file=sys.stderr, flush=True)
            figures = rest(bench, plane, asked.seconds)
    print(json.dumps(asdict(figures), indent=1))
    if asked.write:
        replace_table(asked.write, "resting", table(figures))
    return 1 if figures.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
