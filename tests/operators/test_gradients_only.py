"""Has a call without timing the bits of the executor, whatever it is asked for?

The executor follows the plan instruction by instruction. The gradients without instructions follow the order
of the additions that the schedule names. Both must give the same bits on random calls of every kind.
"""

import pickle
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ascendsim import ConvProblem, conv_tbc_backward, convolution_backward
from ascendsim.errors import ConfigError
from ascendsim.numerics.compiled.gathered.threads import Threads
from ascendsim.ops.gradients.call import Gradients
from ascendsim.ops.gradients.filters import _together
from ascendsim.ops.gradients.orders import says_more
from ascendsim.ops.schedules.base import DgradOrder
from ascendsim.ops.schedules.dgrad.nest import Dgrad
from ascendsim.ops.schedules.wgrad.nest import Wgrad
from tests.helpers.call_strategy import calls
from tests.helpers.conv_cases import assert_same_bits, call_of, split, tensors_of
from tests.helpers.gradient_samples import check_against_the_executor
from tests.helpers.operator_calls import as_carrier, gradients

ALL = (True, True, True)
USUAL = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


# --- the bits


@pytest.mark.parametrize("seed", range(60))
def test_random_plans_and_models_give_the_bits_of_the_executor(seed):
    check_against_the_executor(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1040))
def test_many_random_plans_and_models_give_the_bits_of_the_executor(seed):
    for part in range(50):
        check_against_the_executor(seed * 1000 + part)


def untimed(case):
    """Make a call of the interface without timing."""
    sizes = [case.problem.grad_output[1]]
    rest = sizes, *case.attributes, case.mask, case.cube_math_type
    return convolution_backward(*case.arrays(), *rest, order=case.order, timing=False, **case.options)


@USUAL
@given(case=calls())
def test_random_calls_give_the_bits_and_formats_of_the_timed_call(case):
    for got, want in zip(gradients(untimed(case)), gradients(case.run()), strict=True):
        assert (got is None) == (want is None)
        if got is not None:
            assert got.dtype == want.dtype
            assert_same_bits(as_carrier(got), as_carrier(want))


@settings(USUAL, max_examples=15)
@given(case=calls(), order=st.sampled_from(("arrival", 5)))
def test_an_order_of_execution_is_kept(case, order):
    case = replace(case, order=order, deterministic=False)
    for got, want in zip(gradients(untimed(case)), gradients(case.run()), strict=True):
        if got is not None:
            assert_same_bits(as_carrier(got), as_carrier(want))


def test_a_time_major_convolution_gives_the_bits_of_the_timed_call():
    # Time 9, batch 3, channels 5 and 7, three taps, padding 2: 9 + 4 + 1 - 3 = 11 steps come out.
    rng = np.random.default_rng(3)
    shapes = (11, 3, 7), (9, 3, 5), (3, 5, 7), (7,)
    tensors = [rng.standard_normal(shape).astype(np.float16) for shape in shapes]
    timed, plain = (conv_tbc_backward(*tensors, 2, 0, product="910B2", timing=t) for t in (True, False))
    for got, want in zip(gradients(plain), gradients(timed), strict=True):
        assert (got.shape, got.tobytes()) == (want.shape, want.tobytes())
        assert got.flags.c_contiguous


def test_an_empty_batch_has_gradients_of_zeros():
    tensors = [np.zeros(shape, np.float16) for shape in ((0, 4, 5, 5), (0, 3, 5, 5), (4, 3, 3, 3))]
    rest = [4], 1, 1, 1, False, 0, 1, ALL, 0
    timed, plain = (convolution_backward(*tensors, *rest, product="910B2", timing=t) for t in (True, False))
    for got, want in zip(gradients(plain), gradients(timed), strict=True):
        assert (got.shape, got.dtype, got.tobytes()) == (want.shape, want.dtype, want.tobytes())


# --- what is left to the executor

PROBLEM = ConvProblem((2, 20, 6, 5), (18, 20, 3, 3), 1, 1)


def possible(call, order="program"):
    return Gradients(call, tensors_of(call.problem), order).possible(ALL)


def test_parts_that_arrive_in_another_order_are_for_the_executor():
    call = split(call_of(PROBLEM), 0, 3)
    assert possible(call) == ALL
    assert possible(call, "arrival") == possible(call, 5) == (True, False, True)
    assert possible(replace(call, deterministic=True), "arrival") == ALL


def test_a_model_that_nobody_has_thought_about_is_for_the_executor():
    # `exact` rounds when a product is done, of which it is not known here how far it goes.
    assert possible(call_of(PROBLEM, accumulation="exact:RNE")) == (False, False, True)


class Backwards(Wgrad):
    """Deals the last part of the reduction to the first core, so that it arrives first."""

    name = "backwards"

    def sequence(self):
        """Return all tasks, the last one first."""
        return self.tasks.tasks[::-1]


