"""Copies by many cores at once: measured bandwidth against that of the same copies in the simulator."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ascendsim.cube.movers import CopyGmToL1
from ascendsim.errors import DataError
from ascendsim.numerics.accumulation.models import AccumulationModel
from ascendsim.numerics.accumulation.settings import MathSettings
from ascendsim.program.builder import ProgramBuilder
from ascendsim.program.kernel import Core, CoreWork, Kernel, Phase
from ascendsim.program.places import Gm, GmTensor
from ascendsim.program.program import Program
from ascendsim.timing.kernel import time_kernel
from ascendsim.validate.cells import number_of, refuse_beyond_memory, whole_number, whole_of
from ascendsim.validate.compare import Case
from ascendsim.validate.probe import PROBED, alone_cycles, slot
from ascendsim.validate.products import Overrides, profile_of
from ascendsim.validate.rows import Row, Unusable
from ascendsim.vector.instructions import CopyGmToUb, CopyUbToGm, Fill

if TYPE_CHECKING:
    from ascendsim.profile import Profile

MIB = 1 << 20
SAMPLE_BYTES = 12288 * 12288 * 2  # what the copies of the vendor's sample move: its 301.99 MB
TILE_BYTES = 32 * 1024
# The tile of the sample's unaligned case is not told; it is the last of the aligned ones.
UNALIGNED_ROWS, UNALIGNED_COLUMNS = 64, 256
# A stream is timed on this much of its bytes, in as many passes as its source made over the working set.
MOST_BYTES = 512 * MIB
LEAST_BYTES = 32  # what a copy moves at least


@dataclass(frozen=True)
class Stream:
    """Copies that share a tensor among cores.

    path        "GM_L1", "GM_UB" or "UB_GM"
    working     bytes of the tensor; `moved` bytes are copied in all, pass after pass over it
    rows        runs of consecutive bytes in one tile, `aligned` to lines of L2 or not
    shared      all cores copy the same addresses
    """

    path: str
    cores: int
    working: int
    moved: int
    tile: int = TILE_BYTES
    rows: int = 1
    aligned: bool = True
    shared: bool = False


def is_stream(row: Row) -> bool:
    """Tell whether a row measured copies by many cores."""
    return row.id.startswith(("ad-dc", "ad-add", "kir-950dt", "kir-a3"))


def stream_case(row: Row, variant: str, overrides: Overrides = ()) -> Case | Unusable:
    """Run the copies of a row and compare the time they take.

    Raises   DataError if a number that it needs is none, CapacityError for tiles that the buffer cannot hold
    """
    profile = profile_of(variant, overrides)
    if row.us is not None and "bytes" in row.sizes:
        us = _one_copy_us(whole_of(row.sizes, "bytes"), "GM->UB" in row.op, profile)
        return Case(row.id, "primitives", "one copy and its wait", variant, "us", row.us, us, row.source)
    found = _stream(row, profile)
    if isinstance(found, str):
        return Unusable(row.id, found)
    if row.us is None:
        return Unusable(row.id, "gives no time")
    _refuse_odd_amounts(found)
    us = stream_us(found, profile)
    return Case(row.id, "primitives", "streams", variant, "us", row.us, us, row.source)


def _refuse_odd_amounts(stream: Stream) -> None:
    """Check that every core has something to copy, out of what a chip's memory holds.

    Raises   DataError if not
    """
    refuse_beyond_memory(stream.working // 2)
    least = stream.cores * LEAST_BYTES
    if min(stream.working, stream.moved) < least:
        raise DataError(
            f"it copies {stream.moved} bytes of a working set of {stream.working}; {stream.cores} cores copy "
            f"{LEAST_BYTES} bytes each at least"
        )


def _one_copy_us(size: int, inward: bool, profile: Profile) -> float:
    """Return the microseconds of one copy by one core, and of the flag that tells that it is over."""
    gm, ub = Gm(PROBED, (slice(0, size // 2),)), slot("UB")
    copy = CopyGmToUb(ub, gm, size, ()) if inward else CopyUbToGm(gm, ub, size)
    cycles = alone_cycles(copy, profile, "vector") + profile.sync.flag_cycles
    return cycles / profile.clock.cube_mhz


def _stream(row: Row, profile: Profile) -> Stream | str:
    """Return the copies that a row measured, or why they cannot be run."""
    if row.id.startswith("kir-950dt-ws"):
        return _working_set(row, profile)
    if row.id.startswith(("kir-950dt-GM_UB", "kir-950dt-UB_GM")):
        path = "GM_UB" if "GM_UB" in row.op else "UB_GM"
        working = whole_of(row.sizes, "working_set_MiB") * MIB
        moved = max(working, 2048 * MIB) * (2 if working >= 2048 * MIB else 1)
        cores = whole_of(row.sizes, "cores")
        if cores > profile.cores.vector:
            return f"its cores are {cores}; {profile.variant} has {profile.cores.vector} that copy through UB"
        return Stream(path, cores, working, moved)
    if row.id.startswith("ad-dc"):
        return _sample(row, profile)
    return "what its copies move is not told"


def _working_set(row: Row, profile: Profile) -> Stream | str:
    size = number_of(row.sizes, "working_set_MiB")
    path = "UB_GM" if "write" in row.op else "GM_UB"
    moved = int(number_of(row.counters, "TB_per_s") * 1e6 * (row.us or 0))
    return Stream(path, profile.cores.vector, int(size * MIB), moved, shared="shared" in row.id)


def _sample(row: Row, profile: Profile) -> Stream | str:
    """Return the copies of the vendor's sample; half precision, tiles of 64 rows."""
    text = str(row.sizes.get("desc", ""))
    tile = re.search(r"tile ([0-9]{1,9})x([0-9]{1,9})", text)
    if tile:
        rows, columns = (whole_number(int(side), "tile's side") for side in tile.groups())
        return Stream("GM_L1", profile.cores.cube, SAMPLE_BYTES, SAMPLE_BYTES, 2 * rows * columns, rows)
    if "unaligned" in text and "L1" in row.op:
        size = 2 * UNALIGNED_ROWS * UNALIGNED_COLUMNS
        cores = profile.cores.cube
        return Stream("GM_L1", cores, SAMPLE_BYTES, SAMPLE_BYTES, size, UNALIGNED_ROWS, aligned=False)
    if text == "small tile":
        return Stream("GM_UB", profile.cores.vector, SAMPLE_BYTES, SAMPLE_BYTES, 128)
    if text == "best tile":
        return Stream("GM_UB", profile.cores.vector, SAMPLE_BYTES, SAMPLE_BYTES)
    if "4x re-read" in row.op:
        path = "GM_L1" if "L1" in row.op else "GM_UB"
        cores = profile.cores.cube if path == "GM_L1" else profile.cores.vector
        return Stream(path, cores, SAMPLE_BYTES, 4 * SAMPLE_BYTES)
    return "what its copies move is not told"


