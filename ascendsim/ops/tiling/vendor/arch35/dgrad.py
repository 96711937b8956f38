"""The grad_input of 910_95: which of its plans a layer gets.

In order: the kernel split by the stride (`dgrad_split.py`), few tasks cut to fit the cores ("small_shape"),
weights that stay in L1 ("full_load"), and blocks that fill L0C ("inner_product").

Source   how the host code of the public operator chooses, held against its unit tests and against plans that
         were computed from its rules
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd
from typing import Any, NamedTuple

from ascendsim.ops.tiling.vendor.arch35.dgrad_block import (
    C04_CHANNELS,
    LONGEST,
    LONGEST_NARROW,
    MOST_BYTE,
    SHORT,
    WIDEST_LOADED,
    Dgrad35Block,
    Dgrad35Part,
    Start,
    backward_pads,
    base_block,
    fitted_k,
    grown,
    legalised,
    memory_bound,
    shared,
    with_steps,
)
from ascendsim.ops.tiling.vendor.arch35.dgrad_split import holding_all, kernel_split, through_gm
from ascendsim.ops.tiling.vendor.layer import (
    FRACTAL,
    PLAIN,
    LayerSizes,
    Machine,
    VendorPlan,
    align,
    ceil_div,
    floor_to,
    rows_touched,
)

# L1 must have room for so many pixels of one C0 group under all taps, beside the weights of a fractal.
PIXELS_OF_ALL_TAPS = 1024
# Bytes of UB that vector cores need beside what they turn: of merged weights, of four channels a tap.
UB_MERGED, UB_C04 = 256, 320
# Reductions from these lengths on are cut into segments of channels, added in float32 in global memory.
LONG_REDUCTION, LONG_PASS, LONG_PLAIN_FP32 = 32768, 8192, 2048
# The sides of the smallest blocks of a small shape, and the longest reduction of one.
LEAST_SIDE, LONGEST_SMALL = 64, 32768
# Bytes of columns of resident weights, for reductions longer than so many.
COLUMN_BYTES = ((1024, 128), (512, 256), (256, 512), (0, 1024))
# From so many pixels of a block on the cube takes longer for it than the copy of the weights, which the copy
# therefore turns on the way; of plain float32 and of 16 bits under few taps from fewer.
HIDING, HIDING_FEW_TAPS, HIDING_FLOAT32 = 512, 384, 256
MOST_TURNED_CHANNELS = 65535


def grad_input(given: LayerSizes, machine: Machine) -> VendorPlan | None:
    """Return the plan of grad_input: the first of the operator's strategies that takes the layer, or None."""
    factor = merge_factor(given, machine)
    layer = given.merged(factor)
    # What is said of one group is said of the layer's own.
    split = kernel_split(layer, machine) if given.groups == 1 else None
    if split is not None:
        return _planned(given, factor, *split)
    part = part_of(given, machine, factor)
    small = _small_shape(part, given)
    if small is not None:
        return _planned(given, factor, "small_shape", small)
    loaded = _full_load(part)
    if loaded is not None:
        return _planned(given, factor, "full_load", loaded)
    segment = _segment(part, given)
    block = _inner_product(part, segment)
    return _planned(given, factor, "inner_product", block, segment) if block is not None else None


def merge_factor(layer: LayerSizes, machine: Machine) -> int:
    """Return how many groups are merged: vector cores build their block-diagonal weights in UB."""
    factor = layer.merge_factor(layer.c0)
    if factor == 1 or layer.itemsize == 1 or taps_of_pass(layer, machine) != "all":
        return 1
    merged = layer.merged(factor)
    # Channels of input come in fractals of 16, also of float32; those of grad_output in C0.
    block = merged.co1 * merged.taps * align(merged.ci) * layer.c0 * layer.itemsize
    return factor if 2 * block + UB_MERGED <= machine.ub else 1


# --- taps, and what they ask of a reduction


def part_of(given: LayerSizes, machine: Machine, factor: int = 1) -> Dgrad35Part:
    """Return the pass of a kernel that is not split, whose groups are merged by a factor."""
    taps = taps_of_pass(given, machine)
    if taps == "all" and factor == 1 and _four_channels(given, machine):
        taps = "c04"
    return Dgrad35Part(given.merged(factor), machine, taps)


