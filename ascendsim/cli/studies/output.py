"""What a study prints of its answer, and the page that it writes of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ascendsim.cli.studies.engine import write_study_page

if TYPE_CHECKING:
    from ascendsim.report.page.records import Page
    from ascendsim.report.tables import TextTable


class Answer(Protocol):
    """What every answer says of the product that was studied."""

    @property
    def variant(self) -> str:
        """The product's variant."""
        ...

    @property
    def digest(self) -> str:
        """The digest of its figures."""
        ...

    @property
    def assumed(self) -> int:
        """The number of its assumed figures that have a range."""
        ...


AnswerT = TypeVar("AnswerT", bound=Answer)


def print_answer(
    arguments: Any,
    answer: AnswerT,
    record: Callable[[AnswerT], Mapping[str, Any]],
    sentence: Callable[[AnswerT], str],
    tables: Callable[[AnswerT], Iterable[TextTable]],
    notes: Callable[[AnswerT], Iterable[str]],
) -> None:
    """Print an answer as JSON where that is asked for, else its sentence, its tables and its notes."""
    if arguments.json:
        print(json.dumps(record(answer), indent=1))
        return
    from ascendsim.report.terminal import make_console, print_table, print_text

    out = make_console()
    print_text(out, sentence(answer))
    for table in tables(answer):
        print_table(out, table)
    out.print()
    for note in notes(answer):
        print_text(out, note)


def write_answer_page(
    arguments: Any, answer: AnswerT, page: Callable[[AnswerT, Mapping[str, str]], Page]
) -> None:
    """Write the page of an answer where one is asked for, and how it was made."""
    from ascendsim.report.studies.facts import facts

    made = facts(arguments.words, answer.variant, answer.digest, answer.assumed)
    write_study_page(arguments, page(answer, made))
