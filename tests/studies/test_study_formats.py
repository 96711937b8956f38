"""Are formats that no product has rounded as their names say?"""

import math

import gfloat
import gfloat.formats
import ml_dtypes
import numpy as np
import pytest

from ascendsim.errors import ConfigError, UnsupportedError
from ascendsim.numerics.casts import round_to
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


def test_every_free_format_has_the_range_of_its_bits():
    for e in range(10):
        for m in range(26):
            if not 2 <= e <= 8 or m > 23:
                with pytest.raises(ConfigError, match=f"'e{e}m{m}': E must be in"):
                    format_of(f"e{e}m{m}")
                continue
            fmt = format_of(f"e{e}m{m}")
            # The largest code of exponents is Inf and NaN, the least is for subnormals.
            top = 2 ** (e - 1) - 1
            assert fmt.max_finite == sum(2.0 ** (top - bit) for bit in range(m + 1))
            least = 2.0 ** (1 - top) if top < 127 else 2.0**-126
            assert (fmt.min_exponent, fmt.mantissa_bits) == (math.log2(least), m)
            held = [fmt.max_finite, least, least * 2.0**-m]
            assert quantise(np.array(held), fmt).tolist() == held
            beyond = fmt.max_finite + 2.0 ** (top - m - 1)
            with np.errstate(over="ignore"):
                assert quantise(np.array([beyond, least * 2.0 ** -(m + 1)]), fmt).tolist() == [math.inf, 0]


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
    for made, axis in zip(operands_of(problem, tensors, Math("mxfp8_e4m3"), gradient), axes, strict=True):
        lost = np.argwhere(made == 0)
        assert np.flatnonzero(lost.any(axis=0)).tolist() == [axis]
        assert len(lost) == made.shape[axis] - 1


# Of each element's format by its standard: another library's type, largest exponent, largest value. MXINT8
# has no such type: whole numbers in steps of 2^-6.
MX_ELEMENTS = {
    "mxfp4": (ml_dtypes.float4_e2m1fn, 2, 6.0),
    "mxfp6_e2m3": (ml_dtypes.float6_e2m3fn, 2, 7.5),
    "mxfp6_e3m2": (ml_dtypes.float6_e3m2fn, 4, 28.0),
    "mxfp8_e4m3": (ml_dtypes.float8_e4m3fn, 8, 448.0),
    "mxfp8_e5m2": (ml_dtypes.float8_e5m2, 15, 57344.0),
    "mxint8": (None, 0, 127 / 64),
}


def mx_encoded(blocks, name):
    """Encode float32 blocks (n, 32) by the standard's steps, in types of another library; decode them."""
    element, top, largest = MX_ELEMENTS[name]
    # The exponent stands in the bits of a float32 with the bias of the scale's code: 0 of a subnormal makes
    # the least code, 255 of Inf and NaN stays.
    exponents = np.abs(blocks).max(axis=1).view(np.int32) >> 23
    codes = np.where(exponents == 255, 255, np.maximum(exponents - top, 0)).astype(np.uint8)
    scales = codes.view(ml_dtypes.float8_e8m0fnu).astype(np.float64)[:, None]
    # Exact, or so far below the smallest element that it is zero: float32 to be cast from.
    private = np.clip((blocks.astype(np.float64) / scales).astype(np.float32), -largest, largest)
    if element is None:
        whole = np.rint(np.nan_to_num(private) * 64).astype(np.int8)
        held = whole.astype(np.float64) / 64
    else:
        held = np.nan_to_num(private).astype(element).astype(np.float64)
    return (held * scales).astype(np.float32)


def mx_blocks(count, seed=0):
    """Return float32 blocks: bit patterns of any kind, values near each other, ties and clamped ones."""
    rng = np.random.default_rng(seed)
    kind = count // 4
    bits = rng.integers(0, 1 << 32, (kind, 32), dtype=np.uint64).astype(np.uint32).view(np.float32)
    near = rng.standard_normal((kind, 32)) * 2.0 ** rng.integers(-149, 120, (kind, 1))
    # Sixteen steps to a binade: ties of all formats with three fraction bits or fewer.
    ties = rng.integers(-1023, 1024, (kind, 32)) * 2.0 ** rng.integers(-149, 115, (kind, 1))
    wide = rng.standard_normal((count - 3 * kind, 32))
    wide *= 2.0 ** rng.integers(-20, 20, wide.shape)
    return np.concatenate([bits, *(one.astype(np.float32) for one in (near, ties, wide))])


