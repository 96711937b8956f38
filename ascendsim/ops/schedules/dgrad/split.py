"""The loop nest of grad_input whose kernel is split by the stride: no inserted zeros are multiplied."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, count, product
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ascendsim.errors import ConfigError
from ascendsim.frozen import cached_property
from ascendsim.ops.plan import Tiling
from ascendsim.ops.problems.orders import DgradOrder
from ascendsim.ops.problems.products import DgradGemm
from ascendsim.ops.problems.sliding import (
    AXES,
    ImageTile,
    Sliding,
    StridePhase,
    Taps,
    cut_taps,
    phases_of,
    together,
)
from ascendsim.ops.schedules.blocks import Index, TileSizes, begins_of
from ascendsim.ops.schedules.dgrad.image_tiles import numbered_windows
from ascendsim.ops.schedules.dgrad.nest import DgradNest, DgradTiles, Reductions
from ascendsim.ops.schedules.dgrad.shares import DgradShares, DgradShareTasks
from ascendsim.ops.schedules.dgrad.tasks import signature_of
from ascendsim.ops.schedules.ranges import mixed, tasks_of
from ascendsim.profile import Profile
from ascendsim.program.places import GmTensor
from ascendsim.program.walk import Number, alike

if TYPE_CHECKING:
    from ascendsim.ops.schedules.ranges import Numbers, Tasks


@dataclass(frozen=True)
class PhaseTasks(DgradShareTasks):
    """The cut of one phase: its gemm slides with the taps and over the pixels of the phase.

    shared      what slides over all that the phases of a tile read, if one tile in L1 serves them all
    most_taps   taps of the largest phase: tiles in L1 have as many channels in every phase
    """

    phase: StridePhase
    shared: Sliding | None
    most_taps: int

    @property
    def counted(self) -> bool:
        """Never: kernels that the stride splits take the slots of L1 in turn."""
        return False

    @cached_property
    def _boxes(self) -> list[tuple[tuple[Taps, ...], tuple[Taps, ...]]]:
        """The boxes of left and of right tiles in L1 by part: all taps of so many channel groups."""
        left, right = (step * self.tiling.base_k for step in (self.tiling.step_ka, self.tiling.step_kb))
        return [
            (self._by_channels(left, part), self._by_channels(right, part)) for part in self.part_channels
        ]

    def _by_channels(self, elements: int, part: tuple[int, int]) -> tuple[Taps, ...]:
        most = max(1, elements // (self.most_taps * self.gemm.sliding.c0))
        begin, end = part[0], sum(part)
        return tuple(
            self.gemm.all_taps._replace(channel=first, channels=min(most, end - first))
            for first in range(begin, end, most)
        )

    @cached_property
    def pixel_tiles(self) -> list[tuple[int, int]]:
        """Pixel ranges: those of the tasks, each in whole rows or inside of one."""
        width = self.gemm.sliding.out_size[1]
        return [tile for share in self.pixel_shares for tile in self.tiles_of(share, width)]

    def tiles_of(self, share: tuple[int, int], width: int) -> Iterator[tuple[int, int]]:
        """Yield the pixel tiles of a task."""
        (first, length), most = share, self.tiling.base_m
        end = first + length
        while first < end:
            rest_of_row = width - first % width
            whole = rest_of_row == width and min(most, end - first) >= width
            pixels = min(most, end - first) // width * width if whole else min(most, rest_of_row, end - first)
            yield first, pixels
            first += pixels

    @property
    def reads(self) -> tuple[Sliding, Taps]:
        """As of any cut, or what slides over the pixels of all phases."""
        if self.shared is None:
            return super().reads
        (rows, cols), taps = self.shared.kernel, self.gemm.all_taps
        return self.shared, taps._replace(row=0, rows=rows, col=0, cols=cols)

    def _tile(self, first: int, pixels: int, box: Taps) -> ImageTile:
        """Return the image tile of a pixel range under a box; that of all phases, seen from this one."""
        if self.shared is None:
            return super()._tile(first, pixels, box)
        own, shared = self.gemm.sliding, self.shared
        rows, cols = shared.kernel
        tile = shared.tile(first, pixels, box._replace(row=0, rows=rows, col=0, cols=cols))
        window = tile.window._replace(
            top=tile.window.top + own.pad[0] - shared.pad[0],
            left=tile.window.left + own.pad[1] - shared.pad[1],
            kernel=own.kernel,
        )
        return tile._replace(window=window)

    @cached_property
    def kernel_slices(self) -> dict[Taps, tuple[slice, slice, slice]]:
        """The channels, rows and columns of the kernel that each right tile holds."""
        rows, cols = self.phase.rows, self.phase.cols
        return {box: (slice(box.channel, box.channel + box.channels), rows, cols) for box in self.right_boxes}


@dataclass(frozen=True)
class SplitTasks:
    """The cut of a grad_input into phases, each with base blocks of its own.

    Raises   ConfigError if the stride splits nothing, or the nest cannot follow
    """

    gemm: DgradGemm
    tiling: Tiling
    profile: Profile

    def __post_init__(self) -> None:
        """Refuse what has no phases."""
        axes = AXES.get(self.tiling.kernel_split)
        split = [axis for axis in (0, 1) if axes and axes[axis]]
        gaps = max((self.gemm.sliding.dilation[axis] for axis in split), default=1)
        if not split or not self.gemm.backwards or gaps > 1 or self.profile.core_structure == "unified":
            raise ConfigError(
                f"tiling of grad_input: kernel_split is {self.tiling.kernel_split!r}; it must be h or hw, of "
                "a convolution that is not transposed, without dilation there, on cores that copy into L1 "
                "with a stride"
            )
        if not any(phase.taps for phase in phases_of(self.gemm.sliding, self.tiling.kernel_split)):
            raise ConfigError(
                "tiling of grad_input: no pixel of the input meets a tap, so that no phase of the stride has "
                "work; take dgrad_shares"
            )
        _ = self.cuts

    @cached_property
    def cuts(self) -> tuple[PhaseTasks, ...]:
        """The cut of each phase."""
        phases = phases_of(self.gemm.sliding, self.tiling.kernel_split)
        most = max(phase.taps for phase in phases)
        # Phases of one tile are one task only if both axes are split; they see one tile if they are alike.
        alike = len({phase.sliding.out_size for phase in phases}) == 1
        shared = together(phases) if alike and self.tiling.kernel_split == "hw" else None
        return tuple(
            PhaseTasks(
                *(replace(self.gemm, sliding=phase.sliding), self.tiling, self.profile),
                *(phase, shared, most),
            )
            for phase in phases
        )

    @property
    def met(self) -> list[int]:
        """The phases that meet taps."""
        return [number for number, cut in enumerate(self.cuts) if cut.phase.taps]

    @property
    def shares_tiles(self) -> bool:
        """Whether one tile in L1 serves all phases."""
        return self.cuts[0].shared is not None

    @cached_property
    def _tiles(self) -> Numbers:
        """A row for each pixel tile of an image in each phase: (task, pixel tile, phase), sorted by task.

        A task has all phases of its pixels (`kernel_split` "hw"), or one of them.
        """
        found: list[tuple[int, ...]] = []
        for place, phase in enumerate(self.met):
            cut, number = self.cuts[phase], count()
            for share, own in enumerate(cut.pixel_shares):
                task = share if self._together else share * len(self.met) + place
                tiles = cut.tiles_of(own, cut.gemm.sliding.out_size[1])
                found += [(task, at, phase, next(number)) for at, _ in enumerate(tiles)]
        return np.array(sorted(found))[:, [0, 3, 2]]

    @property
    def _together(self) -> bool:
        return self.tiling.kernel_split == "hw"

    @property
    def column_tiles(self) -> list[tuple[int, int]]:
        """Column ranges of the base blocks."""
        return self.cuts[0].column_tiles

    def shares_of(self, tasks: Tasks) -> tuple[Numbers, int]:
        """Return the number of the pixel range that each base block is in, and how many there are."""
        longest = max(len(self.cuts[phase].pixel_shares) for phase in self.met)
        of = np.empty((len(self.cuts), self._tiles[:, 1].max() + 1), np.int64)
        of[self._tiles[:, 2], self._tiles[:, 1]] = self._tiles[:, 0]
        return of[tasks["phase"], tasks["pixels"]], longest * (1 if self._together else len(self.met))

    @cached_property
    def tasks(self) -> Tasks:
        """All base blocks that anything contributes to."""
        gemm, columns = self.gemm, range(len(self.column_tiles))
        depths = [depth for depth, pairs in enumerate(gemm.depths) if pairs]
        outer = range(gemm.groups), range(gemm.batch), depths
        return tasks_of("group image depth pixels phase columns", *outer, self._tiles[:, 1:], columns)

    def sizes(self, tasks: Tasks) -> TileSizes:
        """Return the room that a core with these tasks reserves."""
        met = np.unique(tasks["phase"])
        each = [self.cuts[phase].sizes(tasks[tasks["phase"] == phase]) for phase in met]
        return TileSizes(*(max(sizes) for sizes in zip(*each, strict=True)))

    def signature(self, tasks: Tasks) -> Hashable:
        """Describe what decides the cost of a core's program: tile shapes, and which tiles are met again."""
        phase, pixels, columns = (tasks[name] for name in ("phase", "pixels", "columns"))
        # By phase and tile: its shape, and which pixels it has, as phases may share a tile in L1.
        longest = max(len(cut.pixel_tiles) for cut in self.cuts)
        shapes = np.zeros((len(self.cuts), longest), np.int64)
        runs = alike([run for cut in self.cuts for run in cut.pixel_tiles])
        own, first = shapes.copy(), 0
        for number, cut in enumerate(self.cuts):
            last = first + len(cut.pixel_tiles)
            shapes[number, : last - first], own[number, : last - first] = cut.pixel_shapes, runs[first:last]
            first = last
        kinds = phase, shapes[phase, pixels], self.cuts[0].widths[columns]
        left = own[phase, pixels] if self.shares_tiles else mixed(own[phase, pixels], phase)
        return signature_of(self.gemm, tasks, kinds, left, mixed(columns, phase))


