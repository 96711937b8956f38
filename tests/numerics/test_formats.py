"""Is every format what its definition says, and which overflow rule do the control bits choose?"""

import json
import subprocess
import sys
from collections import Counter
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from ascendsim.errors import UnsupportedError
from ascendsim.numerics import casts
from ascendsim.numerics.casts import cast_twin, hybrid_twin
from ascendsim.numerics.dtypes import (
    DTYPES,
    FLOAT16,
    HF32_10,
    HF32_11,
    HIFLOAT8,
    Control,
    OverflowRules,
    dtype,
    positive_values,
    value_of_code,
)
from ascendsim.numerics.hifloat8 import HYBRIDS, HiFloat8Array, round_hybrid, value_ranks
from ascendsim.numerics.metric_chunks import _BY_FORMAT
from ascendsim.ops.lowering.formats import cube_overflow, overflow_rules, vector_overflow
from ascendsim.profile import load_profile
from ascendsim.profile.schema import CUBE_DTYPES, NARROW
from ascendsim.rules.checked import EIGHT_BITS
from tests.helpers.format_samples import assert_same, neighbourhood, random_patterns, widen
from tests.helpers.toy_machines import toy_split

# --- Is every format what its definition says? ---------------------------------------------------------


@pytest.mark.parametrize("fmt", DTYPES, ids=str)
def test_every_format_is_found_by_its_name_and_by_itself(fmt):
    assert dtype(fmt.name) is fmt
    assert dtype(fmt) is fmt


@pytest.mark.parametrize("fmt", [fmt for fmt in DTYPES if not fmt.name.startswith("h")], ids=str)
def test_a_numpy_dtype_finds_its_format(fmt):
    assert fmt.storage is not None
    assert dtype(fmt.storage) is fmt
    assert dtype(fmt.storage.type) is fmt


def test_storage_has_the_size_of_one_element():
    assert [fmt.itemsize for fmt in DTYPES[:5]] == [2, 2, 4, 4, 4]
    for fmt in DTYPES:
        assert fmt.itemsize * 8 == fmt.bits
        assert fmt.storage is None or fmt.storage.itemsize == fmt.itemsize


@pytest.mark.parametrize("fmt", [fmt for fmt in DTYPES if fmt.bits < 32], ids=str)
def test_whoever_lists_formats_lists_every_narrow_one(fmt):
    # These rooms do not know numerics: a format that is new there must be added here by hand.
    assert fmt.name in CUBE_DTYPES, "profile/schema.py: CUBE_DTYPES"
    assert fmt.name in NARROW, "profile/schema.py: NARROW"
    assert (fmt.name in EIGHT_BITS) == (fmt.bits == 8), "rules/checked.py: EIGHT_BITS"
    assert fmt.name in _BY_FORMAT, "numerics/metric_chunks.py: _BY_FORMAT"


def test_hifloat8_has_no_numpy_storage_and_hf32_stays_float32_in_buffers():
    assert HIFLOAT8.storage is None
    assert HF32_11.storage == HF32_10.storage == np.float32


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("fp16", "did you mean 'float16'?"),
        ("bfloat61", "did you mean 'bfloat16'?"),
        ("hf32", "did you mean 'hf32_11' or 'hf32_10'?"),
        ("hifloat9", "did you mean 'hifloat8'?"),
        (np.dtype("float64"), "'float64' is not a supported format"),
        (np.dtype("int32"), "supported are float16, bfloat16"),
    ],
)
def test_an_unknown_format_is_refused_with_the_nearest_name(wrong, hint):
    with pytest.raises(UnsupportedError) as error:
        dtype(wrong)
    assert hint in str(error.value)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float16"])
def test_fields_agree_with_the_finfo_of_another_library(name):
    fmt, info = dtype(name), ml_dtypes.finfo(dtype(name).storage)
    assert (fmt.bits, fmt.mantissa_bits, fmt.exponent_bits) == (info.bits, info.nmant, info.nexp)
    assert fmt.max_finite == float(info.max)
    assert fmt.min_exponent == info.minexp


