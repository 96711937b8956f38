"""The plan of a convolution as the product's own operator chooses it, as far as its rules are known.

first      cube and vector unit in one core (910, 310P)
library    2-D gradients of 910B and 910_93, whose operators come with a library of schedules
operator   whose host code is public: 3-D gradients of 910B and 910_93, all of 910_95
"""

from __future__ import annotations

from dataclasses import replace

from ascendsim.errors import CapacityError, UnsupportedError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.problems.convolution import ConvProblem, merged
from ascendsim.ops.problems.folded import NEWEST, OLDER
from ascendsim.ops.problems.orders import CLUSTER, Clusters
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
from ascendsim.ops.tiling.vendor.layer import (
    FRACTAL,
    LayerSizes,
    Machine,
    VendorPlan,
    align,
    ceil_div,
    other_cube,
)
from ascendsim.ops.tiling.vendor.library import library

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
    if gradient == "grad_input" and arch == OLDER and not _has_blocks(layer):
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
    if arch not in (OLDER, NEWEST):
        reason = "only 910B, 910_93 and 910_95 have known rules"
    elif dtype not in DTYPES and not (arch == "3510" and gradient == "grad_input" and dtype in EIGHT_BITS):
        reason = f"the operator does not take {dtype}"
    elif gradient == "grad_input" and request.kernel.transposed:
        reason = "grad_input of a transposed convolution is a forward convolution, another operator"
    elif arch == OLDER and max(layer.stride[1:]) > MOST_STRIDE:
        reason = f"a stride above {MOST_STRIDE} is refused by the operator (load3d cannot step so wide)"
    elif arch == OLDER and gradient == "grad_input" and layer.merge_factor(layer.c0) < layer.groups:
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
        if arch == OLDER:
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


# Of grad_input all even cuts of the channels are looked at: with more than any network has that would take
# minutes.
MOST_CHANNELS = 2**16
# What its kernels multiply; a core that is given a rate for 8 bits is not one that it knows.
FORMATS = ("float32", "float16", "bfloat16")


def product_plan(request: PlanRequest) -> tuple[Plan | None, str]:
    """Return the plan that the product's operator takes; or None, and why not if a rule says so."""
    where = f"product's plan of {request.gradient} on {request.profile.variant}"
    cube = other_cube(request.profile, request.compute_dtype)
    if cube:
        return None, f"{where}: {cube}"
    problem, profile = request.kernel, request.profile
    # In an order that is fixed the operators of volumes add the grad_weight of images, too.
    streamed = request.gradient == "grad_weight" and request.deterministic
    found = first_plan(request) or (None if streamed else library_plan(request))
    if found is not None:
        return found, ""
    # A call with five axes is one of volumes, even if they have one depth.
    volumes = problem.rank == 3 or streamed
    if profile.npu_arch != NEWEST and (profile.npu_arch != OLDER or not volumes):
        return None, ""

    # Groups that no change of layout here merges stay apart, whatever the operator does.
    apart = request.usual_merge == 1 < problem.groups
    try:
        return product_tiling(replace(request, group_merge=request.group_merge or int(apart))), ""
    except (CapacityError, UnsupportedError) as error:
        # What to do instead, which follows the reason, is what a search does.
        return None, str(error).partition("; ")[0]


def matmul_plan(request: PlanRequest) -> tuple[Plan | None, str]:
    """Return the plan of a matrix product as its operator chooses it; or None, and why not."""
    # Imported here: most calls have no matrix product.
    from ascendsim.ops.tiling.vendor.matmul import operator_tiling

    tiling, rule = operator_tiling(request.gemm, request.profile)
    if tiling is None:
        return None, f"product's plan of a matrix product on {request.profile.variant}: {rule}"
    return Plan("matmul", tiling, rule=rule), ""


def first_plan(request: PlanRequest, *, tuned: bool = False) -> Plan | None:
    """Return the plan of the first generation; None on other ones, or where no rule is known.

    tuned   whether to search it as its tuned entries were, also where none is known (`first.py`)
    """
    profile, whole = request.profile, request.whole
    # The grad_input of a transposed convolution is another operator's.
    known = whole.groups == 1 and not (request.gradient == "grad_input" and whole.transposed)
    if profile.core_structure != "unified" or not known:
        return None
    # Imported here and below: calls of all products come by, and the rules are of one generation.
    from ascendsim.ops.tiling.vendor.first import has_entry, tuned_tiling

    found = usual_plan(request, tuned_tiling(request), "tuned") if tuned or has_entry(request) else None
    if found is not None or tuned:
        return found and replace(found, chosen_by="tuned")
    if request.gradient == "grad_input":
        from ascendsim.ops.tiling.vendor.first import first_dgrad

        return usual_plan(request, first_dgrad(request.gemm, profile, request.blocks), "first generation")
    from ascendsim.ops.tiling.vendor.first import first_wgrad

    return usual_plan(request, first_wgrad(request.gemm, profile, request.blocks), "first generation")


