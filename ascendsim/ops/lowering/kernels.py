"""The kernels of a call, in the order in which the device runs them.

Around each product of the cube stand the changes of layout that it needs (TransData), as kernels where the
device runs some for them. Each gradient changes grad_output for itself there: an AlexNet step on the 910B2
shows it twice a layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from ascendsim.numerics.accumulation import MathSettings
from ascendsim.ops.lowering.call import GRADIENTS, INPUTS, Call, Mask
from ascendsim.ops.lowering.graph import Graph, GraphBuilder, VectorKernels
from ascendsim.ops.lowering.layouts import (
    activation_in,
    activation_out,
    block_diagonal,
    diagonal_blocks,
    gradient_of_one,
    join_groups,
    one_group,
    pack_activation,
    pack_weight,
    split_groups,
    unpack_activation,
    unpack_weight,
    weight_in,
    weight_of_one,
    weight_out,
    with_channels,
)
from ascendsim.ops.lowering.notes import product_notes, squeezed
from ascendsim.ops.plan import Plan
from ascendsim.ops.problems.convolution import ConvProblem, Triple, activation, merged
from ascendsim.ops.problems.folded import AXES, Dilated, GradientProduct
from ascendsim.ops.problems.products import takes_blocks
from ascendsim.ops.problems.views import View
from ascendsim.ops.schedules.base import Schedule
from ascendsim.ops.schedules.vector.boxes import transdata
from ascendsim.ops.schedules.vector.dilation import DilationTensors
from ascendsim.ops.schedules.vector.elementwise import flat, zero_fill
from ascendsim.ops.schedules.vector.relayout import Relayout
from ascendsim.program.kernel import Kernel, Phase
from ascendsim.program.places import GmTensor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# What one row of windows of the zero-filled grad_output may hold for the newer 3-D kernel.
MOST_WINDOW = 4096


def writes_rows(call: Call) -> bool:
    """Return whether no kernel changes the layout of grad_input: its own writes rows, or it stays packed."""
    core, p = call.generation, call.problem
    return not call.changes_layouts or (core.writes_rows_in_3d and p.rank == 3 and call.storage.bits == 16)


WRITES_ROWS = "It writes row after row; what that adds to the cycles of its writes is not modelled."


def product_kernel(
    name: str,
    schedule: Schedule,
    plan: Plan,
    math: MathSettings,
    macs: int,
    compute_dtype: str,
    op_type: str = "",
    note: str = "",
    mmads: int = 0,
) -> Kernel:
    """Return the kernel of a product under its schedule; its facts hold the plan, and its least Mmads."""
    tensors = {tensor.name: tensor for tensor in schedule.tensors}
    facts = {"plan": plan, "mmads": mmads or schedule.gemm.mmads(schedule.tiling.base)}
    named = name, schedule.phases_under(math), tensors, math, macs, compute_dtype, note
    return Kernel(*named, facts=facts, op_type=op_type, launched=schedule.launched)


def grad_input(call: Call, graph: GraphBuilder) -> None:
    """Append the kernel of grad_input, which writes the format in which it leaves the cube."""
    p, whole, schedule = call.problem, call.problem_of("grad_input"), call.schedule("grad_input")
    folded, output = call.folded("grad_input"), schedule.gemm.output
    given = fold(call, graph, "grad_input", ("grad_output",))
    _grad_output(call, graph, schedule.gemm.source)
    # Where every kernel does, a note of the call says it.
    rows = writes_rows(call)
    note = WRITES_ROWS if rows and call.changes_layouts else ""
    kernel = _product(call, "grad_input", schedule, grad_input_type(call), note)
    graph.add(_with_weights(call, graph, schedule, kernel))
    channels = whole.small_channels if p.transposed else whole.big_channels
    unfold(graph, given)
    if call.dilated and call.dilated.spreads == "grad_input":
        output = _dilated(call, graph, call.dilated, output)
    if rows:
        shape = folded.problem.input if folded else p.input

        def unpack(packed: NDArray[np.float32]) -> NDArray[np.float32]:
            made = unpack_activation(packed, channels, (*whole.input[:2], *shape[2:]))
            return with_channels(made, p.input[1])

        graph.unpacked("grad_input", output, shape, unpack)
        if folded:
            graph.holds("grad_input", graph.now("grad_input"), shape[1:])
            _vector(call, graph).transpose("grad_input", AXES)
        return
    made = graph.make("grad_input", p.input, output.dtype)
    _vector(call, graph).transdata("transdata_grad_input", activation_out(output, made, p.input, channels))
    graph.holds("grad_input", made, p.input)


def _grad_output(call: Call, graph: GraphBuilder, source: GmTensor) -> None:
    """Bring grad_output into what the kernel of grad_input reads."""
    dilated = call.dilated
    if dilated is None or dilated.spreads != "grad_output":
        _pack(call, graph, "grad_output", "grad_input", source)
        return
    p = merged(call.problem, call.merge_of("grad_input"))
    plain = activation("grad_output", p, p.small_size, p.small_channels, call.storage)
    _pack(call, graph, "grad_output", "grad_input", plain)
    _dilated(call, graph, dilated, plain, source)


def _dilated(
    call: Call, graph: GraphBuilder, dilated: Dilated, source: GmTensor, target: GmTensor | None = None
) -> GmTensor:
    """Append the Dilation of a tensor (groups, N, 1, C1, pixels..., C0); return its result.

    target   a tensor for the result; None: (groups, N, 1, C1, H * W, C0), as the cube leaves it
    """
    outer, c0, planes = source.shape[:4], source.shape[-1], prod(source.shape[:4])
    # Both ways it is the small side whose pixels are spread.
    height, width = call.problem.small_size[1:]
    if target is None:
        shape = *outer, prod(dilated.size), c0
        target = replace(source, name=f"{source.name} dilated", shape=shape)
    folded = (
        replace(source, shape=(planes, height, width, c0), role="input"),
        replace(target, shape=(planes, *dilated.size, c0), role="output"),
    )
    _vector(call, graph).dilate(dilated.spreads, DilationTensors(*folded, dilated.step, dilated.first))
    return target


def _with_weights(call: Call, graph: GraphBuilder, schedule: Schedule, kernel: Kernel) -> Kernel:
    """Bring the weights into the layout that grad_input reads; return its kernel, which may do so itself."""
    p, gemm, back = call.problem, schedule.gemm, not call.problem.transposed
    target, c0, unit = gemm.weights, gemm.sliding.c0, gemm.out_c0
    merge, given = call.merge_of("grad_input"), graph.now("weight")
    turned = call.plans["grad_input"].tiling.transpose_first
    free = call.packed and call.generation.changes_layouts
    if free or (merge == 1 and not turned and not call.changes_layouts):
        whole = merged(p, merge)

        def pack(values: NDArray[np.float32]) -> NDArray[np.float32]:
            diagonal = block_diagonal(values, p, merge)
            return pack_weight(diagonal, whole, c0, reduce_small=back, unit=unit)

        graph.packed("weight", target, pack)
        return kernel
    if call.changes_layouts and p.groups > 1:
        # Weights become fractals of one group first, and these are regrouped.
        vector = _vector(call, graph)
        one = graph.make("weight", one_group(p, c0, gradient=False), given.dtype, "weight of one group")
        vector.transdata("transdata_weight", weight_of_one(given, one, p))
        vector.regroup("weight", split_groups(one, target, p, reduce_small=back, merge=merge))
        return kernel
    change = weight_in(given, target, p, reduce_small=back, merge=merge)
    if call.changes_layouts:
        _vector(call, graph).transdata("transdata_weight", change)
        return kernel
    # Its own vector cores make the block-diagonal weights, or turn all of them first.
    name = "diagonal weights" if merge > 1 else "turned weights"
    phase = transdata(call.profile, change)._replace(name=name)
    return _by_vector_cores(kernel, (phase, *kernel.phases), target, given)


def _by_vector_cores(
    kernel: Kernel, phases: tuple[Phase, ...], inside: GmTensor, outside: GmTensor
) -> Kernel:
    """Return a kernel whose vector cores change a layout in a phase of their own.

    inside    the tensor that the cube reads or writes, now a workspace; outside: the one of the call
    """
    own = {inside.name: replace(inside, role="workspace"), outside.name: outside}
    return replace(kernel, phases=phases, tensors={**kernel.tensors, **own})


def grad_weight(call: Call, graph: GraphBuilder) -> None:
    """Append the kernel of grad_weight, which writes float32."""
    c0, schedule, patches = call.c0, call.schedule("grad_weight"), call.patches
    p = patches.problem if patches else call.problem
    if patches:
        graph.holds("input", graph.now("input"), patches.split)
        _vector(call, graph).transpose("input", patches.axes)
        graph.holds("input", graph.now("input"), p.input)
    given = fold(call, graph, "grad_weight", ("grad_output", "input"))
    if not schedule.relaid:
        _pack(call, graph, "grad_output", "grad_weight")
        _pack(call, graph, "input", "grad_weight")
    merge = call.merge_of("grad_weight")
    # Its own vector cores pick what belongs to single groups out of merged ones, in a workspace.
    picks = merge > 1 and not call.generation.changes_layouts
    if schedule.cleared_apart and not picks:
        _vector(call, graph).clear("grad_weight", schedule.gemm.output)
    kernel, output = _product(call, "grad_weight", schedule, grad_weight_type(call)), schedule.gemm.output
    kernel = _relaid(call, graph, schedule, kernel)
    unfold(graph, given)
    if not picks and not call.changes_layouts:
        graph.add(kernel)
        shape, whole = call.problem.weight, merged(p, merge)

        def unpack(packed: NDArray[np.float32]) -> NDArray[np.float32]:
            return diagonal_blocks(unpack_weight(packed, whole, c0), p, merge).reshape(shape)

        graph.unpacked("grad_weight", output, shape, unpack)
        return
    made = graph.make("grad_weight", p.weight, output.dtype)
    if call.changes_layouts:
        graph.add(kernel)
        vector = _vector(call, graph)
        change: Relayout
        if p.groups > 1:
            # Their fractals become those of one group first.
            one = graph.make(
                "grad_weight", one_group(p, c0, gradient=True), output.dtype, "grad_weight of one group"
            )
            vector.regroup("grad_weight", join_groups(output, one, p, merge))
            change = gradient_of_one(one, made, p)
        else:
            change = weight_out(output, made, p, c0, merge)
        vector.transdata("transdata_grad_weight", change)
    else:
        change = weight_out(output, made, p, c0, merge)
        # Its own vector cores pick what belongs to single groups out of the merged ones.
        phase = transdata(call.profile, change)._replace(name="diagonal blocks")
        # What another kernel clears is no workspace of this one.
        zeros = (zero_fill(call.profile, flat(output)),) if schedule.cleared_apart else ()
        graph.add(_by_vector_cores(kernel, (*zeros, *kernel.phases, phase), output, made))
    graph.holds("grad_weight", made, call.problem.weight)


def fold(call: Call, graph: GraphBuilder, gradient: str, names: tuple[str, ...]) -> dict[str, GmTensor]:
    """Append the Transposes that bring the batch of these tensors into rows; return the earlier tensors."""
    folded = call.folded(gradient)
    given = {name: graph.now(name) for name in names} if folded else {}
    for name in given:
        _vector(call, graph).transpose(name, AXES)
        graph.holds(name, graph.now(name), (1, *graph.now(name).shape))
    return given


def unfold(graph: GraphBuilder, given: dict[str, GmTensor]) -> None:
    """Let later kernels see tensors as they were given; each gradient folds for itself."""
    for name, tensor in given.items():
        graph.holds(name, tensor, tensor.shape)


def _relaid(call: Call, graph: GraphBuilder, schedule: Schedule, kernel: Kernel) -> Kernel:
    """Return the kernel of grad_weight, whose vector cores may change the layout of its operands first."""
    p = call.problem_of("grad_weight")
    for name, target in schedule.relaid.items():
        given, (_, channels) = graph.now(name), _side(p, name)
        phase = transdata(call.profile, activation_in(given, target, channels))
        phase = phase._replace(name=f"re-lay {name}")
        kernel = _by_vector_cores(kernel, (phase, *kernel.phases), target, given)
    return kernel


def _product(call: Call, gradient: str, schedule: Schedule, op_type: str, note: str = "") -> Kernel:
    """Return the kernel that makes a gradient by its schedule."""
    macs, math = schedule.macs_of(call.problem), call.math(gradient)
    notes = " ".join(filter(None, (*product_notes(call, gradient, schedule), note)))
    plan = call.plans[gradient]
    if not plan.by_rule:
        plan = replace(plan, tiling=schedule.canonical)
    mmads = call.least_mmads(gradient, schedule)
    return product_kernel(gradient, schedule, plan, math, macs, call.compute_dtype, op_type, notes, mmads)


def _vector(call: Call, graph: GraphBuilder) -> VectorKernels:
    return VectorKernels(graph, call.profile, call.accumulation)


def _side(p: ConvProblem, name: str) -> tuple[Triple, int]:
    """Return the size of grad_output or input, and the channels of one group."""
    big = p.transposed == (name == "grad_output")
    return (p.big_size, p.big_channels) if big else (p.small_size, p.small_channels)


def _pack(call: Call, graph: GraphBuilder, name: str, gradient: str, target: GmTensor | None = None) -> None:
    """Bring grad_output or input into the layout that a gradient reads: the usual one, or a given one."""
    p = call.problem_of(gradient)
    size, channels = _side(p, name)
    target = target or activation(name, p, size, channels, call.storage)
    # Of the target: before a Dilation its pixels are those of the call, not of the kernel's problem.
    _, _, depth, _, height, width, c0 = target.shape
    if call.changes_layouts:
        change = activation_in(graph.now(name), target, channels)
        _vector(call, graph).transdata(f"transdata_{name}", change)
        return
    graph.packed(
        name,
        target,
        lambda values: pack_activation(
            with_channels(values, p.groups * channels), p.groups, (depth, height, width), c0
        ),
    )


def grad_input_type(call: Call) -> str:
    """Return the type of the kernel of grad_input.

    Source   operator interface code; the shapes that its own lists name are not known, and count as others
    """
    p = call.problem
    if p.transposed:
        # The gradient of a transposed convolution is a plain one; 910_95 sees every rank as a volume.
        return "Conv3DV2" if p.rank == 3 or not call.generation.changes_layouts else "Conv2D"
    if not call.generation.changes_layouts:
        return "Conv3DBackpropInputV2"
    if p.rank < 3:
        return "Conv2DBackpropInput"
    return "Conv3DBackpropInputV2" if _newer_input(call) else "Conv3DBackpropInput"


def _newer_input(call: Call) -> bool:
    """Return whether a 3-D grad_input takes the newer kernel."""
    p = call.problem
    _, stride, _ = p.strides
    window = min(2 + (p.kernel[1] - 1) * p.dilations[1], (p.small_size[1] - 1) * stride + 1)
    if window * p.small_size[2] * p.strides[2] > MOST_WINDOW:
        return False
    depth, height, width = p.big_size
    small = max(p.strides) <= 2 and max(map(max, p.pads)) <= 2 and max(p.kernel) <= 4
    return (
        call.storage.name == "float32" or p.groups > 1 or (small and height * width >= 5500 and depth <= 85)
    )


def grad_weight_type(call: Call) -> str:
    """Return the type of the kernel of grad_weight; source as `grad_input_type`."""
    p = call.problem
    if not call.generation.changes_layouts:
        return "Conv3DBackpropFilterV2"
    if p.rank < 3:
        # A deterministic sum needs the newer kernel, over a view with more axes; unified cores have none.
        newer = call.deterministic and call.profile.core_structure == "split"
        return "Conv3DBackpropFilterV2" if newer else "Conv2DBackpropFilter"
    return "Conv3DBackpropFilterV2" if _newer_weight(call) else "Conv3DBackpropFilter"


def _newer_weight(call: Call) -> bool:
    """Return whether a 3-D grad_weight takes the newer kernel."""
    p = call.patches.problem if call.patches else call.problem
    if call.storage.name == "float32" or max(p.dilations) > 1 or p.groups > 1 or call.deterministic:
        return True
    return takes_blocks(p.kernel, p.small_channels, p.big_channels)


def gradient_by_product(call: Call, graph: GraphBuilder, gradient: str, product: GradientProduct) -> None:
    """Append the kernel of a gradient that is one matrix product, and the Transpose of its axes, if any."""
    p, schedule = product.problem, call.schedule(gradient)
    a = replace(graph.now(product.left), shape=p.stored_a)
    b = replace(graph.now(product.right), shape=p.stored_b)
    c = graph.make(gradient, (p.batch, p.m, p.n), call.leaves_in(gradient))
    bound = replace(schedule, gemm=replace(schedule.gemm, a=a, b=b, c=c))
    plan, math = call.plans[gradient], call.math(gradient)
    op_type = "BatchMatMul" if p.batch > 1 else "MatMul"
    graph.add(product_kernel(gradient, bound, plan, math, p.macs, call.compute_dtype, op_type))
    graph.holds(gradient, c, product.result or call.shape_of(gradient))
    if product.axes:
        VectorKernels(graph, call.profile, call.accumulation).transpose(gradient, product.axes)
        graph.holds(gradient, graph.now(gradient), call.shape_of(gradient))


def lower(call: Call, output_mask: Mask) -> Graph:
    """Return the kernels of a call in the order in which the device runs them.

    Order    row-major copies of strided inputs (whatever is asked for, as the operator does), then as
             `append_gradients` says, then copies of gradients to places of their own
    """
    given = {name: GmTensor.of(name, call.shape_of(name), call.dtypes[name]) for name in INPUTS}
    graph = GraphBuilder(given)
    # Whatever is asked for: the operator makes its inputs contiguous before it looks at the mask.
    on = VectorKernels(graph, call.profile, call.accumulation)
    for name in INPUTS:
        if name in call.views:
            on.contiguous(name, call.views[name])
    append_gradients(call, output_mask, graph)
    wanted = tuple(name for name, asked in zip(GRADIENTS, output_mask, strict=True) if asked)
    append_view_copies(on, wanted, call.views)
    return graph.build(wanted)


def append_view_copies(on: VectorKernels, gradients: Iterable[str], views: Mapping[str, View]) -> None:
    """Append the copies (ViewCopy) of those gradients whose elements do not lie row after row."""
    for name in gradients:
        if name in views and not views[name].is_contiguous:
            on.view_copy(name, views[name])


def append_gradients(call: Call, output_mask: Mask, graph: GraphBuilder) -> None:
    """Append the kernels that make gradients of contiguous inputs.

    Order    the bias gradient from grad_output as given; casts to the compute type; grad_input and its cast;
             grad_weight and its casts
    """
    want_input, want_weight, want_bias = output_mask
    on = VectorKernels(graph, call.profile, call.accumulation)
    # First, from grad_output as it is given: the casts below may narrow it.
    if want_bias:
        on.grad_bias(call.dtypes["grad_bias"], call.leaves_in("grad_bias"))
    needed = {"grad_output": want_input or want_weight, "weight": want_input, "input": want_weight}
    for name, used in needed.items():
        if used and call.dtypes[name] != call.storage.name:
            on.convert(name, call.storage.name)
    if want_input:
        if product := call.as_product("grad_input"):
            gradient_by_product(call, graph, "grad_input", product)
        else:
            grad_input(call, graph)
        asked, made = call.dtypes["grad_input"], call.leaves_in("grad_input")
        if asked != made:
            on.convert("grad_input", asked, note=squeezed("grad_input", made, asked))
    if want_weight:
        if product := call.as_product("grad_weight"):
            gradient_by_product(call, graph, "grad_weight", product)
        else:
            grad_weight(call, graph)
        # The cube makes it in float32; squeezed, it has only the values of float16, whatever is asked for.
        if call.squeezed:
            note = squeezed("grad_weight", "float16", call.dtypes["grad_weight"])
            on.convert("grad_weight", "float16", "squeeze_grad_weight", note)
        if call.squeezed or call.dtypes["grad_weight"] != "float32":
            on.convert("grad_weight", call.dtypes["grad_weight"])
