"""The plan of the product's own matrix product where it walks basic blocks."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from ascendsim.ops.tiling.search.matmul import MatmulTiling

if TYPE_CHECKING:
    from ascendsim.ops.problems.matmul import MatmulProblem
    from ascendsim.profile import Profile

# What the vendor's samples and its convolution library take on this core: it fills L0C, and with 128 bytes of
# the reduction half of L0B. Counters tell that its matrix product does so, too: per block MTE1 is busy for
# what 128 rows and 256 columns take, and M for as many multiply-adds.
BASE_M, BASE_N, BASE_K_BYTES, SLICES = 128, 256, 128, 4
L0C_BYTES = 4 * BASE_M * BASE_N
# With fewer rounds of basic blocks the product cuts blocks so that cores end together; how is not known.
LEAST_ROUNDS = 2


def basic_plan(
    problem: MatmulProblem, profile: Profile, itemsize: int, cores: int | None = None
) -> MatmulTiling | None:
    """Return the plan of basic blocks dealt to so many cores (None: all), None where it would not be taken.

    Source   128 x 256 x 64 in the vendor's samples of matrix products on 910B1; counters of MatMulV3 kernels
    """
    if profile.core_structure != "split" or profile.buffers["L0C"].capacity_bytes != L0C_BYTES:
        return None
    used = min(cores or profile.cores.cube, profile.cores.cube)
    if problem.batch * ceil(problem.m / BASE_M) * ceil(problem.n / BASE_N) < LEAST_ROUNDS * used:
        return None
    if problem.m < BASE_M or problem.n < BASE_N:
        return None
    # Both operands come for every block. The larger one is walked once, in panels of half a square's side,
    # as in this simulator's own plans.
    rows = problem.m >= problem.n
    square = used * BASE_N / BASE_M if rows else used * BASE_M / BASE_N
    return MatmulTiling(
        *(BASE_M, BASE_N, BASE_K_BYTES // itemsize, SLICES, SLICES),
        swizzle=max(1, round(square**0.5 / 2)),
        used_cores=used,
        panels="rows" if rows else "columns",
        keep_pieces=False,
    )
