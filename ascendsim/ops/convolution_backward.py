"""The user's functions of convolution backward: gradients with cycles, or cycles alone.

`conv_tbc_backward` takes tensors over time, batch and channels; it is lowered to convolution backward in 1-D.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from math import prod
from typing import TYPE_CHECKING, Any, Unpack

from ascendsim.errors import ConfigError, shown, whole
from ascendsim.frozen import cached_property
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.native.process import collector_paused
from ascendsim.numerics.accumulation import AccumulationModel
from ascendsim.numerics.factor import ALONE, Threads
from ascendsim.ops.lowering.call import GRADIENTS, INPUTS, Call, leaves_in
from ascendsim.ops.lowering.graph import Graph, GraphBuilder, VectorKernels
from ascendsim.ops.lowering.kernels import append_gradients, append_view_copies, lower
from ascendsim.ops.operands import Operand
from ascendsim.ops.options.asked import (
    Mask,
    asked_call,
    decide,
    gradient_shapes,
    output_views,
    planned_call,
    problem_of,
    strides_in_order,
    without_bias,
)
from ascendsim.ops.options.call import Options, options_of, order_given, thread_count
from ascendsim.ops.options.keywords import CallOptions, TbcOptions
from ascendsim.ops.plan import Plan
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.views import View
from ascendsim.ops.results import ConvolutionBackwardResult, Estimate
from ascendsim.ops.running import (
    Done,
    carriers_of,
    common_fields,
    encoded,
    known_graph,
    make_gradients,
    name_of,
    result_of,
    run_graph,
    time_graph,
)
from ascendsim.program.places import GmTensor
from ascendsim.rules import ConvolutionBackwardCall, ConvTbcBackwardCall, Decision, resolve

if TYPE_CHECKING:
    from ascendsim.ops.lowering.call import Tensors
    from ascendsim.ops.options.asked import Format


# The engine counts in 64 bits; nobody waits for a call with more cycles.
MOST_CYCLES = 2**62


@dataclass(frozen=True, eq=False)
class PlannedBackward:
    """Everything about a call of `convolution_backward` that does not depend on the values in its tensors."""

    options: Options
    decision: Decision
    call: Call

    @cached_property
    def untimed(self) -> dict[str, Any]:
        """What every result without cycles says."""
        model, plans = str(self.call.accumulation), self.call.plans
        return common_fields(self.options, self.decision, model, [], plans, timing=False)

    @default_arithmetic
    def run(
        self, operands: Mapping[str, Operand], order: str | int, *, timing: bool, threads: int = 1
    ) -> ConvolutionBackwardResult:
        """Return the result of the call.

        operands   grad_output, input and weight, of the shapes, formats and strides of the plan
        """
        options, decision, call = self.options, self.decision, self.call
        with Threads(thread_count(threads, timing=timing)) as crew:
            carriers = carriers_of(operands, crew, keep_halves=not timing)
            done = _done(call, decision, carriers, options, order, None if timing else crew)
            shapes = {name: call.shape_of(name) for name in GRADIENTS}
            gradients = encoded(done.made, shapes, decision, crew)
        if timing:
            return result_of(done, gradients, options, decision, order, timing=True)
        own: dict[str, Any] = {"order": name_of(order), "timing": False, "overflowed": done.overflowed}
        return ConvolutionBackwardResult(**self.untimed, **gradients, **own)

    @default_arithmetic
    def summed(self, grad_output: Any) -> tuple[Any, tuple[str, ...]]:
        """Return the grad_bias of `run` without timing where it alone is asked for, and `overflowed`."""
        given, call = Operand.of(grad_output).carrier(keep_halves=True), self.call
        wanted, shapes = self.decision.wanted, {name: call.shape_of(name) for name in GRADIENTS}
        made, cut = make_gradients(call, wanted, {"grad_output": given}, self.options, "program", ALONE)
        return encoded(made, shapes, self.decision, ALONE)["grad_bias"], cut


@default_arithmetic
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
    order: str | int = "program",
    timing: bool = True,
    threads: int = 1,
    **keywords: Unpack[CallOptions],
) -> ConvolutionBackwardResult:
    """Compute the gradients of a convolution bit for bit, and the cycles they take.

    Shapes   input (N, C, spatial...) with one, two or three spatial axes; weight (Cout, C / groups, taps...),
             transposed (C, Cout / groups, taps...); grad_output (N, Cout, spatial...); bias_sizes (Cout,);
             None, or torch's [0] where no grad_bias is asked for: a layer without bias
    Types    numpy arrays of float16, float32, bfloat16, float8_e4m3fn, float8_e5m2 (ml_dtypes), or
             HiFloat8Array; which ones, and which mixtures, the rule set and the product say
    Views    of any strides are taken; each that is not contiguous costs a kernel of its own, and so does
             each gradient that `output_strides` puts elsewhere than row after row
    Order    of execution: "program", "arrival" (as timed; matters for atomic adds) or a seed
    Timing   False: the same bits without kernels and cycles (`estimate` gives those), on so many `threads`,
             on whose number the bits do not depend. Large layers take half of the time so, small ones a
             quarter (docs/arithmetic.md has a table); what is left to the executor saves the cycles alone
    Keywords as `CallOptions` describes them: product, accumulation, tiling, schedule, l2_start, ...
    Returns  gradients in the asked formats (None where masked), and one record for each kernel
    Raises   AclnnError with the status that the interface would answer; UnsupportedError, ConfigError,
             ShapeError, CapacityError for the rest: all AscendSimError
    Source   operator page of aclnnConvolutionBackward; positions as torch.ops.aten.convolution_backward
    """
    options = options_of("convolution_backward", keywords)
    order = order_given(order)
    given = zip(INPUTS, (grad_output, input, weight), strict=True)
    operands = {name: Operand.of(value, name) for name, value in given}
    attributes = stride, padding, dilation, transposed, output_padding, groups
    described = [operand.described for operand in operands.values()]
    axes = len(operands["input"].view.shape) - 2
    sizes = None if without_bias(bias_sizes, output_mask) else bias_sizes
    asked = asked_call(described, sizes, attributes, axes, output_mask, cube_math_type)
    decision = decide(asked, options)
    made = compress(gradient_shapes(asked).values(), decision.wanted)
    options.require_room(*(operand.view.shape for operand in operands.values()), *made)
    if not decision.empty:
        views = {name: operand.view for name, operand in operands.items()}
        views |= output_views(options.wanted_strides, gradient_shapes(asked))
        call = options.call(problem_of(asked, decision), decision, views)
        return PlannedBackward(options, decision, call).run(operands, order, timing=timing, threads=threads)
    # Without elements there is no product: the interface accepts the call and writes zeros.
    with Threads(thread_count(threads, timing=timing)) as crew:
        carriers = carriers_of(operands, crew)
        done = _without_elements(_empty_graph(asked, decision, options), carriers, options, order, timing)
        gradients = encoded(done.made, gradient_shapes(asked), decision, crew)
    return result_of(done, gradients, options, decision, order, timing=timing)


def _done(
    call: Call,
    decision: Decision,
    carriers: Tensors,
    options: Options,
    order: str | int,
    threads: Threads | None,
) -> Done:
    """Compute the gradients of a decided call that has elements.

    threads   what shares the work of a call without timing; None: with timing
    """
    if threads is None:
        options.require_products(call, decision.wanted)
        return _timed(known_graph(call, decision.wanted), call, carriers, options, order)
    made, cut = make_gradients(call, decision.wanted, carriers, options, order, threads)
    return Done([], made, str(call.accumulation), call.plans, cut)


def _timed(graph: Graph, call: Call, carriers: Tensors, options: Options, order: str | int) -> Done:
    """Run the kernels of a call that has elements, and time them."""
    machine = options.profile, options.l2_start
    run = run_graph(options.within(graph), *machine, carriers, order, options.engine)
    return Done(*run, str(call.accumulation), call.plans)


def _without_elements(
    graph: Graph, carriers: Tensors, options: Options, order: str | int, timing: bool
) -> Done:
    """Run the kernels of an accepted call that has no product."""
    machine = options.profile, options.l2_start
    run = run_graph(options.within(graph), *machine, carriers, order, options.engine, timing=timing)
    return Done(*run, model="none", plans={})


@default_arithmetic
@collector_paused()
def estimate(
    problem: ConvProblem,
    dtype: Format | Sequence[Format] = "float16",
    cube_math_type: int = 0,
    *,
    output_mask: Mask = (True, True, True),
    strides: Mapping[str, Sequence[int]] | None = None,
    stop_above: int | None = None,
    **keywords: Unpack[CallOptions],
) -> Estimate:
    """Estimate the cycles of a call without tensors.

    Types    `dtype` is the format of all three inputs, or one for each of grad_output, input, weight: names,
             or numpy's types
    Views    `strides` of grad_output, input or weight in elements, where they are not contiguous
    Bound    `stop_above`: cycles of all kernels above which the call is of no interest: timing stops there
    Keywords as `CallOptions` describes them
    Returns  one record for each kernel
    Raises   as `convolution_backward`; StoppedError for a call of more cycles than `stop_above`
    """
    options = options_of("estimate", keywords)
    stop = whole(0 if stop_above is None else stop_above)
    if stop is None or stop < 0:
        raise ConfigError(
            f"estimate: stop_above is {shown(stop_above)}; it must be 0 or more cycles, or None"
        )
    decision, call = planned_call(problem, options, dtype, cube_math_type, output_mask, strides)
    machine = options.profile, options.l2_start, options.engine
    options.require_products(call, decision.wanted)
    graph = options.within(lower(call, decision.wanted))
    bound = None if stop_above is None or stop > MOST_CYCLES else stop
    results = time_graph(graph, *machine, stop_above=bound)
    return Estimate(**common_fields(options, decision, str(call.accumulation), results, call.plans))


@default_arithmetic
def plans_of_call(
    problem: ConvProblem,
    dtype: Format | Sequence[Format] = "float16",
    cube_math_type: int = 0,
    *,
    output_mask: Mask = (True, True, True),
    **keywords: Unpack[CallOptions],
) -> Mapping[str, Plan]:
    """Return the plans that `estimate` would follow, by gradient, without timing them.

    Raises   as `estimate`
    """
    options = options_of("plans_of_call", keywords)
    return planned_call(problem, options, dtype, cube_math_type, output_mask)[1].plans


def _empty_graph(asked: ConvolutionBackwardCall, decision: Decision, options: Options) -> Graph:
    """Return the kernels that write the zeros of an accepted call with an empty input or weight."""
    graph = GraphBuilder({})
    zeros = VectorKernels(graph, options.profile, AccumulationModel("exact"))
    wanted = []
    for (name, shape), asked_for in zip(gradient_shapes(asked).items(), decision.wanted, strict=True):
        if asked_for:
            zeros.fill(name, shape, decision.dtypes[name])
            wanted.append(name)
    append_view_copies(zeros, wanted, output_views(options.wanted_strides, gradient_shapes(asked)))
    return graph.build(tuple(wanted))


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
    decision = _decided(ConvTbcBackwardCall(*arguments), options)
    views = {name: operand.view for name, operand in operands.items()}
    made_shapes = _gradient_shapes(views)
    options.require_room(*(operand.view.shape for operand in operands.values()), *made_shapes.values())
    views |= output_views(options.wanted_strides, made_shapes)
    with Threads(thread_count(threads, timing=timing)) as crew:
        inputs = {name: operands[name] for name in INPUTS}
        carriers = carriers_of(inputs, crew, keep_halves=not (timing or decision.empty))
        if decision.empty:
            done = _without_elements(
                _empty_tbc_graph(views, decision, options), carriers, options, order, timing
            )
        else:
            call = tbc_call(views, whole(pad) or 0, decision, options)
            if timing:
                done = _timed(tbc_graph(call, views, decision), call, carriers, options, order)
            else:
                made = _gradients(call, carriers, options, order, crew)
                done = Done([], made, str(call.accumulation), call.plans)
        gradients = encoded(done.made, made_shapes, decision, crew)
    return result_of(done, gradients, options, decision, order, timing=timing)


def _decided(asked: ConvTbcBackwardCall, options: Options) -> Decision:
    """Return the decision of the rules on a call, with the outputs that the options want."""
    outputs = options.wanted_dtypes, strides_in_order(options.wanted_strides)
    return resolve(asked.with_usual_outputs(*outputs), options.asked_product, options.rules)


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


def _empty_tbc_graph(views: Views, decision: Decision, options: Options) -> Graph:
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
