"""Which mode of the interface to take, in words: a sentence, and reasons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ascendsim.report.numbers import microseconds
from ascendsim.studies.modes.choice import ModeSummary
from ascendsim.studies.modes.records import Share
from ascendsim.studies.modes.study import PrecisionStudy


def mode_words(row: ModeSummary) -> str:
    """Name a mode."""
    cube = "" if row.compute_dtypes == (row.dtype,) else f" ({' or '.join(row.compute_dtypes)} in the cube)"
    scale = "" if row.loss_scale == 1 else f" and a loss scale of {row.loss_scale:g}"
    return f"{row.dtype} with cubeMathType {math_numbers(row)}{cube}{scale}"


def precision_sentence(study: PrecisionStudy) -> str:
    """Answer in one sentence: the cheapest mode that passes, or the nearest one."""
    where = f"On {study.variant}, {study.title}: "
    models = f" under each of {study.models} accumulation models" if study.models > 1 else ""
    within = f"within {study.limit:.1e} of float64 in every gradient{models}"
    best, near = study.cheapest, study.nearest
    if best is not None:
        error = error_range(best.least, best.most)
        cost = f"{microseconds(best.time_us)} us, error {error}"
        return f"{where}the cheapest mode {within} is {mode_words(best)}: {cost}{_more_exact(study)}."
    if near is not None:
        error = error_range(near.least, near.most)
        return f"{where}no mode is {within}; the nearest is {mode_words(near)}, error {error}."
    return f"{where}no mode is {within}: the interface refuses them, or they overflow."


def precision_compared(studies: Sequence[PrecisionStudy]) -> str:
    """Compare products in one sentence: the cheapest mode that passes on each, the fastest first."""
    passing = [(study.cheapest, study) for study in studies]
    timed = [(best.time_us, study.variant, best) for best, study in passing if best is not None]
    found = [
        f"on {variant} {mode_words(best)}, {microseconds(time_us)} us, "
        f"error {error_range(best.least, best.most)}"
        for time_us, variant, best in sorted(timed, key=lambda row: row[0])
    ]
    found += [f"on {study.variant} none" for best, study in passing if best is None]
    within = f"within {studies[0].limit:.1e} of float64"
    return f"{studies[0].title}, the cheapest mode {within} on each product: {'; '.join(found)}."


def _more_exact(study: PrecisionStudy) -> str:
    """Name the modes that are more exact, and as fast as far as the model can tell."""
    named = [
        f"{mode_words(row)} ({microseconds(row.time_us)} us, error {error_range(row.least, row.most)})"
        for row in study.more_exact
    ]
    if not named:
        return ""
    return (
        f"; more exact, and in time not distinguishable from it, {'is' if len(named) == 1 else 'are'} "
        f"{' and '.join(named)}: {100 * study.margin:.1f} % is the model's own error"
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


def _subnormal(before: Share, after: Share) -> str:
    if before.subnormal is None or after.subnormal is None:
        return f"{before.zero:.2%} of the non-zero grad_output become 0 in {before.format}."
    scale = f"with a loss scale of {after.loss_scale:g}" if after.loss_scale != 1 else "without a loss scale"
    return (
        f"{before.subnormal:.2%} of the non-zero grad_output are subnormal in {before.format}: the smaller, "
        f"the fewer bits ({before.zero:.2%} become 0); {scale} {after.subnormal:.2%} are."
    )


def _overflowing(bad: ModeSummary, share: Share) -> str:
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
