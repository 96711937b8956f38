"""Is the error of a gradient split rightly, and is the most accurate of the fastest modes that pass found?"""

import math
from functools import partial

import numpy as np
import pytest

from ascendsim import ConvProblem, convolution_backward, estimate
from ascendsim.profile import load_profile
from ascendsim.studies.modes.choice import (
    BINADES,
    MEDIAN_EXPONENT,
    ConvCase,
    SyntheticTensors,
    nearest,
    part_of,
    passing,
    tied,
)
from ascendsim.studies.modes.choice import summaries as summaries_within
from ascendsim.studies.modes.losses import histogram, share
from ascendsim.studies.modes.measure import Axes, measure
from ascendsim.studies.modes.records import CaseErrors, FormatShare, GradientError, ModeError, PassLimits

# --- Is the error of a gradient split rightly, and are modes, models and loss scales kept apart? -------

PROBLEM = ConvProblem((2, 16, 5, 5), (16, 16, 3, 3), 1, 1)
ALL, BIAS_ALONE = (True, True, True), (False, False, True)
NAMES = ("grad_output", "input", "weight")


def given(tensors):
    return tensors


def case(problem=PROBLEM, mask=ALL, **changed):
    drawn = SyntheticTensors(problem, "normal", 0)()
    return ConvCase("one", problem, mask, 1, "given", partial(given, {**drawn, **changed}))


def modes(asked, **axes):
    usual = {"profile": load_profile("910B"), "dtypes": ("float32",), "cube_math_types": (0, 1, 2)}
    return measure(Axes(**{**usual, **axes}), asked).modes


def errors(mode):
    return {one.name: one for one in mode.gradients}


# The parts


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("transposed", [False, True])
def test_sums_that_round_once_leave_nothing_to_accumulation(dtype, transposed):
    """If a cast or an output were taken for another one, the rest would not be 0."""
    # Eight bits of each value: sums of their products are exact in float64, and `exact` rounds them once.
    problem = ConvProblem((1, 16, 4, 4), (16, 16, 3, 3), 1, 1, transposed=transposed)
    random = np.random.default_rng(1)
    tensors = {name: np.round(random.standard_normal(getattr(problem, name)) * 32) / 32 for name in NAMES}
    # 13 bits, which neither float16 nor HF32 holds.
    tensors["weight"] = tensors["weight"] * (1 + 2.0**-7) + 2.0**-12
    made = modes(case(problem, (True, False, False), **tensors), dtypes=(dtype,), models=("exact:RNE",))
    accepted = [mode for mode in made if not mode.refused]
    assert {mode.compute_dtype for mode in accepted} == {
        "float16": {"float16"},
        "bfloat16": {"bfloat16"},
        "float32": {"float32", "hf32_11", "float16"},
    }[dtype]
    for mode in accepted:
        (one,) = mode.gradients
        assert one.accumulation == 0
        assert (one.cast > 0) == (mode.compute_dtype != dtype)
        assert (one.storage > 0) == (dtype != "float32")


def test_a_grad_weight_that_is_squeezed_through_float16_is_an_error_of_output():
    # As the shipped operators of 910B have it for groups: 1 + 2^-9 leaves as 1 + 2^-9, times itself it is
    # 1 + 2^-8 + 2^-18, which float16 does not hold.
    problem = ConvProblem((1, 2, 1, 1), (2, 1, 1, 1), groups=2)
    shapes = {name: getattr(problem, name) for name in NAMES}
    tensors = {name: np.full(shape, 1 + 2.0**-9) for name, shape in shapes.items()}
    (mode,) = modes(case(problem, (False, True, False), **tensors), cube_math_types=(2,))
    (one,) = mode.gradients
    assert one.output == pytest.approx(2.0**-18 / (1 + 2.0**-9) ** 2)
    assert (one.cast, one.accumulation) == (0, 0)


def test_the_parts_are_those_of_their_steps():
    # One value each: 1 + 2^-9 is stored in bfloat16 as 1, an error of 2^-9; grad_bias sums it, exactly.
    problem = ConvProblem((1, 1, 1, 1), (1, 1, 1, 1))
    ones = {name: np.ones((1, 1, 1, 1)) for name in NAMES}
    ones["grad_output"] = ones["grad_output"] * (1 + 2.0**-9)
    (mode,) = modes(case(problem, **ones), dtypes=("bfloat16",), cube_math_types=(0,))
    for one in mode.gradients:
        assert one.storage == pytest.approx(2.0**-9 / (1 + 2.0**-9))
        assert (one.cast, one.output, one.accumulation) == (0, 0, 0)
        assert one.total == one.storage


