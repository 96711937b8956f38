"""The plan of a convolution as the product's own operator chooses it, as far as its rules are known."""

from __future__ import annotations

from ascendsim.ops.plan import Plan
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.tiling.vendor.first.plans import first_plan
from ascendsim.ops.tiling.vendor.library.plans import library_plan
from ascendsim.ops.tiling.vendor.operator_plans import operator_plan
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
) -> tuple[Plan | None, str]:
    """Return the plan that the product's operator takes; or None, and why not if a rule says so.

    blocks   blocks to cut it into, the best grid of so many by the rules; 0: as many as the rules choose.
             Operators that go by tasks take no notice of it
    """
    arguments = problem, gradient, compute_dtype, profile
    streamed = gradient == "grad_weight" and deterministic
    found = first_plan(*arguments, out_dtype, blocks=blocks)
    # In an order that is fixed the operators of volumes add the grad_weight of images, too.
    if found is None and not streamed:
        found = library_plan(*arguments, out_dtype, blocks=blocks)
    if found is not None:
        return found, ""
    return operator_plan(*arguments, deterministic=deterministic)
