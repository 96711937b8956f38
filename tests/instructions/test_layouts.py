"""Do tensors come through the layouts of the cube, and its image tiles, as they should?"""

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ascendsim.instructions.cube import Im2col
from ascendsim.instructions.movers import CopyGmToL1, FillL1, LoadL0A
from ascendsim.numerics.accumulation import AccumulationModel, MathSettings
from ascendsim.ops.lowering.layouts import (
    groups_of,
    pack_activation,
    pack_weight,
    unpack_activation,
    unpack_weight,
)
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.problems.products import DgradGemm
from ascendsim.ops.problems.sliding import Sliding, Taps, cut_taps, first_box, first_boxes, segments_of
from ascendsim.program.places import CoreMemory, Gm, GmTensor, Slot

# --- Do tensors come through the cube's layouts unchanged, and lie where the cube reads them? ----------


def counted(shape):
    """Number the elements 1, 2, 3, ..., so that none equals a padding zero."""
    return np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)


@pytest.mark.parametrize(("channels", "groups"), [(1, 1), (15, 1), (16, 1), (17, 2), (32, 2), (33, 3)])
def test_channels_fill_groups_of_c0(channels, groups):
    assert groups_of(channels, 16) == groups


SHAPES = [
    ((2, 5, 3, 4), 1, 16),
    ((1, 17, 3, 4), 1, 16),
    ((3, 16, 1, 1), 1, 8),
    ((2, 6, 3, 4), 3, 8),
    ((2, 34, 2, 3, 4), 2, 16),
    ((1, 7, 9), 1, 8),
]


def spatial(shape):
    return (1,) * (5 - len(shape)) + shape[2:]


