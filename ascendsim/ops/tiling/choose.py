"""The choice of a plan, made once for each gradient of a call; everything else reads it from there."""

from __future__ import annotations

from ascendsim.ops.plan import Plan
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.dgrad import DgradGemm
from ascendsim.ops.problems.matmul import MatmulGemm, MatmulProblem
from ascendsim.ops.problems.wgrad import WgradGemm
from ascendsim.ops.tiling.search.dgrad import dgrad_tiling
from ascendsim.ops.tiling.search.matmul import matmul_tiling
from ascendsim.ops.tiling.search.wgrad import wgrad_tiling
from ascendsim.ops.tiling.vendor.matmul import basic_tiling
from ascendsim.profile import Profile


def choose_tiling(
    problem: ConvProblem | MatmulProblem,
    gradient: str,
    dtype: str,
    profile: Profile,
    *,
    hf32: bool = False,
    out_dtype: str | None = None,
) -> Plan:
    """Return the plan of one gradient, or of a matrix product.

    problem    a ConvProblem for "grad_input" and "grad_weight", a MatmulProblem for "matmul"
    gradient   what is computed
    dtype      the format in which the operands lie in memory; hf32: float32 that the cube rounds to HF32
    out_dtype  of a matrix product: the format of its result; None: the usual one

    Raises     CapacityError if no tile fits into the buffers
    """
    compute_dtype = "hf32" if hf32 else dtype
    if isinstance(problem, MatmulProblem):
        gemm = MatmulGemm.of(problem, compute_dtype, out_dtype)
        # The vendor's own blocks are one more candidate: they beat what the search finds on many shapes.
        basic = basic_tiling(gemm, profile)
        return Plan("matmul", matmul_tiling(gemm, profile, others=[basic] if basic else []))
    if gradient == "grad_input":
        return Plan("dgrad", dgrad_tiling(DgradGemm.of(problem, compute_dtype), profile))
    assert gradient == "grad_weight", gradient
    return Plan("wgrad", wgrad_tiling(WgradGemm.of(problem, compute_dtype), profile))