def library_plan(request: PlanRequest) -> Plan | None:
    """Return the plan of a 2-D gradient, None where the library does not make it or no rule is known."""
    profile, whole = request.profile, request.whole
    # Five axes make a call one of volumes, whose operators are others, even if they have one depth.
    known = whole.rank < 3 and not whole.transposed
    if profile.npu_arch != OLDER or not known or request.stored not in FORMATS:
        return None
    # Only the library of grad_weight tells how it takes several groups.
    if whole.groups > 1 and (request.gradient == "grad_input" or whole.rank == 1):
        return None
    if request.gradient == "grad_input":
        if max(whole.small_channels, whole.big_channels) > MOST_CHANNELS:
            return None
        from ascendsim.ops.tiling.vendor.library_dgrad import library_dgrad

        return usual_plan(request, library_dgrad(request.gemm, profile, request.blocks), "our own")
    if whole.rank == 1:
        # The library has no rules of its own for lines, and takes the older ones.
        from ascendsim.ops.tiling.vendor.first import first_wgrad

        return usual_plan(request, first_wgrad(request.gemm, profile, request.blocks), "first generation")
    from ascendsim.ops.tiling.vendor.library import library

    merge = request.group_merge
    layer = request.layer.merged(merge)._replace(merges=False) if merge else request.layer
    plan = library(layer, request.machine, flat=True, cells=request.blocks)
    return _of_images(request, plan) if plan else None


def _of_images(request: PlanRequest, plan: VendorPlan) -> Plan:
    """Return the plan of a 2-D grad_weight by the library, for the nest that deals pixels as it does."""
    gemm, grid = request.gemm, dict(plan.grid)
    columns = gemm.all_taps.groups * gemm.sliding.c0
    base_m, base_n = min(plan.base_m, gemm.rows), min(plan.base_n, columns)
    m_dim = min(grid["m"], ceil_div(gemm.rows, base_m))
    n_dim = min(grid["n"], ceil_div(columns, base_n))
    tiling = plan.tiling(
        base_m=base_m,
        base_n=base_n,
        single_core_m=0,
        single_core_n=0,
        used_cores=grid["group"] * grid["batch"] * grid["k"] * m_dim * n_dim,
        batch_dim=grid["batch"],
        m_dim=m_dim,
        n_dim=n_dim,
        k_dim=grid["k"],
        step_m=plan.step_m,
        step_n=plan.step_n,
        group_merge=request.merge,
        group_dim=grid["group"] if grid["group"] > 1 else 0,
    )
    return Plan("wgrad_fractals", tiling, rule=plan.strategy)


def usual_plan(request: PlanRequest, tiling: Tiling | None, rule: str) -> Plan | None:
    """Return the plan of the usual nest by the tiling of merged groups that a rule made; None of none.

    rule   "our own" where the operator's library is not public, and measured kernels alone hold the plan
    """
    if tiling is None:
        return None
    nest = {"grad_input": "dgrad", "grad_weight": "wgrad"}[request.gradient]
    return Plan(nest, replace(tiling, group_merge=request.merge), rule=rule)


# Rules whose tasks are tiles of the result, those of the last round in parts.
STREAMS = ("stream_k", "basic_det")
AXES = {
    "grad_input": ("group", "batch", "d", "m", "n"),
    "grad_weight": ("group", "batch", "d", "k", "m", "n"),
}


@default_arithmetic
def product_tiling(request: PlanRequest, *, by_winograd: bool = True) -> Plan:
    """Return the plan of one gradient as the product chooses it (`operator_plan`), for a loop nest.

    Raises   UnsupportedError also where no loop nest executes the plan
    """
    found = operator_plan(request, by_winograd=by_winograd)
    problem = merged(request.kernel, found.group_merge)
    lacking = _lacking(found, request)
    if lacking:
        raise UnsupportedError(
            f"product's plan of {request.gradient} on {request.profile.variant}: {found.strategy} with "
            f"{lacking} has no loop nest here; take this simulator's own plan"
        )
    made = _grad_input(found, problem) if request.gradient == "grad_input" else _grad_weight(found, problem)
    return replace(made, rule=found.strategy)