class PhaseTiles(DgradTiles):
    """The tiles of one phase, by number."""

    cut: PhaseTasks

    def output(self, *at: int) -> Index:
        """Return the slice of the output: every so manieth row and column of the image."""
        *place, channels, _ = super().output(*at)
        (first, pixels), phase, width = self.runs[at[-4]], self.cut.phase, self.gemm.sliding.out_size[1]
        top, left = divmod(first, width)
        bottom, right = divmod(first + pixels - 1, width)
        if bottom > top:
            left, right = 0, width - 1
        ends = zip(phase.first, phase.step, (top, left), (bottom, right), strict=True)
        lines = [slice(at + step * low, at + step * high + 1, step) for at, step, low, high in ends]
        return *place, channels, *lines


class SplitNest(DgradNest):
    """As `DgradNest`, with the loops of each phase."""

    def blocks(self, cut: SplitTasks) -> None:
        """Write down what is done for each base block, by its phase."""
        spread = self.insertion is not None
        cuts = {phase: PhaseTiles(self, cut.cuts[phase], spread=spread) for phase in cut.met}
        longest = max(len(t.runs) for t in cuts.values())
        *task, phase, columns = self.task(
            **self.outer, pixels=longest, phase=len(cut.cuts), columns=cuts[cut.met[0]].columns
        )
        task += [columns]
        # Phases may read the same slices of the source: all number them alike.
        numbers = numbered_windows(np.concatenate([t.cut.windows for t in cuts.values()]))
        most, begin = numbers.size, 0
        # Phases that share a tile have other taps, but the same channels of it.
        left = 0 if cut.shares_tiles else phase
        for number, t in cuts.items():
            windows = numbers[begin : begin + len(t.runs)]
            begin += len(t.runs)
            mine = self.table([at == number for at in range(len(cut.cuts))], name=f"is {number}")
            with self.when(mine[phase]):
                # Of other phases there may be more.
                tiles = [min(at, len(t.runs) - 1) for at in range(longest)]
                own = self.table(tiles, t.pixels, "tile")[task[3]]
                self.block(t, task, own, self.table(windows, most, "window"), phase, left)


