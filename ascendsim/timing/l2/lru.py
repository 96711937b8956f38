"""L2 as a stack: the bytes accessed last lie on top, and what lies deeper than the capacity has gone.

A whole residency moves to the top when it is accessed, and leaves byte by byte from the bottom. So within a
phase a larger stack holds all that a smaller one does, and never misses more. Below the stack lies what is
left of each tensor from before the phase.

To be compiled; `columns.py` names the columns of the arrays. The stack is a ring through `rows`: its last row
lies below the bottom and above the top.
"""

from typing import Any, Final

from ascendsim.timing.l2.columns import (
    ABOVE,
    ALL,
    BEFORE,
    BELOW,
    CAPACITY,
    DIRTY,
    EVEN,
    FETCH,
    FRONT,
    LISTED,
    LISTS,
    OLD,
    OLD_DIRTY,
    READ,
    READ_BYTES,
    RESIDENT,
    ROW,
    SIZE,
    TENSOR,
    TENSOR_ROW,
    USED,
    WRITE,
    WRITTEN_BYTES,
    Ints,
)
from ascendsim.timing.l2.slices import share_of


def begin(rows: Ints, tensors: Ints, tensor_count: int, ends: int) -> None:
    """Begin a phase: no residency has been accessed, and the stack is a ring of its two `ends` alone."""
    for number in range(ends + 1):
        row = ROW * number
        rows[row + RESIDENT] = rows[row + DIRTY] = rows[row + FETCH] = 0
        rows[row + BELOW] = -1
    rows[ROW * ends + BELOW] = rows[ROW * ends + ABOVE] = ends
    for tensor in range(0, TENSOR_ROW * tensor_count, TENSOR_ROW):
        tensors[tensor + FRONT] = 0


def end(rows: Ints, before: Ints, listed: Ints, state: Ints, ends: int) -> None:
    """End a phase: keep of every tensor only how much of it is here."""
    # The next phase or kernel names other slices of the same tensor. Which bytes of them are here would take
    # a map of addresses; the amount is enough where a tensor is gone through from begin to end.
    number = rows[ROW * ends + ABOVE]
    while number != ends:
        row = ROW * number
        tensor = rows[row + TENSOR]
        if not before[BEFORE * tensor + LISTED]:
            before[BEFORE * tensor + LISTED] = 1
            listed[state[LISTS]] = tensor
            state[LISTS] += 1
        before[BEFORE * tensor + EVEN] = 0
        before[BEFORE * tensor + OLD] += rows[row + RESIDENT]
        before[BEFORE * tensor + OLD_DIRTY] += rows[row + DIRTY]
        number = rows[row + ABOVE]


def put_on_top(rows: Ints, number: int, ends: int) -> None:
    """Move a residency to the top of the stack, or put it there."""
    if rows[ROW * number + BELOW] >= 0:
        take_out(rows, number)
    top = rows[ROW * ends + BELOW]
    rows[ROW * number + BELOW] = top
    rows[ROW * number + ABOVE] = ends
    rows[ROW * top + ABOVE] = number
    rows[ROW * ends + BELOW] = number


def take_out(rows: Ints, number: int) -> None:
    """Take a residency out of the stack."""
    below, above = rows[ROW * number + BELOW], rows[ROW * number + ABOVE]
    rows[ROW * below + ABOVE] = above
    rows[ROW * above + BELOW] = below
    rows[ROW * number + BELOW] = -1


def find(rows: Ints, tensors: Ints, before: Ints, number: int, ends: int) -> None:
    """Let a residency that is accessed for the first time in a phase find what is here of it.

    It begins in its tensor behind those that were accessed for the first time before it.
    """
    row = ROW * number
    tensor, size = TENSOR_ROW * rows[row + TENSOR], rows[row + SIZE]
    old = BEFORE * rows[row + TENSOR]
    kept, untouched = before[old + OLD], tensors[tensor + ALL] - tensors[tensor + FRONT]
    tensors[tensor + FRONT] += size
    if before[old + EVEN]:
        # What is here is spread over all of the tensor that was not accessed yet.
        found = share_of(size, min(kept, untouched), untouched)
    else:
        # What came last before is what is still here, so it is the end of the tensor that is found. A tensor
        # that is larger than L2 and read from the front again pushes its own end out before it gets there.
        found = min(size, max(0, size - (untouched - kept)))
    if kept and found:
        dirty = share_of(before[old + OLD_DIRTY], found, kept)
        rows[row + RESIDENT], rows[row + DIRTY] = found, dirty
        before[old + OLD] -= found
        before[old + OLD_DIRTY] -= dirty
        put_on_top(rows, number, ends)


def access(
    rows: Ints, tensors: Ints, before: Ints, listed: Ints, state: Ints, number: int, kind: int, cached: int,
    ends: int,
) -> int:  # fmt: skip
    """Read, write or add to a residency and make room for it; return the bytes that are fetched."""
    row = ROW * number
    if rows[row + FETCH] == 0:
        rows[row + FETCH] = 1
        find(rows, tensors, before, number, ends)
    size = rows[row + SIZE]
    missing = size - rows[row + RESIDENT]
    # A write replaces what was there, so its old bytes need not come; an atomic add needs them.
    fetched = 0 if kind == WRITE else missing
    state[READ_BYTES] += fetched
    if cached:
        rows[row + RESIDENT] = size
        if kind != READ:
            rows[row + DIRTY] = size
        put_on_top(rows, number, ends)
        state[USED] += missing
        make_room(rows, before, listed, state, ends)
    elif kind != READ:
        state[WRITTEN_BYTES] += size
    return fetched


def make_room(rows: Ints, before: Ints, listed: Ints, state: Ints, ends: int) -> None:
    """Let go of what lies too deep; what of it was dirty is written."""
    excess = state[USED] - state[CAPACITY]
    if excess <= 0:
        return
    state[USED] = state[CAPACITY]
    excess -= _let_go(excess, before, listed, state)
    # Then from the bottom of the stack; the one across the edge keeps what is above it.
    while excess:
        number = rows[ROW * ends + ABOVE]
        row = ROW * number
        resident = rows[row + RESIDENT]
        part = min(resident, excess)
        # Which of its bytes are dirty is not known, so they go in proportion.
        dirty = share_of(rows[row + DIRTY], part, resident)
        rows[row + RESIDENT] -= part
        rows[row + DIRTY] -= dirty
        state[WRITTEN_BYTES] += dirty
        excess -= part
        if part == resident:
            take_out(rows, number)


def _let_go(excess: int, before: Ints, listed: Ints, state: Ints) -> int:
    """Let go of bytes that are left from before; return how many went."""
    old = 0
    for at in range(state[LISTS]):
        old += before[BEFORE * listed[at] + OLD]
    # They were accessed before all that is on the stack, so they go first; from all tensors alike, since in
    # which order they came is not known any more.
    gone = all_gone = min(excess, old)
    for at in range(state[LISTS]):
        row = BEFORE * listed[at]
        resident = before[row + OLD]
        if gone and resident:
            # gone / old of it, rounded up
            part = resident - share_of(resident, old - gone, old)
            dirty = share_of(before[row + OLD_DIRTY], part, resident)
            before[row + OLD] -= part
            before[row + OLD_DIRTY] -= dirty
            state[WRITTEN_BYTES] += dirty
            old -= resident
            gone -= part
    return all_gone


FUNCTIONS: Final[tuple[Any, ...]] = (take_out, put_on_top, find, _let_go, make_room, access, begin, end)
