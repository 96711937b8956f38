"""The answer of a study as one record, which a terminal, a page and JSON show."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from ascendsim import __version__
from ascendsim.report.page import Page, Section
from ascendsim.report.page.html import write_page
from ascendsim.report.terminal import make_console, print_table, print_text
from ascendsim.studies.records import StudyAnswer
from ascendsim.studies.table import Table

AnswerT = TypeVar("AnswerT", bound=StudyAnswer)


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer.

    page     with the title and the sentence that answers
    record   plain values, for JSON
    tables   what a terminal shows, between `reasons` and `notes`
    parts    of a comparison: the answers that are compared, as far as a terminal shows them
    legend   what words mean, once below all
    """

    page: Page
    record: Mapping[str, Any]
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    parts: tuple[Answered, ...] = ()
    legend: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Compared:
    """The comparison of several answers: a title, a sentence, tables of all of them.

    brief   whether the tables of each of them are on the page alone
    """

    title: str
    answer: str
    tables: tuple[Table, ...] = ()
    brief: bool = False


@dataclass(frozen=True, slots=True)
class Output:
    """Where answers are written: JSON or tables on the terminal, and a page in a folder.

    command   the words that asked for them
    """

    command: Sequence[str]
    json: bool = False
    folder: Path | None = None

    def write(
        self,
        answers: Sequence[AnswerT],
        made_of: Callable[[AnswerT], Answered],
        compare: Callable[[Sequence[AnswerT]], Compared] | None = None,
    ) -> None:
        """Print answers, several after what compares them, and write their page where one is asked for."""
        each = [_with_facts(made_of(answer), answer, self.command) for answer in answers]
        answered = each[0]
        if compare is not None and len(each) > 1:
            answered = together(compare(answers), each, [answer.variant for answer in answers])
        # The page is written even where the reader of what is printed leaves early, as `head` does.
        try:
            self.show(answered)
        finally:
            if self.folder is not None:
                path = self.folder / "study.html"
                write_page(path, answered.page)
                # JSON is for another program: nothing else stands beside it.
                print(f"\nPage in {path}", file=sys.stderr if self.json else sys.stdout)

    def show(self, answered: Answered) -> None:
        """Print an answer."""
        if self.json:
            print(json.dumps(answered.record, indent=1, allow_nan=False))
            return
        out = make_console()

        def show_one(answered: Answered) -> None:
            for line in (answered.page.answer, *answered.reasons):
                print_text(out, line)
            for table in answered.tables:
                print_table(out, table)
            if answered.notes or (answered.legend and not answered.parts):
                out.print()
            for note in answered.notes:
                print_text(out, note)
            for part in answered.parts:
                out.print()
                show_one(part)

        show_one(answered)
        for line in answered.legend:
            print_text(out, line)


def _with_facts(answered: Answered, answer: StudyAnswer, command: Sequence[str]) -> Answered:
    facts = study_facts(command, answer.variant, answer.digest, answer.ranged)
    return replace(answered, page=replace(answered.page, facts={**facts, **answered.page.facts}))


def study_facts(command: Sequence[str], variant: str, digest: str, ranged: int) -> dict[str, str]:
    """Return the command, the version, and which figures the product has."""
    return {
        "command": shlex.join(["ascendsim", *command]),
        "version": f"ascendsim {__version__}",
        "product": f"{variant}; digest of its figures {digest[:16]}",
        "figures with a range": f"{ranged} figures of it that move cycles are known to within a range; "
        f"`ascendsim profiles {variant}` lists them",
    }


def together(compared: Compared, each: Sequence[Answered], names: Sequence[str]) -> Answered:
    """Return several answers as one: what compares them, then each with its sections folded.

    names   of the products that they are of
    """
    pages = [answered.page for answered in each]
    tables = compared.tables
    sections = [Section("All of them", (), (), tables)] if tables else []
    for page, name in zip(pages, names, strict=True):
        sections.append(Section(page.title, (page.answer,)))
        sections += [
            replace(section, title=f"{name}: {section.title}", collapsed=True) for section in page.sections
        ]
    definitions = {word: meaning for page in pages for word, meaning in page.definitions.items()}
    facts: dict[str, str] = {}
    for page, name in zip(pages, names, strict=True):
        for what, which in page.facts.items():
            # A fact that all share stands once.
            same = all(other.facts.get(what) == which for other in pages)
            facts[what if same else f"{what}, {name}"] = which
    record = {"answer": compared.answer, "answers": [answered.record for answered in each]}
    page = Page(compared.title, compared.answer, tuple(sections), definitions, facts)
    parts = () if compared.brief else tuple(replace(answered, legend=()) for answered in each)
    return Answered(page, record, tables, parts=parts, legend=each[0].legend)


def listed(names: Sequence[str]) -> str:
    """Return names for a title, each once: "A", "A and B", "A, B and C"."""
    *first, last = dict.fromkeys(names)
    return f"{', '.join(first)} and {last}" if first else last