@pytest.mark.parametrize("fmt", [fmt for fmt in DTYPES if not fmt.tapered], ids=str)
def test_the_exponents_of_a_format_fill_their_field(fmt):
    # Half of them, but one, are below zero; an HF32 leaves places of a float32 empty.
    assert fmt.bias == 2 ** (fmt.exponent_bits - 1) - 1
    empty = 23 - fmt.mantissa_bits if fmt.name.startswith("hf32") else 0
    assert 1 + fmt.exponent_bits + fmt.mantissa_bits + empty == fmt.bits


def test_the_largest_hf32_values_have_all_kept_bits_set():
    # 0x7F7FF000 keeps 11 mantissa bits of float32's largest value, 0x7F7FE000 keeps 10.
    assert np.float32(HF32_11.max_finite).view(np.uint32) == 0x7F7FF000
    assert np.float32(HF32_10.max_finite).view(np.uint32) == 0x7F7FE000


def test_a_format_cannot_be_changed():
    with pytest.raises(AttributeError):
        FLOAT16.bits = 8


def test_sizes_cost_no_import_of_ml_dtypes_or_numba():
    code = (
        "import sys; from ascendsim.numerics.dtypes import dtype; dtype('bfloat16').itemsize;"
        "print([m for m in ('ml_dtypes', 'numba') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- Is HiFloat8 right: every code, every threshold, the class that carries it? ------------------------

EVERY = np.arange(256, dtype=np.uint8)


@pytest.mark.parametrize(
    ("code", "value"),
    [
        (0x00, 0.0),
        (0x01, 2.0**-22),  # 0000 001: the smallest, fraction 1
        (0x07, 2.0**-16),  # 0000 111: the last power of two below the normal values
        (0x08, 1.0),  # 0001 000: no exponent bits
        (0x0F, 1.875),  # 0001 111
        (0x10, 2.0),  # 001 0 000: exponent bit 0 is +1
        (0x18, 0.5),  # 001 1 000: exponent bit 1 is -1
        (0x17, 3.75),  # 001 0 111
        (0x20, 4.0),  # 01 00 000: +(1 0) = 2
        (0x38, 0.125),  # 01 11 000: -(1 1) = -3
        (0x40, 16.0),  # 10 000 00: +(1 00) = 4
        (0x5C, 2.0**-7),  # 10 111 00: -(1 11) = -7
        (0x61, 384.0),  # 11 0000 1: 2**8 * 1.5
        (0x7F, 1.5 * 2.0**-15),  # 11 1111 1
        (0x6E, 32768.0),
        (0x6F, np.inf),
        (0xEF, -np.inf),
        (0xEE, -32768.0),
        (0x80, np.nan),
        (0x88, -1.0),
    ],
)
def test_a_code_means_what_its_fields_say(code, value):
    np.testing.assert_equal(value_of_code(code), value)


def test_the_256_codes_are_256_different_things():
    values = [value_of_code(code) for code in range(256)]
    finite = [v for v in values if np.isfinite(v)]
    assert (values.count(0.0), sum(np.isinf(values)), sum(np.isnan(values))) == (1, 2, 1)
    assert Counter(Counter(finite).values()) == {1: 253}
    assert sum(2.0**-22 <= abs(v) <= 2.0**-16 for v in finite) == 14
    assert max(finite) == HIFLOAT8.max_finite


def test_every_code_decodes_to_an_outside_table(data_dir):
    table = json.loads((data_dir / "hif8_codes.json").read_text())["codes"]
    values = HiFloat8Array(EVERY).to_float32()
    assert_same(values, [float(row["value"]) for row in table])
    ranked = [row for row in table if "rank" in row]
    assert value_ranks([row["code"] for row in ranked]).tolist() == [row["rank"] for row in ranked]


def test_every_threshold_is_that_of_an_outside_table(data_dir):
    table = json.loads((data_dir / "hif8_codes.json").read_text())["codes"]
    rows = [row for row in table if "ta_round_from_abs" in row and row["code"] < 128]
    at = np.array([row["ta_round_from_abs"] for row in rows], np.float32)
    codes = np.array([row["code"] for row in rows], np.uint8)
    assert len(rows) == 127
    np.testing.assert_array_equal(HiFloat8Array.from_float32(at).codes, codes)
    below = HiFloat8Array.from_float32(np.nextafter(at, np.float32(0)))
    np.testing.assert_array_equal(value_ranks(below.codes), value_ranks(codes) - 1)


def test_codes_and_casts_agree_with_the_vendors_python_package():
    en = pytest.importorskip(
        "en_dtypes", reason="en_dtypes is not installed: no vendor package to compare with"
    )
    assert_same(HiFloat8Array(EVERY).to_float32(), EVERY.view(en.hifloat8).astype(np.float32))
    values = np.concatenate([neighbourhood("hifloat8"), random_patterns(1_000_000)])
    with np.errstate(all="ignore"):
        codes = values.astype(en.hifloat8).view(np.uint8)
    np.testing.assert_array_equal(HiFloat8Array.from_float32(values).codes, codes)


def test_codes_survive_decode_and_encode():
    carrier = HiFloat8Array(EVERY).to_float32()
    np.testing.assert_array_equal(casts.encode(carrier, "hifloat8").codes, EVERY)
    np.testing.assert_array_equal(HiFloat8Array.from_float32(carrier).codes, EVERY)


def test_neighbours_and_midpoints_round_by_the_definition():
    values = neighbourhood("hifloat8")
    expected = [cast_twin(float(value), HIFLOAT8, "ROUND") for value in values]
    assert_same(casts.round_to(values, "hifloat8"), expected)


def test_a_million_random_patterns_round_to_the_nearest_value():
    values = random_patterns(1_000_000, seed=1)
    got = casts.round_to(values, "hifloat8")
    # By searching the midpoints, each the first value that rounds up; Inf stands at 1.5 * 2**15.
    ladder = np.array([0.0, *positive_values(), 49152.0])
    middle = (ladder[:-1] + ladder[1:]) / 2
    wide = widen(values)
    expected = np.append(ladder[:-1], np.inf)[np.searchsorted(middle, np.abs(wide), side="right")]
    expected = np.where(expected == 0, 0.0, np.copysign(expected, wide))
    expected[np.isnan(wide)] = np.nan
    assert_same(got, expected)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (2.0**-23, 2.0**-22),  # the tie between zero and the smallest value
        (np.nextafter(np.float32(2.0**-23), np.float32(0)), 0.0),
        (-(2.0**-24), 0.0),
        (1.0625, 1.125),  # a tie goes away from zero
        (-1.0625, -1.125),
        (17.9, 16.0),  # 16 and 20 are neighbours
        (18.0, 20.0),
        (320.0, 384.0),  # 256 and 384
    ],
)
def test_half_goes_away_from_zero(value, expected):
    assert float(HiFloat8Array.from_float32(np.float32(value))) == expected


