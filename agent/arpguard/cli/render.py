"""What a person or a program reads on standard output: aligned tables, and JSON."""

import json
import sys
from collections.abc import Iterable, Sequence

_BOLD, _RED, _GREEN, _RESET = "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[0m"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns as wide as their widest cell, two blanks apart."""
    cells = [list(head), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join([_styled(lines[0], _BOLD), *lines[1:]])


def json_text(value: object) -> str:
    """Indented JSON; addresses and enums as text."""
    return json.dumps(value, indent=2, default=str)


def good(text: str) -> str:
    """`text` in green on a terminal."""
    return _styled(text, _GREEN)


def bad(text: str) -> str:
    """`text` in red on a terminal."""
    return _styled(text, _RED)


def _styled(text: str, style: str) -> str:
    return f"{style}{text}{_RESET}" if sys.stdout.isatty() else text
