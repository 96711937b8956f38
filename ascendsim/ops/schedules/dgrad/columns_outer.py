"""The loop nest of grad_input with column blocks outermost: what stays in L1 is weights, not images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ascendsim.ops.plan import shares
from ascendsim.ops.schedules.dgrad.schedule import Dgrad
from ascendsim.ops.schedules.dgrad.tasks import Task


@dataclass(frozen=True)
class DgradColumnsOuter(Dgrad):
    """As `Dgrad`, but a core walks the pixel tiles of one column block before it goes on to the next block.

    It pays where weights are larger than images: late layers, small batches. The order of the additions in a
    base block is the same, so are the bits.
    """

    name: ClassVar[str] = "dgrad_columns_outer"

    def dealt(self) -> list[list[Task]]:
        """Return the tasks of each core, pixels fastest."""
        walk = sorted(self.tasks.tasks, key=lambda task: (task.group, task.first_column, task.depth))
        return [walk[share.start : share.stop] for share in shares(len(walk), self.tiling.used_cores)]
