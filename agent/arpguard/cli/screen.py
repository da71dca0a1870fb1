"""The whole screen, until q or Ctrl-C: the terminal, and the tables and lines of live views."""

import errno
import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from arpguard.cli import exits
from arpguard.cli.exits import AskError
from arpguard.cli.render import clean
from arpguard.cli.watchkeys import ORDERS, AnyVip, Keys
from arpguard.cli.words import counted
from arpguard.v1 import agent_pb2 as pb

NARROWEST, LOWEST = 60, 12
MEDIUM = 80
WIDE = 100  # from here on, all columns
MODE_STYLE = {pb.MODE_ENFORCE: "green", pb.MODE_OBSERVE: "yellow"}
_MOST_TYPED = 1024
_TICK_S = 0.1  # how soon a key or a new size of the terminal is noticed

Row = TypeVar("Row")


class Shown(Protocol):
    """What is known at one moment; each moment has another `number`."""

    @property
    def number(self) -> int:
        """Grows with each."""

    @property
    def vips(self) -> Sequence[AnyVip]:
        """What can be scrolled through."""


Moment = TypeVar("Moment", bound=Shown)


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


def need_terminal(otherwise: str) -> None:
    """Raises AskError where there is none; `otherwise`: which commands need none."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise AskError(exits.USAGE, f"needs a terminal: {otherwise}")


def show(latest: Callable[[], Moment], view: Callable[[Moment, int, int, Keys], RenderableType]) -> None:
    """Shows the latest, in as many columns and lines as there are, until the user leaves.

    Raises SystemExit where the terminal is gone, and its SIGHUP went to another process or was ignored.
    """
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)  # rich would believe them; the terminal itself knows its size when that has changed
    exits.leave_on_signals()
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)  # a stopped view would leave its screen to the shell

    with _on_a_terminal(), _typed() as typed, Live(screen=True, auto_refresh=False, console=Console()) as live:
        keys, sample, shown = Keys(), latest(), None
        while not keys.left:
            keys = keys.after(typed(), len(sample.vips))
            sample = sample if keys.paused else latest()
            now = sample.number, live.console.size, int(time.monotonic()), keys
            if now != shown:
                live.update(view(sample, *live.console.size, keys), refresh=True)
                shown = now


@contextmanager
def _on_a_terminal() -> Iterator[None]:
    """Leaves without a word once the terminal is gone: what is still to be written has no reader."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(128 + signal.SIGHUP) from None


@contextmanager
def _typed() -> Iterator[Callable[[], str]]:
    """A function that waits a tick for keys; they are neither shown nor kept until the end of a line."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def key() -> str:
        ready, _, _ = select.select([descriptor], [], [], _TICK_S)
        if not ready:
            return ""
        typed = os.read(descriptor, _MOST_TYPED)
        if not typed:
            raise OSError(errno.EIO, "the terminal is gone")
        return typed.decode(errors="replace")

    try:
        tty.setcbreak(descriptor)
        yield key
    finally:
        with suppress(termios.error):  # of a terminal that is gone
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


# ---- lines and tables --------------------------------------------------------------------------------------------


def too_small(width: int, height: int) -> Text | None:
    """The message on a screen without room for a view."""
    if width >= NARROWEST and height >= LOWEST:
        return None
    return line(Text(f"screen too small: make it at least {NARROWEST}x{LOWEST}"), width)


def line(text: Text, width: int) -> Text:
    """One line, cut off where the screen ends."""
    text.truncate(width, overflow="ellipsis")
    return text


def in_style(text: str, style: str) -> Text:
    """Text of an agent in a style."""
    return Text(clean(text), style)


def table(columns: Sequence[Column[Row]], rows: Sequence[Row], width: int) -> Table:
    """The columns that there is room for, one line for each row."""
    shown = [column for column in columns if width >= column.from_width]
    found = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in shown:
        # rich shortens first what it may wrap; the cells refuse that themselves.
        found.add_column(column.title, no_wrap=not column.yielding, justify="right" if column.number else "left")
    for row in rows:
        found.add_row(*(_text(column.cell(row)) for column in shown))
    return found


def _text(cell: str | Text) -> Text:
    text = cell if isinstance(cell, Text) else Text(clean(cell))
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def footer(keys: Keys, shown: range, found: int, known: int) -> Text:
    """The keys, and which of the found VIPs are shown, of how many that are known."""
    parts = ["q quit, ? help"]
    if keys.types or keys.needle:
        parts.append(f"/{clean(keys.needle)}{'_' * keys.types}: {found:,} of {counted(known, 'VIP')}")
    if len(shown) < found:
        parts.append(f"{shown.start + 1:,} to {shown.stop:,} of {found:,} VIPs, {ORDERS[keys.order][0]}")
    elif not keys.needle:
        parts.append(f"{counted(known, 'VIP')}, {ORDERS[keys.order][0]}")
    held = [("paused (space) | ", "yellow")] if keys.paused else []
    return Text.assemble(*held, (" | ".join(parts), "dim"), no_wrap=True, overflow="ellipsis")


def rate(per_second: float) -> str:
    """Frames a second, in words."""
    number = f"{per_second:,.0f}"
    return f"{number} frame/s" if number == "1" else f"{number} frames/s"


HELP: tuple[Column[tuple[str, str]], ...] = (
    Column("KEY", lambda pair: pair[0]),
    Column("ACTION", lambda pair: pair[1], yielding=True),
)
