"""The workspace that an operator of 910B, 910_93 or 910_95 asks for beside the tensors of its kernel.

One function a formula of the operators' host code; `operator_workspace` says which of them a plan needs.

Source   host code of the public operators (ops-nn at e5c3fa932), as read
"""

from __future__ import annotations

from ascendsim.ops.problems.winograd import CLUSTER, Clusters
from ascendsim.ops.tiling.vendor.arch35.winograd import POINTS, SIDE
from ascendsim.ops.tiling.vendor.layer import Layer, Machine, align, ceil_div
from ascendsim.ops.tiling.vendor.plan import VendorPlan

FLOAT32 = 4
# Two buffers, so that one is filled while the other is read.
COPIES = 2
TAPS = 9


def operator_workspace(
    plan: VendorPlan, layer: Layer, machine: Machine, gradient: str, arch: str, *, deterministic: bool = False
) -> int:
    """Return the bytes of workspace of one gradient's kernel under the operator's own plan.

    arch           the npu_arch: "2201" for 910B and 910_93, "3510" for 910_95
    deterministic  whether grad_weight is added in one order only
    """
    if gradient == "grad_input":
        if arch == "2201":
            return rows_from_l0c(machine) if layer.itemsize == 2 else 0
        return _grad_input_35(plan, layer, machine)
    if arch == "3510":
        if plan.strategy == "winograd":
            return winograd(layer, machine)
        return parts_in_l0c(machine) if plan.stream_ways > 1 else 0
    if not deterministic:
        return 0
    return stream_parts(plan) if plan.strategy == "basic_det" else base_tiles(plan, machine)


def _grad_input_35(plan: VendorPlan, layer: Layer, machine: Machine) -> int:
    """Return the sum of what the steps of a plan of 910_95 ask for."""
    asked = 0
    if plan.transpose_first:
        asked += turned_weights(layer)
    if plan.through_gm:
        asked += split_phases(plan, layer, machine)
    if plan.k_segment and layer.itemsize == 2:
        asked += float32_sums(plan, layer)
    return asked


def rows_from_l0c(machine: Machine) -> int:
    """Grad_input of 910B: a tile of L0C for each core, which its vector cores turn into rows of NCDHW."""
    return machine.cores * machine.l0c


def turned_weights(layer: Layer) -> int:
    """Grad_input of 910_95: all weights, turned, with the channels of input in whole fractals."""
    depth, height, width = layer.kernel
    return layer.co * depth * height * width * align(layer.ci) * layer.itemsize


def split_phases(plan: VendorPlan, layer: Layer, machine: Machine) -> int:
    """Grad_input of 910_95, kernel split both ways: four phases of a tile for each core, to interleave."""
    width = ceil_div(layer.input[2], 2)
    rows = ceil_div(plan.single_core_m or plan.base_m, width)
    return machine.cores * 4 * rows * align(width) * plan.base_n * layer.itemsize


def float32_sums(plan: VendorPlan, layer: Layer) -> int:
    """Grad_input of 910_95, a reduction in segments: float32 sums of one image for each core that works."""
    return plan.used_cores * align(layer.ci) * align(layer.in_pixels) * FLOAT32


def stream_parts(plan: VendorPlan) -> int:
    """Grad_weight of 910B, deterministic: the part of a task for each core that works."""
    return plan.used_cores * plan.single_core_m * plan.single_core_n * FLOAT32


def base_tiles(plan: VendorPlan, machine: Machine) -> int:
    """Grad_weight of 910B, deterministic without stream-K: two base blocks for each core."""
    return COPIES * FLOAT32 * plan.base_m * plan.base_n * machine.cores


def parts_in_l0c(machine: Machine) -> int:
    """Grad_weight of 910_95, stream-K: two tiles of L0C for each core."""
    return COPIES * machine.cores * machine.l0c


def winograd(layer: Layer, machine: Machine) -> int:
    """Grad_weight of 910_95 by Winograd: one operand transformed, both in groups of channels, and parts.

    The operator asks for the larger operand, though it transforms the smaller one.
    """
    c0 = layer.c0
    clusters = Clusters.of(layer.batch, (layer.output[1], layer.output[2]))
    channels = max(layer.ci1, layer.co1) * c0 * layer.itemsize
    transformed = channels * POINTS * CLUSTER * len(clusters)
    grouped = layer.in_pixels * layer.ci1 + layer.out_pixels * layer.co1
    relaid = layer.batch * grouped * c0 * layer.itemsize
    return transformed + relaid + SIDE * SIDE * TAPS * FLOAT32 * machine.cores
