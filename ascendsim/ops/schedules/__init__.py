"""Loop nests of products on the cube, and what one's own are written with (docs/schedules.md)."""

from ascendsim.ops.plan import shares
from ascendsim.ops.schedules.base import TILES, Schedule
from ascendsim.ops.schedules.dgrad.schedule import Dgrad
from ascendsim.ops.schedules.dgrad.tiles import DgradTiles
from ascendsim.ops.schedules.matmul import Matmul
from ascendsim.ops.schedules.tiles import held, tile_rings
from ascendsim.ops.schedules.wgrad.schedule import Wgrad
from ascendsim.ops.schedules.wgrad.slices import Load
from ascendsim.ops.schedules.wgrad.tiles import WgradTiles
from ascendsim.ops.schedules.writeback import Writeback
from ascendsim.program.builder import ProgramBuilder

__all__ = [
    "TILES",
    "Dgrad",
    "DgradTiles",
    "Load",
    "Matmul",
    "ProgramBuilder",
    "Schedule",
    "Wgrad",
    "WgradTiles",
    "Writeback",
    "held",
    "shares",
    "tile_rings",
]
