"""Do layers find their names, and tensors keep their bits, in the simulator and in records?"""

import contextlib
import itertools
import re

import ml_dtypes
import numpy as np
import pytest

from ascendsim import conv_tbc_backward, convolution_backward, matmul
from ascendsim.errors import BudgetError, ConfigError, ShapeError, UnsupportedError
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
    assert door.dispatch.wanted(LAYER, door.dispatch.checked_filter(chosen)) is taken


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


# --- Are products, linear layers and attention those of `matmul`, forward and backward? ----------------

EVERY_CUBE = pytest.mark.parametrize(
    ("product", "math", "kind"),
    [
        *(("910B2", math, "float32") for math in (0, 1, 2)),
        ("910B2", 0, "bfloat16"),
        ("910_95", 3, "float32"),
        ("910", 0, "float16"),
    ],
)


def plain(tensor):
    return array_of(tensor.detach())


def seen(simulation):
    """Return layer, pass and result of each record."""
    return [(one.layer.name, one.layer.direction, *one.layer.results) for one in simulation.records]


@EVERY_CUBE
def test_a_linear_layer_is_three_products_and_a_sum(product, math, kind):
    keywords = {"product": product, "cube_math_type": math}
    x = normal((3, 9, 40), kind, 1).requires_grad_()
    layer = torch.nn.Linear(40, 24).to(KINDS[kind])
    grad = normal((3, 9, 24), kind, 2)
    with door.Simulation(**keywords, errors="first") as simulation:
        made = layer(x)
        made.backward(grad)
    rows, weight, over = (plain(one) for one in (x.reshape(27, 40), layer.weight, grad.reshape(27, 24)))
    product_alone = matmul(rows, weight, transpose_b=True, **keywords)
    more = decode(plain(layer.bias), str(plain(layer.bias).dtype))
    wanted = tensor_of(product_alone.output, x).float() + torch.from_numpy(more)
    assert same_bits(made, wanted.to(x.dtype).reshape(3, 9, 24))
    grad_input = matmul(over, weight, **keywords)
    assert same_bits(x.grad, tensor_of(grad_input.output, x).reshape(x.shape))
    grad_weight = matmul(over, rows, transpose_a=True, **keywords)
    assert same_bits(layer.weight.grad, tensor_of(grad_weight.output, x))
    as_image = over.reshape(27, 24, 1)
    shape = (np.zeros((27, 1, 1), over.dtype), np.zeros((24, 1, 1), over.dtype))
    asked = (24,), 1, 0, 1, False, 0, 1, (False, False, True), math
    sums = convolution_backward(as_image, *shape, *asked, product=product)
    assert same_bits(layer.bias.grad, tensor_of(sums.grad_bias, x))
    results = {one.layer.results[0]: one for one in simulation.records}
    assert set(results) == {"output", "grad_input", "grad_weight", "grad_bias"}
    assert all(one.layer.name == "Linear" and one.errors[0] for one in simulation.records)
    assert results["grad_weight"].cycles == grad_weight.cycles
    assert results["output"].cycles == product_alone.cycles


@pytest.mark.parametrize("turned", [False, True])
def test_a_batch_of_products_and_its_gradients(turned):
    a = normal((2, 3, 17, 20), seed=1)
    a = (a.mT.contiguous().mT if turned else a).requires_grad_()
    b, grad = normal((2, 3, 20, 9), seed=2).requires_grad_(), normal((2, 3, 17, 9), seed=3)
    with door.Simulation("910B2", 1) as simulation:
        made = a @ b
        made.backward(grad)
    x, w, y = (plain(one).reshape(6, *one.shape[2:]) for one in (a, b, grad))
    keywords = {"product": "910B2", "cube_math_type": 1}
    wanted = (
        matmul(x, w, **keywords),
        matmul(y, w, transpose_b=True, **keywords),
        matmul(x, y, transpose_a=True, **keywords),
    )
    for ours, explicit in zip((made, a.grad, b.grad), wanted, strict=True):
        assert same_bits(ours.reshape(6, *ours.shape[2:]), torch.from_numpy(explicit.output))
    assert [result for *_, result in seen(simulation)] in (
        ["output", "grad_input", "grad_weight"],
        ["output", "grad_weight", "grad_input"],
    )


def test_what_a_product_adds_is_scaled_and_added_in_float32():
    add, a, b = (normal(shape, seed=at).requires_grad_() for at, shape in enumerate(((9,), (5, 20), (20, 9))))
    out = torch.empty(5, 9)
    with door.Simulation("910B2") as simulation:
        made = torch.addmm(add, a, b, alpha=0.3, beta=1.7)
        made.sum().backward()
        torch.mm(a.detach(), b.detach(), out=out)
        held = add.detach().repeat(5, 1).addmm_(a.detach(), b.detach(), alpha=0.3, beta=1.7)
    product = matmul(plain(a), plain(b), product="910B2").output
    wanted = product * np.float32(0.3) + plain(add) * np.float32(1.7)
    assert same_bits(made, torch.from_numpy(wanted))
    assert same_bits(held, torch.from_numpy(wanted))
    assert same_bits(out, torch.from_numpy(product))
    assert simulation.records[0].calls == 3  # one layer: "(no module)"
    assert same_bits(add.grad, torch.full((9,), 5.0) * 1.7)  # five ones, scaled at the end


