"""The cycles of a change of layout by itself, as a profiler lists it."""

from __future__ import annotations

from ascendsim.errors import ShapeError
from ascendsim.numerics.accumulation.models import AccumulationModel
from ascendsim.numerics.formats.dtypes import dtype as lookup_dtype
from ascendsim.ops.lowering.graph import GraphBuilder
from ascendsim.ops.lowering.vector import VectorKernels
from ascendsim.ops.problems.packed import C0_BYTES, groups_of
from ascendsim.ops.results import KernelResult
from ascendsim.ops.running import time_graph
from ascendsim.ops.schedules.vector.relayout import PixelRelayout, Relayout
from ascendsim.ops.schedules.vector.taps import GradientRelayout, WeightRelayout
from ascendsim.profile import Profile
from ascendsim.program.places import GmTensor

ROWS = 16  # of a fractal


def estimate_transdata(
    change: str, shape: tuple[int, ...], dtype: str, profile: Profile, *, c0: int = 0, l2_start: str = "warm"
) -> KernelResult:
    """Return the cycles of a TransData.

    change   "NCHW->NC1HWC0", "NCHW->FRACTAL_Z" or one of them the other way round
    shape    of the tensor row after row, four sizes
    c0       channels of a group; 0: those of 32 bytes
    Raises   ShapeError unless there are four sizes
    """
    graph = GraphBuilder({})
    made = change_of(change, shape, dtype, c0 or C0_BYTES // lookup_dtype(dtype).itemsize)
    VectorKernels(graph, profile, AccumulationModel("exact")).transdata("transdata", made)
    [result] = time_graph(graph.build(()), profile, l2_start, "compiled")
    return result


def change_of(change: str, shape: tuple[int, ...], dtype: str, c0: int) -> Relayout:
    """Return a change of layout by its words, as `estimate_transdata` takes them."""
    if len(shape) != 4:
        raise ShapeError(f"TransData {change}: the shape is {shape}; give four sizes, in the order NCHW")
    first, channels, height, width = shape
    c1, area, packs = groups_of(channels, c0), height * width, change.startswith("NCHW")
    pixels = "NC1HWC0" in change
    plain: tuple[int, ...] = (first, channels, 1, area) if pixels else (1, first, channels, 1, area)
    rows = groups_of(first, ROWS) * ROWS
    packed: tuple[int, ...] = (1, first, 1, c1, area, c0)
    if not pixels:
        packed = (1, 1, c1, area, c0, rows) if packs else (1, 1, rows, c1, area, c0)
    roles = ("input", "output") if packs else ("output", "input")
    tensors = GmTensor.of("plain", plain, dtype, roles[0]), GmTensor.of("packed", packed, dtype, roles[1])
    if pixels:
        return PixelRelayout(*tensors, channels, packs)
    if packs:
        return WeightRelayout(*tensors, channels, packs, reduces_small=False)
    return GradientRelayout(*tensors, channels, packs)
