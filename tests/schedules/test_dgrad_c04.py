"""Is a grad_input of few channels computed with four of them a tap, with the bits of its order?"""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from ascendsim.cube.loads import Im2col, TapRows, Window
from ascendsim.errors import ConfigError
from ascendsim.ops.gradients.call import Gradients
from ascendsim.ops.lowering.known import lower
from ascendsim.ops.plan import Plan, Tiling
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.reference.call import any_dgrad, reference_gradients
from ascendsim.ops.reference.ordered import reduction_of
from ascendsim.profile import load_profile
from tests.helpers.both_engines import time_kernel
from tests.helpers.conv_cases import assert_same_bits, call_of, run, tensors_of
from tests.helpers.hazards import assert_each_class_is_missed, outcomes_of
from tests.helpers.requests import chosen_plan
from tests.helpers.strict_memory import assert_as_declared
from tests.helpers.toy_profiles import toy_split

TOY = toy_split(**{"cores.cube": 5, "cores.vector": 10, "buffers.L1.capacity_bytes": 65536})
NEW = load_profile("950PR_9589")
ONLY_INPUT = (True, False, False)
# Slices of 4 and of 8 taps of 4 channels; tasks of 32 pixels by 16 channels.
IN_TURN = Tiling(
    *(16, 16, 16, 9, 9), used_cores=4, single_core_m=32, mapping="interleaved", task_order="batch group d m n"
)
PROBLEMS = {
    "three channels": ConvProblem((2, 20, 8, 9), (3, 20, 3, 3), 1, 1),
    "one channel": ConvProblem((1, 40, 7, 6), (1, 40, 3, 3), 1, 1),
    "four channels": ConvProblem((1, 16, 6, 10), (4, 16, 2, 4), 1, 0),
    "one tap": ConvProblem((3, 16, 5, 5), (2, 16, 1, 1)),
    "groups": ConvProblem((2, 32, 6, 6), (6, 16, 3, 3), 1, 1, groups=2),
    "depth": ConvProblem((1, 16, 3, 6, 5), (3, 16, 2, 3, 3), 1, (0, 1, 1)),
}


def planned(problem, tiling=IN_TURN, profile=TOY, dtype="float16", **options):
    """A call whose grad_input takes four channels a tap."""
    call = call_of(problem, dtype, profile=profile, **options)
    return replace(call, plans=call.plans | {"grad_input": Plan("dgrad_c04", tiling)})


def kernel_of(problem, **options):
    nodes = lower(planned(problem, **options), ONLY_INPUT).kernels
    return next(node for node in nodes if node.name == "grad_input")


def instructions(kernel):
    return Counter(
        type(step).__name__
        for phase in kernel.phases
        for work in phase.work
        for step in work.build().instructions
    )


@pytest.mark.parametrize("base_k", [16, 32])
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_bits_are_those_of_its_order(name, base_k):
    call = planned(PROBLEMS[name], replace(IN_TURN, base_k=base_k))
    tensors = tensors_of(PROBLEMS[name], data="wide")
    made, _ = run(call, tensors, 3, ONLY_INPUT)
    want = reference_gradients(call, **tensors, mask=ONLY_INPUT)
    assert_same_bits(made["grad_input"], want["grad_input"])


@pytest.mark.parametrize("name", PROBLEMS)
def test_gradients_without_instructions_have_the_same_bits(name):
    call, tensors = planned(PROBLEMS[name]), tensors_of(PROBLEMS[name], data="special")
    without = Gradients(call, tensors, "program")
    assert without.possible(ONLY_INPUT) == ONLY_INPUT
    want = reference_gradients(call, **tensors, mask=ONLY_INPUT)
    assert_same_bits(without.make(ONLY_INPUT)["grad_input"], want["grad_input"])


def test_a_block_of_the_reduction_holds_four_taps_and_not_one():
    # The same numbers in the same order, of which an accumulation model takes 16 at a time: sums differ.
    problem = PROBLEMS["three channels"]
    own, usual = planned(problem, replace(IN_TURN, base_k=32)), call_of(problem, profile=TOY)
    orders = [call.schedule("grad_input").order() for call in (own, usual)]
    # 9 taps in Mmads of 8 and 1, of which the last one has 4 products.
    assert (orders[0].c0, orders[0].slices) == (4, (8, 1))
    given = tensors_of(problem)
    reduce = reduction_of(own.accumulation, problem.macs)
    sums = [any_dgrad(problem, given["grad_output"], given["weight"], order, reduce) for order in orders]
    assert 0 < np.count_nonzero(sums[0] != sums[1]) < sums[0].size


