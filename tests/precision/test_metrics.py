"""Do the error metrics, and the limits of the field's standards, say what their formulas say?"""

import dataclasses
import math
import re
from pathlib import Path

import numpy as np
import pytest

from ascendsim.errors import ShapeError, UnsupportedError
from ascendsim.numerics import casts
from ascendsim.numerics.dtypes import DTYPES, dtype, ulps
from ascendsim.numerics.dtypes import dtype as lookup
from ascendsim.numerics.hifloat8 import HiFloat8Array
from ascendsim.numerics.metric_chunks import METRIC_COLUMNS, round_reference, standards
from ascendsim.numerics.metrics import ErrorMetrics, error_metrics

# --- Do the error metrics say what their formulas say? -------------------------------------------------


def metrics(actual, reference, name="float16"):
    return error_metrics(np.array(actual, np.float32), np.array(reference, np.float64), name)


def verdict(result, standard):
    return next(v.passed for v in result.verdicts if v.standard == standard)


def test_relative_and_absolute_measures_by_hand():
    # differences +0.5, -0.25, 0, 0 against 1, 2, 4, 0
    m = metrics([1.5, 1.75, 4.0, 0.0], [1.0, 2.0, 4.0, 0.0])
    assert m.mere == pytest.approx((0.5 / 1.0000001 + 0.25 / 2.0000001) / 4, rel=1e-15)
    assert m.mare == pytest.approx(0.5 / 1.0000001, rel=1e-15)
    assert m.rmse == math.sqrt((0.25 + 0.0625) / 4)
    assert m.max_abs == 0.5
    assert (m.count, m.compared, m.special_mismatches) == (4, 4, 0)


def test_shares_count_elements_beyond_a_tolerance_with_a_small_absolute_part():
    # Relative errors 2e-3, 5e-4, 5e-5; at zero an error of 1e-9 is within 1e-8, one of 1e-7 is not.
    m = metrics([1.002, 1.0005, 1.00005, 1e-9, 1e-7], [1.0, 1.0, 1.0, 0.0, 0.0], "float32")
    assert m.share_above_1e3 == 2 / 5
    assert m.share_above_1e4 == 3 / 5


def test_double_thousandth_compares_with_the_rounded_reference():
    # 1 + 2**-9 is 1 in bfloat16: the step of the format is not held against the result.
    m = metrics([1.0, 1 + 2**-7], [1 + 2**-9, 1 + 2**-9], "bfloat16")
    assert m.share_above_1e3 == 1.0
    assert m.share_above_1e3_rounded == 0.5


@pytest.mark.parametrize(("bad", "passed"), [(1, True), (2, False)])
def test_double_thousandth_allows_one_element_in_a_thousand(bad, passed):
    actual = np.ones(1000)
    actual[:bad] = 1.002
    m = metrics(actual, np.ones(1000))
    assert m.double_thousandth is passed
    assert verdict(m, "st") is passed


def test_ulps_are_those_of_the_format_at_the_reference():
    # float16 steps: 2**-10 in [1, 2), 2**-9 in [2, 4), 2**-24 below 2**-14. The root mean square of 1, 2, 0
    # is 1.29, so the mean counts the third error in steps of 2**-10.
    m = metrics([1 + 2**-10, 2 - 2**-9, 2**-24], [1.0, 2.0, 0.0])
    assert m.max_ulp == 1.0
    assert m.mean_signed_ulp == (1 - 1 + 2**-14) / 3
    assert metrics([1 + 2**-10], [1.0], "bfloat16").max_ulp == 1 / 8
    assert metrics([1 + 2**-10], [1.0], "float32").max_ulp == 2**13
    assert metrics([1 + 2**-10], [1.0], "hf32_11").max_ulp == 2.0
    assert metrics([1 + 2**-10], [1.0], "hf32_10").max_ulp == 1.0


def test_outward_ulp_sees_truncation_where_the_signed_mean_cancels():
    # Both results are one step nearer to zero.
    m = metrics([1 - 2**-10, -1 + 2**-10], [1.0, -1.0])
    assert m.mean_signed_ulp == 0.0
    assert m.mean_outward_ulp == -1.0
    # A result on the other side of zero is as large as its reference.
    assert metrics([-(2**-24)], [2**-24]).mean_outward_ulp == 0.0


