"""What buffers hold over time: a panel for each buffer and plan, filled up to the bytes held."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from ascendsim.report.page.shapes import WIDTH, line, svg, text

LABEL, GAP, TOP, PANEL, ROW = 60, 16, 30, 56, 76


class Curve(NamedTuple):
    """One panel: a buffer in its row, a plan in its column; `held` in equal parts of time, all in bytes."""

    row: str
    column: str
    held: tuple[float, ...]
    reserved: int
    capacity: int


def held(curves: Sequence[Curve], columns: Sequence[str], cycles: int) -> str:
    """Draw all panels: each as wide as `cycles` and as high as the capacity of its buffer."""
    rows = list(dict.fromkeys(curve.row for curve in curves))
    width = (WIDTH - LABEL - GAP * len(columns)) / len(columns)
    lefts = {name: LABEL + at * (width + GAP) for at, name in enumerate(columns)}
    parts = [text(lefts[name], 16, name, "start") for name in columns]
    parts += [text(LABEL - 8, TOP + at * ROW + PANEL / 2 + 4, name, "end") for at, name in enumerate(rows)]
    for curve in curves:
        parts += _panel(curve, lefts[curve.column], TOP + rows.index(curve.row) * ROW, width)
    bottom = TOP + len(rows) * ROW
    for name in columns:
        parts.append(text(lefts[name], bottom - 4, "0", "start"))
        parts.append(text(lefts[name] + width, bottom - 4, f"{cycles:,} cycles", "end"))
    return svg(bottom + 10, parts)


def _panel(curve: Curve, left: float, top: float, width: float) -> list[str]:
    foot, step = top + PANEL, width / max(len(curve.held), 1)
    heights = [PANEL * size / curve.capacity for size in curve.held]
    # A level for each part: up to it at its left end, along it to its right end.
    corners = [(left, foot)]
    for at, height in enumerate(heights):
        corners += [(left + at * step, foot - height), (left + (at + 1) * step, foot - height)]
    corners.append((left + width, foot))
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    reserved = foot - PANEL * curve.reserved / curve.capacity
    said = f"{curve.column}, {curve.row}: {curve.reserved:,} of {curve.capacity:,} bytes reserved"
    return [
        f'<polyline class="held" points="{points}"><title>{escape(said)}</title></polyline>',
        *(line(left, y, left + width, y, "grid") for y in (top, foot)),
        *(line(x, top, x, foot, "grid") for x in (left, left + width)),
        line(left, reserved, left + width, reserved, "reserved"),
    ]