@dataclass(frozen=True)
class DgradSplit(DgradShares):
    """As `DgradShares`, but for each phase of the stride with the taps that its pixels meet.

    Along H and W ("hw") a task makes all phases of its pixels, one after the other, from one tile of
    grad_output; along H alone ("h") each phase is a task, and zeros stay between columns. Its pixels are
    counted in one phase. A tile of the result is whole rows of a phase, or lies in one of them: it leaves
    L0C with a stride, where the operator brings the phases of a tile together in UB first.
    """

    name: ClassVar[str] = "dgrad_split"
    reads: ClassVar[frozenset[str]] = DgradShares.reads | {"kernel_split"}

    @cached_property
    def tasks(self) -> SplitTasks:  # type: ignore[override]
        """The base blocks, and the cut of their reduction."""
        return SplitTasks(self.gemm, self.tiling, self.profile)

    @cached_property
    def target(self) -> GmTensor:
        """The output, or float32 sums where parts are added, with rows and columns apart."""
        target, made = super().target, self.gemm.sliding.out_size
        return replace(target, shape=(*target.shape[:4], *made, target.shape[5]))

    @property
    def casts_sums(self) -> bool:
        """Whether vector cores make the output from float32 sums."""
        return self.target.name != self.gemm.output.name

    def nest(self, sizes: TileSizes) -> SplitNest:
        """Return the loop nest of all cores that reserve so much."""
        return SplitNest(self.name, self.tasks, sizes, self.target)

    def order(self) -> DgradOrder:
        """Return the slices of each phase, and how many of them are a part."""
        runs = [
            [[run for segment in part for _, _, run in segment.slices] for part in cut.parts]
            if cut.phase.taps
            else []
            for cut in self.tasks.cuts
        ]
        slices = tuple(tuple(run for part in parts for run in part) for parts in runs)
        lengths = (
            tuple(tuple(len(part) for part in parts) for parts in runs) if self.tiling.k_split > 1 else ()
        )
        c0, axes = self.gemm.sliding.c0, self.tiling.kernel_split
        return DgradOrder(c0, (), (), axes, slices, lengths)

    @property
    def needs_zeros(self) -> bool:
        """Whether tiles are added to what GM holds, or some pixels meet no tap."""
        return super().needs_zeros or len(self.tasks.met) < len(self.tasks.cuts)