def test_a_sum_that_cancels_does_not_decide_the_mean():
    # 999 results a step of 2**-23 low at 1, and one that cancels to 2**-60 and is off by 2**-24, as a sum of
    # terms of size 1 may be: 2**59 of its own steps, but one at the root mean square, just below 1.
    reference = np.ones(1000)
    reference[0] = 2.0**-60
    actual = reference - 2.0**-23
    actual[0] = 2.0**-24
    m = metrics(actual, reference, "float32")
    assert m.mean_signed_ulp == pytest.approx((-999 + 1) / 1000, rel=1e-12)
    assert m.mean_outward_ulp == pytest.approx((-999 + 1) / 1000, rel=1e-12)
    assert m.max_ulp > 2.0**58


def test_the_measures_of_a_whole_tensor_by_hand():
    # g = (3, 4), a = (3, 2): the error is 2, the norm of g 5, that of a sqrt(13), their product 9 + 8.
    m = metrics([3.0, 2.0], [3.0, 4.0])
    assert m.rel_l2 == pytest.approx(2 / 5, rel=1e-15)
    assert m.sqnr_db == pytest.approx(10 * math.log10(25 / 4), rel=1e-15)
    assert m.cosine == pytest.approx(17 / (5 * math.sqrt(13)), rel=1e-15)


def test_a_measure_that_would_divide_by_zero_has_no_value():
    same, nothing = metrics([3.0], [3.0]), metrics([1.0], [0.0])
    assert (same.rel_l2, same.sqnr_db, same.cosine) == (0.0, None, 1.0)
    assert (nothing.rel_l2, nothing.sqnr_db, nothing.cosine) == (None, None, None)


def test_an_error_is_measured_by_the_terms_of_its_sum():
    actual, reference = np.array([1.5, 0.25, 0.0], np.float32), np.array([1.0, 0.0, 0.0])
    # Errors 0.5, 0.25, 0 over sums of magnitudes 2, 4, 0.
    m = error_metrics(actual, reference, "float32", np.array([2.0, 4.0, 0.0]))
    assert m.max_of_terms == 0.25
    assert m.mean_of_terms == (0.25 + 0.0625 + 0) / 3
    assert metrics([1.5], [1.0]).max_of_terms is None
    with pytest.raises(ShapeError, match=r"the sum of magnitudes \(2,\)"):
        error_metrics(actual, reference, "float32", np.ones(2))


@pytest.mark.parametrize(
    ("actual", "reference", "under", "over"),
    [
        ([0.0, -0.0, 1.0, 0.0], [1e-9, -1e-9, 1.0, 0.0], 2, 0),
        ([np.inf, -np.inf, 1.0, 1.0], [1e6, -1e6, 1.0, 1.0], 0, 2),
        # Saturated, in place of Inf; 65519 rounds to the largest value, which is right.
        ([65504.0, 65504.0, 65504.0, np.nan], [1e6, 65519.0, 65504.0, 1.0], 0, 2),
        # What is infinite or NaN already does not overflow.
        ([np.inf, np.nan, 1.0, 1.0], [np.inf, np.nan, 1.0, 1.0], 0, 0),
        ([0.0, 1.0, 1.0, 1.0], [np.nan, 1.0, 1.0, 1.0], 0, 0),
    ],
)
def test_what_leaves_the_range_of_the_format_is_counted(actual, reference, under, over):
    m = metrics(actual, reference)
    assert (m.underflow_share, m.overflow_share) == (under / 4, over / 4)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float32"])
def test_a_step_is_the_distance_to_the_next_value(name):
    fmt = dtype(name)
    values = np.array([0.0, 1.0, 1.99, 2.0, 2.0**fmt.min_exponent, fmt.max_finite, 1e300])
    smallest = 2.0 ** (fmt.min_exponent - fmt.mantissa_bits)
    unit = 2.0**-fmt.mantissa_bits
    largest = 2.0 ** (math.frexp(fmt.max_finite)[1] - 1) * unit
    expected = [smallest, unit, unit, 2 * unit, smallest, largest, largest]
    np.testing.assert_array_equal(ulps(values, fmt), expected)
    np.testing.assert_array_equal(ulps(-values, fmt), expected)


