"""Sums in float32 in the order in which vector cores make them: parts of a reduction, and grad_bias."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ascendsim.native.default_arithmetic import default_arithmetic

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

LANES = 64  # float32 elements of one vector command: 256 bytes


def add_in_order(parts: Sequence[Floats] | Floats) -> Floats:
    """Add arrays, or the rows of one, one after the other, each sum rounded to float32."""
    # numpy adds float32 arrays element by element, each sum rounded to nearest even, as the vector cores do.
    if len(parts) == 1:
        return parts[0].copy()
    with np.errstate(over="ignore", invalid="ignore"):
        total: Floats = np.add(parts[0], parts[1])
        for part in parts[2:]:
            total += part
    return total


def add_to_zeros(sums: Sequence[Floats]) -> Floats:
    """Return the sum of the parts of a grad_input; a single one stands for itself.

    L0C begins anew with every part, so of several even the first is added to the zero in global memory.
    """
    return sums[0] if len(sums) == 1 else add_in_order([np.zeros_like(sums[0]), *sums])


def add_as_tree(parts: Floats) -> Floats:
    """Add the rows of `parts` in pairs, then the sums in pairs, and so on; an odd one waits for its turn."""
    rows = list(parts)
    with np.errstate(over="ignore", invalid="ignore"):
        while len(rows) > 1:
            pairs = [np.add(rows[at], rows[at + 1]) for at in range(0, len(rows) - 1, 2)]
            rows = pairs + rows[len(pairs) * 2 :]
    total: Floats = rows[0].copy()
    return total


@default_arithmetic
def bias_gradient(grad_output: Floats, parts: int) -> Floats:
    """Return grad_bias in float32, before the conversion to its format.

    Shapes   grad_output (N, C, spatial...) -> (C,)
    Order    the images are cut into `parts`; in each, element e of every image's channel is added to lane
             e % 64, image after image; then lanes by halves, 32 + 32, 16 + 16, ...; then the parts in order
    """
    batch = grad_output.shape[0]
    flat = grad_output.reshape(batch, grad_output.shape[1], -1)
    sums = []
    for part in range(parts):
        images = flat[batch * part // parts : batch * (part + 1) // parts]
        with np.errstate(over="ignore", invalid="ignore"):
            sums.append(_lane_sum(images))
    return add_in_order(np.stack(sums))


def _lane_sum(images: Floats) -> Floats:
    """Return the sum of each channel of (images, C, elements)."""
    # One column at a time: `sum` of numpy would add pairwise, in an order of its own.
    lanes = np.zeros((images.shape[1], LANES), np.float32)
    for image in images:
        for element in range(image.shape[1]):
            lanes[:, element % LANES] += image[:, element]
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = lanes[:, :half] + lanes[:, half:]
    total: Floats = lanes[:, 0]
    return total
