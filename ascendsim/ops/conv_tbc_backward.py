"""Backward of a convolution over (time, batch, channels) tensors, lowered to convolution backward in 1-D."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Any, Unpack

from ascendsim.arguments import whole
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.numerics.accumulation.models import AccumulationModel
from ascendsim.numerics.compiled.gathered.threads import Threads
from ascendsim.ops.lowering.call import GRADIENTS, INPUTS, Call, leaves_in
from ascendsim.ops.lowering.graph import Graph, GraphBuilder
from ascendsim.ops.lowering.kernels import VectorKernels
from ascendsim.ops.lowering.known import append_gradients, append_view_copies
from ascendsim.ops.operands import Operand
from ascendsim.ops.options.asked import output_views, strides_in_order
from ascendsim.ops.options.call import (
    Options,
    TbcOptions,
    options_of,
    order_given,
    thread_count,
)
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.strips import View
from ascendsim.ops.results import ConvolutionBackwardResult
from ascendsim.ops.running import (
    Done,
    carriers_of,
    encoded,
    make_gradients,
    result_of,
    run_graph,
)
from ascendsim.program.places import GmTensor
from ascendsim.rules import ConvTbcBackwardCall, Decision, resolve

if TYPE_CHECKING:
    from ascendsim.ops.lowering.call import Tensors

Views = Mapping[str, View]
ACTIVATION_IN, ACTIVATION_OUT = (1, 2, 0), (2, 0, 1)  # (T, B, C) <-> (B, C, T)
WEIGHT = (2, 1, 0)  # (K, Cin, Cout) <-> (Cout, Cin, K), its own inverse


@default_arithmetic
def conv_tbc_backward(
    grad_output: Any,
    input: Any,
    weight: Any,
    bias: Any,
    pad: int,
    cube_math_type: int,
    *,
    order: str | int = "program",
    timing: bool = True,
    threads: int = 1,
    **keywords: Unpack[TbcOptions],
) -> ConvolutionBackwardResult:
    """Compute the gradients of conv_tbc bit for bit, and the cycles they take.

    Shapes   input (T, B, Cin), weight (K, Cin, Cout), bias (Cout,), grad_output (T + 2 pad + 1 - K, B, Cout)
    Lowering the tensors are permuted, convolution backward runs in 1-D with stride and dilation 1 and one
             group, and grad_input and grad_weight are permuted back; each permutation is a kernel
    Order, timing, threads as of `convolution_backward`
    Keywords as `TbcOptions` describes them
    Returns  all three gradients: there is no mask; their formats are those of input, weight and bias
    Raises   as `convolution_backward`
    Source   operator page of aclnnConvTbcBackward; positions as torch's conv_tbc_backward
    """
    options = options_of("conv_tbc_backward", keywords, TbcOptions)
    order = order_given(order)
    given = zip((*INPUTS, "bias"), (grad_output, input, weight, bias), strict=True)
    operands = {name: Operand.of(value, name) for name, value in given}
    described = (operand.described for operand in operands.values())
    arguments: tuple[Any, ...] = (*described, pad, cube_math_type)
    asked = ConvTbcBackwardCall(*arguments)
    outputs = options.wanted_dtypes, strides_in_order(options.wanted_strides)
    decision = resolve(asked.with_usual_outputs(*outputs), options.asked_product, options.rules)
    views = {name: operand.view for name, operand in operands.items()}
    views |= output_views(options.wanted_strides, _gradient_shapes(views))
    machine = options.profile, options.l2_start
    with Threads(thread_count(threads, timing=timing)) as crew:
        inputs = {name: operands[name] for name in INPUTS}
        carriers = carriers_of(inputs, crew, keep_halves=not (timing or decision.empty))
        if decision.empty:
            graph = options.within(_empty_graph(views, decision, options))
            run = run_graph(graph, *machine, carriers, order, options.engine, timing=timing)
            done = Done(*run, model="none", plans={})
        else:
            call = tbc_call(views, whole(pad) or 0, decision, options)
            if timing:
                graph = options.within(tbc_graph(call, views, decision))
                results, made = run_graph(graph, *machine, carriers, order, options.engine)
            else:
                results, made = [], _gradients(call, carriers, options, order, crew)
            done = Done(results, made, str(call.accumulation), call.plans)
        gradients = encoded(done.made, _gradient_shapes(views), decision, crew)
    return result_of(done, gradients, options, decision, order, timing=timing)


def tbc_call(views: Views, pad: int, decision: Decision, options: Options) -> Call:
    """Return the convolution backward that makes the gradients.

    Views    where the elements of grad_output, input, weight and, if not row after row, of gradients lie
    """
    time, batch, channels = views["input"].shape
    taps, _, made = views["weight"].shape
    problem = ConvProblem((batch, channels, time), (made, channels, taps), 1, pad)
    # Without views: tensors that are not contiguous are copied here, before the permutations, and not by
    # `lower`.
    return options.call(problem, decision, {})


def _gradients(
    call: Call, carriers: Tensors, options: Options, order: str | int, threads: Threads
) -> Tensors:
    """Return the gradients without cycles."""
    permuted = {
        name: values.transpose(WEIGHT if name == "weight" else ACTIVATION_IN)
        for name, values in carriers.items()
    }
    made, _ = make_gradients(call, (True, True, True), permuted, options, order, threads)
    made["grad_input"] = made["grad_input"].transpose(ACTIVATION_OUT)
    made["grad_weight"] = made["grad_weight"].transpose(WEIGHT)
    return made


def tbc_graph(call: Call, views: Views, decision: Decision) -> Graph:
    """Return the kernels of a decided call without empty tensors; `views` as of `tbc_call`."""
    graph = _inputs(views, decision)
    on = VectorKernels(graph, call.profile, call.accumulation)
    for name in INPUTS:
        if not views[name].is_contiguous:
            on.contiguous(name, views[name])
    for name in INPUTS:
        on.transpose(name, WEIGHT if name == "weight" else ACTIVATION_IN)
    append_gradients(call, (True, True, True), graph)
    on.transpose("grad_input", ACTIVATION_OUT)
    on.transpose("grad_weight", WEIGHT)
    append_view_copies(on, GRADIENTS, views)
    return graph.build(GRADIENTS)


def _gradient_shapes(views: Views) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the three gradients, those of input, weight and bias."""
    own = ("input", "weight", "bias")
    return {gradient: views[name].shape for gradient, name in zip(GRADIENTS, own, strict=True)}


