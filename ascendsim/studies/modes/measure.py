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
from ascendsim.numerics.casts import decode, encode, round_to
from ascendsim.numerics.dtypes import dtype as lookup_dtype
from ascendsim.numerics.metrics import error_metrics
from ascendsim.ops.convolution_backward import convolution_backward, estimate
from ascendsim.ops.lowering.call import GRADIENTS, INPUTS, cube_overflow, leaves_in, vector_overflow
from ascendsim.ops.problems.convolution import ConvProblem, as_multiplied
from ascendsim.ops.reference.float64 import gradients_float64
from ascendsim.profile import Profile
from ascendsim.rules import load_rules
from ascendsim.studies.arithmetic.formats import format_of, quantise
from ascendsim.studies.engine.measure import PointAnswer
from ascendsim.studies.engine.point import code_version
from ascendsim.studies.engine.run import Budget, Engine
from ascendsim.studies.modes.choice import Axes, ConvCase, PrecisionQuestion, PrecisionStudy
from ascendsim.studies.modes.losses import (
    SUM_STEP,
    LossSteps,
    decades,
    histogram,
    reasons,
    share,
    unbounded,
    without_range,
    worst_channel,
)
from ascendsim.studies.modes.records import (
    CaseErrors,
    Decade,
    FormatShare,
    GradientError,
    Histogram,
    ModeError,
)
from ascendsim.studies.sweep import studied

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.studies.modes.choice import Tensors

    Float64 = NDArray[np.float64]
    Floats = NDArray[np.float32]
    Mask = tuple[bool, bool, bool]


@dataclass(frozen=True)
class GradientStages:
    """The gradients between truth and result, by name, all times the loss scale; and sums of |a b|.

    free        `rounded` of formats whose range has no end
    saturated   whether an operand stays at the largest value on its way into the cube
    """

    truth: Mapping[str, Float64]
    stored: Mapping[str, Float64]
    read: Mapping[str, Float64]
    rounded: Mapping[str, Float64]
    free: Mapping[str, Float64]
    magnitudes: Mapping[str, Float64]
    saturated: bool


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

    def free_operands(
        self, given: Mapping[str, Float64], stored: Mapping[str, Floats], gradient: str
    ) -> dict[str, Float64]:
        """Return the same of formats whose range has no end; HF32 has that of float32."""
        read = self.operands(stored, gradient)
        if self.compute.startswith("hf32") and gradient != "grad_bias":
            return {name: values.astype(np.float64) for name, values in read.items()}
        cast = gradient != "grad_bias" and self.compute != self.dtype
        found: dict[str, Float64] = {}
        for name, values in given.items():
            free = unbounded(values, stored[name], lookup_dtype(self.dtype))
            found[name] = unbounded(free, read[name], lookup_dtype(self.compute)) if cast else free
        return found

    def formats_out(self, gradient: str) -> tuple[str, ...]:
        """Return the formats to which a gradient is rounded on its way out, one after the other."""
        compute = "hf32" if self.compute.startswith("hf32") else self.compute
        names = dict.fromkeys((*GRADIENTS, *INPUTS), self.dtype)
        steps = [leaves_in(gradient, names, compute, direct=self.direct)]
        if gradient == "grad_weight" and self._squeezed:
            steps.append("float16")
        return tuple(dict.fromkeys((*steps, self.dtype)))

    def saturates(self, stored: Mapping[str, Floats]) -> bool:
        """Say whether a finite operand stays at the largest value of what the cube reads."""
        if self.compute == self.dtype or self.compute.startswith("hf32"):
            return False
        top = lookup_dtype(self.compute).max_finite
        read = self.operands(stored, "grad_input")
        return any(((np.abs(x) > top) & np.isfinite(read[name])).any() for name, x in stored.items())

    def losses(self, gradient: str, result: Float64, steps: GradientStages) -> LossSteps:
        """Return the steps by which a gradient's losses are told apart."""
        leaving = self.formats_out(gradient)
        cast = gradient != "grad_bias" and self.compute != self.dtype
        formats = (self.dtype, *(self.compute,) * cast, *leaving)
        storing = 2 * 2.0 ** -(lookup_dtype(self.dtype).mantissa_bits + 1)
        return LossSteps(
            result,
            steps.rounded[gradient],
            steps.free[gradient],
            steps.magnitudes[gradient],
            formats,
            leaving,
            steps.saturated and gradient != "grad_bias",
            _allowed(self, gradient) + storing + SUM_STEP,
        )

    @property
    def _squeezed(self) -> bool:
        """Whether the shipped operator takes a float32 grad_weight of groups through float16."""
        shipped = self.profile.generation.squeezes_groups and not self.direct
        half = lookup_dtype(self.compute).bits == 16
        return shipped and half and self.problem.groups > 1 and self.dtype == "float32"

    def leaving(self, exact: Float64, gradient: str) -> Float64:
        """Round an exact gradient to the formats in which it leaves, as the product has what lies beyond."""
        for name in self.formats_out(gradient):
            rounded = quantise(exact, format_of(name)).astype(np.float64)
            if cube_overflow(self.profile, name) != "ieee":
                top = lookup_dtype(name).max_finite
                rounded = np.where(np.isfinite(exact), np.clip(rounded, -top, top), rounded)
            exact = rounded
        return exact

    def leaving_free(self, exact: Float64, gradient: str) -> Float64:
        """Round it to the same formats without an end of their range."""
        for name in self.formats_out(gradient):
            exact = unbounded(exact, quantise(exact, format_of(name)).astype(np.float64), lookup_dtype(name))
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
    for name, alone in _each(mask):
        found |= gradients_of(reading.problem, reading.operands(stored, name), alone)
    return found