LEFT, RIGHT = normal((2, 3)), normal((3, 4), seed=1)


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.mm(LEFT.half(), RIGHT.half(), out=torch.empty(2, 4)),
        lambda: torch.addmm(torch.ones(5, 2, 4), LEFT, RIGHT),
        lambda: torch.addmm(torch.ones(2, 4).half(), LEFT, RIGHT),
        lambda: torch.ones(1, 4).addmm_(LEFT, RIGHT),
        lambda: torch.nn.functional.linear(LEFT, RIGHT.T, torch.ones(7)),
    ],
)
def test_what_torch_refuses_of_a_product_is_refused(call):
    for around in (contextlib.nullcontext(), door.Simulation("910B2")):
        with pytest.raises(RuntimeError, match=r"size|dtype") as caught, around:
            call()
        assert type(caught.value) is RuntimeError


@pytest.mark.parametrize("shape", [(0,), (9, 2, 4), (1, 4)])
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_a_result_has_its_shape_whatever_it_is_written_into(shape):
    out = torch.empty(shape)
    with door.Simulation("910B2"):
        assert torch.mm(LEFT, RIGHT, out=out) is out
    assert same_bits(out, torch.from_numpy(matmul(plain(LEFT), plain(RIGHT), product="910B2").output))


def test_a_factor_of_zero_leaves_out_what_is_no_number():
    wild, add = torch.full((2, 3), torch.inf), torch.full((2, 4), 3.0)
    with door.Simulation("910B2", errors="every") as simulation:
        assert torch.equal(torch.addmm(add, wild, RIGHT, alpha=0), add)
        made = torch.addmm(add * torch.nan, LEFT, RIGHT, beta=0)
        assert same_bits(made, torch.mm(LEFT, RIGHT))
    assert simulation.records[0].errors[0][0].errors.max_abs == 0


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("mm", [(40, 30), (30, 20)]),
        ("conv1d", [(2, 16, 30), (16, 16, 3)]),
        ("conv_tbc", [(30, 2, 16), (3, 16, 16), (16,)]),
    ],
)
def test_a_pass_needs_room_for_its_tensors_alone(name, shapes):
    tensors = [normal(shape).requires_grad_() for shape in shapes]
    for way in ("forward", "backward"):
        little = door.Simulation("910B2", most_bytes=1000, passes=way)
        with pytest.raises(BudgetError, match="its tensors") as caught, little:
            getattr(torch, name)(*tensors).sum().backward()
        assert caught.value.__notes__[0].startswith(way)
    # One that ran is estimated, whatever its size.
    with door.Simulation("910B2") as simulation:
        getattr(torch, name)(*tensors).sum().backward()
    ledger, little = door.ledger.Ledger(), door.Setting("910B2", most_bytes=1, most_instructions=1)
    for one in simulation.records:
        ledger.entry(one.layer, little)
    assert [one.cycles for one in ledger.records()] == [one.cycles for one in simulation.records]


def test_a_second_call_of_a_planned_layer_has_values_and_strides_of_its_own():
    """Plans are kept: what differs from call to call must not be in them."""
    keywords = {"product": "910B2"}
    shape, kernel = (2, 16, 6, 6), (16, 16, 3, 3)
    images = (
        normal(shape, seed=1),
        normal(shape, seed=2).mT,
        normal(shape, seed=3).permute(1, 0, 3, 2).contiguous().permute(1, 0, 2, 3),
        normal((1, 16, 6, 1), seed=4).expand(shape),
    )
    matrices = normal((16, 16), seed=5), normal((16, 16), seed=6).T, normal((1, 16), seed=7).expand(16, 16)
    with door.Simulation(**keywords):
        for at, image in enumerate(images):
            x, w = image.detach().requires_grad_(), normal(kernel, seed=9 + at).mT.requires_grad_()
            over = normal((2, 16, 4, 1), seed=20 + at).expand(2, 16, 4, 4)
            torch.nn.functional.conv2d(x, w).backward(over)
            arrays = (plain(one) for one in (over, x, w))
            asked = None, 1, 0, 1, False, 0, 1, (True, True, False), 0
            wanted = convolution_backward(*arrays, *asked, **keywords)
            assert same_bits(x.grad, torch.from_numpy(wanted.grad_input)), at
            assert same_bits(w.grad, torch.from_numpy(wanted.grad_weight)), at
        for a, b in itertools.product(matrices, repeat=2):
            assert same_bits(a @ b, torch.from_numpy(matmul(plain(a), plain(b), **keywords).output))


