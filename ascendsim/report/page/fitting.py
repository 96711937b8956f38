"""Leave details out of a page until it is small enough for a browser to open quickly.

Details are what stands in collapsed sections; all else of a page is kept as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from html import escape

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
