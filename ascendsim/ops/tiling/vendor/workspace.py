"""The bytes of workspace that a product's operator asks for, beside its operands, under its own plan."""

from __future__ import annotations

from ascendsim.ops.problems.folded import NEWEST, OLDER
from ascendsim.ops.problems.orders import CLUSTER, Clusters
from ascendsim.ops.tiling.vendor.arch35.wgrad import POINTS, SIDE
from ascendsim.ops.tiling.vendor.layer import LayerSizes, Machine, VendorPlan, align, ceil_div

FLOAT32 = 4
# Two buffers, so that one is filled while the other is read.
COPIES = 2
TAPS = 9


def operator_workspace(
    plan: VendorPlan,
    layer: LayerSizes,
    machine: Machine,
    gradient: str,
    arch: str,
    *,
    deterministic: bool = False,
) -> int:
    """Return the bytes of workspace of one gradient's kernel under the operator's own plan.

    arch           the npu_arch: "2201" for 910B and 910_93, "3510" for 910_95
    deterministic  whether grad_weight is added in one order only
    """
    if gradient == "grad_input":
        if arch == OLDER:
            return rows_from_l0c(machine) if layer.itemsize == 2 else 0
        return _grad_input_35(plan, layer, machine)
    if arch == NEWEST:
        if plan.strategy == "winograd":
            return winograd_workspace(layer, machine)
        return parts_in_l0c(machine) if plan.stream_ways > 1 else 0
    if not deterministic:
        return 0
    return stream_parts(plan) if plan.strategy == "basic_det" else base_tiles(plan, machine)


def _grad_input_35(plan: VendorPlan, layer: LayerSizes, machine: Machine) -> int:
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
    """Return the workspace of grad_input of 910B: a tile of L0C for each core, turned into rows there."""
    return machine.cores * machine.l0c


def turned_weights(layer: LayerSizes) -> int:
    """Return the workspace of grad_input of 910_95: all weights, turned, input channels in whole fractals."""
    depth, height, width = layer.kernel
    return layer.co * depth * height * width * align(layer.ci) * layer.itemsize


def split_phases(plan: VendorPlan, layer: LayerSizes, machine: Machine) -> int:
    """Return the workspace of a kernel split both ways: four phases of a tile for each core."""
    width = ceil_div(layer.input[2], 2)
    rows = ceil_div(plan.single_core_m or plan.base_m, width)
    return machine.cores * 4 * rows * align(width) * plan.base_n * layer.itemsize


def float32_sums(plan: VendorPlan, layer: LayerSizes) -> int:
    """Return the workspace of a reduction in segments: float32 sums of one image for each core that works."""
    return plan.used_cores * align(layer.ci) * align(layer.in_pixels) * FLOAT32


def stream_parts(plan: VendorPlan) -> int:
    """Return the workspace of a deterministic grad_weight of 910B: a part of a task for each core used."""
    return plan.used_cores * plan.single_core_m * plan.single_core_n * FLOAT32


def base_tiles(plan: VendorPlan, machine: Machine) -> int:
    """Return the workspace of one without stream-K: two base blocks for each core."""
    return COPIES * FLOAT32 * plan.base_m * plan.base_n * machine.cores


def parts_in_l0c(machine: Machine) -> int:
    """Return the workspace of a stream-K grad_weight of 910_95: two tiles of L0C for each core."""
    return COPIES * machine.cores * machine.l0c


def winograd_workspace(layer: LayerSizes, machine: Machine) -> int:
    """Return the workspace of Winograd: one operand transformed, both in groups of channels, and sums.

    The operator asks for the larger operand, though it transforms the smaller one.
    """
    c0 = layer.c0
    clusters = Clusters.of(layer.batch, (layer.output[1], layer.output[2]))
    channels = max(layer.ci1, layer.co1) * c0 * layer.itemsize
    transformed = channels * POINTS * CLUSTER * len(clusters)
    grouped = layer.in_pixels * layer.ci1 + layer.out_pixels * layer.co1
    relaid = layer.batch * grouped * c0 * layer.itemsize
    return transformed + relaid + SIDE * SIDE * TAPS * FLOAT32 * machine.cores
