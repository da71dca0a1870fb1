"""What a person reads on standard output: aligned tables that fit the page.

Nothing that an agent says reaches a terminal with control characters in it. Every command imports this, also those
that read no message of the API: documents are in `documents`.
"""

import os
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

PAGE_WIDTH = 100
WIDEST = 1 << 16
_NARROWEST = 80  # below, the terminal wraps: there is nothing left to shorten
_GAP = "  "
_WHOLE = frozenset({"VIP", "MAC", "FROM", "CLAIMED BY"})  # half an address is useless
_LISTS = frozenset({"ADDRESSES", "DECISIONS"})  # cut between words: part of an address or a number says another thing
_ADDRESS_WIDTH = 39  # of the longest IPv6 address: a longer text is not an address
_BOLD, _RED, _GREEN, _YELLOW, _RESET = "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Styled:
    """Text that has a style on a terminal."""

    text: str
    style: str = ""

    def __str__(self) -> str:
        text = clean(self.text)
        return f"{self.style}{text}{_RESET}" if self.style and _in_colour() else text


good = partial(Styled, style=_GREEN)
bad = partial(Styled, style=_RED)
careful = partial(Styled, style=_YELLOW)
strong = partial(Styled, style=_BOLD)


def clean(text: str) -> str:
    """`text` without what a terminal might obey: control and format characters."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else " " if char.isspace() else "" for char in text)


def shortened(text: str, width: int) -> str:
    """`text` in at most `width` columns, with an ellipsis where something is missing."""
    if _columns_of(text) <= width:
        return text
    kept = text[: max(width - 1, 0)]
    while _columns_of(kept) > width - 1:
        kept = kept[:-1]
    return kept + "…"


def _cut(text: str, width: int, *, between_words: bool) -> str:
    """`text` in at most `width` columns; only whole words of it, if that leaves any."""
    if between_words and _columns_of(text) > width:
        kept = wrapped(text, max(width - 2, 1))[0]
        if text.startswith(f"{kept} "):
            return f"{kept} …"
    return shortened(text, width)


def page_width() -> int:
    """The width of the page; $COLUMNS sets it for a pipe, too."""
    return max(_NARROWEST, shutil.get_terminal_size((PAGE_WIDTH, 24)).columns)


def table_width() -> int:
    """The width of a table; unlimited through a pipe, so that nothing is cut."""
    is_for_a_program = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return WIDEST if is_for_a_program else page_width()


class Columns:
    """The widths of a table's columns; they grow with the rows, and shrink together where the page ends.

    The columns `spare` are left out first, one after the other; then the column `yielding` shrinks, down to its title.
    Columns of addresses do not shrink. Columns of whole numbers stand to the right.
    """

    def __init__(self, head: Sequence[str], yielding: str = "", spare: Sequence[str] = ()) -> None:
        self._yielding = list(head).index(yielding) if yielding else None
        self._spare = [list(head).index(title) for title in spare]
        self._head = [Styled(title, _BOLD) for title in head]
        self._widths = [len(title) for title in head]
        self._numbers = [True] * len(head)
        self._shown = list(range(len(head)))

    def add(self, row: Sequence[object]) -> None:
        """Makes room for a row, as far as there is any."""
        page = table_width()
        for place, value in enumerate(row):
            self._numbers[place] &= isinstance(value, int)
            self._widths[place] = min(max(self._widths[place], _columns_of(_cell(value).text)), page)

        while self._width() > page and self._spare:
            self._shown.remove(self._spare.pop(0))
        while self._width() > page and (index := self._too_wide()) is not None:
            self._widths[index] -= 1

    def keep(self) -> None:
        """The columns are on the screen: from now on none is left out."""
        self._spare = []

    def _width(self) -> int:
        return sum(self._widths[index] for index in self._shown) + len(_GAP) * (len(self._shown) - 1)

    def _too_wide(self) -> int | None:
        """The column to shorten first; None if no column can be."""
        index = self._yielding
        if index is not None and self._widths[index] > len(self._head[index].text):
            return index
        able = [each for each in self._shown if self._widths[each] > 1 and not self._is_whole(each)]
        return max(able, key=self._widths.__getitem__, default=None)

    def _is_whole(self, index: int) -> bool:
        return self._head[index].text in _WHOLE and self._widths[index] <= _ADDRESS_WIDTH

    def head(self) -> str:
        """The line with the titles."""
        return self.line(self._head)

    def line(self, row: Sequence[object]) -> str:
        """A row as a line."""
        cells = [self._in_column(index, _cell(row[index])) for index in self._shown]
        return _GAP.join(cells).rstrip()

    def _in_column(self, index: int, cell: Styled) -> str:
        width = self._widths[index]
        text = _cut(cell.text, width, between_words=self._head[index].text in _LISTS)
        blanks = " " * (width - _columns_of(text))
        styled = str(Styled(text, cell.style))
        return blanks + styled if self._numbers[index] else styled + blanks


def table(head: Sequence[str], rows: Iterable[Sequence[object]], yielding: str = "", spare: Sequence[str] = ()) -> str:
    """Columns as wide as their widest cell if the page allows, two blanks apart; the rest is as in Columns."""
    columns, kept = Columns(head, yielding, spare), list(rows)
    for row in kept:
        columns.add(row)
    return "\n".join([columns.head(), *map(columns.line, kept)])


def facts(pairs: Iterable[tuple[str, object]], indent: str = "") -> str:
    """Names, each with its text, which may take several lines."""
    kept = [(name, _cell(value)) for name, value in pairs]
    start = len(indent) + max((len(name) for name, _ in kept), default=0) + len(_GAP)
    lines = []
    for name, value in kept:
        first, *others = [Styled(line, value.style) for line in wrapped(value.text, page_width() - start)]
        lines += [f"{indent}{name}".ljust(start) + str(first), *(" " * start + str(line) for line in others)]
    return "\n".join(lines)


def wrapped(text: str, width: int) -> list[str]:
    """A text in lines of at most `width` columns, broken between words if possible."""
    lines = [""]
    for piece in _pieces(clean(text), width):
        longer = f"{lines[-1]} {piece}" if lines[-1] else piece
        if _columns_of(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(piece)
    return lines


def paragraphs(text: str) -> str:
    """Lines of text, each broken where the page ends."""
    return "\n".join(line for paragraph in text.split("\n") for line in wrapped(paragraph, page_width()))


def _in_colour() -> bool:
    """https://no-color.org: any value but the empty one refuses."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _cell(value: object) -> Styled:
    return Styled(clean(value.text), value.style) if isinstance(value, Styled) else Styled(clean(str(value)))


def _pieces(text: str, width: int) -> Iterator[str]:
    """The words; those that are longer than a line in parts."""
    for word in text.split():
        left = word
        while _columns_of(left) > width:
            size = next(size for size in range(width, 0, -1) if _columns_of(left[:size]) <= width)
            yield left[:size]
            left = left[size:]
        yield left


def _columns_of(text: str) -> int:
    """How wide a terminal shows a text."""
    return len(text) if text.isascii() else sum(map(_columns_of_char, text))


def _columns_of_char(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in {"Mn", "Me"}:
        return 0
    return 2 if unicodedata.east_asian_width(char) in {"W", "F"} else 1
