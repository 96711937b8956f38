"""The products' plans as plans that loop nests execute, where there is one for them."""

from __future__ import annotations

from dataclasses import replace

from ascendsim.errors import UnsupportedError
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.tiling.vendor.layer import PLAIN_LAYOUTS, Layouts, ceil_div
from ascendsim.ops.tiling.vendor.plan import VendorPlan
from ascendsim.ops.tiling.vendor.product import vendor_plan
from ascendsim.profile import Profile

# Fields of both records that mean the same.
SAME = (
    *("base_m", "base_n", "base_k", "step_ka", "step_kb", "used_cores", "single_core_m", "single_core_n"),
    *("al1_buffers", "bl1_buffers", "al0_buffers", "bl0_buffers", "cl0_buffers"),
)
AXES = {
    "grad_input": ("group", "batch", "d", "m", "n"),
    "grad_weight": ("group", "batch", "d", "k", "m", "n"),
}


def product_tiling(
    problem: ConvProblem,
    gradient: str,
    dtype: str,
    profile: Profile,
    *,
    hf32: bool = False,
    deterministic: bool = False,
    transposed_forward: bool = False,
    layouts: Layouts = PLAIN_LAYOUTS,
) -> Plan:
    """Return the plan of one gradient as the product chooses it; arguments as of `vendor_plan`.

    Raises   UnsupportedError also where no loop nest executes such a plan
    """
    found = vendor_plan(
        problem,
        gradient,
        dtype,
        profile,
        hf32=hf32,
        deterministic=deterministic,
        transposed_forward=transposed_forward,
        layouts=layouts,
    )
    lacking = _lacking(found, problem)
    if lacking:
        raise UnsupportedError(
            f"product's plan of {gradient} on {profile.variant}: {found.strategy} with {lacking} has no loop "
            "nest here; take this simulator's own plan"
        )
    return _grad_input(found, problem) if gradient == "grad_input" else _grad_weight(found)


def _lacking(plan: VendorPlan, problem: ConvProblem) -> str:
    """Return what of a plan no loop nest does; "" if there is nothing."""
    if plan.kernel_split:
        return "a kernel split by the stride"
    if plan.taps != "all":
        return f"taps taken as {plan.taps}"
    if plan.k_segment:
        return "a reduction in segments"
    if plan.group_merge > 1:
        return "merged groups"
    if plan.strategy == "stream_k":
        return "a last round cut by stream-K"
    if plan.split == "grid" and (problem.kernel[0] > 1 or _images(problem) % _parts(plan)["batch"]):
        return "a grid that cuts kernel depths, or images unevenly"
    return ""


def _parts(plan: VendorPlan) -> dict[str, int]:
    """Return the parts of a core grid along its axes."""
    return dict(plan.grid)


def _images(problem: ConvProblem) -> int:
    """Return the images of grad_output, each depth one."""
    return problem.batch * problem.small_size[0]


def _grad_input(plan: VendorPlan, problem: ConvProblem) -> Plan:
    """Return the plan of grad_input."""
    grid, depths = _parts(plan), problem.big_size[0]
    depth_dim = grid.get("d", ceil_div(depths, plan.single_core_d) if plan.single_core_d > 1 else 0)
    tiling = replace(_tiling(plan, "grad_input"), batch_dim=grid.get("batch", 0), depth_dim=depth_dim)
    return Plan("dgrad_shares", tiling)


def _grad_weight(plan: VendorPlan) -> Plan:
    """Return the plan of grad_weight."""
    tiling = replace(_tiling(plan, "grad_weight"), single_core_k=plan.single_core_k)
    return Plan("wgrad_shares", tiling)


def _tiling(plan: VendorPlan, gradient: str) -> Tiling:
    """Return what is said alike of both gradients, with the tasks numbered along all axes."""
    named = tuple(axis for axis in plan.order if axis in AXES[gradient])
    # Axes that a plan does not number have one task, or are what every core has all of: slowest.
    order = (*(axis for axis in AXES[gradient] if axis not in named), *named)
    # On a grid of grad_weight a core adds its images one after the other, and all cores have as many: so its
    # tasks are a contiguous range with images fastest.
    if plan.split == "grid":
        order = ("group", "n", "m", "k", "batch", "d")
    return Tiling(
        **{name: getattr(plan, name) for name in SAME},
        mapping="interleaved" if plan.mapping == "interleaved" else "contiguous",
        task_order=" ".join(order),
    )
