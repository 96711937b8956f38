"""Several gradients whose plans were tuned, side by side: layers, products, or both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ascendsim.report.studies.hardware import listed
from ascendsim.report.studies.hardware_words import saving, share
from ascendsim.report.tables import TextTable, microseconds
from ascendsim.studies.tuning.records import TilingAnswer

# So many layers are named in a title; of more their number.
NAMED = 3


def tiling_title(answers: Sequence[TilingAnswer]) -> str:
    """Say what a page of answers is of: gradient, layers, products."""
    layers = list(dict.fromkeys(answer.question.title for answer in answers))
    of = "; ".join(layers) if len(layers) <= NAMED else f"{len(layers)} layers, {layers[0]} the first"
    variants = listed([answer.variant for answer in answers])
    return f"What beats the plan of {answers[0].question.gradient}? {of} on {variants}"


def tiling_compared(answers: Sequence[TilingAnswer]) -> str:
    """Say in one sentence how many calls have a winner, and where a winner saves most."""
    gradient = answers[0].question.gradient
    winners = [answer for answer in answers if answer.wins]
    lead = f"Of {len(answers)} calls for {gradient}, {len(winners)} have a plan that beats the usual one"
    if not winners:
        return f"{lead}."
    best = max(winners, key=_surely)
    saved = " and ".join(f"{share(best.saved(s))} % with L2 {s}" for s in best.question.starts)
    return f"{lead}; it saves most on {best.variant} in {best.question.title}: {saved}."


def _surely(answer: TilingAnswer) -> float:
    """Return what the best plan saves under its worst start."""
    return min(answer.saved(start) for start in answer.question.starts)


def cases_tables(answers: Sequence[TilingAnswer]) -> list[TextTable]:
    """Show a table for each product, with a row for each layer and start."""
    return [
        TextTable(
            f"On {variant}: {answers[0].question.gradient} under the usual and the best plan",
            ("of", "L2", "usual us", "best us", "saves", "plans", "verdict"),
            frozenset({0, 1, 6}),
            tuple(row for answer in answers if answer.variant == variant for row in _rows(answer)),
        )
        for variant in dict.fromkeys(answer.variant for answer in answers)
    ]


def _rows(answer: TilingAnswer) -> Iterator[tuple[str, ...]]:
    won = "winner" if answer.question.doubt else "winner, ends not tried"
    lost = "no winner yet" if answer.undecided else "no winner"
    verdict = "the usual plan" if answer.keeps else won if answer.wins else lost
    for start in answer.question.starts:
        times = (microseconds(trial.times_us[start]) for trial in (answer.usual, answer.best))
        saved = saving(answer.saved(start))
        yield answer.question.title, start, *times, saved, str(sum(answer.tried.values())), verdict
