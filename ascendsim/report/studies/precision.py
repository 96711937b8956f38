"""Which mode of the interface to take: the tables and the record of a study of precision."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from ascendsim.report.document import plain
from ascendsim.report.numbers import microseconds, percent
from ascendsim.report.studies.precision_words import (
    error_range,
    error_text,
    math_numbers,
    precision_sentence,
    reasons,
)
from ascendsim.report.tables import TextTable
from ascendsim.studies.modes.choice import ModeSummary
from ascendsim.studies.modes.records import Share
from ascendsim.studies.modes.study import PrecisionStudy

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


def mode_table(study: PrecisionStudy) -> TextTable:
    """Show every mode over all cases: its time, its error, and whether it passes."""
    headings = (
        *("format", "cubeMathType", "in the cube", "loss scale", "us", "error"),
        *("passes limit", "misses rules", "worst"),
    )
    left = frozenset({0, 1, 2, 6, 7, 8})
    return TextTable("Modes", headings, left, tuple(_mode_row(study, row) for row in _told(study)))


def parts_table(study: PrecisionStudy) -> TextTable:
    """Show what the error of every mode is made of, for the gradient whose error is the worst."""
    headings = (
        *("format", "cubeMathType", "loss scale", "error", "storage", "cast", "output", "sums", "of terms"),
        "other bits",
    )
    rows = tuple(_parts_row(row) for row in study.rows if row.worst is not None)
    return TextTable("What the errors are made of", headings, frozenset({0, 1}), rows)


def _told(study: PrecisionStudy) -> Iterator[ModeSummary]:
    """Yield the modes, what is refused once and not under every loss scale."""
    refused = set()
    for row in study.rows:
        key = row.dtype, row.cube_math_types
        if not row.refused or key not in refused:
            yield row
        if row.refused:
            refused.add(key)


def _mode_row(study: PrecisionStudy, row: ModeSummary) -> tuple[str, ...]:
    first = (row.dtype, math_numbers(row), " or ".join(row.compute_dtypes))
    if row.worst is None:
        return (*first, *("",) * 3, "refused", "", "")
    e = row.worst.error
    several = len(study.cases) > 1
    return (
        *first,
        f"{row.loss_scale:g}",
        microseconds(row.time_us),
        error_range(row.least, row.most),
        "yes, cheapest" if row == study.cheapest else "yes" if row.passes(study.limit) else "no",
        " ".join(rule for rule, _ in row.failed),
        f"{e.name} of {row.worst.case}" if several else e.name,
    )


def _parts_row(row: ModeSummary) -> tuple[str, ...]:
    assert row.worst is not None
    e = row.worst.error
    parts = (error_text(one) for one in (e.storage, e.cast, e.output, e.accumulation, e.of_terms))
    error = error_range(row.least, row.most)
    return (row.dtype, math_numbers(row), f"{row.loss_scale:g}", error, *parts, percent(row.different))


def refusals(study: PrecisionStudy) -> Iterator[str]:
    """Yield why modes are refused: each reason once."""
    told = dict[str, ModeSummary]()
    for row in study.rows:
        if row.refused:
            told.setdefault(row.refused, row)
    for reason, row in told.items():
        yield f"{row.dtype} with cubeMathType {math_numbers(row)} is refused: {reason}"


def share_table(study: PrecisionStudy, *, every: bool) -> TextTable:
    """Show what formats make of the tensors; of grad_output alone, in the worst case, unless `every`."""
    rows = []
    for case, share in _shares(study, every=every):
        below = "" if share.subnormal is None else f"{share.subnormal:.2%}"
        scale = f"{share.loss_scale:g}" if share.tensor == "grad_output" else ""
        lost = (below, f"{share.zero:.2%}", f"{share.overflow:.2%}")
        rows.append((case, share.tensor, share.format, scale, *lost))
    headings = ("of", "tensor", "format", "loss scale", "subnormal", "become 0", "overflow")
    title = "What formats make of the non-zero values" + ("" if every else ", in the worst case of each row")
    return TextTable(title, headings, frozenset({0, 1, 2}), tuple(rows))


def _shares(study: PrecisionStudy, *, every: bool) -> list[tuple[str, Share]]:
    pairs = [(case.name, share) for case in study.cases for share in case.shares]
    if every:
        return pairs
    worst: dict[tuple[str, float], tuple[str, Share]] = {}
    for name, share in pairs:
        if share.tensor == "grad_output":
            key = share.format, share.loss_scale
            known = worst.get(key)
            if known is None or _lost(share) > _lost(known[1]):
                worst[key] = name, share
    return list(worst.values())


def _lost(share: Share) -> float:
    return share.overflow + max(share.zero, share.subnormal or 0.0)


def model_table(study: PrecisionStudy) -> TextTable:
    """Show the error of every gradient of every case under every model."""
    rows = [
        (
            *(case.name, error.name, mode.dtype, "/".join(map(str, mode.cube_math_types)), mode.accumulation),
            *(f"{mode.loss_scale:g}", error_text(error.total), error_text(error.accumulation)),
            *(error_text(error.of_terms), f"{error.different:.1%}", f"{error.underflow:.2%}"),
            " ".join(rule for rule, _ in error.failed),
        )
        for case in study.cases
        for mode in case.modes
        for error in mode.gradients
    ]
    headings = (
        *("of", "gradient", "format", "cubeMathType", "model", "loss scale", "error", "sums", "of terms"),
        *("other bits", "underflow", "misses rules"),
    )
    return TextTable(
        "Every gradient under every model", headings, frozenset({0, 1, 2, 3, 4, 11}), tuple(rows)
    )


def precision_rows(study: PrecisionStudy) -> list[dict[str, Any]]:
    """Return a row of plain values for each gradient of each case under each mode, for a table in a file."""
    rows = []
    for case in study.cases:
        for mode in case.modes:
            of_mode = {key: value for key, value in asdict(mode).items() if key != "gradients"}
            of_mode["cube_math_types"] = "/".join(map(str, mode.cube_math_types))
            for error in mode.gradients:
                own = asdict(error) | {"failed": " ".join(rule for rule, _ in error.failed)}
                rows.append(
                    {"product": study.variant, "case": case.name, "count": case.count, **of_mode, **own}
                )
    return rows


def precision_record(study: PrecisionStudy) -> dict[str, Any]:
    """Return a study as plain values for JSON."""
    return {
        "answer": precision_sentence(study),
        "reasons": list(reasons(study)),
        "variant": study.variant,
        "limit": study.limit,
        "margin": study.margin,
        "data": list(study.data),
        "modes": [plain(asdict(row)) | {"passes": row.passes(study.limit)} for row in study.rows],
        "cases": [plain(asdict(case)) for case in study.cases],
        "definitions": DEFINITIONS,
    }
