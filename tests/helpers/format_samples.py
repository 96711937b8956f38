"""Values at which casts go wrong, and how results are compared; shared by the tests of the formats."""

import numpy as np

from ascendsim.numerics.formats.dtypes import dtype, positive_values


def random_patterns(count, seed=0):
    """Return float32 values with uniformly random bits: every exponent, subnormals, Inf, NaN."""
    return np.random.default_rng(seed).integers(0, 2**32, count, dtype=np.uint32).view(np.float32)


def positive_grid(name):
    """Return the positive finite values of a format of at most 16 bits, rising, from its definition."""
    fmt = dtype(name)
    if fmt.tapered:
        return np.array(positive_values())
    fields = np.arange(1, 1 << (fmt.bits - 1))
    fraction = fields & ((1 << fmt.mantissa_bits) - 1)
    exponent = fields >> fmt.mantissa_bits
    significand = fraction + ((exponent > 0) << fmt.mantissa_bits)
    values = np.ldexp(significand.astype(np.float64), np.maximum(exponent, 1) - fmt.bias - fmt.mantissa_bits)
    return values[values <= fmt.max_finite]


def neighbourhood(name):
    """Return zero, every value, every midpoint, the first values beyond the end; each also one ulp off."""
    grid = np.concatenate([[0.0], positive_grid(name)])
    beyond = grid[-1] + (grid[-1] - grid[-2]) * np.array([0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0, 1e3])
    points = np.concatenate([grid, (grid[:-1] + grid[1:]) / 2, beyond])
    with np.errstate(over="ignore"):
        exact = points.astype(np.float32)
    around = np.concatenate(
        [exact, np.nextafter(exact, np.float32(np.inf)), np.nextafter(exact, np.float32(0))]
    )
    both = np.concatenate([around, -around])
    return np.concatenate([both, np.array([np.inf, -np.inf, np.nan, 0.0, -0.0], np.float32)])


def hf32_ties(mantissa_bits):
    """Return ties at that width, with their ulps, in every exponent incl. subnormals, and the carries."""
    drop = 23 - mantissa_bits
    field = np.arange(255, dtype=np.uint32)[:, None] << np.uint32(23)
    kept = np.array([0, 1, 2, 3, (1 << mantissa_bits) - 2, (1 << mantissa_bits) - 1], np.uint32) << np.uint32(
        drop
    )
    tie = (field | kept | np.uint32(1 << (drop - 1))).reshape(-1)
    patterns = np.concatenate([tie - 1, tie, tie + 1, (field | kept).reshape(-1)])
    special = np.array([0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FFFFFFF, 0x00000001, 0x007FFFFF], np.uint32)
    patterns = np.concatenate([patterns, special])
    return np.concatenate([patterns, patterns | np.uint32(0x80000000)]).view(np.float32)


def widen(values):
    """Return float32 values as float64; numpy warns about signalling NaNs, which random bits contain."""
    with np.errstate(invalid="ignore"):
        return values.astype(np.float64)


def assert_same(got, expected):
    """Compare bits; any NaN equals any NaN."""
    expected = np.asarray(expected, np.float32)
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(got), nan)
    np.testing.assert_array_equal(got[~nan].view(np.uint32), expected[~nan].view(np.uint32))
