"""From the plan as a product's operator writes it to the plan of a loop nest that executes it."""

from __future__ import annotations

from dataclasses import replace

from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.tiling.request import PlanRequest
from ascendsim.ops.tiling.vendor.layer import VendorPlan, ceil_div

# Rules whose tasks are tiles of the result, those of the last round in parts.
STREAMS = ("stream_k", "basic_det")
AXES = {
    "grad_input": ("group", "batch", "d", "m", "n"),
    "grad_weight": ("group", "batch", "d", "k", "m", "n"),
}


def nest_plan(found: VendorPlan, request: PlanRequest, problem: ConvProblem) -> Plan:
    """Return the plan of the loop nest that executes an operator's plan of one gradient.

    problem   the convolution of merged groups
    """
    made = _grad_input(found, problem) if request.gradient == "grad_input" else _grad_weight(found, problem)
    return replace(made, rule=found.strategy)


def lacking(plan: VendorPlan, request: PlanRequest) -> str:
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


def images_plan(request: PlanRequest, plan: VendorPlan) -> Plan:
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
