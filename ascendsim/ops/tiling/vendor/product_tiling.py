"""The products' plans as plans that loop nests execute, where there is one for them."""

from __future__ import annotations

from dataclasses import replace

from ascendsim.errors import UnsupportedError
from ascendsim.native.default_arithmetic import default_arithmetic
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.problems.convolution import ConvProblem, merged
from ascendsim.ops.tiling.request import PlanRequest
from ascendsim.ops.tiling.vendor.layer import VendorPlan, ceil_div
from ascendsim.ops.tiling.vendor.operators import operator_plan

# Fields of both records that mean the same.
SAME = (
    *("base_m", "base_n", "base_k", "step_ka", "step_kb", "used_cores", "single_core_m", "single_core_n"),
    *("al1_buffers", "bl1_buffers", "al0_buffers", "bl0_buffers", "cl0_buffers"),
)
# Rules whose tasks are tiles of the result, those of the last round in parts.
STREAMS = ("stream_k", "basic_det")
AXES = {
    "grad_input": ("group", "batch", "d", "m", "n"),
    "grad_weight": ("group", "batch", "d", "k", "m", "n"),
}


@default_arithmetic
def product_tiling(request: PlanRequest, *, by_winograd: bool = True) -> Plan:
    """Return the plan of one gradient as the product chooses it (`operator_plan`), for a loop nest.

    Raises   UnsupportedError also where no loop nest executes such a plan
    """
    found = operator_plan(request, by_winograd=by_winograd)
    problem = merged(request.kernel, found.group_merge)
    lacking = _lacking(found, problem, request)
    if lacking:
        raise UnsupportedError(
            f"product's plan of {request.gradient} on {request.profile.variant}: {found.strategy} with "
            f"{lacking} has no loop nest here; take this simulator's own plan"
        )
    made = _grad_input(found, problem) if request.gradient == "grad_input" else _grad_weight(found, problem)
    return replace(made, rule=found.strategy)


def _lacking(plan: VendorPlan, problem: ConvProblem, request: PlanRequest) -> str:
    """Return what of a plan no loop nest does; "" if there is nothing."""
    c0, machine = request.layer.c0, request.machine
    if plan.base_n % c0:
        return f"blocks that end inside a group of {c0} channels"
    if plan.k_segment % c0:
        return f"segments that end inside a group of {c0} channels"
    # 910_95 rounds slices of a long reduction up to whole windows, whatever L0 holds.
    slice_bytes = plan.base_k * max(plan.base_m, plan.base_n) * request.layer.itemsize
    if plan.k_segment and slice_bytes > machine.l0_half:
        return f"slices of {slice_bytes} bytes, of which half of L0 holds {machine.l0_half},"
    grid = _parts(plan)
    apart = plan.split == "grid" and not _one_column_axis(problem)
    if apart and grid["n"] > 1 and grid["kd"] < problem.kernel[0]:
        return "a grid that cuts columns but not all kernel depths"
    # Columns are dealt in equal runs through all kernel depths, one after the other.
    width = ceil_div(problem.big_channels, c0) * c0 * problem.kernel[1] * problem.kernel[2]
    if apart and grid["n"] > 1 and width % plan.single_core_n:
        return "parts of the columns that are not equal at each kernel depth"
    return ""


def _one_column_axis(problem: ConvProblem) -> bool:
    """Tell whether the operator takes the columns of all kernel depths as one axis."""
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
        named = {name: getattr(plan, name) for name in SAME}
        return Plan("wgrad_winograd", Tiling(**named, k_split=plan.stream_ways))
    if plan.strategy in STREAMS:
        tiling = replace(
            _tiling(plan, "grad_weight"),
            task_order=" ".join("d" if axis == "kd" else axis for axis in plan.order),
            k_split=plan.stream_ways,
            stream_axis=plan.stream_axis if plan.stream_ways > 1 else "",
            strip_w=plan.strip_w,
        )
        if plan.taps == "khkw":
            return Plan("wgrad_taps", replace(tiling, tap_loop=plan.taps))
        return Plan("wgrad_stream", tiling)
    grid = _parts(plan)
    tiling = replace(
        _tiling(plan, "grad_weight"), single_core_k=plan.single_core_k, batch_dim=grid.get("batch", 0)
    )
    if plan.split == "grid" and not _one_column_axis(problem) and grid["n"] == 1:
        # Its columns are those of one kernel depth; here they go through all that a core has.
        depths = ceil_div(problem.kernel[0], grid["kd"])
        tiling = replace(tiling, single_core_n=plan.single_core_n * depths)
    return Plan("wgrad_shares", tiling)


def _tiling(plan: VendorPlan, gradient: str) -> Tiling:
    """Return what is said alike of both gradients, with the tasks numbered along all axes."""
    named = tuple(axis for axis in plan.order if axis in AXES[gradient])
    # Axes that a plan does not number have one task, or are what every core has all of: slowest.
    order = (*(axis for axis in AXES[gradient] if axis not in named), *named)
    return Tiling(
        **{name: getattr(plan, name) for name in SAME},
        group_merge=plan.group_merge,
        transpose_first=plan.transpose_first,
        mapping="interleaved" if plan.mapping == "interleaved" else "contiguous",
        task_order=" ".join(order),
    )