def test_the_steps_of_hifloat8_widen_away_from_one():
    values = np.array([1.0, 8.0, 16.0, 128.0, 256.0, 32768.0, 2.0**-8, 2.0**-16, 2.0**-22, 0.0, 1e6])
    # fraction bits 3 3 2 2 1 1 1, then none; beyond the end the last binade's step
    expected = [1 / 8, 1.0, 4.0, 32.0, 128.0, 16384.0, 2.0**-9, 2.0**-16, 2.0**-22, 2.0**-22, 16384.0]
    np.testing.assert_array_equal(ulps(values, dtype("hifloat8")), expected)


def test_rank_ulp_counts_hifloat8_values_not_codes():
    # 0.46875 = 0x1F'(0.5 - 1/32) and 0.5 are neighbours; 0x17 = 3.75 and 0x18 = 0.5 only as codes.
    assert metrics([0.46875], [0.5], "hifloat8").max_rank_ulp == 1
    assert metrics([3.75], [0.5], "hifloat8").max_rank_ulp == 23
    assert metrics([-(2.0**-22)], [2.0**-22], "hifloat8").max_rank_ulp == 2
    assert metrics([1.0], [1.0]).max_rank_ulp is None


def test_equal_bits_compares_with_the_reference_rounded_once():
    # 1 + 2**-8 + 2**-40 is just above bfloat16's midpoint: it rounds up, though float32 sees a tie.
    wide = 1 + 2**-8 + 2**-40
    assert metrics([1 + 2**-7], [wide], "bfloat16").equal_bits_share == 1.0
    assert metrics([1.0], [wide], "bfloat16").equal_bits_share == 0.0
    assert metrics([np.nan, -0.0, 1.0], [np.nan, 0.0, 1.0]).equal_bits_share == 2 / 3


@pytest.mark.parametrize("fmt", DTYPES, ids=str)
def test_the_rounded_reference_itself_is_the_best_result(fmt):
    reference = np.random.default_rng(0).standard_normal(5000)
    m = error_metrics(round_reference(reference, fmt), reference, fmt)
    assert m.equal_bits_share == 1.0
    assert m.max_ulp <= 0.5
    assert m.max_rank_ulp in (None, 0)
    assert m.specials_match
    assert m.double_thousandth
    assert all(v.passed for v in m.verdicts)


@pytest.mark.parametrize(
    ("actual", "reference", "mismatches"),
    [
        ([np.inf, 1.0], [1e6, 1.0], 0),  # 1e6 is Inf in float16
        ([65504.0, 1.0], [1e6, 1.0], 1),  # saturated where Inf belongs
        ([np.nan, 1.0], [1.0, 1.0], 1),
        ([1.0, 1.0], [np.nan, 1.0], 1),
        ([np.nan, np.inf], [np.nan, -np.inf], 1),
        ([np.nan, np.inf], [np.nan, np.inf], 0),
    ],
)
def test_nan_and_inf_must_be_where_the_rounded_reference_has_them(actual, reference, mismatches):
    m = metrics(actual, reference)
    assert m.special_mismatches == mismatches
    assert m.specials_match is (mismatches == 0)
    assert m.mare == 0.0
    # Of two NaN or Inf that are due, no rule can say more.
    assert [v.passed for v in m.verdicts] == [mismatches == 0] * (3 if m.compared or mismatches else 0)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float8_e4m3fn", "hifloat8"])
@pytest.mark.parametrize("size", [0, 1, 70000])
def test_no_rule_is_passed_by_a_gradient_of_nothing_but_nan(size, dtype):
    # NaN is right where the reference has it, but says nothing of errors.
    nan, number = np.full(size, np.nan), np.ones(size)
    assert metrics(nan, nan, dtype).verdicts == ()
    if size:
        assert metrics(number, number, dtype).verdicts
        for wrong in (metrics(nan, number, dtype), metrics(number, nan, dtype)):
            assert wrong.verdicts
            assert not any(verdict.passed for verdict in wrong.verdicts)


