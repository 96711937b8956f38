"""The accesses of a phase in rounds: the first transfer of every core, then the second of each, ...

Rounds stand for time, which is not known yet: how long transfers take depends on what L2 makes of them.
To be compiled; `columns.py` names the columns of the arrays.
"""

from typing import Any, Final

from ascendsim.native import Native
from ascendsim.timing.l2.columns import BEGIN, CORES, END, KIND, LANE, ROW, TENSOR, TRAFFIC, Ints
from ascendsim.timing.l2.slices import FUNCTIONS, accessing, cut, measure

# `room`, a row for each group: the groups that go on, in order; then what the transfers of a round do, each
# by its key, and the first and last group that does it; and behind each group the next that does the same.
ACTIVE, KEY, FIRST, LAST, NEXT, ROOM = range(6)


def prepare(
    lanes: Ints, traffics: Ints, slices: Ints, table: Ints, rows: Ints, tensors: Ints, own: Ints,
    newest: Ints, moved: Ints, room: Ints, sequence: Ints, owners: Ints, begins: Ints, readers: Ints,
    sizes: Ints, lane_count: int, tensor_count: int,
) -> int:  # fmt: skip
    """Cut the slices of a phase, and put its transfers into the order of their accesses.

    Transfers of one round that do the same to one slice access it together: access a is made by the transfers
    `sequence[begins[a]:begins[a + 1]]` of the groups `owners`. `readers` says for each transfer how many
    cores are with it, in parts of a core. `sizes` has the number of slices, and receives those of residencies
    and of accesses.
    """
    sizes[1] = measure(
        lanes, lane_count, traffics, slices, table, rows, tensors, own, newest, moved, sizes[0]
    )
    cut(rows, tensors, tensor_count, sizes[0], sizes[1])
    count = 0
    for lane in range(lane_count):
        if lanes[LANE * lane + BEGIN] < lanes[LANE * lane + END]:
            room[ROOM * count + ACTIVE] = lane
            count += 1
    accesses = filled = number = 0
    while count:
        chains = _round(number, count, lanes, traffics, slices, table, room)
        for chain in range(chains):
            begins[accesses] = filled
            lane, total = room[ROOM * chain + FIRST], 0
            tensor = rows[ROW * slices[lanes[LANE * lane + BEGIN] + number] + TENSOR]
            while lane >= 0:
                sequence[filled] = lanes[LANE * lane + BEGIN] + number
                owners[filled] = lane
                total += accessing(lanes[LANE * lane + CORES], tensor, tensors)
                filled += 1
                lane = room[ROOM * lane + NEXT]
            for at in range(begins[accesses], filled):
                readers[sequence[at]] = total
            accesses += 1
        number += 1
        going = 0
        for at in range(count):
            lane = room[ROOM * at + ACTIVE]
            if lanes[LANE * lane + BEGIN] + number < lanes[LANE * lane + END]:
                room[ROOM * going + ACTIVE] = lane
                going += 1
        count = going
    begins[accesses] = filled
    sizes[2] = accesses
    return accesses


def _round(
    number: int, count: int, lanes: Ints, traffics: Ints, slices: Ints, table: Ints, room: Ints
) -> int:
    """Chain the groups whose transfer `number` does the same to the same slice; return how many chains."""
    chains = 0
    for at in range(count):
        lane = room[ROOM * at + ACTIVE]
        index = lanes[LANE * lane + BEGIN] + number
        key = 3 * slices[index] + table[TRAFFIC * traffics[index] + KIND]
        chain = 0
        while chain < chains and room[ROOM * chain + KEY] != key:
            chain += 1
        if chain == chains:
            chains += 1
            room[ROOM * chain + KEY] = key
            room[ROOM * chain + FIRST] = lane
        else:
            room[ROOM * room[ROOM * chain + LAST] + NEXT] = lane
        room[ROOM * chain + LAST] = lane
        room[ROOM * lane + NEXT] = -1
    return chains


_FUNCTIONS: Final[Any] = (*FUNCTIONS, _round, prepare)
_TRANSFERS, _ROWS = "int32[]", "int64[]"
PREPARE: Final = Native(
    _FUNCTIONS,
    (
        _ROWS,
        *[_TRANSFERS] * 2,
        *[_ROWS] * 3,
        _TRANSFERS,
        *[_ROWS] * 3,
        *[_TRANSFERS] * 3,
        *[_ROWS] * 2,
        *["int64"] * 2,
    ),
)
