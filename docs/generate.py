"""Writes docs/reasons.md and docs/metrics.md from the code: `make docs`. A test compares."""

from pathlib import Path

from prometheus_client.process_collector import ProcessCollector

from arpguard.observe.metrics import SPECS
from arpguard.verdict import Reason

FOLDER = Path(__file__).parent
_REASONS = """# Reasons

Why a frame got its verdict: one list for the BPF programs, the agent, its API, its metrics and this page.
Each reason has one verdict.
Each is counted for every VIP and for the node.
Decisions that were carried out and those that were only observed are counted apart.

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


PAGES = {"reasons.md": reasons_page, "metrics.md": metrics_page}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")
