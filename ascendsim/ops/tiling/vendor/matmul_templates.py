"""Plans of the matrix product's operator of 910B and 910_93 that do not walk base blocks with all of k each.

narrow       a high and narrow c, which vector cores write in whole lines
held         one operand stays in L1
slices       the reduction is cut: by each core over its part of c, or among all cores
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

L1, L0, L0C, UB = 524_288, 65_536, 131_072, 196_352
LONG_K = 27_392  # of a reduction that is cut into slices, whatever the other sides are
MI = 2**20


def up(value: int, unit: int) -> int:
    """Round up to a multiple."""
    return -(-value // unit) * unit


class Matmul910Sizes(NamedTuple):
    """A product as the operator's host code sees it: c (m, n) of a (m, k) and b (k, n).

    size, size_c    bytes of an element of the operands, and of c
    hf32            whether the cube rounds operands of 4 bytes
    nz              whether b lies in fractals
    l2              bytes of L2 of the part
    """

    m: int
    k: int
    n: int
    transpose_a: bool
    transpose_b: bool
    size: int
    size_c: int
    hf32: bool
    bias: bool
    nz: bool
    cores: int
    l2: int

    @property
    def rows(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The (outer, inner) sizes of a and of b as they lie."""
        a = (self.k, self.m) if self.transpose_a else (self.m, self.k)
        b = (self.n, self.k) if self.transpose_b else (self.k, self.n)
        return a, b

    def aligned(self, length: int) -> bool:
        """Return whether rows of so many elements are whole pieces of 256 bytes."""
        return length * self.size % 256 == 0


@dataclass(frozen=True)
class Matmul910Plan:
    """The plan that the host code hands to the kernel.

    rule            the rule that made the plan
    split           "base" (a block has its whole reduction), "sc" (a core walks slices of k over its part of
                    c) or "mk" (slices of k go to all cores)
    full_load       "base", or the operand that stays in L1
    write_out       "base", or how vector cores lay out a narrow c
    single_core     rows, columns and reduction of what a core takes at a time
    base, depth     one tile of L0C with the reduction of one Mmad; base blocks of a and of b that L1 holds
    step_m, step_n, step_ka, step_kb
                    of them along m, n and k in one tile of L1
    l2_tiles, l2_tile_blocks
                    tiles of c that L2 is to hold, and blocks of one, along m and n
    convert_a, convert_b
                    whether vector cores bring the operand into fractals before the product
    """

    rule: str
    used_cores: int
    single_core: tuple[int, int, int]
    base: tuple[int, int, int]
    depth: tuple[int, int]
    step_ka: int
    step_kb: int
    split: str = "base"
    full_load: str = "base"
    write_out: str = "base"
    step_m: int = 1
    step_n: int = 1
    iterate_order: int = 0
    l0c_copies: int = 1
    l2_tiles: tuple[int, int] = (1, 1)
    l2_tile_blocks: tuple[int, int] = (1, 1)
    column_order: int = 0
    convert_a: bool = False
    convert_b: bool = False


class MatmulBlock(NamedTuple):
    """A base block: rows and columns of c, elements of the reduction."""

    m: int
    n: int
    k: int

    def blocks(self, sides: Matmul910Sizes) -> int:
        """Return the number of blocks that cover c."""
        return ceil(sides.m / self.m) * ceil(sides.n / self.n)


