"""Grad_input of 910_95 whose kernel is split by the stride, so that no inserted zeros are multiplied.

Each phase of the stride meets a kernel of its own. Along H and W all phases of a tile are one task; along H
alone each is a task of its own, and zeros stay between columns.

Source   how the host code of the public operator chooses, held against its unit tests and against plans that
         were computed from its rules
"""

from __future__ import annotations

from dataclasses import replace

from ascendsim.ops.tiling.vendor.arch35.dgrad_block import (
    WIDEST_LOADED,
    Dgrad35Block,
    Dgrad35Part,
    base_block,
    dividing,
    l0_length,
    memory_bound,
    shared,
    with_steps,
)
from ascendsim.ops.tiling.vendor.layer import FRACTAL, PLAIN, LayerSizes, Machine, ceil_div, floor_to

# Both axes: stride 2, kernels up to 4 x 4. H alone: kernels up to 16, and images wide enough.
BOTH, MOST_BOTH = (2, 2), 4
MOST_ALONG_H, LEAST_WIDTH = 16, 32
# Of fewer pixels and one group of channels there is nothing to gain.
FEWEST_PIXELS = 256
WIDEST_ODD = 512
# Whole widths below which phases are too narrow: of any number of pixels, of few, of whole operands.
NARROW, NARROW_IF_FEW, NARROWEST_WHOLE = 12, 16, 2
# The side of a block of whole operands, and the most channels that they have.
SIDE, MOST_CHANNELS = 256, 256
# Kernels of one tap are split only with more channels than these.
LEAST_CHANNELS = 32


def kernel_split(layer: LayerSizes, machine: Machine) -> tuple[str, Dgrad35Block] | None:
    """Return the strategy and the block of a layer whose kernel is split; None if it is not."""
    symmetric = all(before == after for before, after in layer.pads[1:])
    turnable = layer.layouts.weight in (PLAIN, "NDHWC")
    tiny = layer.in_pixels < FEWEST_PIXELS and layer.co1 == 1
    if layer.groups > 1 or max(layer.dilation[1:]) > 1 or not (symmetric and turnable) or tiny:
        return None
    both = Dgrad35Part(layer, machine, split="hw")
    if _takes_both(both):
        whole = _holds_whole(both)
        if not _refuses_both(both, whole):
            strategy = "kernel_split_full" if whole else "kernel_split_hw"
            block = _fitting(_whole_block(both) if whole else _blocks(both))
            return None if block is None else (strategy, block)
    along_h = Dgrad35Part(layer, machine, split="h")
    if not _takes_h(along_h):
        return None
    block = _fitting(_blocks(along_h))
    return None if block is None else ("kernel_split_h", block)


def _takes_both(part: Dgrad35Part) -> bool:
    """Return whether a kernel is one that may be split along H and W."""
    layer = part.layer
    _, kh, kw = layer.kernel
    plain = layer.layouts.input == layer.layouts.grad_output == PLAIN
    if not plain or layer.stride[1:] != BOTH or kh != kw or kh > MOST_BOTH:
        return False
    single = layer.ci == layer.co == 1 and kh == 2
    return not single and not (layer.input[2] % 2 and layer.input[2] > WIDEST_ODD)


