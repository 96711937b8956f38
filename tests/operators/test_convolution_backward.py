"""Are the gradients right, bit for bit, in every legal order?"""

import random
from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ascendsim import ConvProblem, convolution_backward
from ascendsim.numerics.formats.casts import decode, encode
from ascendsim.numerics.formats.dtypes import dtype as lookup_dtype
from ascendsim.ops.reference.call import reference_gradients
from ascendsim.ops.reference.float64 import gradients_float64
from ascendsim.ops.reference.ordered import TWIN_LIMIT_MACS
from ascendsim.profile import load_profile
from tests.helpers.conv_cases import (
    DATA,
    GRADIENTS,
    MODES,
    SPLIT,
    UNIFIED,
    Case,
    assert_same_bits,
    call_of,
    check_bits,
    dress,
    filter_schedule,
    grid_2d,
    is_atomic,
    other_ranks,
    problems,
    run,
)

GRID = [*grid_2d(), *other_ranks()]
# Eight images in as many parts on five cores; the sums of random data depend on the order.
SPLIT_SUMS = Case(ConvProblem((8, 3, 4, 4), (5, 3, 3, 3), 1, 1), "float32", splits=(0, 8))
ORDERS = ("program", "arrival", 0, 1, 2, 3)


@cache
def load(product):
    return load_profile(product)


# --- bits equal the ordered reference


@pytest.mark.parametrize("case", GRID, ids=str)
def test_the_gradients_are_those_of_the_ordered_reference(case):
    check_bits(case, "program", "arrival", case.seed, case.seed + 1)


def test_the_grid_reaches_what_it_is_for():
    calls = [case.call() for case in GRID]
    assert {(case.dtype, case.cube_math_type) for case in GRID} == set(MODES)
    assert {case.data for case in GRID} == set(DATA)
    assert {case.profile for case in GRID} == {SPLIT, UNIFIED}
    by_twin = sum(case.problem.macs < TWIN_LIMIT_MACS for case in GRID)
    assert len(GRID) // 2 <= by_twin <= len(GRID) - 15
    kinds = Counter(
        "atomic" if is_atomic(call) else "in order" if filter_schedule(call).tiling.k_split > 1 else "whole"
        for call in calls
    )
    assert min(kinds[kind] for kind in ("atomic", "in order", "whole")) >= 10


@pytest.mark.slow
@pytest.mark.parametrize("case", [*grid_2d(seed=7, per_shape=2), *other_ranks(7), *other_ranks(8)], ids=str)
def test_more_of_the_grid_in_every_order(case):
    check_bits(case, *ORDERS)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(problem=problems(most_channels=18, most_pixels=60), seed=st.integers(0, 10**6))
def test_random_problems_have_the_gradients_of_the_ordered_reference(problem, seed):
    check_bits(dress(random.Random(seed), problem))


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(problem=problems(most_channels=40, most_pixels=150), seed=st.integers(0, 10**6))
def test_many_random_problems_have_the_gradients_of_the_ordered_reference(problem, seed):
    check_bits(dress(random.Random(seed), problem))


@pytest.mark.parametrize(
    "model",
    [
        "seq:RNE",
        "block:4:RNE",
        "block:32:RZ",
        "exact:RNE",
        "exact-mmad:RNE",
        "align:cube_k:F24:RZ:acc",
        "tree:16:halves:RNE",
    ],
)
@pytest.mark.parametrize("case", GRID[5::16], ids=str)
def test_other_accumulation_models_change_both_alike(case, model):
    check_bits(replace(case, accumulation=model))


# --- orders


@pytest.mark.parametrize("case", GRID[::12], ids=str)
def test_without_atomic_additions_every_order_gives_the_same_bits(case):
    case = replace(case, deterministic=True)
    call, tensors = case.call(), case.tensors()
    results = [run(call, tensors, order)[0] for order in ORDERS]
    for result in results[1:]:
        for name in GRADIENTS:
            assert_same_bits(result[name], results[0][name], name)


def test_atomic_additions_give_the_sum_in_the_order_of_arrival():
    check_bits(SPLIT_SUMS, *ORDERS)


def test_the_order_of_atomic_additions_is_part_of_the_answer():
    call, tensors = SPLIT_SUMS.call(), SPLIT_SUMS.tensors()
    made = [run(call, tensors, seed)[0]["grad_weight"].tobytes() for seed in range(6)]
    assert len(set(made)) > 1


def test_parts_that_are_kept_apart_are_added_in_order_whatever_the_order_of_execution():
    case = replace(SPLIT_SUMS, deterministic=True)
    made = [run(case.call(), case.tensors(), order)[0]["grad_weight"].tobytes() for order in ORDERS]
    assert len(set(made)) == 1
    check_bits(case)


def test_arrival_order_is_the_order_of_the_timeline():
    # Of the parts of one core the first comes first; of all parts of an element each comes once.
    _, arrivals = run(SPLIT_SUMS.call(), SPLIT_SUMS.tensors(), "arrival")
    assert (np.sort(arrivals, axis=0) == np.arange(8).reshape(8, 1, 1, 1, 1)).all()


# --- whole numbers on real products


