"""Are the losses of a gradient told apart by cause, by decade and by channel, and what of them decides?"""

import math
from functools import partial

import numpy as np
import pytest

from ascendsim import ConvProblem
from ascendsim.numerics.dtypes import dtype
from ascendsim.profile import load_profile
from ascendsim.studies.modes.choice import Axes, ConvCase, SyntheticTensors, passing, summaries
from ascendsim.studies.modes.losses import (
    CAUSES,
    LossSteps,
    RangeEnd,
    decades,
    range_ends,
    unbounded,
    without_range,
    worst_channel,
)
from ascendsim.studies.modes.measure import measure
from ascendsim.studies.modes.reading import GradientStages, Reading, allowed
from ascendsim.studies.modes.records import FACTOR, SUMS_LIMIT, Decade, GradientError, PassLimits

ONE = ConvProblem((1, 1, 1, 1), (1, 1, 1, 1))
INPUT_ALONE = (True, False, False)
NAMES = ("grad_output", "input", "weight")


def given(tensors):
    return tensors


def errors(problem, tensors, dtype_name="float16", number=0, product="910B", **axes):
    """Return the error of grad_input under one mode."""
    tensors = {name: np.asarray(x, float).reshape(getattr(problem, name)) for name, x in tensors.items()}
    case = ConvCase("one", problem, INPUT_ALONE, 1, "given", partial(given, tensors))
    found = measure(Axes(load_profile(product), (dtype_name,), (number,), **axes), case)
    return found.modes[0].gradients[0]


def of_one(grad_output, weight):
    return {"grad_output": [grad_output], "weight": [weight], "input": [1.0]}


# Causes


def test_a_result_beyond_the_format_is_an_overflow():
    one = errors(ONE, of_one(300.0, 300.0))
    assert one.causes == (("overflow", 1.0),)
    assert (one.lost, one.decades[-1].beyond) == (1, 1)


@pytest.mark.parametrize("product", ["310P", "910"])
def test_a_product_that_saturates_hits_65504_and_that_is_the_cause(product):
    one = errors(ONE, of_one(300.0, 300.0), product=product)
    assert one.causes == (("saturation", 1.0),)
    assert (one.overflow, one.lost) == (0, 1)
    # Of rounding the result, not of the sums.
    assert (one.output, one.accumulation) == (pytest.approx(1 - 65504 / 90000), 0)


def test_an_operand_that_saturates_on_its_way_into_the_cube_is_saturation():
    one = errors(ONE, of_one(1e5, 2.0**-4), "float32", 2, "310P")
    assert one.causes == (("saturation", 1.0),)
    assert one.total == pytest.approx(1 - 65504 / 1e5, rel=1e-3)


@pytest.mark.parametrize(
    ("grad_output", "weight"), [(2.0**-26, 1.0), (2.0**-13, 2.0**-13), (2.0**-22 * 1.3, 1.0)]
)
def test_an_operand_or_a_result_below_the_format_is_underflow(grad_output, weight):
    assert errors(ONE, of_one(grad_output, weight)).causes[0][0] == "underflow"


def test_terms_that_cancel_are_cancellation():
    # 1 x 1 + (1 + 2^-11) x (-1) = -2^-11, of which float16 keeps nothing: neither range nor sums lose it.
    problem = ConvProblem((1, 1, 1, 1), (2, 1, 1, 1))
    one = errors(problem, {"grad_output": [1.0, 1 + 2.0**-11], "weight": [1.0, -1.0], "input": [1.0]})
    assert one.causes == (("cancellation", 1.0),)
    assert one.lost == 0


def test_a_sum_that_stands_still_is_accumulation():
    # 2^24 + 1 is 2^24 in float32: of 63 ones nothing arrives, 3.8e-06 of the sum.
    problem = ConvProblem((1, 1, 1, 1), (64, 1, 1, 1))
    tensors = {"grad_output": np.r_[2.0**24, np.ones(63)], "weight": np.ones(64), "input": [1.0]}
    one = errors(problem, tensors, "float32", models=("seq:RNE",))
    # The exact sum leaves as 2^24 + 64.
    assert one.accumulation == pytest.approx(64 / (2**24 + 63))
    assert one.causes == (("accumulation", 1.0),)


