"""The plan of a convolution as the product's own operator chooses it, as far as its rules are known.

first      cube and vector unit in one core (910, 310P)
library    2-D gradients of 910B and 910_93, whose operators come with a library of schedules
operators  whose host code is public: 3-D gradients of 910B and 910_93, all of 910_95
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ascendsim.errors import CapacityError, UnsupportedError
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.tiling.request import PlanRequest
from ascendsim.ops.tiling.vendor.layer import ceil_div

if TYPE_CHECKING:
    from ascendsim.ops.tiling.vendor.layer import VendorPlan

# 910B and 910_93, which have both kinds of operators; and 910_95, which has one operator for all.
SPLIT, NEWEST = "2201", "3510"
# Of grad_input all even cuts of the channels are looked at: with more than any network has that would take
# minutes.
MOST_CHANNELS = 2**16
# What its kernels multiply; a core that is given a rate for 8 bits is not one that it knows.
FORMATS = ("float32", "float16", "bfloat16")


def product_plan(request: PlanRequest) -> tuple[Plan | None, str]:
    """Return the plan that the product's operator takes; or None, and why not if a rule says so."""
    problem, profile = request.kernel, request.profile
    # In an order that is fixed the operators of volumes add the grad_weight of images, too.
    streamed = request.gradient == "grad_weight" and request.deterministic
    found = first_plan(request) or (None if streamed else library_plan(request))
    if found is not None:
        return found, ""
    # A call with five axes is one of volumes, even if they have one depth.
    volumes = problem.rank == 3 or streamed
    if profile.npu_arch != NEWEST and (profile.npu_arch != SPLIT or not volumes):
        return None, ""
    # Imported here, as most 2-D calls do without.
    from ascendsim.ops.tiling.vendor.product_tiling import product_tiling

    # Groups that no change of layout here merges stay apart, whatever the operator does.
    apart = request.usual_merge == 1 < problem.groups
    try:
        return product_tiling(replace(request, group_merge=request.group_merge or int(apart))), ""
    except (CapacityError, UnsupportedError) as error:
        # What to do instead, which follows the reason, is what a search does.
        return None, str(error).partition("; ")[0]


def matmul_plan(request: PlanRequest) -> tuple[Plan | None, str]:
    """Return the plan of a matrix product as its operator chooses it; or None, and why not."""
    # Imported here: most calls have no matrix product.
    from ascendsim.ops.tiling.vendor.matmul import operator_tiling

    tiling, rule = operator_tiling(request.gemm, request.profile)
    if tiling is None:
        return None, f"product's plan of a matrix product on {request.profile.variant}: {rule}"
    return Plan("matmul", tiling, rule=rule), ""


def first_plan(request: PlanRequest, *, tuned: bool = False) -> Plan | None:
    """Return the plan of the first generation; None on other ones, or where no rule is known.

    tuned   whether to search it as its tuned entries were, also where none is known (`first/tuned.py`)
    """
    profile, whole = request.profile, request.whole
    # The grad_input of a transposed convolution is another operator's.
    known = whole.groups == 1 and not (request.gradient == "grad_input" and whole.transposed)
    if profile.core_structure != "unified" or not known:
        return None
    # Imported here and below: calls of all products come by, and the rules are of one generation.
    from ascendsim.ops.tiling.vendor.first.wgrad import has_entry, tuned_tiling

    found = usual_plan(request, tuned_tiling(request), "tuned") if tuned or has_entry(request) else None
    if found is not None or tuned:
        return found and replace(found, chosen_by="tuned")
    if request.gradient == "grad_input":
        from ascendsim.ops.tiling.vendor.first.dgrad import first_dgrad

        return usual_plan(request, first_dgrad(request.gemm, profile, request.blocks), "first generation")
    from ascendsim.ops.tiling.vendor.first.wgrad import first_wgrad

    return usual_plan(request, first_wgrad(request.gemm, profile, request.blocks), "first generation")


def library_plan(request: PlanRequest) -> Plan | None:
    """Return the plan of a 2-D gradient, None where the library does not make it or no rule is known."""
    profile, whole = request.profile, request.whole
    # Five axes make a call one of volumes, whose operators are others, even if they have one depth.
    known = whole.rank < 3 and whole.groups == 1 and not whole.transposed
    if profile.npu_arch != SPLIT or not known or request.stored not in FORMATS:
        return None
    if request.gradient == "grad_input":
        if max(whole.small_channels, whole.big_channels) > MOST_CHANNELS:
            return None
        from ascendsim.ops.tiling.vendor.library.dgrad import library_dgrad

        return usual_plan(request, library_dgrad(request.gemm, profile, request.blocks), "our own")
    if whole.rank == 1:
        # The library has no rules of its own for lines, and takes the older ones.
        from ascendsim.ops.tiling.vendor.first.wgrad import first_wgrad

        return usual_plan(request, first_wgrad(request.gemm, profile, request.blocks), "first generation")
    from ascendsim.ops.tiling.vendor.library.wgrad import library

    merge = request.group_merge
    layer = request.layer.merged(merge)._replace(merges=False) if merge else request.layer
    plan = library(layer, request.machine, flat=True, cells=request.blocks)
    return _of_images(request, plan) if plan else None


def _of_images(request: PlanRequest, plan: VendorPlan) -> Plan:
    """Return the plan of a 2-D grad_weight by the library, for the nest that deals pixels as it does."""
    gemm, grid = request.gemm, dict(plan.grid)
    columns = gemm.all_taps.groups * gemm.sliding.c0
    base_m, base_n = min(plan.base_m, gemm.rows), min(plan.base_n, columns)
    m_dim = min(grid["m"], ceil_div(gemm.rows, base_m))
    n_dim = min(grid["n"], ceil_div(columns, base_n))
    tiling = Tiling(
        *(base_m, base_n, plan.base_k, plan.step_ka, plan.step_kb),
        al1_buffers=plan.al1_buffers,
        bl1_buffers=plan.bl1_buffers,
        cl0_buffers=plan.cl0_buffers,
        used_cores=grid["batch"] * grid["k"] * m_dim * n_dim,
        batch_dim=grid["batch"],
        m_dim=m_dim,
        n_dim=n_dim,
        k_dim=grid["k"],
        step_m=plan.step_m,
        step_n=plan.step_n,
        group_merge=request.merge,
    )
    return Plan("wgrad_fractals", tiling, rule=plan.strategy)


def usual_plan(request: PlanRequest, tiling: Tiling | None, rule: str) -> Plan | None:
    """Return the plan of the usual nest by the tiling of merged groups that a rule made; None of none.

    rule   "our own" where the operator's library is not public, and measured kernels alone hold the plan
    """
    if tiling is None:
        return None
    nest = {"grad_input": "dgrad", "grad_weight": "wgrad"}[request.gradient]
    return Plan(nest, replace(tiling, group_merge=request.merge), rule=rule)