def test_a_cast_is_the_error_of_what_the_cube_reads():
    # 1 + 2^-12 is 1 in HF32 with 11 bits, a tie to even, and in float16; both operands have it.
    problem = ConvProblem((1, 1, 1, 1), (1, 1, 1, 1))
    value = {name: np.full((1, 1, 1, 1), 1 + 2.0**-12) for name in NAMES}
    plain, hf32, half = modes(case(problem, **value))
    exact = (1 + 2.0**-12) ** 2
    for mode in (hf32, half):
        assert errors(mode)["grad_input"].cast == pytest.approx((exact - 1) / exact)
        assert errors(mode)["grad_bias"].cast == 0  # vector cores sum what is stored
    assert errors(plain)["grad_input"].cast == 0


def test_a_loss_scale_is_divided_out_again():
    # A power of two changes nothing but the range, which float32 has.
    plain, scaled = modes(case(), cube_math_types=(0,), loss_scales=(1.0, 4096.0))
    assert (plain.loss_scale, scaled.loss_scale) == (1, 4096)
    for one, other in zip(plain.gradients, scaled.gradients, strict=True):
        assert (one.total, one.accumulation) == (other.total, other.accumulation)


def test_small_gradients_need_a_loss_scale_in_float16():
    # Below 2^-24 a float16 has nothing: at 2^-26 all of grad_output is lost, at 2^-14 none.
    grad = np.full(PROBLEM.grad_output, 2.0**-26)
    lost, kept = modes(case(grad_output=grad), dtypes=("float16",), loss_scales=(1.0, 4096.0))
    for one in lost.gradients:
        assert (one.total, one.storage, one.underflow) == (1, 1, 1)
    for one in kept.gradients:
        assert one.total < 2**-10
        assert one.underflow == 0


def test_overflow_is_no_small_error():
    (mode,) = modes(case(mask=BIAS_ALONE), dtypes=("float16",), loss_scales=(2.0**20,))
    (one,) = mode.gradients
    assert one.overflow == 1
    assert not one.total <= 1e9
    assert PassLimits(1e9).missed(one) == ("norm", "lost elements")
    assert one.causes == (("overflow", 1.0),)


# Modes, models


def test_numbers_that_do_the_same_are_one_mode():
    found = modes(case(mask=BIAS_ALONE), dtypes=("bfloat16", "float32"), cube_math_types=(0, 1, 2, 3))
    assert [(mode.dtype, mode.cube_math_types, mode.compute_dtype) for mode in found] == [
        ("bfloat16", (0, 1, 3), "bfloat16"),
        ("bfloat16", (2,), ""),
        ("float32", (0,), "float32"),
        ("float32", (1, 3), "hf32_11"),
        ("float32", (2,), "float16"),
    ]
    assert "cube_math_type is 2" in found[1].refused
    assert found[1].gradients == ()


def test_the_time_is_that_of_the_call():
    _, _, half = modes(case(mask=(True, False, False)))
    asked = estimate(PROBLEM, "float32", 2, output_mask=(True, False, False), product="910B")
    assert half.time_us == asked.time_us


def test_models_are_held_to_the_first_of_them():
    models = (None, "seq:RNE", "block:4:RNE")
    first, other, same = modes(case(), cube_math_types=(0,), models=models)
    assert [mode.accumulation for mode in (first, other, same)] == ["block:4:RNE", "seq:RNE", "block:4:RNE"]
    for one, two, three in zip(first.gradients, other.gradients, same.gradients, strict=True):
        assert one.different == three.different == 0
        assert (two.different > 0) == (one.name != "grad_bias")
        assert one == three


def test_the_gradients_are_those_of_the_door():
    (mode,) = modes(case(), dtypes=("float16",), cube_math_types=(0,))
    drawn = SyntheticTensors(PROBLEM, "normal", 0)()
    stored = [drawn[name].astype(np.float32).astype(np.float16) for name in NAMES]
    result = convolution_backward(*stored, [16], 1, 1, 1, False, 0, 1, ALL, 0, product="910B")
    exact = drawn["grad_output"].sum(axis=(0, 2, 3))
    error = np.linalg.norm(result.grad_bias.astype(np.float64) - exact) / np.linalg.norm(exact)
    assert errors(mode)["grad_bias"].total == pytest.approx(error, rel=1e-12)


# Rules of the field


def test_a_rule_that_fails_says_why():
    """Terms that cancel leave elements far below them, whose relative error says nothing."""
    # 1 x 1 + (1 + 2^-11) x (-1) = -2^-11 in float16, where 1 + 2^-11 is 1: nothing is left of the sum.
    problem = ConvProblem((1, 1, 1, 1), (2, 1, 1, 1))
    tensors = {
        "grad_output": np.array([1.0, 1 + 2.0**-11]).reshape(1, 2, 1, 1),
        "weight": np.array([1.0, -1.0]).reshape(2, 1, 1, 1),
        "input": np.ones((1, 1, 1, 1)),
    }
    asked = case(problem, (True, False, False), **tensors)
    (mode,) = modes(asked, cube_math_types=(2,))
    reasons = dict(mode.gradients[0].failed)
    assert "MERE is 1.0e+00, MARE 1.0e+00; at (0, 0, 0, 0) |g| is 4.9e-04" in reasons["stat"]
    # 2^-11 off, of terms that sum to 2: below two roundings of operands and one of the result.
    assert "2.4e-04 of that sum, within the 1.5e-03 that its formats' roundings cost" in reasons["stat"]
    (plain,) = modes(asked, cube_math_types=(0,))
    assert plain.gradients[0].failed == ()


