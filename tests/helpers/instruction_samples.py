"""The memory of a core with values in it, for tests of single instructions."""

import numpy as np

from ascendsim.numerics.accumulation.models import AccumulationModel, MathSettings
from ascendsim.program.places import CoreMemory

MATH = MathSettings(AccumulationModel.parse("block:16:RNE"))


def memory(math=MATH, **gm):
    """The memory of a core beside these tensors in GM."""
    return CoreMemory(gm, math, {})


def put(mem, slot, values):
    """Fill a slot with a tile of these values."""
    values = np.asarray(values, np.float32)
    mem.new_tile(slot, values.shape)[...] = values


def counted(*shape):
    """Number the elements 1, 2, 3, ..."""
    return np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)