def test_fraction_bits_are_rounding():
    one = errors(ONE, of_one(1 + 2.0**-12, 1.0))
    assert one.causes == (("rounding", 1.0),)


def test_a_gradient_without_error_has_no_cause():
    assert errors(ONE, of_one(1.0, 1.0)).causes == ()


# Formats whose range has no end


def test_without_range_is_the_format_where_its_range_suffices():
    values = np.random.default_rng(0).standard_normal(10_000) * 10
    values = values[np.abs(values) > 2.0**-14]
    assert np.array_equal(without_range(values, 11), values.astype(np.float16).astype(np.float64))
    # The same bits, whatever the exponent, which no format of these bits has.
    assert np.array_equal(without_range(values * 2.0**-200, 11), without_range(values, 11) * 2.0**-200)
    assert without_range(np.array([1 + 2.0**-11, 1 + 3 * 2.0**-11]), 11).tolist() == [1.0, 1 + 2.0**-9]


def test_of_hifloat8_zeros_alone_are_beyond_its_range():
    values, stored = np.array([2.0**-30, 2.0**-20 * 1.25]), np.array([0.0, 2.0**-20])
    assert unbounded(values, stored, dtype("hifloat8")).tolist() == [2.0**-30, 2.0**-20]


# Decades and channels: the definition, element by element


def slow_label(s, at, truth):
    """Return the cause of one element by the definition."""
    result, rounded, free, exact = (float(x.flat[at]) for x in (s.result, s.rounded, s.free, truth))
    if not math.isfinite(result):
        return "overflow"
    error, ranged, sums = abs(result - exact), abs(rounded - free), abs(result - rounded)
    if abs(result) == 65504 and abs(free) > 65504:
        return "saturation"
    if ranged and ranged >= error / 2:
        low, high = (abs(float(end.values.flat[at]) - free) for end in s.ends)
        return "saturation" if high > low else "underflow"
    if error > FACTOR * 2.0**-11 * abs(exact) and error <= s.roundings * float(s.magnitudes.flat[at]):
        return "cancellation"
    return "accumulation" if sums and sums >= error / 2 else "rounding"


def slow_decades(s, truth, scale):
    found = {}
    for at in range(truth.size):
        exact, result = float(truth.flat[at]), float(s.result.flat[at])
        if exact == 0:
            continue
        cell = found.setdefault(math.floor(math.log10(abs(exact) / scale)), [0, 0, 0, 0, 0.0, 0.0])
        label, error = slow_label(s, at, truth), abs(result - exact)
        lost = label == "underflow" and error > FACTOR * 2.0**-11 * abs(exact)
        cell[0] += 1
        cell[1] += lost and result == 0
        cell[2] += lost and result != 0
        cell[3] += label in ("overflow", "saturation")
        cell[4] += error**2 if math.isfinite(result) else 0
        cell[5] += exact**2
    return [(at, n, math.sqrt(e / size), z, b, o) for at, (n, z, b, o, e, size) in sorted(found.items())]


