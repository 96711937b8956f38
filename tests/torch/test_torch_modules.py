"""Do the function and the modules take what torch's take, and compute what it means, both ways?"""

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ascendsim import ConvProblem, estimate
from ascendsim.errors import (
    AclnnError,
    AscendSimError,
    ConfigError,
    ShapeError,
    UnsupportedError,
    install_hint,
)
from ascendsim.numerics.casts import decode, encode, round_to
from tests.helpers.calls import (
    GRADIENTS,
    ApiCall,
    as_carrier,
    calls,
    gradients,
    on_the_cube,
    problems,
    with_changes,
)
from tests.helpers.conv_cases import assert_same_bits
from tests.helpers.torch_samples import (
    KINDS,
    attributes,
    bounds,
    door,
    normal,
    ones_and_zeros,
    same_bits,
    torch,
    torch_gradients,
)

# --- Do the function and the modules take what torch's take, and compute it on the simulator? ----------


@pytest.fixture
def seed():
    """Modules draw their weights alike in every run."""
    torch.manual_seed(0)


def whole(module):
    """Give a module parameters of -1, 0 and 1, so that every sum is exact, here and in torch."""
    for number, parameter in enumerate(module.parameters()):
        parameter.data = torch.from_numpy(ones_and_zeros(tuple(parameter.shape), number + 1))
    return module


def ran(module, x, *more):
    """The output, and the gradients of a sum of its squares by the input and by all parameters."""
    x = x.clone().requires_grad_()
    made = module(x, *more)
    made.square().sum().backward()
    return [made.detach(), x.grad, *(parameter.grad for parameter in module.parameters())]


# Name of the module, its arguments, spatial extents of the image.
CASES = [
    ("Conv1d", {"kernel_size": 3, "stride": 2, "padding": 1}, (9,)),
    ("Conv1d", {"kernel_size": 4, "padding": "same"}, (6,)),
    ("Conv2d", {"kernel_size": (3, 2), "dilation": (1, 2), "groups": 2, "bias": False}, (6, 5)),
    ("Conv2d", {"kernel_size": 3, "padding": "same", "dilation": 2}, (5, 4)),
    ("Conv2d", {"kernel_size": (2, 3), "padding": "same"}, (5, 4)),
    ("Conv2d", {"kernel_size": 3, "padding": "valid"}, (5, 4)),
    ("Conv2d", {"kernel_size": 3, "padding": (1, 2), "padding_mode": "circular"}, (5, 4)),
    ("Conv2d", {"kernel_size": 3, "padding": 1, "padding_mode": "reflect"}, (5, 4)),
    ("Conv3d", {"kernel_size": 2, "stride": (1, 2, 1), "padding": (0, 1, 0)}, (3, 4, 3)),
    ("ConvTranspose1d", {"kernel_size": 3, "stride": 2, "output_padding": 1}, (4,)),
    ("ConvTranspose2d", {"kernel_size": 3, "stride": 2, "padding": 1, "groups": 2}, (4, 3)),
    ("ConvTranspose3d", {"kernel_size": 2, "stride": 2, "bias": False}, (2, 2, 3)),
]


@pytest.mark.usefixtures("seed")
@pytest.mark.parametrize(("name", "arguments", "extents"), CASES)
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
def test_a_module_computes_what_torchs_does(name, arguments, extents):
    ours = whole(getattr(door, name)(2, 4, **arguments))
    theirs = whole(getattr(torch.nn, name)(2, 4, **arguments))
    x = torch.from_numpy(ones_and_zeros((2, 2, *extents)))
    made, expected = ran(ours, x), ran(theirs, x)
    assert len(made) == len(expected)
    assert all(torch.equal(a, b) for a, b in zip(made, expected, strict=True))


@pytest.mark.usefixtures("seed")
def test_a_transposed_module_takes_the_size_of_its_output():
    ours, theirs = (whole(kind.ConvTranspose2d(2, 2, 3, stride=2)) for kind in (door, torch.nn))
    x = torch.from_numpy(ones_and_zeros((1, 2, 3, 3)))
    made, expected = ran(ours, x, [8, 7]), ran(theirs, x, [8, 7])
    assert made[0].shape == (1, 2, 8, 7)
    assert all(torch.equal(a, b) for a, b in zip(made, expected, strict=True))


@pytest.mark.usefixtures("seed")
def test_an_image_without_a_batch_axis_is_taken():
    ours, theirs = (whole(kind.Conv2d(2, 3, 2)) for kind in (door, torch.nn))
    x = torch.from_numpy(ones_and_zeros((2, 4, 4)))
    made, expected = ran(ours, x), ran(theirs, x)
    assert made[0].shape == (3, 3, 3)
    assert all(torch.equal(a, b) for a, b in zip(made, expected, strict=True))


