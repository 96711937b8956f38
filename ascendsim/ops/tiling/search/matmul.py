"""Tilings of a matrix product: candidates, ranked by what their instructions cost, the best few timed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import ceil
from operator import itemgetter

from ascendsim.errors import CapacityError
from ascendsim.instructions.cube import Submatrix, round_up
from ascendsim.ops.plan import Tiling, even_parts
from ascendsim.ops.problems.matmul import MatmulGemm
from ascendsim.ops.tiling.search.costs import Rates, base_block
from ascendsim.ops.tiling.timed import fastest
from ascendsim.profile import Profile

SIZES = 13  # of a base block along one axis that are looked at: from the largest down to a quarter
# How many of the best by rank are timed at most: of 200 products of all sizes on six products of the family
# the fastest was ranked lower only where the difference was below 3 %.
SHORT_LIST = 12


def matmul_tiling(gemm: MatmulGemm, profile: Profile, others: Iterable[Tiling] = ()) -> Tiling:
    """Return the fastest of the candidates that rank best, and of `others`; ties go to the better rank.

    Of a product too long to be timed the best rank is taken.

    Raises   CapacityError if not even one fractal fits
    """
    # The rank overlaps all pipes, so it cannot see what a schedule makes wait: the best few are timed.
    known = list(others)
    best = ranked(gemm, profile, others=known)[:SHORT_LIST]
    # What somebody else found good is timed whatever its rank.
    return fastest(gemm, profile, [best[0], *known, *best])


def ranked(
    gemm: MatmulGemm, profile: Profile, cores: int | None = None, others: Iterable[Tiling] = ()
) -> list[Tiling]:
    """Return the candidates and `others`, the one of the least bound on its cycles first.

    `cores` is how many may be used; None: all.

    Raises   CapacityError if not even one fractal fits
    """
    used = min(cores or profile.cores.cube, profile.cores.cube)
    candidates = [*others, *_candidates(gemm, profile, used)]
    if not candidates:
        raise CapacityError(f"matmul: no base block fits into the buffers of {profile.variant}")
    # Fewer cores have larger parts of the links.
    rates = {n: Rates(profile, gemm.compute_dtype, n) for n in {tiling.used_cores for tiling in candidates}}
    bounds = [_bound(gemm, tiling, rates[tiling.used_cores]) for tiling in candidates]
    order = sorted(range(len(candidates)), key=bounds.__getitem__)
    # Equal tilings have equal bounds; one of them is enough.
    return list(dict.fromkeys(candidates[place] for place in order))


def block_tiling(gemm: MatmulGemm, profile: Profile, blocks: int) -> Tiling:
    """Return the best tiling that cuts c into a grid of exactly so many equal blocks, one core each.

    Where there are more blocks than cores, some cores take a second one. As measured of the first
    generation's kernels, blocks are cut into equal tiles (a side of a prime number of fractals gets tiles of
    one fractal), and every tile brings both its operands.

    Raises   CapacityError if no grid leaves every block a fractal that fits
    """
    problem = gemm.problem
    cores = min(blocks, profile.cores.cube)
    rates = Rates(profile, gemm.compute_dtype, 1)
    found: list[tuple[float, Tiling]] = []
    for m, n in _grids(gemm, profile, blocks):
        block = replace(gemm, problem=replace(problem, m=min(m, problem.m), n=min(n, problem.n)))
        for tiling in _candidates(block, profile, 1, equal=True):
            grid = replace(tiling, single_core_m=m, single_core_n=n, used_cores=cores, reuse_l1=False)
            found.append((_bound(block, tiling, rates), grid))
    if not found:
        raise CapacityError(f"matmul: c {problem.m} x {problem.n} cannot be cut into {blocks} equal blocks")
    return min(found, key=itemgetter(0))[1]


def _grids(gemm: MatmulGemm, profile: Profile, blocks: int) -> list[tuple[int, int]]:
    """Return the sides of the blocks that cut c into so many; those that leave no rest, if there are any."""
    # Counted in fractals, as no block is smaller; `down` blocks one below the other, the rest side by side.
    cube, problem = profile.cube, gemm.problem
    rows, columns = ceil(problem.m / cube.m0), ceil(problem.n / cube.n0)
    found: dict[bool, list[tuple[int, int]]] = {False: [], True: []}
    for down in (count for count in range(1, blocks + 1) if blocks % count == 0):
        high, wide = ceil(rows / down), ceil(columns / (blocks // down))
        if ceil(rows / high) * ceil(columns / wide) == blocks:
            exact = high * down == rows and wide * blocks == columns * down
            found[exact].append((high * cube.m0, wide * cube.n0))
    return found[True] or found[False]


def _candidates(gemm: MatmulGemm, profile: Profile, cores: int, *, equal: bool = False) -> Iterator[Tiling]:
    """Yield the tilings worth a look: large base blocks, deep L1 tiles, all cores.

    `equal`: only base blocks that leave no smaller ones at the edges.
    """

    def sizes(total: int, step: int, most: int) -> list[int]:
        parts = even_parts(total, step, most)
        return [size for size in parts if not equal or round_up(total, step) % size == 0][:SIZES]

    problem, itemsize = gemm.problem, gemm.a.itemsize
    cube, buffers = profile.cube, profile.buffers
    k0 = cube.rates[gemm.compute_dtype].k0
    l0c = buffers["L0C"].capacity_bytes
    for base_m in sizes(problem.m, cube.m0, 256):
        most_n = l0c // (4 * base_m) // cube.n0 * cube.n0
        for base_n in sizes(problem.n, cube.n0, min(256, most_n)) if most_n else ():
            block = base_block(profile, itemsize, base_m, base_n, k0)
            if block is None:
                continue
            # Two slices of both operands: a small L1 holds fewer of k than a large L0.
            held = buffers["L1"].capacity_bytes // (2 * (base_m + base_n) * itemsize) // k0 * k0
            base_k = min(block.k, round_up(problem.k, k0), held)
            if not base_k:
                continue
            blocks = problem.batch * ceil(problem.m / base_m) * ceil(problem.n / base_n)
            # The larger operand is walked once; the other again for every panel. Half the square panel leaves
            # more of L2 to it.
            panels = "rows" if problem.m >= problem.n else "columns"
            square = cores * base_n / base_m if panels == "rows" else cores * base_m / base_n
            for steps in _steps(gemm, (base_m, base_n, base_k), profile):
                yield Tiling(
                    *(base_m, base_n, base_k, steps, steps),
                    cl0_buffers=block.copies,
                    swizzle=max(1, round(square**0.5 / 2)),
                    used_cores=min(blocks, cores),
                    panels=panels,
                )


def _steps(gemm: MatmulGemm, base: tuple[int, int, int], profile: Profile) -> Iterator[int]:
    """Yield how many slices to hold in each of two L1 tiles: as many as make whole lines, then the most."""
    # A row of a tile that ends inside a line of L2 costs a request more, and the next tile one more.
    base_m, base_n, base_k = base
    itemsize = gemm.a.itemsize
    slices = profile.buffers["L1"].capacity_bytes // (2 * (base_m + base_n) * base_k * itemsize)
    most = min(slices, ceil(gemm.problem.k / base_k))
    for steps in range(most, 0, -1):
        if steps * base_k * itemsize % profile.l2.line_bytes == 0:
            yield steps
            break
    if most:
        yield most


def _bound(gemm: MatmulGemm, tiling: Tiling, rates: Rates) -> float:
    """Return the cycles of the busiest core as if pipes overlapped: the longest, and the last write-back."""
    p, size = gemm.problem, gemm.a.itemsize
    m, n = tiling.base_m, tiling.base_n
    tiles = p.batch * ceil(p.m / m) * ceil(p.n / n)
    # What arrives in L1 while a slice is read slows the reading: so it is with two copies of each L1 tile.
    prefetched = p.k > tiling.step_ka * tiling.base_k
    cube = mte1 = 0
    for k, count in _cut(p.k, tiling.base_k):
        cube += count * rates.mmad(m, k, n)
        load = rates.load_left(Submatrix(0, m, 0, k, p.transpose_a, size), prefetched * (m + n) * k * size)
        mte1 += count * (load + rates.load_right(Submatrix(0, k, 0, n, p.transpose_b, size)))
    mte2, fill = 0.0, 0.0
    for k, count in _cut(p.k, tiling.step_ka * tiling.base_k):
        held_a, _ = rates.copy(gemm, gemm.a, (m, k), p.transpose_a)
        held_b, arrived_b = rates.copy(gemm, gemm.b, (k, n), p.transpose_b)
        # Two copies of each tile are on their way at a time: no faster than half of how long one takes.
        mte2 += count * max(held_a + held_b, (held_a + arrived_b) / 2)
        # Before the first pair of tiles has arrived nothing can begin.
        fill = fill or held_a + arrived_b
    store = rates.store(gemm.c, m, n)
    # One accumulator: M waits until the tile before has left.
    exposed = store if tiling.cl0_buffers == 1 else 0.0
    return fill + ceil(tiles / tiling.used_cores) * max(cube + exposed, mte1, mte2, store) + store


def _cut(extent: int, most: int) -> list[tuple[int, int]]:
    """Return the (length, count) of the slices of a reduction: whole ones, and the rest."""
    whole, rest = divmod(extent, most)
    return [(length, count) for length, count in ((most, whole), (rest, 1)) if length and count]
