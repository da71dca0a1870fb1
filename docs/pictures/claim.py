"""Writes claim.svg, the stages of a claim on one node, from the table that the agent runs (`make docs`).

Idle and reading are bars at the sides, because most stages lead to both; between them the others stand in the order of
a claim's life. A transition that the table gains is drawn without a change here, and a stage needs a place in ORDER.
"""

from collections.abc import Iterator
from pathlib import Path

from drawing import BAD, GOOD, INK, PAPER, arrow, box, picture, text

from arpguard.core.ownership.stages import (
    TRANSITIONS,
    Claiming,
    Confirming,
    Deleting,
    Draining,
    Idle,
    Owned,
    Reading,
    Releasing,
    Stage,
)

PICTURE = Path(__file__).with_suffix(".svg")
ORDER: tuple[type[Stage], ...] = (Claiming, Confirming, Owned, Draining, Releasing, Deleting)
WIDTH, BAR_PX, BOX_PX, BOX_HIGH, TOP, ROW_PX, LINE_PX = 940, 72, 130, 56, 140, 124, 16
LEFT, RIGHT, MIDDLE = 14 + BAR_PX, WIDTH - 14 - BAR_PX, 450
HEIGHT = TOP + len(ORDER) * ROW_PX
Edge = tuple[type[Stage] | None, type[Stage]]


def draw() -> str:
    """The picture as SVG."""
    causes: dict[Edge, list[str]] = {}
    for (before, cause), to in TRANSITIONS.items():
        causes.setdefault((before, to), []).append(cause.value)

    title = (
        "The stages of a claim: idle, claiming, confirming, owned, draining, idle again; and what causes each change"
    )
    arrows = [part for edge, said in causes.items() for part in _edge(edge, said)]
    arrows.sort(key=lambda part: part.startswith("<text"))  # texts stand on lines, not under them
    return picture(title, WIDTH, HEIGHT, [*_bars(), *arrows, *(part for stage in ORDER for part in _stage(stage))])


def _bars() -> Iterator[str]:
    for x, name in ((14, "idle"), (RIGHT, "reading")):
        yield box(x, 56, BAR_PX, HEIGHT - 70)
        yield text(x + BAR_PX / 2, HEIGHT / 2, name, name=True)


def _stage(stage: type[Stage]) -> Iterator[str]:
    is_owned = stage is Owned
    yield box(MIDDLE - BOX_PX / 2, _y(stage) - BOX_HIGH / 2, BOX_PX, BOX_HIGH, GOOD if is_owned else PAPER)
    yield text(MIDDLE, _y(stage) + (-4 if is_owned else 5), _name(stage), PAPER if is_owned else INK, name=True)
    if is_owned:
        yield text(MIDDLE, _y(stage) + 14, "the kernel answers", PAPER)


def _edge(edge: Edge, causes: list[str]) -> Iterator[str]:
    """One arrow, and what leads along it."""
    before, to = edge
    if before is None:
        return _first(to, causes)
    if {before, to} <= {Idle, Reading}:
        return _between_bars(before, to, causes)
    if Idle in edge or Reading in edge:
        return _to_bar(before, to, causes)
    return _along(before, to, causes)


def _first(to: type[Stage], causes: list[str]) -> Iterator[str]:
    """To where a claim begins: from above to idle, from the right to the others."""
    if to is Idle:
        yield from (arrow((50, 16), (50, 56)), text(60, 30, causes[0], anchor="start"))
    else:
        yield from _across(_y(to) + 18, RIGHT - 38, MIDDLE + BOX_PX / 2, causes)


def _between_bars(before: type[Stage], to: type[Stage], causes: list[str]) -> Iterator[str]:
    if before is to:
        out_x, back_x, low, high = RIGHT + BAR_PX - 22, RIGHT - 20, HEIGHT - 4, HEIGHT - 38
        yield arrow((out_x, HEIGHT - 14), (out_x, low), (back_x, low), (back_x, high), (RIGHT, high))
        yield from _label(back_x - 6, HEIGHT - 8, causes, "end")
    elif to is Reading:
        yield from _across(80, LEFT, RIGHT, causes)
    else:
        yield from _across(112, RIGHT, LEFT, causes)


def _to_bar(before: type[Stage], to: type[Stage], causes: list[str]) -> Iterator[str]:
    """Between a box and a bar at its side."""
    left, right = MIDDLE - BOX_PX / 2, MIDDLE + BOX_PX / 2
    if before is Idle:
        yield from _across(_y(to) - 12, LEFT, left, causes)
    elif to is Idle:
        yield from _across(_y(before) + 18, left, LEFT, causes, BAD if before is Owned else INK)
    else:
        yield from _across(_y(before) - 12, right, RIGHT, causes)


def _along(before: type[Stage], to: type[Stage], causes: list[str]) -> Iterator[str]:
    """From a box to the next one below, or around those between them."""
    if ORDER.index(to) == ORDER.index(before) + 1:
        yield arrow((MIDDLE, _y(before) + BOX_HIGH / 2), (MIDDLE, _y(to) - BOX_HIGH / 2))
        yield from _label(MIDDLE + 10, (_y(before) + _y(to) + LINE_PX * len(causes)) / 2 - 4, causes, "start")
    else:
        right, aside, out_y, in_y = MIDDLE + BOX_PX / 2, RIGHT - 22, _y(before) + 18, _y(to) + 18
        yield arrow((right, out_y), (aside, out_y), (aside, in_y), (right, in_y))
        yield from _label((right + aside) / 2, out_y - 6, causes, "middle")


def _across(y: float, from_x: float, to_x: float, causes: list[str], colour: str = INK) -> Iterator[str]:
    yield arrow((from_x, y), (to_x, y))
    yield from _label((from_x + to_x) / 2, y - 6, causes, "middle", colour)


def _label(x: float, y: float, causes: list[str], anchor: str, colour: str = INK) -> Iterator[str]:
    for number, cause in enumerate(reversed(causes)):
        yield text(x, y - number * LINE_PX, cause, colour, anchor)


def _y(stage: type[Stage]) -> float:
    return TOP + ORDER.index(stage) * ROW_PX + ROW_PX / 2


def _name(stage: type[Stage]) -> str:
    return stage.__name__.lower()


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
