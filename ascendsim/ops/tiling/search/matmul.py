"""The plan of a matrix product, and how one is chosen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from math import ceil
from typing import TYPE_CHECKING

from ascendsim.arguments import whole
from ascendsim.cube.views import round_up
from ascendsim.errors import CapacityError, ConfigError
from ascendsim.ops.plan import even_parts
from ascendsim.ops.problems.matmul import MatmulProblem

if TYPE_CHECKING:
    from ascendsim.profile import Profile

FLOAT32_BYTES = 4
PANELS = ("rows", "columns")
SWITCHES = ("keep_pieces", "unit_flag")
SIZES = 13  # of a base block along one axis that are looked at: from the largest down to a quarter


@dataclass(frozen=True)
class MatmulTiling:
    """How a matrix product is cut into tiles, in elements unless said otherwise.

    base_m, base_n, base_k  one L0C tile and the reduction of one Mmad
    step_ka, step_kb        slices of base_k that one L1 tile of a and of b holds
    single_core_m, single_core_n
                            the block of c that a core takes at a time; its tiles run along n first;
                            0: one base block
    al1_buffers, bl1_buffers, al0_buffers, bl0_buffers, cl0_buffers
                            copies of each tile: 1, 2 for ping-pong, or more
    swizzle                 rows of blocks that are walked together, column by column, so that what the
                            cores read at one time is nearly square
    panels                  "rows" for that, or "columns" for columns walked together, row by row
    used_cores              cores that get blocks; block i of the walk goes to core i modulo their number
    keep_pieces             whether what L1 holds of a and b stays for the next tile of the core that needs it
    unit_flag               whether Fixpipe takes a tile piece by piece while the last product is added to it

    Raises   ConfigError if a size is not a positive integer, `panels` neither, or one of the last two no bool
    """

    base_m: int
    base_n: int
    base_k: int
    step_ka: int = 1
    step_kb: int = 1
    single_core_m: int = 0
    single_core_n: int = 0
    al1_buffers: int = 2
    bl1_buffers: int = 2
    al0_buffers: int = 2
    bl0_buffers: int = 2
    cl0_buffers: int = 1
    swizzle: int = 1
    used_cores: int = 1
    panels: str = "rows"
    keep_pieces: bool = True
    unit_flag: bool = False

    def __post_init__(self) -> None:
        """Refuse what no schedule could execute."""
        if self.panels not in PANELS:
            raise ConfigError(f"matmul tiling: panels is {self.panels!r}; it must be rows or columns")
        for name in SWITCHES:
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise ConfigError(f"matmul tiling: {name} is {value!r}; it must be True or False")
        defaults = {"single_core_m": self.base_m, "single_core_n": self.base_n}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("panels", *SWITCHES):
                continue
            number = whole(value)
            if number == 0:
                number = whole(defaults.get(field.name))
            if number is None or number < 1:
                raise ConfigError(f"matmul tiling: {field.name} is {value!r}; it must be a positive integer")
            object.__setattr__(self, field.name, number)


def require_plan(plan: MatmulTiling, profile: Profile, compute_dtype: str) -> None:
    """Refuse what is no plan, cuts through a fractal of the reduction, or wants what the product has not.

    Raises   ConfigError naming the field
    """
    if not isinstance(plan, MatmulTiling):
        raise ConfigError(f"matmul: tiling is {plan!r}; it must be a MatmulTiling or None")
    k0, cores = profile.cube.rates[compute_dtype].k0, profile.cores.cube
    if plan.base_k % k0:
        raise ConfigError(
            f"matmul tiling: base_k is {plan.base_k}, which is no multiple of {k0}; take "
            f"{round_up(plan.base_k, k0)}"
        )
    if plan.used_cores > cores:
        raise ConfigError(
            f"matmul tiling: used_cores is {plan.used_cores}, but {profile.variant} has {cores} cores"
        )
    if plan.unit_flag and not profile.fixpipe.unit_flag_bytes:
        raise ConfigError(
            f"matmul tiling: unit_flag is on, but {profile.variant} has no unit flag between Mmad and "
            "Fixpipe; take False"
        )


def matmul_tiling(
    problem: MatmulProblem, profile: Profile, compute_dtype: str, itemsize: int, cores: int | None = None
) -> MatmulTiling:
    """Return the plan of least estimated cycles; ties go to the one found first, with the larger base block.

    `cores` is how many cores may be used; None: all.

    The estimate of the busiest core takes the longest of M, MTE1, MTE2 and the write-back as if they
    overlapped, plus the last write-back. It only ranks plans.

    Raises   CapacityError if not even one fractal fits
    """
    best: tuple[float, MatmulTiling] | None = None
    for plan in _plans(
        problem, profile, compute_dtype, itemsize, min(cores or profile.cores.cube, profile.cores.cube)
    ):
        score = _bound(problem, plan, profile, compute_dtype, itemsize)
        if best is None or score < best[0]:
            best = score, plan
    if best is None:
        raise CapacityError(f"matmul: no base block fits into the buffers of {profile.variant}")
    return best[1]


def block_tiling(
    problem: MatmulProblem, profile: Profile, compute_dtype: str, itemsize: int, blocks: int
) -> MatmulTiling:
    """Return the best plan that cuts c into a grid of exactly so many equal blocks, one core each.

    Where there are more blocks than cores, some cores take a second one. As measured of the first
    generation's kernels, blocks are cut into equal tiles (a side of a prime number of fractals gets tiles of
    one fractal), and every tile brings both its operands.

    Raises   CapacityError if no grid leaves every block a fractal that fits
    """
    best: tuple[float, MatmulTiling] | None = None
    for m, n in _grids(problem, profile, blocks):
        block = replace(problem, m=min(m, problem.m), n=min(n, problem.n))
        for plan in _plans(block, profile, compute_dtype, itemsize, 1, equal=True):
            score = _bound(block, plan, profile, compute_dtype, itemsize)
            if best is None or score < best[0]:
                cores = min(blocks, profile.cores.cube)
                grid = replace(plan, single_core_m=m, single_core_n=n, used_cores=cores, keep_pieces=False)
                best = score, grid
    if best is None:
        raise CapacityError(f"matmul: c {problem.m} x {problem.n} cannot be cut into {blocks} equal blocks")
    return best[1]


def _grids(problem: MatmulProblem, profile: Profile, blocks: int) -> list[tuple[int, int]]:
    """Return the sides of the blocks that cut c into so many; those that leave no rest, if there are any."""
    cube = profile.cube
    rows, columns = ceil(problem.m / cube.m0), ceil(problem.n / cube.n0)
    found: dict[bool, list[tuple[int, int]]] = {False: [], True: []}
    for down in (count for count in range(1, blocks + 1) if blocks % count == 0):
        high, wide = ceil(rows / down), ceil(columns / (blocks // down))
        if ceil(rows / high) * ceil(columns / wide) == blocks:
            exact = high * down == rows and wide * blocks == columns * down
            found[exact].append((high * cube.m0, wide * cube.n0))
    return found[True] or found[False]


def _plans(
    problem: MatmulProblem,
    profile: Profile,
    compute_dtype: str,
    itemsize: int,
    cores: int,
    equal: bool = False,
) -> Iterator[MatmulTiling]:
    """Yield the plans worth a look: large base blocks, deep L1 tiles, all cores.

    `equal`: only base blocks that leave no smaller ones at the edges.
    """

    def sizes(total: int, step: int, most: int) -> list[int]:
        parts = even_parts(total, step, most)
        return [size for size in parts if not equal or round_up(total, step) % size == 0][:SIZES]

    cube, buffers = profile.cube, profile.buffers
    k0 = cube.rates[compute_dtype].k0
    half_a, half_b = buffers["L0A"].capacity_bytes // 2, buffers["L0B"].capacity_bytes // 2
    for base_m in sizes(problem.m, cube.m0, 256):
        most_n = buffers["L0C"].capacity_bytes // (FLOAT32_BYTES * base_m) // cube.n0 * cube.n0
        for base_n in sizes(problem.n, cube.n0, min(256, most_n)) if most_n else ():
            k = min(half_a // (base_m * itemsize), half_b // (base_n * itemsize)) // k0 * k0
            if not k:
                continue
            base_k = min(k, round_up(problem.k, k0))
            copies = 2 if 2 * FLOAT32_BYTES * base_m * base_n <= buffers["L0C"].capacity_bytes else 1
            blocks = problem.batch * ceil(problem.m / base_m) * ceil(problem.n / base_n)
            # The larger operand is walked once; the other again for every panel. Half the square panel leaves
            # more of L2 to it.
            panels = "rows" if problem.m >= problem.n else "columns"
            square = cores * base_n / base_m if panels == "rows" else cores * base_m / base_n
            for steps in _steps(problem, (base_m, base_n, base_k), itemsize, profile):
                yield MatmulTiling(
                    *(base_m, base_n, base_k, steps, steps),
                    single_core_m=base_m,
                    single_core_n=base_n,
                    cl0_buffers=copies,
                    swizzle=max(1, round(square**0.5 / 2)),
                    used_cores=min(blocks, cores),
                    panels=panels,
                )


def _steps(
    problem: MatmulProblem, base: tuple[int, int, int], itemsize: int, profile: Profile
) -> Iterator[int]:
    """Yield how many slices to hold in each of two L1 tiles: as many as make whole lines, then the most."""
    base_m, base_n, base_k = base
    slices = profile.buffers["L1"].capacity_bytes // (2 * (base_m + base_n) * base_k * itemsize)
    most = min(slices, ceil(problem.k / base_k))
    for steps in range(most, 0, -1):
        if steps * base_k * itemsize % profile.l2.line_bytes == 0:
            yield steps
            break
    if most:
        yield most


def _bound(
    problem: MatmulProblem, plan: MatmulTiling, profile: Profile, compute_dtype: str, itemsize: int
) -> float:
    """Return the cycles of the busiest core, as far as they decide between plans."""
    cube, paths = profile.cube, profile.paths
    tiles = problem.batch * ceil(problem.m / plan.base_m) * ceil(problem.n / plan.base_n)
    m, n = plan.base_m, plan.base_n
    k = round_up(problem.k, cube.rates[compute_dtype].k0)
    products = ceil(problem.k / plan.base_k)
    mac = m * n * k / cube.rates[compute_dtype].macs_per_cycle + products * cube.mmad_head_cycles
    to_l0 = k * itemsize * (m / paths["L1_L0A"].bytes_per_cycle + n / paths["L1_L0B"].bytes_per_cycle)
    to_l0 += products * (paths["L1_L0A"].head_cycles + paths["L1_L0B"].head_cycles)
    to_l1 = sum(_load_cycles(problem, plan, profile, itemsize))
    out = paths.get("L0C_GM") or paths["L0C_UB"]
    store = m * n * FLOAT32_BYTES / float(out.bytes_per_cycle)
    hidden = store if plan.cl0_buffers == 2 else 0.0
    rounds = ceil(tiles / plan.used_cores)
    return rounds * max(mac + store - hidden, float(to_l0), to_l1, store) + store


def _load_cycles(
    problem: MatmulProblem, plan: MatmulTiling, profile: Profile, itemsize: int
) -> Iterator[float]:
    """Yield the cycles of bringing a's and b's pieces of one tile into L1 with all cores loading."""
    path = profile.paths["GM_L1"]
    share = float(profile.links["l2_read"].total_bytes_per_cycle) / plan.used_cores
    depth = min(problem.k, plan.step_ka * plan.base_k), min(problem.k, plan.step_kb * plan.base_k)
    pieces = (
        (plan.base_m, depth[0]) if not problem.transpose_a else (depth[0], plan.base_m),
        (plan.base_n, depth[1]) if problem.transpose_b else (depth[1], plan.base_n),
    )
    for piece, chunk in zip(pieces, depth, strict=True):
        size = piece[0] * piece[1] * itemsize
        count, occupied = path.requests(size, problem.runs(*piece, itemsize))
        rate = min(share, float(path.peak(size, count, occupied)))
        yield max(path.least_cycles, max(size, float(occupied)) / rate) * problem.k / chunk