def _lacking(plan: VendorPlan, request: PlanRequest) -> str:
    """Return the first feature of a plan that no loop nest has; "" if there is none."""
    c0, machine = request.layer.c0, request.machine
    if plan.base_n % c0:
        return f"blocks that end inside a group of {c0} channels"
    if plan.k_segment % c0:
        return f"segments that end inside a group of {c0} channels"
    # 910_95 rounds slices of a long reduction up to whole windows, whatever L0 holds.
    slice_bytes = plan.base_k * max(plan.base_m, plan.base_n) * request.layer.itemsize
    if plan.k_segment and slice_bytes > machine.l0_half:
        return f"slices of {slice_bytes} bytes, of which half of L0 holds {machine.l0_half},"
    return ""


def _one_column_axis(problem: ConvProblem) -> bool:
    """Return whether the operator takes the columns of all kernel depths as one axis."""
    return problem.kernel[0] == 1 or (problem.groups == 1 and problem.dilations[0] == 1)


def _parts(plan: VendorPlan) -> dict[str, int]:
    """Return the parts of a core grid along its axes."""
    return dict(plan.grid)


def _grad_input(plan: VendorPlan, problem: ConvProblem) -> Plan:
    """Return the plan of grad_input."""
    grid, depths = _parts(plan), problem.big_size[0]
    depth_dim = grid.get("d", ceil_div(depths, plan.single_core_d) if plan.single_core_d > 1 else 0)
    tiling = replace(_tiling(plan, "grad_input"), batch_dim=grid.get("batch", 0), depth_dim=depth_dim)
    if plan.taps == "c04":
        return Plan("dgrad_c04", tiling)
    if plan.k_segment:
        parts = ceil_div(problem.small_channels, plan.k_segment)
        tiling = replace(tiling, k_split=parts, single_core_k=plan.k_segment)
    if plan.taps != "all":
        return Plan("dgrad_passes", replace(tiling, tap_loop=plan.taps))
    if plan.kernel_split:
        return Plan("dgrad_split", _split(tiling, plan, problem))
    return Plan("dgrad_shares", tiling)


def _split(tiling: Tiling, plan: VendorPlan, problem: ConvProblem) -> Tiling:
    """Return the tiling of a kernel that the stride splits."""
    tiling = replace(tiling, kernel_split=plan.kernel_split)
    if plan.strategy != "kernel_split_full" or plan.al1_buffers > 1 or plan.bl1_buffers > 1:
        return tiling
    # Both operands are in L1 as a whole, the weights of each phase: a depth meets one depth of the kernel.
    return replace(tiling, bl1_buffers=min(2, problem.kernel[1]) * min(2, problem.kernel[2]))


def _grad_weight(plan: VendorPlan, problem: ConvProblem) -> Plan:
    """Return the plan of grad_weight."""
    if plan.strategy == "winograd":
        return Plan("wgrad_winograd", plan.tiling(k_split=plan.stream_ways, group_merge=1))
    if plan.strategy in STREAMS:
        tiling = replace(
            _tiling(plan, "grad_weight"),
            task_order=_with_depths(plan),
            k_split=plan.stream_ways,
            stream_axis=plan.stream_axis if plan.stream_ways > 1 else "",
            strip_w=plan.strip_w,
        )
        if plan.taps == "khkw":
            return Plan("wgrad_taps", replace(tiling, tap_loop=plan.taps))
        return Plan("wgrad_stream", tiling)
    tiling = replace(_tiling(plan, "grad_weight"), single_core_k=plan.single_core_k)
    if plan.split == "grid":
        grid, share = _parts(plan), dict(plan.host)["singleCoreBatch"]
        even = ceil_div(problem.batch * problem.small_size[0], grid["batch"])
        tiling = replace(tiling, batch_dim=grid["batch"], single_core_batch=0 if share == even else share)
        if not _one_column_axis(problem):
            tiling = replace(tiling, depth_dim=grid["kd"], task_order=_with_depths(plan))
    return Plan("wgrad_shares", tiling)


def _with_depths(plan: VendorPlan) -> str:
    """Return the order of the tasks of grad_weight, kernel depths among their axes."""
    return " ".join("d" if axis == "kd" else axis for axis in plan.order)


def _tiling(plan: VendorPlan, gradient: str) -> Tiling:
    """Return the fields that both gradients share, with the tasks numbered along all axes."""
    named = tuple(axis for axis in plan.order if axis in AXES[gradient])
    # Axes that a plan does not number have one task, or are what every core has all of: slowest.
    order = (*(axis for axis in AXES[gradient] if axis not in named), *named)
    return plan.tiling(
        transpose_first=plan.transpose_first,
        mapping="interleaved" if plan.mapping == "interleaved" else "contiguous",
        task_order=" ".join(order),
    )
