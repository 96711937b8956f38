"""Which designs are worth their cost: a sentence, a table, a page, JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ascendsim.report.numbers import microseconds
from ascendsim.report.page.charts import Dot, scatter
from ascendsim.report.page.records import Page, Picture, Section
from ascendsim.report.studies.hardware_words import share
from ascendsim.report.tables import TextTable
from ascendsim.report.words import L2_STARTS
from ascendsim.studies.codesign.records import Design, DesignAnswer

DEFINITIONS = {
    "cost": "What the formula of the question gives, in a unit that only who asked knows.",
    "usual": "Microseconds of all layers with their counts under the plans that calls follow by default "
    "on the design, by the worst start of L2 of each gradient.",
    "counted": "Each gradient's product, and the kernels that come of its plan. Changes of layout "
    "(TransData) are left out, also of what a change of the hardware does to them.",
    "tuned": "The same under the best plan of each gradient that was found.",
    "front": "No other design takes at most its time at no more cost.",
    **L2_STARTS,
}


def codesign_sentence(answer: DesignAnswer) -> str:
    """Answer in one sentence: the fastest design that may be had, and how many are on the front."""
    where = f"On {answer.variant}, {answer.question.title}"
    front = answer.front
    if not front:
        return f"{where}: none of {len(answer.designs)} designs can be timed; {answer.designs[0].reason}"
    best, as_is = front[-1], answer.designs[0]
    within = "" if answer.question.budget is None else f" within {answer.question.budget:g}"
    compared = ""
    if not as_is.reason and best is not as_is:
        saved, margin = 1 - best.tuned_us / as_is.tuned_us, answer.question.margin
        compared = f", {share(saved)} % less than the product as it is ({as_is.cost:g})"
        if saved < margin:
            compared += (
                f": not distinguishable, as estimated ratios of two plans are off by {share(margin)} %"
            )
    timed = sum(not design.reason for design in answer.designs)
    refused = sum(design.refused for design in answer.designs)
    tail = f"; {refused} {'is' if refused == 1 else 'are'} refused" if refused else ""
    return (
        f"{where}: the fastest design{within} is {best.name}, which costs {best.cost:g} and takes "
        f"{microseconds(best.tuned_us)} us{compared}{_as_fast(answer)}; {len(front)} of {timed} designs are "
        f"on the front{tail}."
    )


def _as_fast(answer: DesignAnswer) -> str:
    """Name the cheapest design whose time is not told from that of the fastest, if it is another."""
    best = answer.front[-1]
    # The front begins with the cheapest, and ends with the fastest.
    near = next(
        (one for one in answer.front if 1 - best.tuned_us / one.tuned_us < answer.question.margin), best
    )
    if near is best:
        return ""
    return (
        f"; the cheapest that is not distinguishable from it is {near.name}, which costs {near.cost:g} and "
        f"takes {microseconds(near.tuned_us)} us"
    )


def codesign_table(answer: DesignAnswer) -> TextTable:
    """Show every design, the product as it is first."""
    front = _names(answer.front)
    rows = tuple((str(at), *_row(design, front)) for at, design in enumerate(answer.designs, start=1))
    headings = ("no.", "design", "cost", "usual us", "tuned us", "front")
    return TextTable("Designs", headings, frozenset({1, 5}), rows)


def _names(designs: Iterable[Design]) -> frozenset[str]:
    return frozenset(design.name for design in designs)


def _row(design: Design, front: frozenset[str]) -> tuple[str, ...]:
    cost = "-" if design.cost is None else f"{design.cost:g}"
    if design.reason:
        why = design.reason.partition("\n")[0]
        return design.name, cost, "-", "-", f"refused: {why}" if design.refused else why
    times = microseconds(design.usual_us), microseconds(design.tuned_us)
    return design.name, cost, *times, "yes" if design.name in front else ""


def codesign_page(answer: DesignAnswer, made: Mapping[str, str]) -> Page:
    """Return the page of a study; `made` says how."""
    front = _names(answer.front)
    dots = [
        Dot(str(at), design.name, design.cost, design.tuned_us, marked=design.name in front)
        for at, design in enumerate(answer.designs, start=1)
        if design.cost is not None and not design.reason
    ]
    pictures = (
        (
            Picture(
                scatter(dots, f"cost = {answer.question.cost.text}", "us, tuned"),
                "Cost and time of each design, by its number in the table; the line is the front.",
            ),
        )
        if dots
        else ()
    )
    section = Section("Designs", (), pictures, (codesign_table(answer),))
    title = f"Which designs are worth their cost? {answer.question.title} on {answer.variant}"
    return Page(title, codesign_sentence(answer), (section,), DEFINITIONS, made)


def codesign_record(answer: DesignAnswer) -> dict[str, Any]:
    """Return the answer as plain values."""
    front = _names(answer.front)
    names = ("name", "cost", "usual_us", "tuned_us", "reason")
    return {
        "answer": codesign_sentence(answer),
        "product": answer.variant,
        "profile": answer.digest,
        "cost": answer.question.cost.text,
        "budget": answer.question.budget,
        "designs": [
            {name: getattr(design, name) for name in names}
            | {"figures": dict(design.figures), "front": design.name in front}
            for design in answer.designs
        ],
    }
