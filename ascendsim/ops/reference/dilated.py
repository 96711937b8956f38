"""What a Dilation kernel does, by definition: pixels spread over zeros."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ascendsim.ops.problems.dilated import Dilated

if TYPE_CHECKING:
    from ascendsim.ops.reference.ordered import Floats


def spread(values: Floats, dilated: Dilated) -> Floats:
    """Return an activation (N, C, spatial...) of one or two axes with its pixels apart, zeros between."""
    axes = values.ndim - 2
    # A line is an image of one row.
    image = values.reshape(*values.shape[:2], *(1,) * (2 - axes), *values.shape[2:])
    made = np.zeros((*image.shape[:2], *dilated.size), np.float32)
    for row in range(image.shape[2]):
        for column in range(image.shape[3]):
            y = dilated.first[0] + row * dilated.step[0]
            x = dilated.first[1] + column * dilated.step[1]
            if 0 <= y < dilated.size[0] and 0 <= x < dilated.size[1]:
                made[:, :, y, x] = image[:, :, row, column]
    return made.reshape(*values.shape[:2], *dilated.size[2 - axes :])
