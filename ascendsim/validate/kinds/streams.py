"""Copies by one core or by many at once: measured times against those of the same copies in the simulator."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ascendsim.cube.movers import CopyGmToL1
from ascendsim.errors import DataError
from ascendsim.numerics.accumulation.models import AccumulationModel
from ascendsim.numerics.accumulation.settings import MathSettings
from ascendsim.program.kernel import Core, CoreWork, Kernel, Phase
from ascendsim.program.places import Gm, GmTensor
from ascendsim.program.program import Program, ProgramBuilder
from ascendsim.timing.kernel import time_kernel
from ascendsim.validate.compare import Estimate
from ascendsim.validate.kinds.tight_loop import PROBED, alone_cycles, slot
from ascendsim.validate.reading import refuse_beyond_memory
from ascendsim.validate.schema import Row
from ascendsim.vector.instructions import CopyGmToUb, CopyUbToGm, Fill

if TYPE_CHECKING:
    from ascendsim.profile import Profile

# A stream is timed on this much of its bytes, in as many passes as its source made over the working set.
MOST_BYTES = 512 << 20
LEAST_BYTES = 32  # what a copy moves at least
PATHS = ("GM_L1", "GM_UB", "UB_GM")


def copy_and_wait_us(row: Row, profile: Profile) -> Estimate:
    """Return the microseconds of one copy by one core, and of the flag that tells that it is over."""
    gm, ub = Gm(PROBED, (slice(0, row.bytes // 2),)), slot("UB")
    copy = CopyGmToUb(ub, gm, row.bytes, ()) if row.path == "GM_UB" else CopyUbToGm(gm, ub, row.bytes)
    cycles = alone_cycles(copy, profile, "vector") + profile.sync.flag_cycles
    return Estimate(cycles / profile.clock.cube_mhz)


def stream_us(row: Row, profile: Profile) -> Estimate:
    """Return the microseconds of a stream, launch included.

    Raises   DataError for copies that no core can run, CapacityError for tiles that the buffer cannot hold
    """
    _refuse_odd_amounts(row, profile)
    # Passes repeat each other once the working set has been walked: time a few, and scale.
    moved = min(row.moved_bytes, max(MOST_BYTES, row.bytes))
    cycles = time_kernel(_kernel(row, moved, profile), profile, l2_start=row.l2_start).cycles
    us = cycles / profile.clock.cube_mhz * row.moved_bytes / moved
    return Estimate(us + profile.launch_us(row.cores))


def _refuse_odd_amounts(row: Row, profile: Profile) -> None:
    """Check that every core has something to copy, out of what a chip's memory holds.

    Raises   DataError if not
    """
    if row.path not in PATHS:
        raise DataError(f"path is {row.path!r}; a stream takes one of {', '.join(PATHS)}")
    have = profile.cores.cube if row.path == "GM_L1" else profile.cores.vector
    if row.cores > have:
        raise DataError(f"cores is {row.cores}; {profile.variant} has {have} that copy on {row.path}")
    refuse_beyond_memory(row.bytes // 2)
    if min(row.bytes, row.moved_bytes) < row.cores * LEAST_BYTES:
        raise DataError(
            f"it copies {row.moved_bytes} bytes of a working set of {row.bytes}; {row.cores} cores copy "
            f"{LEAST_BYTES} bytes each at least"
        )


def _kernel(row: Row, moved: int, profile: Profile) -> Kernel:
    """Return the kernel: every core copies its part of the tensor, as often as it takes."""
    role = "output" if row.path == "UB_GM" else "input"
    tensor = GmTensor("x", (row.bytes // 2,), "float16", 2, role)
    kind = "cube" if row.path == "GM_L1" or profile.core_structure == "unified" else "vector"
    own = row.bytes if row.shared else row.bytes // row.cores
    # A core whose part is smaller than a tile copies all of it at a time.
    tiles = moved // row.cores // min(row.tile_bytes, own)

    def program(core: int) -> Program:
        first = 0 if row.shared else core * own
        return _program(row, tensor, first, own, tiles, profile)

    work = tuple(CoreWork(Core(kind, core), "stream", partial(program, core)) for core in range(row.cores))
    math = MathSettings(AccumulationModel.parse("seq:RNE"))
    return Kernel("stream", (Phase("stream", work),), {"x": tensor}, math)


def _program(row: Row, tensor: GmTensor, first: int, own: int, tiles: int, profile: Profile) -> Program:
    """Return the copies of one core, two in flight."""
    builder = ProgramBuilder(profile)
    size = min(row.tile_bytes, own)
    slots = builder.slots("L1" if row.path == "GM_L1" else "UB", size, "tile", 2)
    if row.path == "UB_GM":
        # Something has to be written before it can leave; each tile then leaves many times.
        for held in slots:
            builder.add(Fill(held, (16,), 32))
    for number in range(tiles):
        at = (first + number * size % own) // 2
        place = Gm(tensor, (slice(at, at + size // 2),))
        held = slots[number % 2]
        if row.path == "GM_L1":
            rows = row.tile_rows
            builder.add(CopyGmToL1(held, place, size, rows=rows, aligned=row.aligned, relays=rows > 1))
        elif row.path == "GM_UB":
            builder.add(CopyGmToUb(held, place, size, ()))
        else:
            builder.add(CopyUbToGm(place, held, size))
    return builder.build()