def taps_of_pass(layer: LayerSizes, machine: Machine) -> str:
    """Return the taps of a pass: all if L1 and one load3d can serve them, a row of them ("kh"), or one."""
    _, kh, kw = layer.kernel
    high, wide = (max(*backward_pads(layer, axis), layer.dilation[axis]) <= MOST_BYTE for axis in (1, 2))
    expanded = (layer.output[1] - 1) * layer.stride[1] + 1
    touched = rows_touched(PIXELS_OF_ALL_TAPS, layer.input[2])
    row = layer.output[2] * layer.stride[2] * layer.c0 * layer.itemsize

    def held(taps: int, reach: int) -> bool:
        weights = taps * layer.c0 * FRACTAL * layer.itemsize
        return min(touched + reach, expanded) * row + weights <= machine.l1

    if high and wide and held(kh * kw, layer.spans[1] - 1):
        return "all"
    return "kh" if wide and held(kw, 0) else "khkw"


def _four_channels(layer: LayerSizes, machine: Machine) -> bool:
    """Return whether a tap takes four channels instead of C0: two bytes, few channels, no steps or gaps."""
    depth = layer.kernel[0]
    few = layer.co * layer.groups <= C04_CHANNELS and layer.itemsize == 2 and layer.layouts.plain
    whole = max(*layer.stride[1:], *layer.dilation[1:]) == 1 and min(backward_pads(layer, 2)) >= 0
    half = (machine.ub - UB_C04) // 2
    weights = C04_CHANNELS * FRACTAL * depth * layer.taps * layer.itemsize
    turned = align(C04_CHANNELS * layer.taps) * FRACTAL * layer.itemsize
    several = layer.taps > 1 and layer.out_pixels > 1
    return few and whole and several and max(weights, turned) <= half


class Dgrad35Segment(NamedTuple):
    """The part of a long reduction that is added before a result leaves L0C: channels, and k. 0: all."""

    channels: int = 0
    length: int = 0


