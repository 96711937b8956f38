"""The fastest of a few tilings, by the cycles that the timing executor gives them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import floor, inf, isinf

from ascendsim.errors import CapacityError, StoppedError
from ascendsim.numerics.accumulation.models import AccumulationModel
from ascendsim.numerics.accumulation.settings import MathSettings
from ascendsim.ops.plan import Tiling
from ascendsim.ops.problems.dgrad import DgradGemm
from ascendsim.ops.problems.matmul import MatmulGemm
from ascendsim.ops.problems.wgrad import WgradGemm
from ascendsim.ops.schedules.base import Schedule
from ascendsim.ops.schedules.matmul import Matmul
from ascendsim.profile import Profile
from ascendsim.program.kernel import Kernel
from ascendsim.timing.kernel import measure_kernel

# A product of more Mmads is not timed at all: one run would take a second and more.
MOST_MMADS = 20_000
# So many candidates are timed whatever they take, and more of a small product.
LEAST_CANDIDATES = 6
# Of a gradient so many candidates are timed, and so many Mmads in all: some 10 ms, which a call that is
# estimated once can spare.
BEST_FEW, MOST_MMADS_OF_FEW = 3, 6_000


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


def fastest_of_few(
    kind: type[Schedule],
    gemm: DgradGemm | WgradGemm,
    profile: Profile,
    tilings: Sequence[Tiling],
    sums: str = "atomic",
) -> Tiling:
    """Return which of the first few tilings of a gradient takes least with its launch, L2 warm.

    Of equal ones the first. How many are timed: at most `BEST_FEW`, of at most `MOST_MMADS_OF_FEW` together;
    one alone is taken as it is.

    kind   the schedule that the tilings are for
    sums   how parts of a sum are added: as they arrive, as they are unless a call asks for an order
    """
    few = _few(gemm, tilings)
    if len(few) == 1:
        return few[0]
    return fastest_of_all(kind, gemm, profile, ((0, tiling) for tiling in few), sums) or few[0]


def fastest_of_all(
    kind: type[Schedule],
    gemm: DgradGemm | WgradGemm,
    profile: Profile,
    tilings: Iterable[tuple[int, Tiling]],
    sums: str = "atomic",
) -> Tiling | None:
    """Return which tiling takes least with its launch, L2 warm; of equal ones the first; None of none.

    tilings   each with the cycles below which it cannot stay: one that cannot win is not timed
    """
    best, shortest = None, inf
    for least, tiling in tilings:
        schedule = kind(gemm, tiling, profile, sums)
        launch = profile.launch_us(schedule.launched) * profile.clock.cube_mhz
        if least + launch >= shortest:
            continue
        try:
            cycles = launch + _timed(schedule, profile, stop_above=shortest - launch)
        # One that the schedule has no room for is passed over; where all are, the call tells of the first.
        except (CapacityError, StoppedError):
            continue
        if cycles < shortest:
            best, shortest = tiling, cycles
    return best


def _few(gemm: DgradGemm | WgradGemm, tilings: Sequence[Tiling]) -> Sequence[Tiling]:
    """Return the first tilings, no more than are timed; the very first whatever it takes."""
    mmads = accumulate(_mmads(gemm, tiling) for tiling in tilings[:BEST_FEW])
    return tilings[: max(1, sum(all_so_far <= MOST_MMADS_OF_FEW for all_so_far in mmads))]


def _mmads(gemm: DgradGemm | WgradGemm | MatmulGemm, tiling: Tiling) -> int:
    return gemm.mmads((tiling.base_m, tiling.base_n, tiling.base_k))


def _cycles(gemm: MatmulGemm, profile: Profile, tiling: Tiling) -> int:
    return _timed(Matmul(gemm, tiling, profile), profile)


def _timed(schedule: Schedule, profile: Profile, stop_above: float = inf) -> int:
    tensors = {tensor.name: tensor for tensor in schedule.tensors}
    # How the sums are rounded costs no cycles.
    kernel = Kernel(schedule.makes, schedule.phases(), tensors, MathSettings(AccumulationModel("exact")))
    bound = None if isinf(stop_above) else max(0, floor(stop_above))
    return measure_kernel(kernel, profile, stop_above=bound).cycles
