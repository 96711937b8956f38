"""The rings of slots of which loop nests on the cube are made."""

from __future__ import annotations

from typing import Any, NamedTuple

from ascendsim.ops.plan import Tiling
from ascendsim.program.reserved import Reserved, Ring

# L0C adds in float32, or in int32, whatever the operands are.
ACCUMULATOR_BYTES = 4

Index = tuple[Any, ...]


class Sizes(NamedTuple):
    """The room that a core reserves: rows, columns and reduction of its largest tiles in L0, bytes in L1."""

    m: int
    n: int
    k: int
    left_bytes: int
    right_bytes: int


class TileRings(NamedTuple):
    """The slots of both operands in L1 and in L0, and of the accumulators; each in as many copies as asked.

    With two copies (ping-pong) one tile arrives while the pipe behind it reads the other. With one, every
    load waits until the last reader has left the slot, so the two pipes take turns.
    """

    left: Ring
    right: Ring
    l0a: Ring
    l0b: Ring
    l0c: Ring


def tile_rings(nest: Reserved, tiling: Tiling, sizes: Sizes, itemsize: int) -> TileRings:
    """Reserve the slots of a core.

    Raises   CapacityError naming buffer, need and capacity
    """
    m, n, k, left_bytes, right_bytes = sizes
    return TileRings(
        nest.ring("L1", left_bytes, "A1", tiling.al1_buffers),
        nest.ring("L1", right_bytes, "B1", tiling.bl1_buffers),
        nest.ring("L0A", m * k * itemsize, "A0", tiling.al0_buffers),
        nest.ring("L0B", k * n * itemsize, "B0", tiling.bl0_buffers),
        nest.ring("L0C", m * n * ACCUMULATOR_BYTES, "C0", tiling.cl0_buffers),
    )
