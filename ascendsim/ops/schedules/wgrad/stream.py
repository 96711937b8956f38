"""The loop nest of grad_weight by stream-K: whole reductions, of which the last round is cut into parts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any, ClassVar

from ascendsim.errors import ConfigError
from ascendsim.ops.schedules.numbering import cut, cut_within, deal, numbered
from ascendsim.ops.schedules.order import StreamOrder, WgradOrder
from ascendsim.ops.schedules.ranges import TaskRange
from ascendsim.ops.schedules.tiles import Sizes
from ascendsim.ops.schedules.vector.blocks import Piece, block_sums
from ascendsim.ops.schedules.vector.elementwise import flat, zero_fill
from ascendsim.ops.schedules.wgrad.columns import range_in_row
from ascendsim.ops.schedules.wgrad.runs import RunsProgram
from ascendsim.ops.schedules.wgrad.schedule import Wgrad
from ascendsim.ops.schedules.wgrad.tasks import Task, WgradTasks, segment_of
from ascendsim.program.kernel import Phase
from ascendsim.program.places import GmTensor


@dataclass(frozen=True)
class StreamTasks(WgradTasks):
    """The cut of a wgrad by stream-K: parts 0 to k_split - 1 of a reduction, and part k_split: all of it."""

    def __post_init__(self) -> None:
        """Refuse a tiling that no program can follow."""
        super().__post_init__()
        if (self.tiling.k_split > 1) != bool(self.tiling.stream_axis):
            raise ConfigError(
                f"tiling of grad_weight: k_split is {self.tiling.k_split} and stream_axis is "
                f"{self.tiling.stream_axis!r}; parts need an axis, and an axis needs parts"
            )
        cores = self.profile.cores.cube
        if self.tail * self.whole > cores:
            raise ConfigError(
                f"tiling of grad_weight: the last round has {self.tail} tasks in {self.whole} parts each, "
                f"but {self.profile.variant} has {cores} cores; take fewer parts (k_split)"
            )
        if range_in_row(self.gemm, self.tiling, self.l1_budget):
            raise ConfigError(
                "tiling of grad_weight: whole rows of the image do not fit in L1, so that stream-K cannot "
                "cut its rows; make base_n or step_kb smaller"
            )

    @property
    def whole(self) -> int:
        """The number that stands for the whole reduction."""
        return self.tiling.k_split

    @property
    def splits(self) -> int:
        """Numbers of parts, with that of the whole."""
        return self.whole + 1

    @property
    def length(self) -> int:
        """Length of a part along its axis."""
        height = self.gemm.sliding.out_size[0]
        images = self.gemm.batch * self.gemm.small.shape[2]
        return -(-(height if self.tiling.stream_axis == "height" else images) // self.tiling.k_split)

    @cached_property
    def part_ranges(self) -> list[tuple[int, int]]:
        """The pixels of each range in one image, for parts: they end where parts of rows end."""
        if self.tiling.stream_axis != "height":
            return self.ranges_of_image
        rows = cut(self.gemm.sliding.pixels, self.length * self.gemm.sliding.out_size[1])
        return cut_within(rows, self.tiling.step_kb * self.tiling.base_k)

    @property
    def right_ranges(self) -> list[tuple[int, int]]:
        """The pixels of each right tile in one image."""
        return sorted({*self.ranges_of_image, *self.part_ranges})

    def part(self, depth: int, part: int) -> Any:
        """Return the segments of one part of the reduction at a kernel depth, or of all of it."""
        pairs, batch = self.gemm.depths[depth], self.gemm.batch
        if part == self.whole:
            return TaskRange(pairs, batch, self.ranges_of_image, segment_of)
        if self.tiling.stream_axis == "height":
            pixels = self.length * self.gemm.sliding.out_size[1]
            ranges = [run for run in self.part_ranges if run[0] // pixels == part]
            return TaskRange(pairs, batch, ranges, segment_of)
        # Images of all small depths one after the other; of them those count that this kernel depth meets.
        first, last = (min(at * self.length, batch * self.gemm.small.shape[2]) for at in (part, part + 1))
        met = [
            sum(1 for small, _ in pairs for image in range(batch) if small * batch + image < end)
            for end in (first, last)
        ]
        each = len(self.ranges_of_image)
        return TaskRange(pairs, batch, self.ranges_of_image, segment_of)[met[0] * each : met[1] * each]

    @cached_property
    def _part_shapes(self) -> dict[tuple[int, int], int]:
        """Number the parts by the pixel ranges of their segments, from which the tiles follow."""
        numbers: dict[Hashable, int] = defaultdict(count().__next__)
        return {key: numbers[tuple(s.range[1:] for s in self.part(*key))] for key in self._parts}

    @cached_property
    def units(self) -> list[dict[str, Any]]:
        """The tasks in order: tiles of single_core_m x single_core_n of the result at each kernel depth."""
        gemm, t = self.gemm, self.tiling
        width = gemm.output.shape[3]
        axes: dict[str, Sequence[Any]] = {
            "group": range(gemm.groups),
            "d": [depth for depth, pairs in enumerate(gemm.depths) if pairs],
            "m": cut(gemm.rows, t.block_m),
            "n": cut(width, t.block_n),
        }
        return numbered("grad_weight", t.task_order, axes)

    @property
    def shares_tiles(self) -> bool:
        """Whether tasks of different parts may need the same tiles: the whole and each of its parts do."""
        return True

    @property
    def tail(self) -> int:
        """Tasks of the last round, which are cut."""
        return len(self.units) % self.profile.cores.cube if self.whole > 1 else 0

    def blocks(self, unit: dict[str, Any], part: int) -> Iterator[Task]:
        """Yield the base blocks of a task, or of a part of it."""
        (column, wide), depth = unit["n"], unit["d"]
        if not len(self.part(depth, part)):
            return
        for row in cut_within([unit["m"]], self.tiling.base_m):
            for columns in self.column_blocks:
                if column <= columns.first_column < column + wide:
                    yield Task(unit["group"], depth, part, *row, columns)

    @cached_property
    def tasks(self) -> list[Task]:
        """All base blocks: those of whole reductions, then those of parts."""
        first = len(self.units) - self.tail
        found = [task for unit in self.units[:first] for task in self.blocks(unit, self.whole)]
        parts = range(self.whole)
        return found + [task for u in self.units[first:] for part in parts for task in self.blocks(u, part)]


class StreamProgram(RunsProgram):
    """Emits the programs of stream-K: whole reductions go to the result, parts to a workspace."""

    def __init__(
        self, cut_: StreamTasks, sizes: Sizes, targets: tuple[GmTensor, GmTensor], hazards: frozenset[str]
    ) -> None:
        super().__init__(cut_, sizes, targets[0], False, hazards)
        self._whole = cut_.whole
        self._outs = [(self.out, self.tiles.output(apart=False))]
        if targets[1] is not targets[0]:
            self._outs.append((self.out.onto(targets[1]), self.tiles.output(apart=True)))

    def append(self, task: Task) -> None:
        """Append one base block, which goes where its kind goes."""
        self.out, self.find = self._outs[0 if task.part == self._whole else 1]
        super().append(task)


@dataclass(frozen=True)
class WgradStream(Wgrad):
    """As `Wgrad`, but every task reduces all pixels, and only those of the last round are cut into parts.

    Tasks are numbered along group, kernel depth "d", "m" and "n" as `task_order` says and go to the cores as
    `mapping` says. What is left for the last round is cut into `k_split` parts along `stream_axis`, one for
    each core; vector cores add them, in order or as a tree. So the bits do not depend on what arrives first.
    Depths of the small side are walked before images; the operators walk them after.
    """

    name: ClassVar[str] = "wgrad_stream"
    reads: ClassVar[frozenset[str]] = Wgrad.reads | {
        *("single_core_m", "single_core_n", "mapping", "task_order", "stream_axis")
    }

    @cached_property
    def tasks(self) -> StreamTasks:
        """The base blocks, and the cut of their reduction."""
        return StreamTasks(self.gemm, self.tiling, self.profile)

    @property
    def parts(self) -> int:
        """Parts of the tasks that are cut."""
        return self.tiling.k_split

    @property
    def atomic(self) -> bool:
        """Parts are always kept apart."""
        return False

    @cached_property
    def target(self) -> GmTensor:
        """The workspace of the parts, or the output where there are none."""
        output = self.gemm.output
        if not self.tasks.tail:
            return output
        return GmTensor.of("parts", (self.parts, *output.shape), "float32", "workspace")

    def emitter(self, sizes: Sizes) -> StreamProgram:
        """Return what emits the programs of all cores that reserve so much."""
        return StreamProgram(self.tasks, sizes, (self.gemm.output, self.target), self.hazards)

    def dealt(self) -> list[list[Task]]:
        """Return the base blocks of each core: whole tasks, then its part of one of the last round."""
        cut_ = self.tasks
        first = len(cut_.units) - cut_.tail
        cores = deal([list(cut_.blocks(unit, cut_.whole)) for unit in cut_.units[:first]], self.tiling)
        cores += [[] for _ in range(self.profile.cores.cube - len(cores))]
        places = [(unit, part) for unit in cut_.units[first:] for part in range(self.parts)]
        for core, (unit, part) in enumerate(places):
            cores[core] = [*cores[core], *cut_.blocks(unit, part)]
        return [tasks for tasks in cores if tasks]

    @property
    def _tree(self) -> bool:
        """Whether the parts are added as a tree."""
        # As they arrive is no choice here: then it is the order that the product takes for itself.
        how = self.profile.generation.deterministic_sum if self.sums == "atomic" else self.sums
        return how == "tree"

    def _streamed(self) -> list[Piece]:
        """Return the base blocks of the last round."""
        cut_, c0 = self.tasks, self.gemm.sliding.c0
        tasks = [
            task
            for unit in cut_.units[len(cut_.units) - cut_.tail :]
            for task in cut_.blocks(unit, cut_.whole)
        ]
        return [
            Piece(
                *(task.group, task.depth, task.first_row, task.rows),
                *(task.columns.first_column, task.columns.groups * c0),
            )
            for task in tasks
        ]

    def phases(self) -> tuple[Phase, ...]:
        """Return zeros where nothing is written, the tiles, and the sums of the last round's parts."""
        cut_, profile, output = self.tasks, self.profile, self.gemm.output
        phases = [self.compute()]
        met = {unit["d"] for unit in cut_.units[len(cut_.units) - cut_.tail :]} if cut_.tail else set()
        # A part of rows or images that a kernel depth does not meet leaves its place in the workspace alone.
        if any(not len(cut_.part(depth, part)) for depth in met for part in range(self.parts)):
            phases.insert(0, zero_fill(profile, flat(self.target)))
        if not all(self.gemm.depths):
            phases.insert(0, zero_fill(profile, flat(output)))
        if cut_.tail:
            phases += block_sums(profile, self.target, output, self._streamed(), tree=self._tree)
        return tuple(phases)

    def order(self) -> WgradOrder:
        """Return the runs of pixels, and which elements are added in parts."""
        cut_ = self.tasks
        runs = tuple(cut_.ranges_of_image)
        if not cut_.tail:
            return WgradOrder(runs, self.tiling.base_k)
        stream = StreamOrder(
            tuple(self._streamed()),
            self.gemm.sliding.c0,
            self.tiling.stream_axis,
            cut_.length,
            tuple(cut_.part_ranges),
        )
        return WgradOrder(runs, self.tiling.base_k, self.parts, tree=self._tree, stream=stream)
