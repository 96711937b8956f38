"""How grad_weight by Winograd is cut: blocks of channels, and clusters of tiles that they reduce."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final

from ascendsim.errors import ConfigError, UnsupportedError
from ascendsim.frozen import cached_property
from ascendsim.numerics.winograd import PIXELS, TAPS
from ascendsim.ops.plan import Tiling
from ascendsim.ops.plan_checks import require_whole_units
from ascendsim.ops.problems.wgrad import WgradGemm
from ascendsim.ops.problems.winograd import CLUSTER, Cluster, Clusters
from ascendsim.ops.schedules.order import WinogradBlock
from ascendsim.ops.schedules.winograd.units import FIXED, PLANE, WHOLE, Load, Side, Task, Window
from ascendsim.profile import Profile
from ascendsim.program.places import GmTensor

# The way of points into L1, and of sums out of L0C, goes through UB; only 910_95 has both paths.
PATHS: Final = (("UB", "L1"), ("L0C", "UB"))


@dataclass(frozen=True)
class WinogradCut:
    """The blocks of a product, its clusters, and who makes what.

    The left side is the one with fewer channels (of equal ones the small side): its points are made once, in
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
    def sides(self) -> tuple[Side, Side]:
        """The left and the right side."""
        height, width = self.gemm.sliding.out_size
        flat = self.gemm.small
        unfolded = replace(flat, shape=(*flat.shape[:4], height, width, flat.shape[5]))
        # Copies of its own, which another kernel of the call may have as well under the usual name.
        small, big = (
            Side(replace(tensor, name=f"{tensor.name} re-laid", role="workspace"), is_small)
            for tensor, is_small in ((unfolded, True), (self.gemm.big, False))
        )
        return (small, big) if small.groups <= big.groups else (big, small)

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
    def blocks(self) -> list[Task]:
        """The blocks of the result: rows (the small side) slowest, whichever is the left side."""
        c0 = self.gemm.sliding.c0
        sizes = {True: self.tiling.base_m // c0, False: self.tiling.base_n // c0}
        cuts = {
            side.small: [
                (first, min(sizes[side.small], side.groups - first))
                for first in range(0, side.groups, sizes[side.small])
            ]
            for side in self.sides
        }
        pairs = ((small, big) for small in cuts[True] for big in cuts[False])
        left_small = self.sides[0].small
        return [Task(*small, *big) if left_small else Task(*big, *small) for small, big in pairs]

    @property
    def tail(self) -> int:
        """Blocks of the last round, if these are cut into parts."""
        return len(self.blocks) % self.tiling.used_cores if self.parts > 1 else 0

    @property
    def streamed(self) -> list[Task]:
        """Those blocks."""
        return self.blocks[len(self.blocks) - self.tail :]

    def dealt(self) -> list[list[Task]]:
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

    def loads(self, task: Task) -> list[Load]:
        """Return the clusters that a task reduces, in order."""
        return [Load(task, self.clusters.at(number)) for number in self._taken(task.part)]

    def window(self, cluster: Cluster, side: Side) -> Window:
        """Return the pixels of one side that a cluster reads."""
        clusters, pads = self.clusters, self.gemm.sliding.pad
        size = clusters.small_pixels if side.small else clusters.big_pixels
        tiles, extents = (clusters.rows, clusters.columns), side.tensor.shape[4:6]
        found, begins = [], []
        for axis, at in enumerate((cluster.row, cluster.column)):
            first = at * tiles[axis] * PIXELS - (0 if side.small else pads[axis])
            start = min(max(first, 0), extents[axis])
            found.append(slice(start, max(start, min(first + size[axis], extents[axis]))))
            begins.append(start - first)
        return Window(found[0], found[1], (begins[0], begins[1]))

    def block(self, task: Task) -> WinogradBlock:
        """Return the channels of a task on both sides; those that fill up the last group among them."""
        c0 = self.gemm.sliding.c0
        left = task.left * c0, task.left_groups * c0
        right = task.right * c0, task.right_groups * c0
        return WinogradBlock(*left, *right) if self.sides[0].small else WinogradBlock(*right, *left)

    def signature(self, tasks: Sequence[Task]) -> Hashable:
        """Describe what decides the cost of a core's program: sizes, windows, and what is met again."""
        numbers: dict[Hashable, int] = defaultdict(count().__next__)
        return tuple(
            (
                (task.left_groups, task.right_groups, task.part == WHOLE, self._windows[task.part]),
                *(numbers["left", task.left, task.part], numbers["right", task.right, task.part]),
            )
            for task in tasks
        )

    @cached_property
    def _windows(self) -> dict[int, Any]:
        """Number the parts by the windows of their clusters."""
        right = self.sides[1]
        numbers: dict[Hashable, int] = defaultdict(count().__next__)
        return {
            part: numbers[tuple(self.shape_of(self.clusters.at(at), right) for at in self._taken(part))]
            for part in (WHOLE, *range(self.parts))
        }

    def shape_of(self, cluster: Cluster, side: Side) -> Hashable:
        """Return what tells the cost of a cluster's window from that of another."""
        window = self.window(cluster, side)
        return window.size, window.begin
