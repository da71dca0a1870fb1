"""`arpguard watch`: the whole screen, until q or Ctrl-C."""

import argparse
import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from arpguard.cli import exits
from arpguard.cli.client import Target, connected
from arpguard.cli.clustering import owner, watch_line
from arpguard.cli.exits import AskError
from arpguard.cli.polling import Poller, Sample, VipRate
from arpguard.cli.render import clean, shortened
from arpguard.cli.targets import target
from arpguard.cli.watchkeys import HELP, ORDERS, Keys
from arpguard.cli.words import (
    NONE,
    age,
    counted,
    duration,
    outcome,
    problems,
    programs,
    seconds_since,
    span,
    time_of_day,
    word,
)
from arpguard.v1 import agent_pb2 as pb

_MOST_TYPED = 1024
_TICK_S = 0.1  # how soon a key or a new size of the terminal is noticed
_NARROWEST, _LOWEST = 60, 12
_MEDIUM = 80
_WIDE = 100  # from here on, all columns
_TRYING = "no agent at {}: trying again"
_ALARMING = {pb.VERDICT_CONFLICT, pb.VERDICT_REPORT}

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """A column of a table: its title, its cells, and how wide the screen must be for it.

    `yielding`: it is shortened before the others are.
    """

    title: str
    cell: Callable[[Row], str | Text]
    from_width: int = 0
    number: bool = False
    yielding: bool = False


def watch(options: argparse.Namespace) -> int:
    """`arpguard watch`: shows the view until somebody leaves it."""
    asked = target(options)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise AskError(exits.USAGE, "needs a terminal: `arpguard status` and `arpguard decisions --follow` need none")

    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)  # rich would believe them; the terminal itself knows its size when that has changed
    exits.leave_on_signals()
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)  # a stopped view would leave its screen to the shell

    with connected(asked) as agent, _typed() as typed, Live(screen=True, auto_refresh=False, console=Console()) as live:
        poller, keys = Poller(agent, options.interval), Keys()
        poller.start()
        sample, shown = poller.latest, None

        while not keys.left:
            keys = keys.after(typed(), len(sample.vips))
            sample = sample if keys.paused else poller.latest
            now = sample.number, live.console.size, int(time.monotonic()), keys
            if now != shown:
                live.update(view(asked, sample, *live.console.size, keys), refresh=True)
                shown = now
        poller.end()

    return exits.OK


