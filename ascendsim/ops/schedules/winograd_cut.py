"""How grad_weight by Winograd is cut: blocks of channels, and clusters of tiles that they reduce."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from ascendsim.errors import ConfigError, UnsupportedError
from ascendsim.frozen import cached_property
from ascendsim.instructions.winograd import PIXELS, POINTS, TAPS
from ascendsim.ops.plan import Tiling, require_whole_units
from ascendsim.ops.problems.orders import CLUSTER, Clusters, WinogradBlock
from ascendsim.ops.problems.products import WgradGemm
from ascendsim.ops.schedules.ranges import cut, runs_of
from ascendsim.profile import Profile
from ascendsim.program.places import GmTensor
from ascendsim.program.walk import alike

FLOAT32_BYTES: Final = 4
PLANE: Final = POINTS * POINTS
WHOLE: Final = -1
# A Mmad takes the tiles of a cluster; L1 holds one cluster a tile, and L0C one tile a point.
FIXED: Final = {"base_k": CLUSTER, "step_ka": 1, "step_kb": 1, "cl0_buffers": 1}


class WinogradTask(NamedTuple):
    """A block of the result, by the numbers of its groups of channels on both sides (`WinogradCut.cuts`).

    part   which part of the reduction; WHOLE: all of it
    """

    left: int
    right: int
    part: int = WHOLE


class ClusterWindow(NamedTuple):
    """The pixels of an image that a cluster reads, and where in the window of its tiles they begin."""

    rows: slice
    columns: slice
    begin: tuple[int, int]

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of pixels."""
        return self.rows.stop - self.rows.start, self.columns.stop - self.columns.start

    @property
    def pixels(self) -> int:
        """How many pixels; none where there is nothing but padding."""
        return self.size[0] * self.size[1]


@dataclass(frozen=True)
class WinogradSide:
    """One operand: its tensor (1, N, 1, C1, H, W, C0), and whether it is the small side."""

    tensor: GmTensor
    small: bool

    @property
    def groups(self) -> int:
        """Groups of C0 channels."""
        return self.tensor.shape[3]

    @property
    def c0(self) -> int:
        """Channels of a group."""
        return self.tensor.shape[6]


# The way of points into L1, and of sums out of L0C, goes through UB; only 910_95 has both paths.
PATHS: Final = (("UB", "L1"), ("L0C", "UB"))
# Rows or columns of pixels that a cluster reads, and where in the window of its tiles they begin.
Line = tuple[slice, int]