def free_of_range(
    reading: Reading,
    given: Mapping[str, Float64],
    stored: Mapping[str, Floats],
    read: Mapping[str, Float64],
    mask: Mask,
) -> dict[str, Float64]:
    """Return the gradients that formats without an end of their range would leave, rounded as they leave.

    read   the exact gradients of what the cube reads: where no operand loses range, they are the same
    """
    found: dict[str, Float64] = {}
    for name, alone in _each(mask):
        free, operands = reading.free_operands(given, stored, name), reading.operands(stored, name)
        same = all(np.array_equal(free[one], operands[one]) for one in INPUTS)
        exact = read[name] if same else gradients_of(reading.problem, free, alone)[name]
        found[name] = reading.leaving_free(exact, name)
    return found


def _each(mask: Mask) -> Iterator[tuple[str, Mask]]:
    """Yield each wanted gradient with the mask that asks for it alone."""
    for at, name in enumerate(GRADIENTS):
        if mask[at]:
            yield name, (at == 0, at == 1, at == 2)


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
    truth = gradients_of(case.sample, tensors, case.mask)
    found = list[ModeError]()
    for name in axes.dtypes:
        modes = _modes(axes, case, name)
        for scale in axes.loss_scales:
            found += _scaled(axes, case, modes, tensors, truth, scale)
    # The cube's formats as well: on the way into it a float32 tensor may lose its range, which HF32 has.
    read = [mode.compute_dtype for mode in found if mode.compute_dtype[:4] not in ("", "hf32")]
    shares = _shares(tensors, tuple(dict.fromkeys((*axes.dtypes, *read))), axes.loss_scales)
    histograms = tuple(histogram(name, tensors[name]) for name in INPUTS)
    return CaseErrors(case.name, case.count, tuple(found), shares, histograms, case.batch, case.sample.input)


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
            yield from _modelled(axes, case, mode, as_scaled, {n: g * scale for n, g in truth.items()}, scale)


def _modelled(
    axes: Axes,
    case: ConvCase,
    mode: _Mode,
    given: Mapping[str, Float64],
    truth: Mapping[str, Float64],
    scale: float,
) -> Iterator[ModeError]:
    """Yield the errors of one mode, model by model; tensors and truth are times the loss scale."""
    stored = {name: quantise(given[name], format_of(mode.dtype)) for name in INPUTS}
    problem, mask = case.sample, case.mask
    reading = Reading(problem, axes.profile, mode.dtype, mode.compute, load_rules(axes.rules).direct_outputs)
    read = read_by(reading, stored, mask)
    steps = GradientStages(
        truth,
        gradients_of(problem, stored, mask),
        read,
        {name: reading.leaving(values, name) for name, values in read.items()},
        free_of_range(reading, given, stored, read, mask),
        magnitudes_of(problem, stored, mask),
        reading.saturates(stored),
    )
    first: Mapping[str, Any] | None = None
    for model in axes.models:
        result = _backward(axes, case, mode, stored, model)
        made = {name: getattr(result, name) for name in GRADIENTS if getattr(result, name) is not None}
        first = made if first is None else first
        one = partial(_gradient_error, reading=reading, steps=steps, loss_scale=scale)
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
    p = case.sample
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
    name: str, values: Any, first: Any, *, reading: Reading, steps: GradientStages, loss_scale: float
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
    lost = reading.losses(name, result, steps)
    labels = lost.labels(truth)
    once = without_range(truth, lost.coarsest.mantissa_bits + 1)
    channel, of_channel = worst_channel(result, truth, 1 if name == "grad_input" else 0)
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
        reasons(error_metrics(carrier, stored, judged), lost, stored, _allowed(reading, name)),
        norm(once - truth) / whole,
        lost.causes(truth, labels),
        channel,
        of_channel,
        decades(lost, truth, labels, loss_scale),
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
        asked = case.name, case.problem, case.mask, case.count, case.data, case.sample
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
    batch, computed = read["batch"], tuple(read["computed"])
    return CaseErrors(read["name"], read["count"], modes, shares, histograms, batch, computed)


def _mode(read: dict[str, Any]) -> dict[str, Any]:
    gradients = tuple(
        GradientError(
            **one
            | {key: tuple(tuple(pair) for pair in one[key]) for key in ("failed", "causes")}
            | {"decades": tuple(Decade(**row) for row in one["decades"])}
        )
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
