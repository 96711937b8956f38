"""What changes of the hardware buy, and which designs are worth their cost: tables, pages, JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ascendsim.profile import load_profile
from ascendsim.report.page import Bar, Dot, Page, Picture, Scatter, Section, Tornado
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
    within_words,
    without,
)
from ascendsim.report.tables import value
from ascendsim.studies.hardware.records import (
    CORES,
    Design,
    DesignAnswer,
    Gain,
    HardwareAnswer,
    LayerGain,
    NewPlan,
)
from ascendsim.studies.records import PARTS
from ascendsim.studies.table import Table, form, microseconds, numbers, saving, share, us, words
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


DESIGN_DEFINITIONS = {
    "cost": "What the formula of the question gives, in a unit that only who asked knows.",
    "cost between": "The cost with all figures of the energy at lower, and at upper ends of ranges; the "
    "front, and a budget, go by the cost.",
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
    """Name the designs that are not told from the fastest, the cheapest first."""
    if not untold:
        return ""
    cheapest = sorted(untold, key=lambda design: (design.cost or 0.0, design.tuned_us))
    named = [f"{one.name} ({one.cost:g}, {microseconds(one.tuned_us)} us)" for one in cheapest[:NAMED]]
    more = f" and {len(untold) - NAMED} more" if len(untold) > NAMED else ""
    return f"; {UNCLEAR} from it, the cheapest first: {', '.join(named)}{more}"


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
