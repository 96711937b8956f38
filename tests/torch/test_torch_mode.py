"""Does an unmodified script of torch run on the simulator, inside what its users put around it?"""

import copy

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ascendsim import ConvProblem, convolution_backward, estimate
from ascendsim.errors import AclnnError, AscendSimError, ConfigError, ShapeError, UnsupportedError
from ascendsim.numerics.metrics import Specials, specials_of
from ascendsim.ops.reference.float64 import gradients_float64
from tests.helpers.calls import problems
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

# -------------------------------------------------------------------------------------------------------
# Does an unmodified script of torch run on the simulator, and is it told what that made of each layer?
# -------------------------------------------------------------------------------------------------------

Simulation = door.Simulation
ON_8_BITS = {"product": "910_95", "rules": "hardware"}


@pytest.fixture
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


@pytest.mark.usefixtures("seed")
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


@pytest.mark.usefixtures("seed")
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


@pytest.mark.usefixtures("seed")
@pytest.mark.parametrize("order", ["arrival", 3])
def test_parts_arrive_in_the_order_of_a_run_however_many_threads_there_are(order):
    # Eight images make parts of grad_weight, which the kernel of a 910B2 adds as they arrive.
    conv, x, y = (
        torch.nn.Conv2d(16, 16, 3, padding=1),
        normal((8, 16, 14, 14)),
        normal((8, 16, 14, 14), seed=1),
    )
    made = {}
    for asked, threads in (("program", 1), (order, 1), (order, 2)):
        with Simulation("910B2", order=asked, threads=threads):
            conv(x).backward(y)
        made[asked, threads] = conv.weight.grad.clone()
        conv.zero_grad()
    arrays = [t.detach().numpy() for t in (y, x, conv.weight)]
    attributes = 1, 1, 1, False, 0, 1, (True, True, False), 0
    told = convolution_backward(*arrays, None, *attributes, product="910B2", order=order)
    assert same_bits(made[order, 1], torch.from_numpy(told.grad_weight))
    assert same_bits(made[order, 2], made[order, 1])
    assert not same_bits(made["program", 1], made[order, 1])


@pytest.mark.usefixtures("seed")
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


@pytest.mark.usefixtures("seed")
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


@pytest.mark.usefixtures("seed")
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


@pytest.mark.usefixtures("seed")
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


@pytest.mark.usefixtures("seed")
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


@pytest.mark.usefixtures("seed")
def test_a_layer_may_have_a_setting_of_its_own():
    network, x = small_network(), normal((1, 1, 4, 4))
    per_layer = {"2": {"cube_math_type": 2}, "[26]": {"product": "910_95", "accumulation": "seq:RNE"}}
    with Simulation("910B", 1, per_layer=per_layer) as simulation, torch.no_grad():
        network(x)
    made = [record.estimate for record in simulation.records]
    assert [one.compute_dtype for one in made] == ["hf32_11", "float16", "hf32_11", "hf32_10"]
    assert [one.product for one in made] == ["910B", "910B", "910B", "910_95"]
    assert made[3].accumulation == "seq:RNE"


@pytest.mark.usefixtures("seed")
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


@pytest.mark.usefixtures("seed")
@pytest.mark.parametrize("make", [Simulation, door.Setting])
def test_a_refused_keyword_names_each_that_there_is_once(make):
    with pytest.raises(TypeError, match="it takes ") as caught:
        make(zzz=1)
    names = str(caught.value).rpartition("it takes ")[2].split(", ")
    assert len(names) == len(set(names))
    assert {"product", "operands", "tiling"} <= set(names)
    assert not {"output_dtypes", "output_strides"} & set(names)  # refused with a reason of their own


@pytest.mark.usefixtures("seed")
def test_what_the_interface_refuses_ends_the_script_with_the_layers_name():
    network = torch.nn.Sequential(torch.nn.Conv2d(1, 1, 1)).bfloat16()
    with Simulation("310P"), pytest.raises(AclnnError) as caught:  # whose cube has no bfloat16
        network(normal((1, 1, 2, 2), "bfloat16"))
    assert caught.value.status == 161002
    (note,) = caught.value.__notes__
    assert note.startswith("forward of layer 0, ConvProblem(input=(1, 1, 2, 2)")


@pytest.mark.usefixtures("seed")
def test_a_refusal_comes_out_of_a_backward_as_it_is():
    conv = torch.nn.Conv2d(1, 1, 1).double()
    with Simulation(passes=("backward",)), pytest.raises(UnsupportedError, match=r"torch\.float64"):
        conv(torch.ones(1, 1, 2, 2).double()).sum().backward()


