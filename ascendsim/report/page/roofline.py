"""A roofline: how fast kernels multiply, over how much they multiply for each byte that they read."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10
from typing import NamedTuple

from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.report.page.labels import labels
from ascendsim.report.page.shapes import WIDTH, circle, line, svg, text

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