@dataclass(frozen=True)
class WinogradCut:
    """The blocks of a product, its clusters, and who makes what.

    The left side is the one with fewer channels (of equal ones the big side): its points are made once, in
    global memory. Those of the right side are made anew for each block, on their way into L1.

    Raises   ConfigError if the convolution or the tiling is none that Winograd takes; UnsupportedError if the
             product has no way from UB into L1 or from L0C into UB
    """

    gemm: WgradGemm
    tiling: Tiling
    profile: Profile

    def __post_init__(self) -> None:
        """Refuse what no program can follow."""
        s, t = self.gemm.sliding, self.tiling
        for path in PATHS:
            if self.profile.core_structure != "split" or not self.profile.has_path(*path):
                raise UnsupportedError(
                    f"schedule wgrad_winograd: {self.profile.variant} has no path from {path[0]} to "
                    f"{path[1]} beside a cube core; take another schedule of grad_weight"
                )
        plain = s.stride == s.dilation == s.insert == (1, 1) and s.kernel == (TAPS, TAPS)
        if not plain or self.gemm.depths != (((0, 0),),) or self.gemm.groups > 1:
            raise ConfigError(
                "schedule wgrad_winograd: it makes 3 x 3 taps with stride and dilation 1, one group and one "
                "depth, and this convolution is another; take another schedule of grad_weight"
            )
        if self.gemm.compute_dtype != "float32":
            raise ConfigError(
                f"schedule wgrad_winograd: it adds pixels in float32 before they are multiplied, and the "
                f"cube multiplies {self.gemm.compute_dtype}; take another schedule of grad_weight"
            )
        require_whole_units("grad_weight", t, {"base_m": 16, "base_n": 16}, self.profile)
        for name, value in FIXED.items():
            if getattr(t, name) != value:
                raise ConfigError(
                    f"tiling of grad_weight: {name} is {getattr(t, name)}; by Winograd it is {value}: a Mmad "
                    f"takes the {CLUSTER} tiles of a cluster at one point, and L0C has one tile a point"
                )
        if not self.clusters.part(self.parts - 1, self.parts):
            raise ConfigError(
                f"tiling of grad_weight: k_split is {self.parts}, but {len(self.clusters)} clusters of tiles "
                "in so many equal parts leave nothing for the last one; take fewer parts"
            )
        if self.tail * self.parts > self.profile.cores.cube:
            raise ConfigError(
                f"tiling of grad_weight: the last round has {self.tail} tasks in {self.parts} parts each, "
                f"but {self.profile.variant} has {self.profile.cores.cube} cores; take fewer parts (k_split)"
            )

    @cached_property
    def clusters(self) -> Clusters:
        """The clusters of all images."""
        height, width = self.gemm.sliding.out_size
        return Clusters.of(self.gemm.batch, (height, width))

    @cached_property
    def sides(self) -> tuple[WinogradSide, WinogradSide]:
        """The left and the right side."""
        height, width = self.gemm.sliding.out_size
        flat = self.gemm.small
        unfolded = replace(flat, shape=(*flat.shape[:4], height, width, flat.shape[5]))
        # Copies of its own, which another kernel of the call may have as well under the usual name.
        small, big = (
            WinogradSide(replace(tensor, name=f"{tensor.name} re-laid", role="workspace"), is_small)
            for tensor, is_small in ((unfolded, True), (self.gemm.big, False))
        )
        return (small, big) if small.groups < big.groups else (big, small)

    def points(self) -> GmTensor:
        """Return a tensor for the points of the left side: (N, clusters, C1, 16, 32 tiles, C0)."""
        left = self.sides[0]
        shape = self.gemm.batch, self.clusters.of_image, left.groups, PLANE, CLUSTER, left.c0
        return GmTensor.of(f"points of {left.tensor.name}", shape, "float32", "workspace")

    @property
    def parts(self) -> int:
        """Parts of the tasks of the last round."""
        return self.tiling.k_split

    @cached_property
    def cuts(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """The groups of channels of both sides, cut into blocks: (first, count) of each."""
        t, c0 = self.tiling, self.gemm.sliding.c0
        left, right = (cut(side.groups, (t.base_m if side.small else t.base_n) // c0) for side in self.sides)
        return left, right

    @cached_property
    def blocks(self) -> list[WinogradTask]:
        """The blocks of the result, row after row; a row has the channels of one group of the small side."""
        lefts, rights = (range(len(own)) for own in self.cuts)
        if self.sides[0].small:
            return [WinogradTask(left, right) for left in lefts for right in rights]
        return [WinogradTask(left, right) for right in rights for left in lefts]

    @property
    def tail(self) -> int:
        """Blocks of the last round, if these are cut into parts."""
        return len(self.blocks) % self.tiling.used_cores if self.parts > 1 else 0

    @property
    def streamed(self) -> list[WinogradTask]:
        """Those blocks."""
        return self.blocks[len(self.blocks) - self.tail :]

    def dealt(self) -> list[list[WinogradTask]]:
        """Return the tasks of each core: block i on core i modulo them; a part of the last round."""
        cores = self.tiling.used_cores
        whole = self.blocks[: len(self.blocks) - self.tail]
        own = [whole[core::cores] for core in range(cores)]
        places = [block._replace(part=part) for block in self.streamed for part in range(self.parts)]
        own += [[] for _ in range(len(places) - cores)]
        for core, task in enumerate(places):
            own[core] = [*own[core], task]
        return [tasks for tasks in own if tasks]

    def _taken(self, part: int) -> range:
        """Return the clusters of a part, by number."""
        return range(len(self.clusters)) if part == WHOLE else self.clusters.part(part, self.parts)

    def runs(self, part: int) -> list[tuple[int, int, int, int]]:
        """Return the clusters of a part, in order: some of an image, all of whole images, some of one.

        Of each run the first image, how many images, the first cluster of each image, how many clusters.
        """
        clusters = self.clusters
        runs = runs_of(self._taken(part), clusters.batch, clusters.of_image)
        return [(run.images.start, len(run.images), run.first, run.last - run.first) for run in runs]

    def window(self, place: int, side: WinogradSide) -> ClusterWindow:
        """Return the pixels of one side that a cluster reads, by its number in the image."""
        down, across = self._lines[side.small]
        row, column = divmod(place, self.clusters.across)
        return ClusterWindow(down[row][0], across[column][0], (down[row][1], across[column][1]))

    @cached_property
    def _lines(self) -> dict[bool, tuple[list[Line], list[Line]]]:
        """The rows and the columns of pixels that clusters of an image read, by whether of the small side."""
        return {side.small: (self._read(side, 0), self._read(side, 1)) for side in self.sides}

    def _read(self, side: WinogradSide, axis: int) -> list[Line]:
        clusters = self.clusters
        step = (clusters.rows, clusters.columns)[axis] * PIXELS
        size = (clusters.small_pixels if side.small else clusters.big_pixels)[axis]
        before, extent = 0 if side.small else self.gemm.sliding.pad[axis], side.tensor.shape[4 + axis]
        lines = []
        for at in range((clusters.down, clusters.across)[axis]):
            first = at * step - before
            start = min(max(first, 0), extent)
            lines.append((slice(start, max(start, min(first + size, extent))), start - first))
        return lines

    def shapes(self, side: WinogradSide) -> list[int]:
        """Return a number for each cluster of an image: by what its window costs, and where that begins."""
        return self._numbered(side, lambda read, begin: (read.stop - read.start, begin))

    def slices(self, side: WinogradSide) -> list[int]:
        """Return a number for each cluster of an image: by which pixels it reads of one side."""
        return self._numbered(side, lambda read, _: (read.start, read.stop))

    def _numbered(self, side: WinogradSide, told: Callable[[slice, int], Hashable]) -> list[int]:
        down, across = (alike([told(*line) for line in lines]) for lines in self._lines[side.small])
        return [row * len(across) + column for row in down for column in across]

    def block(self, task: WinogradTask) -> WinogradBlock:
        """Return the channels of a task on both sides; those that fill up the last group among them."""
        c0 = self.gemm.sliding.c0
        of = self.cuts[0][task.left], self.cuts[1][task.right]
        left, right = ((first * c0, groups * c0) for first, groups in of)
        return WinogradBlock(*left, *right) if self.sides[0].small else WinogradBlock(*right, *left)

    def signature(self, tasks: Sequence[WinogradTask]) -> Hashable:
        """Describe what decides the cost of a core's program: sizes, windows, and what is met again."""
        lefts, rights = self.cuts
        met_left = alike([(task.left, task.part) for task in tasks])
        met_right = alike([(task.right, task.part) for task in tasks])
        return tuple(
            (lefts[task.left][1], rights[task.right][1], task.part == WHOLE, self._windows[task.part], *met)
            for task, *met in zip(tasks, met_left, met_right, strict=True)
        )

    @cached_property
    def _windows(self) -> dict[int, int]:
        """Number the parts by the windows of their clusters."""
        shapes = np.array(self.shapes(self.sides[1]))
        parts = WHOLE, *range(self.parts)
        taken = [shapes[np.array(self._taken(part)) % len(shapes)].tobytes() for part in parts]
        return dict(zip(parts, alike(taken), strict=True))
