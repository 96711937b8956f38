"""Plans that beat the product's plan of a gradient: a sentence, tables, a page, JSON, a plan file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from ascendsim.numerics.metric_chunks import Column
from ascendsim.ops.plan import plans_text
from ascendsim.report.page import Curve, Held, Page, Picture, Section, StackedBar, Stacks
from ascendsim.report.studies.answer import Answered, Compared, listed
from ascendsim.report.studies.tiling_words import (
    conditions_table,
    margin_note,
    reaches_table,
    tiling_sentence,
)
from ascendsim.studies.table import Table, form, microseconds, numbers, percent, saving, share, us, words
from ascendsim.studies.tuning.records import BufferUse, Course, CyclesPart, StartCycles, TilingAnswer, Trial
from ascendsim.timing.l2 import l2_meanings

# So many causes of the critical path fit beside the other tables of a terminal.
BRIEF = 6
Sides = tuple[tuple[str, str], ...]
SIDES: Sides = (("usual", "before"), ("best", "after"))
COURSE_DEFINITIONS = {
    "entry, fill, steady, drain": "The cycles of the product, on the core whose cube ends last: up to its "
    "first instruction; until the cube takes up its first product of tiles; until the last one has left the "
    "cube; until the last result of the kernel is visible. With the other kernels they add up to all cycles.",
    "critical path": "The chain of causes from the last cycle of the product back to its first: which pipe "
    "was busy, how long results took to be visible (latency), how long a flag took to wake a pipe, issue by "
    "the scalar unit S, barriers between phases, and the entry. Its steps follow each other without a gap, "
    "so that with the other kernels they add up to all cycles.",
    "held, reserved": "Bytes of a buffer that hold a tile: from when the first instruction that makes it "
    "takes up its pipe until the last that reads it has left its own. Reserved is what the plan's tiles and "
    "their copies take, whether they hold something or not. Of the cube core that ends last, and of the "
    "vector core that does.",
}


STAGES = "Entry, fill, steady and drain in cycles"


def differences(second: str) -> tuple[Column, ...]:
    """Return the columns of a table of parts: what each takes of the usual plan, and of a second one."""
    return (
        *(words("", "what"), numbers("usual", "before"), numbers(second, "after")),
        numbers("difference", "change", form("+,")),
    )


def of_one_plan(table: Table, title: str = "") -> Table:
    """Return a table of one plan where the usual plan is the best, without naming it twice."""
    at = table.headings.index("plan") if "plan" in table.headings else None
    values = tuple(row for row in table.values if at is None or row[at] == "usual")
    kept = replace(table, title=title or table.title, values=values)
    return kept.without({"best", "difference", "plan"})


def stages_table(courses: Sequence[Course]) -> Table:
    """Show entry, fill, steady and drain of both plans under every start, and the differences."""
    names = list(dict.fromkeys(part.what for course in courses for part in course.stages))
    rows: list[tuple[Any, ...]] = []
    for course in courses:
        found = {part.what: part for part in course.stages}
        parts = [found.get(name, CyclesPart(name, 0, 0)) for name in names]
        parts.append(_sum("all cycles", parts))
        rows += [(course.start, name, *(getattr(part, when) for part in parts)) for name, when in SIDES]
        rows.append((course.start, "difference", *(f"{part.change:+,}" for part in parts)))
    return Table(STAGES, (words("L2"), words("plan"), *map(numbers, (*names, "all cycles"))), tuple(rows))


def _sum(name: str, parts: Sequence[CyclesPart]) -> CyclesPart:
    return CyclesPart(name, sum(part.before for part in parts), sum(part.after for part in parts))


def path_table(course: Course, most: int | None = None) -> Table:
    """Show the critical paths of both plans side by side; of many causes only the `most` largest."""
    parts: Sequence[CyclesPart] = sorted(course.path, key=lambda part: -max(part.before, part.after))
    if most is not None and len(parts) > most + 1:
        parts = _brief(parts, [part.what for part in parts[:most]])
    return _parts_table(f"The critical paths with L2 {course.start}, by pipe and cause", parts)


def _parts_table(title: str, parts: Sequence[CyclesPart]) -> Table:
    table = Table.of(title, differences("best"), (*parts, _sum("all cycles", parts)))
    return replace(table, total=True)


def deciding(answer: TilingAnswer) -> Course:
    """Return the course under the start in which the best plan takes longest, which a worst score counts."""
    times = answer.best.times_us
    return max(answer.courses, key=lambda course: times[course.start])


def _tiles(tiles: Sequence[Sequence[Any]]) -> str:
    return ", ".join(f"{what} {copies} x {size:,}" for what, copies, size in tiles)


BUFFERS = (
    *(words("buffer"), words("plan"), words("tiles", show=_tiles)),
    *(numbers("reserved", "reserved_bytes"), numbers("capacity", "capacity_bytes")),
    numbers("share", show=percent),
    *(numbers("most held", "most_bytes"), numbers("mean held", "mean_bytes", form(",.0f"))),
)


def buffers_table(course: Course) -> Table:
    """Show what both plans reserve and hold of each buffer."""
    rows = (
        _use_record(use, name) | {"share": use.reserved_bytes / use.capacity_bytes}
        for use, name in _uses(course)
    )
    return Table.of(f"Buffers in bytes with L2 {course.start}", BUFFERS, rows)


def _uses(course: Course, sides: Sides = SIDES) -> Iterator[tuple[BufferUse, str]]:
    """Yield the use of each buffer by each plan, buffer after buffer."""
    for buffer in dict.fromkeys(use.buffer for use in (*course.before, *course.after)):
        for name, when in sides:
            yield from ((use, name) for use in getattr(course, when) if use.buffer == buffer)


def buffers_picture(course: Course, sides: Sides = SIDES) -> Picture:
    """Draw how full each buffer is over the product's time, the usual plan on the left."""
    curves = tuple(
        Curve(use.buffer, name, use.curve, use.reserved_bytes, use.capacity_bytes)
        for use, name in _uses(course, sides)
    )
    both = "both plans on one scale of" if len(sides) > 1 else "of"
    caption = (
        f"Bytes held of each buffer over the time of the product with L2 {course.start}, {both} "
        f"{course.cycles:,} cycles. The frame is the capacity, the line what is reserved."
    )
    return Picture(Held(curves, course.cycles), caption)


