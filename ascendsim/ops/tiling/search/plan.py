"""The plan that this simulator's own search finds."""

from __future__ import annotations

from ascendsim.ops.plan import Plan
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.dgrad import DgradGemm
from ascendsim.ops.problems.matmul import MatmulGemm, MatmulProblem
from ascendsim.ops.problems.merged import merged
from ascendsim.ops.problems.wgrad import WgradGemm
from ascendsim.ops.schedules.dgrad.schedule import Dgrad
from ascendsim.ops.schedules.wgrad.schedule import Wgrad
from ascendsim.ops.tiling.search.dgrad import dgrad_tilings
from ascendsim.ops.tiling.search.matmul import matmul_tiling
from ascendsim.ops.tiling.search.wgrad import wgrad_tilings
from ascendsim.ops.tiling.timed import fastest_of_few
from ascendsim.ops.tiling.vendor.matmul import basic_tiling
from ascendsim.ops.tiling.vendor.merging import product_merge
from ascendsim.ops.tiling.vendor.product import merging
from ascendsim.profile import Profile


def search_plan(
    problem: ConvProblem | MatmulProblem,
    gradient: str,
    compute_dtype: str,
    profile: Profile,
    out_dtype: str | None = None,
    group_merge: int = 0,
) -> Plan:
    """Search the plan of one gradient, or of a matrix product, whose operands the cube takes so.

    Costs of instructions rank the candidates; the best few are timed.

    group_merge   groups that are computed as one; 0: as many as the product's operator takes

    Raises   CapacityError if no tile fits into the buffers
    """
    if isinstance(problem, MatmulProblem):
        gemm = MatmulGemm.of(problem, compute_dtype, out_dtype)
        # The vendor's own blocks are one more candidate: they beat what the search finds on many shapes.
        basic = basic_tiling(gemm, profile)
        return Plan("matmul", matmul_tiling(gemm, profile, others=[basic] if basic else []))
    merge = group_merge or product_merge(problem, gradient, compute_dtype, profile)
    whole = merged(problem, merge)
    if gradient == "grad_input":
        images = DgradGemm.of(whole, compute_dtype, out_dtype)
        tiling = fastest_of_few(Dgrad, images, profile, dgrad_tilings(images, profile))
        return merging(Plan("dgrad", tiling), merge)
    assert gradient == "grad_weight", gradient
    filters = WgradGemm.of(whole, compute_dtype)
    tiling = fastest_of_few(Wgrad, filters, profile, wgrad_tilings(filters, profile))
    return merging(Plan("wgrad", tiling), merge)
