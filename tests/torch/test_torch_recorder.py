"""Are recorded tensors those of the training, and does the command read them?"""

import numpy as np
import pytest

from ascendsim.errors import ConfigError, UnsupportedError
from tests.helpers.torch_samples import door, normal, torch


@pytest.fixture(autouse=True)
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


def test_a_layer_that_runs_twice_has_two_files(tmp_path):
    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Conv2d(1, 1, 3, padding=1)

        def forward(self, x):
            return torch.nn.functional.conv2d(self.conv(self.conv(x)), torch.ones(1, 1, 1, 1)).flatten(1)

    paths = door.record(Twice(), [(BATCHES[0][0], torch.tensor([5, 4]))], 1, tmp_path)
    assert [path.name for path in paths] == ["Twice.step0.npz", "conv.step0.npz", "conv.step0.2.npz"]


def test_a_loss_of_ones_own_is_taken(tmp_path):
    (path,) = door.record(network(), BATCHES, 1, tmp_path, loss=lambda made, _: made.sum(), layers="2")
    # The gradient of a sum is 1 everywhere.
    assert (np.load(path)["grad_output"] == 1).all()


@pytest.mark.parametrize("steps", [0, -1, 1.5, True, None])
def test_a_number_of_steps_is_a_positive_whole_number(steps, tmp_path):
    with pytest.raises(ConfigError, match="steps"):
        door.record(network(), BATCHES, steps, tmp_path)


def test_mistakes_are_errors_of_the_simulator(tmp_path):
    with pytest.raises(ConfigError, match="batch 0"):
        door.record(network(), [normal((2, 1, 4, 4))], 1, tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be made"):
        door.record(network(), BATCHES, 1, tmp_path / "file")
    with pytest.raises(UnsupportedError, match=r"torch\.float64"):
        door.record(network(torch.float64), [(BATCHES[0][0].double(), BATCHES[0][1])], 1, tmp_path)
