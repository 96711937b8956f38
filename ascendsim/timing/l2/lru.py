"""L2 as a stack: the bytes accessed last lie on top, and what lies deeper than the capacity has gone.

A whole residency moves to the top when it is accessed, and leaves byte by byte from the bottom. So within a
phase a larger stack holds all that a smaller one does, and never misses more. Below the stack lies what is
left of each tensor from before the phase.

To be compiled; `slices.py` names the columns of the arrays. The stack is a ring through `rows`: its last row
lies below the bottom and above the top.
"""

from typing import Any, Final

from ascendsim.native import Native
from ascendsim.timing.l2.slices import (
    ABOVE,
    ALL,
    BEFORE,
    BELOW,
    CACHED,
    CAPACITY,
    CORES,
    DIRTY,
    EVEN,
    FETCH,
    FETCH_ROW,
    FETCHED,
    FRONT,
    GROUP_BITS,
    KIND,
    LANE,
    LISTED,
    LISTS,
    OLD,
    OLD_DIRTY,
    READ,
    READ_BYTES,
    RESIDENT,
    ROW,
    SHARERS,
    SIZE,
    TENSOR,
    TENSOR_ROW,
    TRAFFIC,
    USED,
    WRITE,
    WRITTEN_BYTES,
    Ints,
    accessing,
    share_of,
)


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


def walk(
    lanes: Ints, traffics: Ints, slices: Ints, table: Ints, rows: Ints, tensors: Ints, own: Ints,
    sequence: Ints, owners: Ints, begins: Ints, sizes: Ints, before: Ints, listed: Ints, state: Ints,
    sharing: Ints, fetches: Ints, joined: Ints, alone: Ints, lane_count: int, tensor_count: int,
) -> int:  # fmt: skip
    """Send the accesses of a phase through L2; return the number of the last fetch.

    `joined` receives for each transfer the fetch of its known slice that it shares (0: none), `alone` the
    bytes that came for slices of the other cores of its group.
    """
    ends, fetch, words = sizes[1], 1, words_of(lane_count)
    begin(rows, tensors, tensor_count, ends)
    for index in range(begins[sizes[2]]):
        joined[index] = alone[index] = 0
    for number in range(sizes[2]):
        index = sequence[begins[number]]
        known, traffic = slices[index], TRAFFIC * traffics[index]
        kind = table[traffic + KIND]
        fetched = access(rows, tensors, before, listed, state, known, kind, table[traffic + CACHED], ends)
        if fetched:
            fetch += 1
            rows[ROW * known + FETCH] = fetch
            fetches[FETCH_ROW * fetch + FETCHED] = fetched
            fetches[FETCH_ROW * fetch + SHARERS] = 0
            _nobody_shares(known, words, sharing)
        # A write needs nothing of what was fetched, so it has no part in the fetching.
        if rows[ROW * known + FETCH] > 1 and kind != WRITE:
            for at in range(begins[number], begins[number + 1]):
                _join(known, sequence[at], owners[at], words, lanes, rows, tensors, sharing, fetches, joined)
        for at in range(begins[number], begins[number + 1]):
            index = sequence[at]
            other, traffic = own[index], TRAFFIC * traffics[index]
            if other >= 0 and rows[ROW * other + SIZE]:
                alone[index] = access(rows, tensors, before, listed, state, other, kind,
                                      table[traffic + CACHED], ends)  # fmt: skip
    end(rows, before, listed, state, ends)
    return fetch


def _nobody_shares(known: int, words: int, sharing: Ints) -> None:
    """Begin with nobody who shares the newest fetch of a known slice."""
    for word in range(words * known, words * known + words):
        sharing[word] = 0


def _join(
    known: int, index: int, lane: int, words: int, lanes: Ints, rows: Ints, tensors: Ints, sharing: Ints,
    fetches: Ints, joined: Ints,
) -> None:  # fmt: skip
    """Let a transfer share the newest fetch of a known slice, if its group has not found its bytes before."""
    word, bit = words * known + lane // GROUP_BITS, 1 << lane % GROUP_BITS
    # A core that comes again has had its part: what it finds then costs memory nothing.
    if not sharing[word] & bit:
        sharing[word] |= bit
        fetch = rows[ROW * known + FETCH]
        cores = accessing(lanes[LANE * lane + CORES], rows[ROW * known + TENSOR], tensors)
        fetches[FETCH_ROW * fetch + SHARERS] += cores
        joined[index] = fetch


def words_of(lane_count: int) -> int:
    """Return the number of integers that hold one bit for each group."""
    return (lane_count + GROUP_BITS - 1) // GROUP_BITS


_FUNCTIONS: Final[Any] = (share_of, accessing, *FUNCTIONS, words_of, _nobody_shares, _join, walk)
_TRANSFERS, _ROWS = "int32[]", "int64[]"
WALK: Final = Native(
    _FUNCTIONS,
    (
        _ROWS,
        _TRANSFERS,
        _TRANSFERS,
        _ROWS,
        _ROWS,
        _ROWS,
        *[_TRANSFERS] * 4,
        *[_ROWS] * 6,
        _TRANSFERS,
        _ROWS,
        *["int64"] * 2,
    ),
)
