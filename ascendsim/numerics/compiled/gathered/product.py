"""Add a product that is made by many Mmads to accumulators."""

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ascendsim.numerics.accumulation.models import AccumulationModel
from ascendsim.numerics.compiled.accumulate import accumulate
from ascendsim.numerics.compiled.gathered.cuts import cuts_of
from ascendsim.numerics.compiled.gathered.factor import Factor, Places

# Large enough for the cost of a call to vanish, small enough for the pieces of both factors to stay in L2.
_LINES = 512
_STEPS = 160


def add_product(
    model: AccumulationModel, a: Factor, b: Factor, ends: Places, c: npt.NDArray[np.float32]
) -> None:
    """Add a product to `c` in place: the bits of one `accumulate` after another, one for each Mmad.

    Shapes   a (m, k), b (n, k), c (m, n), C-contiguous; ends (Mmads,), where each Mmad ends along k
    Types    float32 carriers
    Raises   as `accumulate`
    """
    if not len(ends) or not c.size:
        return
    cuts = cuts_of(model, ends, _STEPS)
    for line in range(0, len(a.lines), _LINES):
        rows, cells = a.part(slice(line, line + _LINES)), c[line : line + _LINES]
        for first, last in pairwise(cuts.tolist()):
            accumulate(model, rows.matrix(first, last), b.turned(first, last), cells)
