"""Are several groups computed as one as the operators do, with the bits of the ordered definition?"""

from dataclasses import replace

import numpy as np
import pytest

from ascendsim import convolution_backward, estimate, legal_tilings
from ascendsim.errors import ProgramError
from ascendsim.instructions.cube import Mmad
from ascendsim.ops.gradients.call import Gradients
from ascendsim.ops.lowering.kernels import lower
from ascendsim.ops.plan import Plan
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.reference.call import reference_gradients
from ascendsim.ops.tiling.request import PlanRequest
from ascendsim.ops.tiling.vendor.names import from_vendor, to_vendor
from ascendsim.profile import load_profile
from tests.helpers.both_engines import time_kernel
from tests.helpers.conv_cases import assert_same_bits, call_of, run, tensors_of
from tests.helpers.slow_tilings import operators_plan

PRODUCTS = {name: load_profile(name) for name in ("910B2", "950PR_9589", "310P3")}
ONLY_INPUT, BOTH = (True, False, False), (True, True, False)
DEPTHWISE = ConvProblem((2, 32, 5, 6), (32, 1, 3, 3), padding=1, groups=32)
# Depthwise; 24 groups of which the last 8 make a merged group of their own; channels that fill nothing, with
# stride and dilation; transposed; three dimensions, in two merged groups and in one.
PROBLEMS = [
    DEPTHWISE,
    ConvProblem((1, 24, 6, 5), (48, 1, 3, 3), 2, 1, groups=24),
    ConvProblem((2, 15, 6, 7), (10, 3, 2, 3), 1, 0, (2, 1), groups=5),
    ConvProblem((1, 20, 4, 5), (20, 2, 3, 3), 2, 1, transposed=True, groups=20),
    ConvProblem((1, 18, 3, 5, 4), (18, 1, 2, 3, 3), 1, 1, groups=18),
    ConvProblem((1, 16, 3, 5, 4), (24, 4, 2, 3, 3), (1, 2, 1), 1, groups=4),
]


def planned(problem, product, dtype="float16", **options):
    return call_of(problem, dtype, profile=PRODUCTS[product], **options)


def apart(call):
    """The call with every group by itself."""
    merge = {"group_merge": 1}
    plans = call_of(call.problem, call.compute_dtype, profile=call.profile, tilings=_partial(merge)).plans
    return replace(call, plans=plans)


def _partial(fields):
    from ascendsim.ops.tiling.given import tilings_given

    gradients = ("grad_input", "grad_weight")
    return tilings_given(dict.fromkeys(gradients, fields), gradients)


# --- how many


@pytest.mark.parametrize(
    ("problem", "product", "dtype", "expected"),
    [
        # Groups of 1 channel: 16 fill a fractal of outputs, whatever C0 of the inputs is.
        (DEPTHWISE, "910B2", "float16", (16, 16)),
        (DEPTHWISE, "910B2", "float32", (16, 16)),
        (DEPTHWISE, "310P3", "float16", (16, 16)),
        (DEPTHWISE, "950PR_9589", "bfloat16", (16, 16)),
        # 8 channels in float32 are one C0, which grad_weight does not go by: 16 make a fractal.
        (ConvProblem((1, 64, 4, 4), (128, 8, 1, 1), groups=8), "910B2", "float32", (1, 2)),
        # 11 x 11 taps: the weights of 16 groups take 2 x 121 x 16 x 16 x 2 + 256 bytes, half of UB; with
        # 16 x 16 taps they take 256 KiB, which it has not. grad_weight has at most 256 columns, not 16 x 121.
        (ConvProblem((1, 32, 16, 16), (32, 1, 11, 11), groups=32), "950PR_9589", "float16", (16, 1)),
        (ConvProblem((1, 32, 16, 16), (32, 1, 16, 16), groups=32), "950PR_9589", "float16", (1, 1)),
        (ConvProblem((1, 32, 16, 16), (32, 1, 16, 16), groups=32), "910B2", "float16", (16, 16)),
        (ConvProblem((1, 32, 4, 4), (32, 16, 1, 1), groups=2), "910B2", "float16", (1, 1)),
        (ConvProblem((1, 32, 4, 4), (32, 32, 1, 1)), "910B2", "float16", (1, 1)),
        # The grad_input of a transposed convolution is a forward one, of which nothing is known on 910_95; 16
        # groups of 2 channels under 9 taps are 288 columns.
        (PROBLEMS[3], "950PR_9589", "float16", (1, 1)),
        (
            ConvProblem((1, 32, 4, 4), (32, 2, 2, 2), transposed=True, groups=32),
            "950PR_9589",
            "float16",
            (1, 16),
        ),
        (PROBLEMS[3], "910B2", "float16", (16, 16)),
        # 600 whole channels of one group do not fit in half of UB.
        (ConvProblem((1, 1202, 4, 4), (1202, 601, 1, 1), groups=2), "910B2", "float16", (1, 1)),
    ],
)
def test_groups_are_merged_as_the_products_do(problem, product, dtype, expected):
    profile = PRODUCTS[product]
    gradients = ("grad_input", "grad_weight")
    assert tuple(PlanRequest(problem, name, dtype, profile).usual_merge for name in gradients) == expected
    call = planned(problem, product, dtype)
    assert tuple(call.merge_of(name) for name in gradients) == expected


