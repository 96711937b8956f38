"""Pictures of numbers as SVG, which scale with the page; colours follow the page's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import product
from math import ceil, floor, log10
from typing import NamedTuple

from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.report.page.records import REST, told_apart

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


RADIUS, HEIGHT, LABELS_TOP = 6.0, 11.0, 6.0
# Directions in which a word stands from its dot, the most legible first, and how its place is counted.
_SIDES = (
    # Above to the right first: the line of a front falls, and leaves that side free.
    *((1, -1, "start"), (1, 0, "start"), (-1, 0, "end"), (0, -1, "middle")),
    *((0, 1, "middle"), (1, 1, "start"), (-1, -1, "end"), (-1, 1, "end")),
)
# Distances from the dot; from the third on a line leads to it.
_RINGS = (9.0, 14.0, 24.0, 38.0, 54.0, 72.0)
_LED = 24.0
# The side of a square, about as high as a word.
_SQUARE = 16.0
_SHIFT = {"start": 0.0, "middle": 0.5, "end": 1.0}


class _Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: _Box) -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )


class _Taken:
    """Boxes that are taken, by the squares of the drawing that they touch: a study may have thousands."""

    def __init__(self, boxes: Iterable[_Box]) -> None:
        self._by_square: dict[tuple[int, int], list[_Box]] = {}
        for box in boxes:
            self.add(box)

    def add(self, box: _Box) -> None:
        """Take a box."""
        for square in _squares(box):
            self._by_square.setdefault(square, []).append(box)

    def meets(self, box: _Box) -> bool:
        """Tell whether a box meets one that is taken."""
        return any(box.meets(other) for square in _squares(box) for other in self._by_square.get(square, ()))


def _squares(box: _Box) -> Iterator[tuple[int, int]]:
    left, top, right, bottom = (int(edge // _SQUARE) for edge in box)
    return product(range(left, right + 1), range(top, bottom + 1))


class _Place(NamedTuple):
    x: float
    y: float
    anchor: str
    distance: float
    box: _Box


def labels(dots: Sequence[tuple[float, float]], words: Sequence[str], bottom: float) -> list[str]:
    """Return a text beside each dot, all above `bottom`; one that finds no room is nearest its dot."""
    taken = _Taken(_Box(x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS) for x, y in dots)
    frame = _Box(0, LABELS_TOP, WIDTH, bottom)
    parts = []
    for (x, y), said in zip(dots, words, strict=True):
        places = list(_places(x, y, said))
        free = (p for p in places if _inside(p.box, frame) and not taken.meets(p.box))
        place = next(free, places[0])
        taken.add(place.box)
        if place.distance >= _LED:
            parts.append(line(x, y, place.x, place.y - HEIGHT / 3, "leader"))
        parts.append(text(place.x, place.y, said, place.anchor))
    return parts


def _places(x: float, y: float, said: str) -> Iterator[_Place]:
    width = CHAR * len(said)
    for distance in _RINGS:
        for right, down, anchor in _SIDES:
            # A text stands on its line, so that its middle is a third of its height above it.
            at_x, at_y = x + right * distance, y + down * distance + HEIGHT / 3
            left = at_x - _SHIFT[anchor] * width
            box = _Box(left, at_y - HEIGHT, left + width, at_y + HEIGHT / 4)
            yield _Place(at_x, at_y, anchor, distance, box)


def _inside(box: _Box, frame: _Box) -> bool:
    return (
        frame.left <= box.left
        and frame.top <= box.top
        and box.right <= frame.right
        and box.bottom <= frame.bottom
    )


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
        parts.append(text(LABEL - 8, middle + 4, cut(bar.label, LABEL), "end", bar.label))
        parts.append(
            rect(left, top + 5, right - left, ROW - 10, kind, f"{bar.label}: {bar.value:.3g} {unit}")
        )
        parts.append(line(scale.at(bar.low), middle, scale.at(bar.high), middle, "whisker"))
    return svg(height, parts)


def scatter(dots: Sequence[Dot], x_title: str, y_title: str) -> str:
    """Draw dots over two axes; marked ones are joined."""
    height = PLOT_HEIGHT
    across = _Scale(*_with_room([dot.x for dot in dots]), 70, WIDTH - MARGIN)
    up = _Scale(*_with_room([dot.y for dot in dots]), height - 50, MARGIN)
    parts = _axis(across, MARGIN, height - 50, x_title)
    for tick in up.ticks:
        parts.append(line(70, up.at(tick), WIDTH - MARGIN, up.at(tick), "grid"))
        parts.append(text(64, up.at(tick) + 4, f"{tick:,.6g}", "end"))
    parts.append(text(70, 18, y_title, "start"))
    front = sorted((d for d in dots if d.marked), key=lambda d: (d.x, d.y))
    if front:
        points = " ".join(f"{across.at(d.x):.1f},{up.at(d.y):.1f}" for d in front)
        parts.append(f'<polyline class="front" points="{points}"/>')
    places = [(across.at(dot.x), up.at(dot.y)) for dot in dots]
    # Marked ones last, so that no other in the same place hides them.
    for dot, place in sorted(zip(dots, places, strict=True), key=lambda one: one[0].marked):
        said = f"{dot.label}: {dot.x:.6g}, {dot.y:.6g}"
        parts.append(circle(*place, "marked" if dot.marked else "dot", said))
    return svg(height, parts + labels(places, [dot.mark for dot in dots], height - 50))


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
        parts += [rect(x, y, 14, 14, kind, name), text(x + 20, y + 12, cut(name, 160), "start")]
    for at, stack in enumerate(stacks):
        y, begin = top + at * ROW, 0.0
        parts.append(text(LABEL - 8, y + ROW / 2 + 4, cut(stack.label, LABEL), "end", stack.label))
        for name, amount in stack.parts:
            left, right = scale.at(begin), scale.at(begin + amount)
            said = f"{stack.label}, {name}: {amount:,.0f} {unit}"
            parts.append(rect(left, y + 4, right - left, ROW - 8, kinds.get(name, "rest"), said))
            begin += amount
    return svg(height, parts)


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
    parts = [text(WIDTH - MARGIN, bottom + 28, title, "end")]
    for tick in scale.ticks:
        parts.append(line(scale.at(tick), top, scale.at(tick), bottom, "grid"))
        parts.append(text(scale.at(tick), bottom + 14, f"{tick:,.6g}", "middle"))
    if scale.low < 0 < scale.high:
        parts.append(line(scale.at(0), top, scale.at(0), bottom, "zero"))
    return parts


LEFT, RIGHT, TOP, BOTTOM = 70, WIDTH - 30, 40, 300
# As many as can have their names beside them; of more their numbers in the table below stand there.
NAMED = 6


class Point(NamedTuple):
    """A kernel: multiply-adds for each byte, and 10^12 multiply-adds a second."""

    label: str
    intensity: float
    rate: float


class Roof(NamedTuple):
    """What a product can do: 10^12 multiply-adds a second at most, and 10^12 bytes a second."""

    peak: float
    bytes_rate: float

    def at(self, intensity: float) -> float:
        """Return the most that a kernel of so many multiply-adds for each byte can reach."""
        return min(self.peak, self.bytes_rate * intensity)

    @property
    def ridge(self) -> float:
        """From how many multiply-adds for each byte on the cubes are the limit, and not the bytes."""
        return self.peak / self.bytes_rate


def marks(points: Sequence[Point]) -> list[str]:
    """Return what stands beside each dot: its name, or of many its number in the table."""
    if len(points) <= NAMED:
        return [point.label for point in points]
    return [str(at) for at in range(1, len(points) + 1)]


class _Decades:
    """Numbers to places on a drawing, by their logarithms, over whole decades."""

    def __init__(self, values: Sequence[float], begin: float, end: float) -> None:
        self.low, self.high = floor(log10(min(values))), ceil(log10(max(values)))
        # All of them may be the same power of ten.
        self.high = max(self.high, self.low + 1)
        self._begin, self._end = begin, end

    def at(self, value: float) -> float:
        return self._begin + (log10(value) - self.low) / (self.high - self.low) * (self._end - self._begin)

    @property
    def ticks(self) -> list[float]:
        return [10.0**power for power in range(self.low, self.high + 1)]


@default_arithmetic
def roofline(points: Sequence[Point], roof: Roof) -> str:
    """Draw kernels below the roof of a product, both axes by powers of ten."""
    across = _Decades([roof.ridge, *(point.intensity for point in points)], LEFT, RIGHT)
    up = _Decades([roof.peak, *(point.rate for point in points)], BOTTOM, TOP)
    parts = [text(LEFT, 18, "10^12 multiply-adds a second", "start")]
    parts.append(text(RIGHT, BOTTOM + 32, "multiply-adds for each byte read through L2", "end"))
    for tick in across.ticks:
        parts.append(line(across.at(tick), TOP, across.at(tick), BOTTOM, "grid"))
        parts.append(text(across.at(tick), BOTTOM + 16, f"{tick:,.6g}", "middle"))
    for tick in up.ticks:
        parts.append(line(LEFT, up.at(tick), RIGHT, up.at(tick), "grid"))
        parts.append(text(LEFT - 6, up.at(tick) + 4, f"{tick:,.6g}", "end"))
    parts += _roof(roof, across, up)
    places = [(across.at(point.intensity), up.at(point.rate)) for point in points]
    for point, place in zip(points, places, strict=True):
        said = f"{point.label}: {point.intensity:,.3g} for each byte, {point.rate:,.3g} x 10^12 a second"
        parts.append(circle(*place, "marked", said))
    parts += labels(places, marks(points), BOTTOM)
    return svg(BOTTOM + 44, parts)


def _roof(roof: Roof, across: _Decades, up: _Decades) -> list[str]:
    # The slope begins where it leaves the drawing on its left or at its foot.
    begin = max(across.ticks[0], up.ticks[0] / roof.bytes_rate)
    corner = across.at(roof.ridge), up.at(roof.peak)
    parts = [line(across.at(begin), up.at(roof.at(begin)), *corner, "whisker")]
    parts.append(line(*corner, RIGHT, corner[1], "whisker"))
    parts.append(text(RIGHT, corner[1] - 6, f"cubes: {roof.peak:,.4g}", "end"))
    return parts


HELD_LABEL, GAP, HELD_TOP, PANEL, HELD_ROW = 60, 16, 30, 56, 76


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
    width = (WIDTH - HELD_LABEL - GAP * len(columns)) / len(columns)
    lefts = {name: HELD_LABEL + at * (width + GAP) for at, name in enumerate(columns)}
    parts = [text(lefts[name], 16, name, "start") for name in columns]
    parts += [
        text(HELD_LABEL - 8, HELD_TOP + at * HELD_ROW + PANEL / 2 + 4, name, "end")
        for at, name in enumerate(rows)
    ]
    for curve in curves:
        parts += _panel(curve, lefts[curve.column], HELD_TOP + rows.index(curve.row) * HELD_ROW, width)
    bottom = HELD_TOP + len(rows) * HELD_ROW
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
