"""The plan that this simulator's own search finds."""

from __future__ import annotations

from dataclasses import replace

from ascendsim.ops.plan import Plan
from ascendsim.ops.problems.products import MatmulGemm
from ascendsim.ops.schedules.dgrad.nest import Dgrad
from ascendsim.ops.schedules.wgrad.nest import Wgrad
from ascendsim.ops.tiling.request import PlanRequest
from ascendsim.ops.tiling.search.dgrad import dgrad_tilings
from ascendsim.ops.tiling.search.matmul import matmul_tiling
from ascendsim.ops.tiling.search.wgrad import wgrad_tilings
from ascendsim.ops.tiling.timed import fastest_of_few
from ascendsim.ops.tiling.vendor.matmul import operator_tiling


def search_plan(request: PlanRequest) -> Plan:
    """Search the plan of one gradient, or of a matrix product.

    Costs of instructions rank the candidates; the best few are timed.

    Raises   CapacityError if no tile fits into the buffers
    """
    gemm, profile = request.gemm, request.profile
    if isinstance(gemm, MatmulGemm):
        # The operator's own plan is one more candidate: it beats what the search finds on many shapes.
        planned, _ = operator_tiling(gemm, profile)
        return Plan("matmul", matmul_tiling(gemm, profile, others=[planned] if planned else []))
    if request.gradient == "grad_input":
        tiling = fastest_of_few(Dgrad, gemm, profile, dgrad_tilings(gemm, profile))
        return Plan("dgrad", replace(tiling, group_merge=request.merge))
    tiling = fastest_of_few(Wgrad, gemm, profile, wgrad_tilings(gemm, profile))
    return Plan("wgrad", replace(tiling, group_merge=request.merge))