def drawn_steps(seed, saturated=False):
    """Return steps of float16 that lose by every cause, and the truth."""
    random = np.random.default_rng(seed)
    truth = random.standard_normal((4, 5, 6)) * 10.0 ** random.integers(-9, 7, (4, 5, 6))
    truth.flat[::17] = 0
    off = truth * (1 + random.standard_normal(truth.shape) * 10.0 ** random.integers(-6, 0, truth.shape))
    free = without_range(off, 11)
    with np.errstate(over="ignore"):
        rounded = off.astype(np.float16).astype(np.float64)
    result = rounded * (1 + 2.0**-10 * random.integers(-1, 2, truth.shape))
    if saturated:
        result, rounded = np.clip(result, -65504, 65504), np.clip(rounded, -65504, 65504)
    sizes = np.abs(truth) * 10.0 ** random.integers(0, 3, truth.shape)
    ends = [RangeEnd("weight", top, free * random.integers(0, 3, truth.shape)) for top in (False, True)]
    return LossSteps(result, rounded, free, ends, sizes, ("float16",), ("float16",), 1e-3), truth


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("saturated", [False, True])
def test_causes_and_decades_are_those_of_the_definition(seed, saturated):
    steps, truth = drawn_steps(seed, saturated)
    labels = [slow_label(steps, at, truth) for at in range(truth.size)]
    assert [CAUSES[at] for at in steps.labels(truth).flat] == labels
    assert len(set(labels)) >= 4
    for made, (at, n, error, *lost) in zip(
        decades(steps, truth, steps.labels(truth), 4.0), slow_decades(steps, truth, 4.0), strict=True
    ):
        assert (made.exponent, made.count) == (at, n)
        assert (made.zero, made.subnormal, made.beyond) == tuple(lost)
        assert made.error == pytest.approx(error)


def label(result, rounded, free, exact, magnitude=0.0, roundings=0.0, ends=()):
    """The cause of one element of float16."""
    arrays = [np.array([value]) for value in (result, rounded, free, magnitude)]
    made = [RangeEnd("weight", top, np.array([value])) for top, value in ends]
    steps = LossSteps(*arrays[:3], made, arrays[3], ("float16",), ("float16",), roundings)
    (found,) = steps.labels(np.array([exact]))
    return CAUSES[found]


def test_a_cause_begins_at_half_of_the_error():
    # Off by 4: 2 of it by the sums, or a little less.
    assert label(104.0, 102.0, 102.0, 100.0) == "accumulation"
    assert label(104.0, 102.25, 102.25, 100.0) == "rounding"
    # By the range of the formats, at whichever end takes more; of equal ends the first.
    low, high = (False, 103.0), (True, 101.0)
    assert label(104.0, 104.0, 102.0, 100.0) == "underflow"
    assert label(104.0, 104.0, 102.25, 100.0) == "rounding"
    assert label(104.0, 104.0, 102.0, 100.0, ends=[low, (True, 100.5)]) == "saturation"
    assert label(104.0, 104.0, 102.0, 100.0, ends=[low, high]) == "underflow"
    assert label(104.0, 104.0, 102.0, 100.0, ends=[high, low]) == "saturation"
    # Without any error, none of both is half of it.
    assert label(100.0, 100.0, 100.0, 100.0) == "rounding"


def test_terms_cancel_where_the_error_is_large_beside_the_element_alone():
    # A rounding of float16 is 2^-11: of 2048 a large error is more than FACTOR.
    exact, large = 2048.0, FACTOR
    near, far = exact + large, exact + large + 2.0**-9
    # At most what roundings of the terms may cost, 2^-10 of their magnitudes.
    enough = 2.0**10 * (large + 2.0**-9)
    assert label(far, far, far, exact, enough, 2.0**-10) == "cancellation"
    assert label(near, near, near, exact, enough, 2.0**-10) == "rounding"
    assert label(far, far, far, exact, enough - 1, 2.0**-10) == "rounding"


def test_what_stays_at_the_largest_value_has_to_lie_beyond_it():
    beyond = 65504.0 + 2.0**-4
    assert label(65504.0, 65504.0, beyond, beyond) == "saturation"
    assert label(-65504.0, -65504.0, -beyond, -beyond) == "saturation"
    assert label(65504.0, 65504.0, 65504.0, beyond) == "rounding"
    assert label(np.inf, np.inf, 7e4, 7e4) == label(np.nan, 1.0, 1.0, 1.0) == "overflow"
    assert label(np.inf, np.inf, np.inf, np.inf) != "overflow"


