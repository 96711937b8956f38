"""Are parts of a reduction added in the order of the product, and what does a sum pass on its way out?"""

import numpy as np
import pytest

from ascendsim import ConvProblem, Plan, Tiling, convolution_backward, estimate, load_profile
from ascendsim.errors import ConfigError
from ascendsim.functional import run_kernel
from ascendsim.numerics.accumulation.models import AccumulationModel, MathSettings
from ascendsim.ops.reference.call import reference_gradients
from ascendsim.ops.reference.ordered import add_as_tree, add_in_order
from ascendsim.ops.schedules.vector.elementwise import ordered_sum, tree_sum
from ascendsim.program.kernel import Kernel, Phase
from ascendsim.program.places import GmTensor
from ascendsim.timing.kernel import time_kernel
from tests.helpers.conv_cases import assert_same_bits
from tests.helpers.operator_calls import ApiCall, as_carrier, check_against_reference, names
from tests.helpers.toy_profiles import toy_split, toy_unified

PRODUCTS = ("910B", "910_93", "910_95", "310P", "910")


# Sums of parts


@pytest.mark.parametrize("count", range(2, 10))
@pytest.mark.parametrize("profile", [toy_split(), toy_unified()], ids=["split", "unified"])
def test_parts_are_added_as_the_tree_says(count, profile):
    rng = np.random.default_rng(count)
    parts = np.ldexp(rng.standard_normal((count, 333)), rng.integers(-12, 12, (count, 333))).astype(
        np.float32
    )
    assert_same_bits(summed(parts, tree_sum, profile), add_as_tree(parts))
    assert_same_bits(summed(parts, ordered_sum, profile), add_in_order(parts))


def summed(parts, make, profile, target="float32"):
    source = GmTensor.of("parts", parts.shape, "float32", "workspace")
    made = GmTensor.of("sum", parts.shape[1:], target, "output")
    phases = make(profile, source, made)
    phases = (phases,) if isinstance(phases, Phase) else phases
    math = MathSettings(AccumulationModel("exact"))
    kernel = Kernel("sum", phases, {"parts": source, "sum": made}, math)
    gm = {"parts": parts.copy()}
    run_kernel(kernel, gm, order=11)
    assert time_kernel(kernel, profile).cycles == time_kernel(kernel, profile, folded=False).cycles
    return gm["sum"]


def test_a_tree_of_five_doubles_its_stride():
    # ((1 + 2) + (3 + 4)) + 5 with numbers that show every step: 2**24 swallows a single 1.
    big = 2.0**24
    parts = np.array([[big], [1.0], [1.0], [-big], [1.0]], np.float32)
    # (big + 1) = big; (1 - big) = 1 - big exactly; big + (1 - big) = 1; 1 + 1 = 2. In order: 0 + 1 = 1.
    assert summed(parts, tree_sum, toy_split()).item() == 2.0
    assert summed(parts, ordered_sum, toy_split()).item() == 1.0


def test_rounds_of_a_tree_are_phases():
    source = GmTensor.of("parts", (6, 100), "float32", "workspace")
    phases = tree_sum(toy_split(), source, GmTensor.of("sum", (100,), "float32", "output"))
    assert [phase.name for phase in phases] == [f"tree sum, stride {stride}" for stride in (1, 2, 4)]


SPLIT_PLAN = Tiling(16, 16, 16, k_split=4, used_cores=4)
LONG = ConvProblem((1, 2, 9, 9), (3, 2, 3, 3), 1, 1)


ATOMIC, TREE = ["zero fill", "compute"], ["compute", "tree sum, stride 1", "tree sum, stride 2"]


@pytest.mark.parametrize(
    ("product", "rules", "deterministic", "phases"),
    [
        ("910B", "documented", True, ["compute", "ordered sum"]),
        ("910B", "documented", False, ATOMIC),
        ("910B", "documented", None, ATOMIC),  # a switch, off unless somebody sets it
        *(("910_95", "documented", switch, TREE) for switch in (None, False, True)),  # one order in any case
        ("910_95", "shipped", None, TREE),  # deterministic by default
        ("910_95", "shipped", False, ATOMIC),
        ("910_95", "hardware", False, ATOMIC),
    ],
)
def test_each_generation_adds_parts_its_own_way(product, rules, deterministic, phases):
    case = ApiCall(LONG, product=product, deterministic=deterministic, mask=(False, True, False))
    arrays = case.arrays()
    result = convolution_backward(
        *arrays,
        [3],
        *case.attributes,
        case.mask,
        0,
        tiling=SPLIT_PLAN,
        product=product,
        rules=rules,
        deterministic=deterministic,
    )
    [kernel] = [kernel.kernel for kernel in result.kernels if kernel.plan]
    assert [phase.name for phase in kernel.phases] == phases
    ignored = (rules, product, deterministic) == ("documented", "910_95", False)
    assert any("deterministic changes nothing" in note for note in result.notes) == ignored


