"""The slices of GM that the transfers of a phase name, and how many bytes of L2 they stand for.

To be compiled; the constants below name the columns of the arrays.
"""

from collections.abc import MutableSequence
from typing import Any, Final

from ascendsim.native import Native

# What an array is to the functions that are compiled.
Ints = MutableSequence[int]

# What a transfer does.
READ, WRITE, ATOMIC = range(3)

# `lanes`, a row for each group of equal cores: its transfers are those from BEGIN to before END.
BEGIN, END, CORES, LANE = range(4)

# `table`, a row for each traffic; KIND is one of the three above, the last two belong to its tensor.
OF_TENSOR, KIND, BYTES, CACHED, TENSOR_BYTES, TRAFFIC = range(6)

# `rows`, a row for each residency. SLICE_BYTES is what a transfer of it moves, SIZE what it has in L2. BELOW
# and ABOVE are the residencies beside it on the stack, or BELOW is -1. FETCH is 0 until the phase accesses
# it, then 1, then the number of the fetch that brought it.
SIZE, RESIDENT, DIRTY, TENSOR, BELOW, ABOVE, FETCH, SLICE_BYTES, ROW = range(9)

# `tensors`, a row for each. Bytes of its known slices, of the others, of itself, and of all residencies. Of
# the slices that are not known APART of PARTS are no known ones. FRONT bytes of residencies were accessed.
KNOWN, OTHERS, WHOLE, APART, PARTS, ALL, FRONT, TENSOR_ROW = range(8)

# `before`, a row for each tensor: bytes left from before the phase, how many are dirty, and whether it is
# among those that `listed` has in the order in which they came.
OLD, OLD_DIRTY, LISTED, EVEN, BEFORE = range(5)

# `state` of L2: its capacity, what it holds, bytes that crossed the link to memory, length of `listed`.
CAPACITY, USED, READ_BYTES, WRITTEN_BYTES, LISTS, STATE = range(6)

# `moved`: bytes of slices by direction, and bytes between cores and L2.
SLICES_READ, SLICES_WRITTEN, L2_READ, L2_WRITTEN, MOVED = range(5)

# `fetches`, a row for each, from number 2 on: its bytes, and how many cores share them, in parts of a core.
FETCHED, SHARERS, FETCH_ROW = range(3)
# `sharing`: the groups that share the newest fetch of a known slice, as bits, so many in each number.
GROUP_BITS = 32

# `classes`, a row for each class of transfers: all that an outcome follows from. Whether its cores read it
# in company, whether it carries what is pushed out; then cores, tensor and bytes; bytes, sharers and readers
# of the fetch of the known slice; bytes fetched for slices of their own.
COMPANY, CARRIES, C_CORES, C_TENSOR, C_BYTES, C_FETCHED, C_SHARERS, C_READERS, C_OWN, CLASS = range(10)


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
