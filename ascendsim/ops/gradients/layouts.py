"""Tensors of a call as products take them, and gradients as they leave.

Images lie with their channels last: their pixels alone, or as a sliding kernel sees them, with padding and
zeros. Weights lie as grad_input multiplies them. Tensors of binary16 may stay as they are stored until they
are laid out, and gradients be stored as they are turned back: what is converted on its way takes no pass of
its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ascendsim.frozen import cached_property
from ascendsim.numerics.casts import HALF, as_carrier, cuts_off, is_stored, rounded, rounded_halves, stored
from ascendsim.numerics.compiled.turned import turn_to, turned
from ascendsim.numerics.factor import ALONE, Threads, Values
from ascendsim.ops.lowering.call import Call
from ascendsim.ops.lowering.formats import vector_overflow
from ascendsim.ops.problems.convolution import as_multiplied, groups_of
from ascendsim.ops.problems.sliding import Sliding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ascendsim.numerics.accumulation import MathSettings
    from ascendsim.ops.problems.convolution import ConvProblem

    Floats = NDArray[np.float32]
    # Carriers, or binary16 as it is stored, which becomes carriers as it is laid out.
    Elements = NDArray[Any]
    Places = NDArray[np.int64]


@dataclass(frozen=True)
class PixelPlanes:
    """Where a product finds pixels in images (N, D), the channels of each side by side.

    size     elements from one image at one depth to the next
    pixels   (H * W,): where in its image each pixel begins
    """

    values: Values
    depths: int
    size: int
    pixels: Places

    @classmethod
    def of(cls, images: Elements, threads: Threads = ALONE) -> PixelPlanes:
        """Lay out images (N, C, D, H, W)."""
        batch, channels, depths, *size = images.shape
        pixels = prod(size)
        turned_over = turned(images.reshape(batch, channels, -1), threads)
        return cls(Values(turned_over), depths, pixels * channels, np.arange(pixels) * channels)

    def image(self, number: int, depth: int) -> int:
        """Return where an image begins at a depth."""
        return (number * self.depths + depth) * self.size


# Elements of planes whose places are remembered: a small layer has no time to work them out.
KEPT_ELEMENTS = 1 << 18


class PlanePlaces(NamedTuple):
    """Where planes hold what, whatever their elements are.

    rows, cols   that hold pixels, and which pixels of an image these are, as slices
    pixels       where they begin; read: where each output pixel begins to read, under the first tap
    taps         (KH * KW,) the distance from the first tap's place to that of each tap
    inner        where the pixels of an image begin; None if the kernel skips any
    """

    rows: tuple[slice, slice]
    cols: tuple[slice, slice]
    pixels: Places
    read: Places
    taps: Places
    inner: Places | None


def plane_places(shape: tuple[int, ...], sliding: Sliding) -> PlanePlaces:
    """Return the places in planes (N, D, height, width, channels); nobody may change the arrays."""
    made = _remembered if prod(shape) <= KEPT_ELEMENTS else _plane_places
    return made(shape[2:], sliding)


def _plane_places(shape: tuple[int, ...], sliding: Sliding) -> PlanePlaces:
    height, width, channels = shape
    rows, cols = (_pixels(sliding, axis, extent) for axis, extent in enumerate((height, width)))

    def grid(down: Places, across: Places) -> Places:
        places: Places = (down[:, None] * width + across) * channels
        return places.reshape(-1)

    def steps(sizes: Sequence[int], apart: Sequence[int]) -> Places:
        return grid(*(np.arange(size) * step for size, step in zip(sizes, apart, strict=True)))

    pixels = grid(np.arange(height)[rows[0]], np.arange(width)[cols[0]])
    given = tuple(some.stop - some.start for some in (rows[1], cols[1]))
    inner = pixels if given == tuple(sliding.image_size) else None
    read, taps = steps(sliding.out_size, sliding.stride), steps(sliding.kernel, sliding.dilation)
    return PlanePlaces(rows, cols, pixels, read, taps, inner)


# Two for each layer of a large network that differs from others.
_remembered = lru_cache(maxsize=64)(_plane_places)


@dataclass(frozen=True)
class Planes:
    """Elements (N, D, height, width, channels) in which every place that the kernel reads is an element."""

    values: Floats
    sliding: Sliding

    @classmethod
    def of(cls, images: Elements, sliding: Sliding, channels: int, threads: Threads = ALONE) -> Planes:
        """Lay out images (N, C, D, H, W); channels beyond theirs, padding and what lies between are +0."""
        # These zeros are multiplied as the cube multiplies them: they take their places in a block, and an
        # infinite weight makes NaN of them.
        batch, given, depth = images.shape[:3]
        shape = batch, depth, *(_extent(sliding, axis) for axis in (0, 1)), channels
        known = plane_places(shape, sliding)
        (rows, from_rows), (cols, from_cols) = known.rows, known.cols
        values = _framed(shape, rows, cols, given)
        places = known.pixels
        if depth > 1:
            places = (np.arange(depth)[:, None] * prod(shape[2:]) + places).reshape(-1)
        pixels = images[:, :, :, from_rows, from_cols].reshape(batch, given, -1)
        turn_to(pixels, places, values, threads)
        return cls(values, sliding)

    @cached_property
    def places(self) -> PlanePlaces:
        """Where the planes hold what."""
        return plane_places(self.values.shape, self.sliding)

    @cached_property
    def _flat(self) -> Values:
        # One for all products: what kernels measure of the elements is found once.
        return Values(self.values)

    @cached_property
    def read(self) -> PixelPlanes:
        """Where each output pixel of an image begins to read, under the first tap."""
        return self._pixels(self.places.read)

    def inner(self) -> PixelPlanes | None:
        """Return the pixels of the images among all that is here; None if the kernel skips any."""
        return None if self.places.inner is None else self._pixels(self.places.inner)

    def _pixels(self, places: Places) -> PixelPlanes:
        return PixelPlanes(self._flat, self.values.shape[1], prod(self.values.shape[2:]), places)


def _framed(shape: tuple[int, ...], rows: slice, cols: slice, channels: int) -> Floats:
    """Return memory for planes that is +0 wherever no pixel is put: most of it is not written twice."""
    if rows.step != 1 or cols.step != 1 or channels != shape[-1]:
        return np.zeros(shape, np.float32)
    values = np.empty(shape, np.float32)
    values[:, :, : rows.start] = values[:, :, rows.stop :] = 0.0
    values[:, :, rows, : cols.start] = values[:, :, rows, cols.stop :] = 0.0
    return values


def _extent(sliding: Sliding, axis: int) -> int:
    """Return the number of places between the first and the last that is read along an axis."""
    outputs, taps = sliding.out_size[axis], sliding.kernel[axis]
    return (outputs - 1) * sliding.stride[axis] + (taps - 1) * sliding.dilation[axis] + 1


def _pixels(sliding: Sliding, axis: int, extent: int) -> tuple[slice, slice]:
    """Return which places along an axis hold pixels, and which pixels these are."""
    # Pixel i lies at i * step + pad. A negative pad leaves the first pixels out; so may a stride the last.
    step, pad = sliding.insert[axis], sliding.pad[axis]
    first = max(0, -(pad // step))
    last = min(sliding.image_size[axis], (extent - 1 - pad) // step + 1)
    count = max(0, last - first)
    start = first * step + pad
    return slice(start, start + (count - 1) * step + 1 if count else start, step), slice(first, first + count)


def packed_kernels(weight: Elements, problem: ConvProblem, c0: int, threads: Threads = ALONE) -> Floats:
    """Return the result of `pack_weight` with a `unit` of 1, in one pass.

    Shapes   weight as `problem` says -> (groups, KD, C1, KH, KW, C0, columns)
    """
    groups, (depth, *size) = problem.groups, problem.kernel
    taps = prod(size)
    source = weight.reshape(groups, problem.small_channels, problem.big_channels, depth * taps)
    if problem.transposed:
        source = source.swapaxes(1, 2)
    reduced, columns = source.shape[1:3]
    shape = groups, depth, groups_of(reduced, c0), *size, c0, columns
    # Channels that the last group lacks are +0.
    packed = (np.zeros if reduced % c0 else np.empty)(shape, np.float32)
    of_group, of_depth = packed[:1].size, packed[:1, :1].size
    channel = np.arange(reduced)
    begins = (channel // c0 * taps * c0 + channel % c0) * columns
    goals = np.arange(groups)[:, None] * of_group + begins
    places = np.arange(depth)[:, None] * of_depth + np.arange(taps) * c0 * columns
    matrices = source.reshape(groups * reduced, columns, depth * taps)
    turn_to(matrices, places.reshape(-1), packed, threads, goals.reshape(-1))
    return packed


class Formats:
    """Conversions of a call's tensors before a product, and of gradients after it.

    Types    tensors: float32 carriers, or those of binary16 as they are stored, and then gradients in
             binary16 are stored as well
    """

    def __init__(self, call: Call, tensors: Mapping[str, Elements], threads: Threads) -> None:
        self._call, self._threads = call, threads
        self._given = {name: np.ascontiguousarray(values) for name, values in tensors.items()}
        self._stores = any(map(is_stored, self._given.values()))
        self._carriers: dict[str, Floats] = {}
        self._operands: dict[tuple[str, str], Floats] = {}
        # Kernels whose conversions cut a value off, by the names that the executor gives them.
        self.overflowed: set[str] = set()

    def operand(self, name: str, math: MathSettings) -> Floats:
        """Return a tensor on the grid that the cube multiplies: cast to its storage format, then to HF32."""
        # Both products read grad_output, as a rule with the same rounding.
        key = name, math.hf32_ties
        if key not in self._operands:
            call = self._call
            values = self.cast(f"cast_{name}", self.carrier(name), call.dtypes[name], call.storage.name)
            multiplied = as_multiplied(values, call.compute_dtype, call.profile, math.hf32_ties)
            self._operands[key] = multiplied
        return self._operands[key]

    def image(self, name: str, math: MathSettings) -> Elements:
        """Return a tensor that is about to be laid out: binary16 as it is stored."""
        given = self._given[name]
        # In binary16 the cube multiplies the elements as they are.
        as_it_is = is_stored(given) and self._call.compute_dtype == HALF
        return given if as_it_is else self.operand(name, math)

    def carrier(self, name: str) -> Floats:
        """Return a tensor as it is given, as float32."""
        if name not in self._carriers:
            self._carriers[name] = as_carrier(self._given[name], self._threads)
        return self._carriers[name]

    def may_be_halves(self, gradient: str, overflow: str) -> bool:
        """Return whether a gradient is accumulators that are rounded to binary16 to nearest, stored as that.

        overflow   of the conversion that makes binary16 of them
        """
        return self._stores and self._call.dtypes[gradient] == HALF and overflow == "ieee"

    def overflow(self, target: str) -> str:
        """Return the overflow rule of conversions to a format without a Fixpipe."""
        return vector_overflow(self._call.profile, target)

    def leaving(self, sums: Elements, gradient: str, made: str, math: MathSettings) -> Elements:
        """Return accumulators as they leave the kernel of the product, in the format that it makes."""
        if is_stored(sums):
            return sums
        self._note(gradient, sums, made, math.overflow)
        if self._is_stored(gradient, made):
            return rounded_halves(sums, math.overflow, self._threads)
        return rounded(sums, made, math.overflow, threads=self._threads)

    def returned(self, gradient: str, values: Elements, made: str) -> Elements:
        """Return a gradient that was made in one format in the format asked for."""
        asked = self._call.dtypes[gradient]
        if is_stored(values):
            return values
        if not self._stores or asked != HALF:
            return self.cast(f"cast_{gradient}", values, made, asked)
        if made == HALF:
            return stored(values, HALF, self._threads)  # type: ignore[return-value]
        self._note(f"cast_{gradient}", values, HALF, self.overflow(HALF))
        return rounded_halves(values, self.overflow(HALF), self._threads)

    def cast(self, kernel: str, values: Floats, given: str, target: str) -> Floats:
        """Return values as a vector kernel converts them to another format; equal formats need no kernel."""
        if target == given:
            return values
        self._note(kernel, values, target, self.overflow(target))
        return rounded(values, target, self.overflow(target), threads=self._threads)

    def _note(self, kernel: str, values: Floats, target: str, overflow: str) -> None:
        if overflow != "ieee" and cuts_off(values, target):
            self.overflowed.add(kernel)

    def _is_stored(self, gradient: str, made: str) -> bool:
        """Return whether a gradient is stored in binary16 as its kernel makes it."""
        return self._stores and made == HALF == self._call.dtypes[gradient]