def test_shares_of_causes_and_takers_are_those_of_the_definition():
    steps, truth = drawn_steps(1, saturated=True)
    labels = steps.labels(truth)
    squares = dict.fromkeys(CAUSES, 0.0)
    for at, cause in enumerate(labels.flat):
        squares[CAUSES[cause]] += float(steps.result.flat[at] - truth.flat[at]) ** 2
    want = {cause: square / sum(squares.values()) for cause, square in squares.items() if square}
    found = steps.causes(truth, labels)
    assert dict(found) == pytest.approx(want)
    assert [cause for cause, _ in found] == sorted(want, key=want.get, reverse=True)
    taken = {}
    for at, cause in enumerate(labels.flat):
        exact, error = truth.flat[at], abs(steps.result.flat[at] - truth.flat[at])
        small = CAUSES[cause] == "underflow" and error > FACTOR * 2.0**-11 * abs(exact)
        if exact and (CAUSES[cause] == "saturation" or small):
            taken[CAUSES[cause]] = taken.get(CAUSES[cause], 0) + 1 / truth.size
    assert {cause: share for cause, _, share in steps.takers(truth, labels)} == pytest.approx(taken)
    assert len(taken) == 2


def slow_product_labels(grad_output, weight):
    """Return the cause of each element of the product, by what float16 takes of its own terms alone.

    In plain numbers, term by term; values lie at the two ends of the range or are exact within it.
    """

    def read(x, low=True, high=True):
        if abs(x) > 65504:
            return math.copysign(65504.0, x) if high else x
        return float(np.float16(x)) if low else x

    found = {}
    for n, row in enumerate(grad_output.tolist()):
        for i, column in enumerate(weight.T.tolist()):
            terms = list(zip(row, column, strict=True))
            exact, low, high, both = (
                sum(read(a, *ends) * read(b, *ends) for a, b in terms)
                for ends in ((False, False), (True, False), (False, True), (True, True))
            )
            lost = abs(both - exact) > FACTOR * 2.0**-11 * abs(exact)
            by_top = abs(high - exact) > abs(low - exact)
            found[n, i] = ("saturation" if by_top else "underflow") if lost else ""
    return found


@pytest.mark.parametrize("seed", range(3))
def test_what_range_takes_is_told_by_an_element_s_own_operands(seed):
    """An operand that saturates elsewhere relabels nothing."""
    random = np.random.default_rng(seed)
    # Two terms to an element: three rows in the middle, one tiny, one huge; of the columns one is tiny.
    problem = ConvProblem((5, 6, 1, 1), (2, 6, 1, 1))
    grad_output = random.integers(1, 9, (5, 2)) * np.array([[1.0], [2.0**-6], [1.0], [2.0**-27], [2.0**17]])
    weight = random.integers(1, 9, (2, 6)) * np.array([2.0**-4, 2.0**-5, 2.0**-6, 2.0**-27, 1.0, 2.0**-9])
    shapes = {name: getattr(problem, name) for name in NAMES}
    tensors = {"grad_output": grad_output.reshape(shapes["grad_output"]), "input": np.ones(shapes["input"])}
    tensors["weight"] = weight.reshape(shapes["weight"])
    case = ConvCase("one", problem, (True, True, True), 1, "given", partial(given, tensors))
    (mode,) = measure(Axes(load_profile("310P"), ("float32",), (2,)), case).modes
    by_name = {error.name: error for error in mode.gradients}
    wanted = list(slow_product_labels(grad_output, weight).values())
    assert {"", "saturation", "underflow"} == set(wanted)
    made = by_name["grad_input"]
    assert sum(one.beyond for one in made.decades) == wanted.count("saturation")
    assert sum(one.zero + one.subnormal for one in made.decades) == wanted.count("underflow")
    # Weights have no part in grad_weight; grad_bias is summed as it is stored.
    assert {tensor for _, tensor, _ in by_name["grad_weight"].takers} <= {"grad_output", "grad_weight"}
    assert by_name["grad_bias"].takers == ()


