"""Measured changes of layout against their estimates."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ascendsim.ops.transdata import estimate_transdata
from ascendsim.validate.compare import Estimate
from ascendsim.validate.counters import active_us
from ascendsim.validate.schema import Row, refuse_beyond_memory

if TYPE_CHECKING:
    from ascendsim.profile import Profile


def transdata_us(row: Row, profile: Profile) -> Estimate:
    """Return the microseconds of a TransData between row after row and NC1HWC0 or FRACTAL_Z.

    Raises   AscendSimError if the shape is none of an image or a weight
    """
    refuse_beyond_memory(prod(row.input_shape))
    found = estimate_transdata(
        row.change, row.input_shape, row.compute_dtype, profile, c0=row.c0, l2_start=row.l2_start
    )
    return Estimate(found.time_us, active_us(found.timeline, profile), "schedule inferred")
