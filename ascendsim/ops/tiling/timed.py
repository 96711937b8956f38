"""The fastest of a few tilings, by the cycles that the timing executor gives them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from math import floor, inf, isinf
from typing import Any

from ascendsim.errors import CapacityError, StoppedError
from ascendsim.numerics.accumulation import AccumulationModel, MathSettings
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.problems.matmul import MatmulGemm
from ascendsim.ops.problems.products import DgradGemm, WgradGemm
from ascendsim.ops.schedules.base import Schedule, schedule_named
from ascendsim.ops.schedules.blocks import BlockSchedule
from ascendsim.ops.schedules.matmul import Matmul
from ascendsim.ops.schedules.ranges import listed
from ascendsim.ops.schedules.wgrad.cut import narrowed_to
from ascendsim.ops.schedules.wgrad.nest import Wgrad
from ascendsim.ops.schedules.wgrad.stream import WgradStream
from ascendsim.ops.tiling.request import PlanRequest
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
        # A tiling without room is passed over; if all are, the call reports the first error.
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
    return gemm.mmads(tiling.base)


def _cycles(gemm: MatmulGemm, profile: Profile, tiling: Tiling) -> int:
    return _timed(Matmul(gemm, tiling, profile), profile)


def _timed(schedule: Schedule, profile: Profile, stop_above: float = inf) -> int:
    tensors = {tensor.name: tensor for tensor in schedule.tensors}
    # How the sums are rounded costs no cycles.
    kernel = Kernel(schedule.makes, schedule.phases(), tensors, MathSettings(AccumulationModel("exact")))
    bound = None if isinf(stop_above) else max(0, floor(stop_above))
    return measure_kernel(kernel, profile, stop_above=bound).cycles


# Every size is a multiple of a fractal, or of a group of channels where those are wider.
FRACTAL = 16
STEPS = ("step_ka", "step_kb")
# What is made smaller where a buffer is short, in this order: what costs least first. Fields that stand
# together are halved in turn, the larger one first.
SHRINK: dict[str, tuple[tuple[str, ...], ...]] = {
    "L1": (("step_m", "step_n"), STEPS, ("base_k",), ("al1_buffers", "bl1_buffers"), ("base_m", "base_n")),
    "L0A": (("base_k",), ("base_m",), ("al0_buffers",)),
    "L0B": (("base_k",), ("base_n",), ("bl0_buffers",)),
    "L0C": (("cl0_buffers",), ("base_m", "base_n")),
    "UB": (("base_m",),),
}


def fitted(tiling: Tiling, kind: type[Schedule], request: PlanRequest) -> Tiling:
    """Return the tiling with what is not fixed made smaller until it fits, on all cores that get work.

    Raises   CapacityError naming the buffer that is short whatever is left open
    """
    partial = request.fixed
    while True:
        tiling = replace(tiling, used_cores=most_cores(request))
        schedule = kind(request.gemm, tiling, request.profile, request.sums)
        try:
            dealt = [tasks for tasks in schedule.dealt() if len(tasks)]
            _reserve(schedule, dealt)
            if "base_n" in partial.fields:
                _require_width(schedule)
        except CapacityError as error:
            smaller = _smaller(tiling, error.buffer, {*partial.fields, *kind.fixed}, unit_of(request))
            if smaller is None:
                said = ", ".join(f"{name} {value}" for name, value in partial.fields.items())
                raise CapacityError(
                    f"tiling of {kind.makes}: with {said} nothing that is left open makes the tiles fit: "
                    f"{error}",
                    error.buffer,
                ) from None
            tiling = smaller
        else:
            if "used_cores" in partial.fields:
                return tiling
            return replace(tiling, used_cores=_busy(schedule, dealt))


def short_buffer(plan: Plan, request: PlanRequest) -> str:
    """Return why the buffers do not hold the tiles of a plan; "" where they do."""
    asked = replace(request, group_merge=plan.tiling.group_merge)
    made = schedule_named(plan.schedule)(asked.gemm, plan.tiling, request.profile, request.sums)
    try:
        _reserve(made, [tasks for tasks in made.dealt() if len(tasks)])
    except CapacityError as error:
        return str(error).partition("; ")[0]
    return ""


def most_cores(request: PlanRequest) -> int:
    """Return how many cores a plan may use."""
    partial, cores = request.fixed, request.profile.cores.cube
    given: int = partial.fields.get("used_cores", min(cores, partial.block_dim or cores))
    return given


def _busy(schedule: Schedule, dealt: Sequence[Sequence[Any]]) -> int:
    """Return how many cores get work."""
    if isinstance(schedule, WgradStream):
        # Which tasks are left for the last round, the cores of the launch decide: also those that, for
        # padding, get nothing.
        return min(schedule.tiling.used_cores, schedule.tasks.count * schedule.parts)
    return max(1, len(dealt))


def unit_of(request: PlanRequest) -> int:
    """Return the unit, in elements, of which every size is a multiple."""
    sliding = getattr(request.gemm, "sliding", None)
    return max(FRACTAL, sliding.c0) if sliding else 2 * FRACTAL


def _reserve(schedule: Schedule, dealt: Sequence[Sequence[Any]]) -> None:
    """Reserve the slots of the cores.

    Raises   CapacityError naming buffer, need and capacity
    """
    if isinstance(schedule, BlockSchedule) and type(schedule).program is BlockSchedule.program:
        # The largest first: an error tells what that needs, not what is left over for the last core.
        for sizes in sorted({schedule.tasks.sizes(listed(tasks)) for tasks in dealt}, reverse=True):
            schedule.nest(sizes)
    elif dealt:
        # Other nests reserve room only in their programs; the first core usually has the largest tiles.
        schedule.program(dealt[0])


def _require_width(schedule: Schedule) -> None:
    """Refuse tiles of grad_weight beside which L1 holds narrower blocks than those asked for.

    Raises   CapacityError
    """
    if isinstance(schedule, Wgrad):
        columns = narrowed_to(schedule.gemm, schedule.tiling, schedule.tasks.column_blocks)
        if columns:
            raise CapacityError(
                f"L1 of {schedule.profile.variant} holds the windows of {columns} columns beside "
                f"grad_output, but base_n is {schedule.tiling.base_n}; take smaller steps or fewer copies",
                "L1",
            )


def _smaller(tiling: Tiling, buffer: str, given: Collection[str], unit: int) -> Tiling | None:
    """Return the tiling with one field halved that the buffer hangs on; None if all are given or least."""
    for together in SHRINK.get(buffer, ()):
        free = [name for name in together if name not in given]
        name = max(free, key=lambda field: int(getattr(tiling, field)), default="")
        least = unit if name.startswith("base") else 1
        if not name or getattr(tiling, name) <= least:
            continue
        half = -(-getattr(tiling, name) // (2 * least)) * least
        # Of grad_weight both steps are one: a tile of each operand serves the same pixels.
        if name in STEPS and tiling.step_ka == tiling.step_kb and len(free) == len(together):
            return replace(tiling, step_ka=half, step_kb=half)
        return replace(tiling, **{name: half})
    return None
