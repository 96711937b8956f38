"""Backward of a convolution over (time, batch, channels) tensors, lowered to convolution backward in 1-D."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from ascendsim.numerics.accumulation.models import AccumulationModel
from ascendsim.ops.lowering.lower import lower, zero_steps
from ascendsim.ops.lowering.vector import Named, Vectors, contiguous, filled, grad_bias, transpose
from ascendsim.ops.operands import Operand
from ascendsim.ops.options import GRADIENTS, Options, Product, Tilings
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.results import ConvolutionBackwardResult
from ascendsim.ops.running import common_fields, name_of, run_steps
from ascendsim.rules import ConvTbcBackwardCall, Decision, resolve

if TYPE_CHECKING:
    from ascendsim.ops.lowering.call import Call, Node, Tensors

INPUTS = ("grad_output", "input", "weight")
ACTIVATION_IN, ACTIVATION_OUT = (1, 2, 0), (2, 0, 1)  # (T, B, C) <-> (B, C, T)
WEIGHT = (2, 1, 0)  # (K, Cin, Cout) <-> (Cout, Cin, K), its own inverse


def conv_tbc_backward(
    grad_output: Any,
    input: Any,
    weight: Any,
    bias: Any,
    pad: int,
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
    """Compute the gradients of conv_tbc bit for bit, and the cycles they take.

    Shapes   input (T, B, Cin), weight (K, Cin, Cout), bias (Cout,), grad_output (T + 2 pad + 1 - K, B, Cout)
    Lowering the tensors are permuted, convolution backward runs in 1-D with stride and dilation 1 and one
             group, and grad_input and grad_weight are permuted back; each permutation is a kernel
    Returns  all three gradients: there is no mask; their formats are those of input, weight and bias
    Raises   as `convolution_backward`
    Source   operator page of aclnnConvTbcBackward; positions as torch's conv_tbc_backward
    """
    from ascendsim.numerics.formats.casts import encode

    options = Options(product, accumulation, tiling, deterministic, output_dtypes, l2_start, rules, fixpipe)
    given = {"grad_output": grad_output, "input": input, "weight": weight, "bias": bias}
    operands = {name: Operand.of(value) for name, value in given.items()}
    asked = ConvTbcBackwardCall(
        operands["grad_output"].described,
        operands["input"].described,
        operands["weight"].described,
        operands["bias"].described,
        pad,
        cube_math_type,
    )
    decision = resolve(asked.with_usual_outputs(options.wanted_dtypes), options.profile, rules)
    tensors = {name: operands[name].carrier() for name in INPUTS}
    if decision.empty:
        steps, model = _empty_steps(operands, decision, options, tensors), "none"
    else:
        steps, model = _steps(operands, pad, decision, options)
    results = run_steps(steps, options.profile, l2_start, tensors, order)
    gradients: dict[str, Any] = {name: encode(tensors[name], decision.dtypes[name]) for name in GRADIENTS}
    common = common_fields(options, decision, model, results)
    return ConvolutionBackwardResult(**common, **gradients, order=name_of(order))


def _steps(
    operands: dict[str, Operand], pad: int, decision: Decision, options: Options
) -> tuple[list[Node], str]:
    """Return the kernels of a call, and the name of its accumulation model."""
    time, batch, channels = operands["input"].view.shape
    taps, _, made = operands["weight"].view.shape
    problem = ConvProblem((batch, channels, time), (made, channels, taps), 1, pad)
    call = options.call(problem, decision, {})
    on = Vectors(call.profile, call.accumulation)
    dtypes = decision.dtypes
    strided = [name for name in INPUTS if not operands[name].view.is_contiguous]
    steps = [contiguous(on, name, dtypes[name], operands[name].view) for name in strided]
    for name in INPUTS:
        axes = WEIGHT if name == "weight" else ACTIVATION_IN
        steps.append(transpose(on, name, dtypes[name], operands[name].view.shape, axes))
    steps += lower(call, (True, True, True))
    return [*steps, *_back(on, call)], str(call.accumulation)


def _back(on: Vectors, call: Call) -> list[Node]:
    """Return the kernels that bring grad_input and grad_weight to the order of their tensors."""
    problem, dtypes = call.problem, call.dtypes
    return [
        transpose(on, "grad_input", dtypes["grad_input"], problem.input, ACTIVATION_OUT),
        transpose(on, "grad_weight", dtypes["grad_weight"], problem.weight, WEIGHT),
    ]


def _empty_steps(
    operands: dict[str, Operand], decision: Decision, options: Options, tensors: Tensors
) -> list[Node]:
    """Return the kernels of an accepted call with an empty tensor: zeros, and grad_bias as the rules say."""
    extents = {
        gradient: operands[name].view.shape
        for gradient, name in zip(GRADIENTS, ("input", "weight", "bias"), strict=True)
    }
    bias, dtypes = Named("grad_bias", extents["grad_bias"]), decision.dtypes
    on = Vectors(options.profile, AccumulationModel("exact"))
    time, batch, _ = shape = operands["grad_output"].view.shape
    if decision.empty_grad_bias == "zeros" or not prod(shape):
        return zero_steps(options.profile, extents, dtypes, tensors)
    del extents["grad_bias"]
    steps = zero_steps(options.profile, extents, dtypes, tensors)
    if decision.empty_grad_bias == "count":
        return [*steps, filled(on, bias, dtypes["grad_bias"], float(batch * time))]
    given = dtypes["grad_output"]
    order = transpose(on, "grad_output", given, shape, ACTIVATION_IN)
    moved = tuple(shape[axis] for axis in ACTIVATION_IN)
    return [*steps, order, *grad_bias(on, moved, given, dtypes["grad_bias"])]
