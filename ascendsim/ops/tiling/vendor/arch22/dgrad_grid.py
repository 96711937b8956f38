"""The core grids of grad_input on 910B and 910_93: float32, and transposed convolutions forwards."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, gcd
from typing import NamedTuple

from ascendsim.ops.tiling.vendor.image_l1 import PINGPONG, ImageL1, Steps
from ascendsim.ops.tiling.vendor.layer import FRACTAL, Layer, Machine, align, ceil_div, floor_to
from ascendsim.ops.tiling.vendor.plan import VendorPlan

LONG, SHORT, BASE_K_BYTES = 256, 128, 128
# A part of the pixels, or of the channels, is not made smaller than this.
LEAST_PIXELS, LEAST_CHANNELS = 128, 256
# At least three of five cores get work.
LEAST_USE = Fraction(3, 5)
# L1 that this kernel keeps for itself.
RESERVED_BYTES = 128


class Grid(NamedTuple):
    """Parts along depth, images, rows and channels, one core each."""

    d: int
    batch: int
    m: int
    n: int

    @property
    def cores(self) -> int:
        """Cores that get work."""
        return self.d * self.batch * self.m * self.n


def core_grid(layer: Layer, machine: Machine) -> VendorPlan | None:
    """Return the plan of a core grid; None where no grid uses enough cores, or no tile fits in L1."""
    if layer.groups > 1 or layer.itemsize not in (2, 4):
        return None
    grid = _grid(layer, machine.cores)
    if grid is None:
        return None
    block = _block(layer, machine._replace(l1=machine.l1 - RESERVED_BYTES), grid)
    steps = _quarters(block)
    if steps is None:
        return None
    rows = ceil_div(layer.input[1], grid.m)
    return VendorPlan(
        *("core_grid", block.base_m, block.base_n, block.base_k, steps.a, steps.b),
        single_core_m=rows * layer.input[2],
        single_core_n=align(ceil_div(layer.ci, grid.n)),
        single_core_k=layer.co,
        single_core_d=ceil_div(layer.input[0], grid.d),
        al1_buffers=steps.a_buffers,
        bl1_buffers=steps.b_buffers,
        cl0_buffers=1,
        used_cores=grid.cores,
        tasks=grid.cores,
        mapping="grid",
        order=("group", "d", "batch", "m", "n", "k"),
        grid=tuple(grid._asdict().items()),
    )


def _grid(layer: Layer, cores: int) -> Grid | None:
    """Return the grid of the most cores: the largest divisors along depth, images, rows, then channels."""
    depths, height, width = layer.input
    for used in range(cores, ceil(LEAST_USE * cores) - 1, -1):
        d = gcd(used, depths)
        batch = gcd(used // d, layer.batch)
        rest = used // d // batch
        m = max(
            parts
            for parts in range(1, rest + 1)
            if rest % parts == 0
            and (parts == 1 or (parts <= height and height // parts * width >= LEAST_PIXELS))
        )
        n = rest // m
        if n == 1 or layer.ci // n >= LEAST_CHANNELS:
            return Grid(d, batch, m, n)
    return None


def _block(layer: Layer, machine: Machine, grid: Grid) -> ImageL1:
    """Return the base block of a grid's share: the long side along the longer one of the share's sides."""
    single_m = align(ceil_div(layer.input[1], grid.m) * layer.input[2])
    single_n = align(ceil_div(layer.ci, grid.n))
    shorter = machine.beside(LONG, SHORT)
    long, short = (LONG, shorter) if single_m > single_n else (shorter, LONG)
    base_m, base_n = min(long, single_m), min(short, single_n)
    _, kh, kw = layer.kernel
    base_k = BASE_K_BYTES // layer.itemsize
    # Turning the weights of several taps takes one C0 group more in L0B than float32 products read.
    spare = layer.c0 if layer.itemsize == 4 and layer.taps > 1 else 0
    right = machine.l0b // 2 // layer.itemsize // base_n - spare
    left = machine.l0a // 2 // layer.itemsize // base_m
    for taps in (kh * kw, kw):
        if layer.taps > 1 and taps * layer.c0 <= min(left, right):
            return ImageL1(layer, machine, base_m, base_n, taps * layer.c0)
    base_k = min(base_k, floor_to(min(left, right), layer.c0), layer.co1 * layer.taps * layer.c0)
    return ImageL1(layer, machine, base_m, base_n, floor_to(base_k, layer.c0) or layer.c0)


def _quarters(block: ImageL1) -> Steps | None:
    """Return the steps whose tiles take a quarter of L1 each, or half of it in one copy where need be.

    Copies are given up as by the basic blocks: those of the weights, of grad_output, then both.
    """
    layer, half = block.layer, block.machine.l1 // 2
    # Weights of float32 are turned in fractals of 16 channels: two C0 groups at a time, where there are two.
    pair = min(FRACTAL // layer.c0, layer.co1) if layer.taps > 1 else 1
    windows = max(1, block.base_k // block.window)
    unit = pair * windows
    one = Steps(ceil_div(block.window, block.base_k), 0, 1, 1)
    for a_buffers, b_buffers in PINGPONG:
        a = floor_to(min(half // a_buffers * windows // block.a_bytes(one), layer.co1), unit)
        b = floor_to(min(half // b_buffers // block.column_bytes, layer.co1), unit)
        if a and b:
            a, b = (floor_to(a, b), b) if a >= b else (a, floor_to(b, a))
            lengths = (a * block.window // block.base_k, b * block.window // block.base_k)
            steps = Steps(*lengths, a_buffers, b_buffers)
            if block.fits(steps):
                return steps
    return None
