"""`arpguard watch`: the whole screen, until q or Ctrl-C."""

import argparse
import time
from collections.abc import Iterator
from functools import partial

from rich.console import Group, RenderableType
from rich.text import Text

from arpguard.cli import documents, exits, screen, tables
from arpguard.cli.client import AgentQuestions, Target, connected, every_page
from arpguard.cli.clustering import owner, watch_line
from arpguard.cli.polling import Poller, Sample, VipRate
from arpguard.cli.render import clean, shortened
from arpguard.cli.screen import LOWEST, MEDIUM, MODE_STYLE, WIDE, Column, in_style, line, table
from arpguard.cli.targets import target
from arpguard.cli.watchkeys import HELP, Keys, by_address
from arpguard.cli.words import (
    NONE,
    age,
    counted,
    fences,
    outcome,
    problems,
    programs,
    seconds_since,
    span,
    time_of_day,
    word,
)
from arpguard.v1 import agent_pb2 as pb

_MOST_VIPS, _MOST_CLAIMS = 1000, 100  # in a document
_TRYING = "no answer from {}: trying again"
_VERDICT_STYLE = {pb.VERDICT_CONFLICT: "bold red", pb.VERDICT_REPORT: "yellow"}  # the latter may be the owner


def watch(options: argparse.Namespace) -> int:
    """`arpguard watch`: shows the view until the user leaves it."""
    if options.output in ("json", "yaml"):
        return _print(options)
    asked = target(options)
    screen.need_terminal("`arpguard status` and `arpguard decisions --follow` need none")

    with connected(asked) as agent:
        poller = Poller(agent, options.interval)
        poller.start()
        screen.show(lambda: poller.latest, partial(view, asked))
        poller.end()

    return exits.OK


def _print(options: argparse.Namespace) -> int:
    """A document at each interval, until it is interrupted. AskError when the agent stops."""
    with connected(target(options)) as agent:
        poller = Poller(agent, options.interval)
        while True:
            due_s = time.monotonic() + options.interval
            print(documents.stream_document(_document(poller.look(), agent), options.output), flush=True)
            time.sleep(max(0.0, due_s - time.monotonic()))


def _document(sample: Sample, agent: AgentQuestions) -> dict[str, object]:
    """What is known at one moment, for programs; of many VIPs the first ones, the same on all nodes."""
    vips = sorted(sample.vips, key=by_address)[:_MOST_VIPS]
    claims = every_page(agent.list_conflicts, pb.ListConflictsRequest(), _MOST_CLAIMS).conflicts
    return {
        "status": documents.as_dict(sample.status) if sample.status else {},
        "framesPerSecond": round(sample.per_second, 1),
        "vips": list(map(_vip_document, vips)),
        "conflicts": [documents.as_dict(claim) for claim in claims],
    }


def _vip_document(reading: VipRate) -> dict[str, object]:
    rates = {"frames": reading.total, "framesPerSecond": round(reading.per_second, 1)}
    return {"vip": documents.as_dict(reading.vip), **rates}


