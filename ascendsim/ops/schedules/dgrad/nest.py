"""The loop nest of grad_input: the tiles, the makers of instructions, and what is done for a base block."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from ascendsim.frozen import cached_property
from ascendsim.instructions.cube import Im2col, Mmad, TapRows
from ascendsim.instructions.flags import PipeBarrier
from ascendsim.instructions.movers import CopyGmToL1, FillL1, LoadL0A, LoadL0B
from ascendsim.ops.plan import Tiling
from ascendsim.ops.problems.orders import DgradOrder
from ascendsim.ops.problems.products import DgradGemm
from ascendsim.ops.problems.sliding import ImageTile
from ascendsim.ops.schedules.base import TILES
from ascendsim.ops.schedules.blocks import (
    BlockNest,
    BlockSchedule,
    BlockTiles,
    Bringing,
    Index,
    ReductionSteps,
    TileSizes,
    begins_of,
)
from ascendsim.ops.schedules.dgrad.image_tiles import numbered_windows
from ascendsim.ops.schedules.dgrad.tasks import DgradTasks, inserts_in_ub
from ascendsim.ops.schedules.vector.elementwise import cast, flat, zero_fill
from ascendsim.program.kernel import Phase
from ascendsim.program.nest import Nest
from ascendsim.program.places import Gm, GmTensor, Slot
from ascendsim.program.walk import Axis, Number, Spans, Table, TileNumber, alike

if TYPE_CHECKING:
    from ascendsim.ops.schedules.ranges import Tasks


class DgradTiles(BlockTiles):
    """The axes of the tiles of a dgrad, cut as `DgradTasks` says, and their tables.

    Axes     pixels, columns: tiles of one image; lefts, rights: boxes of taps in L1; slices: the products of
             all segments, one after the other. `counts` are pixels for what costs by how many there are,
             `spans` for what costs by how they lie in rows
    Tables   pairs: of a depth of the output; kernel_of, source_of: depths of a pair; segments_of: a part;
             left_of, right_of, slices_of: boxes and slices of a segment; read_of: what an image tile reads,
             by pixels and box, as several may read one slice

    spread   whether image tiles with gaps go through UB on their way to L1, by steps of their own
    """

    def __init__(self, nest: Nest, cut: DgradTasks, *, spread: bool = False) -> None:
        self._nest = nest
        self.cut, self.gemm, self.profile, self._spread = cut, cut.gemm, cut.profile, spread
        self.runs, self.wides = cut.pixel_tiles, cut.column_tiles
        # Kernels that count slots clear the whole of one before each copy that leaves gaps.
        gaps = self.gemm.sliding.insert != (1, 1) and cut.counted and not spread
        self._cleared = int(cut.left_bytes.max()) if gaps else 0
        self.boxes, self.right_boxes = cut.left_boxes, cut.right_boxes
        self.heights, self.widths = ([count for _, count in own] for own in (self.runs, self.wides))
        self.channels = [slice(box.channel, box.channel + box.channels) for box in self.boxes]
        self.segments = [segment for part in cut.parts for segment in part]
        self.products = [(segment, own) for segment in self.segments for own in segment.slices]
        left, right = ({box: at for at, box in enumerate(own)} for own in (self.boxes, self.right_boxes))
        self.left_boxes_of = lefts = [left[segment.left] for segment in self.segments]
        self.right_boxes_of = rights = [right[segment.right] for segment in self.segments]
        # An image tile costs by its pixels and its box, wherever that begins in the channels.
        self.slabs, self.shapes = (
            alike([box[:2] for box in self.boxes]),
            alike([box[1:] for box in self.boxes]),
        )
        count = len(self.runs)
        kinds = [(groups, box.rows * box.cols == 1) for (_, box, _), (_, _, groups) in self.products]
        self.pixels = Axis(count, cut.pixel_costs.tolist())
        self.counts, self.spans = Axis(count, self.heights), Axis(count, cut.pixel_spans.tolist())
        self.columns, self.slices = Axis(len(self.wides), self.widths), Axis(len(kinds), alike(kinds))
        self.lefts = Axis(len(self.boxes), self.shapes)
        self.rights = Axis(len(self.right_boxes), [box.groups for box in self.right_boxes])

        gemm, pairs = self.gemm, [pair for own in self.gemm.depths for pair in own]
        self.pairs = nest.spans([len(own) for own in gemm.depths], name="pairs")
        self.kernel_of = nest.table([kernel for kernel, _ in pairs], gemm.weights.shape[1], "kernel depth")
        self.source_of = nest.table([source for _, source in pairs], gemm.source.shape[2], "source depth")
        self.segments_of = nest.spans([len(part) for part in cut.parts], name="segments")
        self.left_of = nest.table(lefts, self.lefts, "left box")
        self.right_of = nest.table(rights, self.rights, "right box")
        self.slices_of = nest.spans([len(own.slices) for own in self.segments], self.slices, "slices")

    def task(self) -> list[Number]:
        """Return the indices of a base block: group, image, depth, pixels, columns."""
        gemm, tiles = self.gemm, {"pixels": self.pixels, "columns": self.columns}
        return self._nest.task(group=gemm.groups, image=gemm.batch, depth=len(gemm.depths), **tiles)

    @cached_property
    def read_of(self) -> Table:
        """Slices of an image that tiles read, by pixel tile and box: equal slices share a number."""
        windows = numbered_windows(self.cut.windows)
        return self._nest.table(windows[:, self.shapes] + windows.size * np.array(self.slabs), name="read")

    def tile(self, pixels: int, box: int) -> ImageTile:
        """Return the image tile that a pixel tile needs under a box of taps."""
        return self.cut.tile(self.runs[pixels], self.boxes[box])

    def clear(self, slot: Slot, pixels: int, box: int) -> FillL1 | None:
        """Clear an image tile: a strided copy leaves gaps, the zeros that the stride inserts."""
        tile = self.tile(pixels, box)
        if not tile.clear or (tile.rows is not None and self._spread):
            return None
        return FillL1(
            slot, self._cleared or tile.l1_bytes, tile.window.tile_shape, self.gemm.sliding.itemsize
        )

    def settle(self, pixels: int, box: int) -> PipeBarrier | None:
        """Let a cleared slot lie before pixels are copied into it."""
        return PipeBarrier("MTE2") if self._cleared and self.tile(pixels, box).rows is not None else None

    def copy_left(
        self, slot: Slot, group: int, image: int, source: int, pixels: int, box: int
    ) -> CopyGmToL1 | None:
        """Bring an image tile into L1; one that lies in the padding as a whole has nothing to copy."""
        tile = self.tile(pixels, box)
        if tile.rows is None:
            return None
        place = Gm(self.gemm.source, (group, image, source, self.channels[box], tile.rows, tile.cols))
        return CopyGmToL1(slot, place, tile.gm_bytes, (), tile.window, tile.placement)

    def copy_right(self, slot: Slot, group: int, kernel: int, columns: int, box: int) -> CopyGmToL1:
        """Bring the weights of a box of taps for a column tile into L1."""
        taps, (first, count), s = self.right_boxes[box], self.wides[columns], self.gemm.sliding
        index = group, kernel, *self.cut.kernel_slices[taps], slice(None), slice(first, first + count)
        shape = taps.groups, s.c0 * count
        return CopyGmToL1(slot, Gm(self.gemm.weights, index), shape[0] * shape[1] * s.itemsize, shape)

    def load_left(self, slot: Slot, source: Slot, pixels: int, at: int) -> LoadL0A:
        """Bring a slice of an image tile into L0A."""
        (segment, (first, _, groups)), run = self.products[at], self.runs[pixels]
        tile, size = self.cut.tile(run, segment.left), self.gemm.sliding.itemsize
        return LoadL0A(slot, source, Im2col(tile.window, tile.first_pixel, run[1], first, groups, size))

    def load_right(self, slot: Slot, source: Slot, columns: int, at: int) -> LoadL0B:
        """Bring a slice of weights into L0B."""
        ((_, box, _), (_, first, groups)), s = self.products[at], self.gemm.sliding
        # Im2col meets the taps from the first image row on, which going backwards is the last tap.
        rows = box.rows * box.cols, self.gemm.backwards, first, groups
        return LoadL0B(slot, source, TapRows(*rows, s.c0, self.widths[columns], s.itemsize))

    def mmad(self, c: Slot, a: Slot, b: Slot, begun: int, pixels: int, at: int, columns: int) -> Mmad:
        """Add the product of a slice of the reduction."""
        k, dtype = self.products[at][1][2] * self.gemm.sliding.c0, self.gemm.compute_dtype
        return Mmad(c, a, b, self.runs[pixels][1], k, self.widths[columns], dtype, not begun)

    def output(self, *at: int) -> Index:
        """Return the slice of the output for some columns of a tile."""
        group, image, depth, pixels, columns, first, count = at[-7:]
        c0, (begin, length) = self.gemm.out_c0, self.runs[pixels]
        start = (self.wides[columns][0] + first) // c0
        return group, image, depth, slice(start, start + count // c0), slice(begin, begin + length)


class Reductions(NamedTuple):
    """The steps of the reductions of base blocks: each meets the boxes of a segment.

    runs       the steps of each part of a reduction; `first` is the number of the first part of some pixels
    segments   by step the number of its segment
    begins     by step whether a part begins with it
    listed     `segments` as a table, where it is not each step's own number
    """

    runs: Spans
    first: Number | int
    segments: Sequence[int]
    begins: Sequence[bool]
    listed: Table | None = None

    def segment(self, step: Number) -> Number:
        """Return the segment of a step."""
        return self.listed[step] if self.listed else step


class DgradNest(BlockNest):
    """For each base block: for each part, kernel depth, pair of boxes in L1, slice of base_k: multiply."""

    def __init__(self, name: str, cut: Any, sizes: TileSizes, target: GmTensor) -> None:
        gemm = self.gemm = cut.gemm
        super().__init__(name, cut, sizes, target, gemm.out_c0, spread=inserts_in_ub(gemm, cut.profile))
        self.outer = {"group": gemm.groups, "image": gemm.batch, "depth": len(gemm.depths)}
        self.blocks(cut)

    def blocks(self, cut: Any) -> None:
        """Write down what is done for each base block."""
        t = DgradTiles(self, cut, spread=self.insertion is not None)
        task = t.task()
        windows = numbered_windows(cut.windows)
        self.block(t, task, task[3], self.table(windows, name="window"))

    def reductions(self, t: DgradTiles, own: Number) -> Reductions:
        """Return the segments of each part of the reductions of some pixels."""
        del own
        return Reductions(t.segments_of, 0, range(len(t.segments)), begins_of(map(len, t.cut.parts)))

    def block(
        self,
        t: DgradTiles,
        task: Sequence[Number],
        own: Number,
        windows: Table,
        phase: Number | int = 0,
        left: Number | int = 0,
    ) -> None:
        """Write down one base block: bring the tiles of each step of its reduction, multiply, write.

        task      group, image, depth, pixels and columns of the block
        own       its pixel tile, by number in `t`: without phases that of the task
        windows   number the rows and columns of the image that tiles hold, by pixels and shape of the box
        phase     of a stride that splits the kernel: which phase it is; weights of other phases are others
        left      image tiles of equal `left` are shared: phases that read the same pixels have one number
        """
        (group, image, depth, _, columns), every, parts = task, range(len(t.runs)), len(t.cut.parts)
        high, spanning = (self.table(every, axis, "pixels")[own] for axis in (t.counts, t.spans))
        reductions = self.reductions(t, own)
        bring = _BringStep(self, t, reductions, task, own, windows, phase, left)
        with self.loop(parts, "part") as part:
            run = reductions.runs[part + reductions.first]
            with self.when(self.let(run.length, "met")) if reductions.listed else nullcontext():
                # L0C begins anew with every part, so several of them meet in GM.
                c, begun = self.next(self.l0c), self.let(0, "begun", Axis(2, range(2)))
                with self.loop(t.pairs[depth], "pair") as pair, self.loop(run, "segment") as step:
                    a1, b1 = bring.both(pair, step)
                    with self.loop(t.slices_of[reductions.segment(step)], "slice") as at:
                        a, b = self.next(self.l0a), self.next(self.l0b)
                        self.emit(t.load_left, [a, a1], [spanning, at])
                        self.emit(t.load_right, [b, b1], [columns, at])
                        if not t.cut.operator:
                            self.emit(t.barrier, (), [begun, high, columns])
                        self.emit(t.mmad, [c, a, b], [begun, high, at, columns])
                        if t.cut.operator:
                            self.emit(t.drain, (), [high, columns])
                        self.set(begun, 1)
                output = phase, group, image, depth, high, columns
                self.out.write(c, output, t.size, t.output, (columns, t.widths), atomic=parts > 1)


class _BringStep(Bringing):
    """Brings the tiles of a step into L1: image tile, weights, and those of the next step if there is room.

    The arguments are those of `DgradNest.block`.
    """

    def __init__(
        self,
        nest: DgradNest,
        t: DgradTiles,
        reductions: Reductions,
        task: Sequence[Number],
        own: Number,
        windows: Table,
        phase: Number | int,
        left: Number | int,
    ) -> None:
        self.nest, self.t, self.reductions, self.windows = nest, t, reductions, windows
        (self.group, self.image, _, self.pixels, self.columns), self.own = task, own
        self.phase, self.left = phase, left
        self.slabs, self.shapes = nest.table(t.slabs, name="channels"), nest.table(t.shapes, name="shape")
        steps = [
            ReductionSteps([of[segment] for segment in reductions.segments], reductions.begins)
            for of in (t.left_boxes_of, t.right_boxes_of)
        ]
        blocks = (t.cut.pixel_numbers, (own,)), (t.cut.column_numbers, (self.columns,))
        super().__init__(nest, steps, blocks, counted=t.cut.counted, ahead=t.cut.loads_ahead)

    def both(self, pair: Number, step: Number) -> tuple[TileNumber, TileNumber]:
        """Bring the tiles of a step at a pair of depths, unless they are there."""
        self.begin(step)
        a1, b1 = self.image_tile(pair, step), self.weights(pair, step)
        for bring, following in zip((self.image_tile, self.weights), self.next, strict=True):
            if following:
                bring(pair, following[step])
        return a1, b1

    def image_tile(self, pair: Number, step: Number) -> TileNumber:
        """Bring the image tile of a step."""
        nest, t, own, at = self.nest, self.t, self.own, self.place(0, step)
        source, box = ((self.group, self.image, t.source_of[pair]), t.left_of[self.reductions.segment(step)])
        with nest.hold(nest.left, self.left, *source, self.pixels, box, place=at) as a1:
            nest.emit(t.clear, [a1], [own, box])
            nest.emit(t.settle, (), [own, box])
            if nest.insertion:
                nest.insertion.load(a1, t.gemm.source, (*source, own, box), t.tile, t.channels)
            else:
                told = *source, self.slabs[box], self.windows[own, self.shapes[box]]
                nest.emit(t.copy_left, [a1], [*source, own, box], slice_at=told)
        return a1

    def weights(self, pair: Number, step: Number) -> TileNumber:
        """Bring the weights of a step."""
        nest, t, at = self.nest, self.t, self.place(1, step)
        box = t.right_of[self.reductions.segment(step)]
        told = self.group, t.kernel_of[pair], self.columns, box
        with nest.hold(nest.right, self.phase, *told, place=at) as b1:
            nest.emit(t.copy_right, [b1], told, slice_at=[self.phase, *told])
        return b1


@dataclass(frozen=True)
class Dgrad(BlockSchedule):
    """For each base block: for each part, kernel depth, box of taps in L1, slice of base_k: load, multiply.

    A reduction in parts adds them in float32, in order, to zeros in GM; a narrower result is then cast. Every
    task adds its own parts one after the other, so `sums` makes no difference.
    """

    gemm: DgradGemm

    name: ClassVar[str] = "dgrad"
    makes: ClassVar[str] = "grad_input"
    reads: ClassVar[frozenset[str]] = TILES | {"k_split", "batch_dim", "m_dim", "n_dim", "pixel_dim"}

    def __post_init__(self) -> None:
        """Take weights that vector cores of this kernel bring into the cube's layout for a workspace.

        Copies of them into L1 need not turn channels on the way, as those of the user's weights do.
        """
        merged = self.tiling.group_merge > 1 and not self.profile.generation.changes_layouts
        if merged or self.tiling.transpose_first:
            weights = replace(self.gemm.weights, role="workspace")
            object.__setattr__(self, "gemm", replace(self.gemm, weights=weights))
        super().__post_init__()

    @cached_property
    def tasks(self) -> DgradTasks:
        """The base blocks, and the cut of their reduction."""
        return DgradTasks(self.gemm, self.tiling, self.profile)

    @property
    def canonical(self) -> Tiling:
        """The tiling that means the same, and whose blocks and tiles are as long as those that run."""
        # A cut of another kind has rules of its own.
        return self.tasks.canonical if type(self.tasks) is DgradTasks else self.tiling

    @property
    def tensors(self) -> tuple[GmTensor, ...]:
        """The source, the weights, grad_input and the float32 sums, if any."""
        return self.gemm.source, self.gemm.weights, self.gemm.output, self.target

    @cached_property
    def target(self) -> GmTensor:
        """The tensor that receives the tiles: the output, or float32 sums where parts are added to it."""
        output = self.gemm.output
        # Added in a narrower format, every part would be rounded to it on the way.
        if self.tiling.k_split == 1 or output.dtype == "float32":
            return output
        return GmTensor.of("sums", output.shape, "float32", "workspace", output.layout)

    @property
    def casts_sums(self) -> bool:
        """Whether vector cores make the output from float32 sums."""
        return self.target is not self.gemm.output

    def nest(self, sizes: TileSizes) -> Nest:
        """Return the loop nest of all cores that reserve so much."""
        return DgradNest(self.name, self.tasks, sizes, self.target)

    def order(self) -> DgradOrder:
        """Return the slices of each part of the reduction."""
        parts = [[run for segment in part for _, _, run in segment.slices] for part in self.tasks.parts]
        lengths = tuple(len(part) for part in parts) if len(parts) > 1 else ()
        return DgradOrder(self.gemm.sliding.c0, tuple(run for part in parts for run in part), lengths)

    @property
    def needs_zeros(self) -> bool:
        """Whether tiles are added to what GM holds, or some are missing."""
        # A depth that no kernel depth reaches has no task: without the zeros its gradient would never be
        # written.
        return self.tiling.k_split > 1 or not all(self.gemm.depths)

    def phases(self) -> tuple[Phase, ...]:
        """Return zeros where tiles are added or missing, the tiles, and the cast of float32 sums."""
        phases = [self.compute()]
        if self.needs_zeros:
            phases.insert(0, zero_fill(self.profile, flat(self.target)))
        if self.casts_sums:
            phases.append(cast(self.profile, flat(self.target), flat(self.gemm.output)))
        return tuple(phases)


@dataclass(frozen=True)
class DgradColumnsOuter(Dgrad):
    """As `Dgrad`, but a core makes all pixel tiles of one column block before it goes on to the next block.

    It pays where weights are larger than images: late layers, small batches. The order of the additions in a
    base block does not change, nor do the bits.
    """

    name: ClassVar[str] = "dgrad_columns_outer"
    reads: ClassVar[frozenset[str]] = TILES | {"k_split"}

    def sequence(self) -> Tasks:
        """Return all tasks, pixels fastest."""
        # Depth stands before the pixels because each depth meets kernel depths, and so weights, of its own.
        tasks = self.tasks.tasks
        return tasks[np.lexsort([tasks[name] for name in ("depth", "columns", "group")])]
