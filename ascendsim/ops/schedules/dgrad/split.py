"""The loop nest of grad_input whose kernel is split by the stride: no inserted zeros are multiplied."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ascendsim.frozen import cached_property
from ascendsim.ops.schedules.blocks import BlockProgram
from ascendsim.ops.schedules.dgrad.pieces import Task
from ascendsim.ops.schedules.dgrad.shares import DgradShares
from ascendsim.ops.schedules.dgrad.slices import DgradSlices
from ascendsim.ops.schedules.dgrad.split_tasks import PhaseTasks, SplitTasks
from ascendsim.ops.schedules.dgrad.tiles import DgradTiles
from ascendsim.ops.schedules.order import DgradOrder
from ascendsim.ops.schedules.tiles import Index, Sizes, held
from ascendsim.ops.schedules.vector.elementwise import cast, flat, zero_fill
from ascendsim.program.kernel import Phase as KernelPhase
from ascendsim.program.places import GmTensor


class PhaseSlices(DgradSlices):
    """Finds slices of GM for the base blocks of one phase."""

    _cut: PhaseTasks

    def output(self, task: Any, first_column: int, columns: int) -> Index:
        """Return the slice of the output: every so manieth row and column of the image."""
        group, image, depth, channels, _ = super().output(task, first_column, columns)
        phase, width = self._cut.phase, self._cut.gemm.sliding.out_size[1]
        top, left = divmod(task.first_pixel, width)
        bottom, right = divmod(task.first_pixel + task.pixels - 1, width)
        if bottom > top:
            left, right = 0, width - 1
        ends = zip(phase.first, phase.step, (top, left), (bottom, right), strict=True)
        places = [slice(at + step * low, at + step * high + 1, step) for at, step, low, high in ends]
        return group, image, depth, channels, *places


class PhaseTiles(DgradTiles):
    """Appends loads and products of tiles of one phase."""

    finds = PhaseSlices


class SplitProgram(BlockProgram):
    """Emits the programs of a split kernel; base blocks of one phase that are alike share their code."""

    def __init__(self, cut: SplitTasks, sizes: Sizes, target: GmTensor, hazards: frozenset[str]) -> None:
        super().__init__(cut, sizes, target, hazards, cut.gemm.sliding.c0)
        self.tiles = [PhaseTiles(self.b, own) for own in cut.cuts]

    def append(self, task: Task) -> None:
        """Append one base block of one phase: for each kernel depth, channels in L1, base_k: multiply."""
        cut, own, tiles = self.cut, self.cut.cuts[task.phase], self.tiles[task.phase]
        pairs = self.cut.gemm.depths[task.depth]
        shape = task.phase, own.pixel_shapes[task.first_pixel, task.pixels], task.columns, len(pairs)
        places = {
            self.left: tuple([cut.left_place(task, source) for _, source in pairs]),
            self.right: tuple([cut.right_place(task, kernel) for kernel, _ in pairs]),
        }
        atomic = len(own.parts) > 1
        for _ in self.b.once(task, shape, places):
            for segments in own.parts:
                accumulator = self.l0c.next()
                for pair, (kernel, source) in enumerate(pairs):
                    for segment in segments:
                        # Phases that share a tile have other taps, but the same channels of it.
                        place = cut.left_place(task, source), segment.left[:2]
                        image = held(self.left, place, tiles.load_image, task, pair, segment.left)
                        place = cut.right_place(task, kernel), segment.right
                        weights = held(self.right, place, tiles.load_weights, task, pair, segment.right)
                        for slice_ in segment.slices:
                            l0, first = (self.l0a.next(), self.l0b.next()), self.l0c.begins()
                            tiles.multiply(
                                accumulator, image, weights, l0, task, segment, slice_, first=first
                            )
                # Parts of a reduction meet in GM.
                self.out.write(accumulator, task.pixels, task.columns, tiles.output, task, atomic=atomic)


@dataclass(frozen=True)
class DgradSplit(DgradShares):
    """As `DgradShares`, but for each phase of the stride with the taps that its pixels meet (`phases.py`).

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

    def emitter(self, sizes: Sizes) -> SplitProgram:  # type: ignore[override]
        """Return what emits the programs of all cores that reserve so much."""
        return SplitProgram(self.tasks, sizes, self.target, self.hazards)

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

    def phases(self) -> tuple[KernelPhase, ...]:
        """Return zeros where no tap is met or parts are added, the tiles, and the cast of float32 sums."""
        missing = len(self.tasks.met) < len(self.tasks.cuts) or not all(self.gemm.depths)
        zeros = (zero_fill(self.profile, flat(self.target)),) if missing or self.tiling.k_split > 1 else ()
        made = (cast(self.profile, flat(self.target), flat(self.gemm.output)),) if self.casts_sums else ()
        return (*zeros, self.compute(), *made)

    def _blocks(
        self,
        batch: tuple[int, int],
        group: int,
        d: tuple[int, int],
        m: tuple[int, ...],
        n: tuple[int, int],
    ) -> Iterator[Task]:
        """Yield the base blocks of one task: tiles of pixels, of channels, phases."""
        cut = self.tasks
        columns = [wide for wide in cut.cuts[0].column_tiles if n[0] <= wide[0] < sum(n)]
        for image in range(batch[0], sum(batch)):
            for depth in range(d[0], sum(d)):
                if self.gemm.depths[depth]:
                    for first, pixels, phase in cut.tiles(m):
                        for wide in columns:
                            yield Task(group, image, depth, first, pixels, *wide, phase)
