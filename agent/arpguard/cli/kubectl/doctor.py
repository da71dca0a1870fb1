"""`kubectl arpguard doctor`: every node checks itself; what they found, the worst first."""

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from arpguard.cli import documents, exits, render
from arpguard.cli.doctor import MOST_SHOWN, WORST_FIRST, details, styled
from arpguard.cli.kubectl import reach
from arpguard.cli.kubectl.reach import Said
from arpguard.core.bounding import some
from arpguard.core.checkup.findings import Finding, Grade
from arpguard.kube.errors import JsonObject

_CONFIG = "/etc/arpguard/config.yaml"  # where the DaemonSet mounts the ConfigMap
_SHOWN = (Grade.BAD, Grade.WARN, Grade.UNKNOWN)
_NODES_SHOWN = 3


@dataclass(slots=True)
class Found:
    """A finding of a check, and the nodes that have it."""

    check: str
    finding: Finding
    nodes: list[str]

    @property
    def key(self) -> tuple[object, ...]:
        """What makes findings of several nodes one."""
        return self.check, self.finding.grade, self.finding.about, self.finding.seen


@dataclass(frozen=True, slots=True)
class NodeReport:
    """What `arpguard doctor -o json` wrote on a node, and what is shown of it."""

    plain: JsonObject
    grade: Grade
    of_checks: Sequence[Grade]
    found: Sequence[Found]


def run_doctor(options: argparse.Namespace) -> int:
    """Exit code 1 when something is bad, or a node did not answer."""
    more = ["--no-ask"] if options.no_ask else []
    heard = reach.hear(options, ["doctor", "--output=json", f"--config={_CONFIG}", *more])
    reports = {said.pod.node: report for said in heard if (report := _report(said)) is not None}
    silent = [said for said in heard if said.pod.node not in reports]

    if options.output == "table":
        print("\n\n".join([*_page(reports), *_silent(silent)]))
    else:
        nodes = [_plain(said, reports.get(said.pod.node)) for said in heard]
        print(documents.document({"nodes": nodes}, options.output))

    if not reports:
        return exits.UNREACHABLE
    bad = any(report.grade is Grade.BAD for report in reports.values())
    return exits.NOT_RIGHT if bad or silent else exits.OK


def _report(said: Said) -> NodeReport | None:
    """None if there is no report, or this version cannot read it: an agent of another version may have written it."""
    try:
        return _read(json.loads(said.text), said.pod.node)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _read(plain: JsonObject, node: str) -> NodeReport:
    """Raises ValueError, KeyError or TypeError for anything but a report."""
    checks = plain["checks"]
    found = [
        Found(str(check["check"]), _finding(each), [node])
        for check in checks
        for each in check["findings"][:MOST_SHOWN]
    ]
    return NodeReport(plain, Grade(plain["verdict"]), [Grade(check["verdict"]) for check in checks], found)


def _finding(plain: JsonObject) -> Finding:
    return Finding(
        grade=Grade(plain["verdict"]),
        seen=str(plain["seen"]),
        about=str(plain["about"]),
        why=str(plain["means"]),
        fix=str(plain["fix"]),
        commands=tuple(str(line) for line in plain["commands"]),
    )


def _plain(said: Said, report: NodeReport | None) -> dict[str, object]:
    head = {"node": said.pod.node, "target": said.pod.name, "error": "" if report else _why(said)}
    return {**head, **(report.plain if report else {}), "node": said.pod.node}


def _why(said: Said) -> str:
    return said.error or "its agent's answer is not valid"


def _silent(heard: Iterable[Said]) -> Iterator[str]:
    """The nodes that have no report, as a block."""
    lines = [line for said in heard for line in render.wrapped(f"{said.pod.node}: {_why(said)}", render.page_width())]
    if lines:
        yield "\n".join(str(render.bad(line)) for line in lines)


def _page(reports: dict[str, NodeReport]) -> Iterator[str]:
    """A table of the nodes, a table of what is not well, and what that means and how to fix it."""
    if not reports:
        return
    found = sorted(_findings(reports.values()), key=lambda each: (WORST_FIRST.index(each.finding.grade), each.check))
    yield render.table(("NODE", "VERDICT", *(grade.value.upper() for grade in WORST_FIRST)), _nodes(reports))
    if found:
        yield render.table(("CHECK", "VERDICT", "NODES", "ABOUT", "SEEN"), map(_row, found), yielding="SEEN")
    for each in found:
        if each.finding.grade in (Grade.BAD, Grade.WARN):
            yield details(each.check, each.finding, ", ".join(each.nodes))


def _nodes(reports: dict[str, NodeReport]) -> list[tuple[object, ...]]:
    """A line for each node, the worst first."""
    rows = []
    for node, report in reports.items():
        counts = [report.of_checks.count(grade) for grade in WORST_FIRST]
        rows.append((tuple(-count for count in counts), node, report.grade, counts))
    return [(node, styled(grade), *counts) for _, node, grade, counts in sorted(rows, key=lambda row: row[:2])]


def _findings(reports: Iterable[NodeReport]) -> list[Found]:
    """What is not well; equal findings of several nodes are one."""
    merged: dict[tuple[object, ...], Found] = {}
    for each in (each for report in reports for each in report.found if each.finding.grade in _SHOWN):
        first = merged.setdefault(each.key, each)
        if first is not each:
            first.nodes += each.nodes
    return list(merged.values())


def _row(found: Found) -> tuple[object, ...]:
    finding = found.finding
    return found.check, styled(finding.grade), some(found.nodes, _NODES_SHOWN), finding.about or "-", finding.seen