def test_zero_has_no_sign():
    rounded = casts.round_to(np.array([-0.0, -1e-30], np.float32), "hifloat8")
    np.testing.assert_array_equal(rounded.view(np.uint32), 0)
    np.testing.assert_array_equal(HiFloat8Array.from_float32(rounded).codes, 0)
    assert casts.encode(np.float32(-0.0), "hifloat8").codes == 0


def test_literal_hybrid_moves_exact_values_and_strict_does_not():
    # Exact values with |E| >= 4 have nothing but zeros on both sides of ">=": 7 denormals, two values in
    # each of the 16 binades with |E| in 8..15 but one (Inf), four in the 8 with |E| in 4..7: 7 + 31 + 32.
    exact = np.array(positive_values(), np.float32)
    assert int((round_hybrid(exact, "doc-literal") != exact).sum()) == 70
    np.testing.assert_array_equal(round_hybrid(exact, "strict"), exact)
    assert float(round_hybrid(np.float32(16), "doc-literal")) == 20.0


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        # 2**4, two fraction bits kept: fraction bits 20..7 are behind them, bits 13..0 are the threshold.
        (0x41800000 | 1, 16.0),  # behind 0, threshold 1
        (0x41800000 | 1 << 7, 16.0),  # behind 1, threshold 128
        (0x41800000 | 1 << 14, 20.0),  # behind 128, threshold 0
        (0x41800000 | 0x1FFFFF, 20.0),  # all ones on both sides
        (0xC1800000 | 1 << 14, -20.0),
    ],
)
def test_hybrid_compares_the_bits_behind_with_the_lowest_ones(pattern, expected):
    value = np.array([pattern], np.uint32).view(np.float32)
    for variant in HYBRIDS:
        assert float(round_hybrid(value, variant)[0]) == expected


