"""Do layers find their names, and tensors keep their bits, in the simulator and in records?"""

import re

import ml_dtypes
import numpy as np
import pytest

from ascendsim import convolution_backward
from ascendsim.errors import ConfigError, ShapeError, UnsupportedError
from ascendsim.numerics.casts import decode
from tests.helpers.torch_samples import KINDS, door, normal, same_bits, torch

# --- Do convolutions find the names of their layers, in both passes? -----------------------------------

UNNAMED = door.passes.UNNAMED


class Names(door.dispatch.ConvolutionMode):
    """Notes the layer of each convolution, and lets torch compute it."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def take(self, layer, _tensors, by_torch):
        self.seen.append((layer.name, layer.direction))
        return by_torch()


def names_of(run):
    """Return the names of the forwards in their order, and those of the backwards in the opposite one."""
    with Names() as names:
        run()
    forward = [name for name, direction in names.seen if direction == "forward"]
    return forward, [name for name, direction in reversed(names.seen) if direction == "backward"]


class Block(torch.nn.Module):
    """A module inside another, and two convolutions of its own without a module."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Conv1d(1, 2, 1), torch.nn.ReLU())
        self.first, self.second = (torch.nn.Parameter(torch.ones(2, 2, 1)) for _ in range(2))

    def forward(self, x):
        made = torch.nn.functional.conv1d(self.inner(x), self.first)
        return torch.nn.functional.conv1d(made, self.second)


IMAGE = normal((1, 1, 4))


def test_a_layer_is_called_as_its_module_in_the_outermost_one():
    model = torch.nn.ModuleDict({"body": Block(), "head": torch.nn.Conv1d(2, 1, 1)})
    whole = torch.nn.Sequential(model["body"], model["head"])
    forward, backward = names_of(lambda: whole(IMAGE).sum().backward())
    assert forward == backward == ["0.inner.0", "0", "0#1", "1"]


def test_a_single_module_and_two_of_a_kind_have_names():
    one, other = torch.nn.Conv1d(1, 1, 1), torch.nn.Conv1d(1, 1, 1)
    forward, backward = names_of(lambda: (one(IMAGE) + other(IMAGE) + one(IMAGE)).sum().backward())
    assert forward == ["Conv1d", "Conv1d (2)", "Conv1d"]
    assert sorted(backward) == sorted(forward)


def test_a_convolution_outside_of_modules_has_no_name():
    weight = torch.ones(1, 1, 1, requires_grad=True)
    forward, backward = names_of(lambda: torch.nn.functional.conv1d(IMAGE, weight).sum().backward())
    assert forward == backward == [UNNAMED]


def test_a_backward_whose_forward_was_not_seen_has_no_name():
    loss = torch.nn.Conv1d(1, 1, 1)(IMAGE).sum()
    assert names_of(loss.backward) == ([], [UNNAMED])


def test_names_survive_autocast_which_casts_the_weights():
    block = Block()

    def step():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            made = block(IMAGE)
        made.sum().backward()

    forward, backward = names_of(step)
    assert forward == backward == ["inner.0", "Block", "Block#1"]


def test_names_survive_a_module_that_fails():
    class Failing(torch.nn.Module):
        def forward(self, _):
            raise KeyError("on purpose")

    model = torch.nn.Sequential(Failing())
    conv = torch.nn.Conv1d(1, 1, 1)

    def step():
        with pytest.raises(KeyError):
            model(IMAGE)
        conv(IMAGE)

    assert names_of(step)[0] == ["Conv1d"]


def test_nothing_watches_modules_afterwards():
    from torch.nn.modules import module

    def hooks():
        return len(module._global_forward_pre_hooks), len(module._global_forward_hooks)

    before = hooks()
    with Names() as outer:
        with outer:
            assert hooks() == (before[0] + 1, before[1] + 1)
        assert hooks() == (before[0] + 1, before[1] + 1)
    assert hooks() == before
    with pytest.raises(ShapeError), Names():
        torch.nn.functional.conv1d(IMAGE, torch.ones(1, 2, 1))  # a weight for two channels
    assert hooks() == before


def test_without_autograd_convolutions_are_seen_inside_their_operators():
    conv = torch.nn.Conv2d(1, 1, 1)
    for off in (torch.no_grad, torch.inference_mode):

        def step(off=off):
            with off():
                conv(normal((1, 1, 2, 2)))

        assert names_of(step)[0] == ["Conv2d"], off


@pytest.mark.parametrize("shape", [(0, 1, 4), (1, 1, 4)])
def test_tensors_without_values_are_torchs_own(shape):
    weight = torch.ones(1, 1, 1)
    given = (torch.zeros(shape), weight) if 0 in shape else (IMAGE.to("meta"), weight.to("meta"))
    with Names() as names:
        assert torch.nn.functional.conv1d(*given).shape == shape
    assert names.seen == []


