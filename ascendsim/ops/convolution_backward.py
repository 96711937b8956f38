"""The user's functions of convolution backward: gradients with cycles, or cycles alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import index
from typing import TYPE_CHECKING, Any, Unpack

from ascendsim.arguments import items, shown, truth, whole
from ascendsim.errors import ConfigError
from ascendsim.native.collector import collector_paused
from ascendsim.numerics.accumulation.models import AccumulationModel
from ascendsim.numerics.compiled.gathered.threads import Threads
from ascendsim.numerics.formats.dtypes import dtype as lookup_dtype
from ascendsim.ops.lowering.call import GRADIENTS, INPUTS, Call
from ascendsim.ops.lowering.graph import Graph, GraphBuilder
from ascendsim.ops.lowering.known import known_graph
from ascendsim.ops.lowering.lower import append_view_copies, lower
from ascendsim.ops.lowering.vector import VectorKernels
from ascendsim.ops.operands import Operand, spread
from ascendsim.ops.options.call import Options, options_of
from ascendsim.ops.options.input_views import input_views
from ascendsim.ops.options.keywords import CallOptions, require_order
from ascendsim.ops.options.output_strides import output_views, strides_in_order
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
    thread_count,
    time_graph,
)
from ascendsim.rules import ConvolutionBackwardCall, Decision, TensorDescription, resolve

if TYPE_CHECKING:
    import numpy as np

    from ascendsim.numerics.formats.dtypes import DType
    from ascendsim.ops.lowering.call import Tensors

    Format = str | type | DType | np.dtype[Any]

Mask = Sequence[bool]


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
    Timing   False: the same bits many times faster, without kernels and cycles (`estimate` gives those), on
             so many `threads`; the bits do not depend on their number
    Keywords as `CallOptions` describes them: product, accumulation, tiling, schedule, l2_start, ...
    Returns  gradients in the asked formats (None where masked), and one record for each kernel
    Raises   AclnnError with the status that the interface would answer; UnsupportedError, ConfigError,
             ShapeError, CapacityError for the rest: all AscendSimError
    Source   operator page of aclnnConvolutionBackward; positions as torch.ops.aten.convolution_backward
    """
    options = options_of("convolution_backward", keywords)
    require_order(order)
    given = zip(INPUTS, (grad_output, input, weight), strict=True)
    operands = {name: Operand.of(value, name) for name, value in given}
    attributes = stride, padding, dilation, transposed, output_padding, groups
    described = [operand.described for operand in operands.values()]
    axes = len(operands["input"].view.shape) - 2
    sizes = None if _without_bias(bias_sizes, output_mask) else bias_sizes
    asked = _asked(described, sizes, attributes, axes, output_mask, cube_math_type)
    decision = decide(asked, options)
    with Threads(thread_count(threads, timing=timing)) as crew:
        carriers = carriers_of(operands, crew, keep_halves=not (timing or decision.empty))
        # Without elements there is no product: the interface accepts the call and writes zeros.
        if decision.empty:
            machine = options.profile, options.l2_start
            graph = _empty_graph(asked, decision, options)
            run = run_graph(graph, *machine, carriers, order, options.engine, timing=timing)
            done = Done(*run, model="none", plans={})
        else:
            views = {name: operand.view for name, operand in operands.items()}
            views |= output_views(options.wanted_strides, _gradient_shapes(asked))
            call = options.call(_problem(asked, decision), decision, views)
            done = _done(call, decision, carriers, options, order, None if timing else crew)
        gradients = encoded(done.made, _gradient_shapes(asked), decision, crew)
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
        graph, machine = known_graph(call, decision.wanted), (options.profile, options.l2_start)
        results, made = run_graph(graph, *machine, carriers, order, options.engine)
    else:
        results, made = [], make_gradients(call, decision.wanted, carriers, options, order, threads)
    return Done(results, made, str(call.accumulation), call.plans)


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
    graph = lower(call, decision.wanted)
    results = time_graph(graph, *machine, stop_above=None if stop_above is None else stop)
    return Estimate(**common_fields(options, decision, str(call.accumulation), results, call.plans))


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


def planned_call(
    problem: ConvProblem,
    options: Options,
    dtype: Format | Sequence[Format] = "float16",
    cube_math_type: int = 0,
    output_mask: Mask = (True, True, True),
    strides: Mapping[str, Sequence[int]] | None = None,
) -> tuple[Decision, Call]:
    """Return what the interface decides of a call without tensors, and what fixes its kernels.

    Raises   as `estimate`
    """
    if not isinstance(problem, ConvProblem):
        raise ConfigError(
            f"estimate: problem is {shown(problem)}; it must be ConvProblem(input=..., weight=...)"
        )
    views = input_views(problem, strides)
    described = [
        TensorDescription(view.shape, name, strides=view.strides)
        for view, name in zip(views.values(), _names(dtype), strict=True)
    ]
    p = problem
    attributes = p.stride, p.padding, p.dilation, p.transposed, p.output_padding, p.groups
    asked = _asked(described, None, attributes, p.rank, output_mask, cube_math_type)
    # A ConvProblem is never empty, so there is always a product to plan.
    decision = decide(asked, options)
    views |= output_views(options.wanted_strides, _gradient_shapes(asked))
    return decision, options.call(problem, decision, views)


