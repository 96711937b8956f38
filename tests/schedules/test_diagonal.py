"""Are blocks put on the diagonal of a merged matrix, and picked out of it, element by element as said?"""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ascendsim.vector.relayout import OffDiagonal, OntoDiagonal

SMALL = st.integers(1, 4)


@given(
    block=st.tuples(SMALL, SMALL), row=SMALL, rows=SMALL, depths=SMALL, taps=SMALL,
    c0=st.sampled_from([1, 2, 3]), groups=SMALL, columns=st.integers(1, 9),
    first=st.tuples(st.integers(0, 6), st.integers(0, 6)), reduces_small=st.booleans(),
)  # fmt: skip
def test_each_element_of_a_block_is_put_where_its_row_and_column_are(
    block, row, rows, depths, taps, c0, groups, columns, first, reduces_small
):
    tile = 1 + np.arange(rows * block[1] * depths * taps, dtype=np.float32)
    tile = tile.reshape(rows, block[1], depths, taps)
    padded = (groups * c0, columns, depths, taps)
    want = np.zeros((depths, groups, taps, c0, columns), np.float32)
    for (at, column, depth, tap), value in np.ndenumerate(tile):
        small = row + at
        # The columns of a block begin where those of the groups before it end.
        big = small // block[0] * block[1] + column
        down, across = (small, big) if reduces_small else (big, small)
        down, across = down - first[0], across - first[1]
        if 0 <= down < groups * c0 and 0 <= across < columns:
            want[depth, down // c0, tap, down % c0, across] = value
    made = OntoDiagonal(padded, first, row, block, c0, reduces_small).turned(tile)
    np.testing.assert_array_equal(made, want)


@given(
    block=st.tuples(SMALL, SMALL), row=SMALL, rows=SMALL, depths=SMALL, taps=SMALL,
    c0=st.sampled_from([1, 2, 3]), data=st.data(),
)  # fmt: skip
def test_each_element_of_a_block_is_picked_from_where_it_lies(block, row, rows, depths, taps, c0, data):
    # As many columns as the last row needs.
    most = ((row + rows - 1) // block[0] + 1) * block[1]
    padded = (depths, rows, -(-most // c0), taps, c0)
    tile = np.arange(np.prod(padded), dtype=np.float32).reshape(padded)
    kept = data.draw(st.integers(1, rows))
    made = OffDiagonal(padded, row, block, kept).turned(tile)
    assert made.shape == (kept, block[1], depths, taps)
    for (at, column, depth, tap), value in np.ndenumerate(made):
        big = (row + at) // block[0] * block[1] + column
        assert value == tile[depth, at, big // c0, tap, big % c0]