LAYER = door.passes.LayerPass("features.0", "forward", None, ("float32", "float32"), ("output",))


@pytest.mark.parametrize(
    ("chosen", "taken"),
    [
        (None, True),
        ("features.*", True),
        ("features", False),
        (("head", "*.0"), True),
        ((), False),
        (lambda layer: layer.direction == "backward", False),
    ],
)
def test_a_filter_takes_patterns_of_names_or_a_function(chosen, taken):
    assert door.passes.wanted(LAYER, door.passes.checked_filter(chosen)) is taken


@pytest.mark.parametrize("chosen", [5, ["a", 5], {"a"}])
def test_another_filter_is_refused(chosen):
    with pytest.raises(ConfigError, match="layers is"):
        door.Simulation(layers=chosen)


# --- Are recorded tensors those of the training, and does the command read them? -----------------------


@pytest.fixture
def seed():
    """Modules draw their weights alike in every run."""
    torch.manual_seed(0)


def network(kind=torch.float32):
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 3, stride=2, padding=1),
        torch.nn.ReLU(),
        torch.nn.ConvTranspose2d(2, 3, 2, stride=2, bias=False),
        torch.nn.Flatten(),
    ).to(kind)


BATCHES = [(normal((2, 1, 4, 4), seed=n), torch.tensor([5, 40])) for n in range(3)]


@pytest.mark.usefixtures("seed")
def test_what_a_backward_takes_is_written_for_each_layer_and_step(tmp_path):
    model = network()
    paths = door.record(model, BATCHES, 2, tmp_path / "new" / "folder")
    names = ["2.step0.npz", "0.step0.npz", "2.step1.npz", "0.step1.npz"]
    assert [path.relative_to(tmp_path / "new" / "folder").as_posix() for path in paths] == names
    held = dict(np.load(paths[3]))
    assert np.array_equal(held["input"], BATCHES[1][0])
    assert np.array_equal(held["weight"], model[0].weight.detach())
    # No optimizer: the gradients of the last step are those of the recorded one.
    given = [torch.from_numpy(held[name]) for name in ("grad_output", "input", "weight")]
    made = torch.ops.aten.convolution_backward(
        *given, [2], [2, 2], [1, 1], [1, 1], False, [0, 0], 1, [False, True, True]
    )
    assert torch.equal(made[1], model[0].weight.grad)
    assert torch.equal(made[2], model[0].bias.grad)


@pytest.mark.usefixtures("seed")
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_the_command_runs_what_was_recorded(tmp_path, record, kind):
    batches = [(image.to(kind), target) for image, target in BATCHES]
    paths = door.record(network(kind), batches, 1, tmp_path)
    words = ("--dtype", "bfloat16") if kind is torch.bfloat16 else ()
    for path, shape, gradients in (
        (paths[0], [2, 2, 2, 2], ["grad_input", "grad_weight"]),
        (paths[1], [2, 1, 4, 4], ["grad_weight", "grad_bias"]),
    ):
        made = record("--npz", str(path), *words)
        assert made["problem"]["input"] == shape
        assert [one["name"] for one in made["products"][0]["gradients"]] == gradients


@pytest.mark.usefixtures("seed")
def test_an_optimizer_moves_the_weights_between_steps(tmp_path):
    def weights(optimizer):
        paths = door.record(model, BATCHES[:1] * 2, 2, tmp_path, optimizer=optimizer, layers="0")
        assert [path.name for path in paths] == ["0.step0.npz", "0.step1.npz"]
        return [np.load(path)["weight"] for path in paths]

    model = network()
    first, second = weights(None)
    assert np.array_equal(first, second)
    first, second = weights(torch.optim.SGD(model.parameters(), lr=0.1))
    assert not np.array_equal(first, second)


@pytest.mark.usefixtures("seed")
def test_a_layer_that_runs_twice_has_two_files(tmp_path):
    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Conv2d(1, 1, 3, padding=1)

        def forward(self, x):
            return torch.nn.functional.conv2d(self.conv(self.conv(x)), torch.ones(1, 1, 1, 1)).flatten(1)

    paths = door.record(Twice(), [(BATCHES[0][0], torch.tensor([5, 4]))], 1, tmp_path)
    assert [path.name for path in paths] == ["Twice.step0.npz", "conv.step0.npz", "conv.step0.2.npz"]


@pytest.mark.usefixtures("seed")
def test_a_loss_of_ones_own_is_taken(tmp_path):
    (path,) = door.record(network(), BATCHES, 1, tmp_path, loss=lambda made, _: made.sum(), layers="2")
    # The gradient of a sum is 1 everywhere.
    assert (np.load(path)["grad_output"] == 1).all()


