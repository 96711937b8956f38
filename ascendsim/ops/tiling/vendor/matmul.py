"""The tilings of the products' own matrix products, as far as measurements tell them."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from ascendsim.errors import CapacityError
from ascendsim.ops.plan import Tiling
from ascendsim.ops.problems.matmul import MatmulGemm
from ascendsim.ops.tiling.search.matmul import block_tiling, ranked
from ascendsim.profile import Profile

# What the vendor's samples and its convolution library take on this core: it fills L0C, and with 128 bytes of
# the reduction half of L0B. Counters tell that its matrix product does so, too: per block MTE1 is busy for
# what 128 rows and 256 columns take, and M for as many multiply-adds.
BASE_M, BASE_N, BASE_K_BYTES, SLICES = 128, 256, 128, 4
L0C_BYTES = 4 * BASE_M * BASE_N
# With fewer rounds of basic blocks the product cuts blocks so that cores end together; how is not known.
LEAST_ROUNDS = 2


def basic_tiling(gemm: MatmulGemm, profile: Profile, cores: int | None = None) -> Tiling | None:
    """Return the tiling of basic blocks dealt to so many cores (None: all), None where it would not be taken.

    Source   128 x 256 x 64 in the vendor's samples of matrix products on 910B1; counters of MatMulV3 kernels
    """
    problem = gemm.problem
    if profile.core_structure != "split" or profile.buffers["L0C"].capacity_bytes != L0C_BYTES:
        return None
    used = min(cores or profile.cores.cube, profile.cores.cube)
    few = problem.batch * ceil(problem.m / BASE_M) * ceil(problem.n / BASE_N) < LEAST_ROUNDS * used
    if few or problem.m < BASE_M or problem.n < BASE_N:
        return None
    # Both operands come for every block. The larger one is walked once, in panels of half a square's side,
    # as in this simulator's own plans.
    rows = problem.m >= problem.n
    square = used * BASE_N / BASE_M if rows else used * BASE_M / BASE_N
    return Tiling(
        *(BASE_M, BASE_N, BASE_K_BYTES // gemm.a.itemsize, SLICES, SLICES),
        swizzle=max(1, round(square**0.5 / 2)),
        used_cores=used,
        panels="rows" if rows else "columns",
        reuse_l1=False,
    )


def vendor_tiling(
    gemm: MatmulGemm, profile: Profile, blocks: int | None, *, basic: bool
) -> tuple[Tiling, str]:
    """Return the tiling that the vendor's kernel took, as far as it is known, and what it is.

    `blocks` are those that ran, where a profile tells; `basic` says whether the kernel walks basic blocks
    where it can (MatMulV2 does not).

    The kernels bring both operands of every tile: where one side is a prime number of fractals, so that tiles
    can only be so large, the times are those of both. Where cores are unified they cut c into that many equal
    blocks; elsewhere blocks are cores.
    """
    tiling = basic_tiling(gemm, profile, blocks) if basic else None
    if tiling is not None:
        return tiling, "the basic blocks of the product's kernels"
    own = "this simulator's choice, both operands brought for every tile"
    if blocks is not None and profile.core_structure == "unified" and gemm.problem.batch == 1:
        try:
            return block_tiling(gemm, profile, blocks), own
        except CapacityError:
            pass  # no grid of so many blocks: then they were cut in some other way
    # By rank alone: timing would compare tilings under the reuse that this kernel is known not to have.
    return replace(ranked(gemm, profile, blocks)[0], reuse_l1=False), own
