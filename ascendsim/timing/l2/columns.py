"""The arrays of the walk: tables of integers, row after row, and the names of their columns.

Compiled code takes 1-D arrays alone, so column C of row r of a table is `table[WIDTH * r + C]`. Tables are
int64, arrays with a number of something for each transfer or access int32.

A slice is one residency of L2. Of a group of equal cores only the slice of one is known; the others may have
slices like it of their own, in one more residency for each group. The known slices come first, by their
number, then those of groups, then one more row, which holds the two ends of the stack.
"""

from collections.abc import MutableSequence

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
