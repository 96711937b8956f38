"""Does the mode work inside what torch and its users put around convolutions?"""

import pytest

from tests.helpers.torch_samples import door, ones_and_zeros, torch

Simulation = door.Simulation


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
