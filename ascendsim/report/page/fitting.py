"""Leave details out of a page until it is small enough for a browser to open quickly.

Details are what stands in collapsed sections; all else of a page is kept as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import escape
from typing import NamedTuple

from ascendsim.report.page.records import Page, Picture, Section
from ascendsim.report.tables import TextTable

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
    """Return what of a section fits, and the room that is left."""
    pictures: list[Picture] = []
    tables: list[TextTable] = []
    for picture in section.pictures:
        room -= PIECE + _bytes(picture.svg) + _bytes(picture.caption)
        if room < 0:
            break
        pictures.append(picture)
    rows = 0
    for table in section.tables if room > 0 else ():
        cut, room = _table(table, room)
        rows += len(cut.rows)
        if cut.rows:
            tables.append(cut)
        if len(cut.rows) < len(table.rows):
            break
    lost_pictures = len(section.pictures) - len(pictures)
    lost_rows = sum(len(table.rows) for table in section.tables) - rows
    if lost_pictures or lost_rows:
        lost_tables = len(section.tables) - len(tables)
        said = _said(lost_pictures, lost_rows, lost_tables)
        section = replace(section, text=(*section.text, said), pictures=tuple(pictures), tables=tuple(tables))
        room = 0
    return section, room


def _table(table: TextTable, room: int) -> tuple[TextTable, int]:
    """Return as many rows as fit, and the room that is left; a cut table has no total."""
    room -= PIECE + _bytes(table.title) + sum(HEADING + _bytes(heading) for heading in table.headings)
    kept = 0
    for size in _row_sizes(table):
        if size > room:
            break
        room -= size
        kept += 1
    if kept == len(table.rows):
        return table, room
    return table._replace(rows=table.rows[:kept], total=False), 0


def _row_sizes(table: TextTable) -> Iterator[int]:
    for row in table.rows:
        marks = (LEFT_CELL if at in table.left else CELL for at in range(len(row)))
        yield ROW + sum(marks) + sum(map(_bytes, row))


def _bytes(text: str) -> int:
    """Return the most bytes that a text takes on the page."""
    return len(escape(text).encode())


def _said(pictures: int, rows: int, tables: int) -> str:
    """Say what is left out, and where it is."""
    return (
        f"Left out, as the page would be too large to open quickly: {pictures:,} pictures, and {rows:,} "
        f"rows, {tables:,} tables of them whole. --json or --table have all of it."
    )


WIDTH, LEFT, RIGHT, TOP, PLOT, EXPONENTS_ROW = 720, 130, 20, 24, 150, 22
SHOWN = 60  # binades: the tail below them is drawn as one bar, so that the rest stays legible


class Bars(NamedTuple):
    """Counts of values by binade: exponent of the first one, counts from there."""

    first: int
    counts: tuple[int, ...]


class Range(NamedTuple):
    """What a format holds, as exponents: of its smallest value, its smallest normal one, and its largest.

    `shift` is the base-2 logarithm of a loss scale, by which the range moves down.
    """

    label: str
    smallest: float
    normal: float
    largest: float
    shift: float = 0.0


def exponents(bars: Bars, ranges: Sequence[Range]) -> str:
    """Draw counts by binade, and below them each format: normal values as a bar, subnormal ones lighter."""
    first, counts, cut = _shown(bars)
    last = first + len(counts)
    step = (WIDTH - LEFT - RIGHT) / max(len(counts), 1)
    most = max(counts, default=1) or 1
    total, bottom = sum(counts) or 1, TOP + PLOT
    parts = [_text(LEFT - 8, TOP + 10, f"{most / total:.0%}", "end"), _text(LEFT - 8, bottom, "0", "end")]
    for at, count in enumerate(counts):
        height = PLOT * count / most
        below = f"below 2^{first + 1}" if cut and at == 0 else f"2^{first + at}"
        said = f"{below}: {count:,} values, {count / total:.2%}"
        parts.append(_rect(LEFT + at * step, bottom - height, step * 0.9, height, "marked", said))
        if (first + at) % 5 == 0:
            parts.append(_text(LEFT + (at + 0.5) * step, bottom + 14, str(first + at), "middle"))
    parts.append(_text(WIDTH - RIGHT, TOP - 8, "share of the non-zero values, by exponent of 2", "end"))

    def place(exponent: float) -> float:
        return LEFT + step * (min(max(exponent, first), last) - first)

    for at, one in enumerate(ranges):
        top = bottom + 24 + at * EXPONENTS_ROW
        parts.append(_text(LEFT - 8, top + 12, one.label, "end"))
        ends = [place(end - one.shift) for end in (one.smallest, one.normal, one.largest)]
        least, normal, largest = (
            f"2^{end - one.shift:.4g}" for end in (one.smallest, one.normal, one.largest)
        )
        kinds = f"{one.label}: subnormal from {least}", f"{one.label}: normal from {normal} to {largest}"
        parts.append(_rect(ends[0], top + 2, ends[1] - ends[0], 12, "subnormal", kinds[0]))
        parts.append(_rect(ends[1], top + 2, ends[2] - ends[1], 12, "normal", kinds[1]))
    height = bottom + 30 + EXPONENTS_ROW * len(ranges)
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img">{"".join(parts)}</svg>'


def _shown(bars: Bars) -> tuple[int, tuple[int, ...], bool]:
    """Return the binades that are drawn: the last ones, with what lies below them in the first."""
    extra = len(bars.counts) - SHOWN
    if extra <= 0:
        return bars.first, bars.counts, False
    tail = sum(bars.counts[: extra + 1])
    return bars.first + extra, (tail, *bars.counts[extra + 1 :]), True


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _rect(x: float, y: float, width: float, height: float, kind: str, said: str) -> str:
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.0):.1f}" height="{height:.1f}">'
        f"<title>{escape(said)}</title></rect>"
    )
