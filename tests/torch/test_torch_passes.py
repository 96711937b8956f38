"""Is a forward the convolution that torch means, with the bits of the kernel that makes it?"""

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ascendsim import ConvProblem, estimate
from ascendsim.errors import AscendSimError, ConfigError, UnsupportedError
from ascendsim.numerics.formats.casts import decode, encode, round_to
from tests.helpers.call_strategy import problems
from tests.helpers.conv_cases import assert_same_bits
from tests.helpers.operator_calls import ApiCall
from tests.helpers.torch_samples import attributes, door, ones_and_zeros, torch

run_forward, run_backward, mirrored = door.passes.run_forward, door.passes.run_backward, door.passes.mirrored
Setting = door.Setting
QUICK = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
USUAL_SETTING = Setting("910B")


@QUICK
@given(problem=problems(), kind=st.sampled_from(("float32", "float16", "bfloat16")), biased=st.booleans())
def test_a_forward_is_torchs_convolution(problem, kind, biased):
    # Of -1, 0 and 1 every product and partial sum is exact: only the last rounding, to the format of the
    # output, is left, and that is torch's too. A bias is added to what has been rounded; it stays in float32.
    assume(len(np.atleast_1d(problem.padding)) <= problem.rank)
    x, w = ones_and_zeros(problem.input), ones_and_zeros(problem.weight, 1)
    b = ones_and_zeros((problem.grad_output[1],), 2) if biased and kind == "float32" else None
    exact = torch.ops.aten.convolution(
        *(torch.from_numpy(a).double() for a in (x, w)),
        None if b is None else torch.from_numpy(b).double(),
        *attributes(problem),
    )
    result = run_forward(problem, encode(x, kind), encode(w, kind), b, USUAL_SETTING)
    assert_same_bits(
        decode(result.grad_input, kind), round_to(exact.numpy().astype(np.float32) + np.float32(0), kind)
    )


@QUICK
@given(problem=problems())
def test_the_mirror_of_a_mirror_is_the_convolution(problem):
    other = mirrored(problem)
    assert (other.grad_output, other.input) == (problem.input, problem.grad_output)
    assert other.transposed is not problem.transposed
    back = mirrored(other)
    assert (back.input, back.weight, back.grad_output) == (problem.input, problem.weight, problem.grad_output)


@pytest.mark.parametrize("cube_math_type", [0, 1, 2])
@pytest.mark.parametrize("transposed", [False, True])
def test_the_bits_of_a_forward_are_those_by_definition(cube_math_type, transposed):
    problem = ConvProblem(
        (2, 6, 7, 5), (6, 6, 3, 2) if transposed else (4, 3, 3, 2), 2, 1, 1, transposed, 0, 2
    )
    case = ApiCall(mirrored(problem), ("float32",) * 3, cube_math_type, mask=(True, False, False), seed=5)
    x, _, w = case.arrays()
    result = run_forward(problem, x, w, None, Setting("910B", cube_math_type))
    assert_same_bits(result.grad_input, case.reference()[0])


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        # HF32 keeps 11 mantissa bits here: 1 + 2**-13 is a quarter of a step above 1.
        (Setting("910B", 0), 1 + 2**-13, 1 + 2**-13),
        (Setting("910B", 3), 1 + 2**-13, 1.0),
        # float16 has 10: 1 + 2**-12 is a quarter of a step, 1 + 3 * 2**-12 three quarters.
        (Setting("910B", 2), 1 + 2**-12, 1.0),
        (Setting("910B", operands="float16"), 1 + 3 * 2**-12, 1 + 2**-10),
        # hifloat8 has 3 around 1, and halves go away from zero: 1.0625 lies between 1 and 1.125.
        (Setting("910_95", operands="hifloat8", rules="hardware"), 1.0625, 1.125),
        # float8_e4m3fn has 3 as well, and halves go to the even one.
        (Setting("910_95", operands="float8_e4m3fn", rules="hardware"), 1.0625, 1.0),
    ],
    ids=["float32", "hf32", "use-fp16", "float16", "hifloat8", "float8"],
)
def test_the_cubes_rounding_is_seen_in_both_passes(setting, value, expected):
    # One pixel, one channel, weight 1: output and grad_weight are the input as the cube multiplies it.
    problem = ConvProblem((1, 1, 1, 1), (1, 1, 1, 1))
    x, one = np.full((1, 1, 1, 1), value, np.float32), np.ones((1, 1, 1, 1), np.float32)
    forward = run_forward(problem, x, one, None, setting)
    backward = run_backward(problem, one, x, one, (True, True, True), setting)
    assert forward.grad_input.dtype == backward.grad_weight.dtype == np.float32
    assert forward.grad_input.item() == backward.grad_weight.item() == expected
    # grad_bias is no product of the cube: it sums grad_output as it is.
    again = run_backward(problem, x, one, one, (True, True, True), setting)
    assert again.grad_input.item() == expected
    assert again.grad_bias.item() == value


