"""What one accumulator goes through from its zero to its way out: cube product after cube product.

A reduction reaches the cube in slices, one Mmad each. Every model but `exact` rounds in each of them, so it
takes them as they come. `exact` rounds once for all of them, so it takes them joined into one product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ascendsim.numerics.accumulation.settings import Accumulation

    Slice = tuple[NDArray[np.float32], NDArray[np.float32]]


def rounds_once(model: Accumulation) -> bool:
    """Tell whether a model rounds once for a whole reduction, however many Mmads it takes."""
    return getattr(model, "kind", "") == "exact"


def products_of(model: Accumulation, slices: Sequence[Slice]) -> Sequence[Slice]:
    """Return the products that a model adds one after the other for the slices of one reduction.

    Shapes   slices of a (m, k) and b (k, n), each of its own k
    """
    import numpy as np

    if not rounds_once(model) or len(slices) < 2:
        return slices
    lefts, rights = zip(*slices, strict=True)
    return [(np.concatenate(lefts, axis=1), np.concatenate(rights, axis=0))]
