"""The plan of a convolution as the product's own operator chooses it, as far as its rules are known."""

from __future__ import annotations

from dataclasses import replace

from ascendsim.ops.plan import Plan
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.merged import merged
from ascendsim.ops.tiling.vendor.first.plans import first_plan
from ascendsim.ops.tiling.vendor.layer import PLAIN_LAYOUTS, Layouts
from ascendsim.ops.tiling.vendor.library.plans import library_plan
from ascendsim.ops.tiling.vendor.merging import product_merge
from ascendsim.profile import Profile


def product_plan(
    problem: ConvProblem,
    gradient: str,
    compute_dtype: str,
    profile: Profile,
    out_dtype: str | None = None,
    *,
    deterministic: bool = False,
    blocks: int = 0,
    merge: int = 0,
    layouts: Layouts = PLAIN_LAYOUTS,
    transposed_forward: bool = False,
) -> tuple[Plan | None, str]:
    """Return the plan that the product's operator takes; or None, and why not if a rule says so.

    blocks   blocks to cut it into, the best grid of so many by the rules; 0: as many as the rules choose.
             Operators that go by tasks take no notice of it
    merge    groups that are computed as one; 0: as many as the operator takes
    layouts, transposed_forward   as of `vendor_plan`. Only operators of volumes and of 910_95 take notice:
             others find every tensor in blocks of channels, and run forwards as they do backwards
    """
    usual = product_merge(problem, gradient, compute_dtype, profile)
    whole, arguments = merged(problem, merge or usual), (gradient, compute_dtype, profile)
    streamed = gradient == "grad_weight" and deterministic
    found = first_plan(whole, *arguments, out_dtype, blocks=blocks)
    # In an order that is fixed the operators of volumes add the grad_weight of images, too.
    if found is None and not streamed:
        found = library_plan(whole, *arguments, out_dtype, blocks=blocks)
    if found is not None:
        return merging(found, merge or usual), ""
    # Imported here, as those of other products and calls are (`operator_plans.py`).
    from ascendsim.ops.tiling.vendor.operator_plans import operator_plan

    # Groups that no change of layout here merges stay apart, whatever the operator does.
    apart = usual == 1 < problem.groups
    return operator_plan(
        problem,
        *arguments,
        deterministic=deterministic,
        merge=merge or int(apart),
        layouts=layouts,
        transposed_forward=transposed_forward,
    )


def merging(plan: Plan, merge: int) -> Plan:
    """Return a plan of a product with so many groups as one, for the product as it is given."""
    return replace(plan, tiling=replace(plan.tiling, group_merge=merge)) if merge > 1 else plan
