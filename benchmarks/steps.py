"""How many of torch's own float32 steps does a simulated training step take?  `python -m benchmarks.steps`.

Seconds of the processor on one thread, both in turn, the shortest of several runs each. Names of networks and
modes after the command choose some: `python -m benchmarks.steps resnet18 digits hf32`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import process_time

import torch
from torch import nn
from torch.nn import functional

from ascendsim.torch import Simulation


class Block(nn.Module):
    """A block of ResNet-18."""

    def __init__(self, channels: int, made: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(channels, made, 3, stride, 1, bias=False), nn.BatchNorm2d(made), nn.ReLU()
        )
        self.second = nn.Sequential(nn.Conv2d(made, made, 3, 1, 1, bias=False), nn.BatchNorm2d(made))
        past = [nn.Conv2d(channels, made, 1, stride, bias=False), nn.BatchNorm2d(made)]
        self.past = nn.Sequential(*past if channels != made else [])

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return what the block makes of images."""
        return functional.relu(self.second(self.first(image)) + self.past(image))


def resnet18() -> nn.Module:
    """Return ResNet-18 for images of CIFAR."""
    first = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    sizes = ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2))
    blocks = [Block(*size) for a, b, stride in sizes for size in ((a, b, stride), (b, b, 1))]
    return nn.Sequential(*first, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def digits() -> nn.Module:
    """Return three convolutions and a linear layer for digits of 8x8 pixels."""
    layers: list[nn.Module] = []
    for channels, made in ((1, 32), (32, 64), (64, 64)):
        layers += [nn.Conv2d(channels, made, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers[:-1], nn.Flatten(), nn.Linear(256, 10))


def linear() -> nn.Module:
    """Return two linear layers for the same digits."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


# Network, shape of a batch, steps of a run, runs.
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int, int]] = {
    "resnet18": (resnet18, (8, 3, 32, 32), 3, 5),
    "resnet18@64": (resnet18, (64, 3, 32, 32), 1, 2),
    "digits": (digits, (64, 1, 8, 8), 20, 12),
    "linear": (linear, (64, 1, 8, 8), 50, 12),
}
# cube_math_type, and whether autocast casts to bfloat16.
MODES = {"hf32": (1, False), "type2": (2, False), "bf16": (0, True), "float32": (0, False)}


class Training:
    """A network that is trained on one batch."""

    def __init__(self, network: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
        torch.manual_seed(0)
        self._network = network()
        self._optimizer = torch.optim.SGD(self._network.parameters(), 0.01)
        self._images, self._wanted = torch.randn(shape), torch.randint(0, 10, shape[:1])

    def step_seconds(self, steps: int, *, narrow: bool = False) -> float:
        """Return the seconds of a step, the mean of some."""
        begin = process_time()
        for _ in range(steps):
            self._optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
                loss = functional.cross_entropy(self._network(self._images), self._wanted)
            loss.backward()
            self._optimizer.step()
        return (process_time() - begin) / steps


def main() -> None:
    """Print the ratio for each network and mode."""
    torch.set_num_threads(1)
    asked = set(sys.argv[1:])
    if unknown := asked - NETWORKS.keys() - MODES.keys():
        sys.exit(f"{', '.join(unknown)}: not one of {', '.join([*NETWORKS, *MODES])}")
    for name, (network, shape, steps, runs) in NETWORKS.items():
        for mode, (kind, narrow) in MODES.items():
            if any(
                asked & names.keys() and one not in asked for one, names in ((name, NETWORKS), (mode, MODES))
            ):
                continue
            own, simulated, times = Training(network, shape), Training(network, shape), []
            simulation = Simulation(product="910B2", cube_math_type=kind)
            for run in range(runs + 1):
                first = own.step_seconds(steps)
                with simulation:
                    second = simulated.step_seconds(steps, narrow=narrow)
                # The first run compiles.
                times += [(first, second)] if run else []
            torch_own, ours = (min(column) * 1e3 for column in zip(*times, strict=True))
            told = f"torch {torch_own:8.2f} ms, simulated {ours:8.2f}: {ours / torch_own:.2f} times"
            print(f"{name:12s} {mode:8s} {told}", flush=True)


if __name__ == "__main__":
    main()
