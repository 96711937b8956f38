"""Tables and record of a study of precision, which asks for the best mode of the interface."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from ascendsim.numerics.formats.dtypes import dtype
from ascendsim.report.document import plain
from ascendsim.report.page.records import Exponents, Page, Picture, Range, Section, StackedBar, Stacks
from ascendsim.report.studies.answer import Answered, Compared, listed
from ascendsim.studies.modes.choice import ModeSummary, PrecisionStudy
from ascendsim.studies.modes.records import CaseErrors, FormatShare
from ascendsim.studies.table import Table, form, microseconds, numbers, percent, us, words


def mode_words(row: ModeSummary) -> str:
    """Name a mode."""
    cube = "" if row.compute_dtypes == (row.dtype,) else f" ({' or '.join(row.compute_dtypes)} in the cube)"
    scale = "" if row.loss_scale == 1 else f" and a loss scale of {row.loss_scale:g}"
    return f"{row.dtype} with cubeMathType {math_numbers(row)}{cube}{scale}"


def precision_sentence(study: PrecisionStudy) -> str:
    """Answer in one sentence: the cheapest mode that passes, or the nearest one."""
    where = f"On {study.variant}, {study.question.title}: "
    models = (
        f" under each of {len(study.question.axes.models)} accumulation models"
        if len(study.question.axes.models) > 1
        else ""
    )
    within = f"within {study.question.limit:.1e} of float64 in every gradient{models}"
    best, near = study.cheapest, study.nearest
    if best is not None:
        error = error_range(best.least, best.most)
        cost = f"{microseconds(best.time_us)} us, error {error}"
        return f"{where}the cheapest mode {within} is {mode_words(best)}: {cost}{_more_exact(study)}."
    if near is not None:
        error = error_range(near.least, near.most)
        return f"{where}no mode is {within}; the nearest is {mode_words(near)}, error {error}."
    return f"{where}no mode is {within}: the interface refuses them, or they overflow."


def precision_compared(studies: Sequence[PrecisionStudy]) -> Compared:
    """Compare products in one sentence: the cheapest mode that passes on each, the fastest first."""
    passing = [(study.cheapest, study) for study in studies]
    timed = [(best.time_us, study.variant, best) for best, study in passing if best is not None]
    found = [
        f"on {variant} {mode_words(best)}, {microseconds(time_us)} us, "
        f"error {error_range(best.least, best.most)}"
        for time_us, variant, best in sorted(timed, key=lambda row: row[0])
    ]
    found += [f"on {study.variant} none" for best, study in passing if best is None]
    within = f"within {studies[0].question.limit:.1e} of float64"
    answer = f"{studies[0].question.title}, the cheapest mode {within} on each product: {'; '.join(found)}."
    return Compared(precision_title(studies), answer)


def _more_exact(study: PrecisionStudy) -> str:
    """Name the modes that are more exact, and as fast within the model's error."""
    named = [
        f"{mode_words(row)} ({microseconds(row.time_us)} us, error {error_range(row.least, row.most)})"
        for row in study.more_exact
    ]
    if not named:
        return ""
    return (
        f"; more exact, and in time not distinguishable from it, {'is' if len(named) == 1 else 'are'} "
        f"{' and '.join(named)}: {100 * study.question.margin:.1f} % is the model's own error"
    )


def reasons(study: PrecisionStudy) -> Iterator[str]:
    """Yield why a verdict differs between loss scales, then why rules of the field fail."""
    for bad, good in study.verdict_flips():
        assert bad.worst is not None
        case = bad.worst.case
        # HF32 has the range of the float32 that it is read from.
        read = bad.compute_dtypes[0]
        name = bad.dtype if read.startswith("hf32") else read
        before, after = (study.share(case, "grad_output", name, row.loss_scale) for row in (bad, good))
        assert before is not None
        assert after is not None
        beyond = before.overflow > 0 or bad.worst.error.overflow > 0
        yield (
            f"{mode_words(good)} passes; with a loss scale of {bad.loss_scale:g} the mode fails "
            f"(error {error_text(bad.most)} in {bad.worst.error.name} of {case}, "
            f"most of it {_largest(bad)}): "
            + (_overflowing(bad, before) if beyond else _subnormal(before, after))
        )
    told = set()
    for row in study.rows:
        for rule, reason in row.failed:
            if rule not in told:
                told.add(rule)
                yield f"The rule {rule} is missed, such as by {mode_words(row)}: {reason}."