@pytest.mark.usefixtures("seed")
def test_a_module_has_the_bits_of_the_mode_and_loads_torchs_state():
    setting = door.Setting("910B2", 1, accumulation="seq:RNE")
    theirs, x = torch.nn.Conv2d(3, 4, 3, padding=1), normal((2, 3, 5, 5))
    ours = door.Conv2d(3, 4, 3, padding=1, setting=setting)
    ours.load_state_dict(theirs.state_dict())
    assert isinstance(ours, torch.nn.Conv2d)
    with door.Simulation("910B2", 1, accumulation="seq:RNE") as simulation:
        expected = ran(theirs, x)
    made = ran(ours, x)
    assert all(same_bits(a, b) for a, b in zip(made, expected, strict=True))
    # Its gradients are made by name, so that a mode around them sees no convolution of torch.
    with door.Simulation() as around:
        ran(ours, x)
    assert (len(simulation.records), around.records) == (2, ())


@pytest.mark.usefixtures("seed")
def test_the_usual_setting_is_the_usual_products():
    assert door.Conv1d(1, 1, 1).setting.product.variant == door.Setting().product.variant


@pytest.mark.usefixtures("seed")
def test_gradients_of_gradients_are_refused_by_torch():
    x = normal((1, 1, 3)).requires_grad_()
    made = door.convolution(x, torch.ones(1, 1, 1, requires_grad=True))
    (gradient,) = torch.autograd.grad(made.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@pytest.mark.usefixtures("seed")
def test_only_gradients_that_are_needed_are_made():
    weight = torch.ones(1, 1, 1, requires_grad=True)
    x = normal((1, 1, 3))
    door.convolution(x, weight).sum().backward()
    assert x.grad is None
    assert weight.grad.shape == (1, 1, 1)


@pytest.mark.usefixtures("seed")
def test_autocast_reaches_the_function():
    weight = torch.full((1, 1, 1), 1 + 2**-9, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        made = door.convolution(torch.ones(1, 1, 1), weight)
    # bfloat16 has 7 bits behind the one: 1 + 2**-9 becomes 1.
    assert (made.dtype, made.item()) == (torch.bfloat16, 1.0)
    made.sum().backward()
    assert weight.grad.dtype == torch.float32


@pytest.mark.usefixtures("seed")
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_sixteen_bit_tensors_are_taken_as_they_are(kind):
    x, w = normal((1, 4, 6), kind), normal((2, 4, 3), kind, seed=1)
    made = door.convolution(x, w)
    # Within one rounding to the format, plus float32 sums of 12 terms, of the exact product.
    exact = torch.nn.functional.conv1d(x.double(), w.double())
    assert made.dtype == KINDS[kind]
    step = 2.0 ** -(10 if kind == "float16" else 7)
    assert ((made.double() - exact).abs() <= step * exact.abs() + 12 * 2.0**-24 * 16).all()


@pytest.mark.usefixtures("seed")
def test_mistakes_are_errors_of_the_simulator():
    with pytest.raises(ShapeError, match="rank 2, weight 4"):
        door.convolution(torch.ones(3, 3), torch.ones(1, 1, 1, 1))
    with pytest.raises(ShapeError, match="channels"):
        door.convolution(torch.ones(1, 3, 3, 3), torch.ones(1, 1, 1, 1))
    with pytest.raises(ShapeError, match="stride is None"):
        door.convolution(torch.ones(1, 1, 3, 3), torch.ones(1, 1, 1, 1), stride=None)
    for bias in (torch.ones(1), torch.ones(3), torch.ones(2, 1)):
        with pytest.raises(ShapeError, match=r"bias has shape .* needs \(2,\)"):
            door.convolution(torch.ones(1, 1, 3), torch.ones(2, 1, 1), bias)
    with pytest.raises(ShapeError, match="stride"):
        door.convolution(torch.ones(1, 1, 3, 3), torch.ones(1, 1, 1, 1), stride=(1, 2, 3))
    with pytest.raises(AclnnError, match="cube_math_type"):
        door.convolution(torch.ones(1, 1, 3), torch.ones(1, 1, 1), setting=door.Setting(cube_math_type=7))


@pytest.mark.usefixtures("seed")
def test_lists_of_one_number_stand_for_one_on_each_axis():
    # torch's own convolution takes them so.
    x, w = (torch.from_numpy(ones_and_zeros(shape)) for shape in ((1, 1, 5, 5), (1, 1, 2, 2)))
    made = door.convolution(x, w, None, [2], [1], [1], False, [0], 1)
    assert np.array_equal(made, torch.nn.functional.conv2d(x, w, None, 2, 1))


@pytest.mark.usefixtures("seed")
def test_the_door_says_what_it_needs_where_torch_is_missing():
    import subprocess
    import sys

    code = "import sys; sys.modules['torch'] = None; import ascendsim.torch"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.strip().endswith(f"ascendsim.torch needs PyTorch: {install_hint('torch')}")


# --- Is a forward the convolution that torch means, with the bits of the kernel that makes it? ---------

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
        ({"product": "910D"}, ConfigError),
        ({"rules": "none"}, ConfigError),
        ({"accumulation": 5}, ConfigError),
        ({"order": "backwards"}, ConfigError),
        ({"threads": 0}, ConfigError),
        ({"accumulate": "seq:RNE"}, TypeError),
    ],
)
def test_a_setting_without_a_meaning_is_refused_when_it_is_made(keywords, kind):
    with pytest.raises(kind) as caught:
        Setting(**keywords)
    assert kind is TypeError or isinstance(caught.value, AscendSimError)


