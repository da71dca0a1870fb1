"""Writes dashboard.svg from the dashboard's layout and from answers of a real Prometheus (`make docs`).

deploy/monitoring/arpguard.json says where each panel is, and dashboard.json has what Prometheus answered: the test
that its `command` names records it. Drawn are the first rows, as Grafana lays them out, but not by Grafana.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from drawing import BAD, FAINT, GOOD, INK, LINE, NEXT, PAPER, box, picture, text

TOP = Path(__file__).parents[2]
PICTURE = Path(__file__).with_suffix(".svg")
RECORD = Path(__file__).with_suffix(".json")
COLUMN_PX, ROW_PX, GAP_PX, HEAD_PX = 46, 27, 6, 44
ROWS = 40  # of Grafana's grid: down to the panels about VIPs by kind
WIDTH, LEGEND_PX, NARROW_PX = 24 * COLUMN_PX + GAP_PX, 16, 280
LINES = ("#3d71d9", "#2e7d32", "#d9730d", "#8e24aa", "#c62828", "#00838f")
COLOURS = {"green": GOOD, "orange": "#b85c00", "red": BAD}
PANELS = [
    panel
    for panel in json.loads((TOP / "deploy/monitoring/arpguard.json").read_text(encoding="utf-8"))["panels"]
    if panel["gridPos"]["y"] < ROWS
]
_MINUTE_S = 60


def draw() -> str:
    """The picture as SVG."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    said = f"Drawn from the answers of a Prometheus on {record['day']}; not a screenshot of Grafana."
    parts = [text(GAP_PX + 6, 27, "arpguard", anchor="start", name=True), text(WIDTH - 12, 27, said, FAINT, "end")]
    for panel in PANELS:
        parts += _panel(panel, record)
    return picture(f"The dashboard's first rows. {said}", WIDTH, HEAD_PX + ROWS * ROW_PX + GAP_PX, parts)


def _panel(panel: Mapping[str, Any], record: Mapping[str, Any]) -> Iterator[str]:
    grid = panel["gridPos"]
    x, y = GAP_PX + grid["x"] * COLUMN_PX, HEAD_PX + grid["y"] * ROW_PX
    width, height = grid["w"] * COLUMN_PX - GAP_PX, grid["h"] * ROW_PX - GAP_PX
    if panel["type"] == "row":
        yield text(x + 6, y + 16, panel["title"], anchor="start", name=True)
        return

    yield box(x, y, width, height, line=LINE)
    yield text(x + 8, y + 17, panel["title"], FAINT, "start")
    series = record["panels"][panel["title"]]
    if not series:
        yield text(x + width / 2, y + height / 2 + 5, "No data", FAINT)
    elif panel["type"] == "stat":
        yield from _stat(panel, series[0][1], x, y, width, height)
    elif panel["type"] == "timeseries":
        yield from _curves(series, x + 40, y + 30, width - 52, height - 38)
    else:
        yield from _table(list(_cells(panel, record)), x + 8, y + 42, width - 16)


def _stat(panel: Mapping[str, Any], value: float, x: float, y: float, width: float, height: float) -> Iterator[str]:
    defaults = panel["fieldConfig"]["defaults"]
    steps = defaults["thresholds"]["steps"]
    colour = [step["color"] for step in steps if step["value"] is None or value >= step["value"]][-1]
    unit = " s" if defaults["unit"] == "s" else ""
    yield box(x + 6, y + 26, width - 12, height - 32, COLOURS[colour], COLOURS[colour])
    yield text(x + width / 2, y + height / 2 + 17, f"{value:.{defaults['decimals']}f}{unit}", PAPER, name=True)


def _curves(
    series: Sequence[tuple[str, Sequence[float | None]]], x: float, y: float, width: float, height: float
) -> Iterator[str]:
    """Curves above their legend, which has as many names as there is place for."""
    across = 1 if width < NARROW_PX else 2
    shown = series[: int(height / 2 / LEGEND_PX) * across]
    high = height - -(-len(shown) // across) * LEGEND_PX - 14
    most = max((value for _, curve in series for value in curve if value is not None), default=0) or 1
    for part in (0, 0.5, 1):
        yield f'<path d="M{x:g} {y + high * (1 - part):g} h{width:g}" stroke="{LINE}"/>'
        yield text(x - 5, y + high * (1 - part) + 4, f"{most * part:.2g}", FAINT, "end")

    for (_, curve), colour in zip(series, cycle(LINES)):
        at = [(step, value) for step, value in enumerate(curve) if value is not None]
        points = " ".join(
            f"{x + step * width / (len(curve) - 1):.1f},{y + high * (1 - value / most):.1f}" for step, value in at
        )
        yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
    for number, ((name, _), colour) in enumerate(zip(shown, cycle(LINES))):
        left, line = x - 30 + number % across * (width + 40) / 2, y + high + 22 + number // across * LEGEND_PX
        yield f'<path d="M{left:g} {line - 4:g} h10" stroke="{colour}" stroke-width="3"/>'
        yield text(left + 15, line, name, anchor="start")


def _cells(panel: Mapping[str, Any], record: Mapping[str, Any]) -> Iterator[Mapping[str, tuple[str, str]]]:
    """The rows of a table: each column's text and colour."""
    if panel["title"] == "VIPs and their owners":
        for row in record["vips"].values():
            yield {name: _cell(name, value, record["at"]) for name, value in row.items()}
        return

    names = panel["transformations"][0]["options"]["renameByName"]
    for labels, value in record["panels"][panel["title"]]:
        yield {name: _cell(name, {**labels, "Value": value}.get(key, ""), record["at"]) for key, name in names.items()}


def _cell(name: str, value: str | float, now_s: float) -> tuple[str, str]:
    if isinstance(value, str):
        return value, INK
    if value > now_s:
        return _ago(now_s - value / 1000), INK
    if name == "Conflicts":
        return f"{value:g}", BAD if value else INK
    if name == "MACs that answer":
        return f"{value:g}", GOOD if value == 1 else BAD
    return f"{value:.1f}", INK


def _ago(seconds: float) -> str:
    if seconds < _MINUTE_S:
        return f"{seconds:.0f} seconds ago"
    minutes = round(seconds / _MINUTE_S)
    return "a minute ago" if minutes == 1 else f"{minutes} minutes ago"


def _table(rows: Sequence[Mapping[str, tuple[str, str]]], x: float, y: float, width: float) -> Iterator[str]:
    """Columns as wide as what is in them, the VIP first."""
    columns = sorted(dict.fromkeys(name for row in rows for name in row), key=lambda name: name != "VIP")
    needs = [max(len(name), *(len(row.get(name, ("",))[0]) for row in rows)) for name in columns]
    starts = [x + width * sum(needs[:number]) / sum(needs) for number in range(len(needs))]
    for name, left in zip(columns, starts, strict=True):
        yield text(left, y, name, NEXT, "start")
    for line, row in enumerate(rows, 1):
        yield f'<path d="M{x:g} {y + line * 26 - 17:g} h{width:g}" stroke="{LINE}"/>'
        for name, left in zip(columns, starts, strict=True):
            yield text(left, y + line * 26, *row.get(name, ("", INK)), "start")


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