def _largest(row: ModeSummary) -> str:
    """Name the largest part of the largest error."""
    assert row.worst is not None
    parts = row.worst.error.parts
    return max(parts, key=lambda name: parts[name] if parts[name] == parts[name] else 0.0)


def _subnormal(before: FormatShare, after: FormatShare) -> str:
    if before.subnormal is None or after.subnormal is None:
        return f"{before.zero:.2%} of the non-zero grad_output become 0 in {before.format}."
    scale = f"with a loss scale of {after.loss_scale:g}" if after.loss_scale != 1 else "without a loss scale"
    return (
        f"{before.subnormal:.2%} of the non-zero grad_output are subnormal in {before.format}: the smaller, "
        f"the fewer bits ({before.zero:.2%} become 0); {scale} {after.subnormal:.2%} are."
    )


def _overflowing(bad: ModeSummary, share: FormatShare) -> str:
    assert bad.worst is not None
    worst = bad.worst.error
    return (
        f"{share.overflow:.2%} of grad_output overflow in {share.format}, and {worst.overflow:.2%} of "
        f"{worst.name} are Inf or NaN."
    )


def math_numbers(row: ModeSummary) -> str:
    """Return the cubeMathTypes that a mode stands for."""
    return "/".join(map(str, row.cube_math_types))


def error_text(error: float) -> str:
    """Print an error; what is not finite has no parts."""
    return "-" if error != error else "0" if error == 0 else f"{error:.1e}"


def error_range(least: float, most: float) -> str:
    """Print the errors under the best and the worst model, once where they are alike."""
    ends: Sequence[str] = list(dict.fromkeys((error_text(least), error_text(most))))
    return " .. ".join(ends)


DEFINITIONS = {
    "error": "L2 norm of a gradient minus the float64 one of the tensors as they were given, relative to "
    "the norm of that: of the worst gradient of the worst case. Two numbers: under the best and the worst "
    "accumulation model. A gradient is divided by the loss scale first.",
    "storage, cast, output, sums": "Parts of that error, which add up to it element by element (their "
    "norms need not): storing the tensors in their format; what the cube reads instead of what is stored; "
    "rounding the exact gradient once to the formats in which it leaves; the rest, which is accumulation.",
    "of terms": "Largest error of an element, storage apart, over the sum of the magnitudes |a b| of its "
    "terms: the error of the sum, whatever of it cancels.",
    "other bits": "Largest share of elements of a gradient whose bits another accumulation model changes.",
    "passes limit": "Whether a mode passes: every gradient of every case has an error within the limit "
    "under every accumulation model, without NaN or Inf. Of those that pass the fastest is the cheapest.",
    "misses rules": "Acceptance rules of the field that some gradient misses, held against float64 of the "
    "stored tensors (docs/arithmetic.md has them). They judge elements one by one and decide nothing here: "
    "a gradient within the limit misses them where terms cancel; the reasons above tell that from lost bits.",
    "us": "Microseconds of all calls as `ascendsim run` estimates them, launches included, L2 warm.",
    "loss scale": "grad_output is multiplied by it before it is stored, gradients are divided by it.",
    "subnormal": "Share of the values that are not zero below the format's smallest normal value, where "
    "bits are lost one by one; those that become zero are among them.",
}


MODES = (
    *(words("format"), words("cubeMathType"), words("in the cube"), numbers("loss scale"), us("us")),
    *(numbers("error"), words("passes limit"), words("misses rules"), words("worst")),
)
PARTS = (
    *(words("format"), words("cubeMathType"), numbers("loss scale"), numbers("error")),
    *(
        numbers(name, show=error_text, absent="-")
        for name in ("storage", "cast", "output", "sums", "of terms")
    ),
    numbers("other bits", show=percent),
)


def mode_table(study: PrecisionStudy) -> Table:
    """Show every mode over all cases: its time, its error, and whether it passes."""
    return Table("Modes", MODES, tuple(_mode_row(study, row) for row in _told(study)))


def parts_table(study: PrecisionStudy) -> Table:
    """Show what the error of every mode is made of, for the gradient whose error is the worst."""
    rows = tuple(_parts_row(row) for row in study.rows if row.worst is not None)
    return Table("What the errors are made of", PARTS, rows)


def _told(study: PrecisionStudy) -> Iterator[ModeSummary]:
    """Yield the modes, what is refused once and not under every loss scale."""
    refused = set()
    for row in study.rows:
        key = row.dtype, row.cube_math_types
        if not row.refused or key not in refused:
            yield row
        if row.refused:
            refused.add(key)


