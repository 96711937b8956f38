"""Do the function and the modules take what torch's take, and compute it on the simulator?"""

import numpy as np
import pytest

from ascendsim.errors import AclnnError, ShapeError, install_hint
from tests.helpers.torch_samples import KINDS, door, normal, ones_and_zeros, same_bits, torch


@pytest.fixture(autouse=True)
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


@pytest.mark.parametrize(("name", "arguments", "extents"), CASES)
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
def test_a_module_computes_what_torchs_does(name, arguments, extents):
    ours = whole(getattr(door, name)(2, 4, **arguments))
    theirs = whole(getattr(torch.nn, name)(2, 4, **arguments))
    x = torch.from_numpy(ones_and_zeros((2, 2, *extents)))
    made, expected = ran(ours, x), ran(theirs, x)
    assert len(made) == len(expected)
    assert all(torch.equal(a, b) for a, b in zip(made, expected, strict=True))


def test_a_transposed_module_takes_the_size_of_its_output():
    ours, theirs = (whole(kind.ConvTranspose2d(2, 2, 3, stride=2)) for kind in (door, torch.nn))
    x = torch.from_numpy(ones_and_zeros((1, 2, 3, 3)))
    made, expected = ran(ours, x, [8, 7]), ran(theirs, x, [8, 7])
    assert made[0].shape == (1, 2, 8, 7)
    assert all(torch.equal(a, b) for a, b in zip(made, expected, strict=True))


def test_an_image_without_a_batch_axis_is_taken():
    ours, theirs = (whole(kind.Conv2d(2, 3, 2)) for kind in (door, torch.nn))
    x = torch.from_numpy(ones_and_zeros((2, 4, 4)))
    made, expected = ran(ours, x), ran(theirs, x)
    assert made[0].shape == (3, 3, 3)
    assert all(torch.equal(a, b) for a, b in zip(made, expected, strict=True))


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


def test_the_usual_setting_is_the_usual_products():
    assert door.Conv1d(1, 1, 1).setting.product.variant == door.Setting().product.variant


def test_gradients_of_gradients_are_refused_by_torch():
    x = normal((1, 1, 3)).requires_grad_()
    made = door.convolution(x, torch.ones(1, 1, 1, requires_grad=True))
    (gradient,) = torch.autograd.grad(made.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_only_gradients_that_are_needed_are_made():
    weight = torch.ones(1, 1, 1, requires_grad=True)
    x = normal((1, 1, 3))
    door.convolution(x, weight).sum().backward()
    assert x.grad is None
    assert weight.grad.shape == (1, 1, 1)


def test_autocast_reaches_the_function():
    weight = torch.full((1, 1, 1), 1 + 2**-9, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        made = door.convolution(torch.ones(1, 1, 1), weight)
    # bfloat16 has 7 bits behind the one: 1 + 2**-9 becomes 1.
    assert (made.dtype, made.item()) == (torch.bfloat16, 1.0)
    made.sum().backward()
    assert weight.grad.dtype == torch.float32


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_sixteen_bit_tensors_are_taken_as_they_are(kind):
    x, w = normal((1, 4, 6), kind), normal((2, 4, 3), kind, seed=1)
    made = door.convolution(x, w)
    # Within one rounding to the format, plus float32 sums of 12 terms, of the exact product.
    exact = torch.nn.functional.conv1d(x.double(), w.double())
    assert made.dtype == KINDS[kind]
    step = 2.0 ** -(10 if kind == "float16" else 7)
    assert ((made.double() - exact).abs() <= step * exact.abs() + 12 * 2.0**-24 * 16).all()


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


def test_lists_of_one_number_stand_for_one_on_each_axis():
    # torch's own convolution takes them so.
    x, w = (torch.from_numpy(ones_and_zeros(shape)) for shape in ((1, 1, 5, 5), (1, 1, 2, 2)))
    made = door.convolution(x, w, None, [2], [1], [1], False, [0], 1)
    assert np.array_equal(made, torch.nn.functional.conv2d(x, w, None, 2, 1))


def test_the_door_says_what_it_needs_where_torch_is_missing():
    import subprocess
    import sys

    code = "import sys; sys.modules['torch'] = None; import ascendsim.torch"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.strip().endswith(f"ascendsim.torch needs PyTorch: {install_hint('torch')}")
