"""Loop nests of products on the cube, and what one's own are written with (docs/schedules.md)."""

from typing import TYPE_CHECKING, Any

from ascendsim.ops.plan import shares
from ascendsim.ops.schedules.base import TILES, Schedule
from ascendsim.ops.schedules.blocks import Writeback, tile_rings
from ascendsim.ops.schedules.dgrad.nest import Dgrad, DgradTiles
from ascendsim.ops.schedules.wgrad.nest import Wgrad
from ascendsim.ops.schedules.wgrad.tasks import WgradTiles
from ascendsim.program.nest import Nest
from ascendsim.program.program import NestProgram, ProgramBuilder
from ascendsim.program.walk import Axis, alike

if TYPE_CHECKING:
    from ascendsim.ops.schedules.matmul import Matmul

__all__ = [
    "TILES",
    "Axis",
    "Dgrad",
    "DgradTiles",
    "Matmul",
    "Nest",
    "NestProgram",
    "ProgramBuilder",
    "Schedule",
    "Wgrad",
    "WgradTiles",
    "Writeback",
    "alike",
    "shares",
    "tile_rings",
]


def __getattr__(name: str) -> Any:
    """Import the nest of matrix products when it is asked for: every call comes by here, and few have one."""
    if name != "Matmul":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ascendsim.ops.schedules.matmul import Matmul

    return Matmul
