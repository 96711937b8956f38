"""Is the error of a gradient split rightly, and are modes, models and loss scales kept apart?"""

from functools import partial

import numpy as np
import pytest

from ascendsim import ConvProblem, convolution_backward, estimate
from ascendsim.profile import load_profile
from ascendsim.studies.modes.choice import BINADES, MEDIAN_EXPONENT, Case, Drawn
from ascendsim.studies.modes.measure import Axes, measure

PROBLEM = ConvProblem((2, 16, 5, 5), (16, 16, 3, 3), 1, 1)
ALL, BIAS_ALONE = (True, True, True), (False, False, True)
NAMES = ("grad_output", "input", "weight")


def given(tensors):
    return tensors


def case(problem=PROBLEM, mask=ALL, **changed):
    drawn = Drawn(problem, "normal", 0)()
    return Case("one", problem, mask, 1, "given", partial(given, {**drawn, **changed}))


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
    assert not mode.passes(1e9)


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
    drawn = Drawn(PROBLEM, "normal", 0)()
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
    assert all("NaN" in reason or "range or sums lose it" in reason for _, reason in one.failed)


# Data


def test_the_same_seed_draws_the_same_values():
    one, two, other = (Drawn(PROBLEM, "long-tailed", seed)() for seed in (0, 0, 1))
    for name in NAMES:
        assert np.array_equal(one[name], two[name])
        assert not np.array_equal(one[name], other[name])


def test_long_tails_are_log_normal():
    problem = ConvProblem((16, 16, 16, 16), (16, 16, 1, 1))
    drawn = Drawn(problem, "long-tailed", 0)()
    exponents = np.log2(np.abs(drawn["grad_output"]))
    # 65,536 draws: the mean is within 5 / 256 deviations.
    assert abs(exponents.mean() - MEDIAN_EXPONENT) < BINADES * 5 / 256
    assert exponents.std() == pytest.approx(BINADES, rel=0.02)
    assert abs((drawn["grad_output"] < 0).mean() - 0.5) < 0.01
    normal = Drawn(problem, "normal", 0)()
    assert np.array_equal(drawn["input"], normal["input"])


def test_normal_tensors_are_those_of_the_command():
    from ascendsim.cli.tensors import normal_tensors

    ours, theirs = Drawn(PROBLEM, "normal", 3)(), normal_tensors(PROBLEM, "float32", 3)
    for name in NAMES:
        assert np.array_equal(ours[name], getattr(theirs, name))
