"""Why a gradient fails an acceptance rule of the field: a sentence that tells cancellation from lost bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ascendsim.numerics.metrics import ErrorMetrics
from ascendsim.numerics.standards import Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Float64 = NDArray[np.float64]

OFFSET = 1e-7  # which MERE and MARE add to |g|


def reasons(
    errors: ErrorMetrics, result: Float64, reference: Float64, magnitudes: Float64, allowed: float
) -> tuple[tuple[str, str], ...]:
    """Return (rule, reason) for each rule that a gradient fails.

    result      the gradient in float64, with its reference and the sums of |a b| of its terms
    allowed     share of those sums that rounding operands and gradient to their formats may cost
    """
    failed = [verdict for verdict in errors.verdicts if not verdict.passed]
    if not failed:
        return ()
    if not errors.specials_match:
        return tuple(
            (one.standard, f"{errors.special_mismatches} values are NaN or Inf in one of them")
            for one in failed
        )
    return tuple(
        (one.standard, _reason(one, errors, result, reference, magnitudes, allowed)) for one in failed
    )


def _reason(
    verdict: Verdict,
    errors: ErrorMetrics,
    result: Float64,
    reference: Float64,
    magnitudes: Float64,
    allowed: float,
) -> str:
    error = np.abs(result - reference)
    measure = error if verdict.standard == "mixed" else error / (np.abs(reference) + OFFSET)
    at = int(np.nanargmax(measure))
    place = tuple(int(i) for i in np.unravel_index(at, measure.shape))
    size, off, terms = (float(values.reshape(-1)[at]) for values in (np.abs(reference), error, magnitudes))
    of_terms = off / terms if terms else 0.0
    if of_terms <= allowed:
        why = f"within the {allowed:.1e} that its formats' roundings cost: terms cancel, no more is lost"
    else:
        why = f"more than the {allowed:.1e} that its formats' roundings cost: range or sums lose it"
    shown = {
        "stat": f"MERE is {errors.mere:.1e}, MARE {errors.mare:.1e}",
        "st": f"the largest relative error is {errors.mare:.1e}",
        "mixed": f"the largest error is {errors.max_abs:.1e}",
    }[verdict.standard]
    return (
        f"it asks for {verdict.rule}; {shown}; at {place} |g| is {size:.1e}, its terms' magnitudes sum to "
        f"{terms:.1e}, the error {off:.1e} is {of_terms:.1e} of that sum, {why}"
    )
