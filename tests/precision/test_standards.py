"""Are the limits of the field's standards those of the documentation, and do they hold to the last unit?"""

import math
import re
from pathlib import Path

import numpy as np
import pytest

from ascendsim.numerics.formats.dtypes import DTYPES, ulps
from ascendsim.numerics.formats.dtypes import dtype as lookup
from ascendsim.numerics.metric_chunks import standards
from ascendsim.numerics.metrics import error_metrics

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
