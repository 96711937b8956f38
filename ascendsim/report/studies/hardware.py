"""What changes of the hardware buy: a sentence, tables, a page, JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ascendsim.report.numbers import microseconds, value
from ascendsim.report.page.charts import Bar, tornado
from ascendsim.report.page.records import Page, Picture, Section
from ascendsim.report.studies.hardware_words import (
    BELOW,
    BY_PLAN,
    NO_FIT,
    NOTHING,
    PARTLY,
    UNCLEAR,
    hardware_sentence,
    interval,
    share,
    verdict,
)
from ascendsim.report.studies.several import listed
from ascendsim.report.tables import TextTable, without_empty
from ascendsim.report.words import L2_STARTS
from ascendsim.studies.hardware.records import Gain, HardwareAnswer

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
    "saves": "The part of the time before that the change saves, under the better plans; below 0 it costs.",
    "between": "The saving with assumed figures at the ends of their ranges: each alone, then all that lower "
    "it and all that raise it together.",
    UNCLEAR: "0 lies in that interval: whether the change helps is not known.",
    NOTHING: "Not one cycle of any layer changes, wherever assumed figures lie.",
    f"{BY_PLAN}, {PARTLY}": "At least half, or a tenth, of the saving comes of plans that the operators "
    "choose for the changed product alone: with the same plans it is that much less.",
    NO_FIT: "A plan of the unchanged product does not fit any more: what comes of the new one is not known.",
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
    left_out = set(_quiet(answer)) if short else set()
    gains = _best_first(answer) if short else answer.gains
    tuned = answer.question.tilings > 0
    rows = tuple(
        (
            gain.change,
            gain.start,
            microseconds(gain.base_us),
            "-" if gain.same_us is None else microseconds(gain.same_us),
            microseconds(gain.anew_us),
            microseconds(gain.better_us),
            f"{share(gain.share)} %",
            interval(gain) if gain.doubt else "",
            *(_tuned(gain.tuned_us) if tuned else ()),
            verdict(gain, answer.question.margin),
        )
        for gain in gains
        if gain.change not in left_out
    )
    headings = (
        "change",
        "L2",
        "before us",
        "same plan us",
        "planned anew us",
        "better us",
        "saves",
        "between",
        *(("tuned us", "tuned saves") if tuned else ()),
        "verdict",
    )
    table = TextTable("What each change buys", headings, frozenset({0, 1, len(headings) - 1}), rows)
    # Without intervals nothing lies between, and seldom there is a verdict.
    return without_empty(table, ("between", "verdict"))


def _tuned(tuned_us: tuple[float, float] | None) -> tuple[str, str]:
    if tuned_us is None:
        return "-", ""
    before, after = tuned_us
    return f"{microseconds(before)} to {microseconds(after)}", f"{share(1 - after / before)} %"


def figure_table(answer: HardwareAnswer) -> TextTable:
    """Show the figures that changes replace."""
    rows = dict.fromkeys(
        (gain.change, path, value(old), value(new))
        for gain in answer.gains
        for path, (old, new) in gain.figures.items()
    )
    headings = ("change", "figure", "product", "changed")
    return TextTable("Figures of the user's own", headings, frozenset({0, 1}), tuple(rows))


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
            f"{share(row.share)} %",
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
        f"{share(gain.share)} %",
    )
    headings = ("layer", "count", "before us", "same plan us", "planned anew us", "better us", "saves")
    title = f"{gain.change}, L2 {gain.start}: one call of each layer, and all with their counts"
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
            f"What each change saves with L2 {start}{line}.",
        )
        for start in dict.fromkeys(gain.start for gain in drawn)
    )
    sections = [
        Section("What each change buys", tuple(notes(answer)), pictures, (hardware_table(answer),)),
        Section("What is changed", (), (), (figure_table(answer),)),
    ]
    layers = tuple(layer_table(gain) for gain in answer.gains)
    sections.append(Section("Layer by layer", (), (), layers, collapsed=True))
    return Page(hardware_title([answer]), hardware_sentence(answer), tuple(sections), DEFINITIONS, made)


def _bar(gain: Gain) -> Bar:
    low, high = (gain.doubt.low, gain.doubt.high) if gain.doubt else (gain.share, gain.share)
    return Bar(gain.change, 100 * gain.share, 100 * low, 100 * high)


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
        "saved_share": gain.share,
        "saved_between": None if doubt is None else [doubt.low, doubt.high],
        "figures_that_move_it": None if doubt is None else doubt.figures,
        "saved_by_plans_share": gain.plan_share,
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
    )
    return {name: getattr(row, name) for name in names}