class Attention(torch.nn.Module):
    """A small block as scripts write it."""

    def __init__(self):
        super().__init__()
        self.block = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.head = torch.nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.block(x).mean(1))


@pytest.mark.parametrize("how", ["train", "autocast", "no_grad", "inference", "checkpoint", "per sample"])
def test_a_block_with_attention_runs_in_one_arithmetic(how):
    torch.manual_seed(0)
    network, x = Attention(), normal((2, 5, 16))
    whole = torch.backends.mha.get_fastpath_enabled()
    with door.Simulation("910B2") as simulation:
        if how == "train":
            network(x).sum().backward()
        elif how == "autocast":
            with torch.autocast("cpu"):
                network(x).float().sum().backward()
        elif how == "checkpoint":
            torch.utils.checkpoint.checkpoint(network, x, use_reentrant=False).sum().backward()
        elif how == "per sample":
            weights = dict(network.head.named_parameters())
            call = torch.func.functional_call
            gradients = torch.func.grad(lambda own, one: call(network.head, own, (one,)).square().sum())
            made = torch.func.vmap(gradients, in_dims=(None, 0))(weights, x[:, 0])
        else:
            with torch.no_grad() if how == "no_grad" else torch.inference_mode():
                network.eval()(x)
    assert torch.backends.mha.get_fastpath_enabled() == whole
    forward = [name for name, direction, _ in seen(simulation) if direction == "forward"]
    if how == "per sample":
        assert made["weight"].shape == (2, 4, 16)
        assert "backward" in {direction for _, direction, _ in seen(simulation)}
        return
    products = [f"block.self_attn{number}" for number in ("", "#1", "#2", "#3")]
    assert forward == [*products, "block.linear1", "block.linear2", "head"]
    kinds = {one.layer.dtypes[0] for one in simulation.records}
    assert kinds == {"bfloat16" if how == "autocast" else "float32"}
    backward = {(name, result) for name, direction, result in seen(simulation) if direction == "backward"}
    if how in ("no_grad", "inference"):
        assert not backward
    else:
        assert {("head", one) for one in ("grad_input", "grad_weight", "grad_bias")} < backward
        assert {("block.self_attn#1", one) for one in ("grad_input", "grad_weight")} < backward


def test_what_the_cube_does_not_multiply_is_left_to_torch():
    x = normal((4, 8))
    with door.Simulation("910B2") as simulation:
        _ = x.double() @ x.double().T, x.int() @ x.int().T, x @ x[0]
    with door.Simulation("910B2", operators="convolution") as without:
        _ = x @ x.T
    assert not simulation.records
    assert not without.records


def test_a_product_that_saturates_raises_the_float_status():
    layer = torch.nn.Linear(16, 4).half()
    with door.Simulation("910") as simulation:
        (layer(normal((8, 16)).half() * 100).float().sum() * 6e4).backward()
    assert ("Linear", "backward", "matmul") in simulation.float_status
    assert "grad_weight 100% at the largest value" in simulation.table()


def test_a_refused_product_names_its_layer():
    network = torch.nn.Sequential(torch.nn.Linear(8, 4))
    with pytest.raises(UnsupportedError, match="float32") as caught, door.Simulation("910"):
        network(normal((2, 8)))
    assert "forward of layer 0" in caught.value.__notes__[0]
    with door.Simulation("910", refused="torch") as simulation:
        made = network(normal((2, 8)))
    assert same_bits(made, network(normal((2, 8))))
    assert simulation.records[0].refused


@pytest.mark.parametrize("math", [0, 1, 2])
def test_conv_tbc_has_the_gradients_of_its_operator(math):
    shapes = (7, 2, 16), (3, 16, 8), (8,)
    tensors = [normal(shape, seed=at).requires_grad_() for at, shape in enumerate(shapes)]
    with door.Simulation("910B2", math, errors="first") as simulation:
        made = torch.conv_tbc(*tensors, 1)
        made.backward(torch.ones_like(made))
    over = np.ones(made.shape, np.float32)
    explicit = conv_tbc_backward(over, *map(plain, tensors), 1, math, product="910B2")
    wanted = explicit.grad_input, explicit.grad_weight, explicit.grad_bias
    for tensor, values in zip(tensors, wanted, strict=True):
        assert same_bits(tensor.grad, torch.from_numpy(values))
    assert simulation.records[1].cycles == explicit.cycles
    x, w, b = tensors
    with door.Simulation("910B2", math):
        image = torch.nn.functional.conv1d(x.permute(1, 2, 0), w.permute(2, 1, 0), b, padding=1)
    assert same_bits(made, image.permute(2, 0, 1))
    with door.Simulation("910B2", layers="none of them") as simulation:
        torch.conv_tbc(*tensors, 1).sum().backward()
    assert not simulation.records
