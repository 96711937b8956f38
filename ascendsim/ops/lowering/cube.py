"""The kernels of a call that cube cores run: grad_input and grad_weight, each one product."""

from __future__ import annotations

from ascendsim.numerics.accumulation.settings import MathSettings
from ascendsim.ops.lowering.call import Call
from ascendsim.ops.lowering.graph import GraphBuilder
from ascendsim.ops.lowering.layouts import pack_activation, pack_weight, unpack_activation, unpack_weight
from ascendsim.ops.lowering.notes import not_modelled
from ascendsim.ops.lowering.vector import VectorKernels
from ascendsim.ops.plan import Plan
from ascendsim.ops.problems.packed import activation
from ascendsim.ops.schedules.base import Schedule
from ascendsim.program.kernel import Kernel


def product_kernel(
    name: str,
    schedule: Schedule,
    plan: Plan,
    math: MathSettings,
    macs: int,
    compute_dtype: str,
    note: str = "",
) -> Kernel:
    """Return the kernel of a product under its schedule; its facts hold the plan."""
    tensors = {tensor.name: tensor for tensor in schedule.tensors}
    return Kernel(name, schedule.phases(), tensors, math, macs, compute_dtype, note, facts={"plan": plan})


def grad_input(call: Call, graph: GraphBuilder) -> None:
    """Append the kernel of grad_input, which writes the format in which it leaves the cube."""
    p, c0, schedule = call.problem, call.c0, call.schedule("grad_input")
    gemm = schedule.gemm
    _pack(call, graph, "grad_output")
    graph.packed("weight", gemm.weights, lambda w: pack_weight(w, p, c0, reduce_small=not p.transposed))
    graph.add(_kernel(call, "grad_input", schedule))
    channels = p.small_channels if p.transposed else p.big_channels
    graph.unpacked("grad_input", gemm.output, p.input, lambda v: unpack_activation(v, channels, p.input))


def grad_weight(call: Call, graph: GraphBuilder) -> None:
    """Append the kernel of grad_weight, which writes float32."""
    p, c0, schedule = call.problem, call.c0, call.schedule("grad_weight")
    _pack(call, graph, "grad_output")
    _pack(call, graph, "input")
    if schedule.cleared_apart:
        VectorKernels(graph, call.profile, call.accumulation).clear("grad_weight", schedule.gemm.output)
    graph.add(_kernel(call, "grad_weight", schedule))
    output = schedule.gemm.output
    graph.unpacked("grad_weight", output, p.weight, lambda packed: unpack_weight(packed, p, c0))


def _kernel(call: Call, gradient: str, schedule: Schedule) -> Kernel:
    """Return the kernel that makes a gradient by its schedule."""
    macs, math, note = call.problem.macs, call.math(gradient), not_modelled(call, gradient)
    return product_kernel(gradient, schedule, call.plans[gradient], math, macs, call.compute_dtype, note)


def _pack(call: Call, graph: GraphBuilder, name: str) -> None:
    """Bring grad_output or input into the cube's layout."""
    p, c0 = call.problem, call.c0
    big = p.transposed == (name == "grad_output")
    size, channels = (p.big_size, p.big_channels) if big else (p.small_size, p.small_channels)
    target = activation(name, p, size, channels, call.storage)
    graph.packed(name, target, lambda values: pack_activation(values, p.groups, size, c0))
