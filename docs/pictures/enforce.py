"""Writes enforce.svg, the front page's picture, from a real run: `.venv/bin/python docs/pictures/enforce.py`, as root.

Three nodes of a lab have the same VIP on `lo`. A client asks for it with arping while `arpguard watch` shows one of the
nodes, first with `mode: observe`, then with `mode: enforce`. Both terminals are tmux's, and what they show is drawn.
"""

import os
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, groupby
from pathlib import Path
from xml.sax.saxutils import escape

from drawing import opening
from rich.console import Console
from rich.style import Style
from rich.text import Text

from arpguard.dataplane import bpffs
from arpguard.errors import DataPlaneError
from arpguard_lab.bench import VIP, Bench, owned_by, until
from arpguard_lab.netns import Netns, command
from arpguard_lab.topology import AgentProcess, Lab

PICTURE = Path(__file__).with_suffix(".svg")
COLUMNS, ASKED_ROWS, WATCH_ROWS = 70, 5, 15  # characters: narrow, so that they can be read on a phone
PATIENCE_S = 30.0
SETTLE_S = 5.0  # longer than the owner announces the VIP after a change
REPORT_EVERY_S = 2.0  # the kernel reports equal decisions about a VIP no more often

FONT_PX, ROW_PX, CHARACTER_PX, MARGIN_PX = 13, 17, 7.8, 10
CAPTION_PX, GAP_PX = 34, 12
INK, PAPER, PANE, FAINT = "#d7dce5", "#11151c", "#1b212b", "#8b95a5"
COLOURS = {1: "#ff7b72", 2: "#7ee787", 3: "#f2cc60"}  # red, green and yellow, as terminals number them
_numbers = count(1)
_CONSOLE = Console()


@dataclass(frozen=True, slots=True)
class Scene:
    """A part of the picture: what it is about, and what both terminals show."""

    caption: str
    client: Sequence[Text]
    watch: Sequence[Text]


class Terminal:
    """A command in a terminal, in a namespace."""

    def __init__(self, netns: Netns, rows: int, script: str) -> None:
        self._server = f"arpguard-picture-{os.getpid()}-{next(_numbers)}"
        words = [*netns.prefix(), "sh", "-c", script]
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", str(COLUMNS), "-y", str(rows), shlex.join(words))

    def _tmux(self, *words: str) -> str:
        return command("tmux", "-L", self._server, *words)

    def press(self, key: str) -> None:
        """Sends a key to the command."""
        self._tmux("send-keys", key)

    def wait_for(self, what: str, part: str, times: int = 1) -> None:
        """Returns once the screen shows a text so many times."""
        try:
            until(lambda: self._tmux("capture-pane", "-p").count(part) >= times, PATIENCE_S, what)
        except DataPlaneError as error:
            raise DataPlaneError(f"{error}; shown is\n{self._tmux('capture-pane', '-p')}") from None

    def screen(self) -> list[Text]:
        """Its lines, with their colours."""
        return [Text.from_ansi(line) for line in self._tmux("capture-pane", "-p", "-e").splitlines()]

    def close(self) -> None:
        """Ends the command and the terminal."""
        self._tmux("kill-server")


@contextmanager
def terminal(netns: Netns, rows: int, script: str) -> Iterator[Terminal]:
    """A terminal, until the end of the block."""
    opened = Terminal(netns, rows, script)
    try:
        yield opened
    finally:
        opened.close()


def play(lab: Lab) -> Iterator[Scene]:
    """The run, one scene for each mode."""
    bench = Bench(lab, "picture")
    bench.bind_everywhere("lo", VIP)
    owner, shown, *_ = lab.nodes
    agents = bench.guard(owned_by(f"{{node: {owner.name}}}", VIP, mode="observe"))

    for mode, verdict, answers, said in (
        ("observe", "would suppress", len(lab.nodes), "every node answers"),
        ("enforce", "suppress", 1, "one node answers"),
    ):
        for agent in agents.values():
            agent.configure(owned_by(f"{{node: {owner.name}}}", VIP, mode=mode))
        forget(agents[shown.name])
        asked = f"arping -r -c 1 {VIP}"
        with (
            terminal(
                shown.netns, WATCH_ROWS, f"{sys.executable} -m arpguard watch --address {agents[shown.name].api}"
            ) as watch,
            terminal(
                lab.client.netns, ASKED_ROWS, f"read _; clear; printf '%s\\n' '$ {asked}'; {asked}; sleep 600"
            ) as client,
        ):
            watch.wait_for(f"mode {mode}", f"   {mode}   ")
            time.sleep(REPORT_EVERY_S)
            client.press("Enter")
            client.wait_for(f"{answers} answers", "02:00:00", answers)
            watch.wait_for("the decision", f"  {verdict}  ")
            yield Scene(f"mode: {mode}, {said}", client.screen(), watch.screen())


