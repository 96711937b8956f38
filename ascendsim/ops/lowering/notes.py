"""What a reader of a result must know of single kernels, in sentences."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ascendsim.cube.load3d import FRACTAL_ROWS
from ascendsim.ops.problems.as_product import asks_for_product
from ascendsim.ops.problems.wgrad import WgradGemm
from ascendsim.ops.schedules.dgrad.schedule import Dgrad
from ascendsim.ops.schedules.wgrad.columns import narrowed_to
from ascendsim.ops.schedules.wgrad.schedule import Wgrad

if TYPE_CHECKING:
    from ascendsim.ops.lowering.call import Call
    from ascendsim.ops.schedules.base import Schedule


def squeezed(gradient: str, through: str, asked: str) -> str:
    """Say that a gradient passes through a narrower format on its way out; nothing where it loses nothing."""
    # float32 is what sums are held in, so a cast from it is the one rounding that the asked format needs.
    if through in ("float32", asked):
        return ""
    return (
        f"{gradient} passes through {through} on its way to {asked}, as in the shipped operator: what "
        f"{through} does not hold is lost. The rule set hardware converts it once."
    )


def merges(call: Call, gradient: str) -> str:
    """Say what merged groups of grad_input do to values that are not finite; nothing of other gradients."""
    merge = min(call.merge_of(gradient), call.problem.groups)
    # The blocks of grad_weight beside the diagonal are dropped, and their values with them.
    if gradient != "grad_input" or merge == 1:
        return ""
    return (
        f"grad_input takes {merge} groups as one, whose weights have zeros beside the diagonal, as in the "
        "shipped operator: Inf or NaN in grad_output of one of them is NaN in grad_input of all (0 x Inf). "
        "A plan with group_merge 1 keeps groups apart."
    )


def by_winograd(schedule: Schedule) -> str:
    """Say that a gradient is made by Winograd, if it is."""
    if not schedule.fixed:
        return ""
    # Imported here: of all nests it is the largest, and hardly a call takes it.
    from ascendsim.ops.schedules.winograd.schedule import WgradWinograd

    if not isinstance(schedule, WgradWinograd):
        return ""
    return (
        "grad_weight is made by Winograd, F(2x2, 3x3), which the operator takes for these sizes: 16 products "
        "in place of the direct sum's 36, rounded elsewhere, so that its bits are others. Its cycles were "
        "held against no device."
    )


def narrow_blocks(call: Call, gradient: str, schedule: Schedule) -> str:
    """Say that L1 has no room for the base blocks of a user's plan of grad_weight, so they are narrower."""
    plan = call.plans[gradient]
    if not isinstance(schedule, Wgrad) or plan.by_rule:
        return ""
    t, tasks = plan.tiling, schedule.tasks
    columns = narrowed_to(schedule.gemm, t, tasks.column_blocks)
    if not columns:
        return ""
    runs = max(pixels for _, pixels in tasks.ranges_of_image)
    return (
        f"L1 does not hold the tiles of grad_weight as its plan says: blocks have {columns} columns, where "
        f"base_n is {t.base_n}, over {runs} pixels at a time, where steps are of {t.step_kb * t.base_k}. "
        "So grad_output comes again for each of more blocks; the product's operators "
        "refuse such a plan. Take smaller steps, base_k or base_m, or fewer copies in L1."
    )


def padded_rows(call: Call, gradient: str) -> str:
    """Say that a user's base_m fills no whole fractals, if it does not; the rules take such for a reason."""
    plan, rows = call.plans[gradient], call.profile.cube.m0
    base, more = plan.tiling.base_m, -plan.tiling.base_m % rows
    # Of grad_weight it is refused; a block of all pixels has nothing to take instead.
    if gradient != "grad_input" or not more or plan.by_rule:
        return ""
    if base >= prod(call.problem_of(gradient).input[2:]):
        return ""
    return (
        f"base_m of grad_input is {base}, no multiple of {rows}: the cube multiplies {base + more} rows for "
        f"a whole block, the last {more} for nothing."
    )


def oversized_blocks(call: Call, gradient: str, schedule: Schedule) -> str:
    """Say that base blocks of a user's plan are larger than what they cut, if they are."""
    plan, gemm = call.plans[gradient], schedule.gemm
    if not isinstance(schedule, Dgrad | Wgrad) or plan.by_rule:
        return ""
    if isinstance(gemm, WgradGemm):
        rows, columns, what = gemm.rows, gemm.all_taps.groups * gemm.sliding.c0, "rows"
    else:
        rows, columns, what = gemm.sliding.pixels, gemm.columns, "pixels of an image"
    sides = (("base_m", rows, f"{rows} {what}"), ("base_n", columns, f"{columns} columns"))
    # The last fractal of a side may be begun.
    larger = [
        f"{name} is {getattr(plan.tiling, name)} for {words}"
        for name, side, words in sides
        if getattr(plan.tiling, name) >= side + FRACTAL_ROWS
    ]
    if not larger:
        return ""
    return f"Blocks of {gradient} are cut to what there is: {' and '.join(larger)}."


def not_modelled(call: Call, gradient: str) -> str:
    """Say where the product's operator computes a gradient in a way that has other bits; else nothing."""
    asked = asks_for_product(call.problem, gradient, call.compute_dtype, call.profile)
    if not asked or call.as_product(gradient):
        return ""
    ties = " and in HF32 rounds ties away from zero" if call.compute_dtype == "hf32" else ""
    return (
        f"The operator may compute {gradient} of these shapes by a matrix product, which cuts the "
        f"reduction in its own way{ties}; here a convolution kernel makes it, and the bits are its own."
    )
