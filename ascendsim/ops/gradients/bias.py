"""grad_bias: sums over batch and space, in 64 lanes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ascendsim.ops.reference.ordered import LANES, add_in_order

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]


def bias_gradient(grad_output: Floats, parts: int) -> Floats:
    """Return grad_bias in float32, before the conversion to its format.

    Shapes   grad_output (N, C, spatial...) -> (C,)
    Order    as `ops/reference/ordered.py` says it, element by element
    """
    batch, channels = grad_output.shape[:2]
    flat = grad_output.reshape(batch, channels, -1)
    with np.errstate(over="ignore", invalid="ignore"):
        sums = [_lane_sum(flat[batch * p // parts : batch * (p + 1) // parts]) for p in range(parts)]
        return add_in_order(np.stack(sums))


def _lane_sum(images: Floats) -> Floats:
    """Return the sum of each channel of (images, C, elements)."""
    # 64 elements at a time, the last ones with fewer: a lane that begins at +0 is never -0, so that lanes
    # which get nothing more need no care.
    lanes = np.zeros((images.shape[1], LANES), np.float32)
    for image in images:
        for first in range(0, image.shape[1], LANES):
            some = image[:, first : first + LANES]
            lanes[:, : some.shape[1]] += some
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = lanes[:, :half] + lanes[:, half:]
    return lanes[:, 0]
