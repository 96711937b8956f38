"""Pixels spread over zeros, in one go; `reference/dilated.py` defines it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.ops.problems.folded import Dilated

    # Carriers, or binary16 as it is stored.
    Values = NDArray[Any]


def spread(values: Values, dilated: Dilated) -> Values:
    """Return an activation (N, C, spatial...) of one or two axes with its pixels apart, zeros between."""
    axes = values.ndim - 2
    image = values.reshape(*values.shape[:2], *(1,) * (2 - axes), *values.shape[2:])
    made = np.zeros((*image.shape[:2], *dilated.size), values.dtype)
    taken, places = [], []
    for first, step, count, size in zip(
        dilated.first, dilated.step, image.shape[2:], dilated.size, strict=True
    ):
        # Pixels that would lie outside are dropped at both ends.
        begin, end = -(-max(0, -first) // step), min(count, -(-(size - first) // step))
        taken.append(slice(begin, end))
        places.append(slice(first + begin * step, size, step))
    made[:, :, *places] = image[:, :, *taken]
    return made.reshape(*values.shape[:2], *dilated.size[2 - axes :])
