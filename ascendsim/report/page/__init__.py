"""One HTML page a study: an answer, tables that sort, pictures drawn in the page, and their meanings.

The parts of a page are plain records, pictures among them, which `charts` draws as the page is written. The
page is one HTML file that needs no other: style, script and pictures are in it. Of a page that a browser
would not open quickly, details are left out: what stands in collapsed sections.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from html import escape as escaped
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ascendsim.errors import DataError
from ascendsim.files import make_folder, write_text
from ascendsim.studies.table import Table

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup


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
    """

    mark: str
    x: float
    y: float
    marked: bool = False


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


LARGEST_BYTES = 5 * 2**20


def render(page: Page) -> str:
    """Return a page as HTML; texts are escaped, pictures are drawn."""
    return _template().render(page=drawn(page))


def drawn(page: Page) -> Page:
    """Return a page whose pictures are drawn: matplotlib takes a second to load, and no one else needs it."""
    from ascendsim.report.page.charts import svg

    numbers = count()
    sections = []
    for section in page.sections:
        pictures = tuple(
            one
            if isinstance(one.chart, str)
            else replace(one, chart=svg(one.chart, one.caption, next(numbers)))
            for one in section.pictures
        )
        sections.append(replace(section, pictures=pictures))
    return replace(page, sections=tuple(sections))


def write_page(path: Path, page: Page) -> None:
    """Write a page, whole or not at all; of a page above 5 MB, which no browser opens quickly, fewer details.

    Raises   DataError for a page above 5 MB even without details, or a folder that takes no file
    """
    page = drawn(page)
    text = render(page)
    size = len(text.encode())
    if size > LARGEST_BYTES:
        rest = len(render(without_details(page)).encode())
        text = render(fitted(page, LARGEST_BYTES - rest))
        size = len(text.encode())
    if size > LARGEST_BYTES:
        raise DataError(
            f"{path}: the page has {size:,} bytes, more than {LARGEST_BYTES:,}; study fewer layers, "
            "or write the rows with --table"
        )
    make_folder(path.parent)
    write_text(path, text)


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    # Names of layers and files are the user's: what looks like markup is text.
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["words"] = _words
    source = (files("ascendsim.report.page") / "template.html").read_text(encoding="utf-8")
    return environment.from_string(source)


def _words(text: str) -> Markup:
    """Return a sentence as HTML, with what stands between backticks as code."""
    from markupsafe import Markup, escape

    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


# The bytes of the template's marks around a cell, one that is aligned left and a row; and more than those
# around a heading, and around a table or a picture.
CELL, LEFT_CELL, ROW, HEADING, PIECE = 9, 22, 10, 80, 400


def without_details(page: Page) -> Page:
    """Return the page with its collapsed sections empty."""
    return replace(page, sections=tuple(_emptied(section) for section in page.sections))


def _emptied(section: Section) -> Section:
    if not section.collapsed:
        return section
    return replace(section, text=(*section.text, _said(0, 0, 0)), pictures=(), tables=())


def fitted(page: Page, room: int) -> Page:
    """Return the page with as many details, from the first on, as take `room` bytes.

    A table that has no room whole is cut after a row; the section says what is left out.
    """
    sections = []
    for section in page.sections:
        if section.collapsed:
            section, room = _section(section, room)  # the same section, shorter
        sections.append(section)
    return replace(page, sections=tuple(sections))


def _section(section: Section, room: int) -> tuple[Section, int]:
    """Return the pictures and tables of a section that fit, and the room left."""
    pictures: list[Picture] = []
    tables: list[Table] = []
    for picture in section.pictures:
        room -= PIECE + _bytes(str(picture.chart)) + _bytes(picture.caption)
        if room < 0:
            break
        pictures.append(picture)
    rows = 0
    for table in section.tables if room > 0 else ():
        cut, room = _table(table, room)
        rows += len(cut.values)
        if cut.values:
            tables.append(cut)
        if len(cut.values) < len(table.values):
            break
    lost_pictures = len(section.pictures) - len(pictures)
    lost_rows = sum(len(table.values) for table in section.tables) - rows
    if lost_pictures or lost_rows:
        lost_tables = len(section.tables) - len(tables)
        said = _said(lost_pictures, lost_rows, lost_tables)
        section = replace(section, text=(*section.text, said), pictures=tuple(pictures), tables=tuple(tables))
        room = 0
    return section, room


def _table(table: Table, room: int) -> tuple[Table, int]:
    """Return as many rows as fit, and the room that is left; a cut table has no total."""
    room -= PIECE + _bytes(table.title) + sum(HEADING + _bytes(heading) for heading in table.headings)
    kept = 0
    for size in _row_sizes(table):
        if size > room:
            break
        room -= size
        kept += 1
    if kept == len(table.values):
        return table, room
    return replace(table, values=table.values[:kept], total=False), 0


def _row_sizes(table: Table) -> Iterator[int]:
    left = table.left
    for row in table.rows:
        marks = (LEFT_CELL if at in left else CELL for at in range(len(row)))
        yield ROW + sum(marks) + sum(map(_bytes, row))


def _bytes(text: str) -> int:
    """Return the most bytes that a text takes on the page."""
    return len(escaped(text).encode())


def _said(pictures: int, rows: int, tables: int) -> str:
    """Count the pictures and rows left out, and name the options that write them."""
    return (
        f"Left out, as the page would be too large to open quickly: {pictures:,} pictures, and {rows:,} "
        f"rows, {tables:,} tables of them whole. --json or --table have all of it."
    )
