"""The steps of a call that cube cores run: grad_input and grad_weight, each one product.

Relayout between the user's NCHW and the cube's NC1HWC0 happens between the steps, on the host side of the
simulator: its kernels (TransData) are not part of the call's cycles yet.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from ascendsim.ops.lowering.call import Call, Node, gm_tensor
from ascendsim.ops.lowering.layouts import (
    groups_of,
    pack_activation,
    pack_weight,
    unpack_activation,
    unpack_weight,
)
from ascendsim.ops.plan import Tiling
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.dgrad import DgradGemm
from ascendsim.ops.problems.sliding import Sliding
from ascendsim.ops.problems.wgrad import WgradGemm
from ascendsim.ops.schedules.dgrad.tasks import DgradTasks
from ascendsim.ops.schedules.vector.elementwise import cast, ordered_sum, tree_sum, zero_fill
from ascendsim.ops.schedules.wgrad.tasks import WgradTasks
from ascendsim.ops.tiling.search.dgrad import dgrad_tiling
from ascendsim.ops.tiling.search.wgrad import wgrad_tiling
from ascendsim.program.kernel import Kernel, Phase
from ascendsim.program.places import GmTensor

if TYPE_CHECKING:
    from ascendsim.ops.lowering.call import Tensors


def dgrad_gemm(call: Call) -> DgradGemm:
    """Describe grad_input: the backward direction, or the forward one when the convolution is transposed."""
    p, c0, storage = call.problem, call.c0, call.storage
    forward = p.transposed
    source_size, out_size = (p.big_size, p.small_size) if forward else (p.small_size, p.big_size)
    reduced, columns = (p.big_channels, p.small_channels) if forward else (p.small_channels, p.big_channels)
    c1 = groups_of(reduced, c0)
    n1 = groups_of(columns, c0)
    pads = [p.pads[axis][0] for axis in range(3)]
    if forward:
        stride, insert, pad = p.strides[1:], (1, 1), (pads[1], pads[2])
    else:
        # The first tap read by output row y is at y - pad + (kernel - 1) * dilation, walking taps backwards.
        stride, insert = (1, 1), p.strides[1:]
        pad = tuple((p.kernel[a] - 1) * p.dilations[a] - pads[a] for a in (1, 2))  # type: ignore[assignment]
    sliding = Sliding(
        out_size[1:],
        source_size[1:],
        p.kernel[1:],
        stride,
        p.dilations[1:],
        pad,
        insert,
        c0,
        storage.itemsize,
    )
    groups, batch = p.groups, p.batch
    return DgradGemm(
        gm_tensor("source", (groups, batch, source_size[0], c1, *source_size[1:], c0), storage.name, "input"),
        gm_tensor("weight", (groups, p.kernel[0], c1, *p.kernel[1:], c0, n1 * c0), storage.name, "input"),
        gm_tensor(
            "grad_input",
            (groups, batch, out_size[0], n1, out_size[1] * out_size[2], c0),
            storage.name,
            "output",
        ),
        sliding,
        tuple(_depth_pairs(p, depth, forward=forward) for depth in range(out_size[0])),
        not forward,
        call.compute_dtype,
    )


def _depth_pairs(p: ConvProblem, out: int, *, forward: bool) -> tuple[tuple[int, int], ...]:
    """Return the (kernel depth, source depth) pairs that reach one output depth."""
    stride, dilation, pad = p.strides[0], p.dilations[0], p.pads[0][0]
    pairs = []
    for tap in range(p.kernel[0]):
        if forward:
            source, rest = out * stride + tap * dilation - pad, 0
            limit = p.big_size[0]
        else:
            source, rest = divmod(out + pad - tap * dilation, stride)
            limit = p.small_size[0]
        if rest == 0 and 0 <= source < limit:
            pairs.append((tap, source))
    return tuple(pairs)


def grad_input(call: Call) -> Node:
    """Return the kernel of grad_input, which writes the format that the cube multiplies."""
    spec = dgrad_gemm(call)
    plan = call.tilings.get("grad_input") or dgrad_tiling(spec, call.profile)
    schedule, phases = _dgrad_phases(call, spec, plan)
    tensors = (spec.source, spec.weights, spec.output, schedule.target)
    operation = "convolution_forward" if call.problem.transposed else "convolution_backward"
    kernel = Kernel(
        "grad_input",
        phases,
        {tensor.name: tensor for tensor in tensors},
        call.cube_math(operation, spec.output.dtype, by_vector=schedule.workspace is not None),
        call.problem.macs,
        call.compute_dtype,
        facts={"tiling": plan},
    )
    p = call.problem

    def bind(tensors: Tensors) -> Tensors:
        size = p.big_size if p.transposed else p.small_size
        source = pack_activation(call.multiplied(tensors["grad_output"]), p.groups, size, call.c0)
        weight = call.multiplied(tensors["weight"])
        return {
            "source": source,
            "weight": pack_weight(weight, p, call.c0, reduce_small=not p.transposed),
        }

    def collect(gm: Tensors) -> Tensors:
        channels = p.small_channels if p.transposed else p.big_channels
        return {"grad_input": unpack_activation(gm["grad_input"], channels, p.input)}

    return Node(kernel, bind, collect)


def _dgrad_phases(call: Call, spec: DgradGemm, plan: Tiling) -> tuple[DgradTasks, tuple[Phase, ...]]:
    """Return the schedule of grad_input and all phases of its kernel.

    A reduction in parts adds them in float32, in order, to zeros in GM; a narrower result is then cast.
    """
    split = plan.k_split > 1
    workspace = None
    if split and spec.output.dtype != "float32":
        workspace = gm_tensor("sums", spec.output.shape, "float32", "workspace")
    schedule = DgradTasks(spec, plan, call.profile, workspace=workspace)
    phases = [schedule.phase()]
    if split or not all(spec.depths):
        phases.insert(0, zero_fill(call.profile, _flat(schedule.target)))
    if workspace is not None:
        phases.append(cast(call.profile, _flat(workspace), _flat(spec.output)))
    return schedule, tuple(phases)


def _flat(tensor: GmTensor) -> GmTensor:
    return replace(tensor, shape=(prod(tensor.shape),))


def wgrad_gemm(call: Call) -> WgradGemm:
    """Describe grad_weight: the small side against the big side under the kernel."""
    p, c0, storage = call.problem, call.c0, call.storage
    small1, big1 = groups_of(p.small_channels, c0), groups_of(p.big_channels, c0)
    pad = (p.pads[1][0], p.pads[2][0])
    small, big = p.small_size, p.big_size
    sliding = Sliding(
        small[1:], big[1:], p.kernel[1:], p.strides[1:], p.dilations[1:], pad, (1, 1), c0, storage.itemsize
    )
    depths = tuple(
        tuple(
            (out, source)
            for out in range(small[0])
            if 0 <= (source := out * p.strides[0] + tap * p.dilations[0] - p.pads[0][0]) < big[0]
        )
        for tap in range(p.kernel[0])
    )
    columns = big1 * p.kernel[1] * p.kernel[2] * c0
    return WgradGemm(
        gm_tensor(
            "small", (p.groups, p.batch, small[0], small1, small[1] * small[2], c0), storage.name, "input"
        ),
        gm_tensor("big", (p.groups, p.batch, big[0], big1, *big[1:], c0), storage.name, "input"),
        gm_tensor("grad_weight", (p.groups, p.kernel[0], small1 * c0, columns), "float32", "output"),
        sliding,
        depths,
        call.compute_dtype,
    )


def grad_weight(call: Call) -> Node:
    """Return the kernel of grad_weight, which writes float32."""
    spec = wgrad_gemm(call)
    plan = call.tilings.get("grad_weight") or wgrad_tiling(spec, call.profile)
    schedule, phases = _wgrad_phases(call, spec, plan)
    tensors = (spec.small, spec.big, spec.output, schedule.target)
    kernel = Kernel(
        "grad_weight",
        phases,
        {tensor.name: tensor for tensor in tensors},
        call.math,
        call.problem.macs,
        call.compute_dtype,
        facts={"tiling": plan},
    )
    p = call.problem

    def bind(given: Tensors) -> Tensors:
        small, big = ("input", "grad_output") if p.transposed else ("grad_output", "input")
        packed = pack_activation(call.multiplied(given[small]), p.groups, p.small_size, call.c0)
        return {
            "small": packed.reshape(spec.small.shape),
            "big": pack_activation(call.multiplied(given[big]), p.groups, p.big_size, call.c0),
        }

    def collect(gm: Tensors) -> Tensors:
        return {"grad_weight": unpack_weight(gm["grad_weight"], p, call.c0)}

    return Node(kernel, bind, collect)


def _wgrad_phases(call: Call, spec: WgradGemm, plan: Tiling) -> tuple[WgradTasks, tuple[Phase, ...]]:
    """Return the schedule of grad_weight and all phases of its kernel.

    Parts of the reduction are added atomically to zeros in GM, in the order in which they arrive, or kept
    apart and added in the fixed order of the generation.
    """
    split = plan.k_split > 1
    target = spec.output
    if split and call.deterministic:
        target = gm_tensor("parts", (plan.k_split, *spec.output.shape), "float32", "workspace")
    atomic = split and target is spec.output
    schedule = WgradTasks(spec, plan, call.profile, target, atomic)
    phases = [schedule.phase()]
    if schedule.has_gaps or atomic:
        phases.insert(0, zero_fill(call.profile, _flat(target)))
    if target is not spec.output:
        parts = replace(target, shape=(plan.k_split, prod(spec.output.shape)))
        if call.generation.deterministic_sum == "tree":
            phases += tree_sum(call.profile, parts, _flat(spec.output))
        else:
            phases.append(ordered_sum(call.profile, parts, _flat(spec.output)))
    return schedule, tuple(phases)