def test_a_lost_range_is_not_called_cancellation():
    # 2^-30 is 0 in float16, and all of the terms with it.
    tiny = {name: np.full(getattr(PROBLEM, name), 2.0**-15) for name in NAMES}
    tiny["grad_output"] = np.full(PROBLEM.grad_output, 2.0**-30)
    # The rules know sizes of 1e-7 and above only, so the tensors are judged where weights make up for it.
    tiny["weight"] = np.full(PROBLEM.weight, 2.0**25)
    (mode,) = modes(case(mask=(True, False, False), **tiny), dtypes=("float32",), cube_math_types=(2,))
    (one,) = mode.gradients
    assert one.failed
    assert all("NaN" in reason or "lost by underflow" in reason for _, reason in one.failed)
    assert one.causes == (("overflow", 1.0),)  # 2^25 is Inf in float16, and Inf times 0 NaN


# Data


def test_the_same_seed_draws_the_same_values():
    one, two, other = (SyntheticTensors(PROBLEM, "long-tailed", seed)() for seed in (0, 0, 1))
    for name in NAMES:
        assert np.array_equal(one[name], two[name])
        assert not np.array_equal(one[name], other[name])


def test_long_tails_are_log_normal():
    problem = ConvProblem((16, 16, 16, 16), (16, 16, 1, 1))
    drawn = SyntheticTensors(problem, "long-tailed", 0)()
    exponents = np.log2(np.abs(drawn["grad_output"]))
    # 65,536 draws: the mean is within 5 / 256 deviations.
    assert abs(exponents.mean() - MEDIAN_EXPONENT) < BINADES * 5 / 256
    assert exponents.std() == pytest.approx(BINADES, rel=0.02)
    assert abs((drawn["grad_output"] < 0).mean() - 0.5) < 0.01
    normal = SyntheticTensors(problem, "normal", 0)()
    assert np.array_equal(drawn["input"], normal["input"])


def test_normal_tensors_are_those_of_the_command():
    from ascendsim.cli.tensors import normal_tensors

    ours, theirs = SyntheticTensors(PROBLEM, "normal", 3)(), normal_tensors(PROBLEM, "float32", 3)
    for name in NAMES:
        assert np.array_equal(ours[name], getattr(theirs, name))


# --- Is the most accurate of the fastest modes that pass found, and are exponents counted rightly? -----


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


def case_choice(*modes, name="a", count=1):
    return CaseErrors(name, count, modes, (), ())


def refused(*numbers):
    return mode(0, cube_math_types=numbers, compute_dtype="", gradients=(), refused="status 161002")


def summaries(cases, limit=1e-3):
    return summaries_within(cases, PassLimits(limit))


def fastest(rows):
    return next(iter(passing(rows)), None)


# The choice


def test_the_fastest_mode_that_passes_is_not_the_most_exact():
    cases = [case_choice(mode(1e-8, 9.0), mode(1e-4, 3.0, cube_math_types=(1,), compute_dtype="hf32_11"))]
    chosen = {limit: fastest(summaries(cases, limit)) for limit in (1e-3, 1e-6, 1e-9)}
    assert [row and row.cube_math_types for row in chosen.values()] == [(1,), (0,), None]
    assert nearest(summaries(cases)).cube_math_types == (0,)


def test_modes_within_the_margin_of_the_fastest_are_tied_the_most_accurate_first():
    # 9.9 is 1 % less than 10, and 12 is 21 % more than 9.9.
    narrow = mode(1e-4, 9.9, cube_math_types=(1,), compute_dtype="hf32_11")
    other = mode(1e-9, 12.0, dtype="bfloat16", compute_dtype="bfloat16")
    cases = [case_choice(mode(1e-8, 10.0), narrow, other)]
    exact, quick, slow = rows = summaries(cases)
    assert fastest(rows) == quick
    # The margin is part of the fastest one's time; without it every difference tells.
    assert tied(rows, 0.04) == (exact, quick)
    assert tied(rows, 0.22) == (slow, exact, quick)
    assert tied(rows, 0.0) == (quick,)
    # Of those that pass a stricter limit 10.0 is the fastest, and 9.9 is none of them.
    assert tied(summaries(cases, 1e-6), 0.04) == passing(summaries(cases, 1e-6))[:1]
    assert tied(summaries(cases, 1e-12), 0.04) == ()


