"""The plan that a product's own operator would take, as far as its rules are known."""

from __future__ import annotations

from dataclasses import replace

from ascendsim.errors import CapacityError, UnsupportedError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.problems.products import CLUSTER, Clusters
from ascendsim.ops.tiling.request import PlanRequest
from ascendsim.ops.tiling.vendor.arch22.dgrad import basic_block as dgrad_block
from ascendsim.ops.tiling.vendor.arch22.dgrad import core_grid as dgrad_grid
from ascendsim.ops.tiling.vendor.arch22.wgrad_blocks import basic_block as wgrad_block
from ascendsim.ops.tiling.vendor.arch22.wgrad_blocks import stream_k as wgrad_streams
from ascendsim.ops.tiling.vendor.arch22.wgrad_blocks import takes_basic_blocks
from ascendsim.ops.tiling.vendor.arch22.wgrad_grid import core_grid as wgrad_grid
from ascendsim.ops.tiling.vendor.arch35.dgrad import grad_input as dgrad_35
from ascendsim.ops.tiling.vendor.arch35.wgrad import POINTS, SIDE, takes_winograd, winograd
from ascendsim.ops.tiling.vendor.arch35.wgrad import stream_k as wgrad_35
from ascendsim.ops.tiling.vendor.layer import FRACTAL, LayerSizes, Machine, VendorPlan, align, ceil_div
from ascendsim.ops.tiling.vendor.library.wgrad import library

DTYPES = ("float16", "bfloat16", "float32")
# The operator of 910_95 takes 8 bits for the gradient of the input alone.
EIGHT_BITS = ("hifloat8",)
# The widest step of load3d; 910_95 splits kernels with wider ones, 910B and 910_93 refuse them.
MOST_STRIDE = 63


@default_arithmetic
def operator_plan(request: PlanRequest, *, by_winograd: bool = True) -> VendorPlan:
    """Return the plan of one gradient as the operators of 910B, 910_93 and 910_95 choose it.

    by_winograd   whether grad_weight may be computed by Winograd, where the operator does so

    Raises   UnsupportedError where the operator refuses the layer, or its rule is not known; CapacityError
             if no tile fits in L1
    Source   how the host code of the public operators (ops-nn) chooses, held against the tilings that their
             unit tests expect
    """
    gradient, merge, machine, arch = (
        request.gradient,
        request.group_merge,
        request.machine,
        request.profile.npu_arch,
    )
    layer = request.layer.merged(merge)._replace(merges=False) if merge else request.layer
    _require_known(request, layer)
    arguments = layer, machine, gradient, request.stored, arch
    plan = plan_of_layer(*arguments, deterministic=request.deterministic, by_winograd=by_winograd)
    if plan is not None:
        return replace(plan, group_merge=merge) if merge else plan
    where = f"product's plan of {gradient} on {request.profile.variant}"
    if gradient == "grad_input" and arch == "2201" and not _has_blocks(layer):
        raise UnsupportedError(
            f"{where}: no core grid suits this layer, so that the vendor's closed library tiles it; give a "
            "tiling of your own"
        )
    raise CapacityError(
        f"{where}: no tile fits in L1 ({machine.l1} bytes) by the operator's rules, so that it refuses the "
        "layer; make its rows or its kernel smaller"
    )


def plan_of_layer(
    layer: LayerSizes,
    machine: Machine,
    gradient: str,
    dtype: str,
    arch: str,
    *,
    deterministic: bool = False,
    by_winograd: bool = True,
) -> VendorPlan | None:
    """Return the plan of the operator's first strategy that takes the layer; None if no tile fits in L1.

    arch   the npu_arch: "2201" for 910B and 910_93, "3510" for 910_95
    """
    if arch == "3510":
        if gradient == "grad_input":
            return dgrad_35(layer, machine)
        found = winograd(layer, machine) if by_winograd and takes_winograd(layer) else None
        return found or wgrad_35(layer, machine)
    if gradient == "grad_input":
        # Two strategies, and no third: the library's own tiling, which takes over, is not public. Both are
        # for one group as the weights have it, which several may be merged into.
        factor = layer.merge_factor(layer.c0)
        whole = layer.merged(factor)
        plan = dgrad_block(whole, machine) if _has_blocks(layer) else dgrad_grid(whole, machine)
        return plan and replace(plan, group_merge=factor)
    if deterministic:
        return wgrad_streams(layer, machine)
    if takes_basic_blocks(layer.merged(layer.merge_factor(FRACTAL))):
        return wgrad_block(layer, machine)
    grid = wgrad_grid(layer, machine) if dtype == "bfloat16" else None
    return grid or library(layer, machine)


def _has_blocks(layer: LayerSizes) -> bool:
    """Return whether grad_input of 910B and 910_93 is computed by basic blocks."""
    return layer.itemsize == 2 and not layer.transposed_forward


def _require_known(request: PlanRequest, layer: LayerSizes) -> None:
    """Refuse what the operators refuse, and what no rule is known for.

    Raises   UnsupportedError with the reason
    """
    arch, gradient, dtype = request.profile.npu_arch, request.gradient, request.stored
    reason = ""
    if arch not in ("2201", "3510"):
        reason = "only 910B, 910_93 and 910_95 have known rules"
    elif dtype not in DTYPES and not (arch == "3510" and gradient == "grad_input" and dtype in EIGHT_BITS):
        reason = f"the operator does not take {dtype}"
    elif gradient == "grad_input" and request.kernel.transposed:
        reason = "grad_input of a transposed convolution is a forward convolution, another operator"
    elif arch == "2201" and max(layer.stride[1:]) > MOST_STRIDE:
        reason = f"a stride above {MOST_STRIDE} is refused by the operator (load3d cannot step so wide)"
    elif arch == "2201" and gradient == "grad_input" and layer.merge_factor(layer.c0) < layer.groups:
        reason = "grad_input of several groups is tiled by the vendor's closed library"
    if reason:
        raise UnsupportedError(f"product's plan of {gradient} on {request.profile.variant}: {reason}")


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
        if arch == "2201":
            return rows_from_l0c(machine) if layer.itemsize == 2 else 0
        return _grad_input_35(plan, layer, machine)
    if arch == "3510":
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
    """Grad_input of 910B: a tile of L0C for each core, which its vector cores turn into rows of NCDHW."""
    return machine.cores * machine.l0c


def turned_weights(layer: LayerSizes) -> int:
    """Grad_input of 910_95: all weights, turned, with the channels of input in whole fractals."""
    depth, height, width = layer.kernel
    return layer.co * depth * height * width * align(layer.ci) * layer.itemsize


def split_phases(plan: VendorPlan, layer: LayerSizes, machine: Machine) -> int:
    """Grad_input of 910_95, kernel split both ways: four phases of a tile for each core, to interleave."""
    width = ceil_div(layer.input[2], 2)
    rows = ceil_div(plan.single_core_m or plan.base_m, width)
    return machine.cores * 4 * rows * align(width) * plan.base_n * layer.itemsize


def float32_sums(plan: VendorPlan, layer: LayerSizes) -> int:
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


def winograd_workspace(layer: LayerSizes, machine: Machine) -> int:
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
