"""The cycles by which the vendor's library compares tilings of grad_weight on 910B and 910_93.

These are planning figures of the library, not measured rates: they rank its candidates and nothing else.

Source   constants that the vendor's older operator libraries publish for 910B
"""

from __future__ import annotations

from dataclasses import dataclass

from ascendsim.ops.tiling.vendor.layer import FRACTAL, Layer, ceil_div
from ascendsim.ops.tiling.vendor.windows import rows_touched

# Bytes for each cycle of one core, and cycles.
MTE2_BYTES, MTE2_HEAD = 96, 300
L0A_BYTES, LOAD2D_ISSUE, LOAD3D_ISSUE = 256, 20, 42
MMAD_HEAD = 20
# Commands for L0A in the queue from which on the loads into L1 behind them come too late to be hidden.
FULL_QUEUE = 60
FIX_READ_BYTES, FIX_WRITE_BYTES = 256, 128
FRACTAL_BYTES = 512
# Load3d into L0B, cycles of a fractal: 4 and the row switches at stride 1; twice the stride, 2 and the
# switches at a fast one; by bytes at others.
FAST_STRIDES, UNIT_STRIDE_CYCLES, STRIDED_CYCLES, SLOW_BYTES = (2, 4, 8), 4, 2, 28


@dataclass(frozen=True)
class Share:
    """What one core adds up at a time: one image at one kernel depth of one group.

    m, n, k   fractals of 16 rows, columns and pixels; rows: of grad_output
    """

    layer: Layer
    m: int
    n: int
    rows: int

    @property
    def pixels(self) -> int:
        """Pixels of grad_output."""
        return self.rows * self.layer.output[2]

    @property
    def k(self) -> int:
        """Fractals of 16 pixels."""
        return ceil_div(self.pixels, FRACTAL)

    @property
    def depth(self) -> int:
        """C0 groups in 16 elements of the reduction: the cube takes one at a time."""
        return FRACTAL // min(FRACTAL, self.layer.c0)


@dataclass(frozen=True)
class Tile:
    """A tiling of a share: a base block in fractals, slices in L1, and what stays there.

    resident   "a": grad_output's whole reduction of a strip of rows; "b": input's, of columns; "": neither
    """

    m: int
    n: int
    k: int
    step: int = 1
    resident: str = ""


def step_cycles(share: Share, tile: Tile) -> float:
    """Return the cycles of one Mmad and its loads: the slower of M and MTE1."""
    layer, k = share.layer, tile.k * share.depth
    left = tile.m * k * FRACTAL_BYTES / L0A_BYTES + LOAD2D_ISSUE * _left_commands(share, tile)
    right = k * tile.n * _load3d_cycles(layer) + LOAD3D_ISSUE
    return max(tile.m * k * tile.n * (2 if layer.true_fp32 else 1) + MMAD_HEAD, left + right)


def _left_commands(share: Share, tile: Tile) -> int:
    """Return the load2d of one Mmad: one for each fractal along the shorter side."""
    return min(tile.m, tile.k * share.depth)


def _load3d_cycles(layer: Layer) -> float:
    """Return the cycles of a fractal on its way to L0B, by stride and the rows that 16 pixels lie in."""
    width, stride = layer.output[2], layer.stride[2]
    switches = rows_touched(FRACTAL, width) - 1
    if stride == 1:
        return UNIT_STRIDE_CYCLES + switches
    if stride in FAST_STRIDES:
        return 2 * stride + STRIDED_CYCLES + switches
    return FRACTAL_BYTES / SLOW_BYTES


def fix_cycles(tile: Tile) -> float:
    """Return the cycles of a base block on its way out, which nothing hides."""
    size = 4 * FRACTAL * FRACTAL * tile.m * tile.n
    return size / FIX_READ_BYTES + size / FIX_WRITE_BYTES


def load_cycles(size_bytes: float) -> float:
    """Return the cycles of one load into L1."""
    return size_bytes / MTE2_BYTES + MTE2_HEAD


def left_bytes(share: Share, tile: Tile, steps: int) -> int:
    """Return the bytes of so many slices of grad_output."""
    return tile.m * FRACTAL * steps * tile.k * FRACTAL * share.layer.itemsize


def right_bytes(share: Share, tile: Tile, steps: int) -> int:
    """Return the bytes of the input under so many slices: a window more where columns cut one."""
    layer = share.layer
    groups = ceil_div(tile.n * FRACTAL, layer.c0)
    lines = ceil_div(groups, layer.taps) + (groups % layer.taps != 0)
    touched = rows_touched(min(steps * tile.k * FRACTAL, share.pixels), layer.output[2])
    rows = min((touched - 1) * layer.stride[1] + layer.spans[1], layer.input[1])
    return rows * layer.input[2] * lines * layer.c0 * layer.itemsize


def shared_columns(share: Share, tile: Tile) -> int:
    """Return how many blocks of columns one window of the input serves, once all of its rows are in L1."""
    return max(1, share.layer.taps // tile.n)


def least_cycles(share: Share, tile: Tile) -> float:
    """Return the cycles of a share whose loads into L1 take none."""
    blocks = share.m // tile.m * (share.n // tile.n)
    return blocks * (share.k // tile.k * step_cycles(share, tile) + fix_cycles(tile))


def cycles(share: Share, tile: Tile) -> float:
    """Return the cycles of a share."""
    slices = share.k // tile.k
    whole = tile.step == slices
    # A whole reduction needs no second copy, and so nothing hides its loads.
    reuse = shared_columns(share, tile) if whole else 1
    left = load_cycles(left_bytes(share, tile, tile.step))
    right = load_cycles(right_bytes(share, tile, tile.step)) / reuse
    streamed = {"a": right, "b": left, "": left + right}[tile.resident]
    compute = tile.step * step_cycles(share, tile)
    queued = tile.step * _left_commands(share, tile)
    chunk = streamed + compute if whole or queued >= FULL_QUEUE else max(streamed, compute)
    block = slices // tile.step * chunk + fix_cycles(tile)
    m_blocks, n_blocks = share.m // tile.m, share.n // tile.n
    once = {
        "a": m_blocks * load_cycles(left_bytes(share, tile, slices)),
        "b": n_blocks * load_cycles(right_bytes(share, tile, slices)),
        "": 0.0,
    }[tile.resident]
    return once + m_blocks * n_blocks * block
