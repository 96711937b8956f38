"""The kernels of a call that cube cores run: grad_input and grad_weight, each one product.

Around each stand the changes of layout that it needs (TransData), as kernels where the product runs some for
them. Each gradient changes grad_output for itself there: an AlexNet step on the 910B2 shows it twice a layer.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from ascendsim.numerics.accumulation import Accumulation, MathSettings
from ascendsim.ops.lowering.call import (
    Call,
    by_winograd,
    merges,
    narrow_blocks,
    not_modelled,
    oversized_blocks,
    padded_rows,
    squeezed,
    vector_overflow,
)
from ascendsim.ops.lowering.graph import GraphBuilder
from ascendsim.ops.lowering.kernel_types import grad_input_type, grad_weight_type
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
from ascendsim.ops.plan import Plan
from ascendsim.ops.problems.convolution import ConvProblem, Triple, activation, merged
from ascendsim.ops.problems.folded import AXES, Dilated
from ascendsim.ops.problems.strips import View
from ascendsim.ops.schedules.base import Schedule
from ascendsim.ops.schedules.vector.boxes import transdata
from ascendsim.ops.schedules.vector.dilation import DilationTensors, dilation
from ascendsim.ops.schedules.vector.elementwise import cast, flat, ordered_sum, zero_fill
from ascendsim.ops.schedules.vector.regroup import Regroup, regroup
from ascendsim.ops.schedules.vector.relayout import Relayout
from ascendsim.profile import Profile
from ascendsim.program.kernel import Kernel, Phase
from ascendsim.program.places import GmTensor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class VectorKernels(NamedTuple):
    """Appends kernels of the vector cores to a graph.

    The accumulation model is only carried along for the reports.
    """

    graph: GraphBuilder
    profile: Profile
    accumulation: Accumulation

    def contiguous(self, name: str, view: View) -> None:
        """Append the kernel that copies a strided tensor into row-major order.

        The host has put its elements into GM in their order; where they lie counts only for the bytes read.
        """
        self._gather(f"contiguous_{name}", name, flat(self.graph.now(name)), view, "Contiguous")

    def transpose(self, name: str, axes: tuple[int, ...]) -> None:
        """Append the kernel that permutes the axes of a contiguous tensor."""
        given = self.graph.now(name)
        before = replace(flat(given), permuted=(given.shape, axes))
        kernel = self.graph.fresh(f"transpose_{name}")
        self._gather(kernel, name, before, View.row_major(given.shape).permuted(axes), "Transpose")

    def _gather(self, kernel: str, name: str, before: GmTensor, view: View, op_type: str) -> None:
        from ascendsim.ops.schedules.vector.dilation import gather

        after = self.graph.make(name, (view.size,), before.dtype, f"{name} in order")
        phase = gather(self.profile, before, view, after)
        facts: dict[str, object] = {"shape": view.shape, "strides": view.strides}
        self._add(
            kernel, (phase,), (before, after), "float32", facts, op_type=op_type, recipe=("gather", view)
        )
        self.graph.holds(name, after, view.shape)

    def view_copy(self, name: str, view: View) -> None:
        """Append the kernel that puts a gradient into memory where its elements lie in places of their own.

        The host takes them out of GM in their order; where they lie counts only for the bytes written.
        """
        from ascendsim.ops.schedules.vector.dilation import scatter

        given = self.graph.now(name)
        before = flat(given)
        after = self.graph.make(name, before.shape, before.dtype, f"{name} in its places")
        phase = scatter(self.profile, before, view, after)
        facts: dict[str, object] = {"shape": view.shape, "strides": view.strides}
        tensors, recipe = (before, after), ("scatter", view)
        self._add(f"viewcopy_{name}", (phase,), tensors, "float32", facts, op_type="ViewCopy", recipe=recipe)
        self.graph.holds(name, after, view.shape)

    def transdata(self, kernel: str, change: Relayout) -> None:
        """Append the kernel that changes the layout of a tensor."""
        tensors = change.source, change.target
        again = self.graph.maker_of(change.target)
        # The same work is planned and timed once for all kernels that do it.
        phases = again.phases if again else (transdata(self.profile, change),)
        # As bits, which nothing rounds: Inf stays Inf where conversions saturate.
        name = self.graph.fresh(kernel)
        self._add(name, phases, tensors, "float32", op_type="TransData", recipe=change.recipe)

    def regroup(self, name: str, change: Regroup) -> None:
        """Append the MemSet of a weight in the cube's layout, and the kernel that regroups into its zeros."""
        self.clear(f"regrouped_{name}", change.target)
        tensors, phases = (change.source, change.target), (regroup(self.profile, change),)
        self._add(f"regroup_{name}", phases, tensors, "float32", op_type="TransData", recipe=change.recipe)

    def dilate(self, name: str, spreading: DilationTensors) -> None:
        """Append the kernel that spreads the pixels of a tensor in the cube's layout over zeros."""
        tensors, how = (spreading.source, spreading.target), (spreading.step, spreading.first)
        # As bits, like a change of layout.
        phases = (dilation(self.profile, spreading),)
        recipe = "dilation", *how
        self._add(f"dilation_{name}", phases, tensors, "float32", op_type="Dilation", recipe=recipe)

    def convert(self, name: str, target: str, kernel: str = "", note: str = "") -> None:
        """Append the kernel that converts one whole tensor.

        kernel   its name if it is no plain cast
        note     what a reader of the result must know about it
        """
        given = self.graph.now(name)
        before, size = flat(given), (prod(given.shape),)
        after = self.graph.make(name, size, target, f"{name} in {target}")
        phase = cast(self.profile, before, after)
        label, tensors = kernel or f"cast_{name}", (before, after)
        self._add(label, (phase,), tensors, target, note=note, op_type="Cast", recipe="cast")
        self.graph.holds(name, after, given.shape)

    def grad_bias(self, asked: str, made: str) -> None:
        """Append the kernel that sums grad_output over batch and space, and the cast of its result.

        Shapes   grad_output (N, C, spatial...) -> (C,)
        Types    sums are in float32 and leave in the format `made`; grad_bias has the one `asked` for
        """
        # Imported here, as those of strided tensors are: most calls ask for neither.
        from ascendsim.ops.schedules.vector.channel_sums import bias_parts, lane_sums

        given = self.graph.now("grad_output")
        batch, channels = given.shape[:2]
        source = replace(given, shape=(batch, channels, prod(given.shape[2:])))
        parts = bias_parts(self.profile, batch, channels)
        target = self.graph.make("grad_bias", (1, channels) if parts == 1 else (channels,), made)
        sums = target
        # Parts stay in float32 until they are added; one part is converted as it is written.
        if parts > 1:
            sums = GmTensor.of("partial sums", (parts, channels), "float32", "workspace")
        phases = [lane_sums(self.profile, source, sums)]
        if parts > 1:
            phases.append(ordered_sum(self.profile, sums, target))
        tensors = source, sums, target
        self._add("grad_bias", tuple(phases), tensors, made, op_type="ReduceSum", recipe="channel sums")
        self.graph.holds("grad_bias", target, (channels,))
        if asked != made:
            self.convert("grad_bias", asked, note=squeezed("grad_bias", made, asked))

    def fill(self, name: str, shape: tuple[int, ...], dtype: str, value: float = 0.0) -> None:
        """Append the kernel that sets every element of a gradient to one value; without elements, none."""
        if not prod(shape):
            return
        made = self.graph.make(name, (prod(shape),), dtype)
        phase = zero_fill(self.profile, made, value)
        self._add(f"fill_{name}", (phase,), (made,), dtype, op_type="Fill", recipe="fill")
        self.graph.holds(name, made, shape)

    def clear(self, name: str, tensor: GmTensor) -> None:
        """Append the kernel (MemSet) that writes zeros where the next one adds; `name` is what it makes."""
        made = flat(tensor)
        phase = zero_fill(self.profile, made)
        self._add(f"memset_{name}", (phase,), (made,), tensor.dtype, op_type="MemSet", recipe="fill")

    def _add(
        self,
        name: str,
        phases: tuple[Phase, ...],
        tensors: tuple[GmTensor, ...],
        target: str,
        facts: dict[str, object] | None = None,
        note: str = "",
        op_type: str = "",
        *,
        recipe: Hashable,
    ) -> None:
        """Append a kernel whose results have format `target`; `recipe` says how it is made of its tensors."""
        math = MathSettings(self.accumulation, overflow=vector_overflow(self.profile, target))
        named = {tensor.name: tensor for tensor in tensors}
        facts = facts or {}
        made = Kernel(name, phases, named, math, note=note, facts=facts, op_type=op_type, recipe=recipe)
        self.graph.add(made)


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
) -> Kernel:
    """Return the kernel of a product under its schedule; its facts hold the plan."""
    tensors = {tensor.name: tensor for tensor in schedule.tensors}
    facts = {"plan": plan}
    named = name, schedule.phases(), tensors, math, macs, compute_dtype, note
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
    told: tuple[str, ...] = merges(call, gradient), padded_rows(call, gradient), not_modelled(call, gradient)
    told += narrow_blocks(call, gradient, schedule), oversized_blocks(call, gradient, schedule)
    told += by_winograd(schedule), note
    notes = " ".join(filter(None, told))
    plan = call.plans[gradient]
    return product_kernel(gradient, schedule, plan, math, macs, call.compute_dtype, op_type, notes)


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