def _holds_whole(part: Dgrad35Part) -> bool:
    """Return whether L1 is to hold both operands whole: grad_output, and the weights of four phases."""
    layer, machine = part.layer, part.machine
    if layer.taps == 1 or layer.co > MOST_CHANNELS or (layer.output[0] > 1 and layer.kernel[0] > 1):
        return False
    base_m, base_n = min(part.pixels, SIDE), min(part.n, SIDE)
    left = part.rows(base_m) * part.line * layer.c0 * layer.itemsize
    a = min(max(1, machine.l1 // 2 // left), layer.co1)
    b = (machine.l1 - a * left) // part.column_bytes(base_n)
    if a < layer.co1 or b < 4 * layer.co1 or base_n < layer.ci:
        return False
    # Enough tasks, of few but not too few channels, keep the cores busy without.
    busy = part.pixels // 512 * layer.input[0] * layer.batch >= machine.cores
    return not (busy and part.n <= 128 and layer.ci >= FRACTAL)


def _refuses_both(part: Dgrad35Part, whole: bool) -> bool:
    """Return whether a split along both H and W does not pay, or the layout of weights forbids it."""
    layer, width = part.layer, part.layer.input[2]
    if layer.layouts.weight != PLAIN and (whole or layer.ci == 1):
        return True
    if whole:
        return width <= NARROWEST_WHOLE
    if width < NARROW or (width <= NARROW_IF_FEW and part.pixels <= FEWEST_PIXELS):
        return True
    return layer.taps == 1 and not _pays_for_one_tap(part)


def _pays_for_one_tap(part: Dgrad35Part) -> bool:
    """Return whether a kernel of one tap, which has only zeros to save, is worth splitting."""
    layer, machine = part.layer, part.machine
    pixels, k, size = layer.in_pixels, layer.co1 * layer.c0, layer.itemsize
    tasks = layer.batch * layer.input[0] * ceil_div(pixels, SIDE) * ceil_div(part.n, SIDE)
    # Weights that stay in L1 (`dgrad.py`) gain more.
    in_l0 = pixels * k * size <= machine.l0a and part.n * k * size <= machine.l0b
    loaded = (
        layer.kernel[0] == 1
        and pixels > part.n
        and layer.input[2] <= WIDEST_LOADED
        and memory_bound(pixels, part.n, k)
        and 2 * k * min(SIDE, part.n) * size <= machine.l1
    )
    large = pixels > FEWEST_PIXELS and tasks > machine.cores and min(layer.ci, layer.co) > LEAST_CHANNELS
    return large and not in_l0 and not loaded and layer.input[1] <= layer.input[2] and layer.ci <= layer.co


def _takes_h(part: Dgrad35Part) -> bool:
    """Return whether a kernel is split along H alone."""
    layer, machine = part.layer, part.machine
    kh, sh = layer.kernel[1], layer.stride[1]
    if not 2 <= sh <= kh <= MOST_ALONG_H or min(layer.ci, layer.co) < FRACTAL:
        return False
    left = part.rows(min(part.pixels, SIDE)) * part.line * layer.c0 * layer.itemsize
    return layer.input[2] >= LEAST_WIDTH and left + part.column_bytes(FRACTAL) <= machine.l1


def _blocks(part: Dgrad35Part) -> Dgrad35Block:
    """Return the base block with its shares and tiles in L1."""
    block = base_block(part)
    if part.split == "h" and 8 * block.base_m * block.base_n == part.machine.l0c:
        # Along H two copies must leave something of L0C.
        block = replace(block, cl0=1)
    return with_steps(shared(block))


def _whole_block(part: Dgrad35Part) -> Dgrad35Block:
    """Return the block of whole operands, in one copy each: base_k takes whole kernels, sides give way."""
    machine, size = part.machine, part.layer.itemsize
    room = machine.l0c_floats
    base_m, base_n = min(SIDE, part.m), min(SIDE, part.n)
    if base_n < SIDE:
        base_m = min(SIDE, floor_to(room // base_n, FRACTAL), part.m)
    if base_m < SIDE:
        base_n = min(SIDE, floor_to(room // base_m, FRACTAL), part.n)
    held = machine.l0_half // size
    base_k = min(floor_to(held // max(base_m, base_n), part.window), part.reduction)
    base_k = max(base_k, part.smallest_window)
    most = floor_to(held // base_k, FRACTAL)
    base_m, base_n = min(base_m, most), min(base_n, most)
    base_n = min(base_n, floor_to(room // base_m, FRACTAL))
    block = Dgrad35Block(part, base_m, base_n, base_k, base_m, copies=(1, 1))
    block = shared(replace(block, cl0=block.l0c_copies))
    return holding_all(block)


def holding_all(block: Dgrad35Block) -> Dgrad35Block:
    """Return the block with all of the weights in L1, and as much of grad_output as divides that."""
    slices = block.slices
    a = next((step for step in range(slices, 0, -1) if slices % step == 0 and block.allows(step, slices)), 1)
    return replace(block, steps=(a, slices))


def _fitting(block: Dgrad35Block) -> Dgrad35Block | None:
    """Return the block with tiles that L1 holds, and a base_k that all phases can take; None if none does."""
    single = block.copies == (1, 1)
    if block.legal:
        found = block if single else _for_all_phases(block)
    else:
        smaller = _one_window(block)
        if smaller is None:
            return None
        found = shared(_for_all_phases(smaller if smaller.legal else _halved(smaller)))
    if found.part.split == "hw" and _l0c_of_rows(found) > found.part.machine.l0c:
        found = replace(found, cl0=1)
    return found if found.legal else None


def _for_all_phases(block: Dgrad35Block) -> Dgrad35Block:
    """Return the block with a base_k on which tiles of the smallest kernel of a phase end, too."""
    part = block.part
    if part.smallest_window == part.window or block.base_k <= part.layer.c0:
        return block
    a, b = (step * block.base_k // part.window for step in block.steps)
    return _sliced(block, a, b)


def _sliced(block: Dgrad35Block, a: int, b: int) -> Dgrad35Block:
    """Return the block with so many channel groups in its tiles, and the longest base_k that divides them."""
    part, base_k, least = block.part, block.base_k, min(a, b)
    while base_k > part.layer.c0 and (least * part.window % base_k or least * part.smallest_window % base_k):
        base_k -= part.layer.c0
    steps = ceil_div(a * part.window, base_k), ceil_div(b * part.window, base_k)
    return replace(block, base_k=base_k, steps=steps)


def _group_bytes(block: Dgrad35Block) -> tuple[int, int]:
    """Return the bytes of one channel group of grad_output and of the weights."""
    part = block.part
    left = part.rows(block.base_m) * part.line * part.layer.c0 * part.layer.itemsize
    return left, part.column_bytes(block.base_n)


def _one_window(block: Dgrad35Block) -> Dgrad35Block | None:
    """Return the block so small that L1 holds a channel group of both operands; None if none is.

    Only columns give way to weights that L1 does not hold, or whose windows are longer than rows of
    grad_output; else pixels do, down to a row or to the columns. Then tiles are sought anew, in two copies.
    """
    part, l1 = block.part, block.part.machine.l1
    width = part.layer.input[2] + (part.layer.input[2] % 2 if part.split == "hw" else 0)
    long = part.window > part.line * part.layer.c0
    found = block
    while sum(_group_bytes(found)) > l1:
        m, n, weights = found.base_m, found.base_n, _group_bytes(found)[1]
        if m > max(width, n, FRACTAL) and not (long or weights >= l1):
            found = replace(found, base_m=m - FRACTAL)
        elif n > FRACTAL:
            found = replace(found, base_n=n - FRACTAL)
        else:
            return None
    if found is block:
        return block
    return with_steps(replace(found, copies=(2, 2), cl0=found.l0c_copies))


def _halved(block: Dgrad35Block) -> Dgrad35Block:
    """Return the block with half of L1 for the larger operand, and the rest for the other.

    Tiles of more than one channel group are made two copies of half as many.
    """
    part, l1 = block.part, block.part.machine.l1
    left, weights = _group_bytes(block)
    large, small = max(left, weights), min(left, weights)
    most = max(l1 // 2 // large, 1)
    rest = max((l1 - most * large) // small, 1)
    a, b = (min(n, part.channel_groups) for n in ((most, rest) if left >= weights else (rest, most)))
    copies = (2 if a > 1 else 1, 2 if b > 1 else 1)
    a, b = dividing(max(a // 2, 1), max(b // 2, 1))
    base_k = l0_length(part, block.base_m, block.base_n)
    return _sliced(replace(block, base_k=base_k, copies=copies), a, b)


def _image_rows(block: Dgrad35Block) -> tuple[int, int]:
    """Return the rows of a tile of all phases, and the pixels in one as they are interleaved."""
    part = block.part
    rows = ceil_div(block.base_m, part.width) + part.layer.input[2] % 2
    unit = 2 * FRACTAL if part.layer.itemsize == 1 else FRACTAL
    return rows, ceil_div(part.width, unit) * unit


def _l0c_of_rows(block: Dgrad35Block) -> int:
    """Return the bytes of two tiles in L0C in whole rows of a phase."""
    rows, width = _image_rows(block)
    return rows * width * block.base_n * 8


def through_gm(block: Dgrad35Block) -> bool:
    """Return whether the phases of a tile are interleaved through a workspace, as UB cannot hold them."""
    part = block.part
    if part.split != "hw":
        return False
    rows, width = _image_rows(block)
    tile = 4 * rows * width * block.base_n * part.layer.itemsize
    if part.layer.itemsize == 1:
        tile *= 2
    even = part.layer.input[2] + part.layer.input[2] % 2
    return tile > part.machine.ub or even % FRACTAL != 0
