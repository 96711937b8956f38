"""One case under every mode, model and loss scale."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ascendsim.errors import AscendSimError
from ascendsim.numerics.formats.casts import decode, encode
from ascendsim.numerics.formats.dtypes import dtype as lookup_dtype
from ascendsim.numerics.metrics import error_metrics
from ascendsim.ops.convolution_backward import convolution_backward, estimate
from ascendsim.ops.lowering.call import GRADIENTS, INPUTS
from ascendsim.profile import Profile
from ascendsim.rules import load_rules
from ascendsim.studies.arithmetic.formats import format_of, quantise
from ascendsim.studies.modes.exponents import histogram, share
from ascendsim.studies.modes.failing import reasons
from ascendsim.studies.modes.parts import Reading, Steps, gradients_of, magnitudes_of, norm, read_by
from ascendsim.studies.modes.records import CaseErrors, GradientError, ModeError, Share

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.studies.modes.cases import Case, Tensors

    Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class Axes:
    """What is varied, on one product.

    dtypes           in which tensors are stored
    cube_math_types  of the interface
    models           accumulation models; None: the product's default. The first is what others are held to
    loss_scales      by which grad_output is multiplied before it is stored
    """

    profile: Profile
    dtypes: Sequence[str]
    cube_math_types: Sequence[int] = (0, 1, 2, 3)
    models: Sequence[str | None] = (None,)
    loss_scales: Sequence[float] = (1.0,)
    rules: str = "documented"


@dataclass(frozen=True)
class _Mode:
    """A format, the cubeMathTypes that have the cube read the same of it, and its time."""

    dtype: str
    cube_math_types: tuple[int, ...]
    compute: str
    time_us: float
    refused: str = ""


def measure(axes: Axes, case: Case) -> CaseErrors:
    """Hold the gradients of a case against float64 under every mode, model and loss scale.

    Errors   a call that the interface refuses is a mode with its reason
    """
    tensors = case.load()
    truth = gradients_of(case.problem, tensors, case.mask)
    found = list[ModeError]()
    for name in axes.dtypes:
        modes = _modes(axes, case, name)
        for scale in axes.loss_scales:
            found += _scaled(axes, case, modes, tensors, truth, scale)
    # The cube's formats as well: on the way into it a float32 tensor may lose its range, which HF32 has.
    read = [mode.compute_dtype for mode in found if mode.compute_dtype[:4] not in ("", "hf32")]
    shares = _shares(tensors, tuple(dict.fromkeys((*axes.dtypes, *read))), axes.loss_scales)
    histograms = tuple(histogram(name, tensors[name]) for name in INPUTS)
    return CaseErrors(case.name, case.count, tuple(found), shares, histograms)


def _shares(tensors: Tensors, formats: Sequence[str], scales: Sequence[float]) -> tuple[Share, ...]:
    """Return what formats make of the tensors, of grad_output under every loss scale."""
    found = list[Share]()
    for name in formats:
        found += [share(tensor, tensors[tensor], name) for tensor in ("input", "weight")]
        found += [share("grad_output", tensors["grad_output"], name, scale) for scale in scales]
    return tuple(found)


def _modes(axes: Axes, case: Case, name: str) -> list[_Mode]:
    """Return the modes of a format, those alike as one."""
    found: dict[tuple[str, str], _Mode] = {}
    for number in axes.cube_math_types:
        try:
            result = estimate(
                case.problem, name, number, output_mask=case.mask, product=axes.profile, rules=axes.rules
            )
            compute, time_us, refused = result.compute_dtype, result.time_us, ""
        except AscendSimError as error:
            compute, time_us, refused = "", 0.0, str(error)
        same = found.get((compute, refused))
        numbers = (*(same.cube_math_types if same else ()), number)
        found[compute, refused] = _Mode(name, numbers, compute, time_us, refused)
    return list(found.values())


def _scaled(
    axes: Axes,
    case: Case,
    modes: Sequence[_Mode],
    tensors: Tensors,
    truth: Mapping[str, Float64],
    scale: float,
) -> Iterator[ModeError]:
    """Yield the errors under one loss scale, mode by mode."""
    as_scaled = {**tensors, "grad_output": tensors["grad_output"] * scale}
    for mode in modes:
        if mode.refused:
            yield ModeError(mode.dtype, mode.cube_math_types, "", "", scale, 0.0, (), mode.refused)
            continue
        # A product of carriers that overflow is Inf here as there.
        with np.errstate(over="ignore", invalid="ignore"):
            stored = {name: quantise(as_scaled[name], format_of(mode.dtype)) for name in INPUTS}
            yield from _modelled(axes, case, mode, stored, {n: g * scale for n, g in truth.items()}, scale)


def _modelled(
    axes: Axes, case: Case, mode: _Mode, stored: Mapping[str, Any], truth: Mapping[str, Float64], scale: float
) -> Iterator[ModeError]:
    """Yield the errors of one mode, model by model."""
    problem, mask = case.problem, case.mask
    reading = Reading(problem, axes.profile, mode.dtype, mode.compute, load_rules(axes.rules).direct_outputs)
    read = read_by(reading, stored, mask)
    steps = Steps(
        truth,
        gradients_of(problem, stored, mask),
        read,
        {name: reading.leaving(values, name) for name, values in read.items()},
        magnitudes_of(problem, stored, mask),
    )
    first: Mapping[str, Any] | None = None
    for model in axes.models:
        result = _backward(axes, case, mode, stored, model)
        made = {name: getattr(result, name) for name in GRADIENTS if getattr(result, name) is not None}
        first = made if first is None else first
        one = partial(_gradient_error, reading=reading, steps=steps)
        errors = tuple(one(name, values, first[name]) for name, values in made.items())
        yield ModeError(
            mode.dtype,
            mode.cube_math_types,
            mode.compute,
            result.accumulation,
            scale,
            mode.time_us,
            errors,
        )


def _backward(axes: Axes, case: Case, mode: _Mode, stored: Mapping[str, Any], model: str | None) -> Any:
    p = case.problem
    fmt = lookup_dtype(mode.dtype)
    grad_output, input, weight = (encode(stored[name], fmt) for name in INPUTS)
    return convolution_backward(
        grad_output,
        input,
        weight,
        [p.grad_output[1]] if case.mask[2] else None,
        p.stride,
        p.padding,
        p.dilation,
        p.transposed,
        p.output_padding,
        p.groups,
        case.mask,
        mode.cube_math_types[0],
        timing=False,
        product=axes.profile,
        accumulation=model,
        rules=axes.rules,
    )


def _gradient_error(name: str, values: Any, first: Any, *, reading: Reading, steps: Steps) -> GradientError:
    """Measure one gradient; steps and result are all times the loss scale, which changes no ratio."""
    fmt = lookup_dtype(reading.dtype)
    carrier = decode(values, fmt)
    result = carrier.astype(np.float64)
    truth, stored, read, rounded = (s[name] for s in (steps.truth, steps.stored, steps.read, steps.rounded))
    sizes, whole = steps.magnitudes[name], norm(truth) or 1.0
    in_hf32 = reading.compute.startswith("hf32") and name != "grad_bias"
    judged = reading.compute if in_hf32 else reading.dtype
    of_terms = np.abs(result - stored) / np.where(sizes == 0, 1.0, sizes)
    bits = carrier.view(np.uint32) != decode(first, fmt).view(np.uint32)
    finite = np.isfinite(truth)
    return GradientError(
        name,
        norm(result - truth) / whole,
        norm(stored - truth) / whole,
        norm(read - stored) / whole,
        norm(rounded - read) / whole,
        norm(result - rounded) / whole,
        float(of_terms.max(initial=0.0)),
        float(np.mean((result == 0) & (truth != 0))),
        float(np.mean(finite & ~np.isfinite(result))),
        float(np.mean(bits)),
        reasons(error_metrics(carrier, stored, judged), result, stored, sizes, _allowed(reading, name)),
    )


def _allowed(reading: Reading, gradient: str) -> float:
    """Return what roundings of the formats alone may cost, of the sum of the magnitudes of the terms.

    Both operands are rounded where the cube reads another format than is stored; then the gradient is.
    """
    cast = gradient != "grad_bias" and reading.compute != reading.dtype
    formats = (*(reading.compute,) * (2 * cast), *reading.formats_out(gradient))
    return sum(2.0 ** -(lookup_dtype(name).mantissa_bits + 1) for name in formats)
