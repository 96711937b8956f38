"""Sentences of a result: how a kernel is made, whose plans they are, and what the cycles leave out."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING

from ascendsim.instructions.cube import FRACTAL_ROWS
from ascendsim.ops.plan import Plan
from ascendsim.ops.problems.folded import asks_for_product
from ascendsim.ops.problems.products import WgradGemm
from ascendsim.ops.schedules.base import Schedule
from ascendsim.ops.schedules.dgrad.nest import Dgrad
from ascendsim.ops.schedules.wgrad.cut import narrowed_to
from ascendsim.ops.schedules.wgrad.nest import Wgrad

if TYPE_CHECKING:
    from ascendsim.ops.lowering.call import Call


# Of programs of a user's own: docs/from_ascendc.md says what an instruction leaves out.
LEFT_AT_NOTHING = (
    "Of a nest of your own these cost nothing, as nobody has published what they take: waits of MTE2, MTE3 "
    "and V for one bank of UB, banks inside V but of Binary on slots with addresses on a 910B, and requests "
    "of several cores for the same 512 bytes."
)


def squeezed(gradient: str, through: str, asked: str) -> str:
    """Say that a gradient passes through a narrower format on its way out; nothing where it loses nothing."""
    # float32 is what sums are held in, so a cast from it is the one rounding that the asked format needs.
    if through in ("float32", asked):
        return ""
    return (
        f"{gradient} passes through {through} on its way to {asked}, as in the shipped operator: what "
        f"{through} does not hold is lost. The rule set hardware converts it once."
    )


def product_notes(call: Call, gradient: str, schedule: Schedule) -> tuple[str, ...]:
    """Return the warnings about the kernel that makes a gradient; "" for one that does not apply."""
    return (
        _merges(call, gradient),
        _padded_rows(call, gradient),
        _not_modelled(call, gradient),
        _narrow_blocks(call, gradient, schedule),
        _oversized_blocks(call, gradient, schedule),
        _by_winograd(schedule),
        "" if isinstance(call.plans[gradient].schedule, str) else LEFT_AT_NOTHING,
    )


def _merges(call: Call, gradient: str) -> str:
    """Say how merged groups of grad_input spread NaN and Inf; "" for other gradients."""
    merge = min(call.merge_of(gradient), call.problem.groups)
    # The blocks of grad_weight beside the diagonal are dropped, and their values with them.
    if gradient != "grad_input" or merge == 1:
        return ""
    return (
        f"grad_input takes {merge} groups as one, whose weights have zeros beside the diagonal, as in the "
        "shipped operator: Inf or NaN in grad_output of one of them is NaN in grad_input of all (0 x Inf). "
        "A plan with group_merge 1 keeps groups apart."
    )


def _by_winograd(schedule: Schedule) -> str:
    """Say that a gradient is made by Winograd, if it is."""
    if not schedule.fixed:
        return ""
    # Imported here: of all nests it is the largest, and hardly a call takes it.
    from ascendsim.ops.schedules.winograd import WgradWinograd

    if not isinstance(schedule, WgradWinograd):
        return ""
    return (
        "grad_weight is made by Winograd, F(2x2, 3x3), which the operator takes for these sizes: 16 products "
        "in place of the direct sum's 36, rounded elsewhere, so that its bits are others. Its cycles were "
        "held against no device."
    )


def _narrow_blocks(call: Call, gradient: str, schedule: Schedule) -> str:
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
        "refuse this plan. Take smaller steps, base_k or base_m, or fewer copies in L1."
    )


def _padded_rows(call: Call, gradient: str) -> str:
    """Note a user's base_m that fills no whole fractals; the rules take one only for a reason."""
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


def _oversized_blocks(call: Call, gradient: str, schedule: Schedule) -> str:
    """Note base blocks of a user's plan that are larger than the axes that they cut."""
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


def _not_modelled(call: Call, gradient: str) -> str:
    """Say where the product's operator computes a gradient in a way that has other bits; else nothing."""
    asked = asks_for_product(call.problem, gradient, call.compute_dtype, call.profile)
    if not asked or call.as_product(gradient):
        return ""
    ties = " and in HF32 rounds ties away from zero" if call.compute_dtype == "hf32" else ""
    return (
        f"The operator may compute {gradient} of these shapes by a matrix product, which cuts the "
        f"reduction in its own way{ties}; here a convolution kernel makes it, and the bits are its own."
    )


ROWS_NOTE = (
    "The cube's kernels read and write tensors row after row, as NCHW; what that adds to their writes is not "
    "part of the cycles."
)
CHOSEN_NOTES = {
    "product": "follow the rules of the product's operators as far as they are public; their tables of tuned "
    "shapes are not.",
    "tuned": "are the fastest of all grids on a part of 32 cores, as the operators' tuned entries for "
    "ResNet-50 seem to be: these are not public, and are known by measured block counts and times alone.",
    "search": "are this simulator's own; the product's operators choose their own.",
    "user, rest product": "are given in part, the rest by the rules of the product's operators.",
    "user, rest tuned": "are given in part, the rest by a search as that for the operators' tuned entries.",
    "user, rest search": "are given in part, the rest by this simulator's search.",
}
UNTIMED_NOTE = "The call was made without timing: there are gradients, and no kernels and no cycles."
PACKED_NOTE = (
    "Tensors lie in the cube's own layouts (NC1HWC0) as the call begins and gradients are left in them: no "
    "TransData runs. What brings a tensor there, and a Transpose that folds images, is not saved."
)
UNPACKED_NOTE = (
    "Layout NC1HWC0 changes nothing here: the cube's kernels change layouts themselves, in the cycles of "
    "their reads, and for nothing as they write."
)
STRIDED_NOTE = (
    "What a vector core needs to gather strided elements, or to write them, is published nowhere: Contiguous "
    "and Transpose kernels read in blocks of 32 bytes or whole lines, whichever is less; ViewCopy kernels "
    "write neighbours in one piece and others in blocks of 32 bytes."
)


def whose_tilings(plans: Mapping[str, Plan]) -> list[str]:
    """Return whose tilings they are; who gives one knows that."""
    found = []
    for strategy, note in CHOSEN_NOTES.items():
        names = [name for name, plan in plans.items() if plan.chosen_by == strategy]
        if names:
            # What is given in part may be the nest alone.
            what = "Tilings" if strategy in ("product", "tuned", "search") else "Plans"
            which = what if len(names) == len(plans) else f"{what} of {' and '.join(names)}"
            found.append(f"{which} {note}")
    # A reason begins with whose plan it is and of which gradient: "product's plan of grad_input on ...".
    reasons = dict.fromkeys(plan.instead for plan in plans.values() if plan.instead)
    return found + [f"Not taken: the {reason}." for reason in reasons]