def test_both_gradients_of_a_call_have_their_own_layout_of_grad_output():
    call = planned(PROBLEMS["three channels"])
    tensors = tensors_of(PROBLEMS["three channels"])
    made, _ = run(call, tensors, mask=(True, True, False))
    want = reference_gradients(call, **tensors, mask=(True, True, False))
    for gradient in ("grad_input", "grad_weight"):
        assert_same_bits(made[gradient], want[gradient])


def test_the_product_takes_it_for_few_channels_and_needs_fewer_products():
    problem = ConvProblem((1, 64, 32, 32), (3, 64, 3, 3), 1, 1)
    plan = chosen_plan(problem, "grad_input", "float16", NEW)
    assert (plan.schedule, plan.chosen_by, plan.instead) == ("dgrad_c04", "product", "")
    # 9 taps of 4 channels are 36 products, 48 in whole fractals: one Mmad for each base block.
    assert plan.tiling.base_k == 48
    made = instructions(kernel_of(problem, tiling=plan.tiling, profile=NEW))
    blocks = 1024 // plan.tiling.base_m * (64 // plan.tiling.base_n)
    assert made["Mmad"] == made["LoadL0A"] == made["LoadL0B"] == made["Fixpipe"] == blocks
    # Wide operands, strides and more channels are not for it.
    for other, dtype in ((problem, "float32"), (replace(problem, weight=(5, 64, 3, 3)), "float16")):
        assert chosen_plan(other, "grad_input", dtype, NEW).schedule == "dgrad_shares"


def test_four_taps_of_four_channels_take_the_cycles_of_one_of_sixteen():
    # 32 pixels of one row: two fractals for each 32 bytes of the reduction.
    few, many = (
        Im2col(Window(1, 4, 40, 0, 0, 32, (2, 2), (1, 1), (1, 1), c0), 0, 32, 0, pairs, 2)
        for c0, pairs in ((4, 4), (16, 1))
    )
    assert few.cycles(NEW, "L0A") == many.cycles(NEW, "L0A")
    five = few._replace(groups=5)
    assert five.cycles(NEW, "L0A") == many._replace(groups=2).cycles(NEW, "L0A")
    # Weights lie in the order in which they are added: one command.
    taps = TapRows(9, True, 0, 9, 4, 16, 2)
    assert taps.load2d_commands(NEW) == 1
    assert taps.cycles(NEW, "L0B") == TapRows(9, True, 0, 3, 16, 16, 2).cycles(NEW, "L0B")


@pytest.mark.parametrize("name", ["three channels", "four channels", "depth"])
def test_every_instruction_touches_what_it_declares_and_fits_in_its_slot(name):
    assert_as_declared(planned(PROBLEMS[name]), tensors_of(PROBLEMS[name]), ONLY_INPUT)


def outcomes(hazards):
    """Return the different results of random orders with some classes of waits; a failure counts as one."""
    problem = PROBLEMS["three channels"]
    return outcomes_of(planned(problem), tensors_of(problem, data="integers"), hazards)


def test_a_missing_class_of_waits_is_found():
    assert_each_class_is_missed(outcomes)


@pytest.mark.parametrize("name", ["three channels", "groups", "depth"])
def test_engines_agree_and_folded_cores_are_alike(name):
    kernel = kernel_of(PROBLEMS[name])
    assert time_kernel(kernel, TOY).cycles == time_kernel(kernel, TOY, folded=False).cycles


@pytest.mark.parametrize(
    ("problem", "dtype", "profile", "why"),
    [
        (ConvProblem((1, 16, 6, 6), (5, 16, 3, 3), 1, 1), "float16", TOY, "grad_input of 5 channels"),
        (PROBLEMS["three channels"], "float32", TOY, "channels of 16 bits"),
        (ConvProblem((1, 16, 9, 9), (3, 16, 3, 3), 2, 1), "float16", TOY, "stride and dilation 1"),
        (ConvProblem((1, 16, 9, 9), (3, 16, 3, 3), 1, 1, 2), "float16", TOY, "stride and dilation 1"),
        (PROBLEMS["three channels"], "float16", load_profile("910B2"), "as they lie"),
    ],
)
def test_what_it_cannot_do_is_refused(problem, dtype, profile, why):
    with pytest.raises(ConfigError, match=why):
        planned(problem, profile=profile, dtype=dtype).schedule("grad_input")
