"""What beats the product's plan of a gradient: a sentence, tables, a page, JSON, a file of the plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ascendsim.ops.plan_text import plans_text
from ascendsim.report.numbers import microseconds
from ascendsim.report.page.charts import Stack, stacked
from ascendsim.report.page.records import Page, Picture, Section
from ascendsim.report.studies.hardware_words import share
from ascendsim.report.studies.tiling_courses import (
    BRIEF,
    SIDES,
    course_record,
    course_sections,
    deciding,
    of_one_plan,
    path_table,
    plans_in_words,
    stages_table,
)
from ascendsim.report.studies.tiling_courses import DEFINITIONS as COURSES
from ascendsim.report.tables import TextTable
from ascendsim.report.words import L2_STARTS
from ascendsim.studies.tuning.records import TilingAnswer, Trial, Waits

FOUND_BY = {
    "product": "the plan that calls follow by default",
    "search": "this simulator's search",
    "rules": "the product's rules, for another of its loop nests",
    "steps": "steps from the product's plan or the search's",
    "optuna": "Optuna",
}
DEFINITIONS = {
    "usual": "The plan that a call follows by default: the product's operator's where its rules are known, "
    "else that of this simulator's search.",
    "best": "The fastest of all plans that were tried, by the score.",
    "busy, waits, idle": "What the cube's pipe M of the core that ends last did: they add up to the "
    "cycles of the kernel, so that their differences add up to the difference of cycles.",
    "other kernels": "Kernels beside the product, such as the cast of a grad_weight added in float32.",
    "counted": "The product, and the kernels that come of its plan. Changes of layout (TransData), which "
    "every plan needs alike, are left out.",
    "pruned": "Plans that cannot be the best: by a bound (their multiply-adds at the full rate of the cores "
    "that they use), or because one start of L2 was slow enough already.",
    "winner": "A plan that is faster under every start by more than the margin, and at both ends of every "
    "assumed figure, unless these were not tried (--no-interval).",
    **COURSES,
    **L2_STARTS,
}


def tiling_sentence(answer: TilingAnswer) -> str:
    """Answer in one sentence."""
    question = answer.question
    where = f"On {answer.variant}, {question.gradient} of {question.title}"
    tried = sum(answer.tried.values())
    if answer.keeps:
        return f"{where}: none of {tried} plans beats the usual one."
    saved = " and ".join(_saved(answer, start) for start in question.starts)
    # One verb for all starts where they agree.
    saved = saved if saved.count("costs") else "saves " + saved.replace("saves ", "")
    lead = f"{where}: the best of {tried} plans {saved}"
    if answer.wins:
        at = f", and does so at all {answer.ends} ends of assumed figures" if answer.ends else ""
        return f"{lead}, more than the margin of {share(question.margin)} %{at}."
    if answer.lost:
        return (
            f"{lead}, but is no winner: it loses at {answer.lost[0]} (of {answer.ends} ends that were tried)."
        )
    if answer.undecided:
        return (
            f"{lead}, but is no winner yet: {answer.untried} of {answer.ends + answer.untried} ends of "
            "assumed figures are left to try."
        )
    slower = [start for start in question.starts if answer.saved(start) < 0]
    if slower:
        return f"{lead}; it is no winner, as it loses with L2 {' and '.join(slower)}."
    return f"{lead}, but is no winner: the margin, the model's own error, is {share(question.margin)} %."


def _saved(answer: TilingAnswer, start: str) -> str:
    saved = answer.saved(start)
    return f"{'costs' if saved < 0 else 'saves'} {share(abs(saved))} % with L2 {start}"


def plan_table(answer: TilingAnswer) -> TextTable:
    """Show both plans field by field: those in which they differ, or that are set."""
    usual, best = answer.usual.plan, answer.best.plan
    names = ["base_m", "base_n", "base_k", *usual.tiling.set_fields(), *best.tiling.set_fields()]
    rows = [("schedule", str(usual.schedule), str(best.schedule))]
    rows += [
        (name, str(getattr(usual.tiling, name)), str(getattr(best.tiling, name)))
        for name in dict.fromkeys(names)
    ]
    for start in answer.question.starts:
        usual_us, best_us = (microseconds(trial.times_us[start]) for trial in (answer.usual, answer.best))
        rows.append((f"us, L2 {start}", usual_us, best_us))
    before_us, after_us = answer.waits[0].launch_us
    rows.append(("of them launch us", microseconds(before_us), microseconds(after_us)))
    table = TextTable("Plan against plan", ("", "usual", "best"), frozenset({0}), tuple(rows))
    return of_one_plan(table, "The usual plan") if answer.keeps else table


def waits_tables(answer: TilingAnswer) -> tuple[TextTable, ...]:
    """Show where the cycles go under every start; of one plan where none beats it."""
    tables = map(waits_table, answer.waits)
    return tuple(of_one_plan(table, table.title) if answer.keeps else table for table in tables)


def waits_table(waits: Waits) -> TextTable:
    """Show where the cycles go under both plans, and the differences, which add up."""
    rows = [_row(part.what, part.before, part.after) for part in waits.parts]
    title = f"Where the cycles go with L2 {waits.start}: pipe {waits.pipe} of the core that ends last"
    headings = ("", "usual", "best", "difference")
    total = _row("all cycles", waits.before, waits.after)
    return TextTable(title, headings, frozenset({0}), (*rows, total), total=True)


def tiling_tables(answer: TilingAnswer) -> list[TextTable]:
    """Return what a terminal shows: of the critical paths those of the start that decides, in brief."""
    courses = [stages_table(answer.courses), path_table(deciding(answer), BRIEF)]
    if answer.keeps:
        courses = [of_one_plan(table, table.title) for table in courses]
    return [plan_table(answer), *waits_tables(answer), *courses]


def _row(what: str, before: int, after: int) -> tuple[str, ...]:
    return what, f"{before:,}", f"{after:,}", f"{after - before:+,}"


def notes(answer: TilingAnswer) -> list[str]:
    """Return what a reader of the tables must know."""
    tried = ", ".join(f"{count} {what}" for what, count in answer.tried.items())
    best = "" if answer.keeps else f"; the best came from {FOUND_BY[answer.best.found_by]}"
    found = [
        f"{sum(answer.tried.values())} plans: {tried}. The usual plan is {_chosen(answer)}{best}.",
        f"Counted: {DEFINITIONS['counted']}",
    ]
    if answer.cut or answer.untried:
        what = f"{answer.question.trials} plans" if answer.cut else "all ends of assumed figures"
        found.insert(
            0,
            f"Time or trials were used up before {what} were tried: run the same command again to go on from "
            "here.",
        )
    if answer.lost:
        found.append(f"The best plan loses at {'; '.join(answer.lost)}.")
    return found


def _chosen(answer: TilingAnswer) -> str:
    return "the product's own" if answer.usual.plan.chosen_by != "search" else "this simulator's search's"


def tiling_page(answer: TilingAnswer, made: Mapping[str, str]) -> Page:
    """Return the page of a study; `made` says how."""
    sides = SIDES[:1] if answer.keeps else SIDES
    stacks = [
        Stack(f"{name}, L2 {waits.start}", tuple((part.what, getattr(part, when)) for part in waits.parts))
        for waits in answer.waits
        for name, when in sides
    ]
    picture = Picture(stacked(stacks, "cycles"), f"Where the cycles go under {plans_in_words(sides)}.")
    plans = plan_table(answer)
    sections = (
        Section(plans.title, tuple(notes(answer)), (), (plans,)),
        Section("Why", (), (picture,), waits_tables(answer)),
        *course_sections(answer.courses, one=answer.keeps),
        Section("The best plan as a file", (plan_text(answer),), collapsed=True),
    )
    title = f"What beats the plan of {answer.question.gradient}? {answer.question.title} on {answer.variant}"
    return Page(title, tiling_sentence(answer), sections, DEFINITIONS, made)


def plan_text(answer: TilingAnswer) -> str:
    """Return the best plan as the text of a file of plans, in TOML, as `tiling=` takes it."""
    return plans_text({"": {answer.question.gradient: answer.best.plan.to_dict()}}, "toml")


def tiling_record(answer: TilingAnswer) -> dict[str, Any]:
    """Return the answer as plain values."""
    return {
        "answer": tiling_sentence(answer),
        "product": answer.variant,
        "profile": answer.digest,
        "gradient": answer.question.gradient,
        "wins": answer.wins,
        "margin": answer.question.margin,
        "usual": _trial_record(answer.usual),
        "best": _trial_record(answer.best),
        "tried": dict(answer.tried),
        "ends": answer.ends,
        "lost": list(answer.lost),
        "cut": answer.cut,
        "untried": answer.untried,
        "waits": [
            {
                "l2_start": waits.start,
                "pipe": waits.pipe,
                "cycles": [waits.before, waits.after],
                "parts": {part.what: [part.before, part.after] for part in waits.parts},
            }
            for waits in answer.waits
        ],
        "courses": [course_record(course) for course in answer.courses],
    }


def _trial_record(trial: Trial) -> dict[str, Any]:
    times = dict(trial.times_us)
    return {"plan": trial.plan.to_dict(), "found_by": trial.found_by, "times_us": times}
