"""The tiles of a part of the reduction of a base block of a dgrad; parts that are alike share their code."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple

from ascendsim.cube.im2col import Im2col, Window
from ascendsim.cube.movers import CopyGmToL1
from ascendsim.cube.tile_reads import TapRows
from ascendsim.ops.problems.sliding import ImageTile
from ascendsim.ops.problems.taps import Segment
from ascendsim.ops.schedules.dgrad.cut import spans_of
from ascendsim.ops.schedules.dgrad.pieces import Task
from ascendsim.ops.schedules.dgrad.slices import DgradSlices
from ascendsim.ops.schedules.dgrad.tasks import DgradTasks
from ascendsim.ops.schedules.dgrad.tiles import DgradTiles
from ascendsim.ops.schedules.tiles import Index
from ascendsim.ops.schedules.zero_insertion import Piece, ZeroInsertion
from ascendsim.program.builder import ProgramBuilder
from ascendsim.program.places import Slot


class Part(NamedTuple):
    """One part of the reduction of a base block, by its number."""

    task: Task
    number: int


class Products(NamedTuple):
    """The products of one segment of a part, by its number."""

    part: Part
    at: int


class PartSlices(DgradSlices):
    """Finds slices of GM for parts; their segments are counted from the first one of the part."""

    def __init__(self, cut: DgradTasks) -> None:
        super().__init__(cut)
        # The tile that was found last: all slices of a segment are read of it.
        self._met: tuple[Part, int, ImageTile] | None = None

    def segment(self, part: Part, at: int) -> Segment:
        """Return a segment of a part."""
        return self._cut.parts[part.number][at]

    def tile(self, part: Part, at: int) -> ImageTile:
        """Return the image tile that a block needs under the left box of a segment."""
        met = self._met
        if met is None or met[0] is not part or met[1] != at:
            task = part.task
            tile = self._cut.left_tiles[task.first_pixel, task.pixels, self.segment(part, at).left]
            met = self._met = part, at, tile
        return met[2]

    def window(self, part: Part, at: int) -> Window:
        """Return the place of that tile in the convolution."""
        return self.tile(part, at).window

    def rows(self, part: Part, at: int, slice_: tuple[int, int, int]) -> Im2col:
        """Return how a slice of a segment is read of that tile."""
        tile, (first, _, groups) = self.tile(part, at), slice_
        size = self._cut.gemm.sliding.itemsize
        return Im2col(tile.window, tile.first_pixel, part.task.pixels, first, groups, size)

    def rows_of(self, products: Products, number: int) -> Im2col:
        """Return how the left operand of one of them is read of the image tile."""
        return self.rows(*products, self.segment(*products).slices[number])

    def taps_of(self, products: Products, number: int) -> TapRows:
        """Return how the right one is read of the weights."""
        segment = self.segment(*products)
        return self.taps(products.part.task, segment.right, segment.slices[number])

    def left(self, part: Part, pair: int, at: int) -> Index:
        """Return what the pixels of a block need of the source under the left box of a segment."""
        return self.source(part.task, pair, self.segment(part, at).left)

    def left_piece(self, part: Part, pair: int, at: int, piece: Piece) -> Index:
        """Return what a piece of that holds."""
        return self.source_piece(part.task, pair, self.segment(part, at).left, piece)

    def right(self, part: Part, pair: int, at: int) -> Index:
        """Return the weights of the right box of a segment for the columns of a block."""
        return self.weights(part.task, pair, self.segment(part, at).right)

    def written(self, part: Part, first_column: int, columns: int) -> Index:
        """Return the slice of the output for a range of a block's columns."""
        return self.output(part.task, first_column, columns)


class PartTiles(DgradTiles):
    """Appends loads and products of tiles of a part."""

    finds = PartSlices
    _slices: PartSlices

    def __init__(
        self, builder: ProgramBuilder, cut: DgradTasks, insertion: ZeroInsertion | None = None
    ) -> None:
        super().__init__(builder, cut, insertion)
        # Views take time, and only blocks with tiles of other shapes have others.
        self._viewed = len({*cut.pixel_costs.values()}) < len({*cut.pixel_shapes.values()})

    def left(self, slot: Slot, part: Part, pair: int, at: int) -> None:
        """Bring into L1 what the pixels of a block need of the source for a segment."""
        find = self._slices
        tile = find.tile(part, at)
        if tile.clear or not self._viewed:
            self._left(slot, tile, (find.left, find.left_piece), part, pair, at)
            return
        # Blocks whose tiles cost the same share code, wherever these lie in the image.
        source, window = self._b.gm(self._cut.gemm.source, find.left, part, pair, at), find.window
        self._b.add(CopyGmToL1(slot, source, tile.gm_bytes, (), self._b.view(window, part, at)))

    def right(self, slot: Slot, part: Part, pair: int, at: int) -> None:
        """Bring into L1 the weights of a segment for the columns of a block."""
        box = self._slices.segment(part, at).right
        self._weights(slot, box, part.task.columns, self._slices.right, part, pair, at)

    def multiply_part(
        self,
        accumulator: Slot,
        image: Slot,
        weights: Slot,
        l0: tuple[Slot, Slot],
        part: Part,
        at: int,
        slice_: tuple[int, int, int],
        *,
        first: bool,
    ) -> None:
        """Load one slice of a segment of a part into the slots of L0A and L0B, and add its product."""
        segment = self._slices.segment(part, at)
        if not self._viewed:
            self.multiply(accumulator, image, weights, l0, part.task, segment, slice_, first=first)
            return
        rows = self._b.view(self._slices.rows, part, at, slice_)
        self._multiply(accumulator, (image, l0[0], rows), (weights, l0[1]), part.task, segment, slice_, first)

    def costs(self, products: Products) -> Hashable:
        """Return all that the cost of these products depends on."""
        find, pixels = self._slices, products.part.task.pixels
        tile, segment = find.tile(*products), find.segment(*products)
        groups = tuple([count for _, _, count in segment.slices])
        image = pixels, tile.window.stride, spans_of(tile, pixels)
        return image, find.taps(products.part.task, segment.right, segment.slices[0]).shape, groups

    def multiply_one(
        self,
        accumulator: Slot,
        image: Slot,
        weights: Slot,
        l0: tuple[Slot, Slot],
        products: Products,
        number: int,
        *,
        first: bool,
    ) -> None:
        """Load one slice of a segment into the slots of L0A and L0B, and add its product."""
        rows = self._b.view(self._slices.rows_of, products, number)
        taps = self._b.view(self._slices.taps_of, products, number)
        sizes = rows.pixels, taps.groups * taps.c0, taps.columns
        self._product(accumulator, (image, l0[0], rows), (weights, l0[1], taps), sizes, first=first)

    @property
    def written(self) -> Callable[[Part, int, int], Index]:
        """What finds the slice of the output for a range of a block's columns."""
        return self._slices.written
