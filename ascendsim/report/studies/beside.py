"""A plan of the user's own beside the usual one: a sentence, tables, a page and plain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ascendsim.report.numbers import microseconds
from ascendsim.report.page.records import Page, Section
from ascendsim.report.studies.hardware_words import share
from ascendsim.report.tables import TextTable
from ascendsim.report.words import L2_STARTS
from ascendsim.studies.tuning.records import Beside, Part, Started

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
    **L2_STARTS,
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


def beside_tables(answer: Beside) -> list[TextTable]:
    """Return what differs in the plans, and a table of cycles and bytes for each start."""
    return [_plans(answer), *(_cycles(started) for started in answer.starts)]


def _plans(answer: Beside) -> TextTable:
    sides = answer.usual, answer.given
    said = [{"schedule": plan.nest, **_fields(plan.tiling), "chosen by": plan.chosen_by} for plan in sides]
    rows = tuple((name, *(str(side[name]) for side in said)) for name in said[0] if _differs(name, said))
    return TextTable("What differs in the plan", ("", "usual", "given"), frozenset({0}), rows)


def _fields(tiling: Any) -> dict[str, Any]:
    return {name: getattr(tiling, name) for name in tiling.__dataclass_fields__}


def _differs(name: str, said: list[dict[str, Any]]) -> bool:
    return bool(said[0][name] != said[1][name])


def _cycles(started: Started) -> TextTable:
    waits, stages = started.waits, started.course.stages
    rows = [_us("us with launch", started.times_us), _us("of them launch us", waits.launch_us)]
    rows += [_row("cycles", Part("", waits.before, waits.after))]
    rows += [_row(part.what, part) for part in stages]
    rows += [_row(f"last M: {part.what}", part) for part in waits.parts]
    rows += [_row(f"mean busy {part.what}", part) for part in started.busy]
    rows += [_row(_bytes(part), part) for part in started.moved]
    title = f"Cycles and bytes with L2 {started.start}"
    return TextTable(title, ("", "usual", "given", "difference"), frozenset({0}), tuple(rows))


def _bytes(part: Part) -> str:
    return f"bytes {part.what}" if part.what.endswith("memory") else f"bytes by {part.what}"


def _us(what: str, sides: tuple[float, float]) -> tuple[str, ...]:
    # The difference of what is shown: a reader may subtract.
    before, after = (round(us, 2) for us in sides)
    return what, microseconds(before), microseconds(after), f"{after - before:+.2f}"


def _row(what: str, part: Part) -> tuple[str, ...]:
    return what, f"{part.before:,}", f"{part.after:,}", f"{part.after - part.before:+,}"


def beside_notes(_answer: Beside) -> list[str]:
    """Return what a reader of the tables must know."""
    names = "stages", "last M", "mean busy", "bytes", "counted"
    return [f"{name}: {DEFINITIONS[name]}" for name in names]


def beside_page(answer: Beside, made: Mapping[str, str]) -> Page:
    """Return the page; `made` says how."""
    title = f"A plan of {answer.question.gradient} beside the usual one: {answer.question.title}"
    plans, *cycles = beside_tables(answer)
    sections = (
        Section("What differs in the plan", (), (), (plans,)),
        Section("Cycles and bytes", (), (), tuple(cycles)),
    )
    return Page(title, beside_sentence(answer), sections, DEFINITIONS, made)


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
