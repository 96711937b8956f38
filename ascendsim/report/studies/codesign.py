"""Which designs of the hardware are worth their cost: table, page, JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ascendsim.report.page import Dot, Page, Picture, Scatter, Section
from ascendsim.report.studies.answer import Answered
from ascendsim.report.studies.hardware_words import NAMED, UNCLEAR, between, left_out, within_words, without
from ascendsim.studies.hardware.records import Design, DesignAnswer
from ascendsim.studies.table import Table, form, microseconds, numbers, share, us, words
from ascendsim.timing.l2 import l2_meanings

DESIGN_DEFINITIONS = {
    "cost": "What the formula of the question gives, in a unit that only who asked knows.",
    "cost between": "The cost with all figures of the energy, assumed ones too, at lower, and at upper ends "
    "of ranges; the front, and a budget, go by the cost.",
    "usual": "Microseconds of all layers with their counts under the plans that calls follow by default "
    "on the design, by the worst start of L2 of each gradient.",
    "counted": "Each gradient's product, and the kernels that come of its plan. Changes of layout "
    "(TransData) are left out, also of what a change of the hardware does to them.",
    "tuned": "The same under the best plan of each gradient that was found for it, or for a design that fits "
    "inside it: what that one has more may stay unused, so that it is never slower.",
    UNCLEAR: "The fastest design saves no more of its time than the margin, or not with figures at every end "
    "of their ranges. Else it saves what lies between the two, each figure moved alone, then all together.",
    "bar": "Between what its time lies, if that of the fastest design is right: by the margin, and by "
    "figures anywhere in their ranges.",
    "front": "No other design takes at most its time at no more cost. Of one class are those that lie in "
    "each other's bars.",
}


def codesign_sentence(answer: DesignAnswer) -> str:
    """Answer in one sentence: the fastest design that may be had, and how many are on the front."""
    where = f"On {answer.variant}, {answer.question.title}"
    front = answer.front
    if not front:
        first = answer.designs[0]
        why = first.reason or next(left_out(first.name, first.without))
        return f"{where}: none of {len(answer.designs)} designs can be timed; {why}"
    best, as_is, untold = front[-1], answer.designs[0], answer.untold
    within = "" if answer.question.budget is None else f" within {answer.question.budget:g}"
    compared = ""
    if as_is.whole and as_is is not best and as_is not in untold:
        saved = share(1 - best.tuned_us / as_is.tuned_us)
        doubt = f"; {within_words(as_is.behind)}" if as_is.behind else ""
        compared = f", {saved} % less than the product as it is ({as_is.cost:g}{doubt})"
    timed = sum(design.whole for design in answer.designs)
    refused = sum(design.refused for design in answer.designs)
    equal = sum(design.whole and design.tuned_us == best.tuned_us for design in answer.designs)
    which = "the fastest design" if equal == 1 else f"the cheapest of the {equal} fastest designs"
    tail = f"; {refused} {'is' if refused == 1 else 'are'} refused" if refused else ""
    return (
        f"{where}: {which}{within} is {best.name}, which costs {best.cost:g} and takes "
        f"{microseconds(best.tuned_us)} us{compared}{_as_fast(untold)}; {len(front)} of {timed} designs are "
        f"on the front{tail}."
    )


def _as_fast(untold: Sequence[Design]) -> str:
    """Name the designs that are not distinguishable from the fastest, the cheapest first."""
    if not untold:
        return ""
    cheapest = sorted(untold, key=lambda design: (design.cost or 0.0, design.tuned_us))
    named = [f"{one.name} ({one.cost:g}, {microseconds(one.tuned_us)} us)" for one in cheapest[:NAMED]]
    more = f" and {len(untold) - NAMED} more" if len(untold) > NAMED else ""
    return f"; not distinguishable from it, the cheapest first: {', '.join(named)}{more}"


DESIGNS = (
    *(numbers("no."), words("design"), numbers("cost", show=form("g"), absent="-"), words("cost between")),
    *(us("usual us"), us("tuned us"), words("bar"), words("fastest saves"), words("front")),
)


def codesign_table(answer: DesignAnswer) -> Table:
    """Show every design, the product as it is first."""
    front, untold = answer.front, _names(answer.untold)
    class_of = _class_of(answer)
    rows = tuple(
        (
            at,
            design.name,
            design.cost,
            _cost_ends(design),
            *_design_cells(answer, design, front[-1:], untold, class_of),
        )
        for at, design in enumerate(answer.designs, start=1)
    )
    return Table("Designs", DESIGNS, rows).without_empty(("cost between",))


def _cost_ends(design: Design) -> str:
    return " to ".join(f"{end:g}" for end in design.cost_ends or ())


def _class_of(answer: DesignAnswer) -> dict[str, str]:
    """Return the class of each design on the front, by its name."""
    return {one.name: f"class {at}" for at, own in enumerate(answer.classes, start=1) for one in own}


def _names(designs: Iterable[Design]) -> frozenset[str]:
    return frozenset(design.name for design in designs)


def _design_cells(
    answer: DesignAnswer,
    design: Design,
    fastest: Sequence[Design],
    untold: frozenset[str],
    class_of: Mapping[str, str],
) -> tuple[Any, ...]:
    if design.reason:
        why = design.reason.partition("\n")[0]
        return None, None, "", "", f"refused: {why}" if design.refused else why
    if not design.whole:
        return design.usual_us, design.tuned_us, "", "", without(design).strip()
    (best,) = fastest
    saved = 1 - best.tuned_us / design.tuned_us
    if design is best:
        told = "is it"
    elif design.name in untold:
        told = UNCLEAR
    else:
        doubt = design.behind
        told = between((doubt.low, doubt.high)) if doubt else f"{share(saved)} %"
    bar = " to ".join(map(microseconds, answer.bar(design)))
    return design.usual_us, design.tuned_us, bar, told, class_of.get(design.name, "")


def codesign_page(answer: DesignAnswer) -> Page:
    """Return the page of an answer."""
    class_of = _class_of(answer)
    dots = tuple(
        Dot(
            *(str(at), design.cost, design.tuned_us, design.name in class_of),
            *(answer.bar(design), class_of.get(design.name, "")),
        )
        for at, design in enumerate(answer.designs, start=1)
        if design.cost is not None and design.whole
    )
    pictures = (
        (
            Picture(
                Scatter(dots, f"cost = {answer.question.cost.text}", "us, tuned"),
                "Cost and time of each design, by its number in the table; the line is the front, a bar says "
                "where the time may lie. Designs of one class lie in each other's bars.",
            ),
        )
        if dots
        else ()
    )
    section = Section("Designs", _left_out(answer), pictures, (codesign_table(answer),))
    title = f"Which designs are worth their cost? {answer.question.title} on {answer.variant}"
    definitions = DESIGN_DEFINITIONS | l2_meanings(answer.question.starts)
    return Page(title, codesign_sentence(answer), (section,), definitions)


def codesign_record(answer: DesignAnswer) -> dict[str, Any]:
    """Return the answer as plain values."""
    front, untold = _names(answer.front), _names(answer.untold)
    class_of = {one.name: at for at, own in enumerate(answer.classes, start=1) for one in own}
    names = ("name", "cost", "cost_ends", "usual_us", "tuned_us", "reason")
    return {
        "answer": codesign_sentence(answer),
        "product": answer.variant,
        "profile": answer.digest,
        "cost": answer.question.cost.text,
        "budget": answer.question.budget,
        "designs": [
            {name: getattr(design, name) for name in names}
            | {"figures": dict(design.figures), "front": design.name in front}
            | {"without": dict(design.without)}
            | {"bar_us": None if design.reason else list(answer.bar(design))}
            | {"class": class_of.get(design.name)}
            | {"told_from_fastest": design.name not in untold}
            | {"fastest_saves_between": [design.behind.low, design.behind.high] if design.behind else None}
            for design in answer.designs
        ],
    }


def codesign_answered(answer: DesignAnswer) -> Answered:
    """Tell an answer."""
    said = f"Counted: {DESIGN_DEFINITIONS['counted']}", *_left_out(answer)
    return Answered(codesign_page(answer), codesign_record(answer), (codesign_table(answer),), said)


def _left_out(answer: DesignAnswer) -> tuple[str, ...]:
    return tuple(line for design in answer.designs for line in left_out(design.name, design.without))