@pytest.mark.parametrize("variant", HYBRIDS)
def test_hybrid_of_float32_is_its_definition_in_every_binade(variant):
    # Low bits are rare in random fractions: half of the values keep only the bits behind the kept ones.
    rng = np.random.default_rng(2)
    fields = np.repeat(np.arange(127 - 25, 127 + 17, dtype=np.uint32), 60) << np.uint32(23)
    fraction = rng.integers(0, 2**23, fields.size, dtype=np.uint32)
    fraction[::2] &= np.uint32(0x7FC000) | rng.integers(0, 2, fields.size // 2, dtype=np.uint32)
    values = (fields | fraction).view(np.float32)
    expected = [cast_twin(float(x), HIFLOAT8, f"HYBRID:{variant}") for x in values]
    assert_same(round_hybrid(values, variant), expected)
    assert_same(round_hybrid(-values, variant), np.where(np.array(expected) == 0, 0.0, -np.array(expected)))


@pytest.mark.parametrize("variant", HYBRIDS)
def test_hybrid_of_half_is_its_definition(variant):
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)[::7]
    expected = np.array([float(hybrid_twin(Fraction(float(x)), variant, "float16")) for x in halves])
    assert_same(round_hybrid(halves, variant, "float16"), np.where(expected > 32768, np.inf, expected))


@pytest.mark.parametrize("variant", HYBRIDS)
def test_hybrid_of_half_moves_no_exact_value(variant):
    # The threshold ends in a 1, so it is never zero.
    exact = np.array([v for v in positive_values() if v >= 2.0**-22], np.float32)
    exact = exact[exact.astype(np.float16).astype(np.float32) == exact]
    np.testing.assert_array_equal(round_hybrid(exact, variant, "float16"), exact)


def test_hybrid_must_say_which_reading():
    with pytest.raises(UnsupportedError, match="HYBRID:doc-literal or HYBRID:strict"):
        casts.round_to(np.float32(1), "hifloat8", "HYBRID")


def test_a_reading_or_a_source_that_nobody_has_is_refused():
    # Whatever is not strict would have been rounded as doc-literal.
    with pytest.raises(UnsupportedError, match="'loose' is not one of doc-literal, strict"):
        round_hybrid(np.ones(1, np.float32), "loose")
    with pytest.raises(UnsupportedError, match="source: 'bfloat16' is not one of float32, float16"):
        round_hybrid(np.ones(1, np.float32), "strict", "bfloat16")


def test_modes_no_conversion_has_are_refused():
    with pytest.raises(UnsupportedError, match="'RINT' is not one of ROUND"):
        casts.round_to(np.float32(1), "hifloat8", "RINT")


