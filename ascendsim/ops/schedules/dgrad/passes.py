"""The loop nest of grad_input by rows of taps, or by single taps: for kernels that no tile in L1 serves."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

from ascendsim.frozen import cached_property
from ascendsim.ops.problems.taps import Segment
from ascendsim.ops.schedules.dgrad.pass_tasks import PassTasks
from ascendsim.ops.schedules.dgrad.pieces import Task
from ascendsim.ops.schedules.dgrad.program import DgradProgram, left_place
from ascendsim.ops.schedules.dgrad.shares import DgradShares
from ascendsim.ops.schedules.dgrad.slices import DgradSlices
from ascendsim.ops.schedules.dgrad.tiles import DgradTiles
from ascendsim.ops.schedules.order import DgradOrder
from ascendsim.ops.schedules.tiles import Index, Sizes, held
from ascendsim.ops.schedules.zero_insertion import Piece
from ascendsim.program.places import GmTensor, Slot


class Load(NamedTuple):
    """What one pair of tiles in L1 serves: a run of a pass, at a (kernel depth, source depth) pair."""

    task: Task
    pair: int
    segment: Segment


class PassSlices(DgradSlices):
    """Finds slices of GM for the tiles of a pass."""

    def left(self, load: Load) -> Index:
        """Return what the pixels of a task need of the source."""
        return self.source(load.task, load.pair, load.segment.left)

    def left_piece(self, load: Load, piece: Piece) -> Index:
        """Return what a piece of that holds."""
        return self.source_piece(load.task, load.pair, load.segment.left, piece)

    def right(self, load: Load) -> Index:
        """Return the weights for the columns of a task."""
        return self.weights(load.task, load.pair, load.segment.right)


class PassTiles(DgradTiles):
    """Appends loads and products of the tiles of a pass."""

    finds = PassSlices
    _slices: PassSlices

    def left(self, slot: Slot, load: Load) -> None:
        """Bring into L1 what the pixels of a task need of the source."""
        tile = self._cut.left_tiles[load.task.first_pixel, load.task.pixels, load.segment.left]
        self._left(slot, tile, (self._slices.left, self._slices.left_piece), load)

    def right(self, slot: Slot, load: Load) -> None:
        """Bring into L1 the weights for the columns of a task."""
        self._weights(slot, load.segment.right, load.task.columns, self._slices.right, load)


class PassProgram(DgradProgram):
    """Emits the programs of passes; runs of a pass that are alike share their code."""

    cut: PassTasks
    tiles: PassTiles  # type: ignore[assignment]

    def __init__(self, cut: PassTasks, sizes: Sizes, target: GmTensor, hazards: frozenset[str]) -> None:
        super().__init__(cut, sizes, target, hazards)
        self.tiles = PassTiles(self.b, cut, self.insertion)

    def append(self, task: Task) -> None:
        """Append one base block: for each part, kernel depth, pass, box of channels, base_k: multiply."""
        cut, pairs = self.cut, self.cut.gemm.depths[task.depth]
        shape = cut.pixel_shapes[task.first_pixel, task.pixels], task.columns, len(pairs)
        lefts = tuple([left_place(task, source) for _, source in pairs])
        rights = self._right_places(task)
        for _ in self.b.once(task, shape, {self.left: lefts, self.right: rights}):
            for part in cut.parts:
                met = cut.met(task, part)
                # What meets padding alone is left out; if all of it does, the zeros in GM stay.
                if not met:
                    continue
                self.l0c.next()
                for pair in range(len(pairs)):
                    for segment in met:
                        self._run(Load(task, pair, segment), (lefts[pair],), (rights[pair],))
                atomic, find = len(cut.parts) > 1, self.tiles.output
                self.out.write(self.l0c.last, task.pixels, task.columns, find, task, atomic=atomic)

    def _run(self, load: Load, left: tuple[Hashable, ...], right: tuple[Hashable, ...]) -> None:
        """Append the loads of a run of a pass, and its products, for each slice of base_k."""
        task, segment = load.task, load.segment
        tile = self.cut.left_tiles[task.first_pixel, task.pixels, segment.left]._replace(rows=None, cols=None)
        # Runs are alike if their tiles have equal shapes; the rings know which of them are in L1.
        shape = self.cut.number_of(tile), segment.right[1::2], segment.slices, task.pixels, task.columns
        left, right = (*left, segment.left), (*right, segment.right)
        for _ in self.b.once(load, shape, {self.left: (left,), self.right: (right,)}):
            image = held(self.left, (left, None), self.tiles.left, load)
            weights = held(self.right, (right, None), self.tiles.right, load)
            for slice_ in segment.slices:
                l0, first = (self.l0a.next(), self.l0b.next()), self.l0c.begins()
                self.tiles.multiply(self.l0c.last, image, weights, l0, task, segment, slice_, first=first)


@dataclass(frozen=True)
class DgradPasses(DgradShares):
    """As `DgradShares`, but with a loop over rows of taps, or over taps, outside of the products.

    A tile in L1 serves one row of taps (`tap_loop` "kh"), or one tap ("khkw"), so that it has no rows around
    those of its pixels, and no kernel is too large for it. The sum stays in L0C from pass to pass. A pass
    that reads nothing but padding, or zeros between pixels, is left out, so the result is cleared first. With
    one tap at a time base blocks end where rows of pixels end.

    Raises   ConfigError without such a loop, or for a transposed convolution
    """

    name: ClassVar[str] = "dgrad_passes"
    reads: ClassVar[frozenset[str]] = DgradShares.reads | {"tap_loop"}

    @cached_property
    def tasks(self) -> PassTasks:
        """The base blocks, and the cut of their reduction."""
        return PassTasks(self.gemm, self.tiling, self.profile)

    @property
    def needs_zeros(self) -> bool:
        """Always, as base blocks that read no pixel are not written."""
        return True

    def emitter(self, sizes: Sizes) -> PassProgram:
        """Return what emits the programs of all cores that reserve so much."""
        return PassProgram(self.tasks, sizes, self.target, self.hazards)

    def order(self) -> DgradOrder:
        """Return the slices of each part of the reduction, and the runs of pixels that leave passes out."""
        return replace(super().order(), tap_loop=self.tiling.tap_loop, tiles=tuple(self.tasks.pixel_tiles))