@dataclass(frozen=True)
class PassTasks(DgradShareTasks):
    """The cut of a dgrad whose tiles in L1 never serve more taps than a pass takes."""

    def __post_init__(self) -> None:
        """Refuse a tiling that no program can follow."""
        if not (self.tiling.tap_loop and self.gemm.backwards):
            raise ConfigError(
                f"tiling of grad_input: tap_loop is {self.tiling.tap_loop!r}; dgrad_passes takes kh or khkw, "
                "of a convolution that is not transposed; or take dgrad_shares"
            )
        super().__post_init__()

    @property
    def passes(self) -> list[Taps]:
        """The taps of each pass, in the order of the reduction."""
        whole = self.gemm.all_taps
        rows = [whole._replace(row=row, rows=1) for row in range(whole.rows)]
        if self.tiling.tap_loop == "kh":
            return rows
        return [row._replace(col=col, cols=1) for row, col in product(rows, range(whole.cols))]

    @cached_property
    def _boxes(self) -> list[tuple[tuple[Taps, ...], tuple[Taps, ...]]]:
        """The boxes of left and of right tiles in L1 by part: pass after pass."""
        c0, t = self.gemm.sliding.c0, self.tiling
        left, right = t.step_ka * t.base_k, t.step_kb * t.base_k
        found = []
        for channel, channels in self.part_channels:
            own = [taps._replace(channel=channel, channels=channels) for taps in self.passes]
            boxes = [(cut_taps(taps, left, c0), cut_taps(taps, right, c0)) for taps in own]
            lefts, rights = (tuple(chain.from_iterable(side)) for side in zip(*boxes, strict=True))
            found.append((lefts, rights))
        return found

    @cached_property
    def in_row(self) -> bool:
        """Whether pixel tiles must stay inside one row: under one tap the row alone decides what is read."""
        return self.tiling.tap_loop == "khkw" or super().in_row

    def met(self, run: tuple[int, int]) -> frozenset[tuple[int, int]]:
        """Return the passes that read any pixel of grad_output for a pixel range."""
        tile = self.gemm.sliding.tile
        return frozenset(self._pass_of(taps) for taps in self.passes if tile(*run, taps).rows is not None)

    def segments_met(self, passes: frozenset[tuple[int, int]]) -> list[list[int]]:
        """Return, for each part of the reduction, the numbers of the segments of some passes."""
        found: list[list[int]] = []
        begin = 0
        for part in self.parts:
            found.append([begin + at for at, own in enumerate(part) if self._pass_of(own.left) in passes])
            begin += len(part)
        return found

    def _pass_of(self, box: Taps) -> tuple[int, int]:
        """Return the row, and the column if there is one, of the pass that a box belongs to."""
        return box.row, box.col if self.tiling.tap_loop == "khkw" else 0


