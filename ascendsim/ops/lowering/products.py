"""The kernels of a gradient that is one matrix product of tensors of the call as they lie in memory."""

from __future__ import annotations

from dataclasses import replace

from ascendsim.ops.lowering.call import Call
from ascendsim.ops.lowering.cube import product_kernel
from ascendsim.ops.lowering.graph import GraphBuilder
from ascendsim.ops.lowering.vector import VectorKernels
from ascendsim.ops.problems.as_product import GradientProduct


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
