"""The grid of cores of grad_weight for bfloat16 on 910B and 910_93 with 20 cores.

Source   host code of the public operator (ops-nn at e5c3fa932), as read
"""

from __future__ import annotations

from math import gcd
from typing import NamedTuple

from ascendsim.ops.tiling.vendor.layer import (
    FRACTAL,
    LayerSizes,
    Machine,
    VendorPlan,
    WgradBase,
    align,
    ceil_div,
    floor_to,
    rows_touched,
)

CORES = 20
# Images and depths take so many cores at least.
LEAST_IMAGES = 4
# A part of the rows has so many pixels for each part at least, and one of the channels so many columns.
LEAST_PIXELS, LEAST_COLUMNS = 64, 256
TALL, WIDE = (128, 256, 64), (64, 512, 32)
# L1 that this kernel keeps for itself.
RESERVED_BYTES = 128


class Wgrad22Grid(NamedTuple):
    """Parts along depths and images of grad_output, channels of input, and rows."""

    d: int
    batch: int
    n: int
    k: int


class Wgrad22Share(NamedTuple):
    """The work of one core of a grid: channels of grad_output, columns, rows of pixels."""

    layer: LayerSizes
    rows: int
    columns: int
    height: int

    def input_rows(self, rows: int) -> int:
        """Return the rows of input under so many of grad_output, no more than there are."""
        layer = self.layer
        return min((rows - 1) * layer.stride[1] + layer.spans[1], layer.input[1])

    def input_line(self, columns: int) -> int:
        """Return the elements of one row of input for a base block, by the library's count of channels."""
        taps, groups = self.layer.taps, columns // FRACTAL
        lines = ceil_div(groups, taps)
        if taps > groups:
            lines += taps % groups != 0
        elif groups % taps:
            lines += 2 if 2 * groups % taps else 1
        return self.layer.input[2] * lines * FRACTAL


def core_grid(given: LayerSizes, machine: Machine) -> VendorPlan | None:
    """Return the plan that gives cores to images and depths first; None where the operator searches instead.

    Only the 20-core parts do so, for bfloat16; the caller says which type it is.
    """
    layer = given.merged(given.merge_factor(FRACTAL))
    if layer.groups > 1 or layer.itemsize != 2 or machine.cores != CORES:
        return None
    depths = layer.kernel[0]
    window = layer.taps * FRACTAL * depths
    grid = _grid(layer, layer.ci1 * window)
    if grid is None:
        return None
    groups = ceil_div(layer.ci1, grid.n)
    share = Wgrad22Share(layer, align(layer.co), groups * window, ceil_div(layer.output[1], grid.k))
    base = _base(share)
    steps = _steps(share, base, machine.l1 - RESERVED_BYTES)
    if steps is None or 2 * layer.itemsize * base.k * max(base.m, base.n) > min(machine.l0a, machine.l0b):
        return None
    images = grid.d * grid.batch
    one_axis = depths == 1 or layer.dilation[0] == 1
    host = {
        "batchDim": images,
        "groupDim": 1,
        "mDim": 1,
        "nDim": grid.n,
        "kDim": grid.k,
        "dkDim": 1,
        "singleCoreBatch": ceil_div(layer.batch, grid.batch) * (layer.output[0] // grid.d),
        "singleCoreCout": share.rows,
        "singleCoreHo": share.height,
        "stepM": 1,
        "iterateOrder": 1,
        "singleCoreCin": groups * FRACTAL * depths,
        "bl1Bound": _input_elements(share, base, steps[1]),
    }
    return VendorPlan(
        *("core_grid", *base, *steps),
        single_core_m=share.rows,
        single_core_n=share.columns if one_axis else share.columns // depths,
        single_core_k=share.height * layer.output[2],
        used_cores=CORES,
        tasks=CORES,
        mapping="grid",
        order=("group", "batch", "kd", "n", "m", "k"),
        split="grid",
        grid=(("batch", images), ("kd", 1), ("group", 1), ("n", grid.n), ("m", 1), ("k", grid.k)),
        group_merge=given.merge_factor(FRACTAL),
        zero_first=True,
        host=tuple(host.items()),
    )


def _grid(layer: LayerSizes, columns: int) -> Wgrad22Grid | None:
    """Return the grid of all cores: divisors of depths and images, the rest to rows or channels."""
    d, batch = gcd(CORES, layer.output[0]), gcd(CORES, layer.batch)
    if d * batch % CORES == 0:
        return Wgrad22Grid(d, CORES // d, 1, 1)
    both = gcd(CORES, d * batch)
    if both < LEAST_IMAGES:
        return None
    rest, d = CORES // both, gcd(d, both)
    pixels = layer.out_pixels
    of_rows = pixels >= LEAST_PIXELS * rest and _even(layer.output[1], rest)
    of_channels = columns >= LEAST_COLUMNS * rest and _even(layer.ci1, rest)
    rows_first = ceil_div(pixels, LEAST_PIXELS) >= ceil_div(columns, LEAST_COLUMNS)
    if of_rows and (rows_first or not of_channels):
        return Wgrad22Grid(d, both // d, 1, rest)
    return Wgrad22Grid(d, both // d, rest, 1) if of_channels else None


def _even(extent: int, parts: int) -> bool:
    """Return whether an axis comes out in so many parts."""
    return extent >= parts and ceil_div(extent, ceil_div(extent, parts)) == parts


def _base(share: Wgrad22Share) -> WgradBase:
    """Return the base block: a longer base_k where the sides are short, or wide for few rows."""
    pixels = share.height * share.layer.output[2]
    m, n, k = min(TALL[0], share.rows), min(TALL[1], share.columns), TALL[2]
    for times in (2, 4, 8):
        if max(m, n) * times <= TALL[1]:
            k = align(pixels) if pixels <= TALL[2] * times else TALL[2] * times
    if m <= WIDE[0] and pixels < share.columns >= WIDE[1]:
        k = align(pixels) if pixels <= WIDE[2] else WIDE[2]
        n = min(WIDE[1], share.columns)
    return WgradBase(m, n, k)


def _steps(share: Wgrad22Share, base: WgradBase, l1: int) -> tuple[int, int] | None:
    """Return the slices of either tile, L1 shared out as the traffic is; None where two copies do not fit."""
    layer, line = share.layer, share.input_line(base.n)
    width, size = layer.output[2], layer.itemsize
    left, right = share.height * width * base.m, line * share.input_rows(share.height)
    half_a, half_b = (l1 * part // (left + right) // 2 // size for part in (left, right))
    rows_a = max(1, half_a // (width * base.m))
    rows_b = max(1, (half_b // line - layer.spans[1]) // layer.stride[1] + 1)
    slices = ceil_div(share.height * width, base.k)
    a, b = (min(max(2, rows * width // base.k), slices) for rows in (rows_a, rows_b))
    a, b = floor_to(a, min(a, b)), floor_to(b, min(a, b))
    elements = base.m * base.k * a + _input_elements(share, base, b)
    return (a, b) if 2 * size * elements < l1 else None


def _input_elements(share: Wgrad22Share, base: WgradBase, step: int) -> int:
    """Return the elements of one copy of input's tile."""
    rows = rows_touched(step * base.k, share.layer.output[2])
    return share.input_rows(rows) * share.input_line(base.n)