def _segment(part: Dgrad35Part, given: LayerSizes) -> Dgrad35Segment:
    """Return the segment of a reduction; a short one is its own."""
    layer, taps = part.layer, part.count
    plain = layer.layouts.input == layer.layouts.grad_output == PLAIN
    limit = LONG_REDUCTION if part.taps == "all" else LONG_PASS
    if layer.itemsize == 4 and plain:
        limit = LONG_PLAIN_FP32
    if part.taps == "c04" or given.groups > 1 or part.reduction < limit:
        return Dgrad35Segment()
    share = layer.co if taps >= limit else max(limit // taps, 1)
    channels = max(floor_to(share, layer.c0), 1)
    if channels >= layer.co:
        return Dgrad35Segment()
    return Dgrad35Segment(channels, ceil_div(channels * taps, layer.c0) * layer.c0)


# --- the strategies


def _inner_product(part: Dgrad35Part, segment: Dgrad35Segment) -> Dgrad35Block | None:
    """Return the block that fills L0C; None if not even the smallest fits in L1."""
    block = base_block(part)
    if segment.channels:
        block = replace(block, base_k=_within(block.base_k, part, segment))
    block = with_steps(shared(block))
    if not block.legal:
        block = shared(legalised(block))
    return block if block.legal else None


def _within(base_k: int, part: Dgrad35Part, segment: Dgrad35Segment) -> int:
    """Return a base_k of whole windows, but no longer than a segment."""
    if base_k > segment.length:
        return max(segment.length, part.layer.c0)
    return ceil_div(base_k, part.window) * part.window if base_k > part.window else base_k


def _small_shape(part: Dgrad35Part, given: LayerSizes) -> Dgrad35Block | None:
    """Return the block of a product with few tasks: it takes the fewest rounds, with little to load."""
    layer, machine = part.layer, part.machine
    tiles = ceil_div(part.m * part.n * 4, machine.l0c) * part.images
    few = 2 * tiles < 5 * machine.cores and tiles % machine.cores != 0
    if not few or not _takes_all_taps(part) or layer.co1 * layer.taps * layer.c0 > LONGEST_SMALL:
        return None
    block = _scanned(base_block(part), given)
    block = with_steps(block)
    if not block.legal:
        block = shared(legalised(block))
    return block if block.legal else None


def _takes_all_taps(part: Dgrad35Part) -> bool:
    """Return whether a pass adds all taps; with 8 bits this is asked only for weights stored by channels."""
    layer = part.layer
    return part.taps in ("all", "c04") and (layer.itemsize > 1 or layer.layouts.weight == "NDHWC")


def _scanned(first: Dgrad35Block, given: LayerSizes) -> Dgrad35Block:
    """Return the last of the blocks that cut both sides evenly and were not worse than all before it.

    Worse is what takes more rounds; of as many rounds what has fewer tasks, or more to load.
    """
    part, layer, cores = first.part, first.part.layer, first.part.machine.cores
    channels = given.co * given.groups

    def load(pixels: int, base_n: int) -> int:
        return layer.itemsize * channels * (base_n * layer.taps + part.pixels_in_l1(pixels))

    def most(side: int, other: int) -> int:
        return ceil_div(side, LONGEST_NARROW if other <= FRACTAL else LONGEST)

    found = None
    tasks, least = first.tasks, load(first.base_m, first.base_n)
    rounds = ceil_div(tasks, cores)
    widths = dict.fromkeys(
        align(ceil_div(part.n, j)) for j in range(most(part.n, part.m), ceil_div(part.n, LEAST_SIDE) + 1)
    )
    for i in range(most(part.pixels, part.n), ceil_div(part.pixels, LEAST_SIDE) + 1):
        base_m, single_m = _row_cut(part, i)
        rows = part.images * ceil_div(part.pixels, single_m)
        for base_n in widths:
            count = rows * ceil_div(part.n, base_n)
            mine = ceil_div(count, cores)
            if base_m * base_n > part.machine.l0c_floats or mine > rounds:
                continue
            loaded = load(single_m, base_n)
            if mine < rounds or (count >= tasks and loaded <= least):
                found, tasks, least, rounds = (base_m, base_n, single_m), count, loaded, mine
    if found is None:
        return first
    base_m, base_n, single_m = found
    base_k = fitted_k(part, base_m, base_n, first.base_k)
    block = replace(first, base_m=base_m, base_n=base_n, base_k=base_k, single_m=single_m)
    return replace(block, cl0=block.l0c_copies)


def _row_cut(part: Dgrad35Part, parts: int) -> tuple[int, int]:
    """Return a block's pixels and those of a task where an image is cut in so many: whole rows if as many."""
    base_m = align(ceil_div(part.pixels, parts))
    rows = max(base_m // part.width, 1) * part.width
    if ceil_div(part.pixels, rows) == ceil_div(part.pixels, base_m):
        return align(rows), rows
    return base_m, base_m


def _full_load(part: Dgrad35Part) -> Dgrad35Block | None:
    """Return the block with resident weights; None where they do not fit or would not pay."""
    layer, machine, m, n, k = part.layer, part.machine, part.m, part.n, part.reduction
    size = layer.itemsize
    if not _takes_all_taps(part) or layer.kernel[0] > 1 or m <= n or layer.input[2] > WIDEST_LOADED:
        return None
    columns = 128 if layer.taps > 1 else 256
    # L1 must have room twice for the weights of as many columns as a block would begin with.
    if not memory_bound(m, n, k) or 2 * k * min(columns, n) * size > machine.l1:
        return None
    base_n = next(wide for least, wide in COLUMN_BYTES if k > least) // size
    copies = 2 if k <= SHORT and (n >= 2 * k or n >= SHORT) else 1
    tallest = min(machine.l0c // (base_n * 4 * copies), machine.l0a // (2 * layer.c0 * size))
    block = grown(part, Start(tallest, base_n, machine.l0_half // (base_n * size)), copies)
    block = holding_all(_full_shares(replace(block, copies=(2, 1))))
    if not block.legal:
        block = _full_shares(legalised(block))
    return block if block.legal else None


def _full_shares(block: Dgrad35Block) -> Dgrad35Block:
    """Return the block with its share of depths, rows and columns: all cores equally busy if possible."""
    part, cores = block.part, block.part.machine.cores
    layer, columns = part.layer, block.columns
    depths, height, width = layer.input
    single_m, single_d = block.base_m, 1
    if layer.batch * depths * columns * height % cores == 0:
        rest = cores // gcd(columns * layer.batch, cores)
        by_depth = gcd(depths, rest)
        single_d, single_m = depths // by_depth, height * by_depth // rest * width
    else:
        outer = layer.batch * depths * columns
        best = _up(outer * ceil_div(part.pixels, block.base_m), cores)
        for parts in range(1, ceil_div(part.pixels, block.base_m) + 1):
            rows = ceil_div(height, parts) * width
            tasks = outer * ceil_div(part.pixels, rows)
            # Less than four fifths of the cores' turns would be used.
            if 5 * tasks < 4 * _up(tasks, cores):
                continue
            if _up(tasks, cores) > best:
                break
            best, single_m = _up(tasks, cores), rows
    base_m, base_n = min(block.base_m, align(single_m)), align(part.n // columns)
    return replace(block, base_m=base_m, base_n=base_n, single_m=single_m, single_d=single_d)


def _up(value: int, unit: int) -> int:
    return ceil_div(value, unit) * unit


# --- the plan


def _planned(
    given: LayerSizes, factor: int, strategy: str, block: Dgrad35Block, segment: Dgrad35Segment | None = None
) -> VendorPlan:
    """Return the plan of a block: its tiles, its tasks and their order."""
    part, layer = block.part, block.part.layer
    segment = segment or Dgrad35Segment()
    rows = ceil_div(part.pixels, block.single_m)
    # Windows of depth are used again by the next depth; otherwise weights by the next rows of pixels.
    if layer.kernel[0] > 1:
        axes = ("m", "d", "n")
    elif layer.kernel[1] > 1 or rows > block.columns:
        axes = ("d", "m", "n")
    else:
        axes = ("d", "n", "m")
    turned = turned_first(given, strategy, block)
    # Two vector cores beside each cube core turn 16 channels of input for one of grad_output at a time.
    turning = ceil_div(given.co * ceil_div(given.ci, FRACTAL), 2) if turned else 0
    padded = part.taps == "c04" and strategy != "small_shape"
    channels = C04_CHANNELS if padded else layer.co
    host = {
        "iterateOrder": 1,
        "singleCoreCout": channels,
        "enableFullLoad": int(strategy == "full_load"),
        "kSCoutFullLoad": int(strategy == "kernel_split_full"),
        "enableSplitK": int(segment.channels > 0),
        "kValueSegment": segment.length,
    }
    values: dict[str, Any] = {
        "single_core_m": block.single_m,
        "single_core_n": block.base_n,
        "single_core_k": layer.co,
        "single_core_d": block.single_d,
        "al1_buffers": block.copies[0],
        "bl1_buffers": block.copies[1],
        "cl0_buffers": block.cl0,
        "used_cores": min(max(block.tasks, turning), part.machine.cores),
        "tasks": block.tasks,
        "mapping": "interleaved",
        "order": ("batch", "group", *axes),
        "taps": part.taps,
        "kernel_split": part.split,
        "group_merge": factor,
        "k_segment": segment.channels,
        "transpose_first": turned,
        "through_gm": through_gm(block),
        "zero_first": _zeroed(given, part.machine),
        "host": tuple(host.items()),
    }
    return VendorPlan(strategy, block.base_m, block.base_n, block.base_k, *block.steps, **values)


def _zeroed(layer: LayerSizes, machine: Machine) -> bool:
    """Return whether the result is cleared first, as some of it may meet no tap; of W nothing is asked."""
    steps = layer.stride[0] > layer.kernel[0] or layer.stride[1] > layer.kernel[1]
    if steps or layer.dilation[0] > 1 or taps_of_pass(layer, machine) != "all":
        return True
    return any(
        (layer.input[axis] + sum(layer.pads[axis]) - layer.spans[axis]) % layer.stride[axis]
        > layer.pads[axis][1]
        for axis in (0, 1)
    )


def turned_first(layer: LayerSizes, strategy: str, block: Dgrad35Block) -> bool:
    """Return whether vector cores turn all weights into a workspace before the cube cores begin.

    That is for weights that the cube would not hide the turning of, or that are loaded over and over.
    """
    part, machine, size = block.part, block.part.machine, layer.itemsize
    taps = layer.kernel[0] * layer.taps
    room = FRACTAL * taps * size * 2
    asked = part.taps == "all" and layer.groups == 1 and layer.layouts.weight == PLAIN
    if not asked or taps == 1 or room > machine.ub:
        return False
    if part.split:
        return strategy != "kernel_split_full"
    if size == 1 and 2 * room > machine.ub:
        return False
    fractals = layer.ci == FRACTAL or 2 * FRACTAL <= layer.ci <= MOST_TURNED_CHANNELS
    if not fractals or layer.ci <= layer.taps:
        return False
    if size == 2 and not _read_often(block):
        return False
    deep = layer.kernel[0] > 1 and layer.input[0] > 1
    again = block.slices > block.steps[1] or deep
    return size == 1 or not (again and block.base_m >= _hiding(layer))


def _read_often(block: Dgrad35Block) -> bool:
    """Return whether weights of 16 bits are loaded so often that turning them once pays."""
    part, layer, cores = block.part, block.part.layer, block.part.machine.cores
    if layer.kernel[0] == 1 or layer.input[0] == 1:
        return False
    loads = layer.batch * ceil_div(layer.input[0], block.single_d) * ceil_div(part.pixels, block.single_m)
    tasks = min(loads * block.columns, cores)
    quick = ceil_div(layer.co * ceil_div(layer.ci, FRACTAL), 2 * cores) <= 1
    return loads >= tasks and (quick or ceil_div(loads, tasks) > 1 or 5 * block.base_m <= block.base_n)


def _hiding(layer: LayerSizes) -> int:
    """Return from how many pixels of a block on the cube hides the turning."""
    if layer.true_fp32:
        return HIDING_FLOAT32
    few_taps = layer.itemsize == 2 and max(layer.kernel[1:]) <= 3
    return HIDING_FEW_TAPS if few_taps else HIDING
