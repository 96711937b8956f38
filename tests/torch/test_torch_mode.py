"""Does an unmodified script of torch run on the simulator, and is it told what that made of each layer?"""

import copy

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ascendsim import ConvProblem, convolution_backward, estimate
from ascendsim.errors import AclnnError, AscendSimError, ConfigError, ShapeError, UnsupportedError
from ascendsim.ops.reference.float64 import gradients_float64
from tests.helpers.call_strategy import problems
from tests.helpers.torch_samples import (
    KINDS,
    attributes,
    door,
    normal,
    ones_and_zeros,
    same_bits,
    small_network,
    torch,
    train,
)

Simulation = door.Simulation
ON_8_BITS = {"product": "910_95", "rules": "hardware"}


@pytest.fixture(autouse=True)
def seed():
    """Modules draw their weights alike in every run."""
    torch.manual_seed(0)


def step(conv, x):
    """One forward and backward of a module; the gradients of its parameters."""
    x = x.clone().requires_grad_()
    conv(x).sum().backward()
    made = [x.grad, *(p.grad.clone() for p in conv.parameters())]
    conv.zero_grad()
    return made


def test_a_small_network_learns_as_it_does_under_torch():
    # Both compute in float32 and differ in the order of additions alone: the losses, near 1, agree to 1e-4.
    network = small_network()
    expected = train(copy.deepcopy(network), 20)
    with Simulation(product="910B2", errors="never") as simulation:
        losses = train(network, 20)
    assert expected[-1] < 0.9 * expected[0]
    assert np.abs(np.subtract(losses, expected)).max() < 1e-4
    ran = {(record.layer.name, record.layer.direction): record.calls for record in simulation.records}
    assert ran == {(name, way): 20 for name in ("0", "2", "4", "6") for way in ("forward", "backward")}
    assert all(record.cycles > 0 and record.errors == () for record in simulation.records)


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("biased", [True, False])
def test_gradients_under_the_mode_are_those_of_the_direct_call(kind, biased):
    conv = torch.nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2, bias=biased).to(KINDS[kind])
    x = normal((2, 4, 7, 7), kind).requires_grad_()
    grad_output = normal((2, 6, 4, 4), kind, seed=1)
    with Simulation("910B"):
        conv(x).backward(grad_output)
    arrays = [door.autograd.array_of(t) for t in (grad_output, x, conv.weight)]
    sizes = [6] if biased else [0]
    made = convolution_backward(*arrays, sizes, 2, 1, 1, False, 0, 2, (True, True, biased), 0, product="910B")
    assert same_bits(x.grad, door.autograd.tensor_of(made.grad_input, x))
    assert same_bits(conv.weight.grad, door.autograd.tensor_of(made.grad_weight, x))
    if biased:
        assert same_bits(conv.bias.grad, door.autograd.tensor_of(made.grad_bias, x))


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(problem=problems(), kind=st.sampled_from(tuple(KINDS)[:3]), biased=st.booleans(), frozen=st.booleans())
def test_random_layers_have_torchs_results(problem, kind, biased, frozen):
    # Of -1, 0 and 1 every sum is exact in float32: what is left is one rounding to the format of a result,
    # the same on both sides. The sum with a bias would be a second one, but for float32.
    assume(len(np.atleast_1d(problem.padding)) <= problem.rank)
    biased = biased and kind == "float32"
    shapes = (problem.input, problem.weight, problem.grad_output[1:2])[: 3 if biased else 2]
    leaves = [torch.from_numpy(ones_and_zeros(shape, at)) for at, shape in enumerate(shapes)]
    grad_output = torch.from_numpy(ones_and_zeros(problem.grad_output, 9))

    def results(dtype):
        tensors = [leaf.to(dtype, copy=True).requires_grad_() for leaf in leaves]
        tensors[0].requires_grad_(not frozen)
        made = torch.ops.aten.convolution(*tensors, *(() if biased else (None,)), *attributes(problem))
        wanted = [tensor for tensor in tensors if tensor.requires_grad]
        return [made.detach(), *torch.autograd.grad(made, wanted, grad_output.to(dtype))]

    exact = results(torch.float64)
    with Simulation(errors="never"):
        made = results(KINDS[kind])
    for a, b in zip(made, exact, strict=True):
        assert torch.equal(a, b.to(KINDS[kind]))


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2"])
def test_tensors_of_eight_bits_run_forward_and_backward(kind):
    # Of -1, 0 and 1 every sum is exact in float32; float64 rounded once to the format is the answer.
    shapes = (2, 3, 5, 5), (4, 3, 3, 3), (2, 4, 3, 3)
    x, w, y = (torch.from_numpy(ones_and_zeros(shape, seed)) for seed, shape in enumerate(shapes))
    leaves = [t.to(KINDS[kind]).requires_grad_() for t in (x, w)]
    with Simulation(**ON_8_BITS) as simulation:
        made = torch.nn.functional.conv2d(*leaves)
        made.backward(y.to(KINDS[kind]))
    exact = torch.ops.aten.convolution_backward(
        *(t.double() for t in (y, x, w)), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, False]
    )
    assert same_bits(made, torch.nn.functional.conv2d(x.double(), w.double()).to(KINDS[kind]))
    assert same_bits(leaves[0].grad, exact[0].to(KINDS[kind]))
    assert same_bits(leaves[1].grad, exact[1].to(KINDS[kind]))
    assert {record.estimate.compute_dtype for record in simulation.records} == {kind}


