"""Small convolutions and networks of torch, shared by tests; they are skipped where torch is missing."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: its door cannot be opened")

door = pytest.importorskip("ascendsim.torch")

torch.set_num_threads(1)  # small tensors: handing them to threads takes longer than the arithmetic

KINDS = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e5m2": torch.float8_e5m2,
}


def ones_and_zeros(shape, seed=0):
    """Draw -1, 0 and 1: sums of their products are exact in float32, so every order gives one result."""
    return np.random.default_rng(seed).integers(-1, 2, shape).astype(np.float32)


def normal(shape, dtype="float32", seed=0):
    """Draw a tensor of a type."""
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return torch.from_numpy(values).to(KINDS[dtype])


def same_bits(a, b):
    """Tell whether two tensors have one type and the same bits."""
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
    bits = (t.detach().contiguous().view(kinds[t.element_size()]) for t in (a, b))
    return a.dtype == b.dtype and torch.equal(*bits)


def attributes(problem):
    """Return stride, padding, dilation, transposed, output_padding and groups as torch takes them."""
    spread = (problem.stride, problem.padding, problem.dilation, problem.output_padding)
    *sizes, spare = (np.broadcast_to(value, problem.rank).tolist() for value in spread)
    return *sizes, problem.transposed, spare, problem.groups


def small_network():
    """A network with every kind of layer: grouped, strided, transposed, with a bias and without."""
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=2, bias=False),
        torch.nn.ReLU(),
        torch.nn.ConvTranspose2d(8, 4, 2, stride=2),
        torch.nn.ReLU(),
        torch.nn.Conv2d(4, 1, 3, padding="same", bias=False),
    )


def train(network, steps):
    """Train as any script does, and return the losses: nothing here knows of a simulator."""
    images = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(network(images), images.roll(1, -1))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
