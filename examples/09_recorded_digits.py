"""Record the gradients of a small network on scikit-learn's digits, and ask which format holds them.

Run it with `python examples/09_recorded_digits.py`, after `pip install 'ascendsim[torch,examples]'`.
"""

import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits

from ascendsim.cli import main
from ascendsim.torch import record

SEED, BATCH, STEPS = 0, 512, 2

torch.manual_seed(SEED)
torch.set_num_threads(1)  # sums in one order, whatever the machine
network = torch.nn.Sequential(
    torch.nn.Conv2d(1, 8, 3, padding=1),
    torch.nn.ReLU(),
    torch.nn.Conv2d(8, 16, 3, padding=1),
    torch.nn.ReLU(),
    torch.nn.MaxPool2d(2),
    torch.nn.Conv2d(16, 16, 3, padding=1),
    torch.nn.ReLU(),
    torch.nn.Flatten(),
    torch.nn.Linear(16 * 4 * 4, 10),
)
digits = load_digits()  # 1,797 images of 8x8 pixels, 0 to 16, which come with the package
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
classes = torch.tensor(digits.target)


def batches(count):
    """Yield images with their classes, drawn from a seed."""
    for _ in range(count):
        chosen = torch.randint(len(images), (BATCH,))
        yield images[chosen], classes[chosen]


optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
for pictures, wanted in batches(STEPS):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(network(pictures), wanted).backward()
    optimizer.step()

with tempfile.TemporaryDirectory() as temporary:
    folder = Path(temporary) / "digits"
    files = record(network, batches(1), 1, folder)
    print("recorded:", *sorted(file.name for file in files))
    # The loss is a mean over the batch, so that gradients are small: float16 needs a loss scale.
    words = f"--npz {folder} --dtype float16 --loss-scale 1,4096 --accumulation default --jobs 1"
    main(["study", "precision", *words.split()])
