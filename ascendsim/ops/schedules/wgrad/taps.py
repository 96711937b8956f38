"""The loop nest of grad_weight by single taps, for kernels beyond what one load3d can say."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ascendsim.errors import ConfigError
from ascendsim.frozen import cached_property
from ascendsim.instructions.cube import Im2col, Mmad, Window, round_up
from ascendsim.instructions.flags import PipeBarrier
from ascendsim.instructions.movers import FillL1, LoadL0A, LoadL0B
from ascendsim.ops.problems.sliding import Taps
from ascendsim.ops.problems.strips import Lines, lines_read, tap_tile
from ascendsim.ops.schedules.blocks import Index, TileSizes
from ascendsim.ops.schedules.ranges import cut, cut_within
from ascendsim.ops.schedules.wgrad.cut import KEPT, Columns, spelled
from ascendsim.ops.schedules.wgrad.nest import StreamNest
from ascendsim.ops.schedules.wgrad.stream import StreamTasks, WgradStream
from ascendsim.ops.schedules.wgrad.tasks import WgradTiles, distinct
from ascendsim.program.nest import Nest
from ascendsim.program.places import GmTensor, Slot
from ascendsim.program.walk import Number

if TYPE_CHECKING:
    from ascendsim.ops.schedules.ranges import Numbers, Tasks


@dataclass(frozen=True)
class TapTasks(StreamTasks):
    """The cut of a wgrad whose base blocks have channels of one tap; a block of columns has all its taps."""

    def __post_init__(self) -> None:
        """Refuse a tiling that no program can follow."""
        if self.tiling.tap_loop != "khkw":
            raise ConfigError(
                f"tiling of grad_weight: tap_loop is {self.tiling.tap_loop!r}; wgrad_taps takes khkw; "
                "or take wgrad_stream"
            )
        width, window = self.gemm.output.shape[3], self._taps * self.gemm.sliding.c0
        if self.tiling.block_n < width and self.tiling.block_n % window:
            raise ConfigError(
                f"tiling of grad_weight: single_core_n is {self.tiling.block_n}; take whole windows of "
                f"{window} columns, all taps of a group of channels"
            )
        super().__post_init__()

    @property
    def _taps(self) -> int:
        """Taps of the kernel in H and W."""
        rows, cols = self.gemm.sliding.kernel
        return rows * cols

    def require_rows(self) -> None:
        """Nothing: a tile has the pixels that a tap reads, and no row of the image as a whole."""

    @cached_property
    def column_blocks(self) -> list[Columns]:
        """Column blocks at one kernel depth: some channels with all their taps."""
        whole, c0 = self.gemm.all_taps, self.gemm.sliding.c0
        # A core makes a tap of base_n channels at a time, as far as a task has so many.
        tasks = cut(whole.channels, -(-self.tiling.block_n // (self._taps * c0)))
        return [
            Columns(
                whole._replace(channel=channel, channels=own), 0, own * self._taps, channel * self._taps * c0
            )
            for channel, own in cut_within(tasks, max(1, self.tiling.base_n // c0))
        ]

    @cached_property
    def _tiles(self) -> Any:
        return lru_cache(KEPT)(partial(tap_tile, self.strips))

    @cached_property
    def _part_shapes(self) -> Numbers:
        """Numbers of the parts by what the runs of their segments read under every tap."""
        of, told = self.pixels, tuple(self._run_shapes)
        lines = [np.stack([own.pad, own.length])[:, of.right_of] for own in self.lines]
        found: list[Hashable] = []
        for key in self._parts:
            first = self.first_run(key[1])
            own = slice(first, first + len(self._ranges_of(key[1])))
            read = tuple([axis[:, own].tobytes() for axis in lines])
            found.append((read, spelled(self.part(*key), told)))
        return self._numbered(found)

    @property
    def _run_shapes(self) -> list[int]:
        """A number for each run, equal for equal tiles apart from the parts of the image that they read."""
        of = self.pixels
        first, pixels = of.runs.T
        left, (place, width) = of.left[of.left_of], self.strips.places(first)
        kinds = np.column_stack([pixels, left[:, 1], first - left[:, 0], place, width])
        numbers: list[int] = np.unique(kinds, axis=0, return_inverse=True)[1].reshape(-1).tolist()
        return numbers

    @cached_property
    def lines(self) -> list[Lines]:
        """The lines of an image that each right tile reads under each row, and each column, of taps."""
        spans, sliding = self.pixels.spans, self.strips.sliding
        return [
            lines_read(sliding, 0, spans.top, spans.bottom),
            lines_read(sliding, 1, spans.left, spans.right),
        ]

    def sizes(self, tasks: Tasks) -> TileSizes:
        """Return the room that a core with these tasks reserves: under a tap at most all pixels of a tile."""
        gemm, cube, size = self.gemm, self.profile.cube, self.gemm.sliding.itemsize
        parts, blocks, tiles = (np.unique(tasks[name]).tolist() for name in ("part", "column", "row"))
        all_runs, firsts = self.pixels.runs, [self.first_run(part) for part in parts]
        counts = [len(self._ranges_of(part)) for part in parts]
        runs = np.concatenate([all_runs[at : at + n] for at, n in zip(firsts, counts, strict=True)])
        pixels, held, left = (
            int(own[:, 1].max()) for own in (runs, self.strips.rectangles(runs), self.left_tiles(runs))
        )
        channels = max(self.column_blocks[at].box.channels for at in blocks) * gemm.sliding.c0
        rows = max(self.row_tiles[at][1] for at in tiles)
        m, zeros = round_up(rows, cube.m0), max(rows, channels) * gemm.sliding.c0
        return TileSizes(
            *(m, round_up(channels, cube.n0)),
            round_up(min(self.tiling.base_k, pixels), cube.rates[gemm.compute_dtype].k0),
            *(m * left * size, max(held * channels, zeros) * size),
        )


class TapTiles(WgradTiles):
    """The tiles of base blocks of one tap: columns, a row and a column of taps identify a tile's box."""

    cut: TapTasks

    def groups(self) -> list[int]:
        """Return the number of channel groups of each base block."""
        return [block.box.channels for block in self.blocks]

    def see(self, nest: Nest) -> None:
        """Make the tables of what tiles read of an image under each row and each column of taps."""
        self.lengths_of, self.lines_of, self.read = [], [], []
        for lines, size in zip(self.cut.lines, self.sliding.image_size, strict=True):
            table, values = distinct(nest, lines.length, "pixels read in")
            self.lengths_of.append(table)
            self.read.append(values)
            # Tiles with equal parts of an image are one slice of it.
            told = np.maximum(lines.source, 0) * (size + 1) + lines.length
            self.lines_of.append(distinct(nest, told, "line of")[0])

    def sizes_of(self, right: Number, _column: Number, *tap: Number) -> list[Number]:
        """Return the numbers that decide a tile's rows and columns of an image."""
        return [own[right, at] for own, at in zip(self.lengths_of, tap, strict=True)]

    def slice_of(self, right: Number, column: Number, *tap: Number) -> list[Number]:
        """Return the numbers that identify a tile's part of an image."""
        return [column, *[own[right, at] for own, at in zip(self.lines_of, tap, strict=True)]]

    def seen(self, *told: int) -> tuple[Taps, int, int]:
        """Return the tap of a tile, its pixels of the image, and the runs of bytes that these are."""
        *reads, rows, cols = told
        box, height, width = self.block(*reads).box, self.read[0][rows], self.read[1][cols]
        # Pixels of a row that lie a step apart are runs of bytes of their own.
        apart = self.sliding.stride[1] > 1
        return box, height * width, box.channels * height * (width if apart else 1)

    def block(self, *reads: int) -> Columns:
        """Return the columns of a base block."""
        column, row, col = reads
        box = self.blocks[column].box
        return Columns(box._replace(row=row, rows=1, col=col, cols=1), 0, box.channels, 0)

    def output(self, *place: int) -> Index:
        """Return some channels of a tap in the output; between two groups of them lie the other taps."""
        *outer, tap_row, tap_col, row, column, first, count = place
        (top, rows), c0 = self.row_tiles[row], self.sliding.c0
        begin = self.blocks[column].box.channel + first // c0
        channels = slice(begin, begin + count // c0)
        return *outer, slice(top, top + rows), channels, tap_row * self.sliding.kernel[1] + tap_col

    # ---- the product of zeros with which a tap begins

    def zeros(self, slot: Slot, row: int, column: int) -> FillL1:
        """Write zeros into L1: C0 pixels of as many channels as the longer side of a base block has."""
        c0, most = self.sliding.c0, max(self.heights[row], self.widths[column])
        return FillL1(slot, most * c0 * self.sliding.itemsize, (most + 1, c0), self.sliding.itemsize)

    def no_small(self, slot: Slot, source: Slot, row: int) -> LoadL0A:
        """Bring them into L0A."""
        return LoadL0A(slot, source, self._plain(1, self.heights[row]))

    def no_big(self, slot: Slot, source: Slot, column: int) -> LoadL0B:
        """Bring them into L0B."""
        return LoadL0B(slot, source, self._plain(self.widths[column] // self.sliding.c0, self.sliding.c0))

    def _plain(self, groups: int, pixels: int) -> Im2col:
        one, c0 = (1, 1), self.sliding.c0
        window = Window(groups, 1, pixels, 0, 0, pixels, one, one, one, c0)
        return Im2col(window, 0, pixels, 0, groups, self.sliding.itemsize)

    def no_product(self, c: Slot, a: Slot, b: Slot, row: int, column: int) -> Mmad:
        """Begin an accumulator with their product."""
        sizes = self.heights[row], self.sliding.c0, self.widths[column]
        return Mmad(c, a, b, *sizes, self.gemm.compute_dtype, first=True)


class TapNest(StreamNest):
    """As `StreamNest`, but a base block has the channels of one tap, tap after tap."""

    def tiles_of(self) -> TapTiles:
        """Return the maker of the instructions on tiles."""
        return TapTiles(self, self.cut)

    def cleared(self, c: Number, row: Number, column: Number) -> int:
        """Clear the accumulator by a product of zeros, which wait in L1 until they lie there."""
        t, zeros, a, b = self.tiles, self.next(self.right), self.next(self.l0a), self.next(self.l0b)
        assert isinstance(t, TapTiles)
        self.emit(t.zeros, [zeros], [row, column])
        self.emit(lambda: PipeBarrier("MTE2"))
        self.emit(t.no_big, [b, zeros], [column])
        self.emit(t.no_small, [a, zeros], [row])
        self.emit(t.no_product, [c, a, b], [row, column])
        self.emit(t.drain, (), [row, column])
        return 1

    def blocks(self, group: Number, depth: Number, part: Number, row: Number, column: Number) -> None:
        """Make the base blocks of a task: one for each tap."""
        rows, cols = self.cut.gemm.sliding.kernel
        with self.loop(rows, "tap row") as tap_row, self.loop(cols, "tap column") as tap_col:
            tap = [column, tap_row, tap_col]
            c = self.reduce([group, depth, part, row, column], tap, tap)
            self.write(c, part, [group, depth, tap_row, tap_col, row, column])


@dataclass(frozen=True)
class WgradTaps(WgradStream):
    """As `WgradStream`, but a loop over the taps goes outside of the products (`tap_loop` "khkw").

    A base block has channels of one tap, and begins with a product of zeros, so that a tap that meets padding
    alone has a result. The copy into L1 takes the pixels that the tap reads, a stride
    apart, and puts them side by side; so no load3d has to step, or to pad, further than it can. Each element
    adds the same products in the same order as in `WgradStream`.

    Raises   ConfigError without the loop, or if a task has some taps of a channel only
    """

    name: ClassVar[str] = "wgrad_taps"
    reads: ClassVar[frozenset[str]] = WgradStream.reads | {"tap_loop"}

    @cached_property
    def tasks(self) -> TapTasks:
        """The base blocks, and the cut of their reduction."""
        return TapTasks(self.gemm, self.tiling, self.profile)

    def nest(self, sizes: TileSizes) -> TapNest:
        """Return the loop nest of all cores that reserve so much."""
        output = self._by_tap(self.gemm.output)
        parts = output if self.target is self.gemm.output else self._by_tap(self.target)
        return TapNest(self.tasks, sizes, output, parts)

    def _by_tap(self, tensor: GmTensor) -> GmTensor:
        """Return a tensor of weights with channel groups, taps and channels apart."""
        c0, (rows, cols) = self.gemm.sliding.c0, self.gemm.sliding.kernel
        *outer, columns = tensor.shape
        return replace(tensor, shape=(*outer, columns // (rows * cols * c0), rows * cols, c0))
