"""Do convolutions find the names of their layers, in both passes?"""

import pytest

from ascendsim.errors import ConfigError, ShapeError
from tests.helpers.torch_samples import door, normal, torch

UNNAMED = door.layers.UNNAMED


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


LAYER = door.layers.Layer("features.0", "forward", None, ("float32", "float32"), ("output",))


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
    assert door.layers.wanted(LAYER, door.layers.checked_filter(chosen)) is taken


@pytest.mark.parametrize("chosen", [5, ["a", 5], {"a"}])
def test_another_filter_is_refused(chosen):
    with pytest.raises(ConfigError, match="layers is"):
        door.Simulation(layers=chosen)
