"""Is the cheapest mode that passes found, and are exponents counted rightly?"""

import math
from dataclasses import replace

import numpy as np

from ascendsim.studies.modes.choice import cheapest, more_exact, nearest, passing, summaries
from ascendsim.studies.modes.measure import histogram, share
from ascendsim.studies.modes.records import CaseErrors, GradientError, ModeError, Share


def gradient(total, name="grad_input", different=0.0, failed=()):
    return GradientError(name, total, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, different, failed)


def mode(total, time_us=1.0, **more):
    usual = {
        "dtype": "float32",
        "cube_math_types": (0,),
        "compute_dtype": "float32",
        "accumulation": "block:4:RNE",
        "loss_scale": 1.0,
        "gradients": (gradient(total),),
    }
    return ModeError(time_us=time_us, **{**usual, **more})


def case(*modes, name="a", count=1):
    return CaseErrors(name, count, modes, (), ())


def refused(*numbers):
    return mode(0, cube_math_types=numbers, compute_dtype="", gradients=(), refused="status 161002")


# The choice


def test_the_cheapest_mode_that_passes_is_not_the_most_exact():
    rows = summaries([case(mode(1e-8, 9.0), mode(1e-4, 3.0, cube_math_types=(1,), compute_dtype="hf32_11"))])
    assert cheapest(rows, 1e-3) == rows[1]
    assert cheapest(rows, 1e-6) == rows[0]
    assert cheapest(rows, 1e-9) is None
    assert nearest(rows) == rows[0]


def test_the_cheapest_is_the_fastest_and_what_is_more_exact_in_the_same_time_is_named():
    # 9.9 is 1 % less than 10, and 12 is 21 % more than 9.9.
    narrow = mode(1e-4, 9.9, cube_math_types=(1,), compute_dtype="hf32_11")
    other = mode(1e-9, 12.0, dtype="bfloat16", compute_dtype="bfloat16")
    rows = summaries([case(mode(1e-8, 10.0), narrow, other)])
    exact, quick, slow = rows
    assert cheapest(rows, 1e-3) == quick
    # The margin is part of the fastest one's time; without it every difference tells.
    assert more_exact(rows, 1e-3, 0.04) == (exact,)
    assert more_exact(rows, 1e-3, 0.22) == (slow, exact)
    assert more_exact(rows, 1e-3, 0.0) == ()
    # Of those that pass a stricter limit 10.0 is the fastest, and 9.9 is none of them.
    assert passing(rows, 1e-6) == (exact, slow)
    assert more_exact(rows, 1e-12, 0.04) == ()


def test_what_is_as_fast_and_less_exact_is_not_named():
    coarse = mode(5e-4, 10.1, cube_math_types=(2,), compute_dtype="float16")
    rows = summaries([case(mode(1e-8, 10.0), coarse)])
    assert cheapest(rows, 1e-3) == rows[0]
    assert more_exact(rows, 1e-3, 0.04) == ()
    # Equally fast, the most exact is the cheapest.
    rows = summaries([case(replace(coarse, time_us=10.0), mode(1e-8, 10.0))])
    assert cheapest(rows, 1e-3).most == 1e-8


def test_of_modes_equally_fast_the_one_without_a_loss_scale_is_chosen():
    rows = summaries([case(mode(2e-4, loss_scale=4096.0), mode(3e-4))])
    assert cheapest(rows, 1e-3).loss_scale == 1


def test_a_mode_passes_under_every_model_or_not_at_all():
    worse = mode(5e-3, accumulation="seq:RNE", gradients=(gradient(5e-3, different=0.5),))
    (row,) = summaries([case(mode(1e-4), worse)])
    assert (row.least, row.most, row.different) == (1e-4, 5e-3, 0.5)
    assert row.worst.accumulation == "seq:RNE"
    assert not row.passes(1e-3)
    assert row.passes(5e-3)


def test_a_mode_passes_in_every_case_and_costs_all_of_them():
    (row,) = summaries([case(mode(1e-4, 2.0), count=3), case(mode(1e-2, 5.0), name="b")])
    assert row.time_us == 3 * 2.0 + 5.0
    assert (row.most, row.worst.case) == (1e-2, "b")


def test_nan_is_the_worst_error_and_never_passes():
    for bad in (math.nan, math.inf):
        both = mode(0, gradients=(gradient(1e-9), gradient(bad, "grad_weight")))
        rows = summaries([case(both)])
        assert rows[0].worst.error.name == "grad_weight"
        assert cheapest(rows, 1e30) is None
        assert nearest(rows) is None


def test_numbers_alike_in_every_case_are_one_row():
    # In the second case the interface refuses 1 and 3, so that they are a row of their own.
    one = case(mode(1e-4, cube_math_types=(0, 1, 3)))
    two = case(mode(1e-4), refused(1, 3), name="b")
    rows = summaries([one, two])
    assert [row.cube_math_types for row in rows] == [(0,), (1, 3)]
    assert rows[1].refused == "b: status 161002"
    assert not rows[1].passes(1.0)
    assert [row.cube_math_types for row in summaries([one, one])] == [(0, 1, 3)]


def test_the_first_reason_of_each_rule_is_kept():
    both = (gradient(1e-4, failed=(("stat", "x"),)), gradient(1e-4, "grad_bias", failed=(("stat", "y"),)))
    (row,) = summaries([case(mode(0, gradients=both))])
    assert row.failed == (("stat", "grad_input: x"),)


# Exponents


def test_a_histogram_counts_binades():
    values = np.array([0.0, -0.0, 1.0, -1.5, 1.999, 2.0, 2.0**-1074, np.inf, np.nan])
    found = histogram("input", values)
    assert (found.first, found.zeros, found.special) == (-1074, 2, 2)
    assert found.counts[0] == 1
    assert found.counts[1074:] == (3, 1)
    assert sum(found.counts) == 5
    assert histogram("input", np.zeros(3)).counts == ()


def test_shares_of_float16_at_its_edges():
    # Smallest normal 2^-14, smallest subnormal 2^-24; 2^-25 is a tie to even, hence 0; 65,520 overflows.
    at = [2.0**-14, 2.0**-14 * (1 - 2.0**-12), 2.0**-24, 2.0**-25 * 1.0001, 2.0**-25, 0.0, 65519.0, 65520.0]
    found = share("grad_output", np.array(at), "float16")
    assert found == Share("grad_output", "float16", 1.0, 4 / 7, 1 / 7, 1 / 7)


def test_a_loss_scale_moves_the_range():
    values = np.array([2.0**-26, 2.0**-20, 1.0, 32.0])
    plain, scaled = (share("grad_output", values, "float16", by) for by in (1.0, 4096.0))
    assert (plain.subnormal, plain.zero, plain.overflow) == (0.5, 0.25, 0)
    assert (scaled.subnormal, scaled.zero, scaled.overflow) == (0, 0, 0.25)


def test_hifloat8_has_no_edge_below_which_values_are_subnormal():
    # Its smallest value is 2^-22; a half of it rounds away from zero, less than that to zero.
    found = share("input", np.array([2.0**-22, 2.0**-23, 2.0**-24]), "hifloat8")
    assert (found.subnormal, found.zero) == (None, 1 / 3)


def test_nothing_but_zeros_loses_nothing():
    assert share("input", np.zeros(4), "float16") == Share("input", "float16", 1.0, 0.0, 0.0, 0.0)