def test_a_schedule_that_adds_its_last_part_first_is_followed_by_the_executor():
    call = split(call_of(PROBLEM), 0, 3)
    plan = replace(call.plans["grad_weight"], schedule=Backwards)
    call = replace(call, plans=call.plans | {"grad_weight": plan})
    assert possible(call) == (True, False, True)
    assert possible(replace(call, deterministic=True)) == ALL


@pytest.mark.parametrize(
    ("order", "more"),
    [
        (DgradOrder(16, (1, 2)), False),  # `parts` stands at its default
        (DgradOrder(16, (1, 2), (1, 1)), True),
    ],
)
def test_a_field_that_nobody_has_thought_about_must_stand_at_its_default(order, more):
    assert says_more(order, {"c0", "slices"}) is more
    assert says_more(order, {"c0", "parts"})  # `slices` has no default
    assert not says_more(order, {"c0", "slices", "parts"})


@dataclass(frozen=True)
class Zigzag(DgradOrder):
    """An order that says something more."""

    every_other_group_backwards: bool = True


class Elsewhere(Dgrad):
    """A nest whose order nobody here can know."""

    name = "elsewhere"

    def order(self):
        """Return the usual order and one thing more."""
        usual = super().order()
        return Zigzag(usual.c0, usual.slices, usual.parts)


def test_an_order_of_another_kind_is_for_the_executor_which_makes_the_gradient():
    call = call_of(PROBLEM)
    plan = replace(call.plans["grad_input"], schedule=Elsewhere)
    assert possible(replace(call, plans=call.plans | {"grad_input": plan})) == (False, True, True)
    rng = np.random.default_rng(0)
    shapes = PROBLEM.grad_output, PROBLEM.input, PROBLEM.weight
    tensors = [rng.standard_normal(shape).astype(np.float16) for shape in shapes]
    rest = [18], 1, 1, 1, False, 0, 1, ALL, 0
    timed, plain = (
        convolution_backward(*tensors, *rest, product="910B2", schedule=Elsewhere, timing=t)
        for t in (True, False)
    )
    for got, want in zip(gradients(plain), gradients(timed), strict=True):
        assert got.tobytes() == want.tobytes()
    assert plain.kernels == ()


def test_parts_that_are_added_atomically_begin_with_the_zero_in_global_memory():
    # +0 and -0 make +0, where parts that are kept apart have nothing but -0 to add.
    parts = [np.full((1, 2), -0.0, np.float32)] * 2
    assert not np.signbit(_together(parts, atomic=True, tree=False)).any()
    assert np.signbit(_together(parts, atomic=False, tree=False)).all()


# --- threads


def test_threads_share_the_work_and_change_no_bit():
    one, three = small_result(), small_result(threads=3)
    assert one.grad_input.tobytes() == three.grad_input.tobytes()
    call, tensors = call_of(PROBLEM), tensors_of(PROBLEM, data="wide")
    want, got = (Gradients(call, tensors, "program", Threads(count)).make(ALL) for count in (1, 4))
    for name, values in want.items():
        assert_same_bits(got[name], values, name)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threads": 0}, "threads is 0; it must be a whole number from 1 to 1024"),
        ({"threads": 1.5}, "threads is 1.5; it must be"),
        ({"threads": 2, "timing": True}, "threads is 2, but only a call with timing=False"),
    ],
)
def test_threads_without_a_meaning_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        small_result(**options)


# --- what a result without timing says


def small_result(**options):
    tensors = [np.ones(shape, np.float16) for shape in ((1, 2, 3, 3), (1, 2, 3, 3), (2, 2, 1, 1))]
    rest = None, 1, 0, 1, False, 0, 1, (True, True, False), 0
    return convolution_backward(*tensors, *rest, product="910B2", **{"timing": False, **options})


def test_a_result_without_timing_says_so_and_knows_no_cycles():
    result = small_result()
    assert (result.timing, result.kernels) == (False, ())
    assert any("without timing" in note for note in result.notes)
    assert not any("L2" in note for note in result.notes)
    for name in ("cycles", "time_us"):
        with pytest.raises(ConfigError, match=f"{name} is not known, .* timing=False; .* ask `estimate`"):
            getattr(result, name)


def test_a_result_without_timing_pickles():
    result, again = small_result(), pickle.loads(pickle.dumps(small_result()))
    assert again.grad_input.tobytes() == result.grad_input.tobytes()
    assert (again.timing, again.notes) == (False, result.notes)


def test_an_order_without_a_meaning_is_refused_without_timing_too():
    with pytest.raises(ConfigError, match="order is 'backwards'; it must be"):
        small_result(order="backwards")


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_gradient_that_is_a_matrix_product_lies_without_gaps(dtype):
    # One placement of the kernel; rows of 5 columns come out of panels that are longer.
    grad_output, big, weight = (np.ones(shape, dtype) for shape in ((3, 4, 1), (3, 1, 5), (4, 1, 5)))
    rest = (4,), [1], [0], [1], False, [0], 1, (True, True, False), 0
    made = convolution_backward(grad_output, big, weight, *rest, product="910B2", timing=False)
    assert made.grad_input.flags.c_contiguous
    assert made.grad_weight.flags.c_contiguous
