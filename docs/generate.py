"""Writes docs/reasons.md, docs/metrics.md and the diagram of docs/protocol.md from the code: `make docs`.

A test compares.
"""

import re
from pathlib import Path

from prometheus_client.process_collector import ProcessCollector

from arpguard.core.ownership.stages import TRANSITIONS, Owned, Stage
from arpguard.observe.metrics import SPECS
from arpguard.verdict import Reason

FOLDER = Path(__file__).parent
_REASONS = """# Reasons

Why a frame got its verdict: one list for the BPF programs, the agent, its API, its metrics and this page.
Each reason has one verdict.
Each is counted for every VIP and for the node.
Decisions that were carried out and those that were only observed are counted apart.
How to add one: [bpf/README.md](../bpf/README.md#adding-a-reason).

| number | reason | verdict | meaning |
|---|---|---|---|
"""
_METRICS = """# Metrics

`http://NODE:9469/metrics`, for Prometheus.
`metrics.listen` in the [configuration](configuration.md) says where, or `off`.
A scrape reads the kernel's maps and the agent's state at that moment.
An agent that hangs answers 503, or nothing: it looks down. The guard in the kernel goes on all the same.
No label has a value that a neighbour can choose: claims are listed by VIP and link, never by MAC address.
Verdicts and reasons are those of [reasons.md](reasons.md).
Those about Kubernetes, Leases, nodes and elected VIPs are there where the agent follows Kubernetes only.
Dashboard, alert rules and scrape configurations are in [deploy/monitoring](../deploy/monitoring/README.md).

| metric | type | labels | meaning |
|---|---|---|---|
"""
_PROCESS = """
Of the agent's process, under the names that all Prometheus clients use:

| metric | type | meaning |
|---|---|---|
"""
_OF_OWNED = """\
        answers while the fence lies ahead;
        stays over a restart of the agent
"""


def reasons_page() -> str:
    """The page about reasons as it has to be."""
    return _REASONS + "".join(
        f"| {reason.value} | `{reason.name.lower()}` | {reason.verdict.name.lower()} | {reason.meaning} |\n"
        for reason in Reason
    )


def metrics_page() -> str:
    """The page about metrics as it has to be."""
    ours = (
        f"| `{spec.name}` | {spec.kind} | {', '.join(f'`{label}`' for label in spec.labels)} | {spec.help} |\n"
        for spec in SPECS
    )
    process = (
        f"| `{sample.name}` | {family.type} | {family.documentation} |\n"
        for family in ProcessCollector(registry=None).collect()
        for sample in family.samples
    )
    return "".join([_METRICS, *ours, _PROCESS, *process])


def protocol_page() -> str:
    """The page about the claim protocol, with the diagram as it has to be."""
    causes: dict[tuple[type[Stage] | None, type[Stage]], list[str]] = {}
    for (before, cause), to in TRANSITIONS.items():
        causes.setdefault((before, to), []).append(cause.value)

    arrows = "".join(
        f"    {_state(before)} --> {_state(to)}: {' / '.join(why)}\n" for (before, to), why in causes.items()
    )
    diagram = f"stateDiagram-v2\n{arrows}    note right of {_state(Owned)}\n{_OF_OWNED}    end note\n"
    page = (FOLDER / "protocol.md").read_text(encoding="utf-8")
    return re.sub(r"(?<=^```mermaid\n)stateDiagram-v2\n.*?(?=^```$)", diagram, page, flags=re.MULTILINE | re.DOTALL)


def _state(stage: type[Stage] | None) -> str:
    return stage.__name__.lower() if stage else "[*]"


PAGES = {"reasons.md": reasons_page, "metrics.md": metrics_page, "protocol.md": protocol_page}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")