def test_hf32_is_seen_by_a_script_in_both_passes():
    # HF32 has 11 bits: 1 + 2**-13 is read as 1, by the forward as by the product that makes grad_weight.
    conv = torch.nn.Conv1d(1, 1, 1, bias=False)
    torch.nn.init.ones_(conv.weight)
    x = torch.full((1, 1, 1), 1 + 2**-13)
    with Simulation("910B", cube_math_type=3) as simulation:
        made = conv(x)
        made.sum().backward()
    assert made.item() == conv.weight.grad.item() == 1.0
    with Simulation("910B", cube_math_type=3, passes="backward"):
        assert conv(x).item() == 1 + 2**-13
    assert {record.estimate.compute_dtype for record in simulation.records} == {"hf32_11"}


def test_autocast_casts_what_the_simulator_then_takes():
    conv = torch.nn.Conv2d(2, 3, 3)
    with Simulation("910B") as simulation, torch.autocast("cpu", dtype=torch.bfloat16):
        made = conv(normal((1, 2, 5, 5)))
        made.sum().backward()
    assert made.dtype == torch.bfloat16
    assert conv.weight.grad.dtype == torch.float32
    assert [(r.layer.name, r.layer.dtypes) for r in simulation.records] == [
        ("Conv2d", ("bfloat16",) * 2),
        ("Conv2d", ("bfloat16",) * 3),
    ]


def test_layers_outside_the_filter_are_torchs():
    network, x = small_network(), normal((1, 1, 4, 4))
    expected = network(x)
    with Simulation(layers=()) as nothing, torch.no_grad():
        assert same_bits(network(x), expected)
    assert nothing.records == ()
    with Simulation(layers="[02]", passes=("forward",)) as some, torch.no_grad():
        network(x)
    assert [record.layer.name for record in some.records] == ["0", "2"]
    with Simulation(layers=lambda layer: layer.problem.transposed) as one, torch.no_grad():
        network(x)
    assert [record.layer.name for record in one.records] == ["4"]


def test_a_layer_may_have_a_setting_of_its_own():
    network, x = small_network(), normal((1, 1, 4, 4))
    per_layer = {"2": {"cube_math_type": 2}, "[26]": {"product": "910_95", "accumulation": "seq:RNE"}}
    with Simulation("910B", 1, per_layer=per_layer) as simulation, torch.no_grad():
        network(x)
    made = [record.estimate for record in simulation.records]
    assert [one.compute_dtype for one in made] == ["hf32_11", "float16", "hf32_11", "hf32_10"]
    assert [one.product for one in made] == ["910B", "910B", "910B", "910_95"]
    assert made[3].accumulation == "seq:RNE"


def test_a_pattern_that_fits_no_layer_is_told():
    network, x = small_network(), normal((1, 1, 4, 4))
    per_layer = {"2": {"cube_math_type": 1}, "conv2": {"cube_math_type": 2}}
    with Simulation(errors="never", layers=("[02]", "head"), per_layer=per_layer) as some, torch.no_grad():
        assert some.table().endswith("per_layer: 'conv2' fits none of the layers; none has run")
        network(x)
    # The network's convolutions are its modules 0, 2, 4 and 6; what is left to torch is named as well.
    *_, layers, own = some.table().splitlines()
    assert layers == "layers: 'head' fits none of the layers; they are 0, 2, 4, 6"
    assert own == "per_layer: 'conv2' fits none of the layers; they are 0, 2, 4, 6"
    with Simulation(errors="never", layers=lambda _layer: False) as nothing, torch.no_grad():
        network(x)
    assert nothing.table().endswith("launches included")