def test_the_operand_that_decides_is_named_or_the_gradient_itself():
    tiny, huge = 2.0**-27, 1e6
    assert errors(ONE, of_one(tiny, 1.0)).takers == (("underflow", "grad_output", 1.0),)
    assert errors(ONE, of_one(1.0, tiny)).takers == (("underflow", "weight", 1.0),)
    assert errors(ONE, of_one(2.0**-13, 2.0**-13)).takers == (("underflow", "grad_input", 1.0),)
    assert errors(ONE, of_one(1.0, huge)).takers == (("overflow", "weight", 1.0),)
    assert errors(ONE, of_one(300.0, 300.0)).takers == (("overflow", "grad_input", 1.0),)
    saturating = errors(ONE, of_one(1.0, huge), "float32", 2, "310P")
    assert saturating.takers == (("saturation", "weight", 1.0),)
    assert errors(ONE, of_one(1.0, 1.0)).takers == ()


def test_ends_of_a_range_are_those_of_each_value():
    free = np.array([1.0, 2.0**-30, 1e6, -(2.0**-26), np.nan])
    bounded = np.array([1.0, 0.0, 65504.0, -0.0, np.nan])
    found = {top: values.tolist()[:-1] for top, values in range_ends(bounded, free, 65504.0)}
    assert found == {False: [1.0, 0.0, 1e6, 0.0], True: [1.0, 2.0**-30, 65504.0, -(2.0**-26)]}
    assert list(range_ends(free, free, 65504.0)) == []


@pytest.mark.parametrize("axis", [0, 1])
def test_the_worst_channel_is_that_of_the_definition(axis):
    steps, truth = drawn_steps(7, saturated=True)
    truth = np.where(
        np.arange(truth.shape[axis]).reshape([-1 if a == axis else 1 for a in range(3)]), truth, 0
    )
    slow = [
        (np.linalg.norm(r - t) / np.linalg.norm(t), at)
        for at, (r, t) in enumerate(
            zip(*(np.moveaxis(x, axis, 0) for x in (steps.result, truth)), strict=True)
        )
        if t.any()
    ]
    error, channel = max(slow)
    assert worst_channel(steps.result, truth, axis) == (channel, pytest.approx(error))
    assert worst_channel(truth * 0, truth * 0, axis) == (-1, 0)


# What decides


def judged(*gradients, limits=None):
    return [(limits or PassLimits()).missed(one) for one in gradients]


def gradient(total, once=1e-4, zero=0):
    rest = (0.0,) * 8
    return GradientError("grad_input", total, *rest, (), once, decades=(Decade(-7, 10_000, 0.0, zero, 0, 0),))


def test_a_mode_is_held_to_its_own_format():
    fine, coarse = gradient(FACTOR * 1e-4), gradient(FACTOR * 1e-3, 1e-3)
    assert judged(fine, coarse) == [(), ()]
    assert judged(gradient(FACTOR * 1e-4 * 1.01), gradient(float("nan"))) == [("norm",), ("norm",)]
    # float32 is rounded finer than its sums are: the kit's 2^-13 is the least limit.
    assert SUMS_LIMIT == 2.0**-13
    assert judged(gradient(2.0**-13, 1e-8), gradient(2.0**-12, 1e-8)) == [(), ("norm",)]
    # One number for all, where the user gives it.
    assert judged(coarse, limits=PassLimits(1e-3)) == [("norm",)]


def test_more_than_one_lost_element_in_a_thousand_fails_whatever_the_norm():
    assert judged(gradient(1e-9, zero=10), gradient(1e-9, zero=11)) == [(), ("lost elements",)]


