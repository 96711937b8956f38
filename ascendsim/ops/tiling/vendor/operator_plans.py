"""Which gradients are planned by the operators whose host code is public: 3-D ones, and all of 910_95."""

from __future__ import annotations

from ascendsim.errors import CapacityError, UnsupportedError
from ascendsim.ops.plan import Plan
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.hf32 import stored_name
from ascendsim.ops.tiling.vendor.layer import PLAIN_LAYOUTS, Layouts
from ascendsim.profile import Profile

# 910B and 910_93, whose 2-D gradients another library makes (`library` has what is known of that), except
# a grad_weight whose order is fixed; and 910_95, which has one operator for both.
VOLUMES_ALONE, ALL = "2201", "3510"


def operator_plan(
    problem: ConvProblem,
    gradient: str,
    compute_dtype: str,
    profile: Profile,
    *,
    deterministic: bool = False,
    merge: int = 0,
    layouts: Layouts = PLAIN_LAYOUTS,
    transposed_forward: bool = False,
) -> tuple[Plan | None, str]:
    """Return the plan of a gradient, or None and why: "" where another library makes it.

    gradient        "grad_input" or "grad_weight"
    compute_dtype   what the cube multiplies
    deterministic   whether parts of grad_weight may be added in one order only: then it streams (stream-K)
    merge           groups that are computed as one; 0: as many as the operator takes
    layouts, transposed_forward   as of `vendor_plan`
    """
    # A call with five axes is one of volumes, even if they have one depth.
    other_library = problem.rank < 3 and not (gradient == "grad_weight" and deterministic)
    if profile.npu_arch != ALL and (profile.npu_arch != VOLUMES_ALONE or other_library):
        return None, ""
    # Imported here, as most 2-D calls do without.
    from ascendsim.ops.tiling.vendor.product_tiling import product_tiling

    try:
        plan = product_tiling(
            problem,
            gradient,
            stored_name(compute_dtype),
            profile,
            hf32=compute_dtype == "hf32",
            deterministic=deterministic,
            group_merge=merge,
            layouts=layouts,
            transposed_forward=transposed_forward,
        )
    except (CapacityError, UnsupportedError) as error:
        # What to do instead, which follows the reason, is what a search does.
        return None, str(error).partition("; ")[0]
    return plan, ""
