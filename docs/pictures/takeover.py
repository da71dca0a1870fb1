"""Writes takeover.svg from the default times of a lease: `.venv/bin/python docs/pictures/takeover.py`.

Three lanes over the seconds since the owner's last renewal: what its agent does, which kernel answers, what the next
owner does.
"""

from collections.abc import Iterator
from pathlib import Path

from drawing import BAD, FAINT, GOOD, INK, LINE, NEXT, PAPER, picture, text

from arpguard.config.model import LeaseConfig
from arpguard.units import NS_PER_S

PICTURE = Path(__file__).with_suffix(".svg")
WIDTH, LEFT, SECOND_PX, TOP, LANE_PX = 900, 150, 125, 62, 74
BEFORE_S, HANG_S = 1.0, 0.4  # the picture begins so long before the last renewal; the agent hangs so long after it


def draw() -> str:
    """The picture as SVG."""
    lease = LeaseConfig()
    renew_s, lease_s = lease.renew_ns / NS_PER_S, lease.duration_ns / NS_PER_S
    fence_s = lease_s - lease.margin_ns / NS_PER_S
    end_s = (WIDTH - LEFT) / SECOND_PX - BEFORE_S - 0.15
    parts = [
        *_axis(int(end_s)),
        *_lane(0, "node-1", "its agent"),
        *(_dot(0, at_s, INK) for at_s in (-renew_s, 0.0)),
        _label(0, 0.0, -16, "last renewal"),
        _dot(0, HANG_S, BAD),
        _label(0, HANG_S + 0.12, 5, "hangs, or is cut off", BAD, "start"),
        *_lane(1, "the VIP", "answered by"),
        _bar(1, -BEFORE_S, fence_s, GOOD, "node-1 answers"),
        _bar(1, fence_s, lease_s, BAD, "no node"),
        _bar(1, lease_s, end_s, NEXT, "node-2 answers"),
        _mark(fence_s, f"fence: lease minus margin, {fence_s:g} s", BAD),
        _mark(lease_s, f"lease over, {lease_s:g} s", NEXT),
        *_lane(2, "node-2", "its agent"),
        _label(2, -BEFORE_S + 0.05, 5, "sees node-1's renewals", FAINT, "start"),
        _label(2, 1.2, 5, "no renewal for a whole lease", FAINT),
        _dot(2, lease_s, NEXT),
        _label(2, lease_s + 0.12, 5, "revokes node-1, takes the VIP", NEXT, "start"),
    ]
    height = TOP + 3 * LANE_PX + 40
    title = f"node-1 stops answering {fence_s:g} s after its last renewal, and node-2 answers after {lease_s:g} s."
    return picture(title, WIDTH, height, parts)


def _x(at_s: float) -> float:
    return LEFT + (at_s + BEFORE_S) * SECOND_PX


def _y(lane: int) -> float:
    return TOP + lane * LANE_PX + 30


def _axis(last_s: int) -> Iterator[str]:
    bottom = TOP + 3 * LANE_PX + 4
    for second in range(-int(BEFORE_S), last_s + 1):
        yield f'<path d="M{_x(second)} {TOP} V{bottom}" stroke="{LINE}"/>'
        yield text(_x(second), bottom + 18, f"{second} s", FAINT)


def _lane(lane: int, name: str, what: str) -> Iterator[str]:
    yield text(14, _y(lane), name, anchor="start", name=True)
    yield text(14, _y(lane) + 17, what, FAINT, "start")


def _dot(lane: int, at_s: float, colour: str) -> str:
    return f'<circle cx="{_x(at_s)}" cy="{_y(lane)}" r="6" fill="{colour}"/>'


def _bar(lane: int, from_s: float, to_s: float, colour: str, said: str) -> str:
    left, width = _x(from_s), _x(to_s) - _x(from_s)
    shape = f'<rect x="{left}" y="{_y(lane) - 15}" width="{width}" height="30" fill="{colour}"/>'
    return shape + text(left + width / 2, _y(lane) + 5, said, PAPER)


def _mark(at_s: float, said: str, colour: str) -> str:
    line = f'<path d="M{_x(at_s)} {TOP - 8} V{TOP + 3 * LANE_PX + 4}" stroke="{colour}" stroke-dasharray="4 3"/>'
    return line + text(_x(at_s), TOP - 14 - (18 if colour == NEXT else 0), said, colour)


def _label(lane: int, at_s: float, down: float, said: str, colour: str = INK, anchor: str = "middle") -> str:
    return text(_x(at_s), _y(lane) + down, said, colour, anchor)


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
