"""Bring tensors into row-major order and out of it: Contiguous, permuted axes (Transpose), ViewCopy.

How a vector core reads scattered elements is published nowhere in numbers, so the cost is a stated
approximation: a line of elements with one stride is read either whole, gaps included, or in blocks of 32
bytes for each element, whichever is less; blocks that are then not in their place take one pass over UB.
Written are neighbours in one piece, and others in a block each: what lies between them is not the kernel's.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from math import ceil

from ascendsim.ops.problems.views import View
from ascendsim.ops.schedules.vector.elementwise import PIECE_BYTES, flat_phase, pieces
from ascendsim.profile import Profile
from ascendsim.program.kernel import Phase
from ascendsim.program.places import Gm, GmTensor
from ascendsim.program.program import Program, ProgramBuilder
from ascendsim.vector.instructions import CopyGmToUb, CopyUbToGm
from ascendsim.vector.rearrange import Rearrange


def gather(profile: Profile, source: GmTensor, view: View, target: GmTensor) -> Phase:
    """Return the phase that writes the elements of a view, in their order, to a flat tensor.

    Tensors  `source` and `target` (elements,): the carrier of a view holds its elements in their order, and
             where they lie counts only for the bytes that are read
    """
    # Bytes an element, gaps included; a broadcast view reads less than one element for each that it has.
    each, size = Fraction(view.bytes_read(source.itemsize), view.size), Fraction(source.itemsize)
    return _moved("gather", profile, source, view, target, each, size)


def scatter(profile: Profile, source: GmTensor, view: View, target: GmTensor) -> Phase:
    """Return the phase that puts the elements of a flat tensor in the places of a view.

    Tensors  `source` and `target` (elements,), as of `gather`: where they lie counts only for the bytes that
             are written
    """
    each, size = Fraction(view.bytes_written(source.itemsize), view.size), Fraction(source.itemsize)
    return _moved("scatter", profile, source, view, target, size, each)


def _moved(
    name: str, profile: Profile, source: GmTensor, view: View, target: GmTensor, *each: Fraction
) -> Phase:
    """Return the phase that brings the elements of a view over; `each` are the bytes it reads and writes."""
    build = partial(_program, source, target, each, view.in_place(source.itemsize))
    return flat_phase(name, profile, view.size, source.itemsize, build)


def _program(
    source: GmTensor,
    target: GmTensor,
    each: tuple[Fraction, ...],
    in_place: bool,
    profile: Profile,
    first: int,
    count: int,
) -> Program:
    """Bring `count` elements over, each of which reads and writes so many bytes."""
    limit = min(PIECE_BYTES, profile.buffers["UB"].capacity_bytes // 4)
    reads, writes = each
    # One of them is the size of an element; by the other it lies scattered in UB.
    scattered = writes if reads == source.itemsize else reads
    widest = max(scattered, Fraction(source.itemsize))
    b = ProgramBuilder(profile)
    piece = min(count, max(1, int(limit // widest)))
    loads = b.ring("UB", ceil(piece * max(reads, Fraction(source.itemsize))), "read", 2)
    results = loads if in_place else b.ring("UB", ceil(piece * writes), "written", 2)
    for start, size in pieces(first, first + count, piece):
        place = (slice(start, start + size),)
        result = load = loads.next()
        b.add(CopyGmToUb(load, Gm(source, place), ceil(size * reads), (size,)))
        if not in_place:
            result = results.next()
            b.add(Rearrange(result, load, ceil(size * scattered)))
        b.add(CopyUbToGm(Gm(target, place), result, ceil(size * writes)))
    return b.build()
