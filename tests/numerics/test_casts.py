"""Are the casts right, bit for bit, those to HF32 too?"""

import dataclasses

import gfloat
import gmpy2
import ml_dtypes
import numpy as np
import pytest
from gfloat import RoundMode
from gfloat import formats as gf

from ascendsim.errors import UnsupportedError
from ascendsim.numerics import casts
from ascendsim.numerics.casts import HF32_TIES, cast_twin, decode, encode, hf32, round_to, stored
from ascendsim.numerics.dtypes import DTYPES, DType, dtype
from ascendsim.numerics.format_rounding import OVERFLOWS, ROUNDINGS, narrow_to_odd, round_fields
from ascendsim.numerics.hifloat8 import HIFLOAT8_ROUNDINGS
from tests.helpers.format_samples import assert_same, hf32_ties, neighbourhood, random_patterns, widen

# --- Are the casts right, bit for bit? -----------------------------------------------------------------
# Three independent judges: the Fraction twin (every mode and overflow rule), gfloat (the modes it has, from
# its own description of the formats) and the conversions of numpy and ml_dtypes (nearest even, from
# float32).

NARROW = ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
GFLOAT = {
    "float16": gf.format_info_binary16,
    "bfloat16": gf.format_info_bfloat16,
    "float8_e4m3fn": gf.format_info_ocp_e4m3,
    "float8_e5m2": gf.format_info_ocp_e5m2,
    "hf32_11": dataclasses.replace(
        gf.format_info_binary32, name="hf32_11", k=20, precision=12, num_high_nans=2**11 - 1
    ),
    "hf32_10": dataclasses.replace(
        gf.format_info_binary32, name="hf32_10", k=19, precision=11, num_high_nans=2**10 - 1
    ),
}
GFLOAT_MODES = {
    "RINT": RoundMode.TiesToEven,
    "ROUND": RoundMode.TiesToAway,
    "TRUNC": RoundMode.TowardZero,
    "FLOOR": RoundMode.TowardNegative,
    "CEIL": RoundMode.TowardPositive,
}


def points(name):
    """Return the values to try for one format."""
    return hf32_ties(dtype(name).mantissa_bits) if name.startswith("hf32") else neighbourhood(name)


def modes(fmt):
    """Return the rounding modes a format has."""
    return HIFLOAT8_ROUNDINGS if fmt.tapered else ROUNDINGS


@pytest.mark.parametrize("name", NARROW)
def test_every_code_decodes_as_two_other_libraries_say_and_encodes_back(name):
    fmt = dtype(name)
    codes = np.arange(1 << fmt.bits, dtype=f"uint{fmt.bits}")
    stored = codes.view(fmt.storage)
    carrier = casts.decode(stored, name)
    assert_same(carrier, stored.astype(np.float32))
    assert_same(carrier, [gfloat.decode_float(GFLOAT[name], int(code)).fval for code in codes])
    back = casts.encode(carrier, name)
    number = ~np.isnan(carrier)
    assert back.dtype == fmt.storage
    np.testing.assert_array_equal(back.view(codes.dtype)[number], codes[number])
    assert np.isnan(back[~number].astype(np.float32)).all()
    np.testing.assert_array_equal(np.signbit(back[~number].astype(np.float32)), np.signbit(carrier[~number]))


@pytest.mark.parametrize("name", NARROW)
def test_nan_encodes_to_nan_whatever_its_payload(name):
    # 0x7F800001 has its only payload bit where every narrow format cuts.
    payloads = np.array([0x7F800001, 0xFF800001, 0x7FFFFFFF, 0x7FC00000], np.uint32).view(np.float32)
    for carrier in (payloads, casts.round_to(payloads, name)):
        assert np.isnan(casts.encode(carrier, name).astype(np.float32)).all()


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("float16", [0x7E00, 0xFE00]),
        ("bfloat16", [0x7FC0, 0xFFC0]),
        ("float8_e4m3fn", [0x7F, 0xFF]),
        ("float8_e5m2", [0x7E, 0xFE]),
        ("hifloat8", [0x80, 0x80]),
    ],
)
def test_nan_encodes_to_the_quiet_code_of_its_sign(name, codes):
    quiet = np.array([0x7FC00000, 0xFFC00000], np.uint32).view(np.float32)
    stored = casts.encode(quiet, name)
    got = stored.codes if name == "hifloat8" else stored.view(f"uint{dtype(name).bits}")
    np.testing.assert_array_equal(got, codes)


