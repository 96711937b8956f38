"""Are formats that no product has rounded as their names say?"""

import math

import ml_dtypes
import numpy as np
import pytest

from ascendsim.errors import ConfigError, UnsupportedError
from ascendsim.numerics.formats.casts import round_to
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.precision import Math, format_of, quantise
from ascendsim.studies.arithmetic.math import operands_of


def hard_values():
    """Return float32 values over all exponents, with those beside them that a cast may confuse."""
    rng = np.random.default_rng(0)
    values = rng.integers(0, 1 << 32, 20_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    few = np.ldexp(rng.integers(0, 4096, 20_000), rng.integers(-40, 20, 20_000)).astype(np.float32)
    return np.concatenate([values[np.isfinite(values)], few, -few, np.array([0.0, -0.0, np.inf, -np.inf])])


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("e5m10", np.float16),
        ("e8m7", ml_dtypes.bfloat16),
        ("e5m2", ml_dtypes.float8_e5m2),
        ("e4m3", ml_dtypes.float8_e4m3),
        ("e3m4", ml_dtypes.float8_e3m4),
        ("e8m23", np.float32),
    ],
)
def test_a_free_format_is_the_known_one_of_its_sizes(text, known):
    values = hard_values().astype(np.float32)
    with np.errstate(over="ignore"):
        want = values.astype(known).astype(np.float32)
    got = quantise(values.astype(np.float64), format_of(text))
    assert np.array_equal(got.view(np.uint32), want.view(np.uint32))


@pytest.mark.parametrize("text", ["float16", "bfloat16", "float8_e4m3fn", "hifloat8", "float32"])
def test_a_format_of_a_product_is_cast_as_on_the_product(text):
    values = hard_values().astype(np.float32)
    got = quantise(values.astype(np.float64), format_of(text))
    want = round_to(values, text)
    assert np.array_equal(got, want, equal_nan=True)
    assert format_of(text).product
    assert not format_of("e4m3").product


def test_float64_is_rounded_once():
    # Just above a tie of e8m7: through float32 it would be the tie, and go to the even side.
    value = np.array([1 + 2.0**-8 + 2.0**-40])
    for text in ("e8m7", "bfloat16"):
        assert quantise(value, format_of(text)).item() == 1 + 2.0**-7


def test_the_scale_of_a_tensor_is_the_least_that_holds_its_largest_value():
    # float8_e4m3fn ends at 448 = 1.75 * 2^8. 1.75 needs the scale 2^-8; 1.8 is beyond 448 * 2^-8, so 2^-7.
    fmt = format_of("scaled(float8_e4m3fn)")
    assert quantise(np.array([1.75, 2.0**-17]), fmt).tolist() == [1.75, 2.0**-17]
    # With 2^-7 the smallest subnormal is 2^-9 * 2^-7: 2^-17 is a tie with zero, which is even.
    assert quantise(np.array([1.8, 2.0**-17]), fmt).tolist() == [1.75, 0.0]
    # Alone, a small tensor keeps its bits at any size.
    assert quantise(np.array([2.0**-100 * 1.25]), fmt).tolist() == [2.0**-100 * 1.25]


@pytest.mark.parametrize(
    ("gradient", "transposed", "axes"),
    # grad_weight adds over pixels, along rows: axis 3 of both. grad_input adds over the channels of
    # grad_output: its axis 1, and of a weight the first, or the second of a transposed convolution.
    [
        ("grad_weight", False, (3, 3)),
        ("grad_weight", True, (3, 3)),
        ("grad_input", False, (1, 0)),
        ("grad_input", True, (1, 1)),
    ],
)
def test_blocks_lie_along_the_reduction_of_each_gradient(gradient, transposed, axes):
    problem = ConvProblem((3, 4, 5, 6), (4, 4, 3, 3), padding=1, transposed=transposed)
    tensors = {}
    for name in ("grad_output", "input", "weight"):
        # One large value takes from the others of its block what is below their common step; 2^-10 is.
        tensors[name] = np.full(getattr(problem, name), 2.0**-10)
        tensors[name][0, 0, 0, 0] = 2.0**8
    for made, axis in zip(operands_of(problem, tensors, Math("mx(e4m3)"), gradient), axes, strict=True):
        lost = np.argwhere(made == 0)
        assert np.flatnonzero(lost.any(axis=0)).tolist() == [axis]
        assert len(lost) == made.shape[axis] - 1