LAYERS = [
    ConvProblem((2, 40, 14, 15), (33, 40, 3, 3), 1, 1),
    ConvProblem((2, 40, 15, 14), (33, 40, 3, 3), 2, 1),
    ConvProblem((1, 3, 38, 40), (64, 3, 7, 7), 2, 3),
    ConvProblem((2, 64, 9, 9), (96, 64, 1, 1), 2),
    ConvProblem((2, 24, 12, 12), (24, 6, 3, 3), 1, 1, groups=4),
    ConvProblem((2, 24, 9, 8), (24, 20, 4, 4), 2, 1, transposed=True),
    ConvProblem((1, 8, 6, 9, 9), (20, 8, 3, 3, 3), 1, 1),
]


@pytest.mark.parametrize("product", ["910B", "910_93", "910_95", "310P", "910"])
@pytest.mark.parametrize("problem", LAYERS, ids=lambda p: "x".join(map(str, p.weight)))
def test_whole_numbers_give_the_gradients_of_float64_on_every_product(problem, product):
    # At most 2 * 4 * (products per output) < 2^11: exact even in float16.
    rng = np.random.default_rng(1)
    shapes = {"grad_output": problem.grad_output, "input": problem.input, "weight": problem.weight}
    sparse = {
        name: (rng.integers(-1, 2, shape) * (rng.random(shape) < 0.3)).astype(np.float32)
        for name, shape in shapes.items()
    }
    got, _ = run(call_of(problem, "float16", profile=load(product)), sparse)
    for name, want in zip(GRADIENTS, gradients_float64(problem, **sparse), strict=True):
        assert np.abs(want).max() <= 2048
        assert np.array_equal(got[name], want), name


# --- the error against real numbers is bounded by what the model may lose


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_the_error_against_float64_is_within_the_bound_of_the_model(dtype):
    problem = ConvProblem((2, 20, 9, 10), (24, 20, 3, 3), 1, 1)
    case = Case(problem, dtype, deterministic=True)
    tensors = case.tensors()
    got, _ = run(case.call(), tensors)
    exact = gradients_float64(problem, **tensors)
    sizes = gradients_float64(problem, **{name: np.abs(values) for name, values in tensors.items()})
    # A sum of n products takes fewer than n + 20 roundings (one for each block, part or lane), each of at
    # most 2^-24 of what is summed in magnitude, to first order; then one rounding to the output format.
    lengths = {"grad_input": 9 * 24, "grad_weight": 2 * 90, "grad_bias": 2 * 90}
    unit = 2.0 ** -(lookup_dtype(dtype).mantissa_bits + 1)
    for name, want, size in zip(GRADIENTS, exact, sizes, strict=True):
        in_sum = size * (lengths[name] + 20) * 2.0**-24
        assert (np.abs(got[name] - want) <= in_sum + (np.abs(want) + in_sum) * unit).all(), name


# --- through the user's function


def api(case, tensors, **keywords):
    p = case.problem
    stored = [encode(tensors[name], case.dtype) for name in ("grad_output", "input", "weight")]
    attributes = (p.stride, p.padding, p.dilation, p.transposed, p.output_padding, p.groups)
    mask = keywords.pop("output_mask", (True, True, True))
    bias_sizes = (p.grad_output[1],)
    return convolution_backward(*stored, bias_sizes, *attributes, mask, case.cube_math_type, **keywords)


@pytest.mark.parametrize(("dtype", "cube_math_type"), MODES)
def test_the_function_returns_the_reference_in_the_tensors_own_formats(dtype, cube_math_type):
    profile = load("910B")
    case = Case(ConvProblem((2, 18, 7, 6), (20, 18, 3, 3), 2, 1), dtype, cube_math_type, profile=profile)
    tensors = case.tensors()
    result = api(case, tensors, deterministic=True)
    want = reference_gradients(replace(case, deterministic=True).call(), **tensors)
    for name in GRADIENTS:
        got = getattr(result, name)
        assert got.dtype == lookup_dtype(dtype).storage
        assert_same_bits(decode(got, dtype), want[name], name)


def test_only_what_is_asked_for_is_computed():
    case = Case(ConvProblem((1, 4, 5, 5), (4, 4, 3, 3)))
    tensors = case.tensors()
    every = api(case, tensors)
    for wanted in range(1, 8):
        mask = tuple(bool(wanted >> bit & 1) for bit in range(3))
        result = api(case, tensors, output_mask=mask)
        for name, asked in zip(GRADIENTS, mask, strict=True):
            got = getattr(result, name)
            assert (got is not None) == asked
            assert not asked or got.tobytes() == getattr(every, name).tobytes()
        assert {k.name for k in result.kernels} <= {k.name for k in every.kernels}


@pytest.mark.parametrize(("order", "named"), [("program", "program"), ("arrival", "arrival"), (3, "seed 3")])
def test_the_result_names_the_order(order, named):
    case = Case(ConvProblem((1, 4, 5, 5), (4, 4, 3, 3)))
    assert api(case, case.tensors(), order=order).order == named


@pytest.mark.slow
def test_a_layer_of_resnet_equals_the_reference():
    # ResNet-50 v1.5, 128 -> 128 channels, 3 x 3 on 28 x 28
    problem = ConvProblem((2, 128, 28, 28), (128, 128, 3, 3), 1, 1)
    case = Case(problem, profile=load("910B"), deterministic=True)
    check_bits(case, "program", "arrival", 5)
    check_bits(replace(case, deterministic=False), "arrival")
