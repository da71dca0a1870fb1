"""`arpguard doctor`: this node, checked; nothing is changed."""

import argparse
import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from arpguard import __version__
from arpguard.cli import client, documents, exits, render, tables
from arpguard.cli.arguments import node_name
from arpguard.cli.client import Target, spelt_out
from arpguard.cli.exits import AskError
from arpguard.cli.words import problems, seconds_since
from arpguard.core.checkup.findings import Finding, Grade, worst
from arpguard.core.checkup.snapshot import AgentWord, Rival, Unread
from arpguard.core.checkup.table import Result, examine
from arpguard.runtime.checkup import Wanted, look, read_setting
from arpguard.v1 import agent_pb2 as pb

MOST_SHOWN = 5  # findings of one check
_AGENT_TIMEOUT_S = 2.0
_MAX_CLAIMS = 1000
_STYLES: dict[Grade, Callable[[str], render.Styled]] = {
    Grade.SKIP: render.Styled,
    Grade.OK: render.good,
    Grade.WARN: render.careful,
    Grade.BAD: render.bad,
    Grade.UNKNOWN: render.strong,
}
WORST_FIRST = list(reversed(Grade))
_KEEP = "# These settings last until the next boot. To make them permanent, write them to a file under /etc/sysctl.d."


def run_doctor(options: argparse.Namespace) -> int:
    """`arpguard doctor`; exit code 1 when something needs fixing."""
    wanted = Wanted(
        node=node_name(options),
        config=options.config,
        configmap=options.configmap or "",
        kubeconfig=options.kubeconfig,
        pin_dir=options.pin_dir,
        ask=not options.no_ask,
    )

    results = asyncio.run(_examine(wanted, options.agent))

    if options.output != "table":
        print(documents.document(as_json(wanted.node, results), options.output))
    elif options.fix_hints:
        print("\n".join(hints(results)))
    else:
        print(page(results))

    return exits.NOT_RIGHT if worst(result.grade for result in results) is Grade.BAD else exits.OK


async def _examine(wanted: Wanted, agent: str | None) -> tuple[Result, ...]:
    setting = await read_setting(wanted)
    target = spelt_out(agent or next(iter(setting.config.grpc.listen), ""))
    word_of = await asyncio.to_thread(_ask_agent, target)
    return examine(await look(wanted, setting, word_of))


def _ask_agent(target: str) -> AgentWord | Unread:
    """The agent on this node, if one answers."""
    if not target:
        return Unread("grpc.listen is empty in the agent's configuration, so the agent cannot be reached")
    path = target.removeprefix("unix://")
    if path != target and not Path(path).exists():
        return Unread(f"no agent listens at {target}")
    try:
        with client.connected(Target(target, timeout_s=_AGENT_TIMEOUT_S)) as asked:
            status = asked.get_status(pb.GetStatusRequest())
            answer = asked.list_conflicts(pb.ListConflictsRequest(page_size=_MAX_CLAIMS))
    except AskError as error:
        return Unread(str(error))
    claims = tuple(_claim(conflict) for conflict in answer.conflicts if tables.is_conflict(conflict))
    return AgentWord(status.node, tuple(problems(status)), claims, status.kubernetes.vouching.lacks_right)


def _claim(conflict: pb.Conflict) -> Rival:
    return Rival(
        vip=conflict.vip,
        link=conflict.link,
        mac=conflict.mac,
        who=tables.claimant(conflict),
        count=conflict.count,
        of_node=tables.is_split_brain(conflict),
        ago_s=seconds_since(conflict.last_time),
    )


# ---- what is printed ---------------------------------------------------------------------------------------------


def page(results: Sequence[Result]) -> str:
    """A table of all findings, the worst first, and below it what the bad ones mean and how to fix them."""
    results = sorted(results, key=lambda result: WORST_FIRST.index(result.grade))
    rows = [row for result in results for row in _rows(result)]
    blocks = [render.table(("CHECK", "VERDICT", "ABOUT", "SEEN"), rows, yielding="SEEN")]
    blocks += [
        details(result.check.name, finding)
        for result in results
        for finding in result.findings[:MOST_SHOWN]
        if finding.grade in (Grade.WARN, Grade.BAD)
    ]

    counts = {grade: sum(result.grade is grade for result in results) for grade in Grade}
    told = ", ".join(f"{count} {grade.value}" for grade, count in counts.items() if count)
    hint = "; --fix-hints prints the commands that fix what is bad" if counts[Grade.BAD] else ""
    blocks.append(render.paragraphs(f"{len(results)} checks: {told}{hint}"))
    return "\n\n".join(blocks)


def _rows(result: Result) -> Iterator[tuple[object, ...]]:
    for finding in result.findings[:MOST_SHOWN]:
        yield result.check.name, styled(finding.grade), finding.about or "-", finding.seen
    left_out = result.findings[MOST_SHOWN:]
    if left_out:
        grade = worst(finding.grade for finding in left_out)
        yield result.check.name, styled(grade), f"{len(left_out)} more", "-o json shows them"


def styled(grade: Grade) -> render.Styled:
    """A grade in its colour."""
    return _STYLES[grade](grade.value)


def details(check: str, finding: Finding, nodes: str = "") -> str:
    """What a finding means, and how to fix it. `nodes`: those that have it, where several were checked."""
    about = f" {finding.about}" if finding.about else ""
    head = str(_STYLES[finding.grade](f"{check}{about}"))
    pairs = [("on", nodes), ("seen", finding.seen), ("means", finding.why), ("fix", finding.fix)]
    pairs += [("" if number else "run", line) for number, line in enumerate(finding.commands)]
    return head + "\n" + render.facts([pair for pair in pairs if pair[1]], indent="  ")


def hints(results: Iterable[Result]) -> list[str]:
    """A shell script that fixes bad findings; those that need a person's decision are comments in it."""
    lines: list[str] = []
    for result in results:
        for finding in result.findings:
            if finding.grade is Grade.BAD:
                about = f" {finding.about}" if finding.about else ""
                lines.append(render.clean(f"# {result.check.name}{about}: {finding.fix}"))
                lines += [line for line in finding.commands if line not in lines and line.isprintable()]
    if any(line.startswith("sysctl ") for line in lines):
        lines.append(_KEEP)
    return lines or ["# nothing to fix"]


def as_json(node: str, results: Sequence[Result]) -> dict[str, object]:
    """All results for machines."""
    return {
        "node": node,
        "version": __version__,
        "verdict": worst(result.grade for result in results).value,
        "checks": [
            {
                "check": result.check.name,
                "asks": result.check.asks,
                "verdict": result.grade.value,
                "findings": [_finding(finding) for finding in result.findings],
            }
            for result in results
        ],
    }


def _finding(finding: Finding) -> dict[str, object]:
    return {
        "verdict": finding.grade.value,
        "about": finding.about,
        "seen": finding.seen,
        "means": finding.why,
        "fix": finding.fix,
        "commands": list(finding.commands),
    }