@pytest.mark.parametrize(
    ("actual", "reference", "due", "got"),
    [
        ([np.inf, 1.0], [1e6, 1.0], 1, 1),
        ([65504.0, 1.0], [1e6, 1.0], 1, 0),
        ([np.nan, np.inf, 1.0], [1.0, 1.0, 1.0], 0, 2),
        ([1.0], [1.0], 0, 0),
        ([np.nan, -np.inf], [np.inf, np.nan], 2, 2),
    ],
)
def test_nan_and_inf_are_counted_on_both_sides(actual, reference, due, got):
    m = metrics(actual, reference)
    assert (m.special_expected, m.special_got) == (due, got)
    assert m.compared == len(actual) - sum(
        not (np.isfinite(a) and abs(g) < 1e5) for a, g in zip(actual, reference, strict=True)
    )


def test_nan_and_inf_are_counted_over_all_chunks():
    # More elements than are taken at a time, one of each kind at either end.
    actual, reference = np.ones(70_000, np.float32), np.ones(70_000)
    actual[0] = actual[-1] = np.nan
    reference[-1] = np.inf
    m = error_metrics(actual, reference, "float32")
    assert (m.special_expected, m.special_got, m.special_mismatches, m.compared) == (1, 2, 2, 69_998)


def test_small_values_have_their_own_domain_and_bound():
    # float16: |g| < 2**-11 is small, an error above 2**-16 counts.
    m = metrics([2**-12 + 2**-15, 2**-12 + 2**-16, 2**-11 + 2**-12], [2**-12, 2**-12, 2**-11])
    assert (m.small_count, m.small_above_bound) == (2, 1)
    assert metrics([1.0], [1.0], "hifloat8").small_count is None


def test_the_kits_mixed_standard_has_a_share_and_a_limit():
    # float16: tolerance 2**-9 (1 + |g|), on 99 % of 200 elements: two may miss; none beyond 0.1 and 32 ulp.
    reference = np.ones(200)
    for misses, error, passed in [(2, 0.01, True), (3, 0.01, False), (1, 0.09, True), (1, 0.11, False)]:
        actual = reference.copy()
        actual[:misses] += error
        assert verdict(metrics(actual, reference), "mixed") is passed
    # At 1024 one step is 1: an error of 32 steps is still allowed, 33 are not.
    large = np.full(200, 1024.0)
    for steps, passed in [(32, True), (33, False)]:
        actual = large.copy()
        actual[0] += steps
        assert verdict(metrics(actual, large), "mixed") is passed


@pytest.mark.parametrize(
    ("share", "error", "passed"),
    [(1.0, 0.9e-3, True), (1.0, 1.0e-3, False), (0.01, 9e-3, True), (0.01, 10e-3, False)],
)
def test_the_kits_statistic_standard_limits_mean_and_maximum(share, error, passed):
    # float16: MERE < 2**-10 = 0.977e-3, MARE < 9.77e-3
    actual = np.ones(100)
    actual[: int(100 * share)] += error
    assert verdict(metrics(actual, np.ones(100)), "stat") is passed


def test_float32_has_the_tighter_table():
    actual = np.ones(10_000)
    actual[:2] += 2e-4  # two of 10,000 beyond 1e-4: one is allowed
    assert not verdict(metrics(actual, np.ones(10_000), "float32"), "st")
    assert verdict(metrics(actual, np.ones(10_000), "hf32_11"), "st")


def test_every_format_has_a_row_and_every_field_a_definition():
    assert all(standards(fmt) for fmt in DTYPES)
    names = [field.name for field in dataclasses.fields(ErrorMetrics)]
    assert names == [column.name for column in METRIC_COLUMNS]


