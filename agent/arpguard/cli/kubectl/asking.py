"""The commands whose answers of all nodes are shown side by side."""

import argparse
from collections.abc import Iterator, Sequence

from arpguard.cli import everywhere, render, tables
from arpguard.cli.audit import OF_NODES
from arpguard.cli.everywhere import View
from arpguard.cli.kubectl import reach
from arpguard.cli.options import DEFAULT_LIMIT, filters
from arpguard.v1 import agent_pb2 as pb


def forwarded(options: argparse.Namespace, *names: str) -> Iterator[str]:
    """Options as words for the agent's own command, which knows them by the same names."""
    for name in names:
        value = getattr(options, name)
        for each in value if isinstance(value, list) else [value]:
            if each:
                yield f"--{name.replace('_', '-')}={each}"
    if getattr(options, "since", None) is not None:
        yield f"--since={options.since:.3f}s"


def show_status(options: argparse.Namespace) -> int:
    """`kubectl arpguard status`."""
    return reach.show(options, ["status"], pb.GetStatusResponse, everywhere.STATUSES)


def show_vips(options: argparse.Namespace) -> int:
    """`kubectl arpguard vips`: shows a list for one address, too, so that the nodes' entries can be compared."""
    words = ["vips", *forwarded(options, "link", "kind"), *_address(options)]
    return reach.show(options, words, pb.ListVipsResponse, everywhere.vips(options))


def explain(options: argparse.Namespace) -> int:
    """`kubectl arpguard explain`."""
    words = ["explain", *forwarded(options, "link", "operation", "sender_mac", "sender_address"), *_address(options)]
    return reach.show(options, words, pb.ExplainVipResponse, everywhere.explanations(options))


def show_decisions(options: argparse.Namespace) -> int:
    """`kubectl arpguard decisions`."""
    if options.follow:
        from arpguard.cli.kubectl.following import follow  # noqa: PLC0415 - for this option only

        return follow(options)
    limit = options.limit or DEFAULT_LIMIT
    words = ["decisions", f"--limit={limit}", *forwarded(options, "vip", "link", "verdict", "reason")]
    view: View[pb.ListDecisionsResponse] = View(
        lambda answers: _decisions(answers, limit, filters(options)), lambda _answers: True
    )
    return reach.show(options, words, pb.ListDecisionsResponse, view)


def _decisions(answers: Sequence[tuple[str, pb.ListDecisionsResponse]], limit: int, filters: str) -> str:
    """Those of all nodes, the latest first."""
    found = [(node, decision) for node, answer in answers for decision in answer.decisions]
    found.sort(key=lambda row: (row[1].last_time.seconds, row[1].last_time.nanos), reverse=True)
    rows = [(node, *tables.decision_row(decision), decision.count) for node, decision in found[:limit]]
    head = ("NODE", *tables.DECISION_COLUMNS, "COUNT")
    nothing = tables.nothing("decision", filters, "has been reported since the agents started")
    return render.table(head, rows, "REASON", tables.SPARE_OF_DECISIONS) if rows else nothing


def show_conflicts(options: argparse.Namespace) -> int:
    """`kubectl arpguard conflicts`."""
    words = ["conflicts", *forwarded(options, "vip", "link", "claimant")]
    return reach.show(options, words, pb.ListConflictsResponse, everywhere.conflicts(options))


def audit(options: argparse.Namespace) -> int:
    """`kubectl arpguard audit`."""
    return reach.show(options, ["audit", *_address(options)], pb.ListAuditsResponse, OF_NODES)


def _address(options: argparse.Namespace) -> list[str]:
    """ADDRESS, which must not be taken for an option."""
    return ["--", options.vip] if options.vip else []
