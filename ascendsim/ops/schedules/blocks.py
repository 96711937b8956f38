"""Schedules of base blocks: tasks dealt to the cores in contiguous ranges, and the program of each core."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from copy import copy
from typing import Any, Self

from ascendsim.cube.fixpipe import FRACTAL_COLUMNS
from ascendsim.errors import ConfigError
from ascendsim.frozen import cached_property
from ascendsim.ops.plan import GRID, shares
from ascendsim.ops.schedules.base import Schedule
from ascendsim.ops.schedules.tiles import Sizes, tile_rings
from ascendsim.ops.schedules.writeback import Writeback
from ascendsim.ops.schedules.zero_insertion import ZeroInsertion
from ascendsim.program.nest import Nest
from ascendsim.program.places import GmTensor
from ascendsim.program.program import NestProgram, Program
from ascendsim.program.reserved import Reserved


class BlockNest(Nest):
    """What the loop nests over base blocks reserve alike: rings of tiles, and the ways in and out through UB.

    cut      how the product is cut (`DgradTasks`, `WgradTasks`)
    target   the tensor that receives the tiles; `c0` > 0: in groups of so many channels; `weights_of` > 0:
             weights, here as a plain matrix, that the device lays out in such groups
    spread   whether image tiles go through UB on their way to L1, to get zeros between their pixels
    """

    def __init__(
        self,
        name: str,
        cut: Any,
        sizes: Sizes,
        target: GmTensor,
        c0: int = 0,
        *,
        weights_of: int = 0,
        spread: bool = False,
    ) -> None:
        super().__init__(cut.profile, name)
        self._cut = cut
        rings = tile_rings(self, cut.tiling, sizes, cut.gemm.sliding.itemsize)
        self.left, self.right, self.l0a, self.l0b, self.l0c = rings
        # Weights lie in groups of so many channels on the device.
        small_groups = 0 < weights_of < FRACTAL_COLUMNS
        # Results, and pixels that get zeros between them, share UB.
        size, tiles = (sizes.m, sizes.n, c0), cut.tiling.cl0_buffers
        self.out = Writeback(self, target, *size, cut=small_groups, ub_share=1 + spread, l0c_tiles=tiles)
        self.insertion = ZeroInsertion(self) if spread else None

    @property
    def is_for_any_size(self) -> bool:
        """Whether its steps are the same whatever tiles reserve; of what goes through UB pieces are not."""
        ours = type(self).__module__.startswith(__package__)
        return ours and {slot.buffer for slot in self.slots_reserved} <= {"L1", "L0A", "L0B", "L0C"}

    def resized(self, sizes: Sizes) -> Self:
        """Return it for cores that reserve other tiles: the same steps, on slots of these sizes.

        Raises   CapacityError as `tile_rings`
        """
        _ = self.code  # worked out once for both
        other = copy(self)
        Reserved.__init__(other, self.profile)
        tile_rings(other, self._cut.tiling, sizes, self._cut.gemm.sliding.itemsize)
        # What was made names the slots of its own nest.
        other.remembered = {}
        return other


class BlockSchedule(Schedule):
    """A schedule whose tasks are base blocks, dealt to the cores in contiguous ranges."""

    def __init_subclass__(cls) -> None:
        """Let a nest with a `sequence` of its own obey no grid, unless it says so: cells have their order.

        And let one under an inherited cut be read for its signature: the cut tells what another one costs.
        """
        super().__init_subclass__()
        own = vars(cls).keys()
        if "sequence" in own and not {"reads", "dealt"} & own:
            cls.reads = cls.reads - {*GRID, "pixel_dim"}
        if "nest" in own and not {"tasks", "signature"} & own:
            cls.signature = Schedule.signature  # type: ignore[method-assign]

    def __post_init__(self) -> None:
        """Refuse a tiling that would be obeyed in part, or that no program can follow."""
        super().__post_init__()
        # Cutting it refuses what cannot be cut, here and not when an executor asks for the programs.
        _ = self.tasks

    @property
    @abstractmethod
    def tasks(self) -> Any:
        """The cut of the product: its base blocks in order, their sizes, and what decides their cost."""

    @abstractmethod
    def nest(self, sizes: Sizes) -> Nest:
        """Return the loop nest of all cores that reserve so much."""

    def sequence(self) -> Sequence[Any]:
        """Return all tasks in the order in which they are dealt; neighbours share tiles in L1.

        A nest that overrides it is given no grid, whose cells would be dealt in an order of their own.
        """
        tasks: Sequence[Any] = self.tasks.tasks
        return tasks

    def dealt(self) -> list[Any]:
        """Return the tasks of each core: its cells of the grid, else a contiguous range.

        Of contiguous ones a core finds its last tiles again.
        """
        if self.tiling.has_grid:
            cells, cores = self.tasks.cells, self.tiling.used_cores
            return [self.tasks.together(cells[core::cores]) for core in range(min(cores, len(cells)))]
        tasks = self.sequence()
        return [tasks[share.start : share.stop] for share in shares(len(tasks), self.tiling.used_cores)]

    @property
    def launched(self) -> int:
        """Blocks of the launch: the cells of a grid that is larger than the chip take turns on all cores."""
        own, cells = type(self).dealt is BlockSchedule.dealt, self.tiling.cells
        # On fewer cores than the chip has, a kernel must go over the cells that are left by itself.
        whole = self.tiling.used_cores == self.profile.cores.cube
        return max(cells, self.tiling.used_cores) if own and whole else self.tiling.used_cores

    def _checked(self) -> Sequence[Sequence[Any]]:
        """Return the tasks of each core, which must be all base blocks, each once."""
        dealt, own = super()._checked(), type(self)
        if own.dealt is BlockSchedule.dealt and own.sequence is BlockSchedule.sequence:
            return dealt
        blocks, made = self.tasks.tasks, [task for tasks in dealt for task in tasks]
        # A schedule may deal units of its own, of which only it knows what they cover.
        if {type(task) for task in made} <= {type(block) for block in blocks}:
            different = set(made)
            lost, again = len(set(blocks) - different), len(made) - len(different)
            if lost or again:
                raise ConfigError(
                    f"schedule {self.name} must deal each of its {len(blocks)} tasks once; it leaves out "
                    f"{lost} and repeats {again}"
                )
        return dealt

    def signature(self, tasks: Sequence[Any]) -> Hashable:
        """Return the shapes of the tiles, and which of them are met again."""
        signature: Hashable = self.tasks.signature(tasks)
        return signature

    def program(self, tasks: Sequence[Any]) -> Program:
        """Return the program of a core with these tasks."""
        sizes = self.tasks.sizes(tasks)
        nest = self._nests.get(sizes)
        if nest is None:
            one = next(iter(self._nests.values()), None)
            if isinstance(one, BlockNest) and one.is_for_any_size:
                nest = one.resized(sizes)
            else:
                nest = self.nest(sizes)
            self._nests[sizes] = nest
        return NestProgram(nest, self.tasks.rows(tasks), self.hazards)

    @cached_property
    def _nests(self) -> dict[Sizes, Nest]:
        # By what a core reserves: cores that reserve the same walk one nest.
        return {}
