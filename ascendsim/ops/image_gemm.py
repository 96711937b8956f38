"""Schedule of the product that makes an image: grad_input, and the forward direction of a transposed one.

One task is a base block of pixels x channels of one image. Its reduction walks (kernel depth, channel group,
tap, c0): the left operand is im2col of the source image (load3d), the right one the weights. Tasks go to
cores in contiguous ranges; tiles that the next task needs again stay in L1.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ascendsim.cube.mmad import Mmad
from ascendsim.cube.movers import CopyGmToL1, FillL1, LoadL0A, LoadL0B
from ascendsim.cube.views import Patches, TapRows, round_up
from ascendsim.ops.rings import Ring
from ascendsim.ops.sliding import ImageTile, Sliding, Taps
from ascendsim.ops.tiling.plan import Tiling, shares
from ascendsim.ops.writeback import Writeback
from ascendsim.program import HAZARDS, Core, CoreWork, Gm, GmTensor, Phase, Program, ProgramBuilder, Slot

if TYPE_CHECKING:
    from ascendsim.profile import Profile


@dataclass(frozen=True)
class ImageGemm:
    """What to compute, free of product and plan.

    Tensors  source (groups, N, D, C1, H, W, C0), weights (groups, KD, C1, KH, KW, C0, columns),
             output (groups, N, D, C1 of the columns, H * W, C0)
    Depth    `depths[d]` lists for each output depth the (kernel depth, source depth) pairs that reach it
    """

    source: GmTensor
    weights: GmTensor
    output: GmTensor
    sliding: Sliding
    depths: tuple[tuple[tuple[int, int], ...], ...]
    backwards: bool
    dtype: str
    rate: str

    @property
    def groups(self) -> int:
        """Groups of the convolution."""
        return self.source.shape[0]

    @property
    def batch(self) -> int:
        """Images."""
        return self.source.shape[1]

    @property
    def channel_groups(self) -> int:
        """Groups of C0 channels in the reduction."""
        return self.source.shape[3]

    @property
    def columns(self) -> int:
        """Output channels of one group, padded to C0."""
        return self.weights.shape[6]

    @property
    def taps(self) -> int:
        """Taps of the kernel in H and W."""
        return self.sliding.kernel[0] * self.sliding.kernel[1]

    @cached_property
    def all_taps(self) -> Taps:
        """The whole reduction at one kernel depth."""
        return Taps(0, self.channel_groups, 0, self.sliding.kernel[0], 0, self.sliding.kernel[1])


class Task(NamedTuple):
    """One base block."""

    group: int
    image: int
    depth: int
    first_pixel: int
    pixels: int
    first_column: int
    columns: int


class Segment(NamedTuple):
    """A run of the reduction that lies in one left and one right tile in L1.

    `slices` are the (first group in the left tile, first group in the right tile, groups) of each Mmad.
    """

    left: Taps
    right: Taps
    slices: tuple[tuple[int, int, int], ...]


def segments_of(left: tuple[Taps, ...], right: tuple[Taps, ...], most: int) -> tuple[Segment, ...]:
    """Walk two cuts of one reduction side by side, in slices of at most `most` groups.

    The boxes of a cut are consecutive runs of the reduction, so a run ends where either box ends.
    """
    found = []
    at_left = at_right = done_left = done_right = 0
    while at_left < len(left):
        a, b = left[at_left], right[at_right]
        run = min(a.groups - done_left, b.groups - done_right)
        slices = tuple(
            (done_left + first, done_right + first, min(most, run - first)) for first in range(0, run, most)
        )
        found.append(Segment(a, b, slices))
        done_left, done_right = done_left + run, done_right + run
        if done_left == a.groups:
            at_left, done_left = at_left + 1, 0
        if done_right == b.groups:
            at_right, done_right = at_right + 1, 0
    return tuple(found)


def first_box(whole: Taps, elements: int, c0: int) -> Taps:
    """Return the first box of `cut_taps`, which is also its largest."""
    budget = max(1, elements // c0)
    if budget >= whole.rows * whole.cols:
        return whole._replace(channels=min(whole.channels, budget // (whole.rows * whole.cols)))
    if budget >= whole.cols:
        return whole._replace(channels=1, rows=budget // whole.cols)
    return whole._replace(channels=1, rows=1, cols=budget)


def cut_taps(whole: Taps, elements: int, c0: int) -> tuple[Taps, ...]:
    """Cut a box into boxes of at most so many reduction elements, in the order of the reduction.

    Whole channel groups where they fit, else whole kernel rows of one group, else a part of one row.
    """
    box = first_box(whole, elements, c0)
    return tuple(
        Taps(
            channel,
            min(box.channels, whole.channel + whole.channels - channel),
            row,
            min(box.rows, whole.row + whole.rows - row),
            col,
            min(box.cols, whole.col + whole.cols - col),
        )
        for channel in range(whole.channel, whole.channel + whole.channels, box.channels)
        for row in range(whole.row, whole.row + whole.rows, box.rows)
        for col in range(whole.col, whole.col + whole.cols, box.cols)
    )


@dataclass(frozen=True)
class ImageGemmSchedule:
    """An image product under one plan on one product of the family: its tasks and programs."""

    spec: ImageGemm
    tiling: Tiling
    profile: Profile
    hazards: frozenset[str] = HAZARDS

    @cached_property
    def in_row(self) -> bool:
        """Whether pixel tiles must stay inside one row, because whole rows do not fit in L1."""
        whole = self.spec.sliding.tile_bytes(self.tiling.base_m, self.left_boxes[0], in_row=False)
        return self.tiling.al1_buffers * whole + self._right_bytes > self.profile.buffers["L1"].capacity_bytes

    @cached_property
    def left_boxes(self) -> tuple[Taps, ...]:
        """What each left tile in L1 holds of the reduction."""
        return cut_taps(self.spec.all_taps, self.tiling.step_ka * self.tiling.base_k, self.spec.sliding.c0)

    @cached_property
    def right_boxes(self) -> tuple[Taps, ...]:
        """What each right tile in L1 holds of the reduction."""
        return cut_taps(self.spec.all_taps, self.tiling.step_kb * self.tiling.base_k, self.spec.sliding.c0)

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """The reduction at one kernel depth."""
        most = max(1, self.tiling.base_k // self.spec.sliding.c0)
        return segments_of(self.left_boxes, self.right_boxes, most)

    @cached_property
    def _right_bytes(self) -> int:
        t, s = self.tiling, self.spec.sliding
        columns = round_up(min(t.base_n, self.spec.columns), self.profile.cube.n0)
        return t.bl1_buffers * self.right_boxes[0].groups * s.c0 * columns * s.itemsize

    @cached_property
    def pixel_tiles(self) -> list[tuple[int, int]]:
        """Pixel ranges of one image."""
        return self.spec.sliding.pixel_tiles(self.tiling.base_m, in_row=self.in_row)

    @cached_property
    def tasks(self) -> list[Task]:
        """All base blocks that anything contributes to, channels fastest."""
        spec, t = self.spec, self.tiling
        return [
            Task(group, image, depth, first, pixels, column, min(t.base_n, spec.columns - column))
            for group in range(spec.groups)
            for image in range(spec.batch)
            for depth, pairs in enumerate(spec.depths)
            if pairs
            for first, pixels in self.pixel_tiles
            for column in range(0, spec.columns, t.base_n)
        ]

    @cached_property
    def left_tiles(self) -> dict[tuple[int, int, Taps], ImageTile]:
        """Image tile for each (pixel range, box)."""
        return {
            (first, pixels, box): self.spec.sliding.tile(first, pixels, box)
            for first, pixels in self.pixel_tiles
            for box in self.left_boxes
        }

    def phase(self) -> Phase:
        """Return the compute phase."""
        work = []
        for index, share in enumerate(shares(len(self.tasks), self.tiling.used_cores)):
            tasks = self.tasks[share.start : share.stop]
            work.append(CoreWork(Core("cube", index), self._signature(tasks), partial(self.program, tasks)))
        return Phase("compute", tuple(work))

    def _signature(self, tasks: list[Task]) -> Hashable:
        """Describe what decides the cost of a core's program: tile shapes, and which tiles are met again."""
        seen_left: dict[Hashable, int] = {}
        seen_right: dict[Hashable, int] = {}
        rows: list[Hashable] = []
        for task in tasks:
            pairs = self.spec.depths[task.depth]
            left = (task.group, task.image, task.first_pixel, pairs)
            right = (task.group, task.first_column, tuple(kernel for kernel, _ in pairs))
            shape = self._pixel_shapes[task.first_pixel]
            rows.append(
                (
                    shape,
                    task.columns,
                    len(pairs),
                    seen_left.setdefault(left, len(seen_left)),
                    seen_right.setdefault(right, len(seen_right)),
                )
            )
        return tuple(rows)

    @cached_property
    def _pixel_shapes(self) -> dict[int, int]:
        """Number the pixel ranges by the shape of their tiles."""
        numbers: dict[Hashable, int] = {}
        shapes = {}
        for first, pixels in self.pixel_tiles:
            tiles = tuple(
                (self.left_tiles[first, pixels, box]._replace(rows=None, cols=None), pixels)
                for box in self.left_boxes
            )
            shapes[first] = numbers.setdefault(tiles, len(numbers))
        return shapes

    def program(self, tasks: list[Task]) -> Program:
        """Build the program of one core."""
        return _Emitter(self, tasks).emit()


