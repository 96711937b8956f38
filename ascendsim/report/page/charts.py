"""Pictures of numbers as SVG, which scale with the page; colours follow the page's."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10
from typing import NamedTuple

from ascendsim.report.page.labels import labels
from ascendsim.report.page.palette import REST, told_apart
from ascendsim.report.page.shapes import WIDTH, circle
from ascendsim.report.page.shapes import cut as _cut
from ascendsim.report.page.shapes import line as _line
from ascendsim.report.page.shapes import rect as _rect
from ascendsim.report.page.shapes import svg as _svg
from ascendsim.report.page.shapes import text as _text

LABEL, ROW, MARGIN = 250, 26, 30
PLOT_HEIGHT = 320
TICKS = 5


class Bar(NamedTuple):
    """One bar of a tornado: from `low` over `value` to `high`, all in one unit."""

    label: str
    value: float
    low: float
    high: float


class Dot(NamedTuple):
    """One dot of a scatter; `marked` ones are joined, from left to right.

    mark   stands beside the dot: a short name, or its number in the table below
    label  the whole name, which shows on hover
    """

    mark: str
    label: str
    x: float
    y: float
    marked: bool = False


class Stack(NamedTuple):
    """One stacked bar: (part, amount) in the order of the legend."""

    label: str
    parts: tuple[tuple[str, float], ...]


def tornado(bars: Sequence[Bar], unit: str) -> str:
    """Draw each value as a bar from 0, the widest first, with its interval as a line over it."""
    rows = sorted(bars, key=lambda bar: -abs(bar.value))
    ends = [0.0, *(end for bar in rows for end in (bar.value, bar.low, bar.high))]
    scale = _Scale(min(ends), max(ends), LABEL, WIDTH - MARGIN)
    height = ROW * len(rows) + 2 * MARGIN
    parts = _axis(scale, MARGIN, height - MARGIN, unit)
    for at, bar in enumerate(rows):
        top, middle = MARGIN + at * ROW, MARGIN + at * ROW + ROW / 2
        left, right = sorted((scale.at(0), scale.at(bar.value)))
        kind = "good" if bar.value >= 0 else "bad"
        parts.append(_text(LABEL - 8, middle + 4, _cut(bar.label, LABEL), "end", bar.label))
        parts.append(
            _rect(left, top + 5, right - left, ROW - 10, kind, f"{bar.label}: {bar.value:.3g} {unit}")
        )
        parts.append(_line(scale.at(bar.low), middle, scale.at(bar.high), middle, "whisker"))
    return _svg(height, parts)


def scatter(dots: Sequence[Dot], x_title: str, y_title: str) -> str:
    """Draw dots over two axes; marked ones are joined."""
    height = PLOT_HEIGHT
    across = _Scale(*_with_room([dot.x for dot in dots]), 70, WIDTH - MARGIN)
    up = _Scale(*_with_room([dot.y for dot in dots]), height - 50, MARGIN)
    parts = _axis(across, MARGIN, height - 50, x_title)
    for tick in up.ticks:
        parts.append(_line(70, up.at(tick), WIDTH - MARGIN, up.at(tick), "grid"))
        parts.append(_text(64, up.at(tick) + 4, f"{tick:,.6g}", "end"))
    parts.append(_text(70, 18, y_title, "start"))
    front = sorted((d for d in dots if d.marked), key=lambda d: (d.x, d.y))
    if front:
        points = " ".join(f"{across.at(d.x):.1f},{up.at(d.y):.1f}" for d in front)
        parts.append(f'<polyline class="front" points="{points}"/>')
    places = [(across.at(dot.x), up.at(dot.y)) for dot in dots]
    # Marked ones last, so that no other in the same place hides them.
    for dot, place in sorted(zip(dots, places, strict=True), key=lambda one: one[0].marked):
        said = f"{dot.label}: {dot.x:.6g}, {dot.y:.6g}"
        parts.append(circle(*place, "marked" if dot.marked else "dot", said))
    return _svg(height, parts + labels(places, [dot.mark for dot in dots], height - 50))


def _with_room(values: Sequence[float]) -> tuple[float, float]:
    """Return both ends of values, a little further apart, so that no dot lies on an axis."""
    room = (max(values) - min(values)) / 20
    return min(values) - room, max(values) + room


def stacked(stacks: Sequence[Stack], unit: str) -> str:
    """Draw bars of parts on one scale, with a legend of the parts; no two of them have one colour."""
    names = told_apart(part for stack in stacks for part in stack.parts)
    kinds = {name: f"part{at}" for at, name in enumerate(names)}
    if any(name not in kinds for stack in stacks for name, _ in stack.parts):
        kinds[REST] = "rest"
    most = max((sum(amount for _, amount in stack.parts) for stack in stacks), default=1.0)
    scale = _Scale(0, most, LABEL, WIDTH - MARGIN)
    legend_rows = -(-len(kinds) // 4)
    top = MARGIN + ROW * legend_rows
    height = top + ROW * len(stacks) + MARGIN
    parts = _axis(scale, top, height - MARGIN, unit)
    for at, (name, kind) in enumerate(kinds.items()):
        x, y = 10 + (at % 4) * (WIDTH - 20) / 4, 8 + (at // 4) * ROW
        parts += [_rect(x, y, 14, 14, kind, name), _text(x + 20, y + 12, _cut(name, 160), "start")]
    for at, stack in enumerate(stacks):
        y, begin = top + at * ROW, 0.0
        parts.append(_text(LABEL - 8, y + ROW / 2 + 4, _cut(stack.label, LABEL), "end", stack.label))
        for name, amount in stack.parts:
            left, right = scale.at(begin), scale.at(begin + amount)
            said = f"{stack.label}, {name}: {amount:,.0f} {unit}"
            parts.append(_rect(left, y + 4, right - left, ROW - 8, kinds.get(name, "rest"), said))
            begin += amount
    return _svg(height, parts)


class _Scale:
    """Numbers to places on the drawing."""

    def __init__(self, low: float, high: float, begin: float, end: float) -> None:
        # A single value gets room around it.
        spread = (high - low) or abs(high) or 1.0
        self.low, self.high = (low, high) if high > low else (low - spread / 2, high + spread / 2)
        self.begin, self.end = begin, end

    def at(self, value: float) -> float:
        return self.begin + (value - self.low) / (self.high - self.low) * (self.end - self.begin)

    @property
    def ticks(self) -> list[float]:
        """Round numbers between the ends: multiples of 1, 2 or 5 times a power of ten."""
        rough = (self.high - self.low) / TICKS
        power = 10.0 ** floor(log10(rough))
        step = next(power * digit for digit in (1, 2, 5, 10) if power * digit >= rough)
        return [step * at for at in range(ceil(self.low / step), floor(self.high / step) + 1)]


def _axis(scale: _Scale, top: float, bottom: float, title: str) -> list[str]:
    parts = [_text(WIDTH - MARGIN, bottom + 28, title, "end")]
    for tick in scale.ticks:
        parts.append(_line(scale.at(tick), top, scale.at(tick), bottom, "grid"))
        parts.append(_text(scale.at(tick), bottom + 14, f"{tick:,.6g}", "middle"))
    if scale.low < 0 < scale.high:
        parts.append(_line(scale.at(0), top, scale.at(0), bottom, "zero"))
    return parts
