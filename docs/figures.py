"""The numbers in prose, which come from docs/figures.json: `<!--fence-->2 s<!--/-->` shows the figure `fence`.

`defaults` come from the code. `measured` have the day and the command of the run that gave them: edit those by hand, or
take those with a row of `make bench` from its output, by `.venv/bin/python docs/figures.py BENCH.json`. `make docs`
then writes all of them into the pages.
"""

import json
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from arpguard.config.model import AuditConfig, LeaseConfig
from arpguard.core import announcing, electing, leasetimes
from arpguard.core.vouching import voucher
from arpguard.runtime.cluster import kubernetes, leases
from arpguard.units import NS_PER_S

TOP = Path(__file__).resolve().parent.parent
FILE = TOP / "docs/figures.json"
MARK = re.compile(r"<!--([\w-]+)-->([^<]*)<!--/-->")


def defaults() -> dict[str, str]:
    """Those of the code."""
    lease, audit = LeaseConfig(), AuditConfig()
    times = leasetimes.times_of(lease, vouched=True)
    parting, bound = times.lasting(kubernetes.PARTING_NS), times.at_bound
    return {
        "lease": _span(lease.duration_ns),
        "margin": _span(lease.margin_ns),
        "renew": _span(lease.renew_ns),
        "fence": _span(times.answers_ns),
        "parting": _span(parting.duration_ns),
        "parted-answers": _span(parting.answers_ns // NS_PER_S * NS_PER_S),
        "parted-silent": _span(-(-parting.margin_ns // NS_PER_S) * NS_PER_S),
        "rest-renew": _span(times.at_rest.renew_ns),
        "rest-lease": _span(times.at_rest.duration_ns),
        "sync": _span(times.sync_ns),
        "drain": f"{leases.DRAIN_S * 1000:g} ms",
        "bound-lease": _span(bound.duration_ns),
        "bound-margin": _span(bound.margin_ns),
        "bound-renew": _span(bound.renew_ns),
        "bound-least": _span(bound.answers_ns - bound.renew_ns),
        "bound-answers": f"{_seconds(bound.answers_ns - bound.renew_ns)} to {_span(bound.answers_ns)}",
        "pings": f"{NS_PER_S // voucher.PING_NS} times a second",
        "defence": _span(announcing.DEFEND_INTERVAL_NS),
        "balance": _span(electing.BATCH_NS),
        "next-choice": _span(electing.BACKUP_NS),
        "settle": _span(electing.SETTLE_NS),
        "audit": _span(audit.every_ns),
    }


def _span(ns: int) -> str:
    return f"{_seconds(ns)} s"


def _seconds(ns: int) -> str:
    return f"{ns / NS_PER_S:g}"


def known() -> dict[str, Any]:
    """The file, with the defaults as they have to be."""
    measured = json.loads(FILE.read_text(encoding="utf-8"))["measured"] if FILE.exists() else {}
    return {"defaults": defaults(), "measured": measured}


def filled(text: str, figures: Mapping[str, Any] | None = None) -> str:
    """A page with its figures as they have to be. KeyError for one that there is none of."""
    found = figures or known()
    values = found["defaults"] | {name: each["value"] for name, each in found["measured"].items()}
    return MARK.sub(lambda mark: f"<!--{mark[1]}-->{values[mark[1]]}<!--/-->", text)


def marked_pages() -> Iterator[Path]:
    """The pages that show a figure, from docs."""
    for path in [TOP / "README.md", *sorted(FILE.parent.glob("*.md"))]:
        if MARK.search(path.read_text(encoding="utf-8")):
            yield Path(os.path.relpath(path, FILE.parent))


def benched(measured: Mapping[str, Any], bench: Mapping[str, Any], day: str) -> dict[str, Any]:
    """What was measured, with the rows of `make bench BENCH=--json` taken over."""
    rows = {(name, row["name"]): row for name, section in bench.items() for row in section["rows"]}
    taken = {}
    for name, figure in measured.items():
        row = rows.get(tuple(figure.get("row", ())))
        taken[name] = figure if row is None else figure | {"value": f"{row['median']:.2g} {row['unit']}", "day": day}
    return taken


def as_text(figures: Mapping[str, Any]) -> str:
    """The file's text."""
    return json.dumps(figures, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Takes over what `make bench` has measured."""
    bench = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    found = known()
    found["measured"] = benched(found["measured"], bench, time.strftime("%Y-%m-%d", time.gmtime()))
    FILE.write_text(as_text(found), encoding="utf-8")


if __name__ == "__main__":
    main()