@pytest.mark.parametrize("make", [Simulation, door.Setting])
def test_a_refused_keyword_names_each_that_there_is_once(make):
    with pytest.raises(TypeError, match="it takes ") as caught:
        make(zzz=1)
    names = str(caught.value).rpartition("it takes ")[2].split(", ")
    assert len(names) == len(set(names))
    assert {"product", "operands", "tiling"} <= set(names)
    assert not {"output_dtypes", "output_strides"} & set(names)  # refused with a reason of their own


def test_what_the_interface_refuses_ends_the_script_with_the_layers_name():
    network = torch.nn.Sequential(torch.nn.Conv2d(1, 1, 1)).bfloat16()
    with Simulation("310P"), pytest.raises(AclnnError) as caught:  # whose cube has no bfloat16
        network(normal((1, 1, 2, 2), "bfloat16"))
    assert caught.value.status == 161002
    (note,) = caught.value.__notes__
    assert note.startswith("forward of layer 0, ConvProblem(input=(1, 1, 2, 2)")


def test_a_refusal_comes_out_of_a_backward_as_it_is():
    conv = torch.nn.Conv2d(1, 1, 1).double()
    with Simulation(passes=("backward",)), pytest.raises(UnsupportedError, match=r"torch\.float64"):
        conv(torch.ones(1, 1, 2, 2).double()).sum().backward()


def test_torch_computes_what_is_refused_where_the_user_says_so():
    conv = torch.nn.Conv2d(1, 1, 1).double()
    x = normal((1, 1, 2, 2)).double()
    with Simulation(refused="torch") as simulation:
        made = conv(x)
        made.sum().backward()
    assert same_bits(made.detach().float(), conv(x).detach().float())
    for record in simulation.records:
        assert "torch.float64" in record.refused
        assert (record.estimate, record.cycles, record.time_us, record.errors) == (None, 0, 0.0, ())
        assert record.layer.dtypes[0] == "float64"
    assert simulation.table().count("(torch)") == 2


def test_shapes_that_do_not_fit_are_a_shape_error():
    with Simulation(), pytest.raises(ShapeError, match="channels"):
        torch.nn.functional.conv2d(torch.ones(1, 3, 4, 4), torch.ones(1, 2, 1, 1))


def test_the_errors_of_a_layer_are_against_float64_of_its_tensors():
    conv, x = torch.nn.Conv2d(2, 3, 2), normal((1, 2, 4, 4)).requires_grad_()
    y = normal((1, 3, 3, 3), seed=1)
    with Simulation(operands="float16") as simulation:
        made = conv(x)
        made.backward(y)
    forward, backward = simulation.records
    ((output,),), (gradients,) = forward.errors, backward.errors
    with torch.no_grad():
        exact = torch.nn.functional.conv2d(x.double(), conv.weight.double(), conv.bias.double())
    worst = (made.detach().double() - exact).abs().max().item()
    # Of float32 tensors, though the cube took float16: the cast is part of the error.
    assert (output.name, output.errors.max_abs) == ("output", pytest.approx(worst, rel=1e-6))
    assert worst > 1e-5
    problem = ConvProblem((1, 2, 4, 4), (3, 2, 2, 2))
    want = gradients_float64(problem, *(t.detach().numpy() for t in (y, x, conv.weight)))
    got = [t.grad.double().numpy() for t in (x, conv.weight, conv.bias)]
    assert [one.name for one in gradients] == ["grad_input", "grad_weight", "grad_bias"]
    for one, a, b in zip(gradients, got, want, strict=True):
        assert one.errors.max_abs == pytest.approx(np.abs(a - b).max(), rel=1e-9, abs=1e-12)


def test_every_call_is_judged_where_the_user_says_so():
    conv, x = torch.nn.Conv1d(1, 1, 1), normal((1, 1, 3))
    judged = {}
    for errors in ("first", "every", "never"):
        with Simulation(errors=errors) as simulation, torch.no_grad():
            for _ in range(3):
                conv(x)
        (record,) = simulation.records
        assert record.calls == 3
        judged[errors] = len(record.errors)
    assert judged == {"first": 1, "every": 3, "never": 0}


