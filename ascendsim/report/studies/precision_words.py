"""What is said of a study of precision: the answer, its reasons, and what its words mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite

from ascendsim.numerics.dtypes import dtype
from ascendsim.studies.modes.choice import ModeSummary, PrecisionStudy, Worst
from ascendsim.studies.modes.records import NORM, FormatShare, PassLimits
from ascendsim.studies.table import microseconds

QUOTED = 0.25  # of what the tensor that decides most takes: those that take less are not named beside it


def mode_words(row: ModeSummary) -> str:
    """Name a mode."""
    cube = "" if row.compute_dtypes == (row.dtype,) else f" ({' or '.join(row.compute_dtypes)} in the cube)"
    scale = "" if row.loss_scale == 1 else f" and a loss scale of {row.loss_scale:g}"
    return f"{row.dtype} with cubeMathType {math_numbers(row)}{cube}{scale}"


def precision_sentence(study: PrecisionStudy) -> str:
    """Answer: the most accurate of the fastest modes that pass, and those as fast; or the nearest."""
    where = f"On {study.variant}, {study.question.title}: "
    models = len(study.question.axes.models)
    under = f" under each of {models} accumulation models" if models > 1 else ""
    best, near = study.best, study.nearest
    if best is not None:
        return where + _answer(study, best, under)
    if near is not None:
        by = " and ".join(near.missed)
        nearest = f"the nearest is {mode_words(near)}, {_judged(near)}: it fails by {by}."
        return f"{where}no mode passes{under}; {nearest}"
    return f"{where}no mode passes{under}: the interface refuses them, or they overflow."


def _answer(study: PrecisionStudy, best: ModeSummary, under: str) -> str:
    """Name the best mode, and those that take the same time."""
    name, others = mode_words(best), study.tied[1:]
    if not others:
        return f"the fastest mode that passes{under} is {name}: {_cost(best)}."
    within = f"the same time within the margin of {100 * study.question.margin:.1f} %"
    told = " and ".join(f"{mode_words(row)} ({_cost(row)})" for row in others)
    if len(others) == 1:
        return (
            f"{told} and {name} ({_cost(best)}) pass{under} and take {within}; {name} is the more accurate."
        )
    return (
        f"{len(others) + 1} modes pass{under} and take {within}; the most accurate of them is {name} "
        f"({_cost(best)}), the others are {told}."
    )


def _cost(row: ModeSummary) -> str:
    return f"{microseconds(row.time_us)} us, error {error_range(row.least, row.most)}"


def _judged(row: ModeSummary) -> str:
    error = error_range(row.least, row.most) if row.most < float("inf") else "without end"
    return f"error {error} of {error_text(row.limit)} allowed"


def definitions(limits: PassLimits) -> dict[str, str]:
    """Return the definitions of words in a study with these limits."""
    own = (
        f"{limits.factor:g} times (--factor) what rounding the float64 gradient once to the mode's coarsest "
        "format costs, range apart; at least 2^-13, which the operator test kit asks of float32, since sums "
        "are float32. --limit sets one number for all modes."
    )
    limit = own if limits.absolute is None else f"{limits.absolute:.1e} for all modes (--limit)."
    return DEFINITIONS | {"limit": f"Of the error of the worst gradient: {limit}"}


def limit_words(limits: PassLimits) -> str:
    """Say with what a mode passes."""
    own = (
        f"{limits.factor:g} times the error of rounding the float64 gradient once to the mode's coarsest "
        f"format, {limits.sums:.1e} at least"
    )
    error = own if limits.absolute is None else f"{limits.absolute:.1e}"
    return (
        f"A mode passes by its norm with an error within {error}; and by lost elements, where range takes "
        f"{limits.lost:.1%} of a gradient at most."
    )


def reasons(study: PrecisionStudy) -> Iterator[str]:
    """Yield sentences: which modes are timed and pass, why others fail, why rules of the field are missed."""
    if study.question.about:
        yield study.question.about
    yield limit_words(study.question.limits)
    for bad, good in study.failing():
        yield _failing(study, bad, good)
    told = set()
    for row in study.rows:
        for rule, reason in row.failed:
            if rule not in told:
                told.add(rule)
                yield f"The rule {rule} is missed, such as by {mode_words(row)}: {reason}."


def _failing(study: PrecisionStudy, bad: ModeSummary, good: ModeSummary | None) -> str:
    """Say by what a mode fails, where, from which cause, and which loss scale mends it."""
    by_norm = NORM in bad.missed
    worst = bad.worst if by_norm else bad.emptiest
    assert worst is not None
    lost = bad.lost
    where = f"{worst.error.name} of {worst.case}"
    found = f"{_judged(bad)} in {where}, most of it {_largest(bad)}" if by_norm else f"in {where}"
    taken = f", {lost:.2%} of the elements of {bad.emptiest.error.name} lost" if lost and bad.emptiest else ""
    said = (
        f"{mode_words(bad)} fails by {' and '.join(bad.missed)} ({found}{taken}): {_why(study, bad, worst)}"
    )
    if good is None:
        return f"{said}."
    scale = f"with a loss scale of {good.loss_scale:g}" if good.loss_scale != 1 else "without a loss scale"
    after = _share(study, good, worst, "grad_output") if "grad_output" in _deciding(bad, worst)[1] else None
    known = after is not None and after.subnormal is not None
    mended = f" {after.subnormal:.2%} of grad_output are subnormal, and" if after and known else ""
    return f"{said}; {scale} it passes:{mended} {good.lost:.2%} of a gradient's elements are lost."


def _share(study: PrecisionStudy, row: ModeSummary, worst: Worst, tensor: str) -> FormatShare | None:
    """Return the share of elements that a format changes in an operand; None for the gradient itself."""
    read = row.compute_dtypes[0]
    # HF32 has the range of the float32 that it is read from; grad_bias is summed as it is stored.
    stored = read.startswith("hf32") or worst.error.name == "grad_bias"
    scale = row.loss_scale if tensor == "grad_output" else 1.0
    return study.share(worst.case, tensor, row.dtype if stored else read, scale)


def _deciding(bad: ModeSummary, worst: Worst) -> tuple[str, list[str]]:
    """Return the cause of a gradient's failure, and the tensors that decide it where range does."""
    takers, causes = worst.error.takers, worst.error.causes
    # By lost elements alone: their error is small beside the norm, whatever makes the most of that.
    cause = causes[0][0] if causes and NORM in bad.missed else takers[0][0] if takers else "underflow"
    own = {tensor: part for one, tensor, part in takers if one == cause}
    return cause, [tensor for tensor, part in own.items() if part >= QUOTED * max(own.values())]