def test_of_ties_that_are_as_accurate_the_faster_is_first():
    other = mode(1.01e-4, 9.0, cube_math_types=(2,), compute_dtype="float16")
    rows = summaries([case_choice(mode(1.0e-4, 10.0), other)])
    assert tied(rows, 0.5) == (rows[1], rows[0])


def test_of_modes_equally_fast_the_one_without_a_loss_scale_is_chosen():
    rows = summaries([case_choice(mode(2e-4, loss_scale=4096.0), mode(3e-4))])
    assert fastest(rows).loss_scale == 1


def test_a_mode_passes_under_every_model_or_not_at_all():
    worse = mode(5e-3, accumulation="seq:RNE", gradients=(gradient(5e-3, different=0.5),))
    cases = [case_choice(mode(1e-4), worse)]
    (row,) = summaries(cases)
    assert (row.least, row.most, row.different) == (1e-4, 5e-3, 0.5)
    assert row.worst.accumulation == "seq:RNE"
    assert (row.passes, row.missed) == (False, ("norm",))
    assert summaries(cases, 5e-3)[0].passes


def test_a_mode_passes_in_every_case_and_costs_all_of_them():
    (row,) = summaries([case_choice(mode(1e-4, 2.0), count=3), case_choice(mode(1e-2, 5.0), name="b")])
    assert row.time_us == 3 * 2.0 + 5.0
    assert (row.most, row.worst.case) == (1e-2, "b")


def test_nan_is_the_worst_error_and_never_passes():
    for bad in (math.nan, math.inf):
        both = mode(0, gradients=(gradient(1e-9), gradient(bad, "grad_weight")))
        rows = summaries([case_choice(both)], 1e30)
        assert rows[0].worst.error.name == "grad_weight"
        assert fastest(rows) is None
        assert nearest(rows) is None


def test_numbers_alike_in_every_case_are_one_row():
    # In the second case the interface refuses 1 and 3, so that they are a row of their own.
    one = case_choice(mode(1e-4, cube_math_types=(0, 1, 3)))
    two = case_choice(mode(1e-4), refused(1, 3), name="b")
    rows = summaries([one, two])
    assert [row.cube_math_types for row in rows] == [(0,), (1, 3)]
    assert rows[1].refused == "b: status 161002"
    assert not rows[1].passes
    assert [row.cube_math_types for row in summaries([one, one])] == [(0, 1, 3)]


def test_the_first_reason_of_each_rule_is_kept():
    both = (gradient(1e-4, failed=(("stat", "x"),)), gradient(1e-4, "grad_bias", failed=(("stat", "y"),)))
    (row,) = summaries([case_choice(mode(0, gradients=both))])
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
    assert found == FormatShare("grad_output", "float16", 1.0, 4 / 7, 1 / 7, 1 / 7)


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
    assert share("input", np.zeros(4), "float16") == FormatShare("input", "float16", 1.0, 0.0, 0.0, 0.0)


# What is computed of a convolution


IMAGE = 32 * 32 * 16 * 16 * 9


@pytest.mark.parametrize(
    ("budget", "images", "input"),
    [
        # As many images as the budget holds, one at least.
        (8 * IMAGE, None, (8, 16, 32, 32)),
        (3 * IMAGE, None, (3, 16, 32, 32)),
        (3 * IMAGE - 1, None, (2, 16, 32, 32)),
        (IMAGE // 4, None, (1, 16, 32, 32)),
        # Beyond four budgets the longest side is halved, of equal ones the first.
        (IMAGE // 4 - 1, None, (1, 16, 16, 32)),
        (IMAGE // 8 - 1, None, (1, 16, 16, 16)),
        # Eight would be less than four kernels.
        (1, None, (1, 16, 16, 16)),
        (1, 3, (3, 16, 32, 32)),
        (1, 99, (8, 16, 32, 32)),
    ],
)
def test_as_much_is_computed_as_a_budget_holds(budget, images, input):
    problem = ConvProblem((8, 16, 32, 32), (16, 16, 3, 3), padding=1)
    assert problem.macs == 8 * IMAGE
    assert part_of(problem, budget, images).input == input


@pytest.mark.parametrize(
    ("kernel", "side", "least"),
    [((1, 1), (33, 9), (5, 5)), ((4, 4), (32, 32), (16, 16)), ((1, 5), (9, 21), (9, 21))],
)
def test_a_side_is_halved_as_long_as_four_kernels_fit(kernel, side, least):
    # 33, 17, 9, 5, beside 9, 5; of 21 the half, 11, is less than 20, and nothing else is tried.
    problem = ConvProblem((1, 1, *side), (1, 1, *kernel))
    assert part_of(problem, 0).input[2:] == least