def test_blocks_of_32_share_a_scale_along_the_reduction():
    # In e4m3 a block whose largest value is 2^8 has the scale 2^(8 - 7), and so a smallest step of 2^-8.
    fmt = format_of("mx(e4m3)")
    values = np.zeros((2, 64))
    values[0, 0], values[0, 1], values[0, 32] = 2.0**8, 2.0**-10, 2.0**-10
    got = quantise(values, fmt, axis=1)
    assert got[0, 0] == 2.0**8
    assert got[0, 1] == 0.0  # a quarter of that step
    assert got[0, 32] == 2.0**-10  # another block
    # Along the other axis each column is a block of its own.
    assert quantise(values, fmt, axis=0)[0, 1] == 2.0**-10
    # The last block may be short.
    assert quantise(values[:, :40], fmt, axis=1).shape == (2, 40)


def test_a_shared_scale_saturates_and_a_free_format_overflows():
    # 1.99 * 2^7 rounds to 2 * 2^7, beyond the largest value 1.875 * 2^7 of e4m3.
    value = np.array([1.99 * 2.0**7])
    assert quantise(value, format_of("mx(e4m3)")).item() == 1.875 * 2.0**7
    assert math.isinf(quantise(value, format_of("e4m3")).item())
    assert math.isnan(quantise(np.array([500.0]), format_of("float8_e4m3fn"), rounding="stochastic").item())


def test_stochastic_rounding_goes_up_as_often_as_the_value_is_near():
    # 1.25 steps above 1 in e4m3 (step 2^-3): a quarter of the draws end two steps up.
    value = np.full(40_000, 1 + 1.25 * 2.0**-3)
    made = quantise(value, format_of("e4m3"), rounding="stochastic", seed=3)
    assert set(made.tolist()) == {1 + 2.0**-3, 1 + 2 * 2.0**-3}
    # A share of 40,000 draws strays by sqrt(0.25 * 0.75 / 40000) = 0.0022; five times that is never seen.
    assert abs(np.mean(made == 1.25) - 0.25) < 0.011
    assert np.mean(made.astype(np.float64)) == pytest.approx(value[0], abs=0.002)


def test_stochastic_rounding_keeps_what_the_format_holds_and_repeats_by_its_seed():
    values = round_to(hard_values().astype(np.float32), "float16").astype(np.float64)
    held = values[np.isfinite(values)]
    fmt = format_of("float16")
    assert np.array_equal(quantise(held, fmt, rounding="stochastic"), held)
    draws = [quantise(held * 1.0001, fmt, rounding="stochastic", seed=seed) for seed in (1, 1, 2)]
    assert np.array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2])


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("e9m2", ConfigError, "E must be in 2..8 and M in 0..23"),
        ("e4m24", ConfigError, "E must be in 2..8 and M in 0..23"),
        ("mx(mx(e4m3))", ConfigError, "a scale goes over eEmM or a product's format"),
        ("scaled(hifloat8)", ConfigError, "a scale goes over eEmM or a product's format"),
        ("float61", UnsupportedError, "float61"),
    ],
)
def test_a_name_without_a_meaning_is_refused(text, error, words):
    with pytest.raises(error, match=words):
        format_of(text)


def test_a_rounding_without_a_meaning_is_refused():
    with pytest.raises(ConfigError, match="it must be one of nearest, stochastic"):
        quantise(np.ones(1), format_of("e4m3"), rounding="up")
    with pytest.raises(ConfigError, match="stochastic rounding of hifloat8"):
        quantise(np.ones(1), format_of("hifloat8"), rounding="stochastic")