@pytest.mark.usefixtures("seed")
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


@pytest.mark.usefixtures("seed")
def test_shapes_that_do_not_fit_are_a_shape_error():
    with Simulation(), pytest.raises(ShapeError, match="channels"):
        torch.nn.functional.conv2d(torch.ones(1, 3, 4, 4), torch.ones(1, 2, 1, 1))


@pytest.mark.usefixtures("seed")
def test_the_errors_of_a_layer_are_against_float64_of_its_tensors():
    conv, x = torch.nn.Conv2d(2, 3, 2), normal((1, 2, 4, 4)).requires_grad_()
    y = normal((1, 3, 3, 3), seed=1)
    with Simulation(operands="float16", errors="first") as simulation:
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


@pytest.mark.usefixtures("seed")
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


@pytest.mark.usefixtures("seed")
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


@pytest.mark.usefixtures("seed")
def test_the_table_has_a_row_for_each_pass_and_their_sums():
    conv = torch.nn.Conv1d(2, 2, 1)
    with Simulation("910B2", errors="first") as simulation:
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


def overflowing(product, scale, **keywords):
    """One step of a convolution in float16 whose first filter's gradient is `scale` * 64 at every tap."""
    conv = torch.nn.Conv2d(1, 2, 1, bias=False).half()
    image = torch.ones(1, 1, 8, 8, dtype=torch.float16)
    with Simulation(product, errors="first", **keywords) as simulation:
        made = conv(image)
        made.backward(torch.stack([torch.full((8, 8), scale), torch.ones(8, 8)])[None].half())
    return simulation, conv.weight.grad.flatten().tolist()


@pytest.mark.usefixtures("seed")
@pytest.mark.parametrize("order", ["program", 0, "arrival"])
def test_the_float_status_is_there_in_any_order(order):
    # Kernels run as instructions in the last two orders.
    conv = torch.nn.Conv2d(16, 16, 3, padding=1)
    with Simulation("910", 2, order=order) as simulation:
        (conv(torch.full((2, 16, 8, 8), 300.0)) * 1e5).sum().backward()
    # 1e5 is beyond 65504. The output is below it: 144 weights of at most 1/12, times 300. grad_weight leaves
    # the cube in float32, and grad_input is not asked for.
    assert simulation.float_status == (("Conv2d", "backward", "cast_grad_output"),)


@pytest.mark.usefixtures("seed")
@pytest.mark.parametrize(
    ("product", "made", "share", "status"),
    [
        # 64 pixels of 2048 are 131072, beyond the largest value 65504.
        ("910B2", [float("inf"), 64.0], "50% Inf", ()),
        ("910_95", [float("inf"), 64.0], "50% Inf", ()),
        ("910", [65504.0, 64.0], "50% at the largest value", (("Conv2d", "backward", "cast_grad_weight"),)),
        ("310P", [65504.0, 64.0], "50% at the largest value", (("Conv2d", "backward", "cast_grad_weight"),)),
    ],
)
def test_an_overflow_is_in_the_table_and_no_mean_over_what_is_left(product, made, share, status):
    simulation, gradient = overflowing(product, 2048.0)
    assert gradient == made
    _, _, row, _ = simulation.table().splitlines()
    assert f"grad_weight {share}" in row
    assert row.endswith("grad_weight none (overflow)")
    assert simulation.float_status == status
    _, backward = simulation.records
    assert backward.overflowed == tuple(kernel for *_, kernel in status)
    assert ("float status: cast_grad_weight" in row) == bool(status)
    # Sums that fit leave nothing behind.
    simulation, _ = overflowing(product, 512.0)
    assert simulation.float_status == ()
    assert "overflow" not in simulation.table()


@pytest.mark.usefixtures("seed")
def test_the_largest_value_itself_is_no_overflow():
    # 64 * 1023.5 is 65504: the largest value, and what was to be made.
    simulation, gradient = overflowing("910", 1023.5)
    assert gradient == [65504.0, 64.0]
    assert simulation.float_status == ()
    # 64 * 1024 is 65536; 65520 and more would be Inf.
    assert overflowing("910", 1024.0)[0].float_status


