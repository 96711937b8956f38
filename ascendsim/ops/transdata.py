"""The cycles of a change of layout by itself, as a profiler lists it."""

from __future__ import annotations

from math import prod

from ascendsim.errors import ShapeError
from ascendsim.numerics.accumulation.models import AccumulationModel
from ascendsim.numerics.formats.dtypes import dtype as lookup_dtype
from ascendsim.ops.lowering.graph import GraphBuilder
from ascendsim.ops.lowering.relayouts import one_group, split_groups
from ascendsim.ops.lowering.vector import VectorKernels
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.merged import FRACTAL, filling_groups, merged
from ascendsim.ops.problems.packed import C0_BYTES, REGROUPS, groups_of
from ascendsim.ops.results import KernelResult
from ascendsim.ops.running import time_graph
from ascendsim.ops.schedules.vector.regroup import Regroup
from ascendsim.ops.schedules.vector.relayout import PixelRelayout, Relayout
from ascendsim.ops.schedules.vector.taps import GradientRelayout, WeightRelayout
from ascendsim.profile import Profile
from ascendsim.program.places import GmTensor


def estimate_transdata(
    change: str,
    shape: tuple[int, ...],
    dtype: str,
    profile: Profile,
    *,
    c0: int = 0,
    groups: int = 1,
    l2_start: str = "warm",
) -> KernelResult:
    """Return the cycles of a TransData.

    change   one of `packed.CHANGES`; "FRACTAL_Z->FRACTAL_Z": from one group to `groups`, without its MemSet
    shape    of the tensor row after row: four sizes, with D five
    c0       channels of a group of C0; 0: those of 32 bytes
    Raises   ShapeError if there are more sizes or fewer, or channels do not divide into groups
    """
    graph = GraphBuilder({})
    c0 = c0 or C0_BYTES // lookup_dtype(dtype).itemsize
    kernels = VectorKernels(graph, profile, AccumulationModel("exact"))
    if change == REGROUPS:
        kernels.regroup("weight", regroup_of(shape, dtype, c0, groups))
    else:
        kernels.transdata("transdata", change_of(change, shape, dtype, c0))
    return time_graph(graph.build(()), profile, l2_start, "compiled")[-1]


def change_of(change: str, shape: tuple[int, ...], dtype: str, c0: int) -> Relayout:
    """Return a change of layout by its words, as `estimate_transdata` takes them."""
    plainly = "NCDHW" if "NCDHW" in change else "NCHW"
    if len(shape) != len(plainly):
        raise ShapeError(
            f"TransData {change}: the shape is {shape}; give {len(plainly)} sizes, in the order {plainly}"
        )
    first, channels, *window = shape
    depth, area = (window[0] if plainly == "NCDHW" else 1), prod(window[-2:])
    c1, packs = groups_of(channels, c0), change.startswith(plainly)
    pixels = "C1HWC0" in change
    plain: tuple[int, ...] = (first, channels, depth, area) if pixels else (1, first, channels, depth, area)
    rows = groups_of(first, FRACTAL) * FRACTAL
    packed: tuple[int, ...] = (1, first, depth, c1, area, c0)
    if not pixels:
        packed = (1, depth, c1, area, c0, rows) if packs else (1, depth, rows, c1, area, c0)
    roles = ("input", "output") if packs else ("output", "input")
    tensors = GmTensor.of("plain", plain, dtype, roles[0]), GmTensor.of("packed", packed, dtype, roles[1])
    if pixels:
        return PixelRelayout(*tensors, channels, packs)
    if packs:
        return WeightRelayout(*tensors, channels, packs, reduces_small=False)
    return GradientRelayout(*tensors, channels, packs)


def regroup_of(shape: tuple[int, ...], dtype: str, c0: int, groups: int) -> Regroup:
    """Return the change of a weight (N, C of a group, H, W) in fractals from one group to so many."""
    if len(shape) != 4 or shape[0] % groups:
        raise ShapeError(
            f"TransData {REGROUPS}: the shape is {shape}, with {groups} groups; give four sizes, the first "
            "one a multiple of the groups"
        )
    rows, channels, height, width = shape
    problem = ConvProblem((1, channels * groups, height, width), shape, groups=groups)
    merge = filling_groups(groups, channels, rows // groups, c0)
    whole = merged(problem, merge)
    columns = groups_of(whole.small_channels, FRACTAL) * FRACTAL
    many = (whole.groups, 1, groups_of(whole.big_channels, c0), height, width, c0, columns)
    one = GmTensor.of("one group", one_group(problem, c0, gradient=False), dtype)
    return split_groups(
        one, GmTensor.of("many groups", many, dtype, "output"), problem, reduce_small=False, merge=merge
    )
