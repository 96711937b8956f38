"""One HTML page a study: an answer, tables that sort, pictures drawn in the page, and their meanings.

Here are the parts of a page: plain records, pictures among them, which are drawn when the page is written.

charts   pictures as SVG, by matplotlib
html     a page as one file that needs no other, and small enough to open quickly
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ascendsim.studies.table import Table


class Bar(NamedTuple):
    """One bar of a tornado: from 0 to `value`, and a line from `low` to `high`, all in one unit."""

    label: str
    value: float
    low: float
    high: float


class Tornado(NamedTuple):
    """Bars about 0, the widest first."""

    bars: tuple[Bar, ...]
    unit: str


class Dot(NamedTuple):
    """One dot of a scatter; `marked` ones are joined, from left to right.

    mark   stands beside the dot: a short name, or its number in the table below
    bar    from where to where `y` may lie; None: nobody asked
    group  the name of its group, which has a colour and a line of the legend; "" for none
    """

    mark: str
    x: float
    y: float
    marked: bool = False
    bar: tuple[float, float] | None = None
    group: str = ""


class Scatter(NamedTuple):
    """Dots over two axes."""

    dots: tuple[Dot, ...]
    x_title: str
    y_title: str


class StackedBar(NamedTuple):
    """One stacked bar: (part, amount) in the order in which they follow each other."""

    label: str
    parts: tuple[tuple[str, float], ...]


class Stacks(NamedTuple):
    """Stacked bars on one scale, with a legend of their parts."""

    stacks: tuple[StackedBar, ...]
    unit: str


class RooflinePoint(NamedTuple):
    """A kernel: multiply-adds for each byte, and 10^12 multiply-adds a second.

    mte1, memory   as many a second as its copies from L1 to L0, and its bytes over main memory, would allow
                   if they never waited; None where it has none
    """

    label: str
    intensity: float
    rate: float
    mte1: float | None = None
    memory: float | None = None


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


class Roofline(NamedTuple):
    """Kernels below the roof of a product, both axes by powers of ten."""

    points: tuple[RooflinePoint, ...]
    roof: Roof

    @property
    def marks(self) -> list[str]:
        """What stands beside each dot: its name, or of many its number in the table."""
        if len(self.points) <= NAMED:
            return [point.label for point in self.points]
        return [str(number) for number, _ in enumerate(self.points, start=1)]


class Curve(NamedTuple):
    """One panel: a buffer in its row, a plan in its column; `held` in equal parts of time, all in bytes."""

    row: str
    column: str
    held: tuple[float, ...]
    reserved: int
    capacity: int


class Held(NamedTuple):
    """Panels, each as wide as `cycles` and as high as the capacity of its buffer."""

    curves: tuple[Curve, ...]
    cycles: int


class Range(NamedTuple):
    """What a format holds, as exponents: of its smallest value, its smallest normal one, and its largest.

    `shift` is the base-2 logarithm of a loss scale, by which the range moves down.
    """

    label: str
    smallest: float
    normal: float
    largest: float
    shift: float = 0.0


class Exponents(NamedTuple):
    """Counts of values by binade, from the exponent `first` on, and below them what each format holds."""

    first: int
    counts: tuple[int, ...]
    ranges: tuple[Range, ...]

    def shown(self) -> Exponents:
        """Return the binades that are drawn: the last ones, with what lies below them in the first."""
        extra = len(self.counts) - BINADES
        if extra <= 0:
            return self
        tail = sum(self.counts[: extra + 1])
        return self._replace(first=self.first + extra, counts=(tail, *self.counts[extra + 1 :]))


Chart = Tornado | Scatter | Stacks | Roofline | Held | Exponents
# As many kernels as can have their names beside their dots; more have their numbers in the table.
NAMED = 6
BINADES = 60  # the tail below them is drawn as one bar, so that the rest stays legible


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart, as data or as SVG, and the sentence that says what it shows to those who cannot see it."""

    chart: Chart | str
    caption: str


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands below it, in this order: paragraphs, pictures, tables.

    `collapsed` sections are opened by a click: details that few readers want.
    """

    title: str
    text: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = ()
    tables: tuple[Table, ...] = ()
    collapsed: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """One page.

    title        what was asked
    answer       the sentence that answers
    sections     the answer's reasons, the most important first
    definitions  word -> what it means, with its unit
    facts        what -> which: command, version, digest of the product's figures, assumed figures
    """

    title: str
    answer: str
    sections: tuple[Section, ...]
    definitions: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)


# Of clearly different hue or lightness, neighbours most of all; legible on white paper.
COLOURS = (
    *("#1f5fa8", "#c2862b", "#2f7d4f", "#b3412e", "#6b4fa0", "#3d8c95"),
    *("#8a6d52", "#d98fb5", "#222831", "#a9bd3f", "#7fb2e5", "#c9a9e0"),
)
REST = "all others"
REST_COLOUR = "#b4bac1"


def colours_of(stacks: Iterable[StackedBar]) -> dict[str, str]:
    """Return the colour of each part, in the order in which they came; no two parts have one colour.

    Of more parts than colours the largest have one, and what is left is REST.
    """
    sums: dict[str, float] = {}
    for name, amount in (part for stack in stacks for part in stack.parts):
        sums[name] = sums.get(name, 0.0) + amount
    largest = sorted(sums, key=lambda name: -sums[name])[: len(COLOURS)]
    found = dict(zip((name for name in sums if name in largest), COLOURS, strict=False))
    return found if len(found) == len(sums) else {**found, REST: REST_COLOUR}