def slices_of_a_core(s: Matmul910Sizes, convert_b: bool, found: bool) -> Matmul910Plan | None:
    """Return the plan by which each core walks slices of k over its part of c; None where it is not taken."""
    m, k, n = s.m, s.k, s.n
    wanted = k >= LONG_K
    large = m * k >= 5 * 384 * 384 and n >= 1024 and m >= 384 and k >= 384 and m * n >= 1024 * 384 * s.cores
    wanted = wanted or (not found and large)
    eights = any(one % 8192 == 0 and other >= 6144 for one, other in ((m, n), (n, m)))
    outer = s.transpose_a and not s.transpose_b
    wanted = wanted or (outer and s.aligned(n) and k >= 11_000 and eights)
    inner = not s.transpose_a and s.transpose_b and s.size == 2 and k % 16_384 == 0
    square = 1280 <= m <= 8192 and 1280 <= n <= 8192 and s.cores == 24 and not convert_b
    wanted = wanted or (inner and square)
    thin = any(one == 384 and other >= 49_152 and other % 128 == 0 for one, other in ((m, n), (n, m)))
    wanted = wanted or (k == 1536 and thin)
    if not wanted or (s.hf32 and not s.aligned(n) and m * n < 4 * MI):
        return None
    rows, steps, depth = 3, 3, (9, 6)
    unit = (256 if s.transpose_a else 32) // s.size
    parts_n = _divisor(s.cores, ceil(n / 3072))
    part_m = up(ceil(m * parts_n / s.cores), unit)
    if not s.bias and ceil(m / 384) * ceil(n / 3072) < s.cores and not 256 < part_m <= 384:
        # Two rows of blocks: then m decides the number of parts. Read off two plans: no rule is known,
        # and no nest runs it.
        rows, steps, depth = 2, 4, (8, 8)
        parts_n = s.cores // _divisor(s.cores, ceil(m / 256))
        part_m = up(ceil(m * parts_n / s.cores), unit)
    if m < 384 or n < 384:
        rows = 1
    part_n = up(ceil(n / parts_n), 256 // s.size)
    even = m * n / (part_m * part_n * s.cores)
    short = 896 <= n <= 2048 and s.aligned(n) and (part_n <= 640 or even < 0.85)
    if part_n < 512 or even < 0.7 or short:
        return None
    return _sliced("sc", s, s.cores, (part_m, part_n), rows, steps, depth)


def slices_of_all(s: Matmul910Sizes) -> Matmul910Plan | None:
    """Return the plan by which all cores share the slices of k, added in order; None: not taken."""
    m, k, n = s.m, s.k, s.n
    blocks = ceil(m / 128) * ceil(n / 128)
    wanted = k >= 384 * s.cores and blocks < s.cores // 2 and (s.transpose_a or not s.transpose_b)
    wanted = wanted or (s.size == 4 and max(m, n) <= 64 and k >= 6144)
    wanted = wanted or (1000 <= k <= 4608 and max(m, n) <= 256 and s.transpose_a and not s.transpose_b)
    many = min(ceil(m / 128), ceil(n / 128)) >= 4 and not s.aligned(n)
    even = blocks / up(blocks, s.cores) > 0.8
    wanted = wanted or (k >= LONG_K and not (many and even))
    if not wanted:
        return None
    parts = ceil(k / (3 * 256 // s.size))
    return _sliced("mk", s, min(parts, s.cores), (384, n), 3, 3, (9, 6))


def _sliced(
    split: str,
    s: Matmul910Sizes,
    cores: int,
    part: tuple[int, int],
    rows: int,
    steps: int,
    depth: tuple[int, int],
) -> Matmul910Plan:
    deep = 256 // s.size
    return Matmul910Plan(
        {"sc": "slices of k by one core", "mk": "slices of k by all cores"}[split],
        used_cores=cores,
        single_core=(*part, steps * deep),
        base=(128, 128, deep),
        depth=depth,
        step_ka=steps,
        step_kb=steps,
        split=split,
        step_m=rows,
        iterate_order=1,
        l0c_copies=2,
    )


def _divisor(cores: int, least: int) -> int:
    """Return the least divisor of the cores that is no less; all of them if there is none."""
    return next((count for count in range(least, cores) if cores % count == 0), cores)


def narrow(s: Matmul910Sizes) -> Matmul910Plan | None:
    """Return the plan of a high and narrow c, whose rows would leave in short pieces."""
    line = 256 // s.size_c
    taken = s.n < 256 and s.k <= 256 and s.n % line and line % s.n and s.m >= 512 * s.cores
    if not taken or max(s.n, s.k) * s.size < 32:
        return None
    if s.size == 2 and (s.transpose_a or not (s.aligned(s.k) or s.k * 2 < 256)):
        return None
    n = up(s.n, 16)
    m = max(min(L0C // (4 * n), UB // 256 // s.size_c) // 128 * 128, 128)
    k = max(L0 // 2 // s.size // max(m, n) // 16 * 16, 16)
    step_b = ceil(s.k / k)
    rest = (L1 - n * step_b * k * s.size) // (2 * m * k * s.size)
    step_a = max(min(rest, step_b), 1)
    depth_a = 2 * step_a
    if step_a >= 8:
        step_a, depth_a = 4, 8
    laid = s.size == 4 and s.k % 8 == 0 and s.n <= 192 and not s.transpose_a
    return Matmul910Plan(
        "narrow c through UB",
        used_cores=min(ceil(s.m / m), s.cores),
        single_core=(m, s.n, s.k),
        base=(m, n, k),
        depth=(depth_a, step_b),
        step_ka=step_a,
        step_kb=step_b,
        full_load="b",
        write_out="vec-nz2nd" if laid else "nz2nd",
        l2_tiles=(1, 1),
        l2_tile_blocks=(ceil(s.m / m), 1),
    )


def left_held(s: Matmul910Sizes, convert_a: bool) -> Matmul910Plan | None:
    """Return the plan that keeps a few rows of a in L1."""
    if not (s.size == 4 and s.transpose_b and s.m <= 16 < s.n <= 16 * s.cores and not convert_a):
        return None
    fits = up(s.m, 16) * up(s.k, 16) * s.size + 2 * 16 * 256 * s.size <= L1
    if s.k < 4096 or s.k * s.size % 512 or not fits:
        return None
    whole = ceil(s.k / 256)
    return Matmul910Plan(
        "a stays in L1",
        used_cores=min(ceil(s.n / 16), s.cores),
        single_core=(s.m, 16, s.k),
        base=(16, 16, 256),
        depth=(whole, 2),
        step_ka=whole,
        step_kb=1,
        full_load="a",
        l0c_copies=2,
        l2_tile_blocks=(1, ceil(s.n / 16)),
    )


HELD_COLUMNS = (32, 64, 96, 128, 160, 192, 224, 256, 384)


def right_held(s: Matmul910Sizes, block: MatmulBlock, convert_b: bool) -> Matmul910Plan | None:
    """Return the plan that keeps all of b in L1."""
    columns = s.n in HELD_COLUMNS and (not s.transpose_b or s.k * s.size in HELD_COLUMNS)
    high = s.m > 16 * max(s.k, s.n) and s.k <= 256 and columns and not convert_b
    outer, inner = s.rows[0]
    if not high and not (s.size == 4 and inner <= 8 and outer >= 72_368):
        return None
    n, m = up(s.n, 16), block.m
    k = block.k
    while m > 16 and (2 * m + n) * up(s.k, 16) * s.size > L1:
        m //= 2
    whole = ceil(s.k / k)
    return Matmul910Plan(
        "b stays in L1",
        used_cores=s.cores,
        single_core=(2 * m, s.n, s.k),
        base=(m, n, k),
        depth=(2 * whole, whole),
        step_ka=whole,
        step_kb=whole,
        full_load="b",
        l0c_copies=2 if 8 * m * n <= L0C else 1,
        l2_tile_blocks=(ceil(s.m / (2 * m)), 1),
        column_order=1,
    )
