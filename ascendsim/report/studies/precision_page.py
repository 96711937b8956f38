"""The page of a study of precision."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ascendsim.numerics.formats.dtypes import dtype
from ascendsim.report.page.charts import Stack, stacked
from ascendsim.report.page.exponents import Bars, Range, exponents
from ascendsim.report.page.records import Page, Picture, Section
from ascendsim.report.studies.precision import (
    DEFINITIONS,
    mode_table,
    model_table,
    parts_table,
    refusals,
    share_table,
)
from ascendsim.report.studies.precision_words import math_numbers, precision_sentence, reasons
from ascendsim.report.studies.several import listed
from ascendsim.studies.modes.records import CaseErrors
from ascendsim.studies.modes.study import PrecisionStudy

MOST_PICTURES = 12
MILLIONTHS = 1e6
HIFLOAT8 = (-22.0, -7.0, 15.0)  # its smallest value, the last binade with a fraction bit, its largest


def precision_page(study: PrecisionStudy, facts: Mapping[str, str]) -> Page:
    """Return the page: reasons, modes, where errors come from, exponents, and every gradient."""
    sections = (
        Section("Why", (*reasons(study), *refusals(study))),
        Section("Modes", tables=(mode_table(study), parts_table(study))),
        Section("Where the error comes from", pictures=_parts(study)),
        Section("Exponents and ranges", pictures=_exponents(study), tables=(share_table(study, every=True),)),
        Section("Every gradient under every model", tables=(model_table(study),), collapsed=True),
    )
    own = {"limit": f"{study.limit:g}", "data": "; ".join(study.data)}
    return Page(precision_title([study]), precision_sentence(study), sections, DEFINITIONS, {**facts, **own})


def precision_title(studies: Sequence[PrecisionStudy]) -> str:
    """Say what a page of studies of the same cases is of."""
    variants = listed([study.variant for study in studies])
    return f"Which format and cubeMathType? {studies[0].title} on {variants}"


def _parts(study: PrecisionStudy) -> tuple[Picture, ...]:
    """Draw what the largest error of each mode is made of."""
    stacks = []
    for row in study.rows:
        e = row.worst.error if row.worst else None
        if e is not None and math.isfinite(e.total):
            each = tuple((name, MILLIONTHS * size) for name, size in e.parts.items())
            scale = "" if row.loss_scale == 1 else f" x{row.loss_scale:g}"
            stacks.append(Stack(f"{row.dtype}{scale}, cubeMathType {math_numbers(row)}", each))
    if not stacks:
        return ()
    caption = (
        "Parts of the largest error of each mode, in millionths of the gradient's norm, side by side: "
        "together they are longer than the error, since parts of random signs add up as squares do. Modes "
        "that overflow are left out."
    )
    return (Picture(stacked(stacks, "millionths"), caption),)


def _exponents(study: PrecisionStudy) -> tuple[Picture, ...]:
    """Draw the exponents of grad_output of the first cases, with the formats' ranges under each scale."""
    keys = dict.fromkeys((row.dtype, row.loss_scale) for row in study.rows)
    ranges = [_range(name, scale) for name, scale in keys]
    return tuple(_picture(case, ranges) for case in study.cases[:MOST_PICTURES])


def _picture(case: CaseErrors, ranges: list[Range]) -> Picture:
    (histogram,) = (one for one in case.histograms if one.tensor == "grad_output")
    count = sum(histogram.counts)
    caption = (
        f"grad_output of {case.name}: {count:,} values that are not zero, {histogram.zeros:,} zeros. Below, "
        "what each format holds of them: normal values dark, subnormal ones light; a loss scale moves its "
        "range to the left."
    )
    return Picture(exponents(Bars(histogram.first, histogram.counts), ranges), caption)


def _range(name: str, loss_scale: float) -> Range:
    fmt = dtype(name)
    label = name if loss_scale == 1 else f"{name} x{loss_scale:g}"
    shift = math.log2(loss_scale)
    if fmt.tapered:
        return Range(label, *HIFLOAT8, shift)
    normal, top = float(fmt.min_exponent), math.log2(fmt.max_finite)
    return Range(label, normal - fmt.mantissa_bits, normal, top, shift)
