"""A page as one HTML file that needs no other: style, script and pictures are in it."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from ascendsim.errors import DataError
from ascendsim.report.files import make_folder, write_text
from ascendsim.report.page.fitting import fitted, without_details
from ascendsim.report.page.records import COLOURS, REST_COLOUR, Page

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

LARGEST_BYTES = 5 * 2**20


def render(page: Page) -> str:
    """Return a page as HTML; texts are escaped, pictures are taken as they are."""
    return _template().render(page=page, colours=COLOURS, rest_colour=REST_COLOUR)


def write_page(path: Path, page: Page) -> None:
    """Write a page, whole or not at all; of a page above 5 MB, which no browser opens quickly, fewer details.

    Raises   DataError for a page above 5 MB even without details, or a folder that takes no file
    """
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