def test_a_setting_with_some_keywords_changed_keeps_the_others():
    setting = Setting("910B", 3, order=2, accumulation="seq:RNE").but(cube_math_type=0, deterministic=True)
    assert (setting.cube_math_type, setting.operands, setting.order, setting.threads) == (0, None, 2, 1)
    assert setting.options == {"accumulation": "seq:RNE", "deterministic": True}
    assert setting.product.variant == Setting("910B").product.variant
    words = "product='910B2', cube_math_type=0, order=2, accumulation='seq:RNE', deterministic=True"
    assert repr(setting) == f"Setting({words})"


# --- Are random calls as close to PyTorch in float64 as their arithmetic allows? -----------------------

USUAL = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def check_against_float64(case):
    """Compare every gradient of a call with float64 on the operands as the cube multiplies them."""
    case = with_changes(case, scale=0.25)  # nothing overflows, not even in float8_e4m3fn
    call = case.resolved()
    given_tensors = case.carriers()
    cube = [
        on_the_cube(call, name, carrier)
        for name, carrier in zip(("grad_output", "input", "weight"), given_tensors, strict=True)
    ]
    exact = list(torch_gradients(case.problem, *cube))
    spatial = tuple(range(2, 2 + case.problem.rank))
    exact[2] = given_tensors[0].astype(np.float64).sum(axis=(0, *spatial))
    allowed = bounds(case.problem, call, cube, given_tensors[0])
    for name, got, want, bound in zip(GRADIENTS, gradients(case.run()), exact, allowed, strict=True):
        if got is not None:
            error = np.abs(as_carrier(got).astype(np.float64) - want)
            assert (error <= bound).all(), (name, float((error / bound).max()))


@USUAL
@given(case=calls())
def test_calls_lie_within_the_bound(case):
    check_against_float64(case)


@pytest.mark.slow
@settings(USUAL, max_examples=1500)
@given(case=calls())
def test_calls_lie_within_the_bound_at_length(case):
    check_against_float64(case)


def test_the_bound_would_notice_a_missing_term():
    # Without its largest element of grad_output a float32 call is far outside in all three gradients: one of
    # about 50 terms is missing, and the bound is about 50 * 2**-22 of their sum.
    case = ApiCall(ConvProblem((2, 3, 6, 7), (4, 3, 3, 3), 1, 1), ("float32",) * 3)
    tensors = case.carriers()
    allowed = bounds(case.problem, case.resolved(), tensors, tensors[0])
    less = [array.copy() for array in tensors]
    less[0].flat[np.abs(less[0]).argmax()] = 0
    full, short = (torch_gradients(case.problem, *given_tensors) for given_tensors in (tensors, less))
    for a, b, bound in zip(full, short, allowed, strict=True):
        assert (np.abs(a - b) > 100 * bound).any()


def test_padding_by_hand_is_padding():
    # Equal pads on both sides, once as torch's own and once by hand (four paddings that happen to differ by
    # an extra row of zeros that no tap reads because the stride steps over it).
    two = ApiCall(ConvProblem((1, 2, 6, 6), (3, 2, 2, 2), 2, (0, 0)))
    four = ApiCall(ConvProblem((1, 2, 6, 6), (3, 2, 2, 2), 2, (0, 1, 0, 1)))
    for a, b in zip(*(torch_gradients(c.problem, *c.carriers()) for c in (two, four)), strict=True):
        assert np.allclose(a, b, rtol=1e-14)
