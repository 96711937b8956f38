"""The parts of which loop nests on the cube are made: rings of slots, loads of image tiles, products."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache, partial
from typing import Any, NamedTuple

from ascendsim.cube.mmad import Mmad, PipeBarrier, spacing_needed
from ascendsim.cube.movers import CopyGmToL1, FillL1, LoadL0A, LoadL0B
from ascendsim.cube.tile_reads import TileRead
from ascendsim.ops.plan import Tiling
from ascendsim.ops.problems.sliding import ImageTile
from ascendsim.program.builder import ProgramBuilder
from ascendsim.program.loops.rings import Ring
from ascendsim.program.places import GmTensor, Slot

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

    With two copies (ping-pong) one tile arrives while the pipe behind it reads the other. With one, the
    builder makes every load wait until the last reader has left the slot, so the two pipes take turns.
    """

    left: Ring
    right: Ring
    l0a: Ring
    l0b: Ring
    l0c: Ring


def tile_rings(builder: ProgramBuilder, tiling: Tiling, sizes: Sizes, itemsize: int) -> TileRings:
    """Reserve the slots of a core.

    Raises   CapacityError naming buffer, need and capacity
    """
    m, n, k, left_bytes, right_bytes = sizes
    return TileRings(
        builder.ring("L1", left_bytes, "A1", tiling.al1_buffers, asked=False),
        builder.ring("L1", right_bytes, "B1", tiling.bl1_buffers, asked=False),
        builder.ring("L0A", m * k * itemsize, "A0", tiling.al0_buffers, asked=False),
        builder.ring("L0B", k * n * itemsize, "B0", tiling.bl0_buffers, asked=False),
        builder.ring("L0C", m * n * ACCUMULATOR_BYTES, "C0", tiling.cl0_buffers),
    )


def held(ring: Ring, tile: tuple[Hashable, Hashable], load: Callable[..., None], *args: Any) -> Slot:
    """Return the slot that holds a tile, known by its place and what of it; load it unless it is there.

    `load(slot, *args)` brings it into the slot whose turn it is.
    """
    slot = ring.find(*tile)
    if slot is None:
        slot = ring.next(*tile)
        load(slot, *args)
    return slot


class Tiles:
    """Appends loads and products of tiles to a builder.

    cut   how the product is cut (`DgradTasks`, `WgradTasks`)
    """

    def __init__(self, builder: ProgramBuilder, cut: Any) -> None:
        self._b = builder
        self._cut = cut
        # Asked with every product, of which there are thousands of a few sizes.
        self._spaced = cache(partial(spacing_needed, cut.profile))

    def _image(
        self, slot: Slot, tile: ImageTile, image: GmTensor, find: Callable[..., Index], *task: Any
    ) -> None:
        """Bring an image tile into L1; find(*task) is its slice of the image."""
        if tile.clear:
            # A strided copy leaves gaps between its pixels; they are the zeros that the stride inserts.
            self._b.add(FillL1(slot, tile.l1_bytes, tile.window.tile_shape))
        # A tile may lie in the padding as a whole: then there is nothing to copy.
        if tile.rows is not None:
            source = self._b.gm(image, find, *task)
            self._b.add(CopyGmToL1(slot, source, tile.gm_bytes, (), tile.window, tile.placement))

    def _product(
        self,
        accumulator: Slot,
        left: tuple[Slot, Slot, TileRead],
        right: tuple[Slot, Slot, TileRead],
        sizes: tuple[int, int, int],
        *,
        first: bool,
    ) -> None:
        """Load both operands, each (slot in L1, slot in L0, view), and add their product of m x k x n."""
        m, k, n = sizes
        (left_l1, l0a, rows), (right_l1, l0b, columns) = left, right
        self._b.add(LoadL0A(l0a, left_l1, rows))
        self._b.add(LoadL0B(l0b, right_l1, columns))
        # A product of few fractals would want the accumulator before the one before has given it back.
        if not first and self._spaced(m, n):
            self._b.add(PipeBarrier("M"))
        self._b.add(Mmad(accumulator, l0a, l0b, m, k, n, self._cut.gemm.compute_dtype, first))
