"""What changes of the hardware buy: tables, pages, JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ascendsim.profile import load_profile
from ascendsim.report.page import Bar, Page, Picture, Section, Tornado
from ascendsim.report.studies.answer import Answered, Compared, listed
from ascendsim.report.studies.hardware_words import (
    HANGS,
    NAMED,
    NEEDS,
    NO_FIT,
    NOTHING,
    ONLY_PLAN,
    PARTLY,
    UNCLEAR,
    between,
    hardware_ranked,
    hardware_sentence,
    left_out,
    own_saving,
    verdict,
    without,
)
from ascendsim.report.tables import value
from ascendsim.studies.hardware.records import CORES, Gain, HardwareAnswer, LayerGain, NewPlan
from ascendsim.studies.records import PARTS
from ascendsim.studies.table import Table, numbers, saving, us, words
from ascendsim.timing.l2 import l2_meanings

# So many changes fit a screen, whatever they do.
MANY = 12
# Tables of a product file that no call's time reads.
UNTIMED = ("package.", "energy.")
TIMES = (
    *(us("before", "base_us"), us("same plan", "same_us")),
    *(us("planned anew", "anew_us"), us("better", "better_us")),
)
GAINS = (
    *(words("change"), words("L2", "l2_start"), *TIMES, numbers("saves", "saved_share", saving)),
    *(numbers("plan alone", "saved_by_plans_share", saving), numbers("itself", "saved_itself_share", saving)),
    *(numbers("between", "saved_itself_between", between), words("verdict")),
)
TUNED = (words("change"), words("L2"), us("before"), us("after"), numbers("saves", show=saving))
PARTED = (words("change"), words("L2"), words("when"), *(us(part) for part in PARTS), us("us"))
PLANS = (
    *(words("change"), words("L2"), words("layer"), words("gradient"), words("before to better", "plans")),
    *(words("planned for", "found_for"), words("without it", "alone")),
)
FOLLOWED = {True: "as well", False: "no"}  # whether the product as it is follows the plan
LAYERS = (words("layer"), numbers("count", show=str), *TIMES, numbers("saves", "share", saving))
DEFINITIONS = {
    "before": "Microseconds on the unchanged product, launches included, over all layers and their counts.",
    "same plan": "The changed product under the plans that its operators choose for the unchanged one. "
    "A dash: a plan does not fit any more.",
    "planned anew": "The changed product under the plans that its operators choose for it. Their rules were "
    "made for the product as it is, so that a faster part can come out slower.",
    "better": "Each gradient of each layer under the fastest of all plans: these two, and those of every "
    "change that fits inside this one. Buffers and cores that a plan does not need are left unused where "
    "that is faster, and a faster part that costs time is held back: whatever has more is never slower.",
    "planned for, without it": "The change whose product chooses the plan by default, this one or another; "
    "whether the unchanged product is fastest under it as well: what that saves is *plan alone*.",
    "tuned": "Each gradient of each layer under the best plan that is found for it, before and after the "
    "change alike; what that saves is what the change buys once plans are made for it.",
    "saves": "The part of the time before that the change saves, under the better plans.",
    "plan alone, itself": "Of this what the unchanged product saves too, under new plans where they fit, "
    "or by leaving unused what the change takes away; and the rest, which needs the change. Where neither "
    "column is shown, all is the change's. What buys most is said of the change itself.",
    "between": "What the change itself saves with figures at the ends of their ranges: each alone, "
    "then all that lower it and all that raise it together.",
    UNCLEAR: "The change itself saves, or costs, no more than the margin, or 0 lies in that interval. The "
    "margin is what 9 of 10 estimated ratios of two plans' times are off by less than, of pairs that were "
    "measured. How far ratios of two products are off, nobody has measured.",
    HANGS: "At an end of a figure's range, moved alone, more than the margin is saved, and not with the "
    "figure as it is; or the other way about. The break-even was found by bisection.",
    ", ".join(
        PARTS
    ): "Starting the kernels that multiply; their first instructions; the rest of them; changes of "
    "layout and all other kernels, with their launches.",
    NOTHING: "No layer is faster or slower for it, wherever figures with a range lie: what the change adds "
    "is left unused where using it would cost time, as the times under the same plan then show.",
    ONLY_PLAN: "All that is saved is saved by a new plan, on the unchanged product as well.",
    f"{NEEDS}, {PARTLY}": "At least half, or a tenth, of what the change itself saves comes of new plans "
    "that do not fit the unchanged product, or save less there: with the same plans it is that much less.",
    NO_FIT: "A plan of the unchanged product does not fit the changed one, so that new ones are followed.",
}


def _quiet(answer: HardwareAnswer) -> list[str]:
    """Return the changes that change nothing under any start, where there are many changes."""
    by_name: dict[str, list[str]] = {}
    for gain in answer.gains:
        by_name.setdefault(gain.change, []).append(verdict(gain, answer.question.margin))
    if len(by_name) <= MANY:
        return []
    return [name for name, verdicts in by_name.items() if set(verdicts) == {NOTHING}]


def _best_first(answer: HardwareAnswer) -> Sequence[Gain]:
    """Return the gains; of more than MANY changes the largest saving first, each under its best start."""
    most: dict[str, float] = {}
    for gain in answer.gains:
        most[gain.change] = max(gain.share, most.get(gain.change, gain.share))
    return answer.gains if len(most) <= MANY else sorted(answer.gains, key=lambda gain: -most[gain.change])


def hardware_table(answer: HardwareAnswer, *, short: bool = False) -> Table:
    """Show every change under every start; `short`: of many those that change something, the best first."""
    unsplit = {"saved_by_plans_share": None, "saved_itself_share": None}
    rows = (
        _gain_record(gain, answer.question.margin)
        | ({} if gain.plan_share else unsplit)
        | {"change": gain.change + without(gain)}
        for gain in _shown(answer, short=short)
    )
    # Without intervals nothing lies between, and seldom there is a verdict, or a new plan without the change.
    table = Table.of("What each change buys, in microseconds", GAINS, rows)
    return table.without_empty(("plan alone", "itself", "between", "verdict"))


def _shown(answer: HardwareAnswer, *, short: bool) -> Sequence[Gain]:
    """Return the gains that tables show; `short`: of many those that change something, the best first."""
    left_out = set(_quiet(answer)) if short else set()
    gains = _best_first(answer) if short else answer.gains
    return [gain for gain in gains if gain.change not in left_out]


def parts_table(answer: HardwareAnswer, *, short: bool = False) -> Table:
    """Show what the times before each change and after it are made of; no row where nobody asked."""
    rows = [
        (gain.change, gain.start, when, *parts, us)
        for gain in _shown(answer, short=short)
        for when, parts, us in zip(
            ("before", "better"), gain.parts_us, (gain.base_us, gain.better_us), strict=True
        )
        if parts
    ]
    return Table("What the times are made of, in microseconds", PARTED, tuple(rows))


def tuned_table(answer: HardwareAnswer, *, short: bool = False) -> Table:
    """Show the times under tuned plans, before each change and after it; no row where none were asked for."""
    rows = [
        (gain.change, gain.start, *gain.tuned_us, 1 - gain.tuned_us[1] / gain.tuned_us[0])
        for gain in _shown(answer, short=short)
        if gain.tuned_us
    ]
    return Table("Under plans tuned for each, in microseconds", TUNED, tuple(rows))


def plans_table(answer: HardwareAnswer, *, short: bool = False) -> Table:
    """Show the plans of the better times that are others than before."""
    rows = tuple(
        (gain.change, gain.start, row.layer, new.gradient, _apart(new), new.found_for, FOLLOWED[new.alone])
        for gain in _shown(answer, short=short)
        for row in gain.layers
        for new in row.new_plans
    )
    return Table("Plans of the better times, where they are others than before", PLANS, rows)


def _apart(new: NewPlan) -> str:
    """Name the loop nests of both plans, or of one nest the fields that differ."""
    if new.before.nest != new.better.nest:
        return f"{new.before.nest} to {new.better.nest}"
    first, last = new.before.to_dict(), new.better.to_dict()
    names = [name for name in {**first, **last} if first.get(name) != last.get(name)]
    told = [f"{name} {first.get(name, '-')} to {last.get(name, '-')}" for name in names]
    more = f" and {len(told) - NAMED} more" if len(told) > NAMED else ""
    return f"{new.better.nest}: {', '.join(told[:NAMED])}{more}"


def hardware_tables(answer: HardwareAnswer) -> list[Table]:
    """Return the tables for a terminal."""
    tables = [parts_table(answer, short=True), tuned_table(answer, short=True)]
    plans = plans_table(answer, short=True)
    # More rows are for the page.
    tables += [plans] if len(plans.values) <= MANY else []
    # The sentence says what the figures of a single change were and become.
    if len({gain.change for gain in answer.gains}) > 1 or any(len(g.figures) > NAMED for g in answer.gains):
        tables.append(figure_table(answer, short=True))
    return [hardware_table(answer, short=True), *(table for table in tables if table.values)]


def figure_table(answer: HardwareAnswer, *, short: bool = False) -> Table:
    """Show the figures that changes replace, from what the product has to what it becomes."""
    rows = dict.fromkeys(
        (gain.change, path, value(old), value(new))
        for gain in _shown(answer, short=short)
        for path, (old, new) in gain.figures.items()
    )
    columns = words("change"), words("figure"), numbers("from"), numbers("to")
    return Table("Figures that are changed", columns, tuple(rows))


def layer_table(gain: Gain) -> Table:
    """Show one change under one start, layer by layer."""
    title = f"{gain.change}, L2 {gain.start}, in microseconds: one call of each layer, all with their counts"
    total = (getattr(gain, column.name) for column in LAYERS[2:])
    return Table.of(title, LAYERS, gain.layers).with_total(("all", "", *total))


def notes(answer: HardwareAnswer, *, short: bool = False) -> list[str]:
    """Return the notes that explain the table; `short` as there."""
    own = {path for gain in answer.gains for path in gain.figures}
    one = len(own) == 1
    found = [
        f"{len(own)} figure{'' if one else 's'} of the changed products {'is' if one else 'are'} the user's "
        f"own, with no source but this question; everything else is {answer.variant}'s."
    ]
    quiet = _quiet(answer) if short else []
    if quiet:
        found.append(f"{len(quiet)} changes, which the table leaves out, change nothing: {', '.join(quiet)}.")
    misfits = [(gain.change, row) for gain in answer.gains for row in gain.layers if row.misfit]
    if misfits:
        change, row = misfits[0]
        found.append(
            f"A dash: plans of {answer.variant} as it is do not fit the changed product. So with {change}: "
            f"{row.layer}: {row.misfit}."
        )
    if idle := sorted(path for path in own if path.startswith(UNTIMED)):
        found.append(
            f"No call's time hangs on {', '.join(idle)}: ask `ascendsim study devices` of package, "
            "`ascendsim study traffic` of energy."
        )
    margin = answer.question.margin
    found += _launches(answer)
    found += [
        f"{gain.change} with L2 {gain.start} {own_saving(gain, margin)}."
        for gain in answer.gains
        if verdict(gain, margin) == HANGS
    ]
    found += [f"{name} cannot be timed: {reason}" for name, reason in answer.refused.items()]
    # A layer is refused whatever lay in L2 before it.
    first = {gain.change: gain for gain in reversed(answer.gains)}
    found += [line for gain in reversed(first.values()) for line in left_out(gain.change, gain.without)]
    return found


def _launches(answer: HardwareAnswer) -> list[str]:
    """Say on which figure the launches of more cores hang: nobody measured them."""
    more = any(new > old for gain in answer.gains for p, (old, new) in gain.figures.items() if p in CORES)
    if not more:
        return []
    path = "launch.per_core_us"
    figure = load_profile(answer.question.product).figures[path]
    ends = f", {value(figure.range[0])} to {value(figure.range[-1])}" if figure.range else ""
    return [
        f"Launches on more cores than {answer.variant} has are extrapolated: {path}, "
        f"{value(figure.value)} for each core ({figure.confidence}{ends})."
    ]


def hardware_title(answers: Sequence[HardwareAnswer]) -> str:
    """Return the title of a page of answers about the same layers."""
    variants = listed([answer.variant for answer in answers])
    return f"What do changes of {variants} buy? {answers[0].question.title}"


def hardware_page(answer: HardwareAnswer) -> Page:
    """Return the page of an answer."""
    line = "; the line is its interval" if any(gain.doubt for gain in answer.gains) else ""
    quiet = set(_quiet(answer))
    line += "; those that change nothing are left out" if quiet else ""
    drawn = [gain for gain in answer.gains if gain.change not in quiet]
    pictures = tuple(
        Picture(
            Tornado(tuple(_bar(gain) for gain in drawn if gain.start == start), "% of the time saved"),
            f"What each change itself saves with L2 {start}{line}.",
        )
        for start in dict.fromkeys(gain.start for gain in drawn)
    )
    shown = parts_table(answer), tuned_table(answer), plans_table(answer)
    others = [table for table in shown if table.values]
    sections = [
        Section("What each change buys", tuple(notes(answer)), pictures, (hardware_table(answer), *others)),
        Section("What is changed", (), (), (figure_table(answer),)),
    ]
    layers = tuple(layer_table(gain) for gain in answer.gains)
    sections.append(Section("Layer by layer", (), (), layers, collapsed=True))
    definitions = DEFINITIONS | l2_meanings(answer.question.starts)
    return Page(hardware_title([answer]), hardware_sentence(answer), tuple(sections), definitions)


def hardware_answered(answer: HardwareAnswer) -> Answered:
    """Tell an answer; a terminal shows of many changes those that change something."""
    tables, said = hardware_tables(answer), notes(answer, short=True)
    word = "planned for, without it"
    legend = (f"{word}: {DEFINITIONS[word]}",) if any(table.columns == PLANS for table in tables) else ()
    return Answered(hardware_page(answer), hardware_record(answer), tuple(tables), tuple(said), legend=legend)


def hardware_compared(answers: Sequence[HardwareAnswer]) -> Compared:
    """Compare products."""
    return Compared(hardware_title(answers), hardware_ranked(answers))


def _bar(gain: Gain) -> Bar:
    low, high = (gain.doubt.low, gain.doubt.high) if gain.doubt else (gain.own_share, gain.own_share)
    return Bar(gain.change, 100 * gain.own_share, 100 * low, 100 * high)


def hardware_record(answer: HardwareAnswer) -> dict[str, Any]:
    """Return the answer as plain values."""
    return {
        "answer": hardware_sentence(answer),
        "product": answer.variant,
        "profile": answer.digest,
        "ranged_figures": answer.ranged,
        "margin": answer.question.margin,
        "gains": [_gain_record(gain, answer.question.margin) for gain in answer.gains],
        "refused": dict(answer.refused),
    }


def _gain_record(gain: Gain, margin: float) -> dict[str, Any]:
    doubt = gain.doubt
    return {
        "change": gain.change,
        "figures": {path: {"product": old, "changed": new} for path, (old, new) in gain.figures.items()},
        "l2_start": gain.start,
        "base_us": gain.base_us,
        "same_us": gain.same_us,
        "anew_us": gain.anew_us,
        "better_us": gain.better_us,
        "tuned_us": gain.tuned_us,
        "unchanged_us": gain.unchanged_us,
        "saved_share": gain.share,
        "saved_by_plans_share": gain.plan_share,
        "saved_itself_share": gain.own_share,
        "saved_itself_between": None if doubt is None else [doubt.low, doubt.high],
        "figures_that_move_it": None if doubt is None else doubt.figures,
        "saved_by_plans_that_need_it_share": gain.needing_share,
        "distinguishable": gain.distinguishable,
        "verdict": verdict(gain, margin),
        "without": dict(gain.without),
        "conditions": [] if doubt is None else [asdict(one) for one in doubt.conditions],
        "parts_us": [dict(zip(PARTS, us, strict=False)) for us in gain.parts_us],
        "layers": [_layer_record(row) for row in gain.layers],
    }


def _layer_record(row: LayerGain) -> dict[str, Any]:
    names = (
        "layer",
        "count",
        "base_us",
        "same_us",
        "anew_us",
        "better_us",
        "speed_us",
        "tuned_us",
        "new_plan",
    )
    plans = [
        new._asdict() | {"before": new.before.to_dict(), "better": new.better.to_dict()}
        for new in row.new_plans
    ]
    return {name: getattr(row, name) for name in (*names, "plan_us", "misfit")} | {"new_plans": plans}
