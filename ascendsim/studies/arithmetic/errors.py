"""How far gradients are from float64 under several arithmetics, and which part of one makes the error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.metrics import ErrorMetrics, error_metrics
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.reference.float64 import gradients_float64
from ascendsim.studies.arithmetic.formats import quantise
from ascendsim.studies.arithmetic.math import (
    GRADIENTS,
    Math,
    accumulators,
    checked,
    operands_of,
    require_gradients,
    require_maths,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Float64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Judged:
    """One gradient under one arithmetic.

    errors      against float64 of the tensors as they were given, in steps of float32
    different   share of elements whose float32 bits, in the output format, differ from the first arithmetic's
    """

    math: str
    gradient: str
    errors: ErrorMetrics
    different: float


@dataclass(frozen=True, slots=True)
class Attribution:
    """Where the error of one gradient comes from: relative L2 norms against float64.

    total          of the result, against float64 of the tensors as they were given
    operands       of what rounding the operands alone does: float64 of the rounded ones
    accumulation   of what the sums add to that
    output         of what the output format adds to that
    of_terms       the largest error of accumulation over the sum of the magnitudes of its terms
    """

    math: str
    gradient: str
    total: float
    operands: float
    accumulation: float
    output: float
    of_terms: float


@default_arithmetic
def spread(
    problem: ConvProblem,
    tensors: Mapping[str, Any],
    maths: Sequence[Math],
    gradients: Sequence[str] = GRADIENTS,
) -> tuple[Judged, ...]:
    """Compute gradients under several arithmetics, and say how far each is from float64 and from the first.

    tensors    grad_output, input and weight, of any floating type; each arithmetic rounds them itself
    Raises     ShapeError for tensors that do not fit the problem, ConfigError for another gradient
    """
    require_gradients(gradients)
    require_maths(maths)
    given, judged = checked(problem, tensors), []
    for gradient in gradients:
        exact = _float64(problem, given, gradient)
        sizes = _float64(problem, {name: np.abs(values) for name, values in given.items()}, gradient)
        first = None
        for math in maths:
            sums = accumulators(problem, gradient, operands_of(problem, given, math, gradient), math)
            made = _written(sums, math)
            first = made if first is None else first
            same = (made.view(np.uint32) == first.view(np.uint32)) | (np.isnan(made) & np.isnan(first))
            errors = error_metrics(made, exact, "float32", sizes)
            judged.append(Judged(str(math), gradient, errors, 1 - float(same.mean())))
    return tuple(judged)


@default_arithmetic
def attribute(
    problem: ConvProblem, tensors: Mapping[str, Any], math: Math, gradients: Sequence[str] = GRADIENTS
) -> tuple[Attribution, ...]:
    """Part the error of each gradient into what operands, accumulation and output format make.

    The three parts add up to the error, element by element; their norms need not.

    Raises   as `spread`
    """
    require_gradients(gradients)
    require_maths((math,))
    given, parts = checked(problem, tensors), []
    for gradient in gradients:
        exact = _float64(problem, given, gradient)
        rounded = operands_of(problem, given, math, gradient)
        names = ("grad_output", "weight" if gradient == "grad_input" else "input")
        as_read = {**given, **{name: x.astype(np.float64) for name, x in zip(names, rounded, strict=True)}}
        exact_of_rounded = _float64(problem, as_read, gradient)
        sums = accumulators(problem, gradient, rounded, math).astype(np.float64)
        made = _written(sums.astype(np.float32), math).astype(np.float64)
        sizes = _float64(problem, {name: np.abs(values) for name, values in as_read.items()}, gradient)
        steps = (made - exact, exact_of_rounded - exact, sums - exact_of_rounded, made - sums)
        norm = float(np.linalg.norm(exact)) or 1.0
        worst = np.abs(sums - exact_of_rounded) / np.where(sizes == 0, 1.0, sizes)
        total, by_operands, by_sums, by_output = (float(np.linalg.norm(step)) / norm for step in steps)
        found = Attribution(
            str(math), gradient, total, by_operands, by_sums, by_output, float(worst.max(initial=0.0))
        )
        parts.append(found)
    return tuple(parts)


def _float64(problem: ConvProblem, tensors: Mapping[str, Float64], gradient: str) -> Float64:
    """Return a gradient in float64."""
    mask = (gradient == "grad_input", gradient == "grad_weight", False)
    made = gradients_float64(problem, tensors["grad_output"], tensors["input"], tensors["weight"], mask)
    found: Float64 = made[GRADIENTS.index(gradient)]
    return found


def _written(sums: NDArray[np.float32], math: Math) -> NDArray[np.float32]:
    # Along the last axis: a shared scale of an output is one that its reader would find.
    return quantise(sums.astype(np.float64), math.output_format, sums.ndim - 1, math.rounding, math.seed + 1)