def test_bfloat16_passes_as_bfloat16():
    problem = ConvProblem((2, 16, 5, 5), (16, 16, 3, 3), 1, 1)
    case = ConvCase("one", problem, (True,) * 3, 1, "normal", SyntheticTensors(problem, "normal", 0))
    dtypes = ("float16", "bfloat16", "float32")
    rows = summaries([measure(Axes(load_profile("910B"), dtypes, (0, 1)), case)], PassLimits())
    assert {(row.dtype, row.passes) for row in rows} == {(name, True) for name in dtypes}
    limits = {row.dtype: row.limit for row in rows if row.compute_dtypes == (row.dtype,)}
    assert limits["bfloat16"] == pytest.approx(8 * limits["float16"], rel=0.1)
    assert limits["float32"] == SUMS_LIMIT


def test_small_gradients_that_become_0_decide_though_the_norm_does_not_see_them():
    # One channel of 16 has gradients of 1e-8, which float16 has as 0; the others are near 1.
    problem = ConvProblem((1, 16, 8, 8), (16, 16, 1, 1))
    random = np.random.default_rng(0)
    tensors = {name: random.standard_normal(getattr(problem, name)) for name in NAMES}
    tensors["weight"][:, 3] *= 1e-9
    case = ConvCase("one", problem, INPUT_ALONE, 1, "given", partial(given, tensors))
    axes = Axes(load_profile("910B"), ("float16", "float32"), (0,), loss_scales=(1.0, 4096.0))
    found = measure(axes, case)
    rows = summaries([found], PassLimits())
    bad = rows[0]
    assert (bad.dtype, bad.loss_scale, bad.missed) == ("float16", 1.0, ("lost elements",))
    assert bad.most < bad.limit
    assert bad.lost == pytest.approx(1 / 16)
    (error,) = found.modes[0].gradients
    assert (error.channel, error.of_channel) == (3, 1.0)
    assert sum(one.zero for one in error.decades) == 64
    assert all(one.lost in (0, one.count) for one in error.decades)
    assert [row.dtype for row in passing(rows)] == ["float32"]


# What roundings may cost


HALF = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "hf32_11": 2.0**-12}


@pytest.mark.parametrize(
    ("stored", "read", "gradient", "groups", "leaves", "most"),
    [
        ("float16", "float16", "grad_input", 1, ["float16"], 65504.0),
        ("float32", "float16", "grad_input", 1, ["float16", "float32"], 65504.0),
        # Groups are squeezed through float16, from a cube that reads 16 bits, into float32 alone.
        ("float32", "float16", "grad_weight", 2, ["float32", "float16"], 65504.0),
        ("float32", "float16", "grad_weight", 1, ["float32"], 65504.0),
        ("float32", "hf32_11", "grad_weight", 2, ["float32"], (2 - 2.0**-11) * 2.0**127),
        ("bfloat16", "float16", "grad_weight", 2, ["float32", "bfloat16"], 65504.0),
        ("bfloat16", "bfloat16", "grad_input", 1, ["bfloat16"], (2 - 2.0**-7) * 2.0**127),
        # Vector cores sum grad_bias as it is stored.
        ("float32", "float16", "grad_bias", 1, ["float32"], (2 - 2.0**-23) * 2.0**127),
    ],
)
def test_what_roundings_may_cost_a_gradient(stored, read, gradient, groups, leaves, most):
    problem = ConvProblem((1, 2, 1, 1), (2, 2 // groups, 1, 1), groups=groups)
    reading = Reading(problem, load_profile("910B"), stored, read, direct=False)
    assert reading.formats_out(gradient) == tuple(leaves)
    assert reading.top(gradient) == most
    cast = stored != read and gradient != "grad_bias"
    cost = 2 * cast * HALF[read] + sum(HALF[name] for name in leaves)
    assert allowed(reading, gradient) == cost
    value = {name: np.ones(1) for name in ("grad_input", "grad_weight", "grad_bias")}
    stages = GradientStages(*[value] * 5, dict.fromkeys(value, ()), value)
    steps = reading.losses(gradient, np.ones(1), stages)
    # Storing rounds both operands, and one sum is rounded once.
    assert steps.roundings == cost + 2 * HALF[stored] + 2.0**-24
    assert steps.formats == (stored, *[read] * cast, *leaves)
    assert steps.leaving == tuple(leaves)