def test_rank_counts_values_not_codes():
    # 0x17 is 3.75, 0x18 is 0.5: neighbouring codes, 23 values apart.
    assert np.diff(value_ranks([0x17, 0x18])) == -23
    order = value_ranks(np.delete(EVERY, 0x80))
    values = HiFloat8Array(np.delete(EVERY, 0x80)).to_float32()
    np.testing.assert_array_equal(np.argsort(order), np.argsort(values))
    assert sorted(order.tolist()) == list(range(-127, 128))
    # A NaN among numbers, too: it would have the rank of a zero.
    for codes in ([0x80], [0x08, 0x80], EVERY):
        with pytest.raises(UnsupportedError, match="NaN has no rank"):
            value_ranks(codes)


def test_the_array_behaves_like_an_array():
    tensor = HiFloat8Array.from_float32(np.arange(24, dtype=np.float32).reshape(2, 3, 4))
    assert (tensor.shape, tensor.ndim, tensor.size, tensor.nbytes, len(tensor)) == ((2, 3, 4), 3, 24, 24, 2)
    assert tensor.dtype is HIFLOAT8
    assert tensor.reshape(6, 4).shape == tensor.reshape((6, 4)).shape == (6, 4)
    assert tensor.transpose(2, 0, 1).shape == (4, 2, 3)
    np.testing.assert_array_equal(tensor[0, 1].to_float32(), [4, 5, 6, 7])
    assert float(tensor[1, 0, 0]) == 12.0


def test_asarray_gives_values():
    tensor = HiFloat8Array.from_float32(np.array([1.5, -2.0], np.float32))
    assert np.asarray(tensor).dtype == np.float32
    np.testing.assert_array_equal(np.asarray(tensor, np.float64), [1.5, -2.0])
    with pytest.raises(ValueError, match="decoded"):
        np.array(tensor, copy=False)


def test_equality_is_of_values():
    tensor = HiFloat8Array(np.array([0x08, 0x80, 0x00], np.uint8))
    np.testing.assert_array_equal(tensor == HiFloat8Array(tensor.codes.copy()), [True, False, True])
    np.testing.assert_array_equal(tensor != tensor, [False, True, False])
    np.testing.assert_array_equal(tensor == np.array([1.0, 2.0, 0.0]), [True, False, True])


def test_repr_shows_values_shape_and_codes():
    text = repr(HiFloat8Array(np.array([0x09, 0x6F, 0x80], np.uint8)))
    assert text == "HiFloat8Array([1.125,   inf,   nan], shape=(3,),\n  codes=[0x09, 0x6F, 0x80])"


def test_values_are_not_taken_for_codes():
    with pytest.raises(UnsupportedError, match="codes are uint8, got float32"):
        HiFloat8Array(np.zeros(3, np.float32))
    with pytest.raises(UnsupportedError, match="got float64"):
        HiFloat8Array.from_float32(np.zeros(3))


# --- Do the control bits select the overflow rule that the vendor's pages give? ------------------------

RULES = {name: overflow_rules(load_profile(name)) for name in ("910", "310P", "910B", "910_93", "910_95")}


@pytest.mark.parametrize("product", ["910", "310P"])
def test_the_oldest_cores_only_saturate(product):
    assert RULES[product].conversion("float16") == "saturate"
    assert RULES[product].conversion("float16", Control(inf_nan=True)) == "saturate"


@pytest.mark.parametrize("product", ["910B", "910_93"])
def test_910b_follows_ctrl48_and_nothing_else(product):
    rules = RULES[product]
    assert rules.conversion("float16") == "ieee"
    assert rules.conversion("bfloat16", Control(inf_nan=False)) == "saturate"
    # No CTRL[60] and no fp8 there: the instruction and CTRL[50] change nothing.
    assert rules.conversion("float16", instruction_saturates=True) == "ieee"
    assert rules.conversion("float16", Control(inf_nan=False, keep_nan=True)) == "saturate"


