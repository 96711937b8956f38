"""Measured matrix products against their estimates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ascendsim.ops.matmul import estimate_matmul
from ascendsim.ops.plan import Tiling
from ascendsim.ops.problems.matmul import MatmulProblem
from ascendsim.validate.cells import refuse_beyond_memory, refuse_odd_extents, whole_of
from ascendsim.validate.compare import Case
from ascendsim.validate.counters import active_cycles, core_active_cycles, kernel_case, measured_counters
from ascendsim.validate.matmul_rows import Run, run_of
from ascendsim.validate.products import Overrides, profile_of
from ascendsim.validate.rows import Row, Unusable

if TYPE_CHECKING:
    from ascendsim.ops.results import KernelResult
    from ascendsim.profile import Profile
    from ascendsim.timing.timeline import CoreTimeline

# Tiles of one core beyond which a product on one core is run on two of its rows of tiles and the rest follows
# from the difference: its tiles all cost the same.
MOST_SLICES = 200_000
# Runs with known tiles: steps of k that L1 holds at once, and the pipes whose counters are compared.
MOST_STEPS_IN_L1 = 4
SINGLE = frozenset(("float32", "hf32"))
TILE_PIPES = ("M", "MTE1", "FIX")

GROUPS = (
    ("pto-gemm", "published tilings"),
    ("ad-mm8192-case0", "published tilings"),
    ("ad-mm8192-case1", "published tilings"),
    ("ad-mm8192", "inferred tilings"),
    ("msi-llm", "other, A2 generation"),
    ("mstt", "other, A2 generation"),
    ("cb-gemm", "other, A2 generation"),
    ("hpm", "other, first generation"),
)


def is_matmul(row: Row) -> bool:
    """Tell whether a row measured a plain matrix product as one kernel."""
    name = row.op.lower()
    fused = any(word in name for word in ("fusion", "quant", "grouped", "split-k", "mxfp4", "gelu"))
    return ("matmul" in name or "gemm" in name) and not fused and not row.id.startswith("cz-")


def matmul_case(row: Row, variant: str, overrides: Overrides = ()) -> Case | Unusable:
    """Estimate one measured product and compare.

    Raises   AscendSimError if a number that it needs is none, or does not fit the product it ran on
    """
    if row.us is None:
        return Unusable(row.id, "gives no time")
    for word in ("EXCLUDE", "do not use", "shape incomplete", "SHAPES NOT IN THE TRACE"):
        if word in row.notes:
            return Unusable(row.id, f"its source says: {word.lower()}")
    _refuse_odd_cells(row)
    profile = profile_of(variant, overrides)
    if row.dtype in SINGLE and not profile.cube.rates.keys() & SINGLE:
        return Unusable(row.id, f"operands of {row.dtype} are not multiplied on {variant}")
    run = run_of(row, profile)
    if isinstance(run, str):
        return Unusable(row.id, run)
    us, counters = _estimated(run, profile)
    return kernel_case(row, "matmul", GROUPS, variant, us, counters, run.note)


def _refuse_odd_cells(row: Row) -> None:
    """Check the numbers that a row gives; it need not give any of them.

    Raises   DataError if one is none
    """
    for values, keys in ((row.sizes, ("M", "K", "N", "batch")), (row.counters, ("block_dim",))):
        for key in keys:
            if values.get(key) is not None:
                whole_of(values, key)
    m, k, n, batch = (row.sizes.get(key) or 1 for key in ("M", "K", "N", "batch"))
    refuse_beyond_memory(batch * max(m * k, k * n, m * n))
    refuse_odd_extents(row.counters, "base", 3)
    refuse_odd_extents(row.counters, "split", 2)


@lru_cache(maxsize=256)
def _estimated(run: Run, profile: Profile) -> tuple[float, dict[str, float]]:
    """Return the task's microseconds and the active microseconds of each pipe."""
    p, t = run.problem, run.tiling
    slices = p.batch * -(-p.m // t.base_m) * -(-p.n // t.base_n) * -(-p.k // t.base_k) // t.used_cores
    if t.used_cores == 1 and slices > MOST_SLICES:
        return _by_rows(run, profile)
    kernel = _kernel(run, profile)
    return kernel.time_us, _in_us(kernel, profile)


def _by_rows(run: Run, profile: Profile) -> tuple[float, dict[str, float]]:
    """Run one and two rows of tiles; each further row costs what the second does."""
    rows = -(-run.problem.m // run.tiling.base_m)
    one, two = (
        _kernel(replace(run, problem=replace(run.problem, m=count * run.tiling.base_m)), profile)
        for count in (1, 2)
    )
    first, second = _in_us(one, profile), _in_us(two, profile)
    counters = {pipe: first[pipe] + (rows - 1) * (second[pipe] - first[pipe]) for pipe in first}
    return one.time_us + (rows - 1) * (two.time_us - one.time_us), counters


def _kernel(run: Run, profile: Profile) -> KernelResult:
    estimate = estimate_matmul(
        run.problem,
        run.dtype,
        product=profile,
        cube_math_type=run.cube_math_type,
        tiling=run.tiling,
        out_dtype=run.out_dtype,
        l2_start=run.l2_start,
    )
    return estimate.kernels[-1]


def _in_us(kernel: KernelResult, profile: Profile) -> dict[str, float]:
    return {pipe: cycles / profile.clock.cube_mhz for pipe, cycles in active_cycles(kernel.timeline).items()}


def is_tile_run(row: Row) -> bool:
    """Tell whether a row counted the pipes of one core over whole tiles."""
    return row.id.startswith("cz-")


def tile_cases(row: Row, variant: str, overrides: Overrides = ()) -> list[Case | Unusable]:
    """Compare the counters of one core of a run with known tiles: cube, MTE1 and Fixpipe.

    Raises   DataError if a number that it needs is none, CapacityError for tiles that do not fit
    """
    tiles = whole_of(row.sizes, "tiles_on_core")
    measured = measured_counters({**row.counters, **row.sizes}, row.us)
    untold = [pipe for pipe in TILE_PIPES if not measured.get(pipe)]
    if untold:
        return [Unusable(row.id, f"gives no busy time of {', '.join(untold)}")]
    profile = profile_of(variant, overrides)
    timeline = _kernel(_tile_run(row.sizes, profile), profile).timeline
    taken = {_tiles_of(core): core for core in timeline.phases[0].cores}
    if tiles not in taken:
        wanted = " or ".join(str(count) for count in sorted(taken))
        return [Unusable(row.id, f"its tiles_on_core is {tiles}; cores of such a run take {wanted}")]
    estimated = core_active_cycles(taken[tiles])
    return [
        Case(
            f"{row.id} {pipe}",
            "matmul",
            "pipes of one core",
            variant,
            "us",
            measured[pipe],
            estimated[pipe] / profile.clock.cube_mhz,
            row.source,
            note="m, n, k and what L1 holds inferred from the number of tiles and the cube's time",
        )
        for pipe in TILE_PIPES
    ]


def _tile_run(sizes: Mapping[str, Any], profile: Profile) -> Run:
    """Return the product whose tiles the run's cores share.

    8 rows of 4 tiles, as 12 of its 20 cores took two tiles and 8 took one.
    """
    steps = whole_of(sizes, "k_steps_inferred")
    m, n, k = (whole_of(sizes, key) for key in ("baseM", "baseN", "baseK"))
    refuse_beyond_memory(8 * m * steps * k)
    whole_in_l1 = steps <= MOST_STEPS_IN_L1
    held, copies = (steps, 1) if whole_in_l1 else (2, 2)
    tiling = Tiling(
        *(m, n, k, held, held),
        single_core_m=m,
        single_core_n=n,
        al1_buffers=copies,
        bl1_buffers=copies,
        bl0_buffers=1,
        used_cores=profile.cores.cube,
    )
    return Run(MatmulProblem(8 * m, steps * k, 4 * n), "float16", 0, tiling, "float16")


def _tiles_of(core: CoreTimeline) -> int:
    """Return how many tiles a core wrote."""
    return sum(instruction.pipe == "FIX" for instruction in core.program.instructions)
