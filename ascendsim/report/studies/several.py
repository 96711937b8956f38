"""The answers of several studies of one kind on one page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ascendsim.report.page.records import Page, Section
from ascendsim.report.tables import TextTable


def listed(names: Sequence[str]) -> str:
    """Return names for a title, each once: "A", "A and B", "A, B and C"."""
    *first, last = dict.fromkeys(names)
    return f"{', '.join(first)} and {last}" if first else last


def joined(
    title: str, pages: Sequence[Page], names: Sequence[str], answer: str, overview: Sequence[TextTable] = ()
) -> Page:
    """Return one page of several: the sentence that compares them, then each with its sections folded.

    title      what all of them are of
    names      of the products that the pages are of
    overview   tables of all of them, if there are any
    """
    sections = [Section("All of them", (), (), tuple(overview))] if overview else []
    for page, name in zip(pages, names, strict=True):
        sections.append(Section(page.title, (page.answer,)))
        sections += [
            replace(section, title=f"{name}: {section.title}", collapsed=True) for section in page.sections
        ]
    definitions = {word: meaning for page in pages for word, meaning in page.definitions.items()}
    facts: dict[str, str] = {}
    for page, name in zip(pages, names, strict=True):
        for what, which in page.facts.items():
            # What is the same of all of them is told once.
            same = all(other.facts.get(what) == which for other in pages)
            facts[what if same else f"{what}, {name}"] = which
    return Page(title, answer, tuple(sections), definitions, facts)