def test_the_page_leaves_the_switch_off_whatever_a_products_figures_say():
    # A 910B that is deterministic by default: page 000 has the switch off, the operator follows the product.
    mine = load_profile("910B", {"deterministic_default": True})
    case = ConvProblem((1, 2, 9, 9), (3, 2, 3, 3), 1, 1)
    for rules, phases in (("documented", ATOMIC), ("shipped", ["compute", "ordered sum"])):
        mask = (False, True, False)
        made = estimate(case, product=mine, tiling=SPLIT_PLAN, output_mask=mask, rules=rules)
        [kernel] = [kernel.kernel for kernel in made.kernels if kernel.plan]
        assert [phase.name for phase in kernel.phases] == phases


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("deterministic", [False, True])
def test_parts_add_up_to_the_reference(product, deterministic):
    problem = ConvProblem((3, 3, 17, 16), (5, 3, 3, 3), 1, 1)
    check_against_reference(ApiCall(problem, product=product, deterministic=deterministic))


# The reduction of grad_input in parts


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
@pytest.mark.parametrize("order", ["program", "arrival", 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_grad_input_in_parts_is_added_in_order(dtype, order, transposed):
    problem = ConvProblem((1, 40, 5, 4), (40, 40, 2, 3), transposed=transposed)
    plan = Tiling(16, 16, 48, k_split=3, used_cores=2)
    case = ApiCall(problem, (dtype,) * 3, order=order, mask=(True, False, False))
    call = case.resolved()
    call.plans["grad_input"] = Plan("dgrad", plan)
    given = dict(zip(("grad_output", "input", "weight"), case.carriers(), strict=True))
    want = reference_gradients(call, **given, mask=case.mask)["grad_input"]
    result = convolution_backward(
        *case.arrays(), None, *case.attributes, case.mask, 0, tiling=plan, order=order
    )
    assert_same_bits(as_carrier(result.grad_input), want)
    [kernel] = [kernel.kernel for kernel in result.kernels if kernel.plan]
    phases = [phase.name for phase in kernel.phases]
    assert phases == ["zero fill", "compute"] + (["cast"] if dtype != "float32" else [])


def test_a_sum_of_parts_differs_from_one_sum():
    # One channel group of 16 each: 2**24, then -2**24, then 1: together 1 in any order of blocks that is
    # exact, but parts are added in float32 from the left: (2**24 + 1) - 2**24 = 0.
    grad_output = np.zeros((1, 48, 1, 1), np.float16)
    grad_output[0, [0, 16, 32], 0, 0] = 4096, 1, -4096
    weight = np.zeros((48, 1, 1, 1), np.float16)
    weight[[0, 16, 32], 0, 0, 0] = 4096, 1, 4096
    given = (grad_output, np.zeros((1, 1, 1, 1), np.float16), weight)
    options = {"accumulation": "exact:RNE"}

    def run(plan):
        result = convolution_backward(
            *given, None, 1, 0, 1, False, 0, 1, (True, False, False), 0, tiling=plan, **options
        )
        return result.grad_input.item()

    assert run(Tiling(16, 16, 48)) == 1.0
    assert run(Tiling(16, 16, 48, k_split=3)) == 0.0


def test_more_parts_than_channels_are_refused():
    case = ApiCall(ConvProblem((1, 3, 4, 4), (3, 3, 1, 1)), mask=(True, False, False))
    with pytest.raises(ConfigError, match="k_split is 2, but the reduction has 1 groups of 16 channels"):
        convolution_backward(
            *case.arrays(), None, *case.attributes, case.mask, 0, tiling=Tiling(16, 16, 16, k_split=2)
        )


# Grouped grad_weight on its way out


GROUPED = ConvProblem((1, 4, 5, 5), (4, 2, 3, 3), 1, 1, groups=2)


@pytest.mark.parametrize(
    ("product", "dtype", "grad_weight", "groups", "cube_math_type", "squeezed"),
    [
        ("910B", "float16", "float32", 2, 0, True),
        ("910_93", "bfloat16", "float32", 2, 0, True),
        ("310P", "float16", "float32", 2, 0, True),
        ("910B", "float32", "float32", 2, 2, True),  # the cube reads halves, C0 is 16
        ("910B", "float32", "float32", 2, 1, False),  # C0 is 8
        ("910B", "float16", "float16", 2, 0, False),
        ("910B", "float16", "float32", 1, 0, False),
        ("910_95", "float16", "float32", 2, 0, False),
    ],
)
def test_a_grouped_float32_grad_weight_loses_bits_before_950(
    product, dtype, grad_weight, groups, cube_math_type, squeezed
):
    problem = GROUPED if groups == 2 else ConvProblem((1, 4, 5, 5), (4, 4, 3, 3), 1, 1)
    case = ApiCall(
        problem,
        (dtype,) * 3,
        cube_math_type,
        product,
        output_dtypes=(None, grad_weight, None),
        rules="documented",
    )
    result = check_against_reference(case)
    kernels = names(result)
    assert ("squeeze_grad_weight" in kernels) is squeezed
    values = result.grad_weight
    through_half = np.array_equal(values.astype(np.float16).astype(np.float32), values)
    if grad_weight == "float32":
        assert through_half is squeezed  # sums of 25 random products are hardly ever halves
    if squeezed:
        assert kernels[-2:] == ["squeeze_grad_weight", "cast_grad_weight"]
