"""Backward of a convolution over (time, batch, channels) tensors, lowered to convolution backward in 1-D."""

from __future__ import annotations

from math import prod
from typing import Any, Unpack

from ascendsim.numerics.accumulation.models import AccumulationModel
from ascendsim.ops.lowering.call import GRADIENTS, INPUTS, leaves_in
from ascendsim.ops.lowering.graph import Graph, GraphBuilder
from ascendsim.ops.lowering.lower import append_gradients
from ascendsim.ops.lowering.vector import VectorKernels
from ascendsim.ops.operands import Operand
from ascendsim.ops.options import CallOptions, Options, options_of
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.results import ConvolutionBackwardResult
from ascendsim.ops.running import common_fields, encoded, name_of, run_graph
from ascendsim.program.places import GmTensor
from ascendsim.rules import ConvTbcBackwardCall, Decision, resolve

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
    order: str | int = "program",
    **keywords: Unpack[CallOptions],
) -> ConvolutionBackwardResult:
    """Compute the gradients of conv_tbc bit for bit, and the cycles they take.

    Shapes   input (T, B, Cin), weight (K, Cin, Cout), bias (Cout,), grad_output (T + 2 pad + 1 - K, B, Cout)
    Lowering the tensors are permuted, convolution backward runs in 1-D with stride and dilation 1 and one
             group, and grad_input and grad_weight are permuted back; each permutation is a kernel
    Keywords as `CallOptions` describes them
    Returns  all three gradients: there is no mask; their formats are those of input, weight and bias
    Raises   as `convolution_backward`
    Source   operator page of aclnnConvTbcBackward; positions as torch's conv_tbc_backward
    """
    options = options_of("conv_tbc_backward", keywords)
    given = zip((*INPUTS, "bias"), (grad_output, input, weight, bias), strict=True)
    operands = {name: Operand.of(value) for name, value in given}
    described = (operand.described for operand in operands.values())
    in_order: tuple[Any, ...] = (*described, pad, cube_math_type)
    asked = ConvTbcBackwardCall(*in_order)
    decision = resolve(asked.with_usual_outputs(options.wanted_dtypes), options.profile, options.rules)
    if decision.empty:
        graph, model = _empty_graph(operands, decision, options), "none"
    else:
        graph, model = _graph(operands, pad, decision, options)
    carriers = {name: operands[name].carrier() for name in INPUTS}
    results, made = run_graph(graph, options.profile, options.l2_start, carriers, order, options.engine)
    gradients = encoded(made, _gradient_shapes(operands), decision)
    common = common_fields(options, decision, model, results)
    return ConvolutionBackwardResult(**common, **gradients, order=name_of(order))


def _graph(operands: dict[str, Operand], pad: int, decision: Decision, options: Options) -> tuple[Graph, str]:
    """Return the kernels of a call, and the name of its accumulation model."""
    time, batch, channels = operands["input"].view.shape
    taps, _, made = operands["weight"].view.shape
    problem = ConvProblem((batch, channels, time), (made, channels, taps), 1, pad)
    # Without views: what is not contiguous is copied here, before the permutations, and not by `lower`.
    call = options.call(problem, decision, {})
    graph = _inputs(operands, decision)
    on = VectorKernels(graph, call.profile, call.accumulation)
    for name in INPUTS:
        if not operands[name].view.is_contiguous:
            on.contiguous(name, operands[name].view)
    for name in INPUTS:
        on.transpose(name, WEIGHT if name == "weight" else ACTIVATION_IN)
    append_gradients(call, (True, True, True), graph)
    on.transpose("grad_input", ACTIVATION_OUT)
    on.transpose("grad_weight", WEIGHT)
    return graph.build(GRADIENTS), str(call.accumulation)


def _gradient_shapes(operands: dict[str, Operand]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the three gradients, those of input, weight and bias."""
    own = ("input", "weight", "bias")
    return {gradient: operands[name].view.shape for gradient, name in zip(GRADIENTS, own, strict=True)}


def _inputs(operands: dict[str, Operand], decision: Decision) -> GraphBuilder:
    """Return a graph that begins with the inputs as they are given."""
    dtypes = decision.dtypes
    return GraphBuilder({name: GmTensor.of(name, operands[name].view.shape, dtypes[name]) for name in INPUTS})


def _empty_graph(operands: dict[str, Operand], decision: Decision, options: Options) -> Graph:
    """Return the kernels of an accepted call with an empty tensor: zeros, and grad_bias as the rules say."""
    time, batch, _ = shape = operands["grad_output"].view.shape
    rule = decision.empty_grad_bias if prod(shape) else "zeros"
    graph = _inputs(operands, decision)
    on = VectorKernels(graph, options.profile, AccumulationModel("exact"))
    # The shipped operator counts the terms of grad_bias where it should add them; its rule set says so.
    value = float(batch * time) if rule == "count" else 0.0
    shapes = _gradient_shapes(operands)
    for name in GRADIENTS[:2]:
        on.fill(name, shapes[name], decision.dtypes[name])
    if rule in ("zeros", "count"):
        on.fill("grad_bias", shapes["grad_bias"], decision.dtypes["grad_bias"], value)
    else:
        on.transpose("grad_output", ACTIVATION_IN)
        made = leaves_in("grad_bias", decision.dtypes, "", direct=decision.direct_outputs)
        on.grad_bias(decision.dtypes["grad_bias"], made)
    return graph.build(GRADIENTS)
