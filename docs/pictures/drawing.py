"""What the drawn pictures share: colours, texts, lines, and the SVG around them."""

from collections.abc import Iterable
from xml.sax.saxutils import escape

INK, FAINT, PAPER, LINE = "#1b212b", "#6b7686", "#ffffff", "#e3e7ee"
GOOD, NEXT, BAD = "#2e7d32", "#1565c0", "#c62828"
_STYLE = "svg { font: 13px system-ui, 'DejaVu Sans', sans-serif; } .name { font-weight: bold; font-size: 14px; }"
_HEAD = '<marker id="head" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="8" markerHeight="8" orient="auto">'


def picture(title: str, width: float, height: float, parts: Iterable[str]) -> str:
    """A whole SVG."""
    return "\n".join(
        [
            opening(width, height),
            f"<title>{escape(title)}</title>",
            f"<style>{_STYLE}</style>",
            f'<defs>{_HEAD}<path d="M0 0.5 L8 4 L0 7.5 z" fill="{FAINT}"/></marker></defs>',
            f'<rect width="{width:g}" height="{height:g}" rx="8" fill="{PAPER}"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def opening(width: float, height: float) -> str:
    """The element of a whole SVG. It has a size of its own, so that pages do not blow a small picture up."""
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'


def text(x: float, y: float, said: str, colour: str = INK, anchor: str = "middle", *, name: bool = False) -> str:
    """A line of text; the paper shows around it, so that it may stand on a line."""
    style = ' class="name"' if name else ""
    halo = f' stroke="{PAPER}" stroke-width="4" paint-order="stroke"' if colour != PAPER else ""
    return f'<text{style} x="{x:g}" y="{y:g}" fill="{colour}" text-anchor="{anchor}"{halo}>{escape(said)}</text>'


def box(x: float, y: float, width: float, height: float, fill: str = PAPER, line: str = INK) -> str:
    """A box by its upper left corner."""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" fill="{fill}" stroke="{line}"'
        ' stroke-width="1.4"/>'
    )


def arrow(*points: tuple[float, float], colour: str = FAINT, dashed: bool = False) -> str:
    """A line through the points, with a head at the last."""
    path = "M" + " L".join(f"{x:g} {y:g}" for x, y in points)
    dashes = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.4" marker-end="url(#head)"{dashes}/>'