def test_layers_that_are_alike_share_one_estimate_and_it_is_the_usual_one():
    network = torch.nn.Sequential(*(torch.nn.Conv2d(4, 4, 3, padding=1) for _ in range(2)))
    with Simulation("910B2", errors="never") as simulation:
        network(normal((1, 4, 5, 5)).requires_grad_()).sum().backward()
    first, second, *backward = simulation.records
    assert first.estimate is second.estimate
    assert backward[0].estimate is backward[1].estimate
    problem = ConvProblem((1, 4, 5, 5), (4, 4, 3, 3), 1, 1)
    assert backward[0].estimate == estimate(problem, "float32", product="910B2")
    assert backward[0].time_us == backward[0].estimate.time_us > 0


def test_the_table_has_a_row_for_each_pass_and_their_sums():
    conv = torch.nn.Conv1d(2, 2, 1)
    with Simulation("910B2") as simulation:
        for _ in range(2):
            conv(normal((1, 2, 3))).sum().backward()
    forward, backward = simulation.records
    heads, first, second, total = (line.split() for line in simulation.table().splitlines())
    assert heads[:3] == ["layer", "pass", "calls"]
    for row, record in ((first, forward), (second, backward)):
        name, direction, calls, compute, cycles, time, *errors = row
        assert (name, direction, calls, compute) == ("Conv1d", record.layer.direction, "2", "float32")
        assert (int(cycles.replace(",", "")), float(time)) == (record.cycles, round(record.time_us, 2))
        assert [word for word in errors if word.isidentifier()] == list(record.layer.results)
    assert total[4:6] + total[7:9] == [
        "forward",
        f"{forward.time_us:.2f}",
        "backward",
        f"{backward.time_us:.2f}",
    ]


def test_gradients_that_nobody_needs_are_not_made():
    conv = torch.nn.Conv2d(2, 2, 1)
    conv.weight.requires_grad_(False)
    with Simulation(errors="never") as simulation:
        conv(normal((1, 2, 3, 3))).sum().backward()
        conv(normal((1, 2, 3, 3)).requires_grad_()).sum().backward()
    results = [record.layer.results for record in simulation.records]
    assert results == [("output",), ("grad_bias",), ("grad_input", "grad_bias")]
    assert conv.weight.grad is None


def test_gradients_of_gradients_are_simulated_as_the_convolutions_they_are():
    # A penalty on the gradient, as it is usual: torch makes it of three more convolutions.
    conv, x = torch.nn.Conv2d(2, 3, 3), torch.from_numpy(ones_and_zeros((1, 2, 5, 5))).requires_grad_()
    torch.nn.init.ones_(conv.weight)

    def penalty():
        (gradient,) = torch.autograd.grad(conv(x).sum(), x, create_graph=True)
        conv.zero_grad()
        gradient.square().sum().backward()
        return conv.weight.grad.clone()

    expected = penalty()
    with Simulation(errors="never"):
        assert torch.equal(penalty(), expected)  # whole numbers: exact on both sides


def test_results_lie_as_torchs_do():
    conv = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    x = normal((2, 3, 5, 5)).to(memory_format=torch.channels_last)
    with Simulation(errors="never"), torch.no_grad():
        assert conv(x).stride() == conv(x).to(memory_format=torch.channels_last).stride()
    plain = torch.nn.Conv2d(3, 4, 3)
    expected = step(plain, normal((2, 3, 5, 5)))
    with Simulation(errors="never"):
        made = step(plain, x)  # the gradient of a sum is one number, spread over all pixels
    for a, b in zip(made, expected, strict=True):
        assert torch.allclose(a, b, atol=1e-5)


@pytest.mark.parametrize(
    ("keywords", "kind"),
    [
        ({"errors": "all"}, ConfigError),
        ({"refused": "ignore"}, ConfigError),
        ({"passes": ("sideways",)}, ConfigError),
        ({"per_layer": {"0": {"product": "910C"}}}, ConfigError),
        ({"operands": "float7"}, UnsupportedError),
        ({"acumulation": "seq:RNE"}, TypeError),
    ],
)
def test_mistakes_are_told_before_the_script_runs(keywords, kind):
    with pytest.raises(kind) as caught:
        Simulation(**keywords)
    assert kind is TypeError or isinstance(caught.value, AscendSimError)
