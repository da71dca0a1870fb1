"""Writes frame.svg, the path of a frame through a node (`make docs`)."""

from collections.abc import Iterator
from pathlib import Path

from drawing import BAD, FAINT, GOOD, INK, LINE, NEXT, arrow, box, picture, text

from arpguard.verdict import Verdict

PICTURE = Path(__file__).with_suffix(".svg")
WIDTH, HEIGHT = 800, 500
MAPS = (
    ("entries", "VIP: kind, owner"),
    ("control", "mode, fence"),
    ("counters", "VIP and reason"),
    ("events", "decisions"),
)


def draw() -> str:
    """The picture as SVG."""
    title = "XDP or tc ingress judges each frame that the NIC receives; tc egress judges what the kernel sends"
    return picture(title, WIDTH, HEIGHT, [*_boxes(), *_in(), *_out(), *_aside()])


def _boxes() -> Iterator[str]:
    yield text(270, 24, "the network", FAINT)
    yield from _box(20, 62, 510, 40, "NIC")
    yield f'<rect x="8" y="196" width="534" height="88" rx="8" fill="{LINE}" fill-opacity="0.5"/>'
    yield from _box(20, 206, 240, 68, "ingress program", "XDP (optional), or tc ingress")
    yield from _box(290, 206, 240, 68, "egress program", "tc egress")
    yield from _box(20, 402, 510, 62, "kernel", "and other programs: announcers, keepalived")
    yield box(596, 178, 190, 152)
    yield text(691, 200, "BPF maps", name=True)
    for number, (name, held) in enumerate(MAPS):
        yield text(608, 226 + number * 22, name, NEXT, "start")
        yield text(674, 226 + number * 22, held, INK, "start")
    yield text(691, 320, "pinned, like the programs", FAINT)
    yield from _box(596, 402, 190, 62, "agent", "may be away")


def _box(x: float, y: float, width: float, height: float, name: str, more: str = "") -> Iterator[str]:
    yield box(x, y, width, height)
    yield text(x + width / 2, y + height / 2 + (-3 if more else 5), name, name=True)
    if more:
        yield text(x + width / 2, y + height / 2 + 17, more)


def _in() -> Iterator[str]:
    """Down on the left: what another host sends."""
    yield arrow((70, 10), (70, 62))
    yield text(80, 46, "who has the VIP?", anchor="start")
    yield arrow((70, 102), (70, 206))
    yield arrow((170, 206), (170, 102), colour=GOOD)
    yield text(180, 140, _name(Verdict.ANSWER), GOOD, "start", name=True)
    yield text(180, 158, "the frame becomes", GOOD, "start")
    yield text(180, 174, "the reply", GOOD, "start")
    yield arrow((70, 274), (70, 402))
    yield text(80, 372, _name(Verdict.PASS), anchor="start", name=True)
    yield from _dropped(200, 274, 316)


def _out() -> Iterator[str]:
    """Up on the right: what this node sends."""
    yield arrow((430, 402), (430, 274))
    yield text(420, 372, "reply, announcement, request", anchor="end")
    yield arrow((430, 206), (430, 102))
    yield text(440, 140, _name(Verdict.PASS), anchor="start", name=True)
    yield text(440, 158, f"{_name(Verdict.REWRITE)}: another", anchor="start")
    yield text(440, 174, "sender", anchor="start")
    yield from _dropped(345, 206, 150)
    yield arrow((430, 62), (430, 10))
    yield text(440, 46, "the VIP is at ...", anchor="start")


def _dropped(x: float, from_y: float, to_y: float) -> Iterator[str]:
    yield arrow((x, from_y), (x, to_y), colour=BAD)
    beyond = to_y + (16 if to_y > from_y else -8)
    yield text(x, beyond, f"{_name(Verdict.SUPPRESS)}: dropped", BAD, name=True)


def _aside() -> Iterator[str]:
    """Between the programs, the maps and the agent."""
    yield arrow((596, 232), (542, 232))
    yield text(569, 222, "read")
    yield arrow((542, 262), (596, 262))
    yield text(569, 280, "count")
    yield arrow((650, 402), (650, 330))
    yield text(642, 370, "writes", anchor="end")
    yield arrow((732, 330), (732, 402))
    yield text(724, 362, _name(Verdict.CONFLICT), anchor="end")
    yield text(724, 378, _name(Verdict.REPORT), anchor="end")
    yield arrow((691, 494), (691, 464))
    yield text(681, 486, "configuration, Kubernetes", anchor="end")


def _name(verdict: Verdict) -> str:
    return verdict.name


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
