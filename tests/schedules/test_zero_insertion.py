"""Do zeros between pixels come into L1 through UB as by a strided copy, and what does it cost?

Costs are reckoned by hand from the round figures of the toy product with unified cores (`toy_profiles.py`):
a vector instruction takes 2 cycles and 1 for each 256 bytes; UB to L1 64 bytes a cycle after 4, visible 10
later.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascendsim.cube.loads import Window
from ascendsim.cube.movers import CopyGmToL1, FillL1, Placement
from ascendsim.numerics.accumulation.models import AccumulationModel, MathSettings
from ascendsim.ops.problems.sliding import ImageTile
from ascendsim.ops.schedules.zero_insertion import ZeroInsertion, pieces
from ascendsim.program.instruction import Cost
from ascendsim.program.nest import Nest
from ascendsim.program.places import CoreMemory, Gm, GmTensor, Slot
from ascendsim.program.program import NestProgram
from ascendsim.vector.instructions import CopyGmToUb, Fill
from ascendsim.vector.relayout import CopyUbToL1, SpreadPixels
from tests.helpers.toy_profiles import toy_unified

TOY = toy_unified(**{"buffers.L1.capacity_bytes": 1 << 20})
C0 = 16
A, B, L1 = Slot("UB", 4096, "a", 0), Slot("UB", 4096, "b", 1), Slot("L1", 8192, "tile", 2)


def memory(**gm):
    return CoreMemory(gm, MathSettings(AccumulationModel.parse("block:16:RNE")), {})


def tile_of(channels, taken, steps, offsets, extra):
    """Make a tile whose image lines lie at offset + i * step, with `extra` ones behind the last."""
    sizes = [
        at + (count - 1) * step + 1 + more
        for count, step, at, more in zip(taken, steps, offsets, extra, strict=True)
    ]
    window = Window(channels, *sizes, 0, 0, 1, (1, 1), (1, 1), (1, 1), C0)
    placement = Placement(*offsets, *steps)
    rows, cols = (slice(0, count) for count in taken)
    size = channels * sizes[0] * sizes[1] * 32
    return ImageTile(window, 0, rows, cols, placement, True, 0, size)


tiles = st.builds(
    tile_of,
    st.integers(1, 3),
    st.tuples(st.integers(1, 5), st.integers(1, 6)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
    st.tuples(st.integers(0, 2), st.integers(0, 2)),
)


# --- pieces


def test_a_piece_knows_which_rows_of_the_image_lie_in_it():
    # 7 rows of one pixel with step 2: image rows 0, 1, 2, 3 lie in rows 0, 2, 4, 6. Three rows of 32 bytes a
    # piece: rows 0 to 2 hold image rows 0 and 1, rows 3 to 5 image row 2 in their middle, row 6 image row 3.
    tile = tile_of(1, (4, 1), (2, 1), (0, 0), (0, 0))
    found = [(piece.rows, piece.source_rows, piece.at) for piece in pieces(tile, 96)]
    assert found == [
        (range(3), range(2), (0, 0)),
        (range(3, 6), range(2, 3), (1, 0)),
        (range(6, 7), range(3, 4), (0, 0)),
    ]


@given(tile=tiles, most=st.integers(1, 40).map(lambda pixels: 32 * pixels))
def test_pieces_cover_a_tile_once_and_never_take_more_than_they_may(tile, most):
    w = tile.window
    seen = np.zeros((w.channels, w.rows, w.cols), int)
    for piece in pieces(tile, most):
        box = piece.channels, piece.rows, piece.cols
        seen[np.ix_(*box)] += 1
        assert 32 * np.prod([len(part) for part in box]) <= most
    assert (seen == 1).all()


def test_a_piece_is_as_many_whole_channel_groups_as_fit():
    # 2 x 2 pixels of 32 bytes: 128 bytes a group, so 300 bytes hold two of three groups.
    tile = tile_of(3, (2, 2), (1, 1), (0, 0), (0, 0))
    assert [piece.channels for piece in pieces(tile, 300)] == [range(2), range(2, 3)]


# --- the way through UB


@given(tile=tiles)
@settings(deadline=None)
def test_a_tile_is_the_one_that_a_strided_copy_makes(tile):
    shape = 1, 1, 1, tile.window.channels, tile.rows.stop, tile.cols.stop, C0
    image = GmTensor("image", shape, "float16", 2)
    values = np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)
    plain, through_ub = memory(image=values), memory(image=values)
    FillL1(L1, tile.l1_bytes, tile.window.tile_shape).execute(plain)
    whole = Gm(image, (0, 0, 0, slice(None), tile.rows, tile.cols))
    CopyGmToL1(L1, whole, 0, (), tile.window, tile.placement).execute(plain)

    program, slot = through(tile, image)
    for instruction in program.instructions:
        instruction.execute(through_ub)
    np.testing.assert_array_equal(through_ub.tile(slot), plain.tile(L1))


def through(tile, image):
    """The program that brings tiles through UB, of which one is told, and the slot where it arrives."""
    nest = Nest(TOY)
    nest.task(own=1)
    [slot] = nest.slots("L1", 8192, "tile")
    whole = slice(0, tile.window.channels)
    # The only one of its images, pixels and boxes of taps; no index before it tells it.
    at = [nest.let(0, name) for name in ("group", "image", "depth", "pixels", "box")]
    ZeroInsertion(nest).load(slot, image, at, lambda pixels, box: tile, [whole])  # noqa: ARG005 - there is one
    return NestProgram(nest, np.zeros((1, 1))), slot


def test_pieces_take_half_of_ub_and_leave_the_other_half_to_results():
    # 4096 bytes: an eighth is 512, and there are two pieces and two of pixels.
    nest = Nest(TOY)
    ZeroInsertion(nest)
    assert nest.room("UB") == 2048


IMAGE = GmTensor("image", (1, 1, 1, 3, 2, 2, C0), "float16", 2)


def test_a_tile_goes_from_pipe_to_pipe():
    program, _ = through(tile_of(1, (2, 2), (2, 2), (0, 0), (0, 0)), IMAGE)
    kinds = [(type(i), i.pipe) for i in program.instructions]
    assert kinds == [(Fill, "V"), (CopyGmToUb, "MTE2"), (SpreadPixels, "V"), (CopyUbToL1, "MTE3")]


def moved(tile):
    """Return kind and bytes of the instructions of a tile."""
    program, _ = through(tile, IMAGE)
    return [(type(i), i.bytes) for i in program.instructions if not isinstance(i, SpreadPixels)]


def test_a_tile_moves_the_pixels_that_it_takes_and_all_that_it_has():
    # Three channel groups of one row of 2 pixels, 32 bytes each, which stand in 5 of them.
    tile = tile_of(3, (1, 2), (1, 3), (0, 0), (0, 1))
    assert moved(tile) == [(Fill, 480), (CopyGmToUb, 192), (CopyUbToL1, 480)]


def test_a_piece_without_a_pixel_of_the_image_is_zeros():
    # 512 bytes a piece hold two rows of 8 pixels. Row 0 has the first row of the image, row 4 the second:
    # the piece of rows 2 and 3 has none.
    tile = tile_of(1, (2, 2), (4, 7), (0, 0), (0, 0))
    assert moved(tile) == [
        *[(Fill, 512), (CopyGmToUb, 64), (CopyUbToL1, 512)],
        *[(Fill, 512), (CopyUbToL1, 512)],
        *[(Fill, 256), (CopyGmToUb, 64), (CopyUbToL1, 256)],
    ]


def test_a_tile_without_a_pixel_of_the_image_has_no_pieces():
    # It is cleared in L1.
    tile = tile_of(3, (1, 2), (1, 3), (0, 0), (0, 1))._replace(rows=None, cols=None)
    assert moved(tile) == []


# --- instructions


def test_pixels_are_spread_between_zeros():
    mem = memory()
    mem.new_tile(A, (1, 3, 4, 1)).fill(0)
    mem.new_tile(B, (1, 2, 2, 1))[...] = np.array([1, 2, 3, 4], np.float32).reshape(1, 2, 2, 1)
    SpreadPixels(A, B, 1, 2, 2, 32, (0, 1), (2, 2)).execute(mem)
    assert mem.tile(A)[0, :, :, 0].tolist() == [[0, 1, 0, 2], [0, 0, 0, 0], [0, 3, 0, 4]]


@pytest.mark.parametrize(("channels", "rows", "cols", "cycles"), [(1, 1, 8, 3), (1, 1, 9, 4), (2, 3, 9, 24)])
def test_spreading_costs_a_command_for_each_row_of_each_group(channels, rows, cols, cycles):
    # 8 pixels of 32 bytes are one repeat: 2 + 1 cycles; 9 are two: 2 + 2. Six rows of them take 24.
    spread = SpreadPixels(A, B, channels, rows, cols, 32, (0, 0), (2, 2))
    assert spread.cost(TOY).cycles == cycles
    assert (spread.pipe, spread.reads, spread.writes) == ("V", (A, B), (A,))


def test_a_piece_reaches_l1_at_the_rate_of_its_path():
    shape = 1, 2, 2, C0
    # 4 + ceil(65 / 64) = 6 cycles
    assert CopyUbToL1(L1, A, 65, shape, (0, 0, 0), True).cost(TOY) == Cost(6, 10)
    assert CopyUbToL1(L1, A, 64, shape, (0, 0, 0), True).cost(TOY) == Cost(5, 10)


def test_the_first_piece_begins_the_tile_and_the_others_leave_it():
    mem = memory()
    for number, row in enumerate(([1, 2], [3, 4])):
        mem.new_tile(A, (1, 1, 2, 1))[...] = np.array(row, np.float32).reshape(1, 1, 2, 1)
        CopyUbToL1(L1, A, 64, (1, 2, 2, 1), (0, number, 0), number == 0).execute(mem)
    assert mem.tile(L1)[:, 0].tolist() == [1, 2, 3, 4, 0]