@pytest.mark.usefixtures("seed")
@pytest.mark.parametrize("steps", [0, -1, 1.5, True, None])
def test_a_number_of_steps_is_a_positive_whole_number(steps, tmp_path):
    with pytest.raises(ConfigError, match="steps"):
        door.record(network(), BATCHES, steps, tmp_path)


@pytest.mark.usefixtures("seed")
def test_mistakes_are_errors_of_the_simulator(tmp_path):
    with pytest.raises(ConfigError, match="batch 0"):
        door.record(network(), [normal((2, 1, 4, 4))], 1, tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be made"):
        door.record(network(), BATCHES, 1, tmp_path / "file")
    with pytest.raises(UnsupportedError, match=r"torch\.float64"):
        door.record(network(torch.float64), [(BATCHES[0][0].double(), BATCHES[0][1])], 1, tmp_path)


# --- Do tensors keep their bits on the way into the simulator and back? --------------------------------

array_of, tensor_of = door.autograd.array_of, door.autograd.tensor_of
channels_last = door.autograd.channels_last
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}


def every_code(name):
    """All codes of a format of up to 16 bits, and a run through those of float32."""
    kind = KINDS[name]
    bits = BITS[kind.itemsize]
    ends = torch.iinfo(bits)
    step = 65537 if kind.itemsize == 4 else 1
    return torch.arange(ends.min, ends.max + 1, step).to(bits).view(kind)


@pytest.mark.parametrize("name", KINDS)
def test_every_code_comes_back(name):
    tensor = every_code(name)
    array = array_of(tensor)
    assert array.dtype.name == name
    assert same_bits(tensor_of(array, tensor), tensor)


@pytest.mark.parametrize("name", KINDS)
def test_a_value_is_the_same_number_on_both_sides(name):
    tensor = every_code(name)
    assert np.array_equal(decode(array_of(tensor), name), tensor.float().numpy(), equal_nan=True)


def test_any_view_is_read_row_after_row():
    tensor = torch.arange(24.0).reshape(2, 3, 4)
    for view in (
        tensor.permute(2, 0, 1),
        tensor[:, ::2],
        tensor[0, 0, 0].expand(2, 5),
        tensor.requires_grad_(),
    ):
        assert np.array_equal(array_of(view), view.detach().numpy())


def test_a_view_that_torch_negates_lazily_is_read_negated():
    tensor = torch.complex(torch.zeros(2), torch.tensor([1.0, -2.0])).conj().imag
    assert tensor.is_neg()
    assert array_of(tensor).tolist() == [-1.0, 2.0]


@pytest.mark.parametrize("kind", [torch.float64, torch.int32, torch.complex64, torch.float8_e4m3fnuz])
def test_other_types_are_refused_by_their_name(kind):
    with pytest.raises(UnsupportedError, match=str(kind)) as caught:
        array_of(torch.zeros(2).to(kind))
    assert "torch.bfloat16" in str(caught.value)


def test_channels_last_counts_as_soon_as_one_operand_lies_so():
    # torch's own convolutions follow the same rule; a tensor that lies either way is an ordinary one.
    plain, weight = torch.zeros(2, 3, 4, 4), torch.zeros(5, 3, 2, 2)
    last = plain.to(memory_format=torch.channels_last)
    volume = torch.zeros(2, 3, 4, 4, 4).to(memory_format=torch.channels_last_3d)
    either = torch.zeros(2, 1, 4, 4).to(memory_format=torch.channels_last)
    assert channels_last(plain, weight) is channels_last(either, weight) is torch.contiguous_format
    assert channels_last(last, weight) is torch.channels_last
    assert channels_last(plain, weight.to(memory_format=torch.channels_last)) is torch.channels_last
    assert channels_last(volume, torch.zeros(5, 3, 2, 2, 2)) is torch.channels_last_3d
    made = torch.nn.functional.conv2d(last, weight)
    assert made.is_contiguous(memory_format=torch.channels_last)


def test_the_advice_for_a_tensor_that_numpy_cannot_read_works():
    x = normal((1, 2, 3, 3)).bfloat16()
    with pytest.raises(UnsupportedError, match="numpy cannot read") as refused:
        convolution_backward(x, x, x, None, 1, 0, 1, False, 0, 1, (True, False, False), 0)
    (advice,) = re.findall(r"bfloat16, which numpy has not, (\S+)", str(refused.value))
    made = eval(f"x{advice}", {"x": x, "torch": torch, "ml_dtypes": ml_dtypes})
    assert made.dtype == ml_dtypes.bfloat16
    assert np.array_equal(made.astype(np.float32), x.float().numpy())
