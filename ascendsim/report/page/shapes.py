"""The pieces of a drawing as SVG; each that stands for a number says it when a pointer rests on it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

# Units of the drawing's own; the page scales it to its width.
WIDTH, CHAR = 720, 6.6


def svg(height: float, parts: Sequence[str]) -> str:
    """Return a drawing of these pieces, as wide as the page."""
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img">{"".join(parts)}</svg>'


def cut(words: str, room: float) -> str:
    """Shorten a text to the room it has; the whole of it shows on hover."""
    most = int(room / CHAR)
    return words if len(words) <= most else words[: most - 3] + "..."


def text(x: float, y: float, words: str, anchor: str, whole: str = "") -> str:
    """Return a text that begins, ends or has its middle at x; `whole` shows on hover."""
    hover = f"<title>{escape(whole)}</title>" if whole else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{hover}{escape(words)}</text>'


def rect(x: float, y: float, width: float, height: float, kind: str, said: str) -> str:
    """Return a rectangle of a class of the page's, wide enough to be seen."""
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{height:.1f}">'
        f"<title>{escape(said)}</title></rect>"
    )


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """Return a line of a class of the page's."""
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def circle(x: float, y: float, kind: str, said: str) -> str:
    """Return a dot of a class of the page's."""
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="5"><title>{escape(said)}</title></circle>'