def view(target: Target, sample: Sample, width: int, height: int, keys: Keys) -> RenderableType:
    """The whole view, in this many columns and lines."""
    refusal = screen.too_small(width, height)
    if refusal:
        return refusal

    head = list(_head(target, sample, width))[: height - LOWEST + 2]
    if keys.helps:
        return Group(*head, Text(), table(screen.HELP, HELP[: height - len(head) - 2], width))
    if sample.status is None:
        return Group(*head)

    links = sample.status.links[: max(1, height // 8)]
    # Each of the three tables has a line of titles and an empty one above it; the last line tells how to leave.
    left = max(2, height - len(head) - len(links) - 7)
    found, decided = keys.vips(sample.vips), keys.decisions(sample.decisions)
    room = max(left * 3 // 5, left - len(decided))
    first = min(keys.first, max(0, len(found) - room))
    vips = found[first : first + room]
    decisions = decided[: left - len(vips)]

    return Group(
        *head,
        Text(),
        table(_LINKS, links, width),
        Text(),
        table(_VIPS, vips, width),
        Text(),
        table(_DECISIONS, decisions, width),
        *[Text()] * (left - len(vips) - len(decisions)),
        screen.footer(keys, range(first, first + len(vips)), len(found), len(sample.vips)),
    )


def _head(target: Target, sample: Sample, width: int) -> Iterator[Text]:
    """The node, its problems, and its state: a low screen has room for the first two lines only."""
    status = sample.status
    if status is not None:
        yield line(_title(status, sample, width), width)

    if sample.trouble:
        old = f"; the data shown is {span(time.monotonic() - sample.at_s)} old" if status else ""
        room = max(20, width - len(_TRYING) - len(old))
        yield line(Text(_TRYING.format(shortened(clean(target.address), room)) + old, "bold red"), width)
        yield line(Text(clean(f"({sample.trouble})"), "dim"), width)
    elif status is None:
        yield line(Text(clean(f"asking {target.address}")), width)

    if status is not None:
        wrong = problems(status)
        if wrong:
            more = f" (and {len(wrong) - 1} more: arpguard status)" if len(wrong) > 1 else ""
            first = shortened(clean(f"{counted(len(wrong), 'problem')}: {wrong[0]}"), width - len(more))
            yield line(Text(first + more, "bold red"), width)
        if status.kubernetes.server:
            text, well = watch_line(status)
            yield line(Text(clean(text), "" if well else "bold red"), width)

        yield line(_account(status), width)


def _title(status: pb.GetStatusResponse, sample: Sample, width: int) -> Text:
    """What matters most first; a screen without room for both fences has the first one to pass."""
    left = fences(status) if width >= WIDE else f"{tables.fence(status)} left"
    parts = [
        Text(clean(status.node), "bold"),
        Text(word(status, "mode"), MODE_STYLE.get(status.mode, "")),
        Text(f"up {span(seconds_since(status.start_time))}"),
        Text(f"fence {left}" if status.HasField("fence_left") else "no fence needed"),
        Text(screen.rate(sample.per_second)),
    ]
    if not problems(status):  # the others have a line of their own
        parts.insert(2, Text("no problems", "green"))
    return Text("   ").join(parts)


def _account(status: pb.GetStatusResponse) -> Text:
    """What matters most first: a narrow screen ends somewhere here."""
    events = status.events
    text = Text(f"reports lost: {events.lost:,}", "bold red" if events.lost else "")
    kinds = ", ".join(f"{kind.count:,} {word(kind, 'kind')}" for kind in status.kinds) or "none"
    rest = f"   VIPs: {kinds}   reports held back: {events.limited:,}, delivered: {events.delivered:,}"
    return text.append(rest, "not bold default")


_KIND_STYLE = {pb.KIND_OWNED: "green"}


def _busiest_reason(vip: pb.Vip) -> str:
    counts = [(count.enforced + count.observed, word(count, "reason")) for count in vip.reasons]
    return max(counts)[1] if counts else NONE


_LINKS: tuple[Column[pb.Link], ...] = (
    Column("LINK", lambda link: link.name),
    Column("STATE", lambda link: in_style("up", "green") if link.up else in_style("down", "bold red")),
    Column("VIPS", lambda link: f"{link.vips:,}", number=True),
    Column("INGRESS", lambda link: programs(link, outgoing=False) or in_style("none", "bold red")),
    Column("EGRESS", lambda link: programs(link, outgoing=True) or in_style("none", "bold red")),
    Column("MAC", lambda link: link.mac, WIDE),
    Column("ADDRESSES", lambda link: " ".join(link.addresses) or NONE, WIDE, yielding=True),
)
_VIPS: tuple[Column[VipRate], ...] = (
    Column("VIP", lambda reading: reading.vip.address),
    Column("LINK", lambda reading: reading.vip.link),
    Column("KIND", lambda reading: in_style(word(reading.vip, "kind"), _KIND_STYLE.get(reading.vip.kind, ""))),
    Column("MODE", lambda reading: in_style(word(reading.vip, "mode"), MODE_STYLE.get(reading.vip.mode, ""))),
    Column("OWNER", lambda reading: owner(reading.vip).text, WIDE),
    Column("FRAMES/S", lambda reading: f"{reading.per_second:,.0f}", number=True),
    Column("TOTAL", lambda reading: f"{reading.total:,}", number=True),
    Column("TOP REASON", lambda reading: _busiest_reason(reading.vip), WIDE, yielding=True),
)
_DECISIONS: tuple[Column[pb.Decision], ...] = (
    Column("TIME", lambda found: time_of_day(found.last_time)),
    Column("LINK", lambda found: found.link, WIDE),
    Column("VIP", lambda found: found.vip or NONE),
    Column("VERDICT", lambda found: in_style(outcome(found), _VERDICT_STYLE.get(found.verdict, ""))),
    Column("REASON", lambda found: word(found, "reason"), yielding=True),
    Column("FROM", lambda found: found.sha, MEDIUM),
    Column("REPORTS", lambda found: f"{found.count:,}", WIDE, number=True),
    Column("LAST", lambda found: age(found.last_time), WIDE),
)
