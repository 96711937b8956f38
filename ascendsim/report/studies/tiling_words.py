"""What a study of tilings concludes: the sentence, on which figures it hangs, and what is saved of a call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ascendsim.profile import load_profile
from ascendsim.studies.table import Table, numbers, saving, share, us, words
from ascendsim.studies.tuning.records import ReachedTime, TilingAnswer
from ascendsim.studies.verdicts import condition_words
from ascendsim.validate.run import tuning_noise

# So many figures are named in a sentence; the table has all.
NAMED_FIGURES = 2
# What the best plan is worth, in the words of a sentence; the kernel's own savings stand before.
REACHED = {
    "call": "the whole call",
    "deterministic call": "a deterministic call",
    "training step": "the layer's training step",
}


def tiling_sentence(answer: TilingAnswer) -> str:
    """Answer in one sentence; further ones say what the best plan is worth in a call, and who makes it."""
    question = answer.question
    where = f"On {answer.variant}, {question.gradient} of {question.title}"
    if question.deterministic:
        where += ", deterministic"
    tried = sum(answer.tried.values())
    if answer.keeps:
        return f"{where}: none of {tried} plans beats the usual one."
    saved = " and ".join(_saved(answer, start) for start in question.starts)
    # One verb for all starts where they agree.
    saved = saved if saved.count("costs") else "saves " + saved.replace("saves ", "")
    said = f"{where}: the best of {tried} plans {saved}{_verdict(answer)}."
    unmade = f" No operator makes this plan: {answer.unmade}." if answer.unmade else ""
    return f"{said}{_worth(answer)}{unmade}"


def _saved(answer: TilingAnswer, start: str) -> str:
    saved = answer.saved(start)
    return f"{'costs' if saved < 0 else 'saves'} {share(abs(saved))} % with L2 {start}"


def _verdict(answer: TilingAnswer) -> str:
    """Say whether the best plan wins, or if what."""
    margin, verdict = f"the margin of {share(answer.question.margin)} %", answer.verdict
    if answer.undecided:
        return f", but is no winner yet: {answer.untried} ends of figures with a range are left to try"
    if answer.wins and verdict is None:
        return f", more than {margin}"
    if answer.wins and verdict is not None:
        between = f"{share(verdict.low)} .. {share(verdict.high)} %"
        at = f"both ends of all {verdict.figures} figures that move it ({between})"
        return f", more than {margin}, and does so at {at}"
    if answer.leads:
        return f", but wins only if {_conditions(answer)}"
    slower = [start for start in answer.question.starts if answer.saved(start) < 0]
    lost = f"it loses with L2 {' and '.join(slower)}" if slower else f"that is within {margin}"
    would = f"; it would win if {_conditions(answer)}" if answer.conditions else ""
    return f", but is no winner: {lost}{would}"


def _conditions(answer: TilingAnswer) -> str:
    """Say of which values of figures it hangs whether the best plan wins."""
    more = len(answer.conditions) - NAMED_FIGURES
    rest = f"{' and' if answer.leads else ' or'} {more} more as the table says" if more > 0 else ""
    assert answer.verdict is not None
    named = replace(answer.verdict, conditions=answer.conditions[:NAMED_FIGURES])
    return condition_words(named, number) + rest


def number(value: Any) -> str:
    """Print a figure's value."""
    return format(value, ".4g") if isinstance(value, int | float) else str(value)


def _worth(answer: TilingAnswer) -> str:
    """Give the best plan's saving of the call and of the step, under the start that saves least."""
    start = min(answer.question.starts, key=answer.saved)
    own = {row.what: row.saved for row in answer.reaches if row.start == start}
    # Grad_input is added in one order as it is.
    if own.get("deterministic call") == own.get("call"):
        own.pop("deterministic call", None)
    parts = [f"{share(saved)} % of {REACHED[what]}" for what, saved in own.items() if what in REACHED]
    return f" With L2 {start} that is {', '.join(parts)}." if parts else ""


REACHES = (
    *(words("of the", "what"), words("L2", "start"), us("usual us", "usual_us"), us("best us", "best_us")),
    numbers("saves", "saved", saving),
)


def reaches_table(rows: Sequence[ReachedTime]) -> Table:
    """Show what the best plan saves of the kernel, of its call and of a training step."""
    return Table.of("What the best plan is worth", REACHES, rows)


CONDITIONS = (
    *(words("figure"), words("now"), words("may be", "range"), words("wins if", "wins_if")),
    *(words("no faster if", "no_faster"), numbers("at that end", "share", saving)),
)


def conditions_table(answer: TilingAnswer) -> Table:
    """Show each figure that decides whether the best plan wins, where it stands, and from which value on."""
    known = load_profile(answer.question.product).figures
    # What is no gain at all is the other side of where there is one.
    turned = {"<": ">=", ">": "<=", "is": "is not", "is not": "is"}
    even: dict[str, list[str]] = {}
    for one in answer.even if answer.least > 0 else ():
        even.setdefault(one.figure, []).append(f"{turned[one.relation]} {number(one.at)}")
    rows = (
        {
            "figure": one.figure,
            "now": number(answer.question.changes.get(one.figure, known[one.figure].value)),
            "range": " to ".join(map(number, known[one.figure].range or ())),
            "wins_if": f"{one.relation} {number(one.at)}",
            "share": one.share,
            "no_faster": " or ".join(even.get(one.figure, ())),
        }
        for one in answer.conditions
    )
    return Table.of("Figures that decide whether the best plan wins", CONDITIONS, rows)


def margin_note(margin: float) -> list[str]:
    """Say which measured pairs a margin comes from; nothing of one that the user gave."""
    noise = tuning_noise()
    if margin != noise.p90:
        return []
    return [
        f"Margin: {share(margin)} % is the 90th percentile of the error of the ratio of two tilings' times, "
        f"of {noise.pairs} measured pairs of matrix products, {noise.near} of them near each other "
        "(`ascendsim validate` lists them). No pair of one convolution was published."
    ]
