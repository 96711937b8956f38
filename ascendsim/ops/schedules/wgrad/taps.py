"""The loop nest of grad_weight by single taps, for kernels beyond what one load3d can say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ascendsim.cube.movers import CopyGmToL1, FillL1
from ascendsim.frozen import cached_property
from ascendsim.ops.schedules.tiles import Index, Sizes
from ascendsim.ops.schedules.wgrad.pieces import Task
from ascendsim.ops.schedules.wgrad.slices import Load, WgradSlices
from ascendsim.ops.schedules.wgrad.stream import StreamProgram, WgradStream
from ascendsim.ops.schedules.wgrad.stream_tasks import StreamTasks
from ascendsim.ops.schedules.wgrad.tap_tasks import TapTasks
from ascendsim.ops.schedules.wgrad.tiles import WgradTiles
from ascendsim.program.builder import ProgramBuilder
from ascendsim.program.places import GmTensor, Slot


class TapTiles(WgradTiles):
    """Appends loads and products of tiles under one tap."""

    _cut: TapTasks

    def __init__(self, builder: ProgramBuilder, cut: TapTasks) -> None:
        super().__init__(builder, cut)
        self._slices = TapSlices(cut)

    def load_big(self, slot: Slot, load: Load) -> None:
        """Bring into L1 the pixels of the big side that a tap reads, side by side."""
        tile, gemm = self._cut.tile(load.segment.range, load.task.columns.box), self._cut.gemm
        if tile.rows is None:
            self._b.add(FillL1(slot, tile.l1_bytes, tile.window.tile_shape))
            return
        # Pixels of a row that lie a step apart are runs of bytes of their own.
        window, apart = tile.window, gemm.sliding.stride[1] > 1
        runs = window.channels * window.rows * (window.cols if apart else 1)
        source = self._b.gm(gemm.big, self._slices.big, load)
        self._b.add(CopyGmToL1(slot, source, tile.gm_bytes, (), window, tile.placement, runs))


class TapSlices(WgradSlices):
    """Finds slices of GM for base blocks of one tap."""

    _cut: TapTasks

    def output(self, task: Task, first: int, count: int) -> Index:
        """Return some channels of a tap in the output; between two groups of them lie the other taps."""
        box, sliding = task.columns.box, self._cut.gemm.sliding
        rows, begin = slice(task.first_row, task.first_row + task.rows), box.channel + first // sliding.c0
        channels = slice(begin, begin + count // sliding.c0)
        return task.group, task.depth, rows, channels, box.row * sliding.kernel[1] + box.col


class TapProgram(StreamProgram):
    """Emits the programs of single taps, one after the other."""

    cut: TapTasks

    def tiles_of(self, cut_: StreamTasks) -> WgradTiles:
        """Return what appends loads and products of tiles."""
        assert isinstance(cut_, TapTasks)
        return TapTiles(self.b, cut_)

    def append(self, task: Task) -> None:
        """Append the base blocks of a task: for each tap, as a block of columns of `WgradStream`."""
        for block in self.cut.of_taps(task):
            super().append(block)


@dataclass(frozen=True)
class WgradTaps(WgradStream):
    """As `WgradStream`, but a loop over the taps goes outside of the products (`tap_loop` "khkw").

    A base block has channels of one tap. The copy into L1 takes the pixels that the tap reads, a stride
    apart, and puts them side by side; so no load3d has to step, or to pad, further than it can. Each element
    adds the same products in the same order as in `WgradStream`.

    Raises   ConfigError without such a loop, or if a task has some taps of a channel only
    """

    name: ClassVar[str] = "wgrad_taps"
    reads: ClassVar[frozenset[str]] = WgradStream.reads | {"tap_loop"}

    @cached_property
    def tasks(self) -> TapTasks:
        """The base blocks, and the cut of their reduction."""
        return TapTasks(self.gemm, self.tiling, self.profile)

    def emitter(self, sizes: Sizes) -> TapProgram:
        """Return what emits the programs of all cores that reserve so much."""
        targets = self._by_tap(self.gemm.output), self._by_tap(self.target)
        return TapProgram(self.tasks, sizes, targets, self.hazards)

    def _by_tap(self, tensor: GmTensor) -> GmTensor:
        """Return a tensor of weights with channel groups, taps and channels apart."""
        c0, (rows, cols) = self.gemm.sliding.c0, self.gemm.sliding.kernel
        *outer, columns = tensor.shape
        return replace(tensor, shape=(*outer, columns // (rows * cols * c0), rows * cols, c0))
