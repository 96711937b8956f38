"""Single instructions: what a micro-benchmark measured against the same instruction in the simulator."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from ascendsim.errors import DataError, ShapeError, UnsupportedError
from ascendsim.instructions.cube import Mmad, Submatrix, TapRows
from ascendsim.instructions.fixpipe import Fixpipe
from ascendsim.instructions.movers import CopyGmToL1, LoadL0A, LoadL0B
from ascendsim.instructions.vector import CopyGmToUb, CopyUbToGm, Fill, vector_cost
from ascendsim.numerics.accumulation import AccumulationModel, MathSettings
from ascendsim.program.instruction import Command, Cost, Instruction, Traffic
from ascendsim.program.kernel import Core, CoreWork, Kernel, Phase
from ascendsim.program.places import Gm, GmTensor, Slot
from ascendsim.program.program import Program, ProgramBuilder
from ascendsim.timing.kernel import time_kernel
from ascendsim.validate.compare import CaseEstimate
from ascendsim.validate.schema import MeasuredRow, refuse_beyond_memory

if TYPE_CHECKING:
    from ascendsim.profile import Profile
    from ascendsim.program.places import CoreMemory
    from ascendsim.timing.timeline import CoreTimeline


# Equal instructions in a row when throughput is measured; the first half fills the pipe.
STREAM = 12
PROBED = GmTensor("x", (1 << 20,), "float16", 2)


class _PathMove(NamedTuple):
    path: str
    pipe: str
    bytes: int


class PathMove(_PathMove, Command):
    """A command that moves bytes on a path of the profile, inside the core or from L2.

    Cost     the path's head, bytes / rate and latency
    """

    __slots__ = ()

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return self.path, self.bytes

    def execute(self, memory: CoreMemory) -> None:
        """Do nothing to the data."""

    def cost(self, profile: Profile) -> Cost:
        """Return the cost of the bytes on the path."""
        path = profile.paths[self.path]
        head, latency = path.times()
        # Bytes out of L2 share its link with other cores; inside a core nobody takes part.
        if self.path.startswith("GM"):
            traffic = Traffic(PROBED, "read", self.bytes, path.bytes_per_cycle)
            return Cost(head, latency, traffic, path.least_cycles)
        data = ceil(self.bytes / path.bytes_per_cycle)
        return Cost(head + data, latency, least_cycles=path.least_cycles)


class _VectorRepeats(NamedTuple):
    kind: str
    repeats: int


class VectorRepeats(_VectorRepeats, Command):
    """A vector instruction of some kind, with repeats of 256 bytes.

    Cost     what the profile says of the kind
    """

    __slots__ = ()
    pipe = "V"

    @property
    def shape(self) -> Hashable:
        """A key of all values that the cost depends on."""
        return self.kind, self.repeats

    def execute(self, memory: CoreMemory) -> None:
        """Do nothing to the data."""

    def cost(self, profile: Profile) -> Cost:
        """Return the cost of the repeats."""
        return vector_cost(profile, self.kind, self.repeats)


def slot(buffer: str) -> Slot:
    """Return a slot for an instruction under test; it has no size that matters."""
    return Slot(buffer, 0, "loop", 0)


def alone_cycles(instruction: Instruction, profile: Profile, core: str) -> int:
    """Return the cycles from the start of one instruction until its result is visible."""
    spans = _run([instruction], profile, core)
    return spans.done[0] - spans.start[0]


def stream_cycles(instruction: Instruction, profile: Profile, core: str) -> float:
    """Return the cycles from one instruction to the next in a row of equal ones."""
    # The head of the first ones and the pipe's latency are in the first half only.
    ends = _run([instruction] * STREAM, profile, core).end
    half = STREAM // 2
    return (ends[-1] - ends[half - 1]) / (STREAM - half)


def _run(instructions: Sequence[Instruction], profile: Profile, core: str) -> CoreTimeline:
    # No instruction waits for another: what is measured is the pipe, not a dependency.
    program = Program(instructions, (slot("any"),), {}, frozenset())
    work = CoreWork(Core(core, 0), "loop", lambda: program)
    math = MathSettings(AccumulationModel.parse("seq:RNE"))
    kernel = Kernel("loop", (Phase("loop", (work,)),), {"x": PROBED}, math)
    return time_kernel(kernel, profile).phases[0].cores[0]


FRACTAL_BYTES = 512
VECTOR_BYTES = 256  # that one repeat takes
# Rows of the copies that turn rows into fractals: known by their steps, which repeat every 128 x 32 bytes.
RELAYOUT_ROWS = 128
# A micro-benchmark's operands are constants: its scalar unit has nothing to reckon.
ISSUE = ("scalar.issue_cycles", 1)


def instruction_cycles(row: MeasuredRow, profile: Profile) -> CaseEstimate:
    """Return the cycles of the instruction of a row: in a row of equal ones, or alone until it is over.

    Raises   UnsupportedError for an instruction that the product has not
    """
    instruction, core = _instruction(row, profile)
    run = stream_cycles if row.in_a_row else alone_cycles
    return CaseEstimate(float(run(instruction, profile, core)))


def _instruction(row: MeasuredRow, profile: Profile) -> tuple[Instruction, str]:
    """Return the instruction that a row measured, and the kind of core that runs it."""
    if row.kernel == "mmad":
        if row.compute_dtype not in profile.cube.rates:
            raise UnsupportedError(f"operands of {row.compute_dtype} are not multiplied on {profile.variant}")
        slots = slot("L0C"), slot("L0A"), slot("L0B")
        return Mmad(*slots, row.m, row.k, row.n, row.compute_dtype, True), "cube"
    if row.kernel == "vector":
        if row.vector_kind not in profile.vector.repeat_cycles:
            raise UnsupportedError(
                f"no figure for vector instructions of the kind {row.vector_kind} on {profile.variant}"
            )
        return VectorRepeats(row.vector_kind, row.repeats), "vector"
    if row.path not in (*profile.paths, "UB_UB"):
        raise UnsupportedError(f"{profile.variant} has no path {row.path.replace('_', '->')} here")
    if row.kernel == "load":
        rows = TapRows(1, False, 0, 1, 16, 16 * row.repeats, 2)
        loads = {
            "L1_L0A": LoadL0A(slot("L0A"), slot("L1"), rows),
            "L1_L0B": LoadL0B(slot("L0B"), slot("L1"), rows),
        }
        return loads.get(row.path) or _path_move(row.path, row.repeats * FRACTAL_BYTES, profile), "cube"
    split = profile.core_structure == "split"
    own = row.path in ("GM_UB", "UB_GM", "UB_UB") or (row.path.startswith("UB") and split)
    return _copies(row).get(row.path) or _path_move(row.path, row.bytes, profile), "vector" if own else "cube"


def _copies(row: MeasuredRow) -> dict[str, Instruction]:
    """Return the copies of `size` bytes that schedules issue, by path."""
    gm, size, relays = Gm(PROBED, ()), row.bytes, row.relayout
    l1, ub = slot("L1"), slot("UB")
    square = Submatrix(0, size // 32, 0, 16, False, 2)
    turned = Submatrix(0, 16, 0, size // 32, True, 2)
    rows = RELAYOUT_ROWS if relays else 1
    return {
        "GM_L1": CopyGmToL1(l1, gm, size, rows=rows, relays=relays),
        "GM_UB": CopyGmToUb(ub, gm, size, ()),
        "UB_GM": CopyUbToGm(gm, ub, size),
        # Half the bytes leave as 16-bit results; the table counts what is read of L0C. Without a relayout
        # they leave as fractals of 16 columns.
        "L0C_GM": Fixpipe(gm, slot("L0C"), size // 2, 0 if relays else 16),
        "L1_L0A": LoadL0A(slot("L0A"), l1, square),
        "L1_L0B": LoadL0B(slot("L0B"), l1, turned),
        "UB_UB": VectorRepeats("unary", -(-size // VECTOR_BYTES)),
    }


def _path_move(path: str, size: int, profile: Profile) -> PathMove:
    return PathMove(path, profile.paths[path].pipe, size)


# A stream is timed on this much of its bytes, in as many passes as its source made over the working set.
MOST_BYTES = 512 << 20
LEAST_BYTES = 32  # what a copy moves at least
PATHS = ("GM_L1", "GM_UB", "UB_GM")


def copy_and_wait_us(row: MeasuredRow, profile: Profile) -> CaseEstimate:
    """Return the microseconds of one copy by one core, and of the flag that marks its end."""
    gm, ub = Gm(PROBED, (slice(0, row.bytes // 2),)), slot("UB")
    copy = CopyGmToUb(ub, gm, row.bytes, ()) if row.path == "GM_UB" else CopyUbToGm(gm, ub, row.bytes)
    cycles = alone_cycles(copy, profile, "vector") + profile.sync.flag_cycles
    return CaseEstimate(cycles / profile.clock.cube_mhz)


def stream_us(row: MeasuredRow, profile: Profile) -> CaseEstimate:
    """Return the microseconds of a stream, launch included.

    Raises   DataError for copies that no core can run, CapacityError for tiles that the buffer cannot hold
    """
    _refuse_odd_amounts(row, profile)
    # Passes repeat each other once the working set has been walked: time a few, and scale.
    moved = min(row.moved_bytes, max(MOST_BYTES, row.bytes))
    cycles = time_kernel(_kernel(row, moved, profile), profile, l2_start=row.l2_start).cycles
    us = cycles / profile.clock.cube_mhz * row.moved_bytes / moved
    return CaseEstimate(us + profile.launch_us(row.cores))


def _refuse_odd_amounts(row: MeasuredRow, profile: Profile) -> None:
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


def _kernel(row: MeasuredRow, moved: int, profile: Profile) -> Kernel:
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


def _program(
    row: MeasuredRow, tensor: GmTensor, first: int, own: int, tiles: int, profile: Profile
) -> Program:
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


# What the instruction that gathers the taps of a kernel can step.
MOST_STRIDE = 63


class Fit(NamedTuple):
    """A stride and the padding of both sides together that lead from one size to the other."""

    stride: int
    padding: int

    @property
    def pads(self) -> tuple[int, int]:
        """Padding in front and behind, the smaller half in front."""
        return self.padding // 2, self.padding - self.padding // 2


def infer_window(big: int, small: int, kernel: int) -> Fit:
    """Return the stride and padding of one axis; dilation is 1.

    The output is small = floor((big + padding - kernel) / stride) + 1, with less than the kernel of padding a
    side. Where several strides do that, patches side by side are taken (the stride is the kernel and divides
    the sizes), else that of a usual layer: no padding, or half the kernel on both sides. Of usual ones with
    the same padding the stride that divides the sizes is taken; which one does not matter where there is one
    output.

    Raises   ShapeError if no stride leads from one size to the other, or usual layers of several do
    """
    fits = [fit for fit in (_fit(big, small, kernel, s) for s in range(1, MOST_STRIDE + 1)) if fit]
    if not fits:
        raise ShapeError(f"no stride and padding lead from {big} to {small} with a kernel of {kernel}")
    # Networks pad by nothing or to keep the size; whatever else fits is most likely a coincidence.
    usual = [fit for fit in fits if fit.padding in (0, _half(kernel))]
    if small == 1 or len(fits) == 1:
        return (usual or fits)[0]
    dividing = [fit for fit in usual if fit.stride * small == big]
    same_padding = len({fit.padding for fit in usual}) == 1
    patches = [fit for fit in dividing if fit.stride == kernel]
    chosen = patches or (dividing if same_padding and dividing else usual)
    if len(chosen) == 1:
        return chosen[0]
    told = ", ".join(f"stride {fit.stride} with padding {fit.padding}" for fit in (chosen or fits)[:4])
    raise ShapeError(
        f"from {big} to {small} with a kernel of {kernel} lead {told}: the profile does not say which"
    )


def _fit(big: int, small: int, kernel: int, stride: int) -> Fit | None:
    """Return the padding under which a stride fits: none, half the kernel, or the least that fits.

    It is equal on both sides if it can be.
    """
    least = (small - 1) * stride + kernel - big
    # The last step of the stride may leave up to stride - 1 pixels over, and a side that is all padding would
    # add nothing.
    low, high = max(0, least), min(least + stride - 1, 2 * (kernel - 1))
    if low > high:
        return None
    if low and low <= _half(kernel) <= high:
        return Fit(stride, _half(kernel))
    return Fit(stride, low + 1 if low % 2 and low < high else low)


def _half(kernel: int) -> int:
    """Return the padding that is half the kernel on both sides."""
    return (kernel - 1) // 2 * 2