class PassNest(DgradNest):
    """As `DgradNest`, but base blocks leave out the passes that meet padding alone.

    If all of them do, the zeros in GM stay.
    """

    def reductions(self, t: DgradTiles, own: Number) -> Reductions:
        """Return the segments that each part of the reductions of some pixels meets."""
        cut = t.cut
        assert isinstance(cut, PassTasks)
        firsts, of = cut.kinds
        met = [cut.met(t.runs[at]) for at in firsts.tolist()]
        found = [cut.segments_met(passes) for passes in dict.fromkeys(met)]
        listed = [part for parts in found for part in parts]
        like = self.table(np.array(alike(met))[of], name="like")[own]
        segments, counts = [segment for part in listed for segment in part], [len(part) for part in listed]
        return Reductions(
            self.spans(counts, name="met"),
            like * len(cut.parts),
            segments,
            begins_of(counts),
            self.table(segments, len(t.segments), "segment"),
        )


@dataclass(frozen=True)
class DgradPasses(DgradShares):
    """As `DgradShares`, but with a loop over rows of taps, or over taps, outside of the products.

    A tile in L1 serves one row of taps (`tap_loop` "kh"), or one tap ("khkw"), so that it has no rows around
    those of its pixels, and no kernel is too large for it. The sum stays in L0C from pass to pass. A pass
    that reads nothing but padding, or zeros between pixels, is left out, so the result is cleared first. With
    one tap at a time base blocks end where rows of pixels end.

    Raises   ConfigError without the loop, or for a transposed convolution
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

    def nest(self, sizes: TileSizes) -> DgradNest:
        """Return the loop nest of all cores that reserve so much."""
        return PassNest(self.name, self.tasks, sizes, self.target)

    def order(self) -> DgradOrder:
        """Return the slices of each part of the reduction, and the runs of pixels that leave passes out."""
        return replace(super().order(), tap_loop=self.tiling.tap_loop, tiles=tuple(self.tasks.pixel_tiles))
