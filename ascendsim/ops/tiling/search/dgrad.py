"""Rank the tilings of an image product (grad_input)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from operator import attrgetter

import numpy as np

from ascendsim.cube.load3d import FRACTAL_ROWS
from ascendsim.cube.tile_reads import round_up
from ascendsim.ops.plan import Tiling
from ascendsim.ops.problems.dgrad import DgradGemm
from ascendsim.ops.schedules.dgrad.tasks import inserts_in_ub, most_rows
from ascendsim.ops.tiling.search.costs import MOST_M, Blocks, Costs, blocks, even_slices
from ascendsim.ops.tiling.search.dgrad_tiles import Candidate, Fitting, best_tiles, slice_cycles
from ascendsim.ops.tiling.search.rates import BaseBlock, Rates, nothing_fits
from ascendsim.profile import Profile

# How many of the best base blocks get their L1 tiles compared; the rest only matter if none of these fits.
SHORT_LIST = 6


def dgrad_tilings(gemm: DgradGemm, profile: Profile) -> list[Tiling]:
    """Return the best tilings of an image product, one of a base block, that of the least bound first.

    Raises   CapacityError if nothing fits
    """
    rates = Rates(profile, gemm.compute_dtype, profile.cores.cube)
    costs = Costs(rates, gemm.sliding, "L0A")
    # Tiles inside a row are tried only if no range of whole rows fits, and a shorter reduction in one Mmad
    # than L0 could hold only where those do not fit either.
    for shorten, in_row in product((False, True), (False, True)):
        found = _best(gemm, costs, shorten=shorten, in_row=in_row)
        if found:
            return found
    raise nothing_fits(gemm.sliding, profile, gemm.sliding.c0)


def _best(gemm: DgradGemm, costs: Costs, *, shorten: bool, in_row: bool) -> list[Tiling]:
    """Return the best tilings with tiles of whole rows or inside a row; nothing if none fits."""
    s = gemm.sliding
    pixels = s.out_size[1] if in_row else s.pixels
    profile, units = costs.rates.profile, (FRACTAL_ROWS, s.c0, s.c0)
    # Where results leave through UB they share it with the pixels of a strided gradient.
    most_m = most_rows(gemm, profile) if inserts_in_ub(gemm, profile) else MOST_M
    found = blocks(profile, s.itemsize, (pixels, gemm.columns), units, most_m)
    fit: list[Fitting] = []
    for number, candidate in enumerate(_ranked(gemm, costs, found, in_row=in_row)):
        if fit and number >= SHORT_LIST:
            break
        fitting = best_tiles(gemm, costs, candidate, in_row=in_row)
        while fitting is None and shorten and candidate.base_k > s.c0:
            shorter = Blocks(*(np.array([size]) for size in candidate.block))
            shorter.k[:] = round_up(candidate.base_k // 2, s.c0)
            [candidate] = _ranked(gemm, costs, shorter, in_row=in_row)
            fitting = best_tiles(gemm, costs, candidate, in_row=in_row)
        if fitting is not None:
            fit.append(fitting)
    # Of equal bounds the first stays first; blocks whose k was shortened may be the same tiling.
    return list(dict.fromkeys(each.tiling() for each in sorted(fit, key=attrgetter("bound"))))


def _ranked(gemm: DgradGemm, costs: Costs, found: Blocks, *, in_row: bool) -> Iterator[Candidate]:
    """Yield base blocks, that of the least cycles first, as if loads from GM were free."""
    s, rates = gemm.sliding, costs.rates
    reduction = gemm.all_taps.groups * s.c0
    base_k = even_slices(reduction, np.minimum(found.k, reduction), s.c0)
    # A depth that nothing reaches is filled with zeros, not computed; the others meet unequally many depths.
    depths = [len(pairs) for pairs in gemm.depths if pairs]
    tiles = -(-s.out_size[1] // found.m) * s.out_size[0] if in_row else -(-s.pixels // found.m)
    tasks = gemm.groups * gemm.batch * max(1, len(depths)) * tiles * -(-gemm.columns // found.n)
    used = np.minimum(tasks, rates.cores)
    # The busiest core counts: with one task more than cores everything takes twice as long.
    rounds = -(-tasks // used)
    count = sum(depths) / max(1, len(depths)) * -(-reduction // base_k)
    compute = count * slice_cycles(gemm, costs, (found.m, base_k, found.n))
    fix = found.m * found.n * gemm.output.itemsize / rates.store_bytes_per_cycle
    # One accumulator: M waits until it has left. Two: the slower of both pipes.
    each = np.where(found.copies == 1, compute + fix, np.maximum(compute, fix))
    bound = rounds * each + fix
    columns = bound, *found, base_k, fix, rounds, used
    # Of equal ones the first is tried first.
    for place in np.argsort(bound, kind="stable"):
        least, m, n, copies, k, *rest = (column[place].item() for column in columns)
        yield Candidate(least, BaseBlock(m, n, copies, k), *rest)
