"""Measured samples as rows, and rows as aligned tables or JSON. Shown is the median, with the range beside it."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median

_HEADER = ("", "median", "min", "max", "unit", "goal", "", "")


@dataclass(frozen=True)
class Row:
    """One figure. `met` is None where no goal is set; `note` says what else is to be known."""

    name: str
    samples: Sequence[float]
    unit: str
    goal: str = ""
    met: bool | None = None
    note: str = ""

    @property
    def median(self) -> float:
        return median(self.samples)

    def cells(self) -> tuple[str, ...]:
        numbers = (self.median, min(self.samples), max(self.samples))
        met = {None: "", True: "met", False: "MISSED"}[self.met]
        return (self.name, *(_number(value) for value in numbers), self.unit, self.goal, met, self.note)

    def as_json(self) -> dict[str, object]:
        return {"median": self.median, "min": min(self.samples), "max": max(self.samples)} | asdict(self)


@dataclass
class Section:
    """A table: what was measured, and how, in a sentence."""

    title: str
    rows: list[Row] = field(default_factory=list)

    def add(self, row: Row) -> None:
        self.rows.append(row)

    def text(self) -> str:
        cells = [_HEADER, *(row.cells() for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(_pad(cell, widths[column], column) for column, cell in enumerate(line)).rstrip() for line in cells
        ]
        return "\n".join([self.title, *lines])


def to_json(sections: dict[str, Section]) -> str:
    """{section: {title, rows: [{name, median, min, max, samples, unit, goal, met, note}]}}"""
    return json.dumps(
        {
            name: {"title": section.title, "rows": [row.as_json() for row in section.rows]}
            for name, section in sections.items()
        },
        indent=2,
    )


def _pad(cell: str, width: int, column: int) -> str:
    return cell.rjust(width) if 1 <= column <= 3 else cell.ljust(width)


def _number(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if float(value).is_integer() else f"{value:.2f}"
