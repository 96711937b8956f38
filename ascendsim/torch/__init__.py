"""Convolutions and matrix products of PyTorch scripts on the simulator: forward and backward, bit for bit.

    with ascendsim.torch.Simulation(product="910B2", cube_math_type=1) as simulation:
        train(...)                       # as it stands; every convolution and product inside is simulated
    print(simulation.table())            # cycles and times of each layer

Simulation             runs the convolutions of an unmodified script, records each layer
convolution, Setting   one convolution with its gradients, by name
Conv1d .. ConvTranspose3d
                       torch's modules with a `setting`
read_network           the convolutions of a model as a network of `ascendsim run --network`
record                 some training steps of a model: tensors of each layer's backward in .npz files

docs/torch.md explains them. PyTorch is an extra: pip install 'ascendsim[torch]', in a checkout
pip install -e '.[torch]'.
"""

from ascendsim.errors import install_hint as _install_hint

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError(f"ascendsim.torch needs PyTorch: {_install_hint('torch')}") from error

from ascendsim.torch.autograd import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    convolution,
)
from ascendsim.torch.dispatch import Simulation, record
from ascendsim.torch.ledger import Record
from ascendsim.torch.network import read_network
from ascendsim.torch.passes import Setting

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "Record",
    "Setting",
    "Simulation",
    "convolution",
    "read_network",
    "record",
]
