"""Is what is remembered of how gradients are made what would be found anew, and of another call another?"""

from dataclasses import replace

import pytest

from ascendsim import ConvProblem
from ascendsim.ops.gradients import followed as memory
from ascendsim.ops.gradients.followed import followed
from ascendsim.ops.gradients.orders import can_follow
from ascendsim.ops.plan import Plan
from ascendsim.ops.schedules import Dgrad
from tests.helpers.conv_cases import call_of, split

PROBLEM = ConvProblem((2, 20, 7, 6), (19, 20, 3, 3), padding=1)
BOTH = ("grad_input", "grad_weight")


class Own(Dgrad):
    """A schedule of the user's."""

    name = "own"


@pytest.fixture(autouse=True)
def _nothing_is_known():
    memory._remembered.cache_clear()


@pytest.mark.parametrize("order", ["program", "arrival", 3])
@pytest.mark.parametrize("gradient", BOTH)
def test_what_is_remembered_is_what_a_call_says(gradient, order):
    for call in (call_of(PROBLEM), split(call_of(PROBLEM), 2, 3), call_of(PROBLEM, deterministic=True)):
        schedule = call.schedule(gradient)
        for _ in range(2):
            found = followed(call, gradient, order)
            assert type(found.schedule) is type(schedule)
            assert (found.schedule.tiling, found.schedule.sums) == (schedule.tiling, schedule.sums)
            assert found.additions == schedule.order()
            assert found.possible == can_follow(call, gradient, schedule, order)
            assert found.math == call.math(gradient)


def test_an_equal_call_finds_the_same_schedule():
    first, again = (followed(call_of(PROBLEM), "grad_input", "program") for _ in range(2))
    assert again.schedule is first.schedule


def test_orders_of_execution_are_told_apart():
    # Parts that are added as they arrive can be followed in the order of the program alone.
    call = split(call_of(PROBLEM), 0, 3)
    assert followed(call, "grad_weight", "program").possible
    assert not followed(call, "grad_weight", "arrival").possible
    assert not followed(call, "grad_weight", 0).possible


def test_nothing_is_remembered_of_a_schedule_of_the_user():
    call = call_of(PROBLEM)
    call = replace(call, plans={**call.plans, "grad_input": Plan(Own, call.plans["grad_input"].tiling)})
    followed(call, "grad_input", "program")
    assert memory._remembered.cache_info().currsize == 0
