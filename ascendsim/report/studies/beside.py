"""A plan of the user's own beside the usual one: a sentence, tables, a page and plain values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import isnan
from statistics import median
from typing import Any

from ascendsim.report.page import Page, Section
from ascendsim.report.studies.answer import Answered
from ascendsim.report.studies.tiling import differences
from ascendsim.studies.table import Table, microseconds, numbers, share, us, words
from ascendsim.studies.tuning.records import Beside, CyclesPart, Started
from ascendsim.timing.l2 import l2_meanings
from ascendsim.validate.coverage import MeasuredRanking

DEFINITIONS = {
    "usual": "The plan that a call follows by default.",
    "given": "The user's plan; what it leaves open the rules have chosen.",
    "stages": "entry, fill, steady and drain: cycles up to the first instruction; until the cube takes up "
    "its first product of tiles; until the last one has left it; until the last result is visible.",
    "last M": "What the cube's pipe M of the core that ends last did: busy, waits and idle add up to all "
    "cycles, with those of other kernels.",
    "mean busy": "Cycles in which a pipe was busy, averaged over the cores that use it; of S with the entry.",
    "bytes": "What all cores of the product move: MTE2, MTE3 and FIX from and to L2, MTE1 into tiles of L0, "
    "each as large as its slot. Of those, from and to memory are the ones that L2 did not hold.",
    "counted": "The product, and the kernels that come of its plan. Changes of layout (TransData), which "
    "every plan needs alike, are left out.",
}


def beside_sentence(answer: Beside) -> str:
    """Answer in one sentence."""
    question = answer.question
    where = f"On {answer.variant}, {question.gradient} of {question.title}"
    if answer.given == answer.usual:
        return f"{where}: the given plan is the usual one."
    saved = " and ".join(_saved(started) for started in answer.starts)
    within = [s.start for s in answer.starts if abs(_saving(s)) <= question.margin]
    if not within:
        return f"{where}: the given plan {saved}."
    which = "" if len(within) == len(answer.starts) else f" (L2 {' and '.join(within)})"
    return (
        f"{where}: the given plan {saved}; that is within the margin of {share(question.margin)} %, the "
        f"model's own error{which}."
    )


def _saving(started: Started) -> float:
    usual_us, given_us = started.times_us
    return 1 - given_us / usual_us


def _saved(started: Started) -> str:
    saved = _saving(started)
    return f"{'costs' if saved < 0 else 'saves'} {share(abs(saved))} % with L2 {started.start}"


def beside_tables(answer: Beside) -> list[Table]:
    """Return a table of the fields that differ between plans, and one of cycles and bytes for each start."""
    return [_plans(answer), *(_cycles(started) for started in answer.starts)]


def _plans(answer: Beside) -> Table:
    sides = answer.usual, answer.given
    said = [{"schedule": plan.nest, **_fields(plan.tiling), "chosen by": plan.chosen_by} for plan in sides]
    rows = tuple((name, *(str(side[name]) for side in said)) for name in said[0] if _differs(name, said))
    return Table("What differs in the plan", (words(""), numbers("usual"), numbers("given")), rows)


def _fields(tiling: Any) -> dict[str, Any]:
    return {name: getattr(tiling, name) for name in tiling.__dataclass_fields__}


def _differs(name: str, said: list[dict[str, Any]]) -> bool:
    return bool(said[0][name] != said[1][name])


def _cycles(started: Started) -> Table:
    waits = started.waits
    parts = [CyclesPart("cycles", waits.before, waits.after), *started.course.stages]
    parts += [replace(part, what=f"last M: {part.what}") for part in waits.parts]
    parts += [replace(part, what=f"mean busy {part.what}") for part in started.busy]
    parts += [replace(part, what=_bytes(part)) for part in started.moved]
    table = Table.of(f"Cycles and bytes with L2 {started.start}", differences("given"), parts)
    times = _us("us with launch", started.times_us), _us("of them launch us", waits.launch_us)
    return replace(table, values=(*times, *table.values))


def _bytes(part: CyclesPart) -> str:
    return f"bytes {part.what}" if part.what.endswith("memory") else f"bytes by {part.what}"


def _us(what: str, sides: tuple[float, float]) -> tuple[str, ...]:
    # The difference of what is shown: a reader may subtract.
    before, after = (round(us, 2) for us in sides)
    return what, microseconds(before), microseconds(after), f"{after - before:+.2f}"


def beside_answered(answer: Beside) -> Answered:
    """Tell an answer."""
    names = "stages", "last M", "mean busy", "bytes", "counted"
    said = tuple(f"{name}: {DEFINITIONS[name]}" for name in names)
    return Answered(beside_page(answer), beside_record(answer), tuple(beside_tables(answer)), said)


def beside_page(answer: Beside) -> Page:
    """Return the page of an answer."""
    title = f"A plan of {answer.question.gradient} beside the usual one: {answer.question.title}"
    plans, *cycles = beside_tables(answer)
    sections = (
        Section("What differs in the plan", (), (), (plans,)),
        Section("Cycles and bytes", (), (), tuple(cycles)),
    )
    definitions = DEFINITIONS | l2_meanings([started.start for started in answer.starts])
    return Page(title, beside_sentence(answer), sections, definitions)


def beside_record(answer: Beside) -> dict[str, Any]:
    """Return the answer as plain values; of two numbers the first is the usual plan's."""
    return {
        "answer": beside_sentence(answer),
        "product": answer.variant,
        "profile": answer.digest,
        "gradient": answer.question.gradient,
        "margin": answer.question.margin,
        **{
            name: {"schedule": plan.nest, **_fields(plan.tiling), "chosen_by": plan.chosen_by}
            for name, plan in (("usual", answer.usual), ("given", answer.given))
        },
        "starts": [dict(_started(started)) for started in answer.starts],
    }