@pytest.mark.parametrize("name", NARROW)
def test_a_million_random_patterns_round_as_another_library_rounds(name):
    values = random_patterns(1_000_000)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = values.astype(dtype(name).storage).astype(np.float32)
    assert_same(casts.round_to(values, name), expected)
    assert_same(round_fields(values, dtype(name), "RINT", "ieee"), expected)


@pytest.mark.parametrize("name", GFLOAT)
@pytest.mark.parametrize("mode", GFLOAT_MODES)
@pytest.mark.parametrize("overflow", ["ieee", "saturate_keep_nan"])
def test_neighbours_and_midpoints_round_as_gfloat_rounds(name, mode, overflow):
    values = np.concatenate([points(name), random_patterns(50_000, seed=1)])
    expected = gfloat.round_ndarray(GFLOAT[name], widen(values), GFLOAT_MODES[mode], overflow != "ieee")
    assert_same(casts.round_to(values, name, mode, overflow), expected)


@pytest.mark.parametrize("name", GFLOAT)
@pytest.mark.parametrize("mode", GFLOAT_MODES)
def test_a_million_random_patterns_round_as_gfloat_rounds(name, mode):
    values = random_patterns(1_000_000, seed=2)
    expected = gfloat.round_ndarray(GFLOAT[name], widen(values), GFLOAT_MODES[mode], False)
    assert_same(casts.round_to(values, name, mode), expected)


@pytest.mark.parametrize("fmt", DTYPES, ids=str)
@pytest.mark.parametrize("overflow", OVERFLOWS)
def test_arrays_equal_the_definition_in_every_mode(fmt, overflow):
    near = random_patterns(1, seed=9) if fmt.name == "float32" else points(fmt.name)
    some = np.random.default_rng(3).choice(near, 200)
    ends = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 3.4e38, -3.4e38, 1e-45, -1e-45], np.float32)
    with np.errstate(over="ignore"):
        largest = np.float32(fmt.max_finite) * np.array([1, -1, 1.0625, -1.0625], np.float32)
    values = np.concatenate([some, ends, largest, random_patterns(100, seed=4)])
    for mode in modes(fmt):
        expected = [cast_twin(value, fmt, mode, overflow) for value in widen(values).tolist()]
        assert_same(casts.round_to(values, fmt, mode, overflow), expected)


def test_the_definition_of_nearest_even_agrees_with_mpfr():
    # MPFR knows binary16 and bfloat16 by precision and exponent range, gradual underflow included.
    contexts = {"float16": (11, -23, 16), "bfloat16": (8, -132, 128), "float32": (24, -148, 128)}
    values = np.concatenate([neighbourhood("float16")[::61], random_patterns(2000, seed=5)])
    for name, (precision, emin, emax) in contexts.items():
        mpfr = gmpy2.context(precision=precision, emin=emin, emax=emax, subnormalize=True)
        with gmpy2.context(mpfr):
            expected = [float(gmpy2.mpfr(float(value))) for value in values]
        assert_same(np.array([cast_twin(float(v), dtype(name)) for v in values], np.float32), expected)


@pytest.mark.parametrize(
    ("value", "mode", "expected"),
    [
        # float16 steps by 2**-10 between 1 and 2.
        (1 + 2**-11, "RINT", 1.0),
        (1 + 3 * 2**-11, "RINT", 1 + 2**-9),
        (1 + 2**-11, "ROUND", 1 + 2**-10),
        (-1 - 2**-11, "ROUND", -1 - 2**-10),
        (-1 - 2**-20, "FLOOR", -1 - 2**-10),
        (-1 - 2**-20, "CEIL", -1.0),
        (-1 - 2**-11 - 2**-12, "TRUNC", -1.0),
        (1 + 2**-20, "ODD", 1 + 2**-10),
        (1 + 2**-10 + 2**-12, "ODD", 1 + 2**-10),  # truncated, its last bit is odd already
        (2**-25, "RINT", 0.0),  # half of the smallest subnormal, tie to zero
        (2**-25, "ROUND", 2**-24),
        (-(2**-40), "FLOOR", -(2**-24)),
        (65519.0, "RINT", 65504.0),
        (65520.0, "RINT", np.inf),  # half a step above the largest value
        (65520.0, "TRUNC", 65504.0),
        (1e9, "FLOOR", 65504.0),
        (-1e9, "FLOOR", -np.inf),
        (-1e9, "CEIL", -65504.0),
        (1e9, "ODD", 65504.0),  # 65504 ends in an odd bit
    ],
)
def test_each_mode_on_float16_does_what_its_name_says(value, mode, expected):
    assert casts.round_to(np.float32(value), "float16", mode) == expected


