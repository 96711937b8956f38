"""Which gradients the rules of the first generation are for, and the plan for them."""

from __future__ import annotations

from ascendsim.ops.plan import Plan
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.dgrad import DgradGemm
from ascendsim.ops.problems.wgrad import WgradGemm
from ascendsim.profile import Profile


def first_plan(
    problem: ConvProblem,
    gradient: str,
    compute_dtype: str,
    profile: Profile,
    out_dtype: str | None = None,
    *,
    blocks: int = 0,
) -> Plan | None:
    """Return the plan of a gradient; None on other generations, or where no rule is known.

    problem         of one group; its grad_input not of a transposed convolution, which is another operator's
    gradient        "grad_input" or "grad_weight"
    compute_dtype   what the cube multiplies
    out_dtype       the format in which grad_input leaves the cube; None: the usual one
    blocks          blocks of the grid; 0: as the rules choose
    """
    # Cube and vector unit in one core are what the rules are made for.
    if profile.core_structure != "unified" or problem.groups > 1:
        return None
    # Imported here: calls of all products come by, and the rules are of one generation.
    if gradient == "grad_input":
        if problem.transposed:
            return None
        from ascendsim.ops.tiling.vendor.first.dgrad import first_dgrad

        tiling = first_dgrad(DgradGemm.of(problem, compute_dtype, out_dtype), profile, blocks)
        return Plan("dgrad", tiling) if tiling else None
    from ascendsim.ops.tiling.vendor.first.wgrad import first_wgrad

    tiling = first_wgrad(WgradGemm.of(problem, compute_dtype), profile, blocks)
    return Plan("wgrad", tiling) if tiling else None
