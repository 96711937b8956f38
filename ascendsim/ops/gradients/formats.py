"""Formats of whole tensors: as `numerics/formats/casts.py` has them, binary16 by compiled conversions.

numpy converts binary16 element by element, which takes as long as a tenth of a product.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ascendsim.numerics.compiled.gathered.halves import narrowed, widened
from ascendsim.numerics.formats.casts import encode, round_to

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ascendsim.ops.operands import Operand

    Floats = NDArray[np.float32]

HALF = "float16"


def carrier(operand: Operand) -> Floats:
    """Return the values of an operand as float32."""
    values: Any = operand.values
    return widened(values) if operand.dtype == HALF else operand.carrier()


def rounded(values: Floats, target: str, overflow: str) -> Floats:
    """Return values rounded into a format once, as float32."""
    if target == HALF and overflow == "ieee":
        return widened(narrowed(values))
    return round_to(values, target, overflow=overflow)


def stored(values: Floats, target: str) -> Any:
    """Return the stored elements of values on the grid of a format."""
    return narrowed(values) if target == HALF else encode(values, target)
