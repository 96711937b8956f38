"""One case under every mode, model and loss scale."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ascendsim.errors import AscendSimError, ConfigError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.formats.casts import decode, encode, round_to
from ascendsim.numerics.formats.dtypes import dtype
from ascendsim.numerics.formats.dtypes import dtype as lookup_dtype
from ascendsim.numerics.metric_chunks import Verdict
from ascendsim.numerics.metrics import ErrorMetrics, error_metrics
from ascendsim.ops.convolution_backward import convolution_backward, estimate
from ascendsim.ops.lowering.call import GRADIENTS, INPUTS, leaves_in, vector_overflow
from ascendsim.ops.problems.convolution import ConvProblem, as_multiplied
from ascendsim.ops.reference.float64 import gradients_float64
from ascendsim.profile import Profile
from ascendsim.rules import load_rules
from ascendsim.studies.arithmetic.formats import format_of, quantise
from ascendsim.studies.engine.measure import PointAnswer
from ascendsim.studies.engine.point import code_version
from ascendsim.studies.engine.run import Budget, Engine
from ascendsim.studies.modes.choice import Axes, ConvCase, PrecisionQuestion, PrecisionStudy
from ascendsim.studies.modes.records import CaseErrors, FormatShare, GradientError, Histogram, ModeError
from ascendsim.studies.sweep import studied

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.studies.modes.choice import Tensors

    Float64 = NDArray[np.float64]
    Floats = NDArray[np.float32]
    Mask = tuple[bool, bool, bool]


def histogram(tensor: str, values: Float64) -> Histogram:
    """Count the values of a tensor by binade."""
    finite = np.isfinite(values)
    sizes = np.abs(values[finite & (values != 0)])
    special, zeros = int((~finite).sum()), int((values == 0).sum())
    if not sizes.size:
        return Histogram(tensor, 0, (), zeros, special)
    # frexp gives 0.5 <= m < 1: the binade of |x| begins one exponent lower.
    exponents = np.frexp(sizes)[1] - 1
    first = int(exponents.min())
    return Histogram(tensor, first, tuple(np.bincount(exponents - first).tolist()), zeros, special)


def share(tensor: str, values: Float64, name: str, loss_scale: float = 1.0) -> FormatShare:
    """Say what a format makes of the values of a tensor times a loss scale, rounded once."""
    fmt = dtype(name)
    finite = values[np.isfinite(values) & (values != 0)] * loss_scale
    if not finite.size:
        return FormatShare(tensor, name, loss_scale, None if fmt.tapered else 0.0, 0.0, 0.0)
    with np.errstate(over="ignore"):
        stored = quantise(finite, format_of(name))
    below = None if fmt.tapered else float(np.mean(np.abs(finite) < 2.0**fmt.min_exponent))
    lost, beyond = np.mean(stored == 0), np.mean(~np.isfinite(stored))
    return FormatShare(tensor, name, loss_scale, below, float(lost), float(beyond))


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


@dataclass(frozen=True)
class GradientStages:
    """The gradients between truth and result, by name, all times the loss scale; and sums of |a b|."""

    truth: Mapping[str, Float64]
    stored: Mapping[str, Float64]
    read: Mapping[str, Float64]
    rounded: Mapping[str, Float64]
    magnitudes: Mapping[str, Float64]


@dataclass(frozen=True)
class Reading:
    """The cube's reading of stored tensors, and the format of outgoing gradients.

    dtype    in which all tensors of the call are stored
    compute  what the cube reads, as the result of a call names it
    direct   gradients leave in their own format (a choice of the rule set)
    """

    problem: ConvProblem
    profile: Profile
    dtype: str
    compute: str
    direct: bool

    def operands(self, stored: Mapping[str, Floats], gradient: str) -> dict[str, Floats]:
        """Return the tensors that a gradient is made of; grad_bias never meets the cube."""
        if gradient == "grad_bias" or self.compute == self.dtype:
            return dict(stored)
        if self.compute.startswith("hf32"):
            # The grad_input of a transposed convolution runs as a plain one.
            forward = gradient == "grad_input" and self.problem.transposed
            operation = "convolution_forward" if forward else "convolution_backward"
            ties = self.profile.generation.hf32_ties[operation]
            return {name: as_multiplied(x, "hf32", self.profile, ties) for name, x in stored.items()}
        overflow = vector_overflow(self.profile, self.compute)
        return {name: round_to(x, self.compute, overflow=overflow) for name, x in stored.items()}

    def formats_out(self, gradient: str) -> tuple[str, ...]:
        """Return the formats to which a gradient is rounded on its way out, one after the other."""
        compute = "hf32" if self.compute.startswith("hf32") else self.compute
        names = dict.fromkeys((*GRADIENTS, *INPUTS), self.dtype)
        steps = [leaves_in(gradient, names, compute, direct=self.direct)]
        if gradient == "grad_weight" and self._squeezed:
            steps.append("float16")
        return tuple(dict.fromkeys((*steps, self.dtype)))

    @property
    def _squeezed(self) -> bool:
        """Whether the shipped operator takes a float32 grad_weight of groups through float16."""
        shipped = self.profile.generation.squeezes_groups and not self.direct
        half = lookup_dtype(self.compute).bits == 16
        return shipped and half and self.problem.groups > 1 and self.dtype == "float32"

    def leaving(self, exact: Float64, gradient: str) -> Float64:
        """Round an exact gradient to the formats in which it leaves."""
        for name in self.formats_out(gradient):
            exact = quantise(exact, format_of(name)).astype(np.float64)
        return exact


def gradients_of(problem: ConvProblem, tensors: Mapping[str, Any], mask: Mask) -> dict[str, Float64]:
    """Return the wanted gradients in float64, by name."""
    grad_output, input, weight = (tensors[name] for name in INPUTS)
    made = gradients_float64(problem, grad_output, input, weight, mask)
    return {name: values for name, values in zip(GRADIENTS, made, strict=True) if values is not None}


def magnitudes_of(problem: ConvProblem, tensors: Mapping[str, Any], mask: Mask) -> dict[str, Float64]:
    """Return the sums of the magnitudes of the terms of the wanted gradients."""
    return gradients_of(problem, {name: np.abs(values) for name, values in tensors.items()}, mask)


def read_by(reading: Reading, stored: Mapping[str, Floats], mask: Mask) -> dict[str, Float64]:
    """Return the exact gradients of the operands that the cube reads."""
    found: dict[str, Float64] = {}
    for at, name in enumerate(GRADIENTS):
        alone = (mask[0] and at == 0, mask[1] and at == 1, mask[2] and at == 2)
        if mask[at]:
            found |= gradients_of(reading.problem, reading.operands(stored, name), alone)
    return found


def norm(values: Float64) -> float:
    """Return the L2 norm of a tensor."""
    return float(np.linalg.norm(values))


@dataclass(frozen=True)
class _Mode:
    """A format, the cubeMathTypes under which the cube reads it alike, and its time."""

    dtype: str
    cube_math_types: tuple[int, ...]
    compute: str
    time_us: float
    refused: str = ""


def measure(axes: Axes, case: ConvCase) -> CaseErrors:
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


def _shares(tensors: Tensors, formats: Sequence[str], scales: Sequence[float]) -> tuple[FormatShare, ...]:
    """Return the losses by formats on the tensors; on grad_output under every loss scale."""
    found = list[FormatShare]()
    for name in formats:
        found += [share(tensor, tensors[tensor], name) for tensor in ("input", "weight")]
        found += [share("grad_output", tensors["grad_output"], name, scale) for scale in scales]
    return tuple(found)


def _modes(axes: Axes, case: ConvCase, name: str) -> list[_Mode]:
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
    case: ConvCase,
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
    axes: Axes,
    case: ConvCase,
    mode: _Mode,
    stored: Mapping[str, Any],
    truth: Mapping[str, Float64],
    scale: float,
) -> Iterator[ModeError]:
    """Yield the errors of one mode, model by model."""
    problem, mask = case.problem, case.mask
    reading = Reading(problem, axes.profile, mode.dtype, mode.compute, load_rules(axes.rules).direct_outputs)
    read = read_by(reading, stored, mask)
    steps = GradientStages(
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


def _backward(axes: Axes, case: ConvCase, mode: _Mode, stored: Mapping[str, Any], model: str | None) -> Any:
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


def _gradient_error(
    name: str, values: Any, first: Any, *, reading: Reading, steps: GradientStages
) -> GradientError:
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
    """Return the largest error by roundings of formats alone, relative to the sum of the terms' magnitudes.

    Both operands are rounded where the cube reads another format than is stored; then the gradient is.
    """
    cast = gradient != "grad_bias" and reading.compute != reading.dtype
    formats = (*(reading.compute,) * (2 * cast), *reading.formats_out(gradient))
    return sum(2.0 ** -(lookup_dtype(name).mantissa_bits + 1) for name in formats)


@dataclass(frozen=True)
class PrecisionPoint:
    """One case on the axes of a study."""

    axes: Axes
    case: ConvCase

    @property
    def label(self) -> str:
        """The name of the case in the study."""
        return self.case.name

    @property
    def key(self) -> str:
        """A digest of all that the answer depends on: case and values, resolved product, axes and code."""
        axes, case = self.axes, self.case
        machine = axes.profile.product, axes.profile.variant, axes.profile.content.hex()
        varied = axes.dtypes, axes.cube_math_types, axes.models, axes.loss_scales, axes.rules
        asked = case.name, case.problem, case.mask, case.count, case.data
        return sha256(repr((code_version(), "precision", machine, varied, asked)).encode()).hexdigest()


@default_arithmetic
def answer(point: PrecisionPoint) -> PointAnswer:
    """Measure a point; a mistake of the user's is the reason of its answer."""
    try:
        found = measure(point.axes, point.case)
    except AscendSimError as error:
        return PointAnswer(json.dumps({"reason": f"{point.case.name}: {error}"}))
    return PointAnswer(json.dumps(asdict(found), separators=(",", ":")))


