"""Bring tensors into row-major order: strided views (Contiguous) and permuted axes (Transpose).

How a vector core reads scattered elements is published nowhere in numbers, so the cost is a stated
approximation: a line of elements with one stride is read either whole, gaps included, or in blocks of 32
bytes for each element, whichever is less; blocks that are then not in their place take one pass over UB.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from math import ceil, prod
from typing import TYPE_CHECKING, NamedTuple

from ascendsim.ops.schedules.vector.elementwise import PIECE_BYTES, flat_phase
from ascendsim.program.builder import ProgramBuilder
from ascendsim.program.kernel import Phase
from ascendsim.program.places import Gm, GmTensor
from ascendsim.program.program import Program
from ascendsim.program.rings import Ring
from ascendsim.vector.instructions import CopyGmToUb, CopyUbToGm
from ascendsim.vector.rearrange import Rearrange

if TYPE_CHECKING:
    from ascendsim.profile import Profile

BLOCK_BYTES = 32  # the least that a transfer between GM and UB moves


class _View(NamedTuple):
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class View(_View):
    """Where the elements of a tensor lie: strides in elements, of any sign, zero for a repeated axis."""

    @classmethod
    def row_major(cls, shape: tuple[int, ...]) -> View:
        """Return the view of a contiguous tensor."""
        return cls(shape, tuple(prod(shape[axis + 1 :]) for axis in range(len(shape))))

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    def permuted(self, axes: tuple[int, ...]) -> View:
        """Return the view with its axes in another order."""
        return View(tuple(self.shape[a] for a in axes), tuple(self.strides[a] for a in axes))

    @cached_property
    def long_axes(self) -> list[tuple[int, int]]:
        """Return (extent, stride) of every axis with more than one element, outermost first."""
        pairs = zip(self.shape, self.strides, strict=True)
        return [(extent, abs(stride)) for extent, stride in pairs if extent > 1]

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie in row-major order without gaps."""
        dense = View.row_major(self.shape).strides
        return self.size == 0 or all(
            extent == 1 or stride == own
            for extent, stride, own in zip(self.shape, self.strides, dense, strict=True)
        )

    def bytes_read(self, itemsize: int) -> int:
        """Bytes that are read to collect all elements once."""
        length, stride = self._longest_line()
        whole = _blocks(((length - 1) * stride + 1) * itemsize)
        return self.size // length * min(whole, length * BLOCK_BYTES)

    def in_place(self, itemsize: int) -> bool:
        """Whether whole blocks already lie in the order of the elements, so that nothing moves in UB."""
        run = 1
        for extent, stride in reversed(self.long_axes):
            if stride != run:
                break
            run *= extent
        return run * itemsize >= BLOCK_BYTES or run == self.size

    def _longest_line(self) -> tuple[int, int]:
        """Return length and stride of the line along the axis of least stride, with all that continues it."""
        if not self.long_axes:
            return 1, 1
        length, stride = min(self.long_axes, key=lambda axis: axis[1])
        rest = list(self.long_axes)
        rest.remove((length, stride))
        while stride and (following := next((axis for axis in rest if axis[1] == length * stride), None)):
            rest.remove(following)
            length *= following[0]
        return length, stride


def _blocks(size_bytes: int) -> int:
    return -(-size_bytes // BLOCK_BYTES) * BLOCK_BYTES


def gather(profile: Profile, source: GmTensor, view: View, target: GmTensor) -> Phase:
    """Return the phase that writes the elements of a view, in their order, to a flat tensor.

    Tensors  `source` and `target` (elements,): the carrier of a view holds its elements in their order, and
             where they lie counts only for the bytes that are read
    """
    each = Fraction(view.bytes_read(source.itemsize), view.size)
    in_place = view.in_place(source.itemsize)
    limit = min(PIECE_BYTES, profile.buffers["UB"].capacity_bytes // 4)
    widest = max(each, Fraction(source.itemsize))
    most = max(1, int(limit // widest))

    def program(profile: Profile, first: int, count: int) -> Program:
        b = ProgramBuilder(profile)
        piece = min(count, most)
        loads = Ring(b.slots("UB", ceil(piece * widest), "scattered", 2))
        rows = loads if in_place else Ring(b.slots("UB", piece * source.itemsize, "in order", 2))
        for start in range(first, first + count, piece):
            size = min(piece, first + count - start)
            place = (slice(start, start + size),)
            result = load = loads.next()
            b.add(CopyGmToUb(load, Gm(source, place), ceil(size * each), (size,)))
            if not in_place:
                result = rows.next()
                b.add(Rearrange(result, load, ceil(size * each)))
            b.add(CopyUbToGm(Gm(target, place), result, size * target.itemsize))
        return b.build()

    return flat_phase("gather", profile, view.size, source.itemsize, program)
