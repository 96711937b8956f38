"""The user's functions of convolution backward: gradients with cycles, or cycles alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from ascendsim.arguments import shown, whole
from ascendsim.errors import ConfigError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.native.freed_memory import collector_paused
from ascendsim.numerics.accumulation.models import AccumulationModel
from ascendsim.numerics.compiled.gathered.threads import Threads
from ascendsim.ops.lowering.call import INPUTS, Call
from ascendsim.ops.lowering.graph import Graph, GraphBuilder
from ascendsim.ops.lowering.kernels import VectorKernels
from ascendsim.ops.lowering.known import append_view_copies, known_graph, lower
from ascendsim.ops.operands import Operand
from ascendsim.ops.options.asked import (
    Mask,
    asked_call,
    decide,
    gradient_shapes,
    output_views,
    planned_call,
    problem_of,
    without_bias,
)
from ascendsim.ops.options.call import (
    CallOptions,
    Options,
    options_of,
    order_given,
    thread_count,
)
from ascendsim.ops.plan import Plan
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.results import ConvolutionBackwardResult, Estimate
from ascendsim.ops.running import (
    Done,
    carriers_of,
    common_fields,
    encoded,
    make_gradients,
    result_of,
    run_graph,
    time_graph,
)
from ascendsim.rules import ConvolutionBackwardCall, Decision

if TYPE_CHECKING:
    from ascendsim.ops.lowering.call import Tensors
    from ascendsim.ops.options.asked import Format

# The engine counts in 64 bits; nobody waits for a call with more cycles.
MOST_CYCLES = 2**62


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
    with Threads(thread_count(threads, timing=timing)) as crew:
        carriers = carriers_of(operands, crew, keep_halves=not (timing or decision.empty))
        # Without elements there is no product: the interface accepts the call and writes zeros.
        if decision.empty:
            machine = options.profile, options.l2_start
            graph = options.within(_empty_graph(asked, decision, options))
            run = run_graph(graph, *machine, carriers, order, options.engine, timing=timing)
            done = Done(*run, model="none", plans={})
        else:
            views = {name: operand.view for name, operand in operands.items()}
            views |= output_views(options.wanted_strides, gradient_shapes(asked))
            call = options.call(problem_of(asked, decision), decision, views)
            done = _done(call, decision, carriers, options, order, None if timing else crew)
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
        graph = options.within(known_graph(call, decision.wanted))
        machine = options.profile, options.l2_start
        results, made = run_graph(graph, *machine, carriers, order, options.engine)
    else:
        made, cut = make_gradients(call, decision.wanted, carriers, options, order, threads)
        return Done([], made, str(call.accumulation), call.plans, cut)
    return Done(results, made, str(call.accumulation), call.plans)


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