@pytest.mark.usefixtures("seed")
def test_kernels_of_operands_and_of_a_bias_have_their_status():
    # float32 to float16, before the cube: 1e5 is too large.
    conv = torch.nn.Conv2d(1, 1, 1)
    torch.nn.init.zeros_(conv.weight)
    with Simulation("310P", operands="float16") as simulation, torch.no_grad():
        conv(torch.full((1, 1, 2, 2), 1e5))
    # The forward is a grad_input, whose grad_output is the image.
    assert simulation.float_status == (("Conv2d", "forward", "cast_grad_output"),)
    half = conv.half()
    torch.nn.init.constant_(half.bias, 60000.0)
    torch.nn.init.ones_(half.weight)
    with Simulation("310P") as simulation, torch.no_grad():
        half(torch.full((1, 1, 2, 2), 6000.0, dtype=torch.float16))
    assert simulation.float_status == (("Conv2d", "forward", "add_bias"),)


@pytest.mark.usefixtures("seed")
def test_a_scaler_that_reads_the_float_status_recovers_on_a_910():
    # 512 pixels of 3 * scale / 512 each: a sum of 3 * scale is beyond 65504 down to a scale of 32768, which
    # no Inf would tell.
    conv = torch.nn.Conv2d(1, 1, 1, bias=False).half()
    torch.nn.init.zeros_(conv.weight)
    image, scale, scales = torch.ones(1, 1, 16, 32, dtype=torch.float16), 65536.0, []
    with Simulation("910") as simulation:
        for _ in range(4):
            conv.zero_grad()
            simulation.clear_float_status()
            (conv(image).float().mean() * 3 * scale).backward()
            assert torch.isfinite(conv.weight.grad).all()
            scales.append(scale)
            if simulation.float_status:
                scale /= 2
            else:
                with torch.no_grad():
                    conv.weight -= conv.weight.grad / scale
    assert scales == [65536.0, 32768.0, 16384.0, 16384.0]
    # Two steps count, each by a gradient of 3; those that saturated would have gone by less.
    assert conv.weight.item() == -6.0


@pytest.mark.usefixtures("seed")
def test_a_bias_whose_terms_cancel_says_so():
    x = normal((4, 3, 8, 8))
    rows = {}
    for after in (torch.nn.BatchNorm2d(2), torch.nn.Identity()):
        network = torch.nn.Sequential(torch.nn.Conv2d(3, 2, 3), after)
        with Simulation("910B2", errors="first") as simulation:
            network(x).pow(3).sum().backward()
        *_, backward, _ = simulation.table().splitlines()
        rows[type(after).__name__] = backward
    assert "grad_bias cancels (error " in rows["BatchNorm2d"]
    assert "cancels" not in rows["Identity"]


@pytest.mark.usefixtures("seed")
@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2"])
def test_special_elements_are_counted_as_numpy_sees_them(kind):
    stored = np.dtype(getattr(ml_dtypes, kind, None) or kind)
    # All codes, or as many of 32 bits as there are of 16, at every exponent.
    bits = np.arange(1 << min(8 * stored.itemsize, 16), dtype=np.uint32) << max(0, 8 * stored.itemsize - 16)
    values = bits.astype(f"u{stored.itemsize}").view(stored)
    if kind == "float32":
        values = np.append(values, np.float32([np.finfo(np.float32).max, -np.finfo(np.float32).max]))
    with np.errstate(invalid="ignore"):  # signalling NaN
        found, wide, limits = specials_of(values), values.astype(np.float64), ml_dtypes.finfo(stored)
    sizes = np.abs(wide)
    assert found == Specials(
        elements=values.size,
        infinite=np.isinf(wide).sum(),
        nan=np.isnan(wide).sum(),
        largest=(sizes == float(limits.max)).sum(),
        zero=(wide == 0).sum(),
        subnormal=((sizes > 0) & (sizes < float(limits.smallest_normal))).sum(),
    )
    assert found + found == specials_of(np.concatenate([values, values]))
    assert specials_of(values[:0]) == Specials()


@pytest.mark.usefixtures("seed")
def test_gradients_that_nobody_needs_are_not_made():
    conv = torch.nn.Conv2d(2, 2, 1)
    conv.weight.requires_grad_(False)
    with Simulation(errors="never") as simulation:
        conv(normal((1, 2, 3, 3))).sum().backward()
        conv(normal((1, 2, 3, 3)).requires_grad_()).sum().backward()
    results = [record.layer.results for record in simulation.records]
    assert results == [("output",), ("grad_bias",), ("grad_input", "grad_bias")]
    assert conv.weight.grad is None


