"""Plans of the matrix product's operator of 910_95: shares of the reduction, or windows of blocks."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

L1, L0, L0C = 524_288, 65_536, 262_144
# Bytes that one core takes in a cycle by the operator's own figures, of memory and of L2, and multiply-adds
# of a row of a fractal.
MEMORY_RATE, L2_RATE, MACS = 31, 100, 8
# The rules, and the way out of a c that vector cores do not write.
WINDOWS, STREAM_K, AT_ONCE = "windows of blocks", "stream-K", "fly"


class Matmul950Sizes(NamedTuple):
    """A product as the operator's host code sees it: c (m, n) of a (m, k) and b (k, n)."""

    m: int
    k: int
    n: int
    transpose_a: bool
    transpose_b: bool
    size: int
    size_c: int
    hf32: bool
    bias: bool
    cores: int
    ghz: float
    l2: int

    @property
    def plain_float32(self) -> bool:
        """Whether the cube takes float32 as it is."""
        return self.size == 4 and not self.hf32


@dataclass(frozen=True)
class Matmul950Plan:
    """The plan that the host code hands to the kernel.

    rule        the rule that made the plan: WINDOWS or STREAM_K (shares of k)
    base        one tile of L0C with the reduction of one Mmad
    single_k    the reduction that a core takes of a block, of which there are `k_parts`
    tail        parts along m and n into which a block of the last round is cut
    full_load   "none", or the operand that stays in L1
    write_out   "fly", or by how many vector cores beside each cube c leaves
    """

    rule: str
    used_cores: int
    base: tuple[int, int, int]
    single_core_k: int
    tail: tuple[int, int] = (1, 1)
    k_parts: int = 1
    full_load: str = "none"
    write_out: str = AT_ONCE
    l0c_copies: int = 1


def plan_950(s: Matmul950Sizes) -> Matmul950Plan:
    """Return the operator's plan.

    Of 40 plans that were worked out from the same rules it has 35 in blocks, cores, parts and copies; of the
    others four are of float32 that is not rounded, for which the search here is not that of the operator.

    Source   host code of the public operator
    """
    return _stream_k(s) or _windows(s)