@pytest.mark.parametrize("name", MX_ELEMENTS)
def test_a_format_of_mx_is_that_of_its_standard_block_by_block(name):
    blocks = mx_blocks(20_000)
    with np.errstate(all="ignore"):
        want = mx_encoded(blocks, name)
        got = quantise(blocks.astype(np.float64), format_of(name), axis=1)
    assert np.array_equal(np.isnan(got), np.isnan(want))
    kept = ~np.isnan(want)
    # A bit pattern in 256 is Inf or NaN: of a quarter of the blocks, 1 - (255/256)^32 = 12 % have one.
    assert np.mean(kept) == pytest.approx(1 - 0.118 / 4, abs=0.005)
    assert np.array_equal(got[kept].view(np.uint32), want[kept].view(np.uint32))


@pytest.mark.parametrize("name", MX_ELEMENTS)
def test_a_format_of_mx_holds_the_values_of_another_table(name):
    # Every code of gfloat's table that is finite. One value in the top binade fixes the scale at 1.
    table = gfloat.decode_ndarray(
        getattr(gfloat.formats, f"format_info_{name if name != 'mxfp4' else 'mxfp4_e2m1'}").etype,
        np.arange(1 << (4 if name == "mxfp4" else 6 if "fp6" in name else 8)),
    )
    # -2 of MXINT8 is a code that an encoder may leave unused.
    _, top, largest = MX_ELEMENTS[name]
    values = table[np.isfinite(table) & (np.abs(table) <= largest)]
    blocks = np.full((len(values), 32), 2.0**top)
    blocks[:, 1] = values
    assert np.array_equal(quantise(blocks, format_of(name), axis=1), blocks)
    # Between two neighbours lies nothing: the middle goes to one of them.
    ordered = np.unique(values)
    blocks = np.full((len(ordered) - 1, 32), 2.0**top)
    blocks[:, 1] = (ordered[1:] + ordered[:-1]) / 2
    made = quantise(blocks, format_of(name), axis=1)[:, 1]
    assert np.all((made == ordered[1:]) | (made == ordered[:-1]))


def test_a_block_of_mxfp4_by_hand():
    # Elements of e2m1: 0, 0.5, 1, 1.5, 2, 3, 4, 6. The largest, 6 = 1.5 * 2^2, makes the scale 2^(2 - 2).
    block = np.array([6, 5, 4, 3, 2, 1.5, 1, 0.5, 0.25, -0.25])
    # Ties: 5 between 4 and 6 goes to 4, whose fraction is even; 0.25 to 0.
    assert quantise(block, format_of("MXFP4")).tolist() == [6, 4, 4, 3, 2, 1.5, 1, 0.5, 0, 0]


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan, 2.0**128])
def test_what_no_scale_holds_makes_its_block_of_mx_nan_and_no_other(special):
    values = np.ones(64)
    values[3] = special
    for name in MX_ELEMENTS:
        made = quantise(values, format_of(name))
        assert np.isnan(made[:32]).all()
        assert np.array_equal(made[32:], values[32:])


def test_blocks_of_32_share_a_scale_along_the_reduction():
    # A block of mxfp8_e4m3 whose largest value is 2^8 has the scale 2^(8 - 8), so a smallest step of 2^-9.
    fmt = format_of("mxfp8_e4m3")
    values = np.zeros((2, 64))
    values[0, 0], values[0, 1], values[0, 32] = 2.0**8, 2.0**-11, 2.0**-11
    got = quantise(values, fmt, axis=1)
    assert got[0, 0] == 2.0**8
    assert got[0, 1] == 0.0  # a quarter of that step
    assert got[0, 32] == 2.0**-11  # another block
    # Along the other axis each column is a block of its own.
    assert quantise(values, fmt, axis=0)[0, 1] == 2.0**-11
    # The last block may be short.
    assert quantise(values[:, :40], fmt, axis=1).shape == (2, 40)


def test_a_shared_scale_saturates_and_a_free_format_overflows():
    # 1.99 * 2^8 is beyond 448 = 1.75 * 2^8, the largest of float8_e4m3fn, at the scale 1.
    value = np.array([1.99 * 2.0**8])
    assert quantise(value, format_of("mxfp8_e4m3")).item() == 448.0
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
        ("mx(e4m3)", ConfigError, "the formats of OCP MX v1.0 are mxfp4, mxfp6_e2m3"),
        ("scaled(mxfp4)", ConfigError, "a scale goes over eEmM or a product's format"),
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