def forget(agent: AgentProcess) -> None:
    """Restarts it once the owner has announced the VIP: it then lists none of the decisions before."""
    time.sleep(SETTLE_S)
    agent.kill(signal.SIGTERM)
    agent.start()
    agent.wait_for()


# ---- drawing -----------------------------------------------------------------------------------------------------


def draw(scenes: Sequence[Scene]) -> str:
    """The picture as SVG."""
    width = round(COLUMNS * CHARACTER_PX) + 2 * MARGIN_PX + 2 * GAP_PX
    parts, top = [], 0
    for scene in scenes:
        top += CAPTION_PX
        parts.append(f'<text class="caption" x="{GAP_PX}" y="{top - 11}">{escape(scene.caption)}</text>')
        for lines, rows in ((scene.client, ASKED_ROWS), (scene.watch, WATCH_ROWS)):
            pane_px = rows * ROW_PX + 2 * MARGIN_PX
            shape = f'width="{width - 2 * GAP_PX}" height="{pane_px}" rx="6"'
            parts.append(f'<rect x="{GAP_PX}" y="{top}" {shape} fill="{PANE}"/>')
            parts += _lines(lines, GAP_PX + MARGIN_PX, top + MARGIN_PX)
            top += pane_px + GAP_PX

    parts.insert(0, f'<rect width="{width}" height="{top}" rx="8" fill="{PAPER}"/>')
    font = f"{FONT_PX}px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
    caption = ".caption { font-weight: bold; font-size: 15px; }"
    return "\n".join(
        [
            opening(width, top),
            f"<title>{escape('; '.join(scene.caption for scene in scenes))}</title>",
            f"<style>svg {{ font: {font}; fill: {INK}; }} text {{ white-space: pre; }} {caption}</style>",
            *parts,
            "</svg>",
            "",
        ]
    )


def _lines(lines: Sequence[Text], left: float, top: float) -> Iterator[str]:
    """Text of one colour at a time, each stretched to its columns: no font's width moves a table."""
    for number, line in enumerate(lines):
        styles = [line.get_style_at_offset(_CONSOLE, at) for at in range(len(line.plain))]
        y = top + number * ROW_PX + FONT_PX
        for style, run in groupby(range(len(styles)), key=lambda at: _attributes(styles[at])):
            columns = list(run)
            text = line.plain[columns[0] : columns[-1] + 1]
            start = len(text) - len(text.lstrip())
            if shown := text.strip():
                x, length = left + (columns[0] + start) * CHARACTER_PX, len(shown) * CHARACTER_PX
                yield f'<text x="{x:.1f}" y="{y}" textLength="{length:.1f}"{style}>{escape(shown)}</text>'


def _attributes(style: Style) -> str:
    """A terminal's style, as SVG says it."""
    fill = FAINT if style.dim else INK
    if style.color is not None and style.color.number is not None:
        fill = COLOURS.get(style.color.number, fill)
    return (f' fill="{fill}"' if fill != INK else "") + (' font-weight="bold"' if style.bold else "")


def main() -> None:
    """Runs it, and writes the picture."""
    with tempfile.TemporaryDirectory(prefix="arpguard-picture-") as name:
        folder, pins = Path(name), Path("/sys/fs/bpf") / Path(name).name
        bpffs.prepare(pins)
        try:
            with Lab(3, folder, pins) as lab:
                scenes = list(play(lab))
        finally:
            bpffs.remove(pins)
    PICTURE.write_text(draw(scenes), encoding="utf-8")


if __name__ == "__main__":
    main()
