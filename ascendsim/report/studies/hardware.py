"""What changes of the hardware buy: a sentence, tables, a page, JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ascendsim.report.page.charts import Bar, tornado
from ascendsim.report.page.records import Page, Picture, Section
from ascendsim.report.studies.hardware_words import (
    BELOW,
    NAMED,
    NEEDS,
    NO_FIT,
    NOTHING,
    ONLY_PLAN,
    PARTLY,
    UNCLEAR,
    hardware_sentence,
    interval,
    saving,
    verdict,
)
from ascendsim.report.tables import TextTable, microseconds, value, without_empty
from ascendsim.report.words import L2_STARTS
from ascendsim.studies.hardware.records import Gain, HardwareAnswer


def listed(names: Sequence[str]) -> str:
    """Return names for a title, each once: "A", "A and B", "A, B and C"."""
    *first, last = dict.fromkeys(names)
    return f"{', '.join(first)} and {last}" if first else last


def joined(
    title: str, pages: Sequence[Page], names: Sequence[str], answer: str, overview: Sequence[TextTable] = ()
) -> Page:
    """Return one page of several: the sentence that compares them, then each with its sections folded.

    title      what all of them are of
    names      of the products that the pages are of
    overview   tables of all of them, if there are any
    """
    sections = [Section("All of them", (), (), tuple(overview))] if overview else []
    for page, name in zip(pages, names, strict=True):
        sections.append(Section(page.title, (page.answer,)))
        sections += [
            replace(section, title=f"{name}: {section.title}", collapsed=True) for section in page.sections
        ]
    definitions = {word: meaning for page in pages for word, meaning in page.definitions.items()}
    facts: dict[str, str] = {}
    for page, name in zip(pages, names, strict=True):
        for what, which in page.facts.items():
            # What is the same of all of them is told once.
            same = all(other.facts.get(what) == which for other in pages)
            facts[what if same else f"{what}, {name}"] = which
    return Page(title, answer, tuple(sections), definitions, facts)


# So many changes fit a screen, whatever they do.
MANY = 12
DEFINITIONS = {
    "before": "Microseconds on the unchanged product, launches included, over all layers and their counts.",
    "same plan": "The changed product under the plans that its operators choose for the unchanged one. "
    "A dash: a plan does not fit any more.",
    "planned anew": "The changed product under the plans that its operators choose for it. Their rules were "
    "made for the product as it is, so that a faster part can come out slower.",
    "better": "Each gradient of each layer under the faster of these two plans; of added cores, with all of "
    "them left idle where that is faster: kernels beside the products are launched on all vector cores.",
    "tuned": "Each gradient of each layer under the best plan that is found for it, before and after the "
    "change alike; what that saves is what the change buys once plans are made for it.",
    "saves": "The part of the time before that the change saves, under the better plans.",
    "plan alone, itself": "Of this what the unchanged product saves too, under new plans where they fit, "
    "or by leaving unused what the change takes away; and the rest, which needs the change. Where neither "
    "column is shown, all is the change's. What buys most is said of the change itself.",
    "between": "What the change itself saves with assumed figures at the ends of their ranges: each alone, "
    "then all that lower it and all that raise it together.",
    UNCLEAR: "0 lies in that interval: whether the change helps is not known.",
    NOTHING: "No layer is faster or slower for it, wherever assumed figures lie: what the change adds is "
    "left unused where using it would cost time, as the times under the same plan then show.",
    ONLY_PLAN: "All that is saved is saved by a new plan, on the unchanged product as well.",
    f"{NEEDS}, {PARTLY}": "At least half, or a tenth, of what the change itself saves comes of new plans "
    "that do not fit the unchanged product, or save less there: with the same plans it is that much less.",
    NO_FIT: "A plan of the unchanged product does not fit the changed one, so that new ones are followed.",
    BELOW: "Less than the model's own margin: the median error of the estimated ratio of two plans' times. "
    "How far ratios of two products are off, nobody has measured.",
    **L2_STARTS,
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
    """Return the gains; of many changes in the order of what each saves under its best start."""
    most: dict[str, float] = {}
    for gain in answer.gains:
        most[gain.change] = max(gain.share, most.get(gain.change, gain.share))
    return answer.gains if len(most) <= MANY else sorted(answer.gains, key=lambda gain: -most[gain.change])


def hardware_table(answer: HardwareAnswer, *, short: bool = False) -> TextTable:
    """Show every change under every start; `short`: of many those that change something, the best first."""
    rows = tuple(
        (
            gain.change,
            gain.start,
            microseconds(gain.base_us),
            "-" if gain.same_us is None else microseconds(gain.same_us),
            microseconds(gain.anew_us),
            microseconds(gain.better_us),
            saving(gain.share),
            *((saving(gain.plan_share), saving(gain.own_share)) if gain.plan_share else ("", "")),
            interval(gain) if gain.doubt else "",
            verdict(gain, answer.question.margin),
        )
        for gain in _shown(answer, short=short)
    )
    headings = (
        "change",
        "L2",
        "before",
        "same plan",
        "planned anew",
        "better",
        "saves",
        "plan alone",
        "itself",
        "between",
        "verdict",
    )
    table = TextTable(
        "What each change buys, in microseconds", headings, frozenset({0, 1, len(headings) - 1}), rows
    )
    # Without intervals nothing lies between, and seldom there is a verdict, or a new plan without the change.
    return without_empty(table, ("plan alone", "itself", "between", "verdict"))


def _shown(answer: HardwareAnswer, *, short: bool) -> Sequence[Gain]:
    """Return the gains that tables show; `short`: of many those that change something, the best first."""
    left_out = set(_quiet(answer)) if short else set()
    gains = _best_first(answer) if short else answer.gains
    return [gain for gain in gains if gain.change not in left_out]


def tuned_table(answer: HardwareAnswer, *, short: bool = False) -> TextTable:
    """Show the times under tuned plans, before each change and after it; no row where none were asked for."""
    rows = []
    for gain in _shown(answer, short=short):
        if gain.tuned_us:
            before, after = gain.tuned_us
            times = microseconds(before), microseconds(after)
            rows.append((gain.change, gain.start, *times, saving(1 - after / before)))
    headings = ("change", "L2", "before", "after", "saves")
    return TextTable("Under plans tuned for each, in microseconds", headings, frozenset({0, 1}), tuple(rows))


def hardware_tables(answer: HardwareAnswer) -> list[TextTable]:
    """Return what a terminal shows."""
    tables = [tuned_table(answer, short=True)]
    # The sentence says what the figures of a single change were and become.
    if len({gain.change for gain in answer.gains}) > 1 or any(len(g.figures) > NAMED for g in answer.gains):
        tables.append(figure_table(answer, short=True))
    return [hardware_table(answer, short=True), *(table for table in tables if table.rows)]


def figure_table(answer: HardwareAnswer, *, short: bool = False) -> TextTable:
    """Show the figures that changes replace, from what the product has to what it becomes."""
    rows = dict.fromkeys(
        (gain.change, path, value(old), value(new))
        for gain in _shown(answer, short=short)
        for path, (old, new) in gain.figures.items()
    )
    headings = ("change", "figure", "from", "to")
    return TextTable("Figures that are changed", headings, frozenset({0, 1}), tuple(rows))


def layer_table(gain: Gain) -> TextTable:
    """Show one change under one start, layer by layer."""
    rows = tuple(
        (
            row.layer,
            str(row.count),
            microseconds(row.base_us),
            "-" if row.same_us is None else microseconds(row.same_us),
            microseconds(row.anew_us),
            microseconds(row.better_us),
            saving(row.share),
        )
        for row in gain.layers
    )
    total = ("all", "", microseconds(gain.base_us))
    same = "-" if gain.same_us is None else microseconds(gain.same_us)
    last = (
        *total,
        same,
        microseconds(gain.anew_us),
        microseconds(gain.better_us),
        saving(gain.share),
    )
    headings = ("layer", "count", "before", "same plan", "planned anew", "better", "saves")
    title = f"{gain.change}, L2 {gain.start}, in microseconds: one call of each layer, all with their counts"
    return TextTable(title, headings, frozenset({0}), (*rows, last), total=True)


def notes(answer: HardwareAnswer, *, short: bool = False) -> list[str]:
    """Return what a reader of the table must know; `short` as there."""
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
    found += [f"{name} cannot be timed: {reason}" for name, reason in answer.refused.items()]
    return found


def hardware_title(answers: Sequence[HardwareAnswer]) -> str:
    """Say what a page of answers about the same layers is of."""
    variants = listed([answer.variant for answer in answers])
    return f"What do changes of {variants} buy? {answers[0].question.title}"


def hardware_page(answer: HardwareAnswer, made: Mapping[str, str]) -> Page:
    """Return the page of a study; `made` says how."""
    line = "; the line is its interval" if any(gain.doubt for gain in answer.gains) else ""
    quiet = set(_quiet(answer))
    line += "; those that change nothing are left out" if quiet else ""
    drawn = [gain for gain in answer.gains if gain.change not in quiet]
    pictures = tuple(
        Picture(
            tornado([_bar(gain) for gain in drawn if gain.start == start], "% of the time saved"),
            f"What each change itself saves with L2 {start}{line}.",
        )
        for start in dict.fromkeys(gain.start for gain in drawn)
    )
    tuned = [table for table in [tuned_table(answer)] if table.rows]
    sections = [
        Section("What each change buys", tuple(notes(answer)), pictures, (hardware_table(answer), *tuned)),
        Section("What is changed", (), (), (figure_table(answer),)),
    ]
    layers = tuple(layer_table(gain) for gain in answer.gains)
    sections.append(Section("Layer by layer", (), (), layers, collapsed=True))
    return Page(hardware_title([answer]), hardware_sentence(answer), tuple(sections), DEFINITIONS, made)


def _bar(gain: Gain) -> Bar:
    low, high = (gain.doubt.low, gain.doubt.high) if gain.doubt else (gain.own_share, gain.own_share)
    return Bar(gain.change, 100 * gain.own_share, 100 * low, 100 * high)


def hardware_record(answer: HardwareAnswer) -> dict[str, Any]:
    """Return the answer as plain values."""
    return {
        "answer": hardware_sentence(answer),
        "product": answer.variant,
        "profile": answer.digest,
        "assumed_figures": answer.assumed,
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
        "layers": [_layer_record(row) for row in gain.layers],
    }


def _layer_record(row: Any) -> dict[str, Any]:
    names: Sequence[str] = (
        "layer",
        "count",
        "base_us",
        "same_us",
        "anew_us",
        "better_us",
        "tuned_us",
        "new_plan",
        "plan_us",
        "misfit",
    )
    return {name: getattr(row, name) for name in names}
