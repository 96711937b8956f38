"""The backward of a layer of any kind: its kernels, what they take, and its gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from ascendsim.errors import ConfigError, ShapeError, UnsupportedError, items, refusal, truth
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.native.process import collector_paused
from ascendsim.numerics.dtypes import INT8
from ascendsim.ops.convolution_backward import estimate, tbc_call, tbc_graph
from ascendsim.ops.lowering import formats
from ascendsim.ops.lowering.call import GRADIENTS, INPUTS
from ascendsim.ops.lowering.graph import Graph, GraphBuilder, VectorKernels
from ascendsim.ops.lowering.kernels import lower
from ascendsim.ops.matmul import accumulation_of, append_product, product_notes
from ascendsim.ops.operands import Operand
from ascendsim.ops.options.asked import formats_of_three, planned_call
from ascendsim.ops.options.call import Options, options_of, order_given
from ascendsim.ops.options.keywords import CallOptions, Keywords
from ascendsim.ops.plan import Plan
from ascendsim.ops.problems.convolution import full_name, stored_name
from ascendsim.ops.problems.layers import LayerProblem, ProductLayer, TbcLayer
from ascendsim.ops.problems.views import View
from ascendsim.ops.results import ConvolutionBackwardResult, Estimate, KernelResult
from ascendsim.ops.running import common_fields, name_of, run_graph, time_graph
from ascendsim.ops.tiling.given import plan_of, schedules_given, tilings_given
from ascendsim.ops.tiling.request import PlanRequest
from ascendsim.program.places import GmTensor
from ascendsim.rules import ConvTbcBackwardCall, TensorDescription, resolve
from ascendsim.timing.l2 import l2_note

if TYPE_CHECKING:
    from ascendsim.ops.options.asked import Format, Mask

PRODUCT_NOTE = "The gradients of this layer are matrix products, which no rule set of convolutions checks."
TBC_NOTE = "The interface of conv_tbc has no mask: all three gradients are made."


class LoweredLayer(NamedTuple):
    """The kernels of a layer's backward.

    formats   of its tensors, by the call's names
    fields    of an `Estimate`, for the times of the kernels
    """

    graph: Graph
    formats: Mapping[str, str]
    fields: Callable[[list[KernelResult]], dict[str, Any]]


@default_arithmetic
@collector_paused()
def estimate_layer(
    problem: LayerProblem,
    dtype: Format | Sequence[Format] = "float16",
    cube_math_type: int = 0,
    *,
    output_mask: Mask = (True, True, True),
    strides: Mapping[str, Sequence[int]] | None = None,
    stop_above: int | None = None,
    **keywords: Unpack[CallOptions],
) -> Estimate:
    """Estimate the cycles of the backward of a layer of any kind: as `estimate` does those of a convolution.

    Layers   `ConvProblem`, `ProductLayer` (linear, or a product of two activations: each gradient is one
             matrix product) or `TbcLayer`, whose interface has no mask
    Raises   as `estimate`; UnsupportedError for operands of a product in several formats
    """
    if not isinstance(problem, ProductLayer | TbcLayer):
        asked: dict[str, Any] = {"output_mask": output_mask, "strides": strides, "stop_above": stop_above}
        return estimate(problem, dtype, cube_math_type, **asked, **keywords)
    if strides is not None:
        raise ConfigError(f"estimate_layer: strides are of a convolution's tensors, not of a {problem.kind}")
    options = options_of("estimate_layer", keywords)
    graph, _, fields = lowered_layer(problem, options, dtype, cube_math_type, output_mask)
    machine = options.profile, options.l2_start, options.engine
    return Estimate(**fields(time_graph(options.within(graph), *machine, stop_above=stop_above)))


@default_arithmetic
def product_backward(
    grad_output: Any,
    input: Any,
    weight: Any,
    linear: bool,
    output_mask: Mask = (True, True, True),
    cube_math_type: int = 0,
    *,
    order: str | int = "program",
    **keywords: Unpack[CallOptions],
) -> ConvolutionBackwardResult:
    """Compute the gradients of a matrix product bit for bit as `matmul` makes each, and the cycles they take.

    Shapes   as of `ProductLayer`: input (..., k) and weight (n, k) where it is `linear`, else (..., m, k) and
             (..., k, n); grad_output is that of the result. grad_bias, of a linear layer, is (n,)
    Order, keywords  as of `convolution_backward`
    Raises   ShapeError, UnsupportedError, ConfigError, CapacityError: all AscendSimError
    """
    options = options_of("product_backward", keywords)
    order = order_given(order)
    given = zip(INPUTS, (grad_output, input, weight), strict=True)
    operands = {name: Operand.of(value, name) for name, value in given}
    problem = ProductLayer(operands["input"].view.shape, operands["weight"].view.shape, linear)
    shapes = [operand.view.shape for operand in operands.values()]
    options.require_room(*shapes, *shapes)
    if operands["grad_output"].view.shape != problem.grad_output:
        raise ShapeError(
            f"product_backward: grad_output has shape {operands['grad_output'].view.shape}; the result of "
            f"input and weight has {problem.grad_output}"
        )
    names = [operand.dtype for operand in operands.values()]
    graph, dtypes, fields = lowered_layer(problem, options, names, cube_math_type, output_mask)
    carriers = {name: operand.carrier() for name, operand in operands.items()}
    machine = options.profile, options.l2_start
    results, made = run_graph(options.within(graph), *machine, carriers, order, options.engine)
    gradients: dict[str, Any] = {
        name: formats.stored(made[name], dtypes[name]) if name in made else None for name in GRADIENTS
    }
    return ConvolutionBackwardResult(**fields(results), **gradients, order=name_of(order))


def lowered_layer(
    problem: LayerProblem,
    options: Options,
    dtype: Format | Sequence[Format] = "float16",
    cube_math_type: int = 0,
    output_mask: Mask = (True, True, True),
) -> LoweredLayer:
    """Return the kernels of a layer of any kind.

    Raises   as `estimate_layer`
    """
    if isinstance(problem, TbcLayer):
        return _tbc(problem, options, dtype, cube_math_type)
    if isinstance(problem, ProductLayer):
        return _products(problem, options, dtype, cube_math_type, output_mask)
    decision, call = planned_call(problem, options, dtype, cube_math_type, output_mask)

    def fields(results: list[KernelResult]) -> dict[str, Any]:
        return common_fields(options, decision, str(call.accumulation), results, call.plans)

    options.require_products(call, decision.wanted)
    return LoweredLayer(lower(call, decision.wanted), call.dtypes, fields)


def _tbc(
    problem: TbcLayer, options: Options, dtype: Format | Sequence[Format], cube_math_type: int
) -> LoweredLayer:
    names = formats_of_three(dtype)
    if options.layout != Keywords.layout:
        raise ConfigError(f"conv_tbc: layout is {options.layout}; its tensors lie row after row alone")
    shapes = dict(zip(INPUTS, (problem.grad_output, problem.input, problem.weight), strict=True))
    shapes["bias"] = problem.weight[2:]
    # The bias has the format of grad_output, as the one that it is added to.
    described = [TensorDescription(*each) for each in zip(shapes.values(), (*names, names[0]), strict=True)]
    arguments: tuple[Any, ...] = (*described, problem.padding, cube_math_type)
    asked = ConvTbcBackwardCall(*arguments)
    usual = asked.with_usual_outputs(options.wanted_dtypes, (None, None, None))
    decision = resolve(usual, options.asked_product, options.rules)
    views = {name: View.row_major(shape) for name, shape in shapes.items()}
    views |= {grad: views[grad.removeprefix("grad_")] for grad in GRADIENTS}
    call = tbc_call(views, problem.padding, decision, options)
    options.require_products(call, decision.wanted)

    def fields(results: list[KernelResult]) -> dict[str, Any]:
        made = common_fields(options, decision, str(call.accumulation), results, call.plans)
        return made | {"notes": (*made["notes"], TBC_NOTE)}

    return LoweredLayer(tbc_graph(call, views, decision), decision.dtypes, fields)


def _products(
    problem: ProductLayer,
    options: Options,
    dtype: Format | Sequence[Format],
    cube_math_type: int,
    output_mask: Mask,
) -> LoweredLayer:
    """Return the kernels of a product's gradients.

    Kernels  the sum of grad_bias, from grad_output as given; conversions of the operands where the cube needs
             another format; the product of each gradient
    """
    given, compute = _formats(dtype, cube_math_type, options)
    model, machine = accumulation_of(compute, options), options.profile
    mask = tuple(map(truth, items(output_mask) or ()))
    if len(mask) != len(GRADIENTS) or None in mask:
        raise refusal("output_mask", output_mask, f"three truth values, for {', '.join(GRADIENTS)}")
    wanted = [name for name, asked in zip(GRADIENTS, mask, strict=True) if asked]
    made = {name: one for name, one in problem.gradients.items() if name in wanted}
    plans = _plans(made, options, compute, given)
    shapes = zip(INPUTS, (problem.grad_output, problem.input, problem.weight), strict=True)
    graph = GraphBuilder({name: GmTensor.of(name, shape, given) for name, shape in shapes})
    on = VectorKernels(graph, machine, options.model(compute))
    if "grad_bias" in wanted and problem.linear:
        rows = graph.now("grad_output")
        graph.holds("grad_output", rows, (prod(rows.shape[:-1]), rows.shape[-1]))
        on.grad_bias(given, given)
    storage = stored_name(compute)
    for name in dict.fromkeys(name for one in made.values() for name in (one.left, one.right)):
        if given != storage:
            on.convert(name, storage)
    for gradient, (left, right, p) in made.items():
        op_type = "BatchMatMul" if p.batch > 1 else "MatMul"
        named = left, right, gradient
        append_product(
            graph, gradient, p, named, plans[gradient], (compute, given), (machine, model), op_type
        )
        shape = problem.input if gradient == "grad_input" else problem.weight
        graph.holds(gradient, graph.now(gradient), shape)
    said = {
        "product": machine.product,
        "variant": machine.variant,
        "compute_dtype": full_name(compute, machine),
        "accumulation": str(model),
        "notes": (
            *product_notes([(one.problem, plans[name]) for name, one in made.items()], options),
            l2_note(options.l2_start),
            PRODUCT_NOTE,
        ),
    }
    tensors = dict.fromkeys((*INPUTS, *GRADIENTS), given)
    return LoweredLayer(
        graph.build(tuple(wanted)), tensors, lambda results: said | {"kernels": tuple(results)}
    )


def _formats(dtype: Format | Sequence[Format], cube_math_type: int, options: Options) -> tuple[str, str]:
    """Return the format of the tensors, and the one in which the cube multiplies them."""
    names = formats_of_three(dtype)
    if options.output_dtypes is not None or options.wanted_strides:
        raise UnsupportedError("the gradients of a product have the format of its operands and no strides")
    if len(set(names)) > 1 or names[0] == INT8.name:
        raise UnsupportedError(
            f"the gradients of a product: the tensors are {', '.join(names)}; they must be of one "
            "floating-point format"
        )
    given = formats.operand_format(names[0])
    return given, formats.compute_format(given, cube_math_type, options.profile)


def _plans(made: Mapping[str, Any], options: Options, compute: str, out: str) -> dict[str, Plan]:
    """Return the plan of each product, as the user gives it by gradient, or chosen.

    Raises   ConfigError for a plan of a gradient that is not made
    """
    tilings = tilings_given(options.tiling, list(made))
    schedule = options.schedule
    schedules = dict.fromkeys(
        made, None if schedule is None else schedules_given(schedule, ["matmul"])["matmul"]
    )
    asked = compute, options.profile, out, False
    return {
        name: plan_of(PlanRequest(one.problem, "matmul", *asked), tilings.get(name), schedules[name])
        for name, one in made.items()
    }