@pytest.mark.parametrize(
    ("product", "bias", "expected"),
    [
        (2048, 3, 2052),  # 2051 lies between 2050 and 2052, whose last bit is 0
        (2048, 1, 2048),  # likewise
        (2049, 1, 2048),  # rounded before, to 2048: two roundings, 2050 would be exact
    ],
)
def test_a_bias_is_added_after_the_rounding_of_a_16_bit_product(product, bias, expected):
    # Three channels whose products sum to `product`: 1024 + 1024 + 0 or 1.
    x = np.array([1024, 1024, product - 2048], np.float16).reshape(1, 3, 1)
    w = np.ones((1, 3, 1), np.float16)
    result = run_forward(ConvProblem((1, 3, 1), (1, 3, 1)), x, w, np.array([bias], np.float32), USUAL_SETTING)
    assert result.grad_input.dtype == np.float16
    assert result.grad_input.item() == expected


@pytest.mark.parametrize(("product", "expected"), [("910B", np.inf), ("310P", 65504.0)])
def test_operands_beyond_a_format_go_where_the_products_casts_send_them(product, expected):
    # 1e5 is above float16: a Cast kernel of the 910B makes Inf of it, one of the 310P the largest value.
    x, one = np.full((1, 1, 1, 1), 1e5, np.float32), np.ones((1, 1, 1, 1), np.float32)
    setting = Setting(product, operands="float16")
    result = run_forward(ConvProblem((1, 1, 1, 1), (1, 1, 1, 1)), x, one, None, setting)
    assert result.grad_input.item() == expected


def test_a_pass_costs_what_its_calls_cost():
    problem = ConvProblem((2, 16, 8, 8), (16, 16, 3, 3), 1, 1)
    forward = door.passes.costs(
        door.passes.forward_parts(problem, ("float16", "float16"), USUAL_SETTING), USUAL_SETTING
    )
    assert forward == estimate(mirrored(problem), "float16", output_mask=(True, False, False), product="910B")
    mask, setting = (True, True, True), Setting("910B", operands="float16")
    both = door.passes.costs(door.passes.backward_parts(problem, ("float32",) * 3, mask, setting), setting)
    # The products on float16 operands with grad_weight in float32 as the tensor is, and the sum in float32.
    products = estimate(
        problem,
        "float16",
        output_mask=(True, True, False),
        output_dtypes=(None, "float32", None),
        product="910B",
    )
    bias = estimate(problem, "float32", output_mask=(False, False, True), product="910B")
    made = [kernel.name for kernel in both.kernels if kernel.kernel.op_type != "TransData"]
    assert made == ["grad_input", "memset_grad_weight", "grad_weight", "grad_bias"]
    assert both.cycles == products.cycles + bias.cycles


def test_a_setting_has_plans_of_gradients_that_some_layers_do_not_need():
    # The first layer of a network has no grad_input; a call of its own would refuse the plan of it.
    problem, kinds = ConvProblem((1, 16, 6, 6), (16, 16, 3, 3), 1, 1), ("float16",) * 3
    plans = {"grad_input": {"base_m": 16}, "grad_weight": {"base_m": 16}}
    setting = Setting("910B", tiling=plans, schedule={"grad_input": "dgrad"})
    mask = (False, True, False)
    passed = door.passes.backward_parts(problem, kinds, mask, setting)
    found = door.passes.costs(passed, setting)
    assert {name: plan.tiling.base_m for name, plan in found.plans.items()} == {"grad_weight": 16}
    x, w, dy = (ones_and_zeros(shape) for shape in (problem.input, problem.weight, problem.grad_output))
    made = door.passes.run(passed[0], *(encode(each, "float16") for each in (dy, x, w)), setting)
    assert (made.grad_input, made.grad_weight.shape) == (None, problem.weight)


def test_an_output_padding_that_no_kernel_leaves_over_is_refused():
    # torch takes output_padding below the stride or the dilation; a forward kernel reaches the last pixels.
    problem = ConvProblem((1, 1, 4), (1, 1, 2), 1, 0, 2, True, 1)
    with pytest.raises(UnsupportedError, match="output_padding below the stride"):
        mirrored(problem)


@pytest.mark.parametrize(
    ("keywords", "kind"),
    [
        ({"operands": "hf32_11"}, UnsupportedError),
        ({"operands": "float7"}, UnsupportedError),
        ({"cube_math_type": "1"}, ConfigError),
        ({"output_dtypes": ("float32",) * 3}, ConfigError),
        ({"output_strides": {"grad_bias": (2,)}}, ConfigError),
        ({"product": "910C"}, ConfigError),
        ({"rules": "none"}, ConfigError),
        ({"accumulation": 5}, ConfigError),
        ({"accumulate": "seq:RNE"}, TypeError),
    ],
)
def test_a_setting_without_a_meaning_is_refused_when_it_is_made(keywords, kind):
    with pytest.raises(kind) as caught:
        Setting(**keywords)
    assert kind is TypeError or isinstance(caught.value, AscendSimError)


def test_a_setting_with_some_keywords_changed_keeps_the_others():
    setting = Setting("910B", 3, accumulation="seq:RNE").but(cube_math_type=0, deterministic=True)
    assert (setting.cube_math_type, setting.operands) == (0, None)
    assert setting.options == {"accumulation": "seq:RNE", "deterministic": True}
    assert setting.product.variant == Setting("910B").product.variant
    words = "product='910B2', cube_math_type=0, accumulation='seq:RNE', deterministic=True"
    assert repr(setting) == f"Setting({words})"
