"""The plan of a convolution as the product's own operator chooses it, as far as its rules are known."""

from __future__ import annotations

from ascendsim.ops.plan import Plan
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.hf32 import stored_name
from ascendsim.ops.tiling.vendor.first.plans import first_plan
from ascendsim.ops.tiling.vendor.library.plans import library_plan
from ascendsim.ops.tiling.vendor.volumes import volume_plan
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
) -> Plan | None:
    """Return the plan that the product's operator takes, None if its rules are unknown or do not apply.

    blocks   blocks to cut it into, the best grid of so many by the rules; 0: as many as the rules choose.
             3-D gradients of 910B and 910_93 go by tasks and take no notice of it
    """
    plans = (
        first_plan(problem, gradient, compute_dtype, profile, out_dtype, blocks=blocks),
        _float32_plan(problem, gradient, compute_dtype, profile, out_dtype, blocks=blocks),
        volume_plan(problem, gradient, compute_dtype, profile, deterministic=deterministic),
    )
    return next((plan for plan in plans if plan), None)


def _float32_plan(
    problem: ConvProblem,
    gradient: str,
    compute_dtype: str,
    profile: Profile,
    out_dtype: str | None = None,
    *,
    blocks: int = 0,
) -> Plan | None:
    """Return the library's plan of a float32 gradient: its rules were held against no other kernels."""
    if stored_name(compute_dtype) != "float32":
        return None
    return library_plan(problem, gradient, compute_dtype, profile, out_dtype, blocks=blocks)