def _started(started: Started) -> Iterator[tuple[str, Any]]:
    yield "l2_start", started.start
    yield "times_us", list(started.times_us)
    yield "cycles", [started.waits.before, started.waits.after]
    parts = {"stages": started.course.stages, "M": started.waits.parts}
    for name, found in (parts | {"busy": started.busy, "bytes": started.moved}).items():
        yield name, {part.what: [part.before, part.after] for part in found}


def measured_sentence(found: MeasuredRanking, where: str) -> str:
    """Say which plan is the fastest as measured, and what following the model would have cost."""
    best, count = found.plans[0], len(found.plans)
    lead = f"{where}: of {count} plans that were measured, {best.name} is the fastest"
    if found.favourite == best:
        return f"{lead} ({microseconds(best.measured_us)} us), as the model says."
    return (
        f"{lead} ({microseconds(best.measured_us)} us); the model's favourite, {found.favourite.name}, takes "
        f"{100 * found.regret:.1f} % more."
    )


def measured_table(found: MeasuredRanking, start: str) -> Table:
    """Show the plans in the order of what was measured, with the model's place and error of each."""
    by_model = sorted(found.plans, key=lambda plan: (plan.estimated_us, -plan.measured_us))
    rows = tuple(
        (rank, by_model.index(plan) + 1, *plan, plan.error) for rank, plan in enumerate(found.plans, 1)
    )
    columns = (
        *(numbers("measured"), numbers("model"), words("plan"), us("measured us")),
        *(us(f"estimated us, L2 {start}"), numbers("error", show=lambda error: f"{100 * error:+.1f} %")),
    )
    return Table("Plans by what was measured (places from 1)", columns, rows)


def measured_notes(found: MeasuredRanking) -> list[str]:
    """Say how far the model is off on these plans."""
    errors = [plan.error for plan in found.plans]
    said = [
        f"The model's error on these plans: median {100 * median(errors):+.1f} %, from "
        f"{100 * min(errors):+.1f} to {100 * max(errors):+.1f} %. Regret of its favourite: "
        f"{100 * found.regret:.1f} %."
    ]
    if not isnan(found.noise):
        said.append(
            f"Ratios of two plans' times are off by {100 * found.noise:.1f} % at the 90th percentile: it "
            "cannot order closer ones."
        )
    few = "Fewer than three plans, or equal times, have no rank correlation."
    rank = found.rank
    said.append(few if isnan(rank) else f"Spearman's rank correlation of both times: {rank:.2f}.")
    return said


def measured_record(found: MeasuredRanking, where: str) -> dict[str, Any]:
    """Return the ranking as plain values; what is not defined is None."""
    return {
        "answer": measured_sentence(found, where),
        "rank_correlation": None if isnan(found.rank) else found.rank,
        "favourite": found.favourite.name,
        "regret": found.regret,
        "noise": None if isnan(found.noise) else found.noise,
        "plans": [{**plan._asdict(), "error": plan.error} for plan in found.plans],
    }


def measured_answered(found: MeasuredRanking, where: str, start: str) -> Answered:
    """Tell a ranking, of which there is no page."""
    page = Page("", measured_sentence(found, where), ())
    tables, said = (measured_table(found, start),), tuple(measured_notes(found))
    return Answered(page, measured_record(found, where), tables, said)