# --- bits


def assert_as_defined(call, tensors, order):
    """Compare both ways of making the gradients with their definition, to the bit."""
    want = reference_gradients(call, **tensors, mask=BOTH)
    made, _ = run(call, tensors, order=order, mask=BOTH)
    gone = Gradients(call, tensors, "program").make(BOTH)
    for name, due in want.items():
        assert_same_bits(made[name], due, name)
        assert_same_bits(gone[name], due, name)


@pytest.mark.parametrize("data", ["wide", "special"])
@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_merged_groups_have_the_bits_of_the_definition(problem, product, data):
    call, tensors = planned(problem, product, deterministic=True), tensors_of(problem, "float16", data)
    assert_as_defined(call, tensors, 3)


@pytest.mark.parametrize("compute", [("float32", 0), ("float32", 1), ("bfloat16", 0)], ids=str)
@pytest.mark.parametrize("product", ["910B2", "950PR_9589"])
def test_other_formats_do_too(product, compute):
    dtype, cube_math_type = compute
    call = planned(PROBLEMS[1], product, dtype, cube_math_type=cube_math_type)
    tensors = tensors_of(PROBLEMS[1], dtype, "wide")
    assert_as_defined(call, tensors, "program")


@pytest.mark.parametrize("product", PRODUCTS)
def test_exact_sums_are_those_of_groups_apart(product):
    # Zeros add nothing to sums that lose nothing.
    call, tensors = planned(DEPTHWISE, product), tensors_of(DEPTHWISE, data="integers")
    made, _ = run(call, tensors, mask=BOTH)
    each, _ = run(apart(call), tensors, mask=BOTH)
    assert call.merge_of("grad_input") == 16
    assert apart(call).merge_of("grad_input") == 1
    for name in each:
        assert_same_bits(made[name], each[name], name)


def test_rounded_sums_of_depthwise_groups_are_those_of_groups_apart():
    # One channel of a group is one of the 16 of a tap's block; the model rounds each block once.
    call, tensors = planned(DEPTHWISE, "910B2"), tensors_of(DEPTHWISE, data="wide")
    made, _ = run(call, tensors, mask=ONLY_INPUT)
    each, _ = run(apart(call), tensors, mask=ONLY_INPUT)
    assert_same_bits(made["grad_input"], each["grad_input"])


def test_zeros_take_places_in_a_block_of_the_sum():
    # 16 groups of one channel, one tap. Apart, grad_input is the one product. Merged, it is one of 16 in the
    # reduction, which is alone in its block: no bit differs. What differs is what follows.
    problem = ConvProblem((1, 16, 1, 1), (16, 1, 1, 1), groups=16)
    call, tensors = planned(problem, "910B2"), tensors_of(problem)
    tensors["grad_output"][0, 3] = np.inf
    tensors["weight"][:] = 1
    tensors["grad_output"][0, 5] = -0.0
    made, _ = run(call, tensors, mask=BOTH)
    each, _ = run(apart(call), tensors, mask=BOTH)
    # 0 x Inf is NaN in each sum of the fifteen other groups, and nowhere if they are apart.
    assert np.isnan(made["grad_input"]).sum() == 15
    assert np.isposinf(made["grad_input"][0, 3])
    assert not np.isnan(each["grad_input"]).any()
    # -0 x 1 is -0, which the accumulator, begun at +0, never shows: merged or not.
    assert not np.signbit(each["grad_input"][0, 5]).any()
    # The blocks of grad_weight are dropped but for the diagonal: nothing of one group is seen in another.
    assert_same_bits(made["grad_weight"], each["grad_weight"])


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize(
    ("nest", "fields"), [("wgrad", {"batch_dim": 2, "k_dim": 2}), ("wgrad_shares", {"single_core_k": 16})]
)
def test_parts_that_are_added_begin_at_zero(product, nest, fields):
    # Where vector cores pick single groups out of the sums, these lie in a workspace of their kernel.
    problem = ConvProblem((2, 15, 6, 7), (10, 3, 2, 3), 1, 1, groups=5)
    made = tensors_of(problem, "float16")
    tensors = [made[name].astype(np.float16) for name in ("grad_output", "input", "weight")]
    rest = [10], 1, 1, 1, False, 0, 5, (False, True, False), 0
    # The documented rules have 910_95 add in one order, whatever is asked for.
    order = {"deterministic": False, "rules": "hardware"}
    options = {"product": product, "schedule": nest, "tiling": fields} | order
    timed, plain = (convolution_backward(*tensors, *rest, timing=t, **options) for t in (True, False))
    assert not np.isnan(plain.grad_weight).any()
    assert timed.grad_weight.tobytes() == plain.grad_weight.tobytes()


