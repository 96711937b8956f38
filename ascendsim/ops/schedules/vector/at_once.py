"""What kernels of the vector cores do, done at once to whole tensors and not instruction by instruction.

The programs define what is made, and what it costs; these functions give the same bits sooner, for calls
whose results are wanted and whose order of execution is nobody's question.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ascendsim.ops.schedules.vector.relayout import Box, Relayout
from ascendsim.program.places import Gm, GmTensor

if TYPE_CHECKING:
    from ascendsim.program.memory import CoreMemory


def change_layout(change: Relayout, memory: CoreMemory) -> None:
    """Change the layout of a tensor, a plane at a time."""
    # A plane is a box like those that fit into UB, only larger, and means the same.
    source = memory.array(change.source)
    for plane in range(change.planes):
        box = Box(plane, range(change.c1), range(change.line), range(change.area))
        read, write = change.sides(box)
        if prod(write.shape):
            values = change.turn(box).turned(source[read.place].reshape(read.shape))
            memory.store(Gm(change.target, write.place), values, atomic=False)


def convert(source: GmTensor, target: GmTensor, memory: CoreMemory) -> None:
    """Convert a whole flat tensor to the format of another."""
    memory.store(Gm(target, (slice(None),)), memory.array(source), atomic=False)


def fill(target: GmTensor, value: float, memory: CoreMemory) -> None:
    """Set a whole flat tensor to one value, in its format."""
    import numpy as np

    values = np.full(target.shape, value, memory.math.carrier)
    memory.store(Gm(target, (slice(None),)), values, atomic=False)
