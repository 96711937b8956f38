"""The parts of a page: plain records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


# Of clearly different hue or lightness, neighbours most of all; legible on white paper.
COLOURS = (
    *("#1f5fa8", "#c2862b", "#2f7d4f", "#b3412e", "#6b4fa0", "#3d8c95"),
    *("#8a6d52", "#d98fb5", "#222831", "#a9bd3f", "#7fb2e5", "#c9a9e0"),
)
REST = "all others"
REST_COLOUR = "#b4bac1"


def told_apart(parts: Iterable[tuple[str, float]]) -> tuple[str, ...]:
    """Return the names that have a colour of their own, in the order in which they came.

    parts   (name, amount), a name as often as it comes; of more names than colours the largest have one, and
            what is left is REST
    """
    sums: dict[str, float] = {}
    for name, amount in parts:
        sums[name] = sums.get(name, 0.0) + amount
    largest = sorted(sums, key=lambda name: -sums[name])[: len(COLOURS)]
    return tuple(name for name in sums if name in largest)