@pytest.mark.usefixtures("seed")
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


@pytest.mark.usefixtures("seed")
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


@pytest.mark.usefixtures("seed")
@pytest.mark.parametrize(
    ("keywords", "kind"),
    [
        ({"errors": "all"}, ConfigError),
        ({"refused": "ignore"}, ConfigError),
        ({"passes": ("sideways",)}, ConfigError),
        ({"per_layer": {"0": {"product": "910D"}}}, ConfigError),
        ({"operands": "float7"}, UnsupportedError),
        ({"acumulation": "seq:RNE"}, TypeError),
    ],
)
def test_mistakes_are_told_before_the_script_runs(keywords, kind):
    with pytest.raises(kind) as caught:
        Simulation(**keywords)
    assert kind is TypeError or isinstance(caught.value, AscendSimError)


# --- Does the mode work inside what torch and its users put around convolutions? -----------------------


@pytest.fixture
def conv():
    """A layer whose parameters are ones, so that sums over whole numbers are exact on both sides."""
    made = torch.nn.Conv2d(2, 3, 3)
    for parameter in made.parameters():
        torch.nn.init.ones_(parameter)
    return made


IMAGES = torch.from_numpy(ones_and_zeros((2, 2, 5, 5)))


def in_a_checkpoint(conv):
    """Runs the forward again before the backward."""
    conv.zero_grad()
    image = IMAGES.clone().requires_grad_()
    torch.utils.checkpoint.checkpoint(conv, image, use_reentrant=False).square().sum().backward()
    return [image.grad, conv.weight.grad.clone()]


def as_a_function(conv):
    """Takes gradients by torch.func, whose tensors are wrapped."""
    parameters = dict(conv.named_parameters())

    def loss(given):
        return torch.func.functional_call(conv, given, (IMAGES,)).square().sum()

    made = torch.func.grad(loss)(parameters)
    return [made[name].detach() for name in parameters]


def for_each_sample(conv):
    """Takes the gradient of each image by itself: torch makes one grouped convolution of them."""
    parameters = dict(conv.named_parameters())

    def loss(given, image):
        return torch.func.functional_call(conv, given, (image[None],)).square().sum()

    made = torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, IMAGES)
    return [made[name].detach() for name in parameters]


@pytest.mark.parametrize("around", [in_a_checkpoint, as_a_function, for_each_sample])
def test_results_are_torchs_and_of_the_simulator(conv, around):
    expected = around(conv)
    with Simulation(errors="never") as simulation:
        made = around(conv)
    assert all(torch.equal(a, b) for a, b in zip(made, expected, strict=True))
    assert {record.layer.direction for record in simulation.records} == {"forward", "backward"}


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "inside"])
@pytest.mark.filterwarnings("ignore")
def test_a_compiled_function_is_simulated_whenever_it_was_compiled(conv, when):
    # Without the backend's own code, which needs a compiler.
    torch._dynamo.reset()
    compiled = torch.compile(conv, backend="aot_eager")
    expected = conv(IMAGES).detach()
    if when == "before":
        compiled(IMAGES)
    with Simulation(errors="never") as simulation:
        made = compiled(IMAGES)
        made.sum().backward()
    assert torch.equal(made.detach(), expected)
    assert {record.layer.direction for record in simulation.records} == {"forward", "backward"}


def test_one_simulation_inside_another_hands_on_what_it_leaves_out(conv):
    network = torch.nn.Sequential(conv, torch.nn.Conv2d(3, 1, 1))
    with Simulation("910_95") as outer, Simulation("910B", layers="0") as inner, torch.no_grad():
        network(IMAGES)
    names = [[(r.layer.name, r.estimate.product) for r in one.records] for one in (outer, inner)]
    assert names == [[("1", "910_95")], [("0", "910B")]]


def test_a_simulation_may_be_entered_again_and_goes_on_counting(conv):
    simulation = Simulation(errors="never")
    for _ in range(2):
        with simulation, torch.no_grad():
            conv(IMAGES)
        conv(IMAGES)
    (record,) = simulation.records
    assert record.calls == 2


def test_a_model_that_grows_names_its_new_layers(conv):
    network = torch.nn.Sequential(conv)
    with Simulation(errors="never") as simulation, torch.no_grad():
        network(IMAGES)
        network.append(torch.nn.Conv2d(3, 1, 1))
        network(IMAGES)
    assert [(record.layer.name, record.calls) for record in simulation.records] == [("0", 2), ("1", 1)]
