"""The loop nest of grad_weight by stream-K: whole reductions, with the last round cut into parts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, replace
from itertools import chain, count
from math import prod
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ascendsim.errors import ConfigError
from ascendsim.frozen import cached_property
from ascendsim.ops.problems.orders import StreamOrder, WgradOrder
from ascendsim.ops.problems.products import WgradGemm
from ascendsim.ops.problems.sliding import Pair
from ascendsim.ops.problems.strips import Strips
from ascendsim.ops.schedules.blocks import TileSizes
from ascendsim.ops.schedules.ranges import cut_within, deal, joined, numbered, parts_of, tasks_of
from ascendsim.ops.schedules.vector.elementwise import MatrixPiece, block_sums, flat, zero_fill
from ascendsim.ops.schedules.wgrad.cut import BLOCK, Columns, Reduced, column_blocks, range_in_row
from ascendsim.ops.schedules.wgrad.nest import StreamNest, Wgrad
from ascendsim.ops.schedules.wgrad.tasks import WgradTasks
from ascendsim.program.kernel import Phase
from ascendsim.program.places import GmTensor

if TYPE_CHECKING:
    from ascendsim.ops.schedules.ranges import Numbers, Tasks


@dataclass(frozen=True)
class StreamTasks(WgradTasks):
    """The cut of a wgrad by stream-K: parts 0 to k_split - 1 of a reduction, and part k_split: all of it."""

    operator: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse a tiling that no program can follow."""
        super().__post_init__()
        if (self.tiling.k_split > 1) != bool(self.tiling.stream_axis):
            raise ConfigError(
                f"tiling of grad_weight: k_split is {self.tiling.k_split} and stream_axis is "
                f"{self.tiling.stream_axis!r}; parts need an axis, and an axis needs parts"
            )
        cores = self.tiling.used_cores
        if self.tail * self.whole > cores:
            raise ConfigError(
                f"tiling of grad_weight: the last round has {self.tail} tasks in {self.whole} parts each, "
                f"but the plan uses {cores} cores; take fewer parts (k_split) or more cores (used_cores)"
            )
        self.require_rows()

    def require_rows(self) -> None:
        """Refuse rows that L1 does not hold as a whole.

        Raises   ConfigError
        """
        if any(range_in_row(gemm, self.tiling, self.l1_budget) for gemm in self._of_strips):
            raise ConfigError(
                "tiling of grad_weight: whole rows of the image, or of its strips, do not fit in L1, so that "
                "stream-K cannot cut its rows; make base_n, step_kb or strip_w smaller"
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
    def strips(self) -> Strips:
        """The strips of columns of an image; without any all columns are one."""
        return Strips.of(self.gemm.sliding, self.tiling.strip_w)

    @property
    def _of_strips(self) -> list[WgradGemm]:
        """The product as strips of each width see it."""
        if not self.tiling.strip_w:
            return [self.gemm]
        return [replace(self.gemm, sliding=self.strips.sliding_of(strip)) for strip in self.strips.kinds]

    @property
    def _most(self) -> int:
        """The most pixels of a range."""
        return self.tiling.step_kb * self.tiling.base_k

    @cached_property
    def ranges_of_image(self) -> list[tuple[int, int]]:
        """The pixels of each range in one image; they end where strips of columns end."""
        return self.strips.runs(self._most)

    @cached_property
    def part_ranges(self) -> list[tuple[int, int]]:
        """The pixels of each range in one image, for parts: they end where parts of rows end."""
        if self.tiling.stream_axis != "height":
            return self.ranges_of_image
        return self.strips.runs(self._most, self.length)

    @property
    def runs(self) -> list[Pair]:
        """The ranges of pixels of the whole, and those of parts of rows, part after part."""
        if self.tiling.stream_axis != "height":
            return self.ranges_of_image
        return [*self.ranges_of_image, *chain.from_iterable(self._ranges_by_part.values())]

    def first_run(self, part: int) -> int:
        """Return the number among them of the first range of a part's images."""
        if part == self.whole or self.tiling.stream_axis != "height":
            return 0
        before = [len(self._ranges_by_part[each]) for each in range(part)]
        return len(self.ranges_of_image) + sum(before)

    @property
    def begins(self) -> Numbers:
        """Whether an image, or a strip of it, begins with a range, or what a part of rows has of one."""
        parts = [self.ranges_of_image]
        if self.tiling.stream_axis == "height":
            parts += self._ranges_by_part.values()
        part = np.repeat(np.arange(len(parts)), [len(own) for own in parts])
        first = np.array([first for own in parts for first, _ in own], np.int64)
        strip = first // (self.strips.height * self.strips.width)
        begins: Numbers = (np.diff(part, prepend=-1) != 0) | (np.diff(strip, prepend=-1) != 0)
        return begins

    def _ranges_of(self, part: int) -> list[tuple[int, int]]:
        """Return the pixels of each range in one image that a part reduces."""
        if part == self.whole or self.tiling.stream_axis != "height":
            return self.ranges_of_image
        return self._ranges_by_part[part]

    @cached_property
    def _ranges_by_part(self) -> dict[int, list[tuple[int, int]]]:
        """The pixels of each range in one image, by the part of its rows."""
        found: dict[int, list[tuple[int, int]]] = {part: [] for part in range(self.whole)}
        length, row = self.length, self.strips.row
        for run in self.part_ranges:
            found[row(run[0]) // length].append(run)
        return found

    def left_tiles(self, runs: Numbers) -> Numbers:
        """Return the pixels of the left tiles: of a strip whole rows, where a run is longer than one."""
        return self.strips.rectangles(runs) if self.tiling.strip_w else runs

    def left_place(self, run: Pair) -> tuple[slice, ...]:
        """Return where the pixels of a left tile lie in an image of the small side."""
        return self.strips.place(*run) if self.tiling.strip_w else super().left_place(run)

    @cached_property
    def l1_budget(self) -> int:
        """Bytes of L1 for one tile of the right operand."""
        if not self.tiling.strip_w:
            return super().l1_budget
        runs = self.strips.runs(self._most, of=self.strips.kinds)
        if self.tiling.stream_axis == "height":
            runs += self.strips.runs(self._most, self.length, self.strips.kinds)
        return self.beside(int(self.left_tiles(np.array(runs))[:, 1].max()))

    @cached_property
    def column_blocks(self) -> list[Columns]:
        """Column blocks at one kernel depth: the widest with tiles that fit in L1 for every strip."""
        found = [column_blocks(gemm, self.tiling, self.l1_budget) for gemm in self._of_strips]
        if len(found) == 1:
            return found[0]
        room = [self._most_bytes(blocks) for blocks in found]
        fitting = (own for own, size in zip(found, room, strict=True) if size <= self.l1_budget)
        return next(fitting, found[room.index(min(room))])

    def _most_bytes(self, blocks: list[Columns]) -> int:
        """Return the bytes of the largest right tile of some column blocks."""
        boxes = {block.box[1:]: block.box._replace(channel=0) for block in blocks}.values()
        return max(int(self.right_bytes(box).max()) for box in boxes)

    def part(self, depth: int, part: int) -> list[Reduced]:
        """Return the runs of pixels of one part of the reduction at a kernel depth, or of all of it."""
        pairs, batch = self.gemm.depths[depth], self.gemm.batch
        if part == self.whole or self.tiling.stream_axis == "height":
            first, count = self.first_run(part), len(self._ranges_of(part))
            return [Reduced(*pair, 0, batch, first, count) for pair in pairs if count]
        # Images of all small depths one after the other; of them those count that this kernel depth meets.
        met = [
            sum(min(max(at * self.length - small * batch, 0), batch) for small, _ in pairs)
            for at in (part, part + 1)
        ]
        each = len(self.ranges_of_image)
        return self._reduced_by(pairs, range(met[0] * each, met[1] * each))

    @cached_property
    def _part_shapes(self) -> Numbers:
        """Numbers of the parts by the pixel ranges of their segments, from which the tiles follow."""
        return self._spelled(self.pixels.right_of.tolist())

    def signature(self, tasks: Tasks) -> Hashable:
        """Describe what decides the cost of a core's program: tile shapes, and which tiles are met again.

        A tile lies in the strip of a task's rows, or of its columns. If a core reduces a strip in one way
        alone, it meets the same tiles with each of its tasks, whatever pixels these are. Else the whole
        shares some with a part, and a kernel depth with another one: those of like depths, seen from the
        depth where the strip was met first.
        """
        parts, groups, depths, rows, columns = (tasks[name].tolist() for name in BLOCK.split())
        boxes, shapes = (own.tolist() for own in self._told_columns)
        strips = [
            (("left", group, row), ("right", group, boxes[column]))
            for group, row, column in zip(groups, rows, columns, strict=True)
        ]
        ways: dict[Hashable, set[tuple[int, int]]] = defaultdict(set)
        for depth, part, both in zip(depths, parts, strips, strict=True):
            for strip in both:
                ways[strip].add((depth, part))
        numbers: dict[Hashable, int] = defaultdict(count().__next__)
        firsts: dict[Hashable, int] = {}
        met: list[Hashable] = []
        for depth, part, both in zip(depths, parts, strips, strict=True):
            tiles = []
            for side, strip in enumerate(both):
                own = [pair[side] for pair in self.gemm.depths[depth]]
                first = firsts.setdefault(strip, own[0])
                way = (part, *(each - first for each in own)) if len(ways[strip]) > 1 else ()
                tiles.append((numbers[strip], way))
            met.append((int(self._part_shapes[depth, part]), *tiles))
        of_rows = np.array([height for _, height in self.row_tiles])[tasks["row"]]
        places = self.places_of(tasks["row"], tasks["depth"], tasks["column"])
        told = of_rows, np.array(shapes)[tasks["column"]], *places
        return *[own.tobytes() for own in told], *met

    @cached_property
    def wholes(self) -> Tasks:
        """The base blocks of whole reductions, those of the last round included."""
        whole, (_, *outer) = range(self.whole, self.whole + 1), self._outer
        tiles = range(len(self.row_tiles)), range(len(self.column_blocks))
        return self.reducing_of(tasks_of(BLOCK, whole, *outer, *tiles))

    @property
    def _sides(self) -> tuple[int, int]:
        """How many tasks there are along the rows, and along the columns."""
        return -(-self.gemm.rows // self.tiling.block_m), -(-self.gemm.output.shape[3] // self.tiling.block_n)

    @property
    def count(self) -> int:
        """How many tasks there are."""
        return self.gemm.groups * len(self.gemm.depths) * prod(self._sides)

    @cached_property
    def units(self) -> Numbers:
        """The number of the task of each of them.

        Tasks are tiles of single_core_m x single_core_n of the result at each kernel depth. Those that meet
        padding alone are counted as any, and skipped by the core that gets them.
        """
        gemm, t, tasks = self.gemm, self.tiling, self.wholes
        rows, columns = self._sides
        row, _ = parts_of(self.row_tiles, t.block_m)
        firsts = np.array([block.first_column for block in self.column_blocks])
        axes = {
            "group": (tasks["group"], gemm.groups),
            "d": (tasks["depth"], len(gemm.depths)),
            "m": (row[tasks["row"]], rows),
            "n": (firsts[tasks["column"]] // t.block_n, columns),
        }
        return numbered("grad_weight", t.task_order, axes)[0]

    @property
    def tail(self) -> int:
        """Tasks of the last round, which are cut."""
        return self.count % self.tiling.used_cores if self.whole > 1 else 0

    @property
    def head(self) -> int:
        """Tasks before the last round."""
        return self.count - self.tail

    @property
    def of_parts(self) -> list[Tasks]:
        """The base blocks of each part of each task of the last round."""
        found = []
        for unit in range(self.head, self.count):
            for part in range(self.whole):
                own = self.wholes[self.units == unit]
                own["part"] = part
                found.append(self.reducing_of(own))
        return found

    @cached_property
    def tasks(self) -> Tasks:
        """All base blocks: those of whole reductions, then those of parts."""
        return joined([self.wholes[self.units < self.head], *self.of_parts])


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

    def nest(self, sizes: TileSizes) -> StreamNest:
        """Return the loop nest of all cores that reserve so much."""
        return StreamNest(self.tasks, sizes, self.gemm.output, self.target)

    def dealt(self) -> list[Tasks]:
        """Return the base blocks of each core: whole tasks, then its part of one of the last round."""
        cut_, t = self.tasks, self.tiling
        units = cut_.units
        head = units < cut_.head
        in_turn = t.mapping == "interleaved"
        cores = deal(cut_.wholes[head], units[head], cut_.head, t.used_cores, in_turn=in_turn)
        cores += [cut_.wholes[:0]] * (t.used_cores - len(cores))
        for core, own in enumerate(cut_.of_parts):
            cores[core] = joined([cores[core], own])
        return [tasks for tasks in cores if len(tasks)]

    @property
    def _tree(self) -> bool:
        """Whether the parts are added as a tree."""
        # As they arrive is no choice here: then it is the order that the product takes for itself.
        how = self.profile.generation.deterministic_sum if self.sums == "atomic" else self.sums
        return how == "tree"

    @cached_property
    def _streamed(self) -> list[MatrixPiece]:
        """The base blocks of the last round, if it is cut; no longer than base_n."""
        cut_, c0 = self.tasks, self.gemm.sliding.c0
        units = cut_.units
        tail = cut_.wholes[units >= cut_.head]
        order = np.argsort(units[units >= cut_.head], kind="stable")
        found = []
        for _, group, depth, row, column in tail[list(BLOCK.split())][order].tolist():
            block = cut_.column_blocks[column]
            wide = cut_within([(block.first_column, block.groups * c0)], self.tiling.base_n)
            first_row, rows = cut_.row_tiles[row]
            found += [MatrixPiece(group, depth, first_row, rows, *own) for own in wide]
        return found

    def phases(self) -> tuple[Phase, ...]:
        """Return zeros where nothing is written, the tiles, and the sums of the last round's parts."""
        cut_, profile, output = self.tasks, self.profile, self.gemm.output
        phases = [self.compute()]
        met = {piece.depth for piece in self._streamed}
        # A part of rows or images that a kernel depth does not meet leaves its place in the workspace alone.
        if any(not cut_.part(depth, part) for depth in met for part in range(self.parts)):
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