def stream_us(stream: Stream, profile: Profile) -> float:
    """Return the microseconds of a stream, launch included."""
    moved = min(stream.moved, max(MOST_BYTES, stream.working))
    kernel = _kernel(stream, moved, profile)
    cycles = time_kernel(kernel, profile, l2_start="warm").cycles
    return cycles / profile.clock.cube_mhz * stream.moved / moved + profile.launch_us(stream.cores)


def _kernel(stream: Stream, moved: int, profile: Profile) -> Kernel:
    """Return the kernel: every core copies its part of the tensor, as often as it takes."""
    role = "output" if stream.path == "UB_GM" else "input"
    tensor = GmTensor("x", (stream.working // 2,), "float16", 2, role)
    kind = "cube" if stream.path == "GM_L1" or profile.core_structure == "unified" else "vector"
    own = stream.working if stream.shared else stream.working // stream.cores
    tiles = moved // stream.cores // min(stream.tile, own)

    def program(core: int) -> Program:
        first = 0 if stream.shared else core * own
        return _program(stream, tensor, first, own, tiles, profile)

    work = tuple(CoreWork(Core(kind, core), "stream", partial(program, core)) for core in range(stream.cores))
    math = MathSettings(AccumulationModel.parse("seq:RNE"))
    return Kernel("stream", (Phase("stream", work),), {"x": tensor}, math)


def _program(stream: Stream, tensor: GmTensor, first: int, own: int, tiles: int, profile: Profile) -> Program:
    """Return the copies of one core, two in flight."""
    builder = ProgramBuilder(profile)
    size = min(stream.tile, own)
    buffer = "L1" if stream.path == "GM_L1" else "UB"
    slots = builder.slots(buffer, size, "tile", 2)
    if stream.path == "UB_GM":
        for held in slots:
            builder.add(Fill(held, (16,), 32))
    for number in range(tiles):
        at = (first + number * size % own) // 2
        place = Gm(tensor, (slice(at, at + size // 2),))
        held = slots[number % 2]
        if stream.path == "GM_L1":
            rows = stream.rows
            builder.add(CopyGmToL1(held, place, size, rows=rows, aligned=stream.aligned, relays=rows > 1))
        elif stream.path == "GM_UB":
            builder.add(CopyGmToUb(held, place, size, ()))
        else:
            builder.add(CopyUbToGm(place, held, size))
    return builder.build()
