"""Transfers of one phase that have equal outcomes, found by all that an outcome follows from.

To be compiled; `columns.py` names the columns of the arrays.
"""

from typing import Any, Final

from ascendsim.native import Native
from ascendsim.timing.l2.columns import (
    BEGIN,
    C_BYTES,
    C_CORES,
    C_FETCHED,
    C_OWN,
    C_READERS,
    C_SHARERS,
    C_TENSOR,
    CARRIES,
    CLASS,
    COMPANY,
    CORES,
    END,
    FETCH_ROW,
    FETCHED,
    KIND,
    LANE,
    PARTS,
    READ,
    ROW,
    SHARERS,
    SLICE_BYTES,
    TENSOR,
    TENSOR_ROW,
    TRAFFIC,
    Ints,
)


def classify(
    lanes: Ints, traffics: Ints, slices: Ints, table: Ints, rows: Ints, tensors: Ints, readers: Ints,
    fetches: Ints, joined: Ints, alone: Ints, classes: Ints, heads: Ints, behind: Ints, made: Ints,
    reads_carry: int, writes_carry: int, lane_count: int, head_count: int,
) -> int:  # fmt: skip
    """Give each transfer its class in `made`, and `classes` a row for each; return how many there are.

    Class 0 is that of a plain hit. `heads` (a power of two of them) and `behind` find a class by its hash.
    """
    for head in range(head_count):
        heads[head] = -1
    for column in range(CLASS):
        classes[column] = 0
    count = 1
    for lane in range(lane_count):
        cores = lanes[LANE * lane + CORES]
        for index in range(lanes[LANE * lane + BEGIN], lanes[LANE * lane + END]):
            # The row behind the last class is where the next candidate stands.
            row, known = CLASS * count, ROW * slices[index]
            tensor = rows[known + TENSOR]
            read = table[TRAFFIC * traffics[index] + KIND] == READ
            carries = reads_carry if read else writes_carry
            company = 1 if read and readers[index] > tensors[TENSOR_ROW * tensor + PARTS] else 0
            fetch = FETCH_ROW * joined[index]
            if not (company or carries or fetch or alone[index]):
                made[index] = 0
                continue
            for column in range(CLASS):
                classes[row + column] = 0
            classes[row + COMPANY], classes[row + CARRIES] = company, carries
            if company or fetch or alone[index]:
                classes[row + C_CORES], classes[row + C_TENSOR] = cores, tensor
            if fetch or alone[index]:
                classes[row + C_BYTES], classes[row + C_OWN] = rows[known + SLICE_BYTES], alone[index]
            if fetch:
                classes[row + C_FETCHED] = fetches[fetch + FETCHED]
                classes[row + C_SHARERS] = fetches[fetch + SHARERS]
                classes[row + C_READERS] = readers[index]
            made[index] = _number_of(count, classes, heads, head_count, behind)
            if made[index] == count:
                count += 1
    return count


def _number_of(candidate: int, classes: Ints, heads: Ints, head_count: int, behind: Ints) -> int:
    """Return the number of the class that equals a candidate; that of the candidate, now listed, if none."""
    mixed = 0
    for column in range(CLASS):
        # Kept below 2**31, so that no product leaves 64 bits.
        mixed = (mixed * 1000003 + classes[CLASS * candidate + column]) & 0x7FFFFFFF
    # The low bits of a product follow from the low bits of its factors alone; those above have seen all.
    head = (mixed >> 8) & (head_count - 1)
    number = heads[head]
    while number >= 0:
        column = 0
        while column < CLASS and classes[CLASS * number + column] == classes[CLASS * candidate + column]:
            column += 1
        if column == CLASS:
            return number
        number = behind[number]
    behind[candidate] = heads[head]
    heads[head] = candidate
    return candidate


_FUNCTIONS: Final[Any] = (_number_of, classify)
_TRANSFERS, _ROWS = "int32[]", "int64[]"
CLASSIFY: Final = Native(
    _FUNCTIONS,
    (_ROWS, _TRANSFERS, _TRANSFERS, *[_ROWS] * 5, _TRANSFERS, *[_ROWS] * 4, _TRANSFERS, *["int64"] * 4),
)