def test_large_tensors_are_measured_in_pieces_without_a_difference():
    rng = np.random.default_rng(1)
    reference = rng.standard_normal((3, 50_000))
    actual = casts.round_to(reference.astype(np.float32) * np.float32(1 + 2**-11), "float16")
    m = error_metrics(actual, reference, "float16")
    error = np.abs(actual.astype(np.float64) - reference)
    relative = error / (np.abs(reference) + 1e-7)
    steps = np.exp2(np.maximum(np.floor(np.log2(np.abs(reference))), -14) - 10)
    assert m.mere == pytest.approx(relative.mean(), rel=1e-12)
    assert m.mare == relative.max()
    assert m.rmse == pytest.approx(np.sqrt((error**2).mean()), rel=1e-12)
    assert m.share_above_1e3 == np.mean(error > 1e-8 + 1e-3 * np.abs(reference))
    assert m.max_ulp == (error / steps).max()
    scale = np.sqrt((reference**2).mean())
    coarse = np.exp2(np.floor(np.log2(np.maximum(np.abs(reference), scale))) - 10)
    assert m.mean_signed_ulp == pytest.approx(((actual - reference) / coarse).mean(), rel=1e-9)
    norms = [np.linalg.norm(x) for x in (actual - reference, reference)]
    assert m.rel_l2 == pytest.approx(norms[0] / norms[1], rel=1e-12)
    assert m.small_count == np.count_nonzero(np.abs(reference) < 2**-11)


def test_stored_tensors_measure_like_their_values():
    reference = np.random.default_rng(2).standard_normal((4, 5))
    for name in ("float16", "bfloat16", "float8_e5m2", "hifloat8"):
        carrier = round_reference(reference, dtype(name))
        stored = casts.encode(carrier, name)
        assert error_metrics(stored, reference, name) == error_metrics(carrier, reference, name)


def test_nothing_to_compare_measures_zero():
    m = error_metrics(np.zeros((0, 3), np.float32), np.zeros((0, 3)), "float16")
    assert (m.count, m.compared, m.mere, m.max_ulp, m.equal_bits_share) == (0, 0, 0.0, 0.0, 0.0)
    m = metrics([np.nan], [np.nan], "hifloat8")
    assert (m.compared, m.mare, m.max_rank_ulp, m.equal_bits_share) == (0, 0.0, 0, 1.0)


def test_wrong_types_and_shapes_are_refused():
    with pytest.raises(UnsupportedError, match="must be float64, got float32"):
        error_metrics(np.ones(2, np.float32), np.ones(2, np.float32), "float16")
    with pytest.raises(UnsupportedError, match="stored as float16, got float64"):
        error_metrics(np.ones(2), np.ones(2), "float16")
    with pytest.raises(ShapeError, match=r"shape \(2,\), the reference \(3,\)"):
        error_metrics(HiFloat8Array(np.zeros(2, np.uint8)), np.ones(3), "hifloat8")


# -------------------------------------------------------------------------------------------------------
# Are the limits of the field's standards those of the documentation, and do they hold to the last unit?
# -------------------------------------------------------------------------------------------------------

PAGE = Path(__file__).parents[2] / "docs" / "arithmetic.md"
HF32 = ("hf32_11", "hf32_10")


def number(text: str) -> float:
    """Read a number of the page: 2^-9, 0.1 or 1."""
    base, power, exponent = text.strip().partition("^")
    return float(base) ** int(exponent) if power else float(base)


def page_limits() -> dict[str, list[float]]:
    """Return the rows of the page's table: rtol, atol, limit, T, small values below, bound."""
    rows = re.findall(r"^\| (\w+) \| (2\^-\d+, .*) \| (2\^-\d+) \| (2\^.*) \|$", PAGE.read_text(), re.M)
    return {name: [number(x) for x in ", ".join(cells).split(",")] for name, *cells in rows}


@pytest.mark.parametrize("fmt", DTYPES, ids=str)
def test_every_limit_is_the_one_that_is_documented(fmt):
    found = standards(fmt)
    limits = page_limits()
    assert len(limits) == 6
    row = limits.get("HF32" if fmt.name in HF32 else fmt.name, [None] * 6)
    assert [
        found.mixed_rtol,
        found.mixed_atol,
        found.mixed_limit,
        found.stat_limit,
        found.small_below,
        found.small_bound,
    ] == row
    # The text above the table: 1e-3, for float32 1e-4; none for fp8.
    assert found.st_rtol == (None if "float8_" in fmt.name else 1e-4 if fmt.name == "float32" else 1e-3)


def passed(standard: str, actual: list[float], reference: list[float], fmt: str = "float32") -> bool:
    found = error_metrics(np.array(actual, np.float32), np.array(reference), lookup(fmt))
    return next(verdict.passed for verdict in found.verdicts if verdict.standard == standard)