def stages_picture(courses: Sequence[Course], sides: Sides = SIDES) -> Picture:
    """Draw the stages of both plans under every start."""
    parts = {course.start: course.stages for course in courses}
    return _stacked(parts, f"Entry, fill, steady and drain of {plans_in_words(sides)}.", sides)


def paths_picture(courses: Sequence[Course], sides: Sides = SIDES) -> Picture:
    """Draw the critical paths of both plans under every start; the causes that take least as one."""
    largest: dict[str, int] = {}
    for part in (part for course in courses for part in course.path):
        largest[part.what] = max(largest.get(part.what, 0), part.before, part.after)
    shown = sorted(largest, key=lambda name: -largest[name])[:BRIEF]
    parts = {course.start: _brief(course.path, shown) for course in courses}
    return _stacked(parts, f"What the cycles on the critical path go to, of {plans_in_words(sides)}.", sides)


def plans_in_words(sides: Sides) -> str:
    """Name the plans that are drawn."""
    return "both plans" if len(sides) > 1 else "the usual plan"


def _brief(parts: Sequence[CyclesPart], shown: Sequence[str]) -> tuple[CyclesPart, ...]:
    """Return the parts of these names, in their order, and all others as one."""
    known = {part.what: part for part in parts}
    rest = [part for part in parts if part.what not in shown]
    before, after = (sum(getattr(part, when) for part in rest) for _, when in SIDES)
    others = (CyclesPart("other causes", before, after),) if rest else ()
    return (*(known[name] for name in shown if name in known), *others)


def _stacked(parts: Mapping[str, Sequence[CyclesPart]], caption: str, sides: Sides) -> Picture:
    stacks = tuple(
        StackedBar(f"{name}, L2 {start}", tuple((part.what, getattr(part, when)) for part in found))
        for start, found in parts.items()
        for name, when in sides
    )
    return Picture(Stacks(stacks, "cycles"), caption)


def course_sections(courses: Sequence[Course], *, one: bool = False) -> tuple[Section, ...]:
    """Return the sections of a page; `one`: of the usual plan alone, which is the best."""
    sides = SIDES[:1] if one else SIDES
    stages, *others = (
        of_one_plan(table) if one else table
        for table in (stages_table(courses), *map(path_table, courses), *map(buffers_table, courses))
    )
    paths, buffers = others[: len(courses)], others[len(courses) :]
    drawn = tuple(buffers_picture(course, sides) for course in courses)
    return (
        Section("Fill, steady and drain", (), (stages_picture(courses, sides),), (stages,)),
        Section("The critical paths", (), (paths_picture(courses, sides),), tuple(paths)),
        Section("What the buffers hold", (), drawn, tuple(buffers)),
    )


