"""Plans of the matrix product's operator of 910B and 910_93 (MatMulV3): blocks, tiles of L2, conversions.

Left out are its bank of tuned plans and the plans of few rows, which are not public; the template that keeps
few rows in L1 for a core's slices of k, whose sizes are unknown; b of 512 x 512 in halves; and the pieces in
which vector cores convert operands.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import NamedTuple

from ascendsim.ops.tiling.vendor.matmul_templates import (
    L0,
    L0C,
    L1,
    Matmul910Plan,
    Matmul910Sizes,
    MatmulBlock,
    left_held,
    narrow,
    right_held,
    slices_of_a_core,
    slices_of_all,
    up,
)

# The operator's share of an L2 of 192 MiB that operands and result of one tile of L2 may take.
L2_SHARE, WHOLE_L2 = 100 * 2**20, 192 * 2**20
MOST_ROW = 65_535  # elements that one row of an ND operand may have
AS_IT_LIES = (*range(32, 257, 32), 384)  # bytes of short rows that are read as they lie


class L1Tiles(NamedTuple):
    """Base blocks of k that one tile of L1 holds, of a and of b; there are two tiles of each."""

    step_a: int
    step_b: int


def plan_910b(sides: Matmul910Sizes) -> Matmul910Plan | None:
    """Return the operator's plan; None where closed code makes it (few rows that are read as they lie).

    Entries of the operator's bank of tuned plans go before these rules; nobody outside has them.

    Source   host code of the public operator, held against 43 of the 44 tilings that its unit tests expect
    """
    convert_a, convert_b = _converts(sides)
    block, rule = base_block(sides)
    if _few_rows(sides) and not (convert_a or convert_b):
        return None
    laid = narrow(sides)
    if laid is not None:
        # Rows of 16-bit operands are as short as they are read best.
        return replace(laid, convert_a=convert_a and sides.size == 4, convert_b=convert_b and sides.size == 4)
    held = left_held(sides, convert_a) or right_held(sides, block, convert_b)
    if held is not None:
        return replace(held, convert_a=convert_a, convert_b=convert_b)
    tiles = l1_tiles(sides, block)
    evened = _even_rounds(sides, block)
    if evened != block:
        block, rule = evened, "even rounds"
    l2, found = l2_tiles(sides, block)
    count = ceil(sides.m / (l2[0] * block.m)), ceil(sides.n / (l2[1] * block.n))
    sliced = slices_of_a_core(sides, convert_b, found) or slices_of_all(sides)
    if sliced is not None:
        if sliced.split == "mk":
            # Its many cores read rows of this length as they lie.
            least = 384 // sides.size
            (_, inner_a), (_, inner_b) = sides.rows
            convert_a = convert_a and not least <= inner_a <= MOST_ROW
            convert_b = convert_b and not least <= inner_b <= MOST_ROW
        return replace(sliced, l2_tiles=count, l2_tile_blocks=l2, convert_a=convert_a, convert_b=convert_b)
    if _shorter_steps(sides, block):
        tiles = L1Tiles(min(tiles.step_a, 4), min(tiles.step_b, 4))
    if sides.bias and block.n > 256:
        block = block._replace(n=256)
    return Matmul910Plan(
        rule,
        used_cores=sides.cores,
        single_core=(block.m, block.n, sides.k),
        base=(block.m, block.n, block.k),
        depth=(2 * tiles.step_a, 2 * tiles.step_b),
        step_ka=tiles.step_a,
        step_kb=tiles.step_b,
        l2_tiles=count,
        l2_tile_blocks=l2,
        convert_a=convert_a,
        convert_b=convert_b,
    )


def _few_rows(s: Matmul910Sizes) -> bool:
    """Return whether a product of few rows is one of those that code which is not public plans."""
    few = s.m <= 128 and s.size == s.size_c == 2 and not (s.nz or s.bias)
    return few and s.transpose_b and not s.transpose_a


def base_block(sides: Matmul910Sizes) -> tuple[MatmulBlock, str]:
    """Return the base block and the rule that it is by."""
    s, k = sides, 128 // sides.size
    upright, flat = MatmulBlock(256, 128, k), MatmulBlock(128, 256, k)
    block = flat
    if s.transpose_a and s.transpose_b:
        block = upright
    elif (s.transpose_a or s.transpose_b) and not s.nz:
        least = s.cores // 2 * 256
        tall, wide = s.m >= least, s.n >= least
        if tall and wide:
            reads = [ceil(s.m / each.m) * s.n + ceil(s.n / each.n) * s.m for each in (upright, flat)]
            block = upright if reads[0] < reads[1] else flat
        elif not wide:
            block = upright if tall or s.m > s.n else flat
    few = up(s.m, 128) // block.m * (up(s.n, 256) // block.n) < s.cores
    if not (few or s.m < 256 or s.n < 256):
        return block, "basic blocks"
    return _cut_to_l0c(s, _small(s, block)), "blocks of small sides"


def _small(s: Matmul910Sizes, block: MatmulBlock) -> MatmulBlock:
    """Return the block of a product of few blocks, by which operands are transposed."""
    along_m, along_n, along_k = s.aligned(s.m), s.aligned(s.n), s.aligned(s.k)
    k = 128 // s.size
    if not s.transpose_a and not s.transpose_b:
        found = []
        for m, n, deep in ((128, 256, 128), (128, 128, 256), (64, 512, 64)):
            found.append(MatmulBlock(_share(s, ceil(s.n / n), s.m, m), n, deep // s.size))
        block = min(found, key=lambda each: _cost(s, each))
        if not along_k and not along_n:
            return _balanced(s)
        if not along_k:
            return MatmulBlock(_share(s, ceil(s.n / block.n), s.m, 128), 256, k)
        return block if along_n else _spread(s, block._replace(k=k), 128, 256)
    if s.transpose_a and not s.transpose_b:
        if not along_m and not along_n:
            return _balanced(s)
        if not along_m:
            return block._replace(m=_share(s, ceil(s.n / block.n), s.m, 128))
        return block if along_n else block._replace(n=_share(s, ceil(s.m / block.m), s.n, 256))
    if not s.transpose_a:
        if not along_k:
            return _balanced(s)
        shapes = ((64, 64, 512), (128, 128, 256), (128, 256, 128))
        spread = [_spread(s, MatmulBlock(m, n, deep // s.size), m, n) for m, n, deep in shapes]
        return min(spread, key=lambda each: _cost(s, each))
    block = block._replace(n=_share(s, ceil(s.m / block.m), s.n, 256))
    if along_m:
        return block
    return _balanced(s) if along_k else _spread(s, block, 128, 256)


def _share(s: Matmul910Sizes, count: int, length: int, most: int) -> int:
    """Return each core's length of a side, with `count` blocks along the other side."""
    return min(up(max(length // max(s.cores // count, 1), 1), 16), most)


def _spread(s: Matmul910Sizes, block: MatmulBlock, most_m: int, most_n: int) -> MatmulBlock:
    """Return the block whose side along more blocks is cut so that all cores get one."""
    down, across = ceil(s.m / most_m), ceil(s.n / most_n)
    m, n = block.m, block.n
    if down < across:
        n = _share(s, down, s.n, most_n)
    else:
        m = _share(s, across, s.m, most_m)
    return MatmulBlock(up(min(s.m, m), 16), up(min(s.n, n), 16), block.k)


def _cost(s: Matmul910Sizes, block: MatmulBlock) -> int:
    """Return the elements that the busiest core reads for each element of the reduction."""
    return (block.m + block.n) * ceil(block.blocks(s) / s.cores)


def _balanced(s: Matmul910Sizes) -> MatmulBlock:
    """Return the block of operands whose rows are not whole pieces of 256 bytes."""
    usual = MatmulBlock(128, 256, 128 // s.size)
    if s.m >= 128:
        n = min(up(ceil(s.n / max(s.cores // ceil(s.m / 128), 1)), 16), 256)
        half = L0 // 2 // s.size
        block = MatmulBlock(128, n, min(half // 256, half // n) // 16 * 16)
        return block if _in_fractals(block) else usual
    m = up(s.m, 16)
    n = max(up(max(s.n // s.cores, 1), 16), 128 if s.m >= 64 else 1024)
    n = min(n, L0C // (4 * m) // 16 * 16, 256 if s.bias else n)
    if n > 256 and ceil(s.n / n) % s.cores < ceil(s.n / 256) % s.cores:
        n = 256
    half = L0 // 2 // s.size
    block = MatmulBlock(m, n, min(half // m, half // n) // 16 * 16)
    return block if _in_fractals(block) else usual


def _in_fractals(block: MatmulBlock) -> bool:
    return all(side and side % 16 == 0 for side in block)


def _cut_to_l0c(s: Matmul910Sizes, block: MatmulBlock) -> MatmulBlock:
    """Return the block with sides that L0C holds."""
    m, n, k = block
    most = L0C // 4
    if 128 < s.m < 256 and n > 128:
        n = 128
    elif 128 < s.n < 256 and m > 128:
        m = 128
    elif m * n > most:
        m, n = (128 if 128 < side < 256 else side for side in (m, n))
    if m * n > most:
        m = most // n
    return MatmulBlock(m, n, k)


def l1_tiles(sides: Matmul910Sizes, block: MatmulBlock) -> L1Tiles:
    """Return the slices of k of each operand in a tile of L1."""
    m, n, k = block
    size = sides.size
    depths = [max(L1 // 2 // side // k // size, 1) for side in (m, n)]
    if (depths[0] * m + depths[1] * n) * k * size > L1 - 1024 * sides.bias:
        depths[m > n] //= 2
    steps = [max(depth // 2, 1) for depth in depths]
    slice_bytes = k * size
    for place, step in enumerate(steps):
        if step * k >= sides.k:
            continue
        for line in (512, 256):
            if step * slice_bytes > line and line % slice_bytes == 0:
                step = step * slice_bytes // line * line // slice_bytes
        steps[place] = step
    a, b = steps
    if a > b:
        a = a // b * b
    else:
        b = b // a * a
    return L1Tiles(a, b)


def _even_rounds(s: Matmul910Sizes, block: MatmulBlock) -> MatmulBlock:
    """Return the block lower by so much that all cores get work in every round."""
    m, n, k = block
    if s.cores != 24 or m * n != 32_768 or k * s.size != 128 or s.transpose_a:
        return block
    if block.blocks(s) < 4 * s.cores:
        rows = up(block.blocks(s), s.cores) // ceil(s.n / n)
        return block._replace(m=up(ceil(s.m / rows), 16))
    if 128 < s.m <= 672:
        rows = ceil(s.m / m)
        return block._replace(m=min(low for low in range(m, 0, -16) if ceil(s.m / low) == rows))
    return block


def l2_tiles(s: Matmul910Sizes, block: MatmulBlock) -> tuple[tuple[int, int], bool]:
    """Return the blocks along m and n of the tile of c that L2 is to hold, and whether a tile was found."""
    share = L2_SHARE * s.l2 // WHOLE_L2
    whole = ceil(s.m / block.m), ceil(s.n / block.n)
    if _piece_bytes(s, s.m, s.n) <= share:
        return whole, True
    sides, bases = (s.m, s.n), (block.m, block.n)
    outer = 1 if block.n >= block.m else 0
    inner = 1 - outer
    twenty = s.cores == 20
    awkward = s.transpose_a if inner == 0 else not s.transpose_b
    least = [0, 0]
    least[outer] = s.cores // (5 if twenty else 6)
    least[inner] = s.cores // ((4 if twenty else 3) if awkward else (5 if twenty else 6))
    best: tuple[int, int] | None = None
    worst = [0, 0]
    for use in range(s.cores, least[outer] - 1, -1):
        for other in range(s.cores, least[inner] - 1, -1):
            uses = (other, use) if outer == 1 else (use, other)
            tile, last = [0, 0], [0, 0]
            for axis in (0, 1):
                count = max(sides[axis] // (bases[axis] * uses[axis]), 1)
                tile[axis] = up(ceil(sides[axis] / count), bases[axis])
                rest = sides[axis] - (ceil(sides[axis] / tile[axis]) - 1) * tile[axis]
                last[axis] = ceil(rest / bases[axis])
            if _piece_bytes(s, *tile) > share or any(last[axis] < least[axis] for axis in (0, 1)):
                continue
            rounds = [ceil(s.cores / count) for count in last]
            if best is None or all(rounds[axis] <= worst[axis] for axis in (0, 1)):
                best = tile[0] // block.m, tile[1] // block.n
                worst = rounds
    if best is not None:
        return best, True
    return (min(4, whole[0]), min(s.cores // 4, whole[1])), False


def _piece_bytes(s: Matmul910Sizes, m: int, n: int) -> int:
    return (m * s.k + s.k * n) * s.size + m * n * s.size_c


def _shorter_steps(s: Matmul910Sizes, block: MatmulBlock) -> bool:
    """Return whether tiles of L1 hold four slices at most."""
    m, k, n = s.m, s.k, s.n
    if s.cores != 24 or s.size != 2 or block.m * block.n != 32_768 or m * n <= 32_768 * s.cores:
        return False
    if m % 16_384 == 0 or n % 16_384 == 0:
        return False
    whole = all(side % 256 == 0 for side in (m, k, n)) and min(m, n) >= 768 and k & (k - 1)
    small = range(1280, 5121)
    return bool(
        whole
        or (10_368 <= m <= 18_000 and n in small and k in small)
        or (m in small and n in small and 13_788 <= k <= 19_304)
        or (320_000 <= m <= 380_000 and 960 <= n <= 3500 and 1280 <= k <= 3328)
    )


def _converts(s: Matmul910Sizes) -> tuple[bool, bool]:
    """Return for both operands whether vector cores convert them into fractals before the product."""
    (outer_a, inner_a), (outer_b, inner_b) = s.rows
    # Strides of 32 KiB, whose lines fall on few banks of L2.
    conflict = False
    if s.size == 2 and not s.transpose_a and not s.transpose_b:
        conflict = s.n % 16_384 == 0 and s.k >= 6656 and (s.m >= 4096 if s.cores == 24 else s.m > 4096)
    if s.size == 2 and not s.transpose_a and s.transpose_b:
        conflict = s.k == 16_384 and 4096 <= s.m <= 4480 and s.n >= 7168
    return _converted(s, outer_a, inner_a), not s.nz and (_converted(s, outer_b, inner_b) or conflict)


def _converted(s: Matmul910Sizes, outer: int, inner: int) -> bool:
    row = inner * s.size
    if inner > MOST_ROW:
        return True
    if s.aligned(inner) or row in AS_IT_LIES:
        return False
    short = row <= 192 or (row <= 384 and inner % 2 == 0) or (row <= 512 and inner % 4 == 0)
    if outer > 8192 and inner > 1 and row != 32 and short:
        return True
    if s.size == 4:
        return s.hf32 and row >= 512
    return True
