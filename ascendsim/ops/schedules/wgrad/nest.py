"""The loop nest of grad_weight: what a core does for each of its base blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar

import numpy as np

from ascendsim.frozen import cached_property
from ascendsim.ops.plan import Tiling
from ascendsim.ops.problems.orders import WgradOrder
from ascendsim.ops.problems.products import WgradGemm
from ascendsim.ops.schedules.base import TILES
from ascendsim.ops.schedules.blocks import BlockNest, BlockSchedule, Bringing, ReductionSteps, TileSizes
from ascendsim.ops.schedules.vector.elementwise import flat, ordered_sum, tree_sum, zero_fill
from ascendsim.ops.schedules.wgrad.tasks import WgradTasks, WgradTiles
from ascendsim.program.kernel import Phase
from ascendsim.program.places import GmTensor
from ascendsim.program.walk import Axis, Number, TileNumber


class WgradNest(BlockNest):
    """For each base block: for each pair of depths, image, range of pixels in L1, slice of base_k: multiply.

    output   what receives the blocks; they are added to it where they are `atomic`
    parts    a workspace of parts that are kept apart, each with a place of its own; or the output again
    """

    def __init__(
        self, cut: Any, sizes: TileSizes, output: GmTensor, parts: GmTensor, *, atomic: bool = False
    ) -> None:
        super().__init__("grad_weight", cut, sizes, output, weights_of=cut.gemm.sliding.c0)
        self.cut, self.output, self.parts, self.atomic = cut, output, parts, atomic
        self.tiles = t = self.tiles_of()
        group, depth, part, row, column = self.task(
            group=cut.gemm.groups, depth=len(cut.gemm.depths), part=cut.splits, row=t.rows, column=t.columns
        )
        self.blocks(group, depth, part, row, column)

    def tiles_of(self) -> WgradTiles:
        """Return the maker of the instructions on tiles."""
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
        bring = _BringRange(self, depth, row, column, sees)
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


class _BringRange(Bringing):
    """The tiles of a range in L1; the operators' kernels bring the one of the big side first."""

    def __init__(
        self, nest: WgradNest, depth: Number, row: Number, column: Number, sees: Sequence[Number]
    ) -> None:
        cut, t = nest.cut, nest.tiles
        self.nest, self.t, self.row, self.sees, self.operator = nest, t, row, sees, cut.operator
        if cut.operator:
            steps = [ReductionSteps(of, cut.begins) for of in (cut.pixels.left_of, cut.pixels.right_of)]
            blocks = (cut.row_numbers, (row,)), (cut.column_numbers, (depth, column))
            super().__init__(nest, steps, blocks, counted=True, ahead=cut.loads_ahead)

    def both(
        self, image: Sequence[Number], depths: tuple[Number, Number], pixels: Number
    ) -> tuple[TileNumber, TileNumber]:
        """Bring the tiles of a range of an image, unless they are there; and those of the next range."""
        small, big = ([*image, depth] for depth in depths)
        if not self.operator:
            return self.small(small, pixels), self.big(big, pixels)
        self.begin(pixels)
        b1, a1 = self.big(big, pixels), self.small(small, pixels)
        left, right = self.next
        if right:
            self.big(big, right[pixels])
        if left:
            self.small(small, left[pixels])
        return a1, b1

    def small(self, place: Sequence[Number], pixels: Number) -> TileNumber:
        """Bring the tile of the small side of a range."""
        nest, t, row, left = self.nest, self.t, self.row, self.t.left_of[pixels]
        at = self.place(0, pixels) if self.operator else None
        strip = t.strip_of(row)
        with nest.hold(nest.left, *place, strip, left, place=at) as a1:
            nest.emit(t.copy_small, [a1], [*place, strip, left])
        return a1

    def big(self, place: Sequence[Number], pixels: Number) -> TileNumber:
        """Bring the tile of the big side of a range."""
        nest, t, sees, right = self.nest, self.t, self.sees, self.t.right_of[pixels]
        at = self.place(1, pixels) if self.operator else None
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


