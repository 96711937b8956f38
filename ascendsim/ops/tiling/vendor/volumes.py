"""Which 3-D gradients of 910B and 910_93 are planned by rules that are known, and their plan."""

from __future__ import annotations

from ascendsim.errors import CapacityError, UnsupportedError
from ascendsim.ops.plan import Plan
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.hf32 import stored_name
from ascendsim.ops.tiling.vendor.product_tiling import product_tiling
from ascendsim.profile import Profile

# Their 2-D gradients are made by another library; what is known of that is in `library`.
ARCHITECTURE = "2201"


def volume_plan(
    problem: ConvProblem,
    gradient: str,
    compute_dtype: str,
    profile: Profile,
    *,
    deterministic: bool = False,
) -> Plan | None:
    """Return the plan of a 3-D gradient, None where its rules are not known or no nest executes them.

    gradient        "grad_input" or "grad_weight"
    compute_dtype   what the cube multiplies
    deterministic   whether parts of grad_weight may be added in one order only: then it streams (stream-K)
    """
    flat = problem.kernel[0] == problem.small_size[0] == problem.big_size[0] == 1
    if profile.npu_arch != ARCHITECTURE or flat:
        return None
    try:
        return product_tiling(
            problem,
            gradient,
            stored_name(compute_dtype),
            profile,
            hf32=compute_dtype == "hf32",
            deterministic=deterministic,
        )
    except (CapacityError, UnsupportedError):
        return None
