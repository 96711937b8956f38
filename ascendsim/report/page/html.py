"""A page as one HTML file that needs no other: style, script and pictures are in it.

Of a page that a browser would not open quickly, details are left out: what stands in collapsed sections.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from html import escape as escaped
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from ascendsim.errors import DataError
from ascendsim.files import make_folder, write_text
from ascendsim.report.page import Page, Picture, Section
from ascendsim.studies.table import Table

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

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
