"""Draws who sends what to whom, from text: exchange.py writes NAME.svg for each NAME.txt here (`make docs`).

A text has a title, a line for each party (`K = kernel 1`), and then a line for each step, in their order: a message
`A -> S: what it says`, an answer `S --> A: what it says`, or `K: what it does`, in red after `!`.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from drawing import BAD, FAINT, INK, LINE, arrow, box, picture, text

FOLDER = Path(__file__).parent
SOURCES = sorted(FOLDER.glob("*.txt"))
WIDTH, TOP, STEP_PX = 680, 62, 38


def draw(source: str) -> str:
    """The picture of a text, as SVG."""
    title, *lines = source.strip().splitlines()
    parties = dict(re.findall(r"^(\w+) = (.+)$", source, re.MULTILINE))
    steps = [line for line in lines if line and " = " not in line.partition(":")[0]]
    lane_px = WIDTH / len(parties)
    at = {short: lane_px * (number + 0.5) for number, short in enumerate(parties)}
    height = TOP + len(steps) * STEP_PX + 10

    parts = [f'<path d="M{x:g} 40 V{height - 10:g}" stroke="{LINE}" stroke-width="2"/>' for x in at.values()]
    for short, name in parties.items():
        parts += [box(at[short] - 80, 10, 160, 30), text(at[short], 30, name, name=True)]
    for number, step in enumerate(steps):
        parts += _step(step, at, TOP + number * STEP_PX + 22)
    return picture(title, WIDTH, height, parts)


def _step(step: str, at: dict[str, float], y: float) -> Iterator[str]:
    parties, _, said = step.partition(": ")
    before, kind, to = re.fullmatch(r"(\w+)(?: (-->|->) (\w+))?", parties).groups()  # type: ignore[union-attr]
    if to is None:
        colour = BAD if said.startswith("!") else INK
        said = said.removeprefix("!").strip()
        half = 3.4 * len(said) + 8
        x = min(max(at[before], half + 6), WIDTH - half - 6)
        yield box(x - half, y - 16, 2 * half, 24, line=colour)
        yield text(x, y + 1, said, colour)
        return

    yield arrow((at[before], y), (at[to], y), colour=FAINT if kind == "-->" else INK, dashed=kind == "-->")
    half = 3.4 * len(said) + 4
    yield text(min(max((at[before] + at[to]) / 2, half), WIDTH - half), y - 7, said)


def main() -> None:
    """Writes them all."""
    for source in SOURCES:
        source.with_suffix(".svg").write_text(draw(source.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
