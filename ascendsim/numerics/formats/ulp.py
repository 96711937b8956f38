"""The step of a format at a value: one unit in the last place."""

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ascendsim.numerics.formats.dtypes import DType
from ascendsim.numerics.formats.hifloat8_codes import fraction_bits

Float64Array = npt.NDArray[np.float64]


def ulps(values: Float64Array, fmt: DType) -> Float64Array:
    """Return the format's step in the binade of each float64 value.

    Special  zero and values below the smallest normal have the subnormals' step; values above the largest,
             Inf and NaN have that of the last binade; hifloat8 below 2**-15 has powers of two only: there the
             step is the binade's own width
    """
    # Zero and subnormal doubles have field 0, Inf and NaN the last one: the table clips both.
    field = values.view(np.uint64) >> np.uint64(52) & np.uint64(0x7FF)
    steps: Float64Array = _table(fmt)[field]
    return steps


@lru_cache
def _table(fmt: DType) -> Float64Array:
    """Tabulate the step by the exponent field of a float64 (0..2047)."""
    exponent = np.arange(2048) - 1023
    if fmt.tapered:
        exponent = np.clip(exponent, -22, 15)
        kept = fraction_bits(exponent)
    else:
        exponent = np.clip(exponent, fmt.min_exponent, math.frexp(fmt.max_finite)[1] - 1)
        kept = np.full(2048, fmt.mantissa_bits)
    steps: Float64Array = np.ldexp(1.0, exponent - kept)
    return steps