def _mode_row(study: PrecisionStudy, row: ModeSummary) -> tuple[Any, ...]:
    first = (row.dtype, math_numbers(row), " or ".join(row.compute_dtypes))
    if row.worst is None:
        return (*first, "", "", "", "refused", "", "")
    e = row.worst.error
    several = len(study.cases) > 1
    return (
        *first,
        f"{row.loss_scale:g}",
        row.time_us,
        error_range(row.least, row.most),
        "yes, cheapest" if row == study.cheapest else "yes" if row.passes(study.question.limit) else "no",
        " ".join(rule for rule, _ in row.failed),
        f"{e.name} of {row.worst.case}" if several else e.name,
    )


def _parts_row(row: ModeSummary) -> tuple[Any, ...]:
    assert row.worst is not None
    e = row.worst.error
    first = (row.dtype, math_numbers(row), f"{row.loss_scale:g}", error_range(row.least, row.most))
    return (*first, *e.parts.values(), e.of_terms, row.different)


def refusals(study: PrecisionStudy) -> Iterator[str]:
    """Yield why modes are refused: each reason once."""
    told = dict[str, ModeSummary]()
    for row in study.rows:
        if row.refused:
            told.setdefault(row.refused, row)
    for reason, row in told.items():
        yield f"{row.dtype} with cubeMathType {math_numbers(row)} is refused: {reason}"


SHARES = (
    *(words("of"), words("tensor"), words("format"), numbers("loss scale")),
    *(numbers(name, show=form(".2%")) for name in ("subnormal", "become 0", "overflow")),
)


def share_table(study: PrecisionStudy, *, every: bool) -> Table:
    """Show what formats make of the tensors; of grad_output alone, in the worst case, unless `every`."""
    rows = []
    for case, share in _shares(study, every=every):
        scale = f"{share.loss_scale:g}" if share.tensor == "grad_output" else ""
        rows.append((case, share.tensor, share.format, scale, share.subnormal, share.zero, share.overflow))
    title = "What formats make of the non-zero values" + ("" if every else ", in the worst case of each row")
    return Table(title, SHARES, tuple(rows))


def _shares(study: PrecisionStudy, *, every: bool) -> list[tuple[str, FormatShare]]:
    pairs = [(case.name, share) for case in study.cases for share in case.shares]
    if every:
        return pairs
    worst: dict[tuple[str, float], tuple[str, FormatShare]] = {}
    for name, share in pairs:
        if share.tensor == "grad_output":
            key = share.format, share.loss_scale
            known = worst.get(key)
            if known is None or _lost(share) > _lost(known[1]):
                worst[key] = name, share
    return list(worst.values())


def _lost(share: FormatShare) -> float:
    return share.overflow + max(share.zero, share.subnormal or 0.0)


GRADIENTS = (
    *(words("of", "case"), words("gradient", "name"), words("format", "dtype")),
    *(
        words("cubeMathType", "cube_math_types"),
        words("model"),
        numbers("loss scale", "loss_scale", form("g")),
    ),
    numbers("error", "total", error_text, absent="-"),
    numbers("sums", "accumulation", error_text, absent="-"),
    numbers("of terms", "of_terms", error_text, absent="-"),
    numbers("other bits", "different", form(".1%")),
    numbers("underflow", "underflow", form(".2%")),
    words("misses rules", "failed"),
)


def model_table(study: PrecisionStudy) -> Table:
    """Show the error of every gradient of every case under every model."""
    return Table.of("Every gradient under every model", GRADIENTS, precision_rows(study))


def precision_rows(study: PrecisionStudy) -> list[dict[str, Any]]:
    """Return a row of plain values for each gradient of each case under each mode, for a table in a file."""
    rows = []
    for case in study.cases:
        for mode in case.modes:
            of_mode = {key: value for key, value in asdict(mode).items() if key != "gradients"}
            of_mode["cube_math_types"] = "/".join(map(str, mode.cube_math_types))
            for error in mode.gradients:
                own = asdict(error) | {"failed": " ".join(rule for rule, _ in error.failed)}
                about = {"product": study.variant, "case": case.name, "count": case.count}
                # `accumulation` is the part of the error that comes of the model.
                rows.append({**about, **of_mode, **own, "model": mode.accumulation})
    return rows