def test_an_infinite_weight_stays_in_its_own_group():
    # It stands in its own column, which only its group reads; grad_output of the other groups is multiplied
    # there by zeros, and its row meets zeros of grad_output only where they are given.
    problem = ConvProblem((1, 16, 1, 1), (16, 1, 1, 1), groups=16)
    call, tensors = planned(problem, "950PR_9589"), tensors_of(problem)
    tensors["weight"][4] = np.inf
    made, _ = run(call, tensors, mask=ONLY_INPUT)
    assert np.isinf(made["grad_input"]).ravel().nonzero()[0].tolist() == [4]
    assert not np.isnan(made["grad_input"]).any()


def test_a_result_says_so():
    rng = np.random.default_rng(1)
    problem, shape = DEPTHWISE, DEPTHWISE.grad_output
    tensors = [rng.standard_normal(s).astype(np.float16) for s in (shape, problem.input, problem.weight)]
    rest = [32], 1, 1, 1, False, 0, 32, (True, True, False), 0
    told = "grad_input takes 16 groups as one"
    options = {"product": "910B2"}
    assert any(note.startswith(told) for note in convolution_backward(*tensors, *rest, **options).notes)
    assert any(told in note for note in estimate(problem, output_mask=ONLY_INPUT, **options).notes)
    only_weight = estimate(problem, output_mask=(False, True, False), **options)
    assert not any("groups as one" in note for note in only_weight.notes)
    alone = estimate(problem, output_mask=ONLY_INPUT, tiling={"group_merge": 1}, **options)
    assert not any("groups as one" in note for note in alone.notes)


# --- cycles


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("problem", PROBLEMS[1:], ids=str)
def test_engines_agree_and_folded_cores_are_alike(problem, product):
    profile = PRODUCTS[product]
    for kernel in lower(planned(problem, product), BOTH).kernels:
        assert time_kernel(kernel, profile).cycles == time_kernel(kernel, profile, folded=False).cycles


@pytest.mark.parametrize("product", PRODUCTS)
def test_so_many_times_fewer_products_are_left(product):
    # 32 groups of one channel in two merged groups: each has the pixels, the reduction and the columns, in
    # fractals, that one group by itself has; apart, there are 16 times as many.
    call = planned(DEPTHWISE, product)
    few, many = (work_of(one) for one in (call, apart(call)))
    # 2 images of 30 pixels, 2 fractals each, and 9 taps of 16 channels.
    assert few["grad_input"] == 2 * 2 * 2 * 9
    # Apart, 32 groups. Four channels a tap (C04) are for layers that have no more in all groups together.
    assert many["grad_input"] == 32 * 2 * 2 * 9
    # Of grad_weight the plan of the 910_95 cuts 30 pixels into rows of 5, a fractal each.
    assert many["grad_weight"] == (6.4 if product == "950PR_9589" else 16) * few["grad_weight"]


