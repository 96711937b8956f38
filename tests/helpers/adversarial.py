"""Make operand tiles that are hard to accumulate, on the grid of each operand format.

Everything is a float32 array; a grid is given by its significand bits and exponents alone, so that these data
depend on no code under test.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Grid:
    """Values s * 2^e: significand bits, exponents of the smallest and largest normal."""

    bits: int
    low: int
    high: int

    @property
    def smallest(self) -> int:
        """Exponent of the smallest positive value."""
        return self.low - self.bits + 1


GRIDS = {
    "fp16": Grid(11, -14, 15),
    "bf16": Grid(8, -126, 127),
    "hf32_11": Grid(12, -126, 127),
    "hf32_10": Grid(11, -126, 127),
    "e4m3": Grid(4, -6, 8),
    "hif8": Grid(4, -19, 15),
    "fp32": Grid(24, -126, 127),
}


@dataclass(frozen=True)
class Probe:
    """One accumulator and the products of one block of 16; products that are not listed are zero."""

    c: float
    listed: tuple[tuple[float, float], ...]

    @property
    def products(self) -> tuple[tuple[float, float], ...]:
        """All 16 operand pairs."""
        return self.listed + ((0.0, 0.0),) * (16 - len(self.listed))


PROBES = {
    "V1": Probe(2.0**24, ((1.0, 1.0),) * 16),
    "V3": Probe(-(2.0**24), ((4096.0, 4096.0), *((0.0, 0.0),) * 14, (1.0, 1.0))),
    "V4": Probe(0.0, ((4096.0, 4096.0), (1.0, 1.0), (-4096.0, 4096.0))),
    "V5": Probe(1.0, ((2.0**-12, 2.0**-12), (2.0**-15, 2.0**-15))),
    "V6": Probe(1.0, ((1.5 * 2.0**-12, 2.0**-12),)),
    "V8": Probe(1.0, ((2.0**-12, 2.0**-13),) * 8),
    "V9": Probe(1.0, ((2.0**-12, 2.0**-12),) * 4),
}


def snap(values: np.ndarray, grid: Grid) -> np.ndarray:
    """Round values to a grid, staying finite where they are; infinities and NaN pass."""
    x = np.asarray(values, np.float64)
    finite = np.where(np.isfinite(x), x, 0.0)
    ulp = np.maximum(np.frexp(finite)[1] - 1, grid.low) - grid.bits + 1
    largest = np.ldexp(2.0 - 2.0 ** (1 - grid.bits), grid.high)
    snapped = np.clip(np.ldexp(np.rint(np.ldexp(finite, -ulp)), ulp), -largest, largest)
    return np.where(np.isfinite(x), np.copysign(snapped, x), x).astype(np.float32)


def _normal(rng, _grid, m, k, n):
    return rng.standard_normal((m, k)), rng.standard_normal((k, n)), 4 * rng.standard_normal((m, n))


def _spread(rng, grid, shape):
    """Random signs, exponents over the whole grid and random significands."""
    exponents = rng.integers(grid.smallest, grid.high + 1, shape)
    return np.ldexp(rng.uniform(1, 2, shape), exponents) * rng.choice([-1.0, 1.0], shape)


def _wide(rng, grid, m, k, n):
    middle = Grid(grid.bits, max(grid.low, -40), min(grid.high, 40))
    return tuple(_spread(rng, middle, s) for s in ((m, k), (k, n), (m, n)))


def _bits(rng, grid, m, k, n):
    """Random bit patterns: every exponent, and now and then zero, infinity or NaN."""

    def draw(shape):
        special = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan], shape)
        return np.where(rng.random(shape) < 0.02, special, _spread(rng, grid, shape))

    c = rng.integers(0, 2**32, (m, n), dtype=np.uint32).view(np.float32)
    return draw((m, k)), draw((k, n)), c


def _subnormal(rng, grid, m, k, n):
    """Products around and below the smallest binary32 (or the smallest the grid can make)."""
    low = Grid(grid.bits, grid.low, grid.low + 3)
    b = _spread(rng, low, (k, n)) if grid.low > -60 else _spread(rng, Grid(grid.bits, -16, -1), (k, n))
    return _spread(rng, low, (m, k)), b, np.ldexp(rng.integers(-40, 41, (m, n)).astype(float), -149)


def _ties(rng, grid, m, k, n):
    """Powers of two whose products are halves and quarters of an ulp of c, which is odd or even."""
    low = max(grid.smallest, -12)

    def powers(shape):
        return np.ldexp(rng.choice([-1.0, 0.0, 1.0, 1.0], shape), low + rng.integers(0, 2, shape))

    c = np.ldexp((2**23 + rng.integers(0, 64, (m, n))) * rng.choice([-1.0, 1.0], (m, n)), 2 * low + 2)
    return powers((m, k)), powers((k, n)), c


def _hairs(rng, grid, m, k, n):
    """Few products, each a hair off half an ulp of c: on wide grids more bits than a double has."""
    low, unit = max(grid.low, -12), 2.0 ** (1 - grid.bits)

    def near_one(shape):
        return np.ldexp(1 + unit * rng.choice([-1.0, 1.0], shape), low)  # (1 + u)(1 - u) = 1 - u^2

    c = np.ldexp((2**23 + rng.integers(0, 64, (m, n))) * rng.choice([-1.0, 1.0], (m, n)), 2 * low + 1)
    return (
        near_one((m, k)) * (rng.random((m, k)) < 2 / k) * rng.choice([-1.0, 1.0], (m, k)),
        near_one((k, n)),
        c,
    )


def _scattered(rng, grid, m, k, n):
    """Terms on scales so far apart that not even two doubles hold a sum; large ones may cancel."""
    far = max(grid.low, -100)
    a = np.ldexp(rng.choice([-1.0, 1.0], (m, k)), rng.choice([0, far], (m, k)))
    a[:, 1::2] = -a[:, 0 : 2 * (k // 2) : 2]
    b = np.ldexp(rng.choice([1.0, 3.0], (k, n)), rng.choice([max(grid.low, -25), far], (k, n)))
    return a, b, np.where(rng.random((m, n)) < 0.7, 1 + 2.0**-23, 2.0**-24)


def _wild_c(rng, _grid, m, k, n):
    """Tame operands, any bit pattern in c."""
    c = rng.integers(0, 2**32, (m, n), dtype=np.uint32).view(np.float32)
    special = rng.choice(np.array([np.inf, -np.inf, np.nan, 1e30, 1e-40, -0.0], np.float32), (m, n))
    return (
        rng.standard_normal((m, k)),
        rng.standard_normal((k, n)),
        np.where(rng.random((m, n)) < 0.3, special, c),
    )


def _infinite_c(rng, _grid, m, k, n):
    """Tame operands and accumulators, some of these infinite."""
    c = np.where(rng.random((m, n)) < 0.2, rng.choice([-np.inf, np.inf], (m, n)), rng.standard_normal((m, n)))
    return rng.standard_normal((m, k)), rng.standard_normal((k, n)), c


def _integers(rng, _grid, m, k, n):
    return (rng.integers(-15, 16, s).astype(float) for s in ((m, k), (k, n), (m, n)))


def _cancellation(rng, grid, m, k, n):
    """Neighbouring products cancel but for their last bits."""
    a, b = 2.0 ** rng.integers(-4, 5, (m, k)) * rng.uniform(1, 2, (m, k)), rng.uniform(1, 2, (k, n))
    a[:, 1::2] = -a[:, 0 : 2 * (k // 2) : 2]
    b[1::2] = b[0 : 2 * (k // 2) : 2] * (1 + rng.integers(-1, 2, (k // 2, n)) * 2.0 ** (1 - grid.bits))
    c = -snap(a[:, :1], grid) * snap(b[:1], grid) * rng.integers(0, 2, (m, n))
    return a, b, c


def _sparse(rng, _grid, m, k, n):
    def draw(shape):
        return rng.standard_normal(shape) * (rng.random(shape) < rng.uniform(0.2, 0.5))

    return draw((m, k)), draw((k, n)), draw((m, n))


def _overflow(rng, grid, m, k, n):
    """Products and accumulators at the edge of binary32, or as near as the grid gets."""
    top = min(grid.high, 64)
    near = np.ldexp(2.0 - 2.0**-23 * rng.integers(1, 4, (m, n)), 127) * rng.choice([-1.0, 1.0], (m, n))
    a = np.ldexp(rng.uniform(1, 2, (m, k)), top - rng.integers(0, 2, (m, k)))
    b = np.ldexp(rng.uniform(1, 2, (k, n)), top - rng.integers(0, 26, (k, n)))
    return a * rng.choice([-1.0, 1.0], (m, k)), b, np.where(rng.random((m, n)) < 0.7, near, 0.0)


def _zeros(rng, grid, m, k, n):
    """Zeros of both signs and few others: the sign of a zero sum is the question."""
    one = 2.0 - 2.0 ** (1 - grid.bits)
    return (rng.choice([0.0, -0.0, -0.0, one, -one], s, p=[0.3, 0.3, 0.3, 0.05, 0.05]) for s in
            ((m, k), (k, n), (m, n)))  # fmt: skip


Maker = Callable[[np.random.Generator, Grid, int, int, int], object]
CLASSES: dict[str, Maker] = {
    "normal": _normal,
    "wide": _wide,
    "bits": _bits,
    "subnormal": _subnormal,
    "ties": _ties,
    "hairs": _hairs,
    "scattered": _scattered,
    "wild_c": _wild_c,
    "infinite_c": _infinite_c,
    "integers": _integers,
    "cancellation": _cancellation,
    "sparse": _sparse,
    "overflow": _overflow,
    "zeros": _zeros,
}


def tile(kind: str, grid: str, m: int, k: int, n: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Return a (m, k) and b (k, n) on the grid and a binary32 c (m, n), all C-contiguous float32."""
    rng = np.random.default_rng([seed, m, k, n, *map(ord, kind + grid)])
    with np.errstate(all="ignore"):
        a, b, c = CLASSES[kind](rng, GRIDS[grid], m, k, n)
        c32 = np.asarray(c).astype(np.float32) if np.asarray(c).dtype != np.float32 else c
    return snap(a, GRIDS[grid]), snap(b, GRIDS[grid]), np.ascontiguousarray(c32)


def same_bits(x: np.ndarray, y: np.ndarray) -> bool:
    """Compare bit for bit; any NaN equals any NaN."""
    return bool(np.all((x.view(np.uint32) == y.view(np.uint32)) | (np.isnan(x) & np.isnan(y))))
