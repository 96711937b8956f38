"""The loop nest of grad_weight: what a core does for each of its base blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ascendsim.ops.schedules.blocks import BlockNest
from ascendsim.ops.schedules.tiles import Sizes
from ascendsim.ops.schedules.wgrad.tiles import WgradTiles
from ascendsim.program.indices import Axis, Number
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
        c = self.reduce(group, depth * self.cut.splits + part, row, column, self.tiles.sees(column), [column])
        self.write(c, part, [group, depth, row, column])

    def write(self, c: Number, part: Number, place: Sequence[Number]) -> None:
        """Write a base block at a place."""
        self.write_to(c, place if self.parts is self.output else [part, *place], self.parts)

    def write_to(self, c: Number, place: Sequence[Number], target: GmTensor) -> None:
        """Write a base block to a place in a tensor."""
        t = self.tiles
        self.out.write(c, place, t.size, t.output, (place[-1], t.widths), tensor=target, atomic=self.atomic)

    def reduce(
        self,
        group: Number,
        reduction: Number,
        row: Number,
        column: Number,
        sees: Sequence[Number],
        reads: Sequence[Number],
    ) -> Number:
        """Add all products of a base block; return the accumulator."""
        t = self.tiles
        c, begun = self.next(self.l0c), self.let(0, "begun", Axis(2, range(2)))
        with self.loop(t.runs[reduction], "run") as run:
            small_depth, big_depth = t.small_of[run], t.big_of[run]
            with (
                self.loop(t.images_of(run), "image") as image,
                self.loop(t.ranges_of(run), "range") as pixels,
            ):
                left, right = t.left_of[pixels], t.right_of[pixels]
                small, big = [group, image, small_depth], [group, image, big_depth]
                with self.hold(self.left, *small, row, left) as a1:
                    self.emit(t.copy_small, [a1], [*small, row, left])
                with self.hold(self.right, *big, right, *sees) as b1:
                    seen = [right, *sees, *t.sizes_of(right, *sees)]
                    self.emit(t.clear, [b1], seen)
                    self.emit(t.copy_big, [b1], [*big, *seen], slice_at=[*big, *t.slice_of(right, *sees)])
                with self.loop(t.slices_of[pixels], "slice") as at:
                    a, b = self.next(self.l0a), self.next(self.l0b)
                    self.emit(t.load_small, [a, a1], [row, at])
                    self.emit(t.load_big, [b, b1], [at, *reads])
                    self.emit(t.barrier, (), [begun, row, column])
                    self.emit(t.mmad, [c, a, b], [begun, row, column, t.depth_of[at]])
                    self.set(begun, 1)
        return c


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
