"""The parts of a page: plain records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ascendsim.report.tables import TextTable


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing: SVG, and the sentence that says what it shows to those who cannot see it."""

    svg: str
    caption: str


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands below it, in this order: paragraphs, pictures, tables.

    `collapsed` sections are opened by a click: details that few readers want.
    """

    title: str
    text: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = ()
    tables: tuple[TextTable, ...] = ()
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
