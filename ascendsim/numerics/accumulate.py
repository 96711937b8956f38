"""Add one cube product to accumulators under a named model: the compiled models behind one function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendsim.errors import UnsupportedError
from ascendsim.numerics.kernels_block import Rules, block
from ascendsim.numerics.kernels_fused import seq
from ascendsim.numerics.panel_rounding import MODES, Rounding

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ascendsim.numerics.models import AccumulationModel


def accumulate(
    model: AccumulationModel, a: NDArray[np.float32], b: NDArray[np.float32], c: NDArray[np.float32]
) -> None:
    """Add a product to `c`, bit for bit as the model's twin defines it.

    Shapes   a (m, k), b (k, n), c (m, n), C-contiguous
    Types    float32 carriers
    Order    blocks begin at k = 0 of this call
    """
    if model.kind == "seq" and model.rounding == "RNE":
        seq(a, b, c, True)
        return
    if model.kind == "block" and isinstance(model.block, int):
        how = Rounding(MODES[model.rounding], False, 0.0)
        block(a, b, c, Rules(model.block, how, False, how, False))
        return
    raise UnsupportedError(f"accumulation model {model} has no compiled form yet; block and seq:RNE have")