@pytest.mark.parametrize(
    ("name", "value", "overflow", "expected"),
    [
        ("float8_e4m3fn", 464.0, "ieee", 448.0),  # the tie between 448 and the place of NaN goes to even
        ("float8_e4m3fn", 465.0, "ieee", np.nan),
        ("float8_e4m3fn", np.inf, "ieee", np.nan),
        ("float8_e4m3fn", -np.inf, "saturate", -448.0),
        ("float8_e5m2", 61439.0, "ieee", 57344.0),
        ("float8_e5m2", 61440.0, "ieee", np.inf),
        ("float8_e5m2", 61440.0, "saturate", 57344.0),
        ("float16", 1e9, "saturate", 65504.0),
        ("float16", np.nan, "saturate", 0.0),
        ("float16", np.nan, "saturate_keep_nan", np.nan),
        ("bfloat16", 3.4e38, "ieee", np.inf),
        ("bfloat16", 3.4e38, "saturate", (2 - 2**-7) * 2.0**127),
        ("hifloat8", 40959.0, "ieee", 32768.0),
        ("hifloat8", 40960.0, "ieee", np.inf),
        ("hifloat8", 40960.0, "saturate", 32768.0),
        ("hifloat8", np.nan, "saturate", 0.0),
    ],
)
def test_overflow_thresholds_are_the_documented_ones(name, value, overflow, expected):
    np.testing.assert_equal(float(casts.round_to(np.float32(value), name, overflow=overflow)), expected)


def test_a_saturated_nan_is_plus_zero():
    result = casts.round_to(-np.array([np.nan], np.float32), "float16", overflow="saturate")
    assert result.view(np.uint32) == 0


def test_float64_is_refused_because_it_would_round_twice():
    # 1 + 2**-8 + 2**-40 is above the midpoint of bfloat16, and exactly on it once it has been a float32.
    with pytest.raises(UnsupportedError, match="twice on the way"):
        casts.round_to(np.array([1 + 2**-8 + 2**-40]), "bfloat16")


@pytest.mark.parametrize("name", NARROW)
def test_narrowing_float64_to_odd_first_is_one_rounding(name):
    grid = np.unique(np.abs(neighbourhood(name)[:4000].astype(np.float64)))
    middle = (grid[:-1] + grid[1:]) / 2
    wide = np.concatenate([middle, middle * (1 + 2.0**-40), middle * (1 - 2.0**-40), grid, -middle, -grid])
    wide = np.concatenate([wide[np.isfinite(wide)], [1e300, -1e300, np.inf, np.nan, 1e-300, -1e-320]])
    expected = gfloat.round_ndarray(GFLOAT[name], wide, RoundMode.TiesToEven, False)
    assert_same(casts.round_to(narrow_to_odd(wide), name), expected)


def test_encode_refuses_values_off_the_grid():
    for name in ("float16", "float8_e4m3fn", "hifloat8", "hf32_11"):
        with pytest.raises(UnsupportedError, match="apply round_to"):
            casts.encode(np.array([1 + 2**-20], np.float32), name)
    with pytest.raises(UnsupportedError, match="apply round_to"):
        casts.encode(np.array([480.0], np.float32), "float8_e4m3fn")


def test_decode_refuses_the_wrong_storage():
    with pytest.raises(UnsupportedError, match="stored as bfloat16, got float16"):
        casts.decode(np.zeros(3, np.float16), "bfloat16")
    with pytest.raises(UnsupportedError, match="stored as HiFloat8Array, got uint8"):
        casts.decode(np.zeros(3, np.uint8), "hifloat8")


def test_unknown_modes_are_refused_by_name():
    with pytest.raises(UnsupportedError, match="'RNE' is not one of RINT, ROUND"):
        casts.round_to(np.float32(1), "float16", "RNE")
    with pytest.raises(UnsupportedError, match="'clip' is not one of ieee"):
        casts.round_to(np.float32(1), "float16", overflow="clip")
    with pytest.raises(UnsupportedError, match="'clip' is not one of ieee"):
        casts.round_to(np.float32(1), "hifloat8", overflow="clip")


@pytest.mark.parametrize("fmt", DTYPES, ids=str)
def test_casts_keep_the_shape_and_the_input(fmt):
    values = np.random.default_rng(6).standard_normal((2, 3, 4)).astype(np.float32)
    before = values.copy()
    for mode in modes(fmt):
        rounded = casts.round_to(values.transpose(2, 0, 1), fmt, mode)
        assert rounded.shape == (4, 2, 3)
        assert_same(rounded, casts.round_to(values, fmt, mode).transpose(2, 0, 1))
    assert casts.round_to(values[:0], fmt).shape == (0, 3, 4)
    np.testing.assert_array_equal(values, before)


