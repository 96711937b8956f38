"""The user's functions of convolution backward: gradients with cycles, or cycles alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ascendsim.errors import ConfigError
from ascendsim.numerics.accumulation.models import AccumulationModel
from ascendsim.numerics.formats.dtypes import dtype as lookup_dtype
from ascendsim.ops.lowering.call import Node
from ascendsim.ops.lowering.lower import lower, zero_steps
from ascendsim.ops.operands import Operand, spread
from ascendsim.ops.options import GRADIENTS, Options, Product, Tilings
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.results import ConvolutionBackwardResult, Estimate
from ascendsim.ops.running import common_fields, name_of, run_steps, time_steps
from ascendsim.ops.schedules.vector.strided import View
from ascendsim.rules import ConvolutionBackwardCall, Decision, TensorDescription, resolve

if TYPE_CHECKING:
    import numpy as np

    from ascendsim.numerics.formats.dtypes import DType
    from ascendsim.ops.lowering.call import Tensors

    Format = str | type | DType | np.dtype[Any]

Mask = Sequence[bool]
INPUTS = ("grad_output", "input", "weight")


def convolution_backward(
    grad_output: Any,
    input: Any,
    weight: Any,
    bias_sizes: Sequence[int] | None,
    stride: int | Sequence[int],
    padding: int | Sequence[int],
    dilation: int | Sequence[int],
    transposed: bool,
    output_padding: int | Sequence[int],
    groups: int,
    output_mask: Mask,
    cube_math_type: int,
    *,
    product: Product = "910B",
    accumulation: str | AccumulationModel | None = None,
    tiling: Tilings = None,
    deterministic: bool | None = None,
    order: str | int = "program",
    output_dtypes: Sequence[str | None] | None = None,
    l2_start: str = "warm",
    rules: str = "documented",
    fixpipe: str = "ctrl48",
) -> ConvolutionBackwardResult:
    """Compute the gradients of a convolution bit for bit, and the cycles they take.

    Shapes   input (N, C, spatial...) with one, two or three spatial axes; weight (Cout, C / groups, taps...),
             transposed (C, Cout / groups, taps...); grad_output (N, Cout, spatial...); bias_sizes (Cout,)
    Types    numpy arrays of float16, float32, bfloat16, float8_e4m3fn, float8_e5m2 (ml_dtypes), or
             HiFloat8Array; which ones, and which mixtures, the rule set and the product say
    Views    of any strides are taken; each that is not contiguous costs a kernel of its own
    Order    of execution: "program", "arrival" (as timed; matters for atomic adds) or a seed
    Returns  gradients in the asked formats (None where masked), and one record for each kernel
    Raises   AclnnError with the status that the interface would answer; UnsupportedError, ConfigError,
             ShapeError, CapacityError for the rest: all AscendSimError
    Source   operator page of aclnnConvolutionBackward; positions as torch.ops.aten.convolution_backward
    """
    from ascendsim.numerics.formats.casts import encode

    options = Options(product, accumulation, tiling, deterministic, output_dtypes, l2_start, rules, fixpipe)
    operands = {
        name: Operand.of(value) for name, value in zip(INPUTS, (grad_output, input, weight), strict=True)
    }
    axes = len(operands["input"].view.shape) - 2
    asked = ConvolutionBackwardCall(
        operands["grad_output"].described,
        operands["input"].described,
        operands["weight"].described,
        bias_sizes,
        spread(stride, axes),
        spread(padding, axes),
        spread(dilation, axes),
        transposed,
        spread(output_padding, axes),
        groups,
        output_mask,
        cube_math_type,
    )
    decision = decide(asked, options)
    tensors = {name: operand.carrier() for name, operand in operands.items()}
    if decision.empty:
        steps, model = _empty_steps(asked, decision, options, tensors), "none"
    else:
        views = {name: operand.view for name, operand in operands.items()}
        call = options.call(_problem(asked, decision), decision, views)
        steps, model = lower(call, decision.wanted), str(call.accumulation)
    results = run_steps(steps, options.profile, l2_start, tensors, order)
    gradients: dict[str, Any] = {
        name: encode(tensors[name], decision.dtypes[name]) if wanted else None
        for name, wanted in zip(GRADIENTS, decision.wanted, strict=True)
    }
    common = common_fields(options, decision, model, results)
    return ConvolutionBackwardResult(**common, **gradients, order=name_of(order))


def estimate(
    problem: ConvProblem,
    dtype: Format | Sequence[Format] = "float16",
    cube_math_type: int = 0,
    *,
    product: Product = "910B",
    output_mask: Mask = (True, True, True),
    accumulation: str | AccumulationModel | None = None,
    tiling: Tilings = None,
    deterministic: bool | None = None,
    output_dtypes: Sequence[str | None] | None = None,
    l2_start: str = "warm",
    rules: str = "documented",
    fixpipe: str = "ctrl48",
    strides: Mapping[str, Sequence[int]] | None = None,
) -> Estimate:
    """Estimate the cycles of a call without tensors.

    Types    `dtype` is the format of all three inputs, or one for each of grad_output, input, weight: names,
             or numpy's types
    Views    `strides` of grad_output, input or weight in elements, where they are not contiguous
    Returns  one record for each kernel
    Raises   as `convolution_backward`
    """
    if not isinstance(problem, ConvProblem):
        raise ConfigError(f"estimate: problem is {problem!r}; it must be ConvProblem(input=..., weight=...)")
    options = Options(product, accumulation, tiling, deterministic, output_dtypes, l2_start, rules, fixpipe)
    views = _views(problem, strides)
    described = (
        TensorDescription(view.shape, name, strides=view.strides)
        for view, name in zip(views.values(), _names(dtype), strict=True)
    )
    asked = ConvolutionBackwardCall(
        next(described),
        next(described),
        next(described),
        None,
        spread(problem.stride, problem.rank),
        spread(problem.padding, problem.rank),
        spread(problem.dilation, problem.rank),
        problem.transposed,
        spread(problem.output_padding, problem.rank),
        problem.groups,
        output_mask,
        cube_math_type,
    )
    decision = decide(asked, options)
    call = options.call(problem, decision, views)
    results = time_steps(lower(call, decision.wanted), options.profile, l2_start)
    return Estimate(**common_fields(options, decision, str(call.accumulation), results))


def decide(asked: ConvolutionBackwardCall, options: Options) -> Decision:
    """Check a call by the rule set, with the outputs that a caller would have made, masked or not.

    Raises   AclnnError with the status that the interface would answer
    """
    return resolve(asked.with_usual_outputs(options.wanted_dtypes), options.profile, options.rules)


def _names(dtype: Format | Sequence[Format]) -> tuple[str, ...]:
    """Return the formats of grad_output, input and weight.

    Raises   ConfigError unless there is one for all or one for each, UnsupportedError for unknown ones
    """
    several = isinstance(dtype, Sequence) and not isinstance(dtype, str)
    given: tuple[Any, ...] = tuple(dtype) if several else (dtype,) * 3  # type: ignore[arg-type]
    if len(given) != 3:
        raise ConfigError(f"estimate: dtype has {len(given)} names {given}; it needs one, or three")
    if any(name is None for name in given):
        raise ConfigError(f"estimate: dtype is {dtype!r}; it must be a format such as float16, or three")
    return tuple(lookup_dtype(name).name for name in given)


def _views(problem: ConvProblem, strides: Mapping[str, Sequence[int]] | None) -> dict[str, View]:
    """Return where the elements of the inputs lie; whether strides fit is for the rules to say.

    Raises   ConfigError for anything but some inputs' strides by name
    """
    given = {} if strides is None else strides
    if not isinstance(given, Mapping) or not all(hasattr(own, "__iter__") for own in given.values()):
        raise ConfigError(f"estimate: strides is {strides!r}; it must be like {{'input': (512, 16, 4, 1)}}")
    unknown = set(given) - set(INPUTS)
    if unknown:
        raise ConfigError(f"estimate: strides has keys {sorted(unknown)}; it takes {', '.join(INPUTS)}")
    shapes = dict(zip(INPUTS, (problem.grad_output, problem.input, problem.weight), strict=True))
    return {
        name: View(shape, tuple(given.get(name, View.row_major(shape).strides)))
        for name, shape in shapes.items()
    }


def _problem(asked: ConvolutionBackwardCall, decision: Decision) -> ConvProblem:
    """Return the convolution of an accepted call; the shapes rule over output_padding, as in the operator."""
    assert asked.grad_output is not None
    assert asked.input is not None
    assert asked.weight is not None
    problem = ConvProblem(
        asked.input.shape,
        asked.weight.shape,
        asked.stride or (),
        asked.padding or (),
        asked.dilation or (),
        bool(asked.transposed),
        decision.output_padding,
        asked.groups,
    )
    problem.check_grad_output(asked.grad_output.shape)
    return problem


def _empty_steps(
    asked: ConvolutionBackwardCall, decision: Decision, options: Options, tensors: Tensors
) -> list[Node]:
    """Return the kernels that write the zeros of an accepted call with an empty input or weight."""
    assert asked.grad_output is not None
    assert asked.input is not None
    assert asked.weight is not None
    grad_input, grad_weight, grad_bias = decision.wanted
    shapes: dict[str, tuple[int, ...]] = {}
    if grad_input:
        shapes["grad_input"] = asked.input.shape
    if grad_weight:
        shapes["grad_weight"] = asked.weight.shape
    if grad_bias:
        shapes["grad_bias"] = (asked.grad_output.shape[1],)
    return zero_steps(options.profile, shapes, decision.dtypes, tensors)