def precision_record(study: PrecisionStudy) -> dict[str, Any]:
    """Return a study as plain values for JSON."""
    return {
        "answer": precision_sentence(study),
        "reasons": list(reasons(study)),
        "variant": study.variant,
        "limit": study.question.limit,
        "margin": study.question.margin,
        "data": list(study.question.data),
        "modes": [plain(asdict(row)) | {"passes": row.passes(study.question.limit)} for row in study.rows],
        "cases": [plain(asdict(case)) for case in study.cases],
        "definitions": DEFINITIONS,
    }


MOST_PICTURES = 12
MILLIONTHS = 1e6
HIFLOAT8 = (-22.0, -7.0, 15.0)  # its smallest value, the last binade with a fraction bit, its largest


def precision_page(study: PrecisionStudy) -> Page:
    """Return the page: reasons, modes, where errors come from, exponents, and every gradient."""
    sections = (
        Section("Why", (*reasons(study), *refusals(study))),
        Section("Modes", tables=(mode_table(study), parts_table(study))),
        Section("Where the error comes from", pictures=_parts(study)),
        Section("Exponents and ranges", pictures=_exponents(study), tables=(share_table(study, every=True),)),
        Section("Every gradient under every model", tables=(model_table(study),), collapsed=True),
    )
    facts = {"limit": f"{study.question.limit:g}", "data": "; ".join(study.question.data)}
    return Page(precision_title([study]), precision_sentence(study), sections, DEFINITIONS, facts)


def precision_answered(study: PrecisionStudy) -> Answered:
    """Tell an answer: reasons before the tables, and what words mean below all."""
    told = "error", "storage, cast, output, sums", "of terms", "passes limit", "misses rules", "us"
    return Answered(
        precision_page(study),
        precision_record(study),
        (mode_table(study), parts_table(study), share_table(study, every=False)),
        tuple(refusals(study)),
        tuple(reasons(study)),
        legend=tuple(f"{word}: {DEFINITIONS[word]}" for word in told),
    )


def precision_title(studies: Sequence[PrecisionStudy]) -> str:
    """Say what a page of studies of the same cases is of."""
    variants = listed([study.variant for study in studies])
    return f"Which format and cubeMathType? {studies[0].question.title} on {variants}"


def _parts(study: PrecisionStudy) -> tuple[Picture, ...]:
    """Draw what the largest error of each mode is made of."""
    stacks = []
    for row in study.rows:
        e = row.worst.error if row.worst else None
        if e is not None and math.isfinite(e.total):
            each = tuple((name, MILLIONTHS * size) for name, size in e.parts.items())
            scale = "" if row.loss_scale == 1 else f" x{row.loss_scale:g}"
            stacks.append(StackedBar(f"{row.dtype}{scale}, cubeMathType {math_numbers(row)}", each))
    if not stacks:
        return ()
    caption = (
        "Parts of the largest error of each mode, in millionths of the gradient's norm, side by side: "
        "together they are longer than the error, since parts of random signs add up as squares do. Modes "
        "that overflow are left out."
    )
    return (Picture(Stacks(tuple(stacks), "millionths"), caption),)


def _exponents(study: PrecisionStudy) -> tuple[Picture, ...]:
    """Draw the exponents of grad_output of the first cases, with the formats' ranges under each scale."""
    keys = dict.fromkeys((row.dtype, row.loss_scale) for row in study.rows)
    ranges = tuple(_range(name, scale) for name, scale in keys)
    return tuple(_picture(case, ranges) for case in study.cases[:MOST_PICTURES])


def _picture(case: CaseErrors, ranges: tuple[Range, ...]) -> Picture:
    (histogram,) = (one for one in case.histograms if one.tensor == "grad_output")
    count = sum(histogram.counts)
    caption = (
        f"grad_output of {case.name}: {count:,} values that are not zero, {histogram.zeros:,} zeros. Below, "
        "what each format holds of them: normal values dark, subnormal ones light; a loss scale moves its "
        "range to the left."
    )
    return Picture(Exponents(histogram.first, histogram.counts, ranges), caption)


def _range(name: str, loss_scale: float) -> Range:
    fmt = dtype(name)
    label = name if loss_scale == 1 else f"{name} x{loss_scale:g}"
    shift = math.log2(loss_scale)
    if fmt.tapered:
        return Range(label, *HIFLOAT8, shift)
    normal, top = float(fmt.min_exponent), math.log2(fmt.max_finite)
    return Range(label, normal - fmt.mantissa_bits, normal, top, shift)
