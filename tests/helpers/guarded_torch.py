"""A small call of each door for torch: forward, backward, and what a simulation has written down."""

from functools import cache

from tests.helpers.guarded_calls import PRODUCT, TENSORS, each

KINDS = ("Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d")


@cache
def leaves(scale):
    """Return grad_output, input, weight and bias, made before any mode is set."""
    import torch

    grad_output, input, weight = (torch.from_numpy(x.copy()) for x in TENSORS[scale])
    return grad_output, input, weight, weight[:, 0, 0, 0].clone()


def differentiated(scale, by, run):
    """Return an output and the gradients of all that it was made of."""
    grad_output, *given = leaves(scale)
    given = [tensor.clone().requires_grad_() for tensor in given]
    made = run(*given)
    made.backward(grad_output.reshape(made.shape) if by is None else by)
    return [made, *(tensor.grad for tensor in given)]


def convolved(scale):
    """Convolve by name, plainly and under autocast."""
    import torch

    from ascendsim.torch import Setting, convolution

    setting = Setting(PRODUCT)
    plain = differentiated(scale, None, lambda x, w, b: convolution(x, w, b, 1, 1, setting=setting))
    with torch.autocast("cpu", torch.bfloat16):
        output = convolution(*leaves(scale)[1:], 1, 1, setting=setting)
    return plain, output.float()


def simulated(scale):
    """Convolve under the mode, and read its records."""
    import torch

    from ascendsim.torch import Simulation

    with Simulation(PRODUCT, errors="every") as simulation:
        made = differentiated(scale, None, lambda x, w, b: torch.nn.functional.conv2d(x, w, b, padding=1))
    records = [(one.cycles, one.time_us, one.errors) for one in simulation.records]
    return made, records, simulation.table()


@cache
def module(kind):
    """Return a module and what goes in, and a gradient of what comes out."""
    import torch

    from ascendsim import torch as door

    torch.manual_seed(29)
    made = getattr(door, kind)(4, 6, 3, padding=1, setting=door.Setting(PRODUCT))
    rank = int(kind[-2])
    return made, torch.randn(2, 4, *(5,) * rank), torch.randn(2, 6, *(5,) * rank)


def by_module(kind):
    """Return a call that runs a module forth and back."""

    def call():
        made, input, grad = module(kind)
        made.zero_grad()
        output = made(input)
        output.backward(grad)
        return [output, made.weight.grad.clone(), made.bias.grad.clone()]

    return call


SIMULATED = each(simulated)
TORCH = {
    "torch.autograd.convolution": each(convolved),
    "torch.dispatch.Simulation": SIMULATED,
    "torch.passes.Record": SIMULATED,
    **{f"torch.autograd.{kind}": [by_module(kind)] for kind in KINDS},
}