def _why(study: PrecisionStudy, bad: ModeSummary, worst: Worst) -> str:
    """Name the cause of a gradient's error, and what of it the tensors that decide show."""
    cause, tensors = _deciding(bad, worst)
    error = worst.error
    told = {
        "cancellation": "its terms cancel, and their roundings are large beside what is left",
        "accumulation": "the sums lose more than one rounding of their terms",
        "rounding": "formats' fraction bits",
    }
    if cause in told:
        return f"{cause}, {told[cause]}"
    count = sum(one.count for one in error.decades) or 1
    beyond = sum(one.beyond for one in error.decades) / count
    below = sum(one.zero + one.subnormal for one in error.decades) / count
    shares = [share for name in tensors if (share := _share(study, bad, worst, name)) is not None]
    said = [_taken(share, cause) for share in shares]
    by_itself = error.name in tensors or not shares
    if cause == "overflow":
        own = f": sums of its terms lie beyond {_top(bad):g}" * by_itself
        said.append(f"{error.overflow:.2%} of {error.name} are Inf or NaN{own}")
    elif by_itself and cause == "saturation":
        said.append(f"{beyond:.2%} of {error.name} stay at the largest value, {_top(bad):g}")
    elif by_itself:
        said.append(f"{below:.2%} of {error.name} are 0 or lose bits below the smallest normal value")
    return f"{cause}, {' and '.join(said)}"


def _taken(share: FormatShare, cause: str) -> str:
    """Say which share of an operand a format loses."""
    if cause == "overflow":
        return f"{share.overflow:.2%} of {share.tensor} overflow in {share.format}"
    if cause == "saturation":
        top = dtype(share.format).max_finite
        return f"{share.overflow:.2%} of {share.tensor} stay at the largest value of {share.format}, {top:g}"
    if share.subnormal is None:
        return f"{share.zero:.2%} of the non-zero {share.tensor} become 0"
    return (
        f"{share.subnormal:.2%} of the non-zero {share.tensor} are subnormal in {share.format}: "
        f"the smaller, the fewer bits ({share.zero:.2%} become 0)"
    )


def _top(row: ModeSummary) -> float:
    """Return the largest value of a mode's formats."""
    return min(dtype(name).max_finite for name in (row.dtype, *row.compute_dtypes))


def _largest(row: ModeSummary) -> str:
    """Name the largest part of the largest error; of those without end the first, which the others follow."""
    assert row.worst is not None
    parts = row.worst.error.parts
    return max(parts, key=lambda name: parts[name] if isfinite(parts[name]) else float("inf"))


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
    "limit": "",  # `definitions` says which
    "lost": "Largest share of a gradient's elements that range takes: that are off by more than 4 roundings, "
    "half of it or more since they or operands are 0 or subnormal; and that are Inf, NaN or at the largest "
    "value where the exact one lies beyond.",
    "passes": "Whether every gradient of every case is within its limit (norm) and loses few enough "
    "elements, under every accumulation model. The most accurate of those as fast as the fastest, within the "
    "margin, is the best.",
    "misses rules": "Acceptance rules of the field that some gradient misses, held against float64 of the "
    "stored tensors, times the loss scale (docs/arithmetic.md has them). They judge elements one by one and "
    "decide nothing here: a gradient within the limit misses them where terms cancel; the reasons above tell "
    "that from lost bits.",
    "cause": "What most of the squared error comes of: overflow (Inf), saturation (at the largest value), "
    "underflow (0 or subnormal), cancellation (roundings of terms that cancel), accumulation (the sums), "
    "rounding (fraction bits). Element by element; each has the first that holds.",
    "decade": "10^e <= |g| < 10^(e + 1) of the float64 gradient; error: of the elements in it, relative to "
    "their norm, Inf left out.",
    "worst channel": "The channel with the largest error relative to its own norm: of grad_input its "
    "channels, of the others the first axis.",
    "us": "Microseconds of all calls as `ascendsim run` estimates them, launches included, L2 step.",
    "loss scale": "grad_output is multiplied by it before it is stored, gradients are divided by it.",
    "subnormal": "Share of the values that are not zero below the format's smallest normal value, where "
    "bits are lost one by one; those that become zero are among them.",
}