@pytest.mark.parametrize(("shape", "groups", "c0"), SHAPES)
def test_an_activation_comes_back_unchanged(shape, groups, c0):
    values, size = counted(shape), spatial(shape)
    packed = pack_activation(values, groups, size, c0)
    c1 = groups_of(shape[1] // groups, c0)
    assert packed.shape == (groups, shape[0], size[0], c1, size[1], size[2], c0)
    flat = packed.reshape(*packed.shape[:4], size[1] * size[2], c0)
    assert np.array_equal(unpack_activation(flat, shape[1] // groups, shape), values)


@pytest.mark.parametrize(("shape", "groups", "c0"), SHAPES)
def test_every_element_of_an_activation_lies_where_the_layout_says(shape, groups, c0):
    values, size = counted(shape), spatial(shape)
    packed = pack_activation(values, groups, size, c0)
    channels = shape[1] // groups
    plain = values.reshape(shape[0], shape[1], *size)
    for n, c, d, h, w in np.ndindex(plain.shape):
        group, channel = divmod(c, channels)
        assert packed[group, n, d, channel // c0, h, w, channel % c0] == plain[n, c, d, h, w]
    # everything else is zero
    assert np.count_nonzero(packed) == values.size


PROBLEMS = [
    ConvProblem((1, 5, 6, 7), (4, 5, 3, 2)),
    ConvProblem((1, 17, 6, 7), (19, 17, 1, 1)),
    ConvProblem((1, 6, 6, 7), (9, 2, 3, 3), groups=3),
    ConvProblem((1, 5, 6, 7), (5, 3, 3, 2), transposed=True),
    ConvProblem((1, 6, 4, 5), (6, 2, 2, 3), transposed=True, groups=2),
    ConvProblem((1, 3, 5, 6, 7), (4, 3, 2, 3, 1)),
    ConvProblem((1, 3, 9), (4, 3, 5)),
]


@pytest.mark.parametrize("reduce_small", [True, False])
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_every_weight_lies_where_the_reduction_walks(problem, reduce_small):
    c0 = 8
    values = counted(problem.weight)
    packed = pack_weight(values, problem, c0, reduce_small=reduce_small)
    plain = values.reshape(problem.groups, problem.small_channels, problem.big_channels, *problem.kernel)
    for group, small, big, d, h, w in np.ndindex(plain.shape):
        reduced, column = (small, big) if reduce_small else (big, small)
        assert (
            packed[group, d, reduced // c0, h, w, reduced % c0, column] == plain[group, small, big, d, h, w]
        )
    assert np.count_nonzero(packed) == values.size
    assert packed.shape[-1] % c0 == 0


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_a_filter_comes_back_in_the_shape_of_weight(problem):
    # Built element by element; what is padding holds NaN and is dropped.
    c0 = 8
    values = counted(problem.weight)
    plain = values.reshape(problem.groups, problem.small_channels, problem.big_channels, *problem.kernel)
    kd, kh, kw = problem.kernel
    rows, c1 = groups_of(problem.small_channels, c0) * c0, groups_of(problem.big_channels, c0)
    packed = np.full((problem.groups, kd, rows, c1, kh, kw, c0), np.nan, np.float32)
    for group, small, big, d, h, w in np.ndindex(plain.shape):
        packed[group, d, small, big // c0, h, w, big % c0] = plain[group, small, big, d, h, w]
    flat = packed.reshape(problem.groups, kd, rows, -1)
    assert np.array_equal(unpack_weight(flat, problem, c0), values)


# --- Does an image tile hold what its pixels need, and no more than was reserved? ----------------------

L1, L0A = Slot("L1", 1 << 20, "A1", 0), Slot("L0A", 1 << 20, "A0", 1)
MATH = MathSettings(AccumulationModel.parse("block:16:RNE"))


def sliding(out, image, kernel=(1, 1), *, stride=(1, 1), dilation=(1, 1), pad=(0, 0), insert=(1, 1), c0=2):
    return Sliding(out, image, kernel, stride, dilation, pad, insert, c0, 2)


def matrix(s, first, pixels, box, image):
    """Run the instructions that bring a range of pixels under a box of taps to L0A; return the matrix."""
    tile = s.tile(first, pixels, box)
    channels = image.shape[0]
    source = GmTensor("image", image.shape, "float16", 2)
    mem = CoreMemory({"image": image}, MATH, {})
    if tile.clear:
        FillL1(L1, tile.l1_bytes, tile.window.tile_shape).execute(mem)
    if tile.rows is not None:
        assert box.channel + box.channels <= channels
        index = (slice(box.channel, box.channel + box.channels), tile.rows, tile.cols)
        CopyGmToL1(L1, Gm(source, index), tile.gm_bytes, (), tile.window, tile.placement).execute(mem)
    view = Im2col(tile.window, tile.first_pixel, pixels, 0, box.groups, 2)
    LoadL0A(L0A, L1, view).execute(mem)
    return mem.tile(L0A)


def definition(s, first, pixels, box, image):
    """Write out the same matrix pixel by pixel, on the expanded image."""
    height, width = image.shape[1:3]
    rows = []
    for pixel in range(first, first + pixels):
        y, x = divmod(pixel, s.out_size[1])
        row = []
        for channel, i, j in product(range(box.channels), range(box.rows), range(box.cols)):
            at_y, rest_y = divmod(y * s.stride[0] + (box.row + i) * s.dilation[0] - s.pad[0], s.insert[0])
            at_x, rest_x = divmod(x * s.stride[1] + (box.col + j) * s.dilation[1] - s.pad[1], s.insert[1])
            inside = rest_y == rest_x == 0 and 0 <= at_y < height and 0 <= at_x < width
            row += list(image[box.channel + channel, at_y, at_x] if inside else np.zeros(s.c0))
        rows.append(row)
    return np.array(rows, np.float32)


pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))


@st.composite
def tiles(draw):
    """Draw a sliding kernel, a range of its pixels and a box of its taps."""
    kernel = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    s = sliding(
        draw(st.tuples(st.integers(1, 6), st.integers(1, 7))),
        draw(st.tuples(st.integers(1, 6), st.integers(1, 7))),
        kernel,
        stride=draw(pairs),
        dilation=draw(pairs),
        # the backward direction of a large padding gives negative pads
        pad=draw(st.tuples(st.integers(-3, 5), st.integers(-3, 5))),
        insert=draw(pairs),
    )
    first = draw(st.integers(0, s.pixels - 1))
    pixels = draw(st.integers(1, s.pixels - first))
    row, col = draw(st.integers(0, kernel[0] - 1)), draw(st.integers(0, kernel[1] - 1))
    channel = draw(st.integers(0, 1))
    box = Taps(
        channel,
        draw(st.integers(1, 2 - channel)),
        row,
        draw(st.integers(1, kernel[0] - row)),
        col,
        draw(st.integers(1, kernel[1] - col)),
    )
    return s, first, pixels, box


@settings(max_examples=300, deadline=None)
@given(tiles())
def test_the_tile_gives_every_pixel_its_patch(drawn):
    s, first, pixels, box = drawn
    image = np.arange(1, 2 * s.image_size[0] * s.image_size[1] * s.c0 + 1, dtype=np.float32)
    image = image.reshape(2, *s.image_size, s.c0)
    assert np.array_equal(matrix(s, first, pixels, box, image), definition(s, first, pixels, box, image))


@settings(max_examples=300, deadline=None)
@given(tiles())
def test_a_tile_names_the_bytes_that_it_moves_and_takes(drawn):
    s, first, pixels, box = drawn
    tile = s.tile(first, pixels, box)
    assert tile.l1_bytes == max(1, tile.window.rows * tile.window.cols) * box.channels * s.c0 * 2
    if tile.rows is None:
        assert tile.gm_bytes == 0
        return
    copied = (tile.rows.stop - tile.rows.start) * (tile.cols.stop - tile.cols.start)
    assert tile.gm_bytes == copied * box.channels * s.c0 * 2
    assert 0 < tile.gm_bytes <= tile.l1_bytes


@settings(max_examples=300, deadline=None)
@given(tiles(), st.integers(1, 20), st.booleans())
def test_no_tile_of_a_cut_is_larger_than_the_planner_reckons(drawn, pixels, in_row):
    s, _, _, box = drawn
    reckoned = s.tile_bytes(pixels, box, in_row=in_row)
    for first, count in s.pixel_tiles(pixels, in_row=in_row):
        assert s.tile(first, count, box).l1_bytes <= reckoned


@settings(max_examples=100, deadline=None)
@given(tiles(), st.integers(1, 20), st.booleans())
def test_a_cut_covers_every_pixel_once_and_in_order(drawn, pixels, in_row):
    s = drawn[0]
    ranges = s.pixel_tiles(pixels, in_row=in_row)
    assert [p for first, count in ranges for p in range(first, first + count)] == list(range(s.pixels))
    assert all(1 <= count <= pixels for _, count in ranges)
    if in_row:
        assert all(first // s.out_size[1] == (first + count - 1) // s.out_size[1] for first, count in ranges)


def test_a_range_inside_a_row_takes_only_the_columns_it_needs():
    # 10 outputs a row, kernel 3: outputs 12..14 lie in row 1, columns 2..4, and need rows 1..3, columns 2..6
    tile = sliding((8, 10), (10, 12), (3, 3)).tile(12, 3, Taps(0, 1, 0, 3, 0, 3))
    assert (tile.rows, tile.cols, tile.first_pixel) == (slice(1, 4), slice(2, 7), 0)
    assert tile.window.out_width == 3


def test_a_range_over_the_end_of_a_row_takes_whole_rows():
    tile = sliding((8, 10), (10, 12), (3, 3)).tile(18, 4, Taps(0, 1, 0, 3, 0, 3))
    assert (tile.rows, tile.cols, tile.first_pixel) == (slice(1, 5), slice(0, 12), 8)
    assert tile.window.out_width == 10


def test_padding_is_not_copied():
    # Output row 0 under pad 1 needs rows -1, 0, 1: only 0 and 1 exist; the window begins one row higher.
    tile = sliding((4, 4), (4, 4), (3, 3), pad=(1, 1)).tile(0, 4, Taps(0, 1, 0, 3, 0, 3))
    assert (tile.rows, tile.cols) == (slice(0, 2), slice(0, 4))
    assert (tile.window.top, tile.window.left) == (1, 1)
    assert not tile.clear


def test_inserted_zeros_are_cleared_and_only_pixels_are_copied():
    # Expanded by 2: pixels at 0, 2, 4; outputs 0..2 of one row need 0..2, so pixels 0 and 1 of three.
    tile = sliding((1, 5), (1, 3), insert=(1, 2)).tile(0, 3, Taps(0, 1, 0, 1, 0, 1))
    assert tile.clear
    assert (tile.cols, tile.placement.col_step) == (slice(0, 2), 2)
    assert tile.gm_bytes == 2 * 4  # two pixels of C0 = 2 float16
    assert tile.l1_bytes == 3 * 4


def test_a_tile_of_padding_alone_copies_nothing():
    tile = sliding((3, 3), (1, 1), pad=(5, 5)).tile(0, 3, Taps(0, 1, 0, 1, 0, 1))
    assert (tile.rows, tile.cols, tile.gm_bytes, tile.clear) == (None, None, 0, True)


def test_a_tile_between_the_pixels_copies_nothing():
    # Expanded row 1 of a step of 2 holds zeros only.
    tile = sliding((3, 4), (2, 4), insert=(2, 1)).tile(4, 4, Taps(0, 1, 0, 1, 0, 1))
    assert tile.rows is None
    assert (tile.window.rows, tile.clear) == (1, True)


# --- boxes of taps


boxes = st.builds(
    Taps,
    st.integers(0, 2),
    st.integers(1, 4),
    st.just(0),
    st.integers(1, 4),
    st.just(0),
    st.integers(1, 4),
)


def walk(box):
    """Return the (channel group, row, column) of a box in the order of the reduction."""
    return list(
        product(
            range(box.channel, box.channel + box.channels),
            range(box.row, box.row + box.rows),
            range(box.col, box.col + box.cols),
        )
    )


@given(boxes, st.integers(1, 900))
def test_a_cut_of_taps_is_the_reduction_in_order(whole, elements):
    cut = cut_taps(whole, elements, 16)
    assert [place for box in cut for place in walk(box)] == walk(whole)
    # the first box is the largest, and obeys the limit unless a single tap is above it
    assert first_box(whole, elements, 16).groups == max(box.groups for box in cut) == cut[0].groups
    assert cut[0].groups <= max(1, elements // 16)


@given(boxes, st.integers(1, 900), st.sampled_from([8, 16, 32]))
def test_the_different_first_boxes_are_those_of_all_numbers_of_slices(whole, elements, c0):
    listed = {}
    for step in range(1, -(-whole.groups * c0 // elements) + 1):
        listed.setdefault(first_box(whole, step * elements, c0), step)
    assert [(box, step) for step, box in first_boxes(whole, elements, c0).items()] == list(listed.items())


@given(boxes, st.integers(1, 900), st.integers(1, 900), st.integers(1, 7))
def test_segments_walk_two_cuts_side_by_side(whole, left, right, most):
    assume(whole.groups <= 40)
    cuts = cut_taps(whole, left, 16), cut_taps(whole, right, 16)
    seen_left, seen_right = [], []
    for segment in segments_of(*cuts, most):
        for first_left, first_right, groups in segment.slices:
            assert 1 <= groups <= most
            seen_left += walk(segment.left)[first_left : first_left + groups]
            seen_right += walk(segment.right)[first_right : first_right + groups]
    assert seen_left == seen_right == walk(whole)


@pytest.mark.parametrize(
    ("elements", "box"),
    [
        (16 * 9 * 4, (4, 3, 3)),  # everything
        (16 * 9 * 3, (3, 3, 3)),
        (16 * 17, (1, 3, 3)),  # one whole channel group
        (16 * 8, (1, 2, 3)),  # two kernel rows
        (16 * 2, (1, 1, 2)),  # a part of one row
        (1, (1, 1, 1)),  # never less than one tap
    ],
)
def test_a_box_holds_whole_channel_groups_else_rows_else_a_part_of_one(elements, box):
    made = first_box(Taps(0, 4, 0, 3, 0, 3), elements, 16)
    assert (made.channels, made.rows, made.cols) == box


@pytest.mark.parametrize("in_row", [False, True])
@pytest.mark.parametrize("pixels", [1, 3, 7, 16, 100])
def test_ranges_are_counted_as_they_are_listed(pixels, in_row):
    sliding = DgradGemm.of(ConvProblem((1, 16, 5, 7), (16, 16, 1, 1)), "float16").sliding
    listed = sliding.pixel_tiles(pixels, in_row=in_row)
    assert sliding.pixel_tile_count(pixels, in_row=in_row) == len(listed)
