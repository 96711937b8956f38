"""The loop nest of grad_weight by stream-K: whole reductions, of which the last round is cut into parts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ascendsim.frozen import cached_property
from ascendsim.ops.schedules.numbering import cut_within, deal
from ascendsim.ops.schedules.order import StreamOrder, WgradOrder
from ascendsim.ops.schedules.tiles import Sizes
from ascendsim.ops.schedules.vector.blocks import Piece, block_sums
from ascendsim.ops.schedules.vector.elementwise import flat, zero_fill
from ascendsim.ops.schedules.wgrad.cut import Task
from ascendsim.ops.schedules.wgrad.nest import StreamNest
from ascendsim.ops.schedules.wgrad.schedule import Wgrad
from ascendsim.ops.schedules.wgrad.stream_tasks import StreamTasks
from ascendsim.program.kernel import Phase
from ascendsim.program.places import GmTensor


@dataclass(frozen=True)
class WgradStream(Wgrad):
    """As `Wgrad`, but every task reduces all pixels, and only those of the last round are cut into parts.

    Tasks are numbered along group, kernel depth "d", "m" and "n" as `task_order` says and go to the cores as
    `mapping` says; one that meets padding alone is a task without work. What is left for the last round is
    cut into `k_split` parts along `stream_axis`, one for each core; vector cores add them, in order or as a
    tree. So the bits do not depend on what arrives first. Depths of the small side are walked before images;
    the operators walk them after.
    """

    name: ClassVar[str] = "wgrad_stream"
    reads: ClassVar[frozenset[str]] = Wgrad.reads | {
        *("single_core_m", "single_core_n", "mapping", "task_order", "stream_axis", "strip_w")
    }

    def __post_init__(self) -> None:
        """Take rows and columns of the small side apart where a strip has some of both."""
        if self.tiling.strip_w:
            small, size = self.gemm.small, self.gemm.sliding.out_size
            shape = *small.shape[:4], *size, small.shape[-1]
            object.__setattr__(self, "gemm", replace(self.gemm, small=replace(small, shape=shape)))
        super().__post_init__()

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
        if not self._streamed:
            return output
        return GmTensor.of("parts", (self.parts, *output.shape), "float32", "workspace")

    def nest(self, sizes: Sizes) -> StreamNest:
        """Return the loop nest of all cores that reserve so much."""
        return StreamNest(self.tasks, sizes, self.gemm.output, self.target)

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

    @cached_property
    def _streamed(self) -> list[Piece]:
        """The base blocks of the last round, if it is cut; no longer than base_n."""
        cut_, c0 = self.tasks, self.gemm.sliding.c0
        tasks = [
            task
            for unit in cut_.units[len(cut_.units) - cut_.tail :]
            for task in cut_.blocks(unit, cut_.whole)
        ]
        return [
            Piece(task.group, task.depth, task.first_row, task.rows, *columns)
            for task in tasks
            for columns in cut_within(
                [(task.columns.first_column, task.columns.groups * c0)], self.tiling.base_n
            )
        ]

    def phases(self) -> tuple[Phase, ...]:
        """Return zeros where nothing is written, the tiles, and the sums of the last round's parts."""
        cut_, profile, output = self.tasks, self.profile, self.gemm.output
        phases = [self.compute()]
        met = {piece.depth for piece in self._streamed}
        # A part of rows or images that a kernel depth does not meet leaves its place in the workspace alone.
        if any(not len(cut_.part(depth, part)) for depth in met for part in range(self.parts)):
            phases.insert(0, zero_fill(profile, flat(self.target)))
        if not all(self.gemm.depths):
            phases.insert(0, zero_fill(profile, flat(output)))
        if self._streamed:
            phases += block_sums(profile, self.target, output, self._streamed, tree=self._tree)
        return tuple(phases)

    def order(self) -> WgradOrder:
        """Return the runs of pixels, and which elements are added in parts."""
        cut_ = self.tasks
        runs, t = tuple(cut_.ranges_of_image), self.tiling
        order = WgradOrder(runs, t.base_k, strip_w=t.strip_w)
        if not self._streamed:
            return order
        stream = StreamOrder(
            tuple(self._streamed),
            self.gemm.sliding.c0,
            self.tiling.stream_axis,
            cut_.length,
            tuple(cut_.part_ranges),
        )
        return replace(order, k_split=self.parts, tree=self._tree, stream=stream)