@contextmanager
def _typed() -> Iterator[Callable[[], str]]:
    """A function that waits a tick for keys; they are neither shown nor kept until the end of a line."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def key() -> str:
        ready, _, _ = select.select([descriptor], [], [], _TICK_S)
        return os.read(descriptor, _MOST_TYPED).decode(errors="replace") if ready else ""

    try:
        tty.setcbreak(descriptor)
        yield key
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def view(target: Target, sample: Sample, width: int, height: int, keys: Keys) -> RenderableType:
    """Everything, in so many columns and lines."""
    if width < _NARROWEST or height < _LOWEST:
        return _line(Text(f"too small: make it at least {_NARROWEST}x{_LOWEST}"), width)

    head = list(_head(target, sample, width))[: height - _LOWEST + 2]
    if keys.helps:
        return Group(*head, Text(), _table(_HELP, HELP[: height - len(head) - 2], width))
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
        _table(_LINKS, links, width),
        Text(),
        _table(_VIPS, vips, width),
        Text(),
        _table(_DECISIONS, decisions, width),
        *[Text()] * (left - len(vips) - len(decisions)),
        _footer(keys, range(first, first + len(vips)), len(found), len(sample.vips)),
    )


def _footer(keys: Keys, shown: range, found: int, known: int) -> Text:
    """What keys there are, and which VIPs are shown: those of the found ones, of all that are known."""
    parts = ["q leaves, ? helps"]
    if keys.types or keys.needle:
        parts.append(f"/{clean(keys.needle)}{'_' * keys.types}: {found:,} of {counted(known, 'VIP')}")
    if len(shown) < found:
        parts.append(f"{shown.start + 1:,} to {shown.stop:,} of {found:,} VIPs, {ORDERS[keys.order][0]}")
    elif not keys.needle:
        parts.append(f"{counted(known, 'VIP')}, {ORDERS[keys.order][0]}")
    held = [("held still (space) | ", "yellow")] if keys.paused else []
    return Text.assemble(*held, (" | ".join(parts), "dim"), no_wrap=True, overflow="ellipsis")


def _head(target: Target, sample: Sample, width: int) -> Iterator[Text]:
    """Who this is, what is wrong, and how it is: a low screen has room for the first two lines only."""
    status = sample.status
    if status is not None:
        yield _line(_title(status, sample), width)

    if sample.trouble:
        old = f"; what is shown is {span(time.monotonic() - sample.at_s)} old" if status else ""
        room = max(20, width - len(_TRYING) - len(old))
        yield _line(Text(_TRYING.format(shortened(clean(target.address), room)) + old, "bold red"), width)
        yield _line(Text(clean(f"({sample.trouble})"), "dim"), width)
    elif status is None:
        yield _line(Text(clean(f"asking {target.address}")), width)

    if status is not None:
        wrong = problems(status)
        if wrong:
            more = f" (and {len(wrong) - 1} more: arpguard status)" if len(wrong) > 1 else ""
            yield _line(Text(clean(f"{counted(len(wrong), 'problem')}: {wrong[0]}{more}"), "bold red"), width)
        if status.kubernetes.server:
            text, well = watch_line(status)
            yield _line(Text(clean(text), "" if well else "bold red"), width)

        yield _line(_account(status), width)


def _line(text: Text, width: int) -> Text:
    """One line, cut off where the screen ends."""
    text.truncate(width, overflow="ellipsis")
    return text


def _title(status: pb.GetStatusResponse, sample: Sample) -> Text:
    fence = f"fence {duration(status.fence_left)} left" if status.HasField("fence_left") else "no fence needed"
    rate = f"{sample.per_second:,.0f}"
    parts = [
        Text(clean(status.node), "bold"),
        Text(word(status, "mode"), _MODE_STYLE.get(status.mode, "")),
        Text(f"up {span(seconds_since(status.start_time))}"),
        Text(fence),
        Text(f"{rate} frame/s" if rate == "1" else f"{rate} frames/s"),
    ]
    if not problems(status):  # the others have a line of their own
        parts.append(Text("no problems", "green"))
    return Text("   ").join(parts)


def _account(status: pb.GetStatusResponse) -> Text:
    """What matters most first: a narrow screen ends somewhere here."""
    events = status.events
    text = Text(f"{events.lost:,} events lost", "bold red" if events.lost else "")
    kinds = ", ".join(f"{kind.count:,} {word(kind, 'kind')}" for kind in status.kinds) or "none"
    rest = f"   VIPs: {kinds}   {events.limited:,} events kept back, {events.delivered:,} delivered"
    return text.append(rest, "not bold default")


def _table(columns: Sequence[Column[Row]], rows: Sequence[Row], width: int) -> Table:
    """The columns that there is room for, one line for each row."""
    shown = [column for column in columns if width >= column.from_width]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in shown:
        # rich shortens first what it may wrap; the cells refuse that themselves.
        table.add_column(column.title, no_wrap=not column.yielding, justify="right" if column.number else "left")
    for row in rows:
        table.add_row(*(_text(column.cell(row)) for column in shown))
    return table


def _text(cell: str | Text) -> Text:
    text = cell if isinstance(cell, Text) else Text(clean(cell))
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _in_style(text: str, style: str) -> Text:
    return Text(clean(text), style)


_MODE_STYLE = {pb.MODE_ENFORCE: "green", pb.MODE_OBSERVE: "yellow"}
_KIND_STYLE = {pb.KIND_OWNED: "green"}


def _busiest_reason(vip: pb.Vip) -> str:
    counts = [(count.enforced + count.observed, word(count, "reason")) for count in vip.reasons]
    return max(counts)[1] if counts else NONE


_HELP: tuple[Column[tuple[str, str]], ...] = (
    Column("KEY", lambda pair: pair[0]),
    Column("DOES", lambda pair: pair[1], yielding=True),
)
_LINKS: tuple[Column[pb.Link], ...] = (
    Column("LINK", lambda link: link.name),
    Column("STATE", lambda link: _in_style("up", "green") if link.up else _in_style("down", "bold red")),
    Column("VIPS", lambda link: f"{link.vips:,}", number=True),
    Column("INGRESS", lambda link: programs(link, outgoing=False) or _in_style("none", "bold red")),
    Column("EGRESS", lambda link: programs(link, outgoing=True) or _in_style("none", "bold red")),
    Column("MAC", lambda link: link.mac, _WIDE),
    Column("ADDRESSES", lambda link: " ".join(link.addresses) or NONE, _WIDE, yielding=True),
)
_VIPS: tuple[Column[VipRate], ...] = (
    Column("VIP", lambda reading: reading.vip.address),
    Column("LINK", lambda reading: reading.vip.link),
    Column("KIND", lambda reading: _in_style(word(reading.vip, "kind"), _KIND_STYLE.get(reading.vip.kind, ""))),
    Column("MODE", lambda reading: _in_style(word(reading.vip, "mode"), _MODE_STYLE.get(reading.vip.mode, ""))),
    Column("OWNER", lambda reading: owner(reading.vip).text, _WIDE),
    Column("FRAMES/S", lambda reading: f"{reading.per_second:,.0f}", number=True),
    Column("TOTAL", lambda reading: f"{reading.total:,}", number=True),
    Column("MOSTLY", lambda reading: _busiest_reason(reading.vip), _WIDE, yielding=True),
)
_DECISIONS: tuple[Column[pb.Decision], ...] = (
    Column("TIME", lambda found: time_of_day(found.last_time)),
    Column("LINK", lambda found: found.link),
    Column("VIP", lambda found: found.vip or NONE),
    Column("VERDICT", lambda found: _in_style(outcome(found), "bold red" if found.verdict in _ALARMING else "")),
    Column("REASON", lambda found: word(found, "reason")),
    Column("FROM", lambda found: found.sha, _MEDIUM),
    Column("REPORTS", lambda found: f"{found.count:,}", _WIDE, number=True),
    Column("LAST", lambda found: age(found.last_time), _WIDE),
)