def test_910_95_lets_the_instruction_decide_when_ctrl60_is_clear():
    free = Control(inf_nan=False, global_rules=False)
    assert RULES["910_95"].conversion("hifloat8", free) == "ieee"
    assert RULES["910_95"].conversion("hifloat8", free, instruction_saturates=True) == "saturate"


def test_910_95_lets_ctrl48_decide_when_ctrl60_is_set():
    # The register's reset value: CTRL[60] = 1, CTRL[48] = 0.
    reset = Control(inf_nan=False, global_rules=True)
    assert RULES["910_95"].conversion("float16", reset) == "saturate"
    on = Control(inf_nan=True, global_rules=True)
    assert RULES["910_95"].conversion("float16", on, instruction_saturates=True) == "ieee"


def test_ctrl50_keeps_nan_in_saturating_fp8_conversions_only():
    keep = Control(inf_nan=False, keep_nan=True)
    assert RULES["910_95"].conversion("float8_e4m3fn", keep) == "saturate_keep_nan"
    assert RULES["910_95"].conversion("hifloat8", keep) == "saturate"
    assert RULES["910_95"].conversion("float16", keep) == "saturate"


def test_910_95_at_launch_delivers_inf_and_nan():
    for target in ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "hifloat8"):
        assert RULES["910_95"].conversion(target) == "ieee"
        # The compilers clear CTRL[60], so that an instruction may still ask for saturation.
        assert RULES["910_95"].conversion(target, instruction_saturates=True) == "saturate"


def test_the_two_readings_of_fixpipe_differ_where_the_pages_differ():
    assert RULES["910B"].fixpipe("float16") == "ieee"
    assert RULES["910B"].fixpipe("float16", "c-api-pages") == "saturate"
    assert RULES["910_95"].fixpipe("float16", "c-api-pages") == "ieee"
    assert RULES["910_95"].fixpipe("bfloat16", "c-api-pages") == "saturate"


def test_fixpipe_follows_the_control_bits_otherwise():
    off = Control(inf_nan=False)
    assert RULES["910B"].fixpipe("float16", control=off) == "saturate"
    assert RULES["910_95"].fixpipe("float16", "c-api-pages", off) == "saturate"


def test_float32_outputs_are_no_conversion():
    assert RULES["910"].conversion("float32") == "ieee"
    # Nor are they where Fixpipe would saturate every other format.
    assert OverflowRules((), ("float16",), Control(False)).fixpipe("float32", "c-api-pages") == "ieee"


def test_an_unknown_preset_is_refused():
    with pytest.raises(UnsupportedError, match="ctrl48, c-api-pages"):
        RULES["910B"].fixpipe("float16", "guess")


@pytest.mark.parametrize("target", ["float16", "bfloat16", "hifloat8", "float8_e4m3fn", "float32"])
def test_a_machine_that_is_no_product_converts_as_ieee_754_does(target):
    toy = toy_split()
    assert vector_overflow(toy, target) == "ieee"
    assert cube_overflow(toy, target) == cube_overflow(toy, target, "c-api-pages") == "ieee"


def test_only_what_fixpipe_writes_follows_its_pages():
    # 910: results leave L0C through UB, where a vector core converts them.
    pages = {name: cube_overflow(load_profile(name), "bfloat16", "c-api-pages") for name in RULES}
    assert pages == dict.fromkeys(RULES, "saturate")
    assert cube_overflow(load_profile("910B"), "bfloat16") == "ieee"
    assert vector_overflow(load_profile("910B"), "bfloat16") == "ieee"
    assert cube_overflow(load_profile("910"), "float16") == vector_overflow(load_profile("910"), "float16")


def test_a_bit_of_the_register_can_be_tried_the_other_way():
    saturating = load_profile("910B", {"generation.inf_nan_at_launch": False})
    assert vector_overflow(saturating, "float16") == cube_overflow(saturating, "float16") == "saturate"