def course_record(course: Course) -> Mapping[str, Any]:
    """Return a course as plain values, without the curves of a picture."""
    return {
        "l2_start": course.start,
        "stages": {part.what: [part.before, part.after] for part in course.stages},
        "critical_path": {part.what: [part.before, part.after] for part in course.path},
        "buffers": [_use_record(use, name) for use, name in _uses(course)],
    }


def _use_record(use: BufferUse, plan: str) -> dict[str, Any]:
    names = ("capacity_bytes", "reserved_bytes", "tiles", "most_bytes", "mean_bytes")
    own = {name: getattr(use, name) for name in names}
    return {"buffer": use.buffer, "plan": plan, **own}


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
    "figure with a range, each moved alone, unless these were not tried (--no-interval).",
    "wins if": "The values of a figure for which the plan saves more than the margin under every start, "
    "found by halving the way to an end of its range (may be); no faster if: those for which it saves "
    "nothing; at that end: what it saves there, the other figures as they are.",
    "kernel, call, step": "The product and what comes of its plan; all kernels of the call, changes of "
    "layout and casts among them; one that adds grad_weight in one order; the call for all gradients of "
    "the layer. Each has its launches; the last two have the product's plans beside.",
    **COURSE_DEFINITIONS,
}


def plan_table(answer: TilingAnswer) -> Table:
    """Show both plans field by field: those in which they differ, or that are set."""
    plans = usual, best = answer.usual.plan, answer.best.plan
    names = ["base_m", "base_n", "base_k", *usual.tiling.set_fields(), *best.tiling.set_fields()]
    rows: list[tuple[Any, ...]] = [("schedule", *(plan.schedule for plan in plans))]
    rows += [(name, *(getattr(plan.tiling, name) for plan in plans)) for name in dict.fromkeys(names)]
    timed = {f"us, L2 {start}": _times(answer, start) for start in answer.question.starts}
    timed["of them launch us"] = answer.waits[0].launch_us
    rows += [(name, *map(microseconds, sides)) for name, sides in timed.items()]
    columns = words(""), numbers("usual", show=str), numbers("best", show=str)
    table = Table("Plan against plan", columns, tuple(rows))
    return of_one_plan(table, "The usual plan") if answer.keeps else table


def _times(answer: TilingAnswer, start: str) -> tuple[float, float]:
    """Return the microseconds of the usual and of the best plan."""
    return answer.usual.times_us[start], answer.best.times_us[start]


def waits_tables(answer: TilingAnswer) -> tuple[Table, ...]:
    """Show where the cycles go under every start; of one plan where none beats it."""
    tables = map(waits_table, answer.waits)
    return tuple(of_one_plan(table) if answer.keeps else table for table in tables)


def waits_table(waits: StartCycles) -> Table:
    """Show where the cycles go under both plans, and the differences, which add up."""
    title = f"Where the cycles go with L2 {waits.start}: pipe {waits.pipe} of the core that ends last"
    return _parts_table(title, waits.parts)


def tiling_tables(answer: TilingAnswer) -> list[Table]:
    """Return the tables for a terminal: of the critical paths those of the start that decides, in brief."""
    courses = [stages_table(answer.courses), path_table(deciding(answer), BRIEF)]
    if answer.keeps:
        courses = [of_one_plan(table) for table in courses]
    return [plan_table(answer), *_worth_tables(answer), *waits_tables(answer), *courses]


def _worth_tables(answer: TilingAnswer) -> list[Table]:
    found = reaches_table(answer.reaches), conditions_table(answer)
    return [table for table in found if table.rows]


def notes(answer: TilingAnswer) -> list[str]:
    """Return the notes that explain the tables."""
    tried = ", ".join(f"{count} {what}" for what, count in answer.tried.items())
    best = "" if answer.keeps else f"; the best came from {FOUND_BY[answer.best.found_by]}"
    found = [
        f"{sum(answer.tried.values())} plans: {tried}. The usual plan is {_chosen(answer)}{best}.",
        f"Counted: {DEFINITIONS['counted']}",
        *margin_note(answer.question.margin),
    ]
    if answer.cut or answer.untried:
        what = f"{answer.question.trials} plans" if answer.cut else "all ends of figures with a range"
        found.insert(
            0,
            f"Time or trials were used up before {what} were tried: run the same command again to go on from "
            "here.",
        )
    return found


