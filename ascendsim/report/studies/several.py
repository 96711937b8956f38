"""The answers of several studies of one kind on one page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ascendsim.report.page.records import Page, Section
from ascendsim.report.tables import TextTable


def joined(
    pages: Sequence[Page], names: Sequence[str], answer: str, overview: Sequence[TextTable] = ()
) -> Page:
    """Return one page of several: the sentence that compares them, then each with its sections folded.

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
    title = f"{len(pages)} answers: {', '.join(dict.fromkeys(names))}"
    return Page(title, answer, tuple(sections), definitions, facts)
