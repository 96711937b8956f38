"""One phase through L2: which transfer shares which fetch. To be compiled (`WALK`)."""

from typing import Any, Final

from ascendsim.native import Native
from ascendsim.timing.l2.columns import (
    CACHED,
    CORES,
    FETCH,
    FETCH_ROW,
    FETCHED,
    GROUP_BITS,
    KIND,
    LANE,
    ROW,
    SHARERS,
    SIZE,
    TENSOR,
    TRAFFIC,
    WRITE,
    Ints,
)
from ascendsim.timing.l2.lru import FUNCTIONS as STACK
from ascendsim.timing.l2.lru import access, begin, end
from ascendsim.timing.l2.slices import accessing, share_of


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
    """Return how many numbers have a bit for each group."""
    return (lane_count + GROUP_BITS - 1) // GROUP_BITS


_FUNCTIONS: Final[Any] = (share_of, accessing, *STACK, words_of, _nobody_shares, _join, walk)
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
