"""The slices of GM that the transfers of a phase name, and how many bytes of L2 they stand for.

To be compiled; `columns.py` names the columns of the arrays.
"""

from typing import Any, Final

from ascendsim.timing.l2.columns import (
    ALL,
    APART,
    BEGIN,
    BYTES,
    CORES,
    END,
    KIND,
    KNOWN,
    L2_READ,
    L2_WRITTEN,
    LANE,
    OF_TENSOR,
    OTHERS,
    PARTS,
    READ,
    ROW,
    SIZE,
    SLICE_BYTES,
    SLICES_READ,
    SLICES_WRITTEN,
    TENSOR,
    TENSOR_BYTES,
    TENSOR_ROW,
    TRAFFIC,
    WHOLE,
    Ints,
)

# Two factors below this have a product that 64 bits hold.
HALF = 1 << 31


def share_of(value: int, part: int, whole: int) -> int:
    """Return value * part // whole, for 0 <= part <= whole < 2**61, however large the product."""
    if value < HALF and part < HALF:
        return value * part // whole
    # Long division, bit by bit: before it is reduced the rest stays below 3 * whole.
    result = 0
    rest = 0
    for bit in range(61, -1, -1):
        result *= 2
        rest *= 2
        if (value >> bit) & 1:
            rest += part
        while rest >= whole:
            rest -= whole
            result += 1
    return result


def measure(
    lanes: Ints, lane_count: int, traffics: Ints, slices: Ints, table: Ints, rows: Ints, tensors: Ints,
    own: Ints, newest: Ints, moved: Ints, known: int,
) -> int:  # fmt: skip
    """Find the bytes of every slice, and number the residencies of groups; return the number of residencies.

    `own` receives for each transfer the residency of the other cores of its group, -1 without; `newest` has
    two zeros for each slice: for the group that named it last, and the residency that it has there.
    """
    made = known
    for lane in range(lane_count):
        cores = lanes[LANE * lane + CORES]
        for index in range(lanes[LANE * lane + BEGIN], lanes[LANE * lane + END]):
            traffic = TRAFFIC * traffics[index]
            size = _slice_bytes(slices[index], traffic, table, rows, tensors)
            out = table[traffic + KIND] != READ
            moved[SLICES_WRITTEN if out else SLICES_READ] += cores * size
            moved[L2_WRITTEN if out else L2_READ] += cores * table[traffic + BYTES]
            own[index] = -1
            if cores > 1:
                note = 2 * slices[index]
                if newest[note] != lane + 1:
                    newest[note], newest[note + 1] = lane + 1, made
                    tensor = rows[ROW * slices[index] + TENSOR]
                    rows[ROW * made + SIZE] = (cores - 1) * size
                    rows[ROW * made + TENSOR] = tensor
                    tensors[TENSOR_ROW * tensor + OTHERS] += (cores - 1) * size
                    made += 1
                own[index] = newest[note + 1]
    return made


def _slice_bytes(number: int, traffic: int, table: Ints, rows: Ints, tensors: Ints) -> int:
    """Return the bytes of a slice: those of the first transfer that names it."""
    row = ROW * number
    if rows[row + SLICE_BYTES] == 0:
        size, tensor = table[traffic + BYTES], table[traffic + OF_TENSOR]
        rows[row + SLICE_BYTES] = rows[row + SIZE] = size
        rows[row + TENSOR] = tensor
        tensors[TENSOR_ROW * tensor + KNOWN] += size
        tensors[TENSOR_ROW * tensor + WHOLE] = table[traffic + TENSOR_BYTES]
    return rows[row + SLICE_BYTES]


def cut(rows: Ints, tensors: Ints, tensor_count: int, known: int, made: int) -> None:
    """Give residencies their sizes; find by tensor which part of the unknown slices is no known one.

    Slices that are not known lie apart as far as the tensor is large enough for them beside the known ones;
    for the rest they are the known ones. Known slices of more bytes than there are overlap, so each counts
    for its part of what there is.
    """
    # The pass knows the program of one core of a group. Where the others read follows from how much there is
    # to read: equal cores that cut a tensor among them fill it; if it is too small for that, they share it.
    for tensor in range(0, TENSOR_ROW * tensor_count, TENSOR_ROW):
        others = tensors[tensor + OTHERS]
        apart = max(0, min(others, tensors[tensor + WHOLE] - tensors[tensor + KNOWN]))
        # Shares of a core are counted in parts of one; few large parts keep their sums small.
        common, rest = max(1, others), apart
        while rest:
            common, rest = rest, common % rest
        tensors[tensor + APART] = apart // common
        tensors[tensor + PARTS] = max(1, others) // common
    for number in range(made):
        row = ROW * number
        tensor = TENSOR_ROW * rows[row + TENSOR]
        apart, whole = tensors[tensor + APART], tensors[tensor + WHOLE]
        # At least a byte: what has none is never missed.
        if number < known:
            # Nobody need name a slice of this number.
            if rows[row + SIZE] and tensors[tensor + KNOWN] > whole:
                rows[row + SIZE] = max(1, share_of(rows[row + SIZE], whole, tensors[tensor + KNOWN]))
        elif apart:
            rows[row + SIZE] = max(1, share_of(rows[row + SIZE], apart, tensors[tensor + PARTS]))
        else:
            # All cores share the known slice: a residency of no bytes is none.
            rows[row + SIZE] = 0
        tensors[tensor + ALL] += rows[row + SIZE]


def accessing(cores: int, tensor: int, tensors: Ints) -> int:
    """Return how many cores of a group access the known slice that it names, in parts of a core."""
    # One core names the slice itself; of the others, those that have none of their own.
    parts = tensors[TENSOR_ROW * tensor + PARTS]
    return parts + (cores - 1) * (parts - tensors[TENSOR_ROW * tensor + APART])


FUNCTIONS: Final[tuple[Any, ...]] = (share_of, _slice_bytes, measure, cut, accessing)