def _chosen(answer: TilingAnswer) -> str:
    return "the product's own" if answer.usual.plan.chosen_by != "search" else "this simulator's search's"


def tiling_page(answer: TilingAnswer) -> Page:
    """Return the page of an answer."""
    sides = SIDES[:1] if answer.keeps else SIDES
    parts = {waits.start: waits.parts for waits in answer.waits}
    picture = _stacked(parts, f"Where the cycles go under {plans_in_words(sides)}.", sides)
    plans = plan_table(answer)
    sections = (
        Section(plans.title, tuple(notes(answer)), (), (plans, *_worth_tables(answer))),
        Section("Why", (), (picture,), waits_tables(answer)),
        *course_sections(answer.courses, one=answer.keeps),
        Section("The best plan as a file", (plan_text(answer),), collapsed=True),
    )
    title = f"What beats the plan of {answer.question.gradient}? {answer.question.title} on {answer.variant}"
    definitions = DEFINITIONS | l2_meanings(answer.question.starts)
    return Page(title, tiling_sentence(answer), sections, definitions)


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
        "deterministic": answer.question.deterministic,
        "usual": _trial_record(answer.usual),
        "best": _trial_record(answer.best),
        "tried": dict(answer.tried),
        "verdict": None if answer.verdict is None else _verdict_record(answer),
        "reaches": reaches_table(answer.reaches).records(),
        "unmade": answer.unmade,
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


def _verdict_record(answer: TilingAnswer) -> dict[str, Any]:
    assert answer.verdict is not None
    return {
        **asdict(answer.verdict),
        "low": answer.verdict.low,
        "high": answer.verdict.high,
        "figures": answer.verdict.figures,
        "even": [asdict(one) for one in answer.even],
    }


def _trial_record(trial: Trial) -> dict[str, Any]:
    times = dict(trial.times_us)
    return {"plan": trial.plan.to_dict(), "found_by": trial.found_by, "times_us": times}


# So many layers are named in a title; of more their number.
NAMED = 3


def tiling_title(answers: Sequence[TilingAnswer]) -> str:
    """Return the title of a page of answers: gradient, layers, products."""
    layers = list(dict.fromkeys(answer.question.title for answer in answers))
    of = "; ".join(layers) if len(layers) <= NAMED else f"{len(layers)} layers, {layers[0]} the first"
    variants = listed([answer.variant for answer in answers])
    return f"What beats the plan of {answers[0].question.gradient}? {of} on {variants}"


def tiling_ranked(answers: Sequence[TilingAnswer]) -> str:
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
    """Return the saving of the best plan under its worst start."""
    return min(answer.saved(start) for start in answer.question.starts)


CASES = (
    *(words("of"), words("L2"), us("usual us"), us("best us"), numbers("saves", show=saving)),
    *(numbers("plans", show=str), words("verdict")),
)


def cases_tables(answers: Sequence[TilingAnswer]) -> list[Table]:
    """Show a table for each product, with a row for each layer and start."""
    return [
        Table(
            f"On {variant}: {answers[0].question.gradient} under the usual and the best plan",
            CASES,
            tuple(row for answer in answers if answer.variant == variant for row in _rows(answer)),
        )
        for variant in dict.fromkeys(answer.variant for answer in answers)
    ]


def _rows(answer: TilingAnswer) -> Iterator[tuple[Any, ...]]:
    won = "winner" if answer.question.doubt else "winner, ends not tried"
    lost = "no winner yet" if answer.undecided else "no winner"
    lost = f"hangs on {answer.conditions[0].figure}" if answer.leads and answer.conditions else lost
    verdict = "the usual plan" if answer.keeps else won if answer.wins else lost
    for start in answer.question.starts:
        found = answer.saved(start), sum(answer.tried.values()), verdict
        yield answer.question.title, start, *_times(answer, start), *found


def tiling_answered(answer: TilingAnswer) -> Answered:
    """Tell an answer."""
    tables, said = tiling_tables(answer), notes(answer)
    return Answered(tiling_page(answer), tiling_record(answer), tuple(tables), tuple(said))


def tiling_compared(answers: Sequence[TilingAnswer]) -> Compared:
    """Compare several gradients whose plans were tuned: layers, products, or both."""
    tables = tuple(cases_tables(answers))
    return Compared(tiling_title(answers), tiling_ranked(answers), tables, brief=True)
