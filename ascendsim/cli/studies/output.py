"""What a study prints of its answer, and the page that it writes of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

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


@dataclass(frozen=True)
class Report(Generic[AnswerT]):
    """How answers of one kind are told.

    record, sentence, tables, notes, page   of one answer
    title, compared, overview               of several: what they are of, a sentence and tables
    brief                                   whether the tables of each of several are on the page alone
    """

    record: Callable[[AnswerT], Mapping[str, Any]]
    sentence: Callable[[AnswerT], str]
    tables: Callable[[AnswerT], Iterable[TextTable]]
    notes: Callable[[AnswerT], Iterable[str]]
    page: Callable[[AnswerT, Mapping[str, str]], Page]
    title: Callable[[Sequence[AnswerT]], str]
    compared: Callable[[Sequence[AnswerT]], str]
    overview: Callable[[Sequence[AnswerT]], Iterable[TextTable]] = lambda _: ()
    brief: bool = False


def tell(arguments: Any, answers: Sequence[AnswerT], told: Report[AnswerT]) -> None:
    """Print answers and write their page where one is asked for; several are compared first.

    Files are written even where the reader of what is printed leaves early, as `head` does.
    """
    if len(answers) == 1:
        (answer,) = answers
        try:
            print_answer(arguments, answer, told.record, told.sentence, told.tables, told.notes)
        finally:
            write_answer_page(arguments, answer, told.page)
        return
    try:
        _print_compared(arguments, answers, told)
    finally:
        _write_compared(arguments, answers, told)


def _print_compared(arguments: Any, answers: Sequence[AnswerT], told: Report[AnswerT]) -> None:
    if arguments.json:
        found = {"answer": told.compared(answers), "answers": [told.record(one) for one in answers]}
        print(json.dumps(found, indent=1))
    else:
        _print_several(answers, told)


def _write_compared(arguments: Any, answers: Sequence[AnswerT], told: Report[AnswerT]) -> None:
    if arguments.out is None:
        return
    from ascendsim.report.studies.facts import facts
    from ascendsim.report.studies.several import joined

    pages = [told.page(one, facts(arguments.words, one.variant, one.digest, one.assumed)) for one in answers]
    names = [one.variant for one in answers]
    overview = tuple(told.overview(answers))
    write_study_page(arguments, joined(told.title(answers), pages, names, told.compared(answers), overview))


def _print_several(answers: Sequence[AnswerT], told: Report[AnswerT]) -> None:
    from ascendsim.report.terminal import make_console, print_table, print_text

    out = make_console()
    print_text(out, told.compared(answers))
    for table in told.overview(answers):
        print_table(out, table)
    for answer in () if told.brief else answers:
        out.print()
        print_text(out, told.sentence(answer))
        for table in told.tables(answer):
            print_table(out, table)
        out.print()
        for note in told.notes(answer):
            print_text(out, note)