# At 2^40 the kit's 1e-7 is lost in a double, so that a relative error is exact.
BIG = 2.0**40


@pytest.mark.parametrize(("error", "ok"), [(2.0**-13, False), (2.0**-14, True)])
def test_a_mean_that_is_the_limit_fails(error, ok):
    assert passed("stat", [BIG * (1 + error)], [BIG]) == ok


@pytest.mark.parametrize(("error", "ok"), [(10 * 2.0**-13, False), (9 * 2.0**-13, True)])
def test_a_maximum_that_is_ten_times_the_limit_fails(error, ok):
    # Beside 99 exact elements the mean is small.
    assert passed("stat", [BIG * (1 + error)] + [BIG] * 99, [BIG] * 100) == ok


@pytest.mark.parametrize(("error", "ok"), [(2.0**-5, True), (2.0**-5 + 2.0**-7, False)])
def test_an_error_that_is_the_tolerance_is_within_it(error, ok):
    # bfloat16: 2^-6 + 2^-6 |g|, at 1 together 2^-5; half of the elements, so that the share of 1 % decides.
    assert passed("mixed", [1 + error, 1.0], [1.0, 1.0], "bfloat16") == ok


@pytest.mark.parametrize(("error", "ok"), [(1.0, True), (1.0 + 2.0**-7, False)])
def test_an_error_that_is_the_limit_is_within_it(error, ok):
    # bfloat16 may be off by 1 anywhere; 1 is 128 steps at 1. One of 100 elements is within the share.
    assert passed("mixed", [1 + error] + [1.0] * 99, [1.0] * 100, "bfloat16") == ok


@pytest.mark.parametrize(("steps", "ok"), [(32, True), (33, False)])
def test_32_steps_are_within_the_limit_however_large_they_are(steps, ok):
    # At 2^10 a bfloat16 step is 8.
    assert passed("mixed", [2.0**10 + 8 * steps] + [1.0] * 99, [2.0**10] + [1.0] * 99, "bfloat16") == ok


def test_the_domain_of_small_values_has_a_limit_and_a_bound_or_neither():
    # hifloat8 is judged by one standard alone, which has no such domain.
    given = {fmt.name: (standards(fmt).small_below, standards(fmt).small_bound) for fmt in DTYPES}
    assert {name for name, both in given.items() if both == (None, None)} == {"hifloat8"}
    assert all(None not in both for name, both in given.items() if name != "hifloat8")


def test_a_small_value_ends_where_the_limit_begins_and_its_bound_is_still_good():
    # float16: below 2^-11, off by more than 2^-16.
    reference = np.array([2.0**-11, 2.0**-12, 2.0**-12])
    actual = (reference + np.array([2.0**-15, 2.0**-16, 2.0**-15])).astype(np.float32)
    found = error_metrics(actual, reference, "float16")
    assert (found.small_count, found.small_above_bound) == (2, 1)


def test_shares_are_of_errors_beyond_their_own_tolerance():
    # Off by 1.5 tolerances, and by 0.75.
    for rtol, share in ((1e-3, "share_above_1e3"), (1e-4, "share_above_1e4")):
        actual = np.float32([1 + 1.5 * rtol, 1 + 0.75 * rtol, 1.0, 1.0])
        assert getattr(error_metrics(actual, np.ones(4), "float32"), share) == 0.25


@pytest.mark.parametrize("fmt", DTYPES, ids=str)
def test_steps_end_with_the_first_and_the_last_binade(fmt):
    # hifloat8: 2^15 has one fraction bit, 2^-22 is the smallest value and the width of its binade.
    last = 2.0**14 if fmt.tapered else 2.0 ** (math.frexp(fmt.max_finite)[1] - 1 - fmt.mantissa_bits)
    first = 2.0**-22 if fmt.tapered else 2.0 ** (fmt.min_exponent - fmt.mantissa_bits)
    beyond = np.array([fmt.max_finite, 2.0**17 if fmt.tapered else 2 * fmt.max_finite, 1e300, np.inf, np.nan])
    assert ulps(beyond, fmt).tolist() == [last] * 5
    assert ulps(np.array([0.0, -0.0, 5e-324, 1e-300, first / 2, first]), fmt).tolist() == [first] * 6