@pytest.mark.parametrize("fmt", DTYPES, ids=str)
def test_a_single_number_is_a_tensor_of_rank_zero(fmt):
    for mode in modes(fmt):
        assert casts.round_to(np.float32(1.5), fmt, mode) == np.float32(1.5)
        assert np.isnan(casts.round_to(np.float32(np.nan), fmt, mode))
    assert casts.decode(casts.encode(np.float32(1.5), fmt), fmt) == np.float32(1.5)


@pytest.mark.parametrize("fmt", DTYPES, ids=str)
def test_rounding_is_idempotent_and_its_result_is_on_the_grid(fmt):
    once = casts.round_to(random_patterns(20_000, seed=7), fmt)
    assert casts.is_on_grid(once, fmt)
    assert_same(casts.round_to(once, fmt), once)
    assert_same(casts.decode(casts.encode(once, fmt), fmt), once)


def test_ml_dtypes_is_only_a_container():
    assert casts.encode(np.array([1.5], np.float32), "bfloat16").dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize(
    "fmt",
    [
        DType("float8_e3m4", 8, 3, 4, 3, 15.5, storage_name="float8_e3m4"),
        DType("float8_e4m3", 8, 4, 3, 7, 240.0, storage_name="float8_e4m3"),
        DType("float8_e5m2", 8, 5, 2, 15, 57344.0, storage_name="float8_e5m2"),
    ],
    ids=str,
)
def test_an_eight_bit_format_is_nothing_but_its_row(fmt):
    values = random_patterns(100_000, seed=8)
    ordinary = np.random.default_rng(9).standard_normal(100_000).astype(np.float32) * 8
    for carrier in (values, ordinary):
        rounded = casts.round_to(carrier, fmt)
        with np.errstate(all="ignore"):
            assert_same(rounded, carrier.astype(fmt.storage).astype(np.float32))
        assert_same(casts.decode(casts.encode(rounded, fmt), fmt), rounded)
    codes = np.arange(256, dtype=np.uint8).view(fmt.storage)
    decoded = casts.decode(codes, fmt)
    assert_same(decoded, codes.astype(np.float32))
    number = ~np.isnan(decoded)
    assert np.array_equal(casts.encode(decoded, fmt).view(np.uint8)[number], codes.view(np.uint8)[number])
    nan = np.array([np.nan, -np.nan], np.float32)
    assert casts.encode(nan, fmt).view(np.uint8).tolist() == nan.astype(fmt.storage).view(np.uint8).tolist()


# --- Does HF32 keep the documented bits with the documented ties? --------------------------------------

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


@pytest.mark.parametrize("ties", ["RNE", "RNA", "RZ"])
def test_long_arrays_are_cut_as_short_ones(ties):
    # All exponents and signs, ties, NaN with and without a payload above what is cut, and a view.
    codes = np.random.default_rng(2).integers(0, 1 << 32, 1 << 14, np.uint32)
    codes[:6] = 0x7F800001, 0xFFC00000, 0x7FFFFFFF, 0x7F800000, 0x3F800800, 0x3F801800
    values = codes.view(np.float32)[::-1]
    short = np.concatenate([hf32(some, 11, ties) for some in np.split(values, 32)])
    assert hf32(values, 11, ties).tobytes() == short.tobytes()


def test_long_arrays_of_bfloat16_are_read_and_stored_as_short_ones():
    codes = np.arange(1 << 16, dtype=np.uint16)
    given = codes.view(casts._storage(casts.dtypes.BFLOAT16))
    singles = (codes.astype(np.uint32) << 16).view(np.float32)
    assert decode(given, "bfloat16").tobytes() == singles.tobytes()
    short = b"".join(encode(part, "bfloat16").tobytes() for part in np.split(singles, 128))
    assert stored(singles, "bfloat16").tobytes() == short
    # Without NaN that signal all codes stay, the long way and the short one.
    calm = singles[~np.isnan(singles)]
    assert stored(calm, "bfloat16").tobytes() == codes[~np.isnan(singles)].tobytes()
    # A payload below what is kept makes a quiet NaN; a number that is off the grid is refused.
    nan = np.full(1 << 11, 0x7F800001, np.uint32).view(np.float32)
    assert stored(nan, "bfloat16").tobytes() == encode(nan[:1], "bfloat16").tobytes() * nan.size
    with pytest.raises(UnsupportedError, match="bfloat16"):
        stored(np.full(1 << 11, 1 + 2.0**-20, np.float32), "bfloat16")