@dataclass(frozen=True)
class Wgrad(BlockSchedule):
    """For each base block and part: for each pair of depths, image, run of pixels in L1, base_k: multiply.

    Parts of the reduction lie on different cores. They are added atomically to zeros in GM, in the order in
    which they arrive, or kept apart in a workspace (parts, *output) and added by vector cores.
    """

    gemm: WgradGemm

    name: ClassVar[str] = "wgrad"
    makes: ClassVar[str] = "grad_weight"
    reads: ClassVar[frozenset[str]] = TILES | {"k_split", "batch_dim", "m_dim", "n_dim", "k_dim"}

    @staticmethod
    def image_units(gemm: WgradGemm) -> int:
        """Return the number of units of an image that `k_dim` deals: its rows."""
        height: int = gemm.sliding.out_size[0]
        return height

    @cached_property
    def tasks(self) -> WgradTasks:
        """The base blocks, and the cut of their reduction."""
        return WgradTasks(self.gemm, self.tiling, self.profile)

    @property
    def canonical(self) -> Tiling:
        """The tiling that means the same, and whose blocks and tiles are as long as those that run."""
        # A cut of another kind has rules of its own.
        return self.tasks.canonical if type(self.tasks) is WgradTasks else self.tiling

    @property
    def tensors(self) -> tuple[GmTensor, ...]:
        """The small side, the big side, grad_weight and its parts, if they are kept apart."""
        return self.gemm.small, self.gemm.big, self.gemm.output, self.target

    @property
    def parts(self) -> int:
        """Parts of the reduction."""
        return self.tasks.splits

    @property
    def atomic(self) -> bool:
        """Whether tiles are added to a zeroed output."""
        return self.parts > 1 and self.sums == "atomic"

    @cached_property
    def target(self) -> GmTensor:
        """The tensor that receives the tiles."""
        output = self.gemm.output
        if self.parts == 1 or self.atomic:
            return output
        return GmTensor.of("parts", (self.parts, *output.shape), "float32", "workspace")

    def nest(self, sizes: TileSizes) -> WgradNest:
        """Return the loop nest of all cores that reserve so much."""
        return WgradNest(self.tasks, sizes, self.gemm.output, self.target, atomic=self.atomic)

    def order(self) -> WgradOrder:
        """Return the runs of pixels, and how the parts are added; the order of their arrival is unknown."""
        runs, t = tuple(self.tasks.ranges_of_image), self.tiling
        grid = tuple(self.tasks.grid_parts) if self.tasks.by_grid else ()
        return WgradOrder(runs, t.base_k, self.parts, tree=self.sums == "tree", grid=grid)

    @property
    def needs_zeros(self) -> bool:
        """Whether tiles are added to what GM holds, or some are missing."""
        return self.tasks.has_gaps or self.atomic

    @property
    def cleared_apart(self) -> bool:
        """Whether a kernel before this one (MemSet) writes the zeros, as before grids of the library."""
        return self.needs_zeros and self.tasks.by_grid and self.target is self.gemm.output

    def phases(self) -> tuple[Phase, ...]:
        """Return zeros where tiles are added or missing, the tiles, and the sums of parts kept apart."""
        output, profile = self.gemm.output, self.profile
        phases = [self.compute()]
        # A part without pixels, or a kernel depth that meets only padding, writes no tile. Its place would
        # keep what GM held before, and vector cores, or the user, would read that.
        if self.needs_zeros and not self.cleared_apart:
            phases.insert(0, zero_fill(profile, flat(self.target)))
        if self.target is not output:
            parts = replace(self.target, shape=(self.parts, prod(output.shape)))
            if self.sums == "tree":
                phases += tree_sum(profile, parts, flat(output))
            else:
                phases.append(ordered_sum(profile, parts, flat(output)))
        return tuple(phases)
