"""The kernels of a call that cube cores run: grad_input and grad_weight, each one product.

Around each stand the changes of layout that it needs (TransData), as kernels where the product runs some for
them. Each gradient changes grad_output for itself there: an AlexNet step on the 910B2 shows it twice a layer.
"""

from __future__ import annotations

from ascendsim.numerics.accumulation.settings import MathSettings
from ascendsim.ops.lowering.call import Call
from ascendsim.ops.lowering.graph import GraphBuilder
from ascendsim.ops.lowering.layouts import pack_activation, pack_weight, unpack_activation, unpack_weight
from ascendsim.ops.lowering.notes import not_built, not_modelled
from ascendsim.ops.lowering.op_types import grad_input_type, grad_weight_type, writes_rows
from ascendsim.ops.lowering.relayouts import activation_in, activation_out, weight_in, weight_out
from ascendsim.ops.lowering.vector import VectorKernels
from ascendsim.ops.plan import Plan
from ascendsim.ops.problems.packed import activation
from ascendsim.ops.schedules.base import Schedule
from ascendsim.program.kernel import Kernel
from ascendsim.program.places import GmTensor

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
    phases = schedule.phases()
    return Kernel(name, phases, tensors, math, macs, compute_dtype, note, facts=facts, op_type=op_type)


def grad_input(call: Call, graph: GraphBuilder) -> None:
    """Append the kernel of grad_input, which writes the format in which it leaves the cube."""
    p, schedule = call.problem, call.schedule("grad_input")
    gemm, back = schedule.gemm, not p.transposed
    c0, unit = gemm.sliding.c0, gemm.out_c0
    _pack(call, graph, "grad_output", gemm.source)
    if call.generation.changes_layouts:
        change = weight_in(graph.now("weight"), gemm.weights, p, reduce_small=back)
        _vector(call, graph).transdata("transdata_weight", change)
    else:
        graph.packed("weight", gemm.weights, lambda w: pack_weight(w, p, c0, reduce_small=back, unit=unit))
    # Where every kernel does, a note of the call says it.
    rows = writes_rows(call)
    note = WRITES_ROWS if rows and call.generation.changes_layouts else ""
    graph.add(_product(call, "grad_input", schedule, grad_input_type(call), note))
    channels = p.small_channels if p.transposed else p.big_channels
    if rows:
        graph.unpacked("grad_input", gemm.output, p.input, lambda v: unpack_activation(v, channels, p.input))
        return
    made = graph.make("grad_input", p.input, gemm.output.dtype)
    change_back = activation_out(gemm.output, made, p.input, p.groups)
    _vector(call, graph).transdata("transdata_grad_input", change_back)
    graph.holds("grad_input", made, p.input)


def grad_weight(call: Call, graph: GraphBuilder) -> None:
    """Append the kernel of grad_weight, which writes float32."""
    p, c0, schedule = call.problem, call.c0, call.schedule("grad_weight")
    _pack(call, graph, "grad_output")
    _pack(call, graph, "input")
    if schedule.cleared_apart:
        _vector(call, graph).clear("grad_weight", schedule.gemm.output)
    graph.add(_product(call, "grad_weight", schedule, grad_weight_type(call)))
    output = schedule.gemm.output
    if not call.generation.changes_layouts:
        graph.unpacked("grad_weight", output, p.weight, lambda packed: unpack_weight(packed, p, c0))
        return
    made = graph.make("grad_weight", p.weight, output.dtype)
    _vector(call, graph).transdata("transdata_grad_weight", weight_out(output, made, p, c0))
    graph.holds("grad_weight", made, p.weight)


def _product(call: Call, gradient: str, schedule: Schedule, op_type: str, note: str = "") -> Kernel:
    """Return the kernel that makes a gradient by its schedule."""
    macs, math = call.problem.macs, call.math(gradient)
    notes = " ".join(filter(None, (not_modelled(call, gradient), not_built(call, gradient), note)))
    plan = call.plans[gradient]
    return product_kernel(gradient, schedule, plan, math, macs, call.compute_dtype, op_type, notes)


def _vector(call: Call, graph: GraphBuilder) -> VectorKernels:
    return VectorKernels(graph, call.profile, call.accumulation)


def _pack(call: Call, graph: GraphBuilder, name: str, target: GmTensor | None = None) -> None:
    """Bring grad_output or input into the cube's layout: the usual one, or that of a tensor."""
    p = call.problem
    big = p.transposed == (name == "grad_output")
    size, channels = (p.big_size, p.big_channels) if big else (p.small_size, p.small_channels)
    target = target or activation(name, p, size, channels, call.storage)
    c0 = target.shape[-1]
    if call.generation.changes_layouts:
        change = activation_in(graph.now(name), target, p.groups)
        _vector(call, graph).transdata(f"transdata_{name}", change)
    else:
        graph.packed(name, target, lambda values: pack_activation(values, p.groups, size, c0))
