"""Which gradients the library of 2-D kernels makes, and its plan for them."""

from __future__ import annotations

from ascendsim.ops.plan import Plan
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.dgrad import DgradGemm
from ascendsim.ops.problems.hf32 import stored_name
from ascendsim.ops.problems.wgrad import WgradGemm
from ascendsim.ops.tiling.vendor.library.dgrad import library_dgrad
from ascendsim.ops.tiling.vendor.library.wgrad import library_wgrad
from ascendsim.profile import Profile

# The core for which its grids are known.
ARCHITECTURE = "2201"
# It looks at all even cuts of the channels: with more than any network has that would take minutes.
MOST_CHANNELS = 2**16
# What its kernels multiply; a core that is given a rate for 8 bits is not one that it knows.
FORMATS = ("float32", "float16", "bfloat16")


def library_plan(
    problem: ConvProblem,
    gradient: str,
    compute_dtype: str,
    profile: Profile,
    out_dtype: str | None = None,
    *,
    blocks: int = 0,
) -> Plan | None:
    """Return the plan of a 2-D gradient, None where the library does not make it or no rule is known.

    problem         of one group and at most two axes, not transposed
    gradient        "grad_input" or "grad_weight"
    compute_dtype   what the cube multiplies
    out_dtype       the format in which grad_input leaves the cube; None: the usual one
    blocks          blocks of the grid; 0: as the rules choose
    """
    # Five axes make a call one of volumes, whose operators are others, even if they have one depth.
    known_layer = problem.rank < 3 and problem.groups == 1 and not problem.transposed
    if profile.npu_arch != ARCHITECTURE or not known_layer:
        return None
    known = stored_name(compute_dtype) in FORMATS
    if not known or max(problem.small_channels, problem.big_channels) > MOST_CHANNELS:
        return None
    if gradient == "grad_input":
        tiling = library_dgrad(DgradGemm.of(problem, compute_dtype, out_dtype), profile, blocks)
        return Plan("dgrad", tiling) if tiling else None
    tiling = library_wgrad(WgradGemm.of(problem, compute_dtype), profile, blocks)
    return Plan("wgrad", tiling) if tiling else None