class _Emitter:
    """Emits the instructions of one core, task after task."""

    def __init__(self, schedule: ImageGemmSchedule, tasks: list[Task]) -> None:
        self.s = schedule
        self.spec = schedule.spec
        self.tasks = tasks
        t, size = schedule.tiling, schedule.spec.sliding.itemsize
        self.b = ProgramBuilder(schedule.profile, schedule.hazards)
        m0, n0 = schedule.profile.cube.m0, schedule.profile.cube.n0
        m = round_up(max(task.pixels for task in tasks), m0)
        n = round_up(max(task.columns for task in tasks), n0)
        left_bytes = max(
            schedule.left_tiles[task.first_pixel, task.pixels, box].l1_bytes
            for task in tasks
            for box in schedule.left_boxes
        )
        right_bytes = max(box.groups for box in schedule.right_boxes) * self.spec.sliding.c0 * n * size
        self.left = Ring(self.b.slots("L1", left_bytes, "A1", t.al1_buffers))
        self.right = Ring(self.b.slots("L1", right_bytes, "B1", t.bl1_buffers))
        self.l0a = Ring(self.b.slots("L0A", m * t.base_k * size, "A0", t.al0_buffers))
        self.l0b = Ring(self.b.slots("L0B", t.base_k * n * size, "B0", t.bl0_buffers))
        self.l0c = Ring(self.b.slots("L0C", m * n * 4, "C0", t.cl0_buffers))
        self.out = Writeback(self.b, schedule.profile, self.spec.output, m, n, self.spec.sliding.c0)

    def emit(self) -> Program:
        """Return the program."""
        for task in self.tasks:
            self._task(task)
        return self.b.build()

    def _task(self, task: Task) -> None:
        accumulator = self.l0c.next()
        first = True
        for kernel_depth, source_depth in self.spec.depths[task.depth]:
            for segment in self.s.segments:
                tile = self.s.left_tiles[task.first_pixel, task.pixels, segment.left]
                a = self._left(task, source_depth, segment.left, tile)
                b = self._right(task, kernel_depth, segment.right)
                for slice_ in segment.slices:
                    self._product(task, accumulator, (a, tile), (b, segment.right), slice_, first)
                    first = False
        c1, c0 = task.first_column // self.spec.sliding.c0, self.spec.sliding.c0
        pixels = slice(task.first_pixel, task.first_pixel + task.pixels)

        def index(first_column: int, columns: int) -> tuple[Any, ...]:
            start = c1 + first_column // c0
            return task.group, task.image, task.depth, slice(start, start + columns // c0), pixels

        self.out.write(accumulator, task.pixels, task.columns, index)

    def _left(self, task: Task, depth: int, box: Taps, tile: ImageTile) -> Slot:
        """Return the slot with the image tile, loading it unless it is still there."""
        key = (task.group, task.image, depth, task.first_pixel, box)
        slot = self.left.find(key)
        if slot is not None:
            return slot
        slot = self.left.next(key)
        if tile.clear:
            self.b.add(FillL1(slot, tile.l1_bytes, tile.window.tile_shape))
        if tile.rows is not None:
            channels = slice(box.channel, box.channel + box.channels)
            index = (task.group, task.image, depth, channels, tile.rows, tile.cols)
            source = Gm(self.spec.source, index)
            self.b.add(CopyGmToL1(slot, source, tile.gm_bytes, (), tile.window, tile.placement))
        return slot

    def _right(self, task: Task, depth: int, box: Taps) -> Slot:
        """Return the slot with the weights of a box, loading them unless they are still there."""
        key = (task.group, depth, task.first_column, box)
        slot = self.right.find(key)
        if slot is not None:
            return slot
        slot = self.right.next(key)
        rows, cols = (
            _walked(first, count, extent, self.spec.backwards)
            for first, count, extent in zip(box[2::2], box[3::2], self.spec.sliding.kernel, strict=True)
        )
        c0 = self.spec.sliding.c0
        columns = slice(task.first_column, task.first_column + task.columns)
        channels = slice(box.channel, box.channel + box.channels)
        index = (task.group, depth, channels, rows, cols, slice(None), columns)
        size = box.groups * c0 * task.columns * self.spec.sliding.itemsize
        shape = (box.groups, c0 * task.columns)
        self.b.add(CopyGmToL1(slot, Gm(self.spec.weights, index), size, shape))
        return slot

    def _product(
        self,
        task: Task,
        accumulator: Slot,
        left: tuple[Slot, ImageTile],
        right: tuple[Slot, Taps],
        slice_: tuple[int, int, int],
        first: bool,
    ) -> None:
        spec = self.spec
        c0, size = spec.sliding.c0, spec.sliding.itemsize
        first_left, first_right, groups = slice_
        a, b = self.l0a.next(), self.l0b.next()
        tile, box = left[1], right[1]
        patches = Patches(tile.window, tile.first_pixel, task.pixels, first_left, groups, size)
        rows = TapRows(box.rows * box.cols, spec.backwards, first_right, groups, c0, task.columns, size)
        self.b.add(LoadL0A(a, left[0], patches))
        self.b.add(LoadL0B(b, right[0], rows))
        self.b.add(Mmad(accumulator, a, b, task.pixels, groups * c0, task.columns, spec.rate, first))


def _walked(first: int, count: int, extent: int, backwards: bool) -> slice:
    """Return which taps a range of the walk touches."""
    start = extent - first - count if backwards else first
    return slice(start, start + count)