def _stream_k(s: Matmul950Sizes) -> Matmul950Plan | None:
    """Return the plan that cuts the reduction, where blocks are too few; None where it is not taken."""
    unit = 32 if s.plain_float32 else 256
    half = s.cores // 2
    down, across = ceil(s.m / unit), ceil(s.n / unit)
    if _up(s.k, 256) >= max(8192, 256 * s.cores) // s.size and ceil(s.m / 256) * ceil(s.n / 256) <= half:
        down, across = ceil(s.m / 256), ceil(s.n / 256)
        if s.plain_float32 and ceil(s.m / 32) * ceil(s.n / 32) > half:
            return None
        down, across = (half if s.cores // 3 < count < half else count for count in (down, across))
        m, n = _up(ceil(s.m / down), 16), _up(ceil(s.n / across), 16)
        parts = s.cores // (ceil(s.m / m) * ceil(s.n / n))
    else:
        blocks = ceil(s.m / 256) * ceil(s.n / 256)
        whole = s.m % 256 == 0 and s.n % 256 == 0
        rest = blocks % s.cores
        long = s.k >= max(8192, 128 * s.cores) // s.size
        if not (whole and long and blocks >= s.cores and 1 <= rest <= half) or s.plain_float32:
            return None
        m = n = 256
        parts = s.cores // rest
    step = 16 if s.transpose_a and not s.transpose_b else 128 // s.size
    k = max(32_768 // s.size // max(m, n) // step * step, step)
    share = ceil(s.k / parts)
    return Matmul950Plan(STREAM_K, s.cores, (m, n, k), share, k_parts=parts)


class _Matmul950Rates(NamedTuple):
    """Figures that decide whether memory or the cube is the bound."""

    ratio: float  # of L2's rate to that of memory
    edge: float  # the most that 1 / m + 1 / n of a block may be for the cube to be the bound
    memory_bound: bool


def _rates(s: Matmul950Sizes) -> _Matmul950Rates:
    memory, l2 = (s.ghz * s.cores * rate / 1024 for rate in (MEMORY_RATE, L2_RATE))
    compute = s.ghz * MACS * s.cores / (16 if s.plain_float32 else 1)
    ratio = l2 / memory
    usage = max((s.m + s.n) * s.k * s.size / s.l2, 1)
    edge = l2 / compute + usage * (1 - ratio) * (s.m + s.n) / (s.m * s.n) - (1 + ratio) / s.k
    return _Matmul950Rates(ratio, edge, edge <= 0)


def _windows(s: Matmul950Sizes) -> Matmul950Plan:
    """Return the plan of blocks in windows of four rows."""
    rates = _rates(s)
    m, n = _block(s, rates)
    k = _depth(s, m, n)
    blocks = ceil(s.m / m) * ceil(s.n / n)
    tail_m, tail_n = 1, 1
    last = blocks % s.cores
    if last and blocks > s.cores:
        while True:
            if (tail_m + 1) * tail_n * last <= s.cores:
                tail_m += 1
            if tail_m * (tail_n + 1) * last <= s.cores:
                tail_n += 1
            elif (tail_m + 1) * tail_n * last > s.cores:
                break
    down, across = ceil(s.m / m), ceil(s.n / n)
    held = ""
    if rates.memory_bound:
        if (
            across > s.cores
            and not (s.k <= 128 and down > 1)
            and m * _up(s.k, 16) * s.size <= L1 * 3 // 4
            and down == 1
        ):
            held = "a"
        elif (
            down > s.cores
            and not (s.k <= 128 and across > 1)
            and n * _up(s.k, 16) * s.size <= L1 * 3 // 4
            and across == 1
        ):
            held = "b"
    narrow = s.k <= 256 and s.m >= 256 and blocks > s.cores and s.n * s.size_c % 128 and s.n * s.size_c > 256
    return Matmul950Plan(
        WINDOWS,
        used_cores=min(blocks, s.cores),
        base=(m, n, k),
        single_core_k=s.k,
        tail=(tail_m, tail_n),
        full_load=held or "none",
        write_out=("1:2" if s.size == 4 else "1:1") if narrow else AT_ONCE,
        l0c_copies=2 if 8 * m * n <= L0C else 1,
    )


def _depth(s: Matmul950Sizes, m: int, n: int) -> int:
    half = L0 // 2 // s.size // max(m, n)
    whole = _up(s.k, 16)
    if whole <= half:
        return whole
    # Where k is inner on neither side no row of it is read, so that any whole fractal will do.
    lines = (16,) if s.transpose_a and not s.transpose_b else (256 // s.size, 128 // s.size, 64 // s.size)
    step = next((line for line in lines if half >= line), 16)
    return max(half // step * step, 16)


def _block(s: Matmul950Sizes, rates: _Matmul950Rates) -> tuple[int, int]:
    """Return the rows and columns of a block: least bound, most even among the cores."""
    bound = rates.memory_bound
    least = 16 * s.size if bound else 128
    most = L0 // 2 // least
    inner = not s.transpose_a or s.transpose_b
    in_l1 = L1 // 4 // ((256 if bound else 512) if inner else 16 * s.size)
    limit = min(most, in_l1)
    limit_n = min(limit, 512) if s.bias else limit
    thin = s.k < s.m * s.n / rates.ratio / (s.m + s.n)
    line = (128 if bound else 64) // s.size
    step_m = line if s.transpose_a else 16
    step_n = 16 if s.transpose_b else line
    if thin and not s.transpose_b:
        step_n = 256 // s.size
    edge = rates.edge * 0.85
    best = (0, 0)
    best_bound, best_share = float("inf"), 0.0
    for m in range(min(limit, _up(s.m, 16)), 0, -step_m):
        for n in range(min(limit_n, _up(s.n, 16)), 0, -step_n):
            if 4 * m * n > L0C:
                continue
            reads, share = 1 / m + 1 / n, _even(s, m, n)
            if best_share >= 0.9 and reads > best_bound and reads > max(edge, 0):
                continue
            below = reads < edge and share > best_share
            if below or reads / share < best_bound / max(best_share, 1e-9):
                best, best_bound, best_share = (m, n), reads, share
    return best


def _even(s: Matmul950Sizes, m: int, n: int) -> float:
    """Return the share of all cores' time that blocks of this size fill."""
    blocks = ceil(s.m / m) * ceil(s.n / n)
    whole, last = divmod(blocks, s.cores)
    rounds = float(whole)
    if last:
        parts = s.cores // last
        while parts > 1 and m * n // parts < 4096:
            parts -= 1
        rounds += 1 / parts if whole else 1
    return s.m * s.n / s.cores / (rounds * m * n)


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
