"""A plan of the user's own beside the usual one: a sentence, tables, a page and plain values."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isnan
from statistics import median
from typing import Any

from ascendsim import __version__
from ascendsim.report.page.charts import Dot, scatter
from ascendsim.report.page.records import Page, Picture, Section
from ascendsim.report.studies.hardware_words import share
from ascendsim.report.tables import TextTable, microseconds
from ascendsim.report.words import L2_STARTS
from ascendsim.studies.codesign import Design, DesignAnswer
from ascendsim.studies.tuning.records import Beside, Part, Started
from ascendsim.validate.plans.measured import MeasuredRanking

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


def measured_table(found: MeasuredRanking, start: str) -> TextTable:
    """Show the plans in the order of what was measured, with the model's place and error of each."""
    by_model = sorted(found.plans, key=lambda plan: (plan.estimated_us, -plan.measured_us))
    rows = [
        (
            str(rank),
            str(by_model.index(plan) + 1),
            plan.name,
            microseconds(plan.measured_us),
            microseconds(plan.estimated_us),
            f"{100 * plan.error:+.1f} %",
        )
        for rank, plan in enumerate(found.plans, start=1)
    ]
    headings = ("measured", "model", "plan", "measured us", f"estimated us, L2 {start}", "error")
    return TextTable("Plans by what was measured (places from 1)", headings, frozenset({2}), tuple(rows))


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
            f"Ratios of two plans' times are off by {100 * found.noise:.1f} % in the median: closer ones it "
            "does not tell apart."
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


def facts(words: Sequence[str], variant: str, digest: str, assumed: int) -> dict[str, str]:
    """Return the command, the version, and which figures the product has."""
    return {
        "command": shlex.join(["ascendsim", *words]),
        "version": f"ascendsim {__version__}",
        "product": f"{variant}; digest of its figures {digest[:16]}",
        "assumed figures": f"{assumed} figures of it that move cycles are assumed: nobody has "
        f"published or measured them; `ascendsim profiles {variant}` lists them with their ranges",
    }


CODESIGN_DEFINITIONS = {
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
    rows = tuple(
        (str(at), *_codesign_row(design, front)) for at, design in enumerate(answer.designs, start=1)
    )
    headings = ("no.", "design", "cost", "usual us", "tuned us", "front")
    return TextTable("Designs", headings, frozenset({1, 5}), rows)


def _names(designs: Iterable[Design]) -> frozenset[str]:
    return frozenset(design.name for design in designs)


def _codesign_row(design: Design, front: frozenset[str]) -> tuple[str, ...]:
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
    return Page(title, codesign_sentence(answer), (section,), CODESIGN_DEFINITIONS, made)


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
