"""The fastest of a few tilings, by the cycles that the timing executor gives them."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

from ascendsim.numerics.accumulation.models import AccumulationModel
from ascendsim.numerics.accumulation.settings import MathSettings
from ascendsim.ops.plan import Tiling
from ascendsim.ops.problems.matmul import MatmulGemm
from ascendsim.ops.schedules.matmul import Matmul
from ascendsim.profile import Profile
from ascendsim.program.kernel import Kernel
from ascendsim.timing.kernel import measure_kernel

# A product of more Mmads is not timed at all: one run would take a second and more.
MOST_MMADS = 20_000
# So many candidates are timed whatever they take, and more of a small product.
LEAST_CANDIDATES = 6


def fastest(gemm: MatmulGemm, profile: Profile, tilings: Iterable[Tiling]) -> Tiling:
    """Return the tiling of least cycles, L2 warm; of equal ones, or of too long ones, the first."""
    # Equal tilings are timed once; the order stays, so that ties go to the first.
    first, *others = dict.fromkeys(tilings)
    each = _mmads(gemm, first)
    left = max(MOST_MMADS, LEAST_CANDIDATES * each) if each <= MOST_MMADS else 0
    best, least = first, None
    for tiling in others:
        # The budget counts Mmads, not seconds: the choice must not depend on the machine that makes it.
        left -= _mmads(gemm, tiling)
        if left < 0:
            break
        # The first is timed only where there is a second to compare it with.
        least = _cycles(gemm, profile, first) if least is None else least
        cycles = _cycles(gemm, profile, tiling)
        if cycles < least:
            best, least = tiling, cycles
    return best


def _mmads(gemm: MatmulGemm, tiling: Tiling) -> int:
    p = gemm.problem
    return p.batch * ceil(p.m / tiling.base_m) * ceil(p.n / tiling.base_n) * ceil(p.k / tiling.base_k)


def _cycles(gemm: MatmulGemm, profile: Profile, tiling: Tiling) -> int:
    schedule = Matmul(gemm, tiling, profile)
    tensors = {tensor.name: tensor for tensor in schedule.tensors}
    # How the sums are rounded costs no cycles.
    kernel = Kernel("matmul", schedule.phases(), tensors, MathSettings(AccumulationModel("exact")))
    return measure_kernel(kernel, profile).cycles
