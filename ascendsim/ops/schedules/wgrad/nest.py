"""The loop nest of grad_weight: what a core does for each of its base blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ascendsim.ops.schedules.blocks import BlockNest
from ascendsim.ops.schedules.counted import CountedPlaces, Steps
from ascendsim.ops.schedules.tiles import Sizes
from ascendsim.ops.schedules.wgrad.tiles import WgradTiles
from ascendsim.program.indices import Axis, Number, Table, TileNumber
from ascendsim.program.places import GmTensor


class WgradNest(BlockNest):
    """For each base block: for each pair of depths, image, range of pixels in L1, slice of base_k: multiply.

    output   what receives the blocks; they are added to it where they are `atomic`
    parts    a workspace of parts that are kept apart, each with a place of its own; or the output again
    """

    def __init__(
        self, cut: Any, sizes: Sizes, output: GmTensor, parts: GmTensor, *, atomic: bool = False
    ) -> None:
        super().__init__("grad_weight", cut, sizes, output, weights_of=cut.gemm.sliding.c0)
        self.cut, self.output, self.parts, self.atomic = cut, output, parts, atomic
        self.tiles = t = self.tiles_of()
        group, depth, part, row, column = self.task(
            group=cut.gemm.groups,
            depth=len(cut.gemm.depths),
            part=cut.splits,
            row=t.rows,
            column=t.columns,
        )
        self.blocks(group, depth, part, row, column)

    def tiles_of(self) -> WgradTiles:
        """Return what makes the instructions on tiles."""
        return WgradTiles(self, self.cut)

    def blocks(self, group: Number, depth: Number, part: Number, row: Number, column: Number) -> None:
        """Make the base blocks of a task."""
        c = self.reduce([group, depth, part, row, column], self.tiles.sees(column), [column])
        self.write(c, part, [group, depth, row, column])

    def write(self, c: Number, part: Number, place: Sequence[Number]) -> None:
        """Write a base block at a place."""
        self.write_to(c, place if self.parts is self.output else [part, *place], self.parts)

    def write_to(self, c: Number, place: Sequence[Number], target: GmTensor) -> None:
        """Write a base block to a place in a tensor."""
        t = self.tiles
        self.out.write(c, place, t.size, t.output, (place[-1], t.widths), tensor=target, atomic=self.atomic)

    def reduce(self, task: Sequence[Number], sees: Sequence[Number], reads: Sequence[Number]) -> Number:
        """Add all products of a base block; return the accumulator."""
        t, (group, depth, part, row, column) = self.tiles, task
        operator = self.cut.operator
        c = self.next(self.l0c)
        begun = self.let(self.cleared(c, row, column), "begun", Axis(2, range(2)))
        bring = _Bring(self, depth, row, column, sees)
        with self.loop(t.runs[depth * self.cut.splits + part], "run") as run:
            depths = t.small_of[run], t.big_of[run]
            with (
                self.loop(t.images_of(run), "image") as image,
                self.loop(t.ranges_of(run), "range") as pixels,
            ):
                a1, b1 = bring.both([group, image], depths, pixels)
                with self.loop(t.slices_of[pixels], "slice") as at:
                    a, b = self.next(self.l0a), self.next(self.l0b)
                    if operator:
                        self.emit(t.load_big, [b, b1], [at, *reads])
                    self.emit(t.load_small, [a, a1], [row, at])
                    if not operator:
                        self.emit(t.load_big, [b, b1], [at, *reads])
                        self.emit(t.barrier, (), [begun, row, column])
                    self.emit(t.mmad, [c, a, b], [begun, row, column, t.depth_of[at]])
                    if operator:
                        self.emit(t.drain, (), [row, column])
                    self.set(begun, 1)
        return c

    def cleared(self, c: Number, row: Number, column: Number) -> int:
        """Return whether the accumulator has been cleared (1), so that every product adds to it; here not."""
        del c, row, column
        return 0


class _Bring:
    """The tiles of a range in L1; the operators' kernels bring the one of the big side first."""

    def __init__(
        self, nest: WgradNest, depth: Number, row: Number, column: Number, sees: Sequence[Number]
    ) -> None:
        cut, t = nest.cut, nest.tiles
        self.nest, self.t, self.row, self.sees, self.operator = nest, t, row, sees, cut.operator
        self.places: list[CountedPlaces | None] = [None, None]
        self.next: list[Table | None] = [None, None]
        if not cut.operator:
            return
        rings, begins = (nest.left, nest.right), cut.begins
        steps = [Steps(of, begins) for of in (cut.pixels.left_of, cut.pixels.right_of)]
        numbers = (cut.row_numbers, (row,)), (cut.column_numbers, (depth, column))
        # In a ring of one place there is nothing to count.
        self.places = [
            CountedPlaces(nest, ring, own, *blocks) if ring.count > 1 else None
            for ring, own, blocks in zip(rings, steps, numbers, strict=True)
        ]
        # With one slot there is nowhere to bring it while the one at hand is read.
        self.next = [
            nest.table(own.next, len(own.next), f"next for {ring.name}")
            if cut.loads_ahead and ring.count > 1 and own.follow
            else None
            for ring, own in zip(rings, steps, strict=True)
        ]

    def both(
        self, image: Sequence[Number], depths: tuple[Number, Number], pixels: Number
    ) -> tuple[TileNumber, TileNumber]:
        """Bring the tiles of a range of an image, unless they are there; and those of the next range."""
        for places in self.places:
            if places:
                places.begin(pixels)
        small, big = ([*image, depth] for depth in depths)
        if not self.operator:
            return self.small(small, pixels), self.big(big, pixels)
        b1, a1 = self.big(big, pixels), self.small(small, pixels)
        left, right = self.next
        if right:
            self.big(big, right[pixels])
        if left:
            self.small(small, left[pixels])
        return a1, b1

    def small(self, place: Sequence[Number], pixels: Number) -> TileNumber:
        """Bring the tile of the small side of a range."""
        nest, t, row, (places, _) = self.nest, self.t, self.row, self.places
        at, left = places[pixels] if places else None, t.left_of[pixels]
        strip = t.strip_of(row)
        with nest.hold(nest.left, *place, strip, left, place=at) as a1:
            nest.emit(t.copy_small, [a1], [*place, strip, left])
        return a1

    def big(self, place: Sequence[Number], pixels: Number) -> TileNumber:
        """Bring the tile of the big side of a range."""
        nest, t, sees, (_, places) = self.nest, self.t, self.sees, self.places
        at, right = places[pixels] if places else None, t.right_of[pixels]
        with nest.hold(nest.right, *place, right, *sees, place=at) as b1:
            seen = [right, *sees, *t.sizes_of(right, *sees)]
            nest.emit(t.clear, [b1], seen)
            nest.emit(t.copy_big, [b1], [*place, *seen], slice_at=[*place, *t.slice_of(right, *sees)])
        return b1


class StreamNest(WgradNest):
    """As `WgradNest`, but blocks of whole reductions go to the output, and only parts to a workspace."""

    def write(self, c: Number, part: Number, place: Sequence[Number]) -> None:
        """Write a base block where its kind goes."""
        if self.parts is self.output:
            self.write_to(c, place, self.output)
            return
        whole = [number == self.cut.whole for number in range(self.cut.splits)]
        is_whole, is_part = (self.table(own, 2)[part] for own in (whole, np.logical_not(whole)))
        with self.when(is_whole):
            self.write_to(c, place, self.output)
        with self.when(is_part):
            self.write_to(c, [part, *place], self.parts)
