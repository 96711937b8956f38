"""Train a small network of PyTorch as it stands, with its convolutions on the simulator.

Run it with `python examples/07_a_training_step_in_torch.py`, after `pip install 'ascendsim[torch]'`.
"""

import torch

from ascendsim.torch import Simulation

STEPS, BATCH, SIZE, CLASSES = 3, 4, 8, 3


def train():
    """Any training script: nothing in it knows of a simulator."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(8, 8, 3, stride=2, padding=1, bias=False),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(8 * (SIZE // 2) ** 2, CLASSES),
    )
    optimizer = torch.optim.SGD(network.parameters(), lr=0.2)
    images, classes = torch.randn(BATCH, 1, SIZE, SIZE), torch.randint(CLASSES, (BATCH,))
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(images), classes)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def show(name, losses):
    """Print the losses of a training."""
    print(f"{name:<22}", *(f"{loss:.4f}" for loss in losses))


show("torch", train())
with Simulation(product="910B2", cube_math_type=1, errors="first") as simulation:  # 1: HF32 is allowed
    show("910B2, HF32", train())
# The 8-bit formats are the 910_95's; its pages take them in transposed calls only, its cube takes them all.
with Simulation(product="910_95", rules="hardware", operands="hifloat8"):
    show("910_95, hifloat8", train())

print()
print(simulation.table())