def work_of(call):
    """Return the fractal products (16 x 16 x 16) of each gradient's Mmads."""
    found = {}
    for kernel in lower(call, BOTH).kernels:
        steps = [step for phase in kernel.phases for work in phase.work for step in expanded(work)]
        mmads = [step for step in steps if isinstance(step, Mmad)]
        if mmads:
            found[kernel.name] = sum(-(-s.m // 16) * -(-s.k // 16) * -(-s.n // 16) for s in mmads)
    return found


def expanded(work):
    program = work.build()
    return list(program.expanded())


@pytest.mark.parametrize("product", ["910B2", "950PR_9589"])
def test_a_wait_too_few_is_found(product):
    # Without the waits of a read after a write, a legal order reads a tile before anything has filled it.
    problem = ConvProblem((2, 48, 14, 14), (48, 1, 3, 3), padding=1, groups=48)
    call, tensors = planned(problem, product), tensors_of(problem)
    schedule = call.schedule("grad_input")
    broken = replace(schedule, hazards=schedule.hazards - {"RAW"})
    bad = {phase.name: phase for phase in broken.phases()}

    def without(kernel):
        if kernel.name != "grad_input":
            return kernel
        return replace(kernel, phases=tuple(bad.get(phase.name, phase) for phase in kernel.phases))

    with pytest.raises(ProgramError, match="a wait is missing"):
        run(call, tensors, 1, ONLY_INPUT, without)


@pytest.mark.parametrize("product", PRODUCTS)
def test_weights_on_the_diagonal_are_work_of_vector_cores(product):
    kernels = {kernel.name: kernel for kernel in lower(planned(DEPTHWISE, product), BOTH).kernels}
    if product == "950PR_9589":
        phases = [phase.name for phase in kernels["grad_input"].phases]
        assert phases == ["diagonal weights", "compute"]
        assert [phase.name for phase in kernels["grad_weight"].phases][-1] == "diagonal blocks"
        assert {work.core.kind for work in kernels["grad_input"].phases[0].work} == {"vector"}
    else:
        assert {"transdata_weight", "transdata_grad_weight"} <= set(kernels)


# --- plans


@pytest.mark.parametrize("gradient", ["grad_input", "grad_weight"])
def test_legal_tilings_are_of_the_merged_product(gradient):
    found = legal_tilings(DEPTHWISE, gradient, "950PR_9589").sample(3)
    assert {tiling.group_merge for tiling in found} == {16}
    for tiling in found:
        assert tiling in legal_tilings(DEPTHWISE, gradient, "950PR_9589")
        assert replace(tiling, group_merge=1) not in legal_tilings(DEPTHWISE, gradient, "950PR_9589")
    call = planned(DEPTHWISE, "950PR_9589", tilings={gradient: found[0]})
    assert call.merge_of(gradient) == 16


def test_the_operators_rules_plan_for_a_number_that_is_given():
    # Groups of one channel, 16 or 4 of them as one, or each alone: a fractal of rows in any case.
    plans = [
        operators_plan(DEPTHWISE, "grad_weight", "float16", PRODUCTS["950PR_9589"], group_merge=merge)
        for merge in (0, 4, 1)
    ]
    assert [plan.group_merge for plan in plans] == [16, 4, 1]
    assert [plan.base_m for plan in plans] == [16, 16, 16]


def test_a_plan_says_how_many_and_is_read_back():
    plan = planned(DEPTHWISE, "950PR_9589").plans["grad_input"]
    assert plan.to_dict()["group_merge"] == 16
    assert Plan.from_dict(plan.to_dict()) == plan


def test_the_vendors_name_of_it_is_read_and_written():
    # The entries of its tuning files are of the nest that deals shares, for grad_input of 910_95.
    entry = {"baseM": 512, "baseN": 16, "baseK": 144, "enlarge": 8}
    partial = from_vendor("grad_input", entry)
    assert partial.fields["group_merge"] == 8
    call = planned(DEPTHWISE, "950PR_9589", tilings={"grad_input": partial})
    assert call.merge_of("grad_input") == 8
    assert to_vendor("grad_input", call.plans["grad_input"])["enlarge"] == 8


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("merge", [1, 2, 5])
def test_any_number_may_be_given(product, merge):
    problem = ConvProblem((1, 6, 4, 4), (12, 1, 3, 3), padding=1, groups=6)
    call = planned(problem, product, tilings=_partial({"group_merge": merge}))
    tensors = tensors_of(problem, data="wide")
    assert [call.merge_of(name) for name in call.plans] == [merge, merge]
    want, (made, _) = reference_gradients(call, **tensors, mask=BOTH), run(call, tensors, mask=BOTH)
    for name, due in want.items():
        assert_same_bits(made[name], due, name)


@pytest.mark.parametrize("gradient", ["grad_input", "grad_weight"])
def test_groups_too_wide_for_a_change_of_layout_stay_apart(gradient):
    # Two groups of 1000 channels fill 125 fractals. But what changes layouts takes 16 whole channels of a
    # group, 1000 x 16 x 32 bytes, which are more than half of UB.
    wide = ConvProblem((1, 2000, 2, 8, 8), (2000, 1000, 1, 1, 1), groups=2)
    assert operators_plan(wide, gradient, "float16", PRODUCTS["910B2"]).group_merge == 2
    assert planned(wide, "910B2").plans[gradient].tiling.group_merge == 1
