"""Tables and record of a study of precision, which asks for the best mode of the interface."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from ascendsim.numerics.dtypes import dtype
from ascendsim.report.document import plain
from ascendsim.report.page import Exponents, Page, Picture, Range, Section, StackedBar, Stacks
from ascendsim.report.studies.answer import Answered, Compared, listed
from ascendsim.report.studies.precision_words import (
    definitions,
    error_range,
    error_text,
    math_numbers,
    mode_words,
    precision_sentence,
    reasons,
)
from ascendsim.studies.modes.choice import ModeSummary, PrecisionStudy
from ascendsim.studies.modes.records import CaseErrors, FormatShare, GradientError
from ascendsim.studies.table import Table, form, microseconds, numbers, percent, us, words


def precision_compared(studies: Sequence[PrecisionStudy]) -> Compared:
    """Compare products in one sentence: the answer on each, the fastest first."""
    answers = [(study.best, study) for study in studies]
    timed = [(best.time_us, study.variant, best) for best, study in answers if best is not None]
    found = [
        f"on {variant} {mode_words(best)}, {microseconds(time_us)} us, "
        f"error {error_range(best.least, best.most)}"
        for time_us, variant, best in sorted(timed, key=lambda row: row[0])
    ]
    found += [f"on {study.variant} none" for best, study in answers if best is None]
    answer = (
        f"{studies[0].question.title}, of the fastest modes that pass the most accurate on each product: "
        f"{'; '.join(found)}."
    )
    return Compared(precision_title(studies), answer)


MODES = (
    *(words("format"), words("cubeMathType"), words("in the cube"), numbers("loss scale"), us("us")),
    *(
        numbers("error"),
        numbers("limit", show=error_text, absent=""),
        numbers("lost", show=percent, absent=""),
    ),
    *(words("passes"), words("misses rules"), words("worst")),
)
PARTS = (
    *(words("format"), words("cubeMathType"), numbers("loss scale"), numbers("error")),
    *(
        numbers(name, show=error_text, absent="-")
        for name in ("storage", "cast", "output", "sums", "of terms")
    ),
    numbers("other bits", show=percent),
    words("cause"),
)
SMALL = (
    *(words("format"), words("cubeMathType"), numbers("loss scale"), words("gradient")),
    *(numbers(name, show=form(".2%")) for name in ("become 0", "subnormal", "beyond")),
    *(
        words("lost by decade, largest first"),
        numbers("worst channel"),
        numbers("its error", show=error_text),
    ),
)
SHOWN_DECADES = 3


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
        return (*first, "", "", "", None, None, "refused", "", "")
    e = row.worst.error
    several = len(study.cases) > 1
    return (
        *first,
        f"{row.loss_scale:g}",
        row.time_us,
        error_range(row.least, row.most),
        row.limit,
        row.lost,
        _verdict(study, row),
        " ".join(rule for rule, _ in row.failed),
        f"{e.name} of {row.worst.case}" if several else e.name,
    )


def _verdict(study: PrecisionStudy, row: ModeSummary) -> str:
    if not row.passes:
        return f"no: {' and '.join(row.missed)}"
    return "yes, best" if row == study.best else "yes, same time" if row in study.tied else "yes"


def _parts_row(row: ModeSummary) -> tuple[Any, ...]:
    assert row.worst is not None
    e = row.worst.error
    first = (row.dtype, math_numbers(row), f"{row.loss_scale:g}", error_range(row.least, row.most))
    cause = f"{e.causes[0][0]} {percent(e.causes[0][1])}" if e.causes else ""
    return (*first, *e.parts.values(), e.of_terms, row.different, cause)


def small_table(study: PrecisionStudy) -> Table:
    """Show what range takes of the gradient of each mode that loses the most, and its worst channel."""
    rows = []
    for row in study.rows:
        if row.emptiest is not None:
            e, count = row.emptiest.error, sum(one.count for one in row.emptiest.error.decades) or 1
            taken = (
                sum(getattr(one, name) for one in e.decades) / count
                for name in ("zero", "subnormal", "beyond")
            )
            first = row.dtype, math_numbers(row), f"{row.loss_scale:g}", e.name
            rows.append((*first, *taken, _by_decade(e), e.channel, e.of_channel))
    return Table(
        "Elements lost for want of range, in the gradient of each row that loses the most", SMALL, tuple(rows)
    )


def _by_decade(error: GradientError) -> str:
    """Print the shares lost of the largest decades that lose any; those below as one."""
    losing = [one for one in reversed(error.decades) if one.lost]
    shown, rest = losing[:SHOWN_DECADES], losing[SHOWN_DECADES:]
    said = [f"1e{one.exponent:+03d} {percent(one.lost / one.count)}" for one in shown]
    if rest:
        share = sum(one.lost for one in rest) / sum(one.count for one in rest)
        said.append(f"below {percent(share)}")
    return ", ".join(said)


DECADES = (
    *(words("of", "case"), words("gradient", "name"), words("format", "dtype")),
    *(words("cubeMathType", "cube_math_types"), words("model")),
    numbers("loss scale", "loss_scale", form("g")),
    numbers("decade", "exponent", lambda at: f"1e{at:+03d}"),
    *(numbers("elements", "count"), numbers("error", "error", error_text, absent="-")),
    *(numbers("become 0", "zero"), numbers("subnormal", "subnormal"), numbers("beyond", "beyond")),
)


def decade_table(study: PrecisionStudy) -> Table:
    """Show each gradient by decades of magnitude: of models that lose alike the first."""
    rows = []
    for case in study.cases:
        seen = set()
        for mode in case.modes:
            key = mode.dtype, mode.cube_math_types, mode.loss_scale
            if key in seen:
                continue
            seen.add(key)
            about = {
                "case": case.name,
                "dtype": mode.dtype,
                "loss_scale": mode.loss_scale,
                "model": mode.accumulation,
            }
            about["cube_math_types"] = "/".join(map(str, mode.cube_math_types))
            rows += [
                {**about, "name": error.name, **asdict(decade)}
                for error in mode.gradients
                for decade in error.decades
            ]
    return Table.of("Every gradient by decades of magnitude, under the first model", DECADES, rows)


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
    *(numbers("become 0", "underflow", form(".2%")), numbers("lost", "lost", form(".2%"))),
    *(numbers("worst channel", "channel"), numbers("its error", "of_channel", error_text)),
    words("cause", "causes"),
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
                del own["decades"], own["takers"]
                own |= {"lost": error.lost, "causes": error.causes[0][0] if error.causes else ""}
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
        "limits": asdict(study.question.limits),
        "margin": study.question.margin,
        "data": list(study.question.data),
        "modes": [_mode_record(study, row) for row in study.rows],
        "cases": [plain(asdict(case)) for case in study.cases],
        "definitions": definitions(study.question.limits),
    }


def _mode_record(study: PrecisionStudy, row: ModeSummary) -> dict[str, Any]:
    told = {"passes": row.passes, "tied": row in study.tied, "best": row == study.best, "lost": row.lost}
    return dict(plain(asdict(row))) | told


MOST_PICTURES = 12
MILLIONTHS = 1e6
HIFLOAT8 = (-22.0, -7.0, 15.0)  # its smallest value, the last binade with a fraction bit, its largest


def precision_page(study: PrecisionStudy) -> Page:
    """Return the page: reasons, modes, where errors come from, exponents, and every gradient."""
    sections = (
        Section("Why", (*reasons(study), *refusals(study))),
        Section("Modes", tables=(mode_table(study), parts_table(study), small_table(study))),
        Section("Where the error comes from", pictures=_parts(study)),
        Section("Exponents and ranges", pictures=_exponents(study), tables=(share_table(study, every=True),)),
        Section("Every gradient by decades of magnitude", tables=(decade_table(study),), collapsed=True),
        Section("Every gradient under every model", tables=(model_table(study),), collapsed=True),
    )
    facts = {"margin": f"{100 * study.question.margin:.1f} %", "data": "; ".join(study.question.data)}
    return Page(
        precision_title([study]),
        precision_sentence(study),
        sections,
        definitions(study.question.limits),
        facts,
    )


def precision_answered(study: PrecisionStudy) -> Answered:
    """Tell an answer: reasons before the tables, and what words mean below all."""
    told = (
        "error",
        "limit",
        "lost",
        "passes",
        "storage, cast, output, sums",
        "cause",
        "of terms",
        "misses rules",
        "us",
    )
    meanings = definitions(study.question.limits)
    return Answered(
        precision_page(study),
        precision_record(study),
        (mode_table(study), parts_table(study), small_table(study), share_table(study, every=False)),
        tuple(refusals(study)),
        tuple(reasons(study)),
        legend=tuple(f"{word}: {meanings[word]}" for word in told),
    )


def precision_title(studies: Sequence[PrecisionStudy]) -> str:
    """Return the title of a page of studies of the same cases."""
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
