"""Does HF32 keep the documented bits with the documented ties?"""

import numpy as np
import pytest

from ascendsim.errors import UnsupportedError
from ascendsim.numerics.formats.casts import HF32_TIES, hf32, round_to
from ascendsim.numerics.formats.dtypes import dtype
from tests.helpers.format_samples import assert_same, hf32_ties, random_patterns

MODE = {"RNE": "RINT", "RNA": "ROUND", "RZ": "TRUNC"}
BOTH = pytest.mark.parametrize("bits", [11, 10])


def bit_formula(values, bits, ties):
    """Return the formula on the 31 magnitude bits, in Python integers: an independent spelling."""
    drop, result = 23 - bits, []
    for pattern in values.view(np.uint32).tolist():
        sign, u = pattern & 0x80000000, pattern & 0x7FFFFFFF
        if u <= 0x7F800000:
            add = {"RNE": 2 ** (drop - 1) - 1 + (u >> drop & 1), "RNA": 2 ** (drop - 1), "RZ": 0}[ties]
            u = (u + add) >> drop << drop
        result.append(sign | u)
    return np.array(result, np.uint32).view(np.float32)


@BOTH
@pytest.mark.parametrize("ties", HF32_TIES)
def test_ties_carries_and_special_values_follow_the_bit_formula(bits, ties):
    values = hf32_ties(bits)
    assert_same(hf32(values, bits, ties), bit_formula(values, bits, ties))


@BOTH
@pytest.mark.parametrize("ties", HF32_TIES)
def test_a_million_random_patterns_equal_the_general_rounding(bits, ties):
    values = random_patterns(1_000_000, seed=bits)
    name = f"hf32_{bits}"
    # "saturate_keep_nan" cannot take the bit shortcut, so this compares two different ways to round.
    general = round_to(values, name, MODE[ties], "saturate_keep_nan")
    got = hf32(values, bits, ties)
    finite = np.isfinite(got)
    assert_same(got[finite], general[finite])
    assert_same(got[~finite & ~np.isnan(got)], np.copysign(np.float32(np.inf), values[np.isinf(got)]))


@BOTH
@pytest.mark.parametrize(
    ("ties", "up_from_even", "up_from_odd"), [("RNE", False, True), ("RNA", True, True), ("RZ", False, False)]
)
def test_a_tie_goes_where_the_rule_says(bits, ties, up_from_even, up_from_odd):
    unit = 2.0**-bits
    even, odd = np.float32(1 + unit / 2), np.float32(1 + unit * 1.5)
    assert hf32(even, bits, ties) == 1 + unit * up_from_even
    assert hf32(odd, bits, ties) == 1 + unit + unit * up_from_odd
    assert hf32(-even, bits, ties) == -(1 + unit * up_from_even)


def test_the_probe_that_tells_the_widths_apart():
    # 1 + 2**-11 is an HF32 value at 11 bits and a tie at 10.
    value = np.float32(1 + 2**-11)
    assert hf32(value, 11) == value
    assert hf32(value, 10) == 1.0
    assert hf32(value, 10, "RNA") == 1 + 2**-10


@BOTH
def test_a_carry_runs_into_the_exponent_and_on_to_inf(bits):
    # All fraction bits set: the nearest value is the next power of two; above the last binade that is Inf.
    assert hf32(np.float32(2 - 2**-23), bits) == 2.0
    largest = np.float32(np.finfo(np.float32).max)
    assert hf32(largest, bits) == np.inf
    assert hf32(-largest, bits, "RNA") == -np.inf
    assert hf32(largest, bits, "RZ") == dtype(f"hf32_{bits}").max_finite


@BOTH
def test_subnormals_are_kept_and_rounded_to_the_same_bits(bits):
    drop = 23 - bits
    smallest_kept = np.uint32(1 << drop).view(np.float32)
    assert hf32(smallest_kept, bits) == smallest_kept
    assert hf32(np.uint32((1 << drop) - 1).view(np.float32), bits) == smallest_kept
    assert hf32(np.uint32(1).view(np.float32), bits) == 0.0


@BOTH
@pytest.mark.parametrize("ties", HF32_TIES)
def test_nan_and_inf_stay(bits, ties):
    # The patterns that shipped reference scripts turn into -0, +0 and Inf.
    nans = np.array([0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0xFF800001], np.uint32).view(np.float32)
    assert np.isnan(hf32(nans, bits, ties)).all()
    infinities = np.array([np.inf, -np.inf], np.float32)
    np.testing.assert_array_equal(hf32(infinities, bits, ties), infinities)


@BOTH
def test_products_of_hf32_values_are_exact_in_float32(bits):
    # 12 + 12 (11 + 11) significant bits fit into 24.
    rng = np.random.default_rng(8)
    a, b = (hf32(rng.standard_normal(10_000).astype(np.float32), bits) for _ in range(2))
    np.testing.assert_array_equal((a * b).astype(np.float64), a.astype(np.float64) * b.astype(np.float64))


@pytest.mark.parametrize(("bits", "above_one"), [(1, 1.5), (22, 1 + 2.0**-22)])
def test_the_narrowest_and_the_widest_width_are_taken(bits, above_one):
    # The next value after 1, and a hair less than halfway to it.
    below_half = np.nextafter(np.float32((1 + above_one) / 2), np.float32(0))
    assert hf32(np.float32([above_one, below_half]), bits).tolist() == [above_one, 1.0]
    with pytest.raises(UnsupportedError, match="0 mantissa bits"):
        hf32(np.float32(1), 0)


def test_wrong_arguments_are_refused():
    with pytest.raises(UnsupportedError, match="23 mantissa bits"):
        hf32(np.float32(1), 23)
    with pytest.raises(UnsupportedError, match="'RINT' is not one of RNE, RNA, RZ"):
        hf32(np.float32(1), 11, "RINT")
    with pytest.raises(UnsupportedError, match="got float64"):
        hf32(np.ones(3), 11)
