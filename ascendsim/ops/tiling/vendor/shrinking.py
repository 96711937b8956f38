"""Smaller base blocks of grad_weight, for layers of which L1 does not hold one slice of either operand.

The rule is one for 910B, 910_93 and 910_95; sizes in L1 are the caller's.

Source   host code of the public operator (ops-nn at e5c3fa932), as read
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ascendsim.ops.tiling.vendor.layer import FRACTAL, Layer, Machine, align, ceil_div, floor_to


class Base(NamedTuple):
    """A base block: channels of grad_output, columns of input, and pixels."""

    m: int
    n: int
    k: int


def window_lines(columns: int, layer: Layer) -> int:
    """Return the C0 groups of channels that so many columns of im2col touch, wherever the run begins."""
    groups = ceil_div(columns, layer.c0)
    return ceil_div(groups, layer.taps) + (2 * groups % layer.taps != 0)


@dataclass(frozen=True)
class Room:
    """What a block takes in L1 with one copy and one slice of each operand.

    layer, machine     the merged layer, and the core
    a_bytes, b_bytes   bytes of each operand's tile of a block
    b_rows             rows of input that a block has in L1
    width, line        pixels of a row of grad_output, or of a strip, and of the line of input that it needs
    beside             the side by which the growth of base_m is bounded in L0C: 910B "m", 910_95 "n"
    """

    layer: Layer
    machine: Machine
    a_bytes: Callable[[Base], int]
    b_bytes: Callable[[Base], int]
    b_rows: Callable[[Base], int]
    width: int
    line: int
    beside: str = "m"

    def excess(self, base: Base) -> int:
        """Return the bytes that L1 lacks for a block; negative where some are left."""
        return self.a_bytes(base) + self.b_bytes(base) - self.machine.l1

    def lines(self, columns: int) -> int:
        """Return the channel groups of so many columns."""
        return window_lines(columns, self.layer)


def shrunk(base: Base, room: Room) -> Base:
    """Return the block made smaller, first along k, then along both sides, and grown again.

    Nothing is checked at the end: the block may still not fit in L1, and its base_k is 0 where it has grown
    so many rows that L0 does not hold a fractal of them.
    """
    base, done = _shorter_k(base, room)
    return base if done else _grown(_shorter_sides(base, room), room)


def _shorter_k(base: Base, room: Room) -> tuple[Base, bool]:
    """Return the block with a shorter base_k, and whether it fits so.

    Once base_k lies within a row its tile of input gets no smaller: the search stops at a divisor of the
    row, or at once where a row is no whole fractals.
    """
    layer, size = room.layer, room.layer.itemsize
    of_input = room.lines(base.n) * layer.c0 * room.line * layer.stride[1] * FRACTAL * size
    each = FRACTAL * base.m * size + ceil_div(of_input, room.width)
    k = base.k - FRACTAL * ceil_div(max(0, room.excess(base)), each)
    if k < FRACTAL:
        return base._replace(k=FRACTAL), False
    while room.excess(base._replace(k=k)) > 0 and k > FRACTAL:
        k -= FRACTAL
        if k <= room.width and (room.width % FRACTAL or room.width % k == 0):
            break
    base = base._replace(k=k)
    return base, room.excess(base) <= 0


def _shorter_sides(base: Base, room: Room) -> Base:
    """Return the block with the longer side shortened to the other one, then both, until it fits."""
    m, n, k = base
    while room.excess(Base(m, n, k)) > 0 and m != n:
        if m > n:
            m = max(n, m - FRACTAL)
        else:
            n = max(m, n - FRACTAL)
    excess = room.excess(Base(m, n, k))
    if excess <= 0:
        return Base(m, n, k)
    size = room.layer.itemsize
    of_input = ceil_div(room.b_rows(Base(m, n, k)) * room.line * FRACTAL * size, room.layer.taps)
    fractals = ceil_div(excess, FRACTAL * k * size + of_input)
    if m < FRACTAL * (fractals + 1):
        return Base(FRACTAL, FRACTAL, k)
    m = n = m - FRACTAL * fractals
    while room.excess(Base(m, n, k)) > 0 and m > FRACTAL:
        m -= FRACTAL
        if room.lines(m) < room.lines(n):
            n = m
    return Base(m, n, k)


def _grown(base: Base, room: Room) -> Base:
    """Return the block with as many rows, then as long a base_k, as L1 and L0 hold.

    Whether the operator of 910B keeps to L0 where base_k reaches the end of the image is not settled; here
    it does.
    """
    layer, machine, (m, n, k) = room.layer, room.machine, base
    rows, reduction = align(layer.co), align(layer.out_pixels)
    bound = machine.l0c // layer.itemsize // 2 // {"m": m, "n": n}[room.beside] // FRACTAL
    free = -room.excess(base)
    longer = m + FRACTAL * (free // (FRACTAL * k * layer.itemsize)) if free >= 0 else rows
    m = min(max(bound, 1) * FRACTAL, longer, rows)
    while room.excess(Base(m, n, k + FRACTAL)) <= 0:
        k += FRACTAL
    halves = (size // 2 // layer.itemsize for size in (machine.l0a, machine.l0b))
    most = [floor_to(half // side, FRACTAL) for half, side in zip(halves, (m, n), strict=True)]
    return Base(m, n, whole_rows(min(k, *most, reduction), room.width))


def whole_rows(pixels: int, width: int) -> int:
    """Return the pixels as whole rows where these are whole fractals and shorter."""
    return floor_to(pixels, width) if width % FRACTAL == 0 and width < pixels else pixels