def _inputs(views: Views, decision: Decision) -> GraphBuilder:
    """Return a graph that begins with the inputs as they are given."""
    dtypes = decision.dtypes
    return GraphBuilder({name: GmTensor.of(name, views[name].shape, dtypes[name]) for name in INPUTS})


def _empty_graph(views: Views, decision: Decision, options: Options) -> Graph:
    """Return the kernels of an accepted call with an empty tensor: zeros, and grad_bias as the rules say."""
    time, batch, _ = shape = views["grad_output"].shape
    rule = decision.empty_grad_bias if prod(shape) else "zeros"
    graph = _inputs(views, decision)
    on = VectorKernels(graph, options.profile, AccumulationModel("exact"))
    # The shipped operator counts the terms of grad_bias where it should add them; its rule set says so.
    value = float(batch * time) if rule == "count" else 0.0
    shapes = _gradient_shapes(views)
    for name in GRADIENTS[:2]:
        on.fill(name, shapes[name], decision.dtypes[name])
    if rule in ("zeros", "count"):
        on.fill("grad_bias", shapes["grad_bias"], decision.dtypes["grad_bias"], value)
    else:
        on.transpose("grad_output", ACTIVATION_IN)
        made = leaves_in("grad_bias", decision.dtypes, "", direct=decision.direct_outputs)
        on.grad_bias(decision.dtypes["grad_bias"], made)
    append_view_copies(on, [name for name in GRADIENTS if prod(shapes[name])], views)
    return graph.build(GRADIENTS)
