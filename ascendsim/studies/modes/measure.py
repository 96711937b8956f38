"""One case under every mode, model and loss scale."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ascendsim.errors import AscendSimError, BudgetError, ConfigError
from ascendsim.frozen import FrozenMap
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.casts import decode, encode
from ascendsim.numerics.dtypes import dtype as lookup_dtype
from ascendsim.numerics.metrics import error_metrics
from ascendsim.ops.convolution_backward import convolution_backward, estimate
from ascendsim.ops.lowering.call import GRADIENTS, INPUTS
from ascendsim.rules import load_rules
from ascendsim.studies.arithmetic.formats import format_of, quantise
from ascendsim.studies.engine.measure import PointAnswer
from ascendsim.studies.engine.point import code_version
from ascendsim.studies.engine.run import Budget, Engine
from ascendsim.studies.modes.choice import Axes, ConvCase, PrecisionQuestion, PrecisionStudy
from ascendsim.studies.modes.losses import decades, histogram, reasons, share, without_range, worst_channel
from ascendsim.studies.modes.reading import (
    GradientStages,
    Reading,
    allowed,
    free_of_range,
    gradients_of,
    magnitudes_of,
    read_by,
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
            said: Any = {**axes.limits, "product": axes.profile, "rules": axes.rules}
            result = estimate(case.problem, name, number, output_mask=case.mask, **said)
            compute, time_us, refused = result.compute_dtype, result.time_us, ""
        except BudgetError:
            raise
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
    free, ends = free_of_range(reading, given, stored, read, mask)
    steps = GradientStages(
        truth,
        gradients_of(problem, stored, mask),
        read,
        {name: reading.leaving(values, name) for name, values in read.items()},
        free,
        ends,
        magnitudes_of(problem, stored, mask),
    )
    first: Mapping[str, Any] | None = None
    for model in axes.models:
        result = _backward(axes, case, mode, stored, model)
        made = {name: getattr(result, name) for name in GRADIENTS if getattr(result, name) is not None}
        first = made if first is None else first
        one = partial(_gradient_error, reading=reading, steps=steps, loss_scale=scale)
        errors = tuple(one(name, values, first[name]) for name, values in made.items())
        yield ModeError(
            mode.dtype, mode.cube_math_types, mode.compute, result.accumulation, scale, mode.time_us, errors
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
        **axes.limits,
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
        reasons(error_metrics(carrier, stored, judged), lost, stored, allowed(reading, name)),
        norm(once - truth) / whole,
        lost.causes(truth, labels),
        channel,
        of_channel,
        decades(lost, truth, labels, loss_scale),
        lost.takers(truth, labels),
    )


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
    except BudgetError as error:
        return PointAnswer(json.dumps({"budget": True, "reason": f"{point.case.name}: {error}"}))
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
            | {key: tuple(tuple(pair) for pair in one[key]) for key in ("failed", "causes", "takers")}
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
    axes = replace(question.axes, limits=FrozenMap(engine.limits))
    points = [PrecisionPoint(axes, case) for case in question.cases]
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