@default_arithmetic
def case_errors(text: str) -> CaseErrors:
    """Return the errors from the text that `answer` wrote."""
    read: dict[str, Any] = json.loads(text)
    modes = tuple(ModeError(**_mode(mode)) for mode in read["modes"])
    shares = tuple(FormatShare(**share) for share in read["shares"])
    histograms = tuple(Histogram(**one | {"counts": tuple(one["counts"])}) for one in read["histograms"])
    return CaseErrors(read["name"], read["count"], modes, shares, histograms)


def _mode(read: dict[str, Any]) -> dict[str, Any]:
    gradients = tuple(
        GradientError(**one | {"failed": tuple(tuple(pair) for pair in one["failed"])})
        for one in read["gradients"]
    )
    return read | {"cube_math_types": tuple(read["cube_math_types"]), "gradients": gradients}


@default_arithmetic
def study_precision(question: PrecisionQuestion, engine: Engine, budget: Budget) -> PrecisionStudy:
    """Measure all cases of a question.

    Raises   ConfigError for a case that cannot be measured, and where time or trials are used up
    """
    points = [PrecisionPoint(question.axes, case) for case in question.cases]
    # The engine asks no more of a point than its key and label, and hands it back.
    own = replace(engine, compute=cast("Any", answer))
    outcome = own.answer(cast("Any", points), budget)
    reason = next((found.reason for _, found in outcome if found is not None and found.reason), "")
    if reason:
        raise ConfigError(reason)
    # The answer is over all cases: without some of them it would be another one.
    if outcome.left:
        raise ConfigError(
            f"study precision: time or trials are used up with {outcome.left} of {len(points)} cases left; "
            "what was measured is kept: run the same command again to go on"
        )
    errors = tuple(case_errors(found.text) for _, found in outcome if found is not None)
    return PrecisionStudy(question, *studied(question.axes.profile), errors)