def _asked(
    described: Sequence[TensorDescription | None],
    bias_sizes: Sequence[int] | None,
    attributes: tuple[Any, ...],
    axes: int,
    output_mask: Mask,
    cube_math_type: int,
) -> ConvolutionBackwardCall:
    """Return the call as the interface takes it, with one number for each axis where one stands for all."""
    *sizes, transposed, output_padding, groups = attributes
    *sizes, output_padding = (spread(value, axes) for value in (*sizes, output_padding))
    last = transposed, output_padding, groups, output_mask, cube_math_type
    in_order: tuple[Any, ...] = (*described, bias_sizes, *sizes, *last)
    return ConvolutionBackwardCall(*in_order)


def _without_bias(bias_sizes: Any, output_mask: Any) -> bool:
    """Tell whether bias_sizes is the [0] that torch's autograd passes for a layer without bias."""
    # The interface itself wants the channels in any case; what else is in the mask is for the rules to say.
    mask_is_known = isinstance(output_mask, Sequence) and len(output_mask) == 3
    if not mask_is_known or truth(output_mask[2]) is not False:
        return False
    return isinstance(bias_sizes, Sequence) and len(bias_sizes) == 1 and whole(bias_sizes[0]) == 0


def decide(asked: ConvolutionBackwardCall, options: Options) -> Decision:
    """Check a call by the rule set, with the outputs that a caller would have made, masked or not.

    Raises   AclnnError with the status that the interface would answer
    """
    outputs = options.wanted_dtypes, strides_in_order(options.wanted_strides)
    return resolve(asked.with_usual_outputs(*outputs), options.asked_product, options.rules)


def _names(dtype: Format | Sequence[Format]) -> tuple[str, ...]:
    """Return the formats of grad_output, input and weight.

    Raises   ConfigError unless there is one for all or one for each, UnsupportedError for unknown ones
    """
    # A name is a sequence too, of letters.
    several = isinstance(dtype, Sequence) and not isinstance(dtype, str)
    given = items(dtype) if several else (dtype,) * 3
    if given is None or len(given) != 3:
        count = "too many" if given is None else len(given)
        raise ConfigError(f"estimate: dtype has {count} names {shown(dtype)}; it needs one, or three")
    if any(name is None for name in given):
        raise ConfigError(f"estimate: dtype is {shown(dtype)}; it must be a format such as float16, or three")
    return tuple(lookup_dtype(name).name for name in given)


def _problem(asked: ConvolutionBackwardCall, decision: Decision) -> ConvProblem:
    """Return the convolution of an accepted call; the shapes rule over output_padding, as in the operator."""
    grad_output, input, weight = _shapes(asked)
    # Plain numbers, which the rules have found them to be; True would be equal to 1.
    sizes = [tuple(map(index, given or ())) for given in (asked.stride, asked.padding, asked.dilation)]
    last = bool(asked.transposed), decision.output_padding, index(asked.groups)
    problem = _known(input, weight, *sizes, *last)
    problem.check_grad_output(grad_output)
    return problem


_known = lru_cache(maxsize=256)(ConvProblem)  # the same calls come in every step of a training run


def _empty_graph(asked: ConvolutionBackwardCall, decision: Decision, options: Options) -> Graph:
    """Return the kernels that write the zeros of an accepted call with an empty input or weight."""
    graph = GraphBuilder({})
    zeros = VectorKernels(graph, options.profile, AccumulationModel("exact"))
    wanted = []
    for (name, shape), asked_for in zip(_gradient_shapes(asked).items(), decision.wanted, strict=True):
        if asked_for:
            zeros.fill(name, shape, decision.dtypes[name])
            wanted.append(name)
    append_view_copies(zeros, wanted, output_views(options.wanted_strides, _gradient_shapes(asked)))
    return graph.build(tuple(wanted))


def _gradient_shapes(asked: ConvolutionBackwardCall) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the three gradients of an accepted call."""
    grad_output, input, weight = _shapes(asked)
    return dict(zip(GRADIENTS, (input, weight, (grad_output[1],)), strict=True))


def _shapes(asked: ConvolutionBackwardCall) -> list[tuple[int, ...]]:
    """Return the shapes of grad_output, input and weight, none of which an accepted call lacks."""
    return [tensor.shape for tensor in (asked.grad_output, asked.input, asked.weight) if tensor is not None]
