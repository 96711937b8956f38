"""Is every threshold of grad_input on 910_95 where the operator has it: the value itself, and one further?

Each row has two layers on either side of one threshold, and what tells their plans apart. Source: how the
host code of the public operators chooses, as the rules' own modules say.
"""

from dataclasses import replace

import pytest

from ascendsim.ops.tiling.vendor.arch35.dgrad_parts import part_of
from ascendsim.ops.tiling.vendor.arch35.dgrad_weights import turned_first
from ascendsim.ops.tiling.vendor.layer import Layouts
from ascendsim.ops.tiling.vendor.plan import VendorPlan
from tests.helpers.vendor_layers import ARCH35, LAST, base, layer, plan, rows, square


def dgrad(layer):
    return plan(layer, "grad_input", ARCH35)


# --- grad_input of 910_95: which taps one pass adds

TAPS = {
    # Four channels of 16 bits under unit steps, all plain, are four a tap.
    "channels": (square(16, 4, 16), "c04", square(16, 5, 16), "all"),
    "bytes": (square(16, 4, 16), "c04", square(16, 4, 16, dtype="float32"), "all"),
    "gaps": (square(16, 4, 16), "c04", square(16, 4, 16, padding=2, dilation=2), "all"),
    "steps": (
        *(layer((1, 16, 16, 16), (4, 16, 1, 3), 1, (0, 1)), "c04"),
        *(layer((1, 16, 16, 16), (4, 16, 1, 3), (1, 2), (0, 1)), "all"),
    ),
    "layouts": (square(16, 4, 16), "c04", square(16, 4, 16, layouts=LAST), "all"),
    # A column of k taps has k - 1 pixels of padding before, backwards: 255 are said in a byte.
    "padding before": (
        *(layer((1, 16, 256, 1), (16, 16, 256, 1)), "all"),
        *(layer((1, 16, 257, 1), (16, 16, 257, 1)), "kh"),
    ),
    # One tap of a step that leaves rows behind it: those are the padding after.
    "padding after": (
        *(layer((1, 16, 256, 1), (16, 16, 1, 1), (256, 1)), "all"),
        *(layer((1, 16, 257, 1), (16, 16, 1, 1), (257, 1)), "kh"),
    ),
    "padding of columns": (
        *(layer((1, 16, 1, 256), (16, 16, 1, 256)), "all"),
        # Which a row of taps would have to say as well.
        *(layer((1, 16, 1, 257), (16, 16, 1, 257)), "khkw"),
    ),
    "gap of columns": (
        *(layer((1, 16, 1, 300), (16, 16, 1, 2), 1, (0, 1), (1, 255)), "all"),
        *(layer((1, 16, 1, 300), (16, 16, 1, 2), 1, (0, 1), (1, 256)), "khkw"),
    ),
    # Two taps 256 apart, of which padding takes one pixel: 255 before, but the gap is beyond a byte.
    "gap": (
        *(layer((1, 16, 300, 1), (16, 16, 2, 1), 1, (1, 0), (255, 1)), "all"),
        *(layer((1, 16, 300, 1), (16, 16, 2, 1), 1, (1, 0), (256, 1)), "kh"),
    ),
    # 1024 pixels of rows of 4060 touch two, so that 3 taps see four: 4 x 4060 x 32 bytes, and 9 x 512 of
    # weights, are the 524288 bytes of L1.
    "rows": (
        *(layer((1, 16, 4, 4060), (16, 16, 3, 3), 1, 1), "all"),
        *(layer((1, 16, 4, 4061), (16, 16, 3, 3), 1, 1), "kh"),
    ),
    # A row of taps sees two: 2 x 8168 x 32 + 3 x 512 bytes.
    "a row": (
        *(layer((1, 16, 4, 8168), (16, 16, 3, 3), 1, 1), "kh"),
        *(layer((1, 16, 4, 8169), (16, 16, 3, 3), 1, 1), "khkw"),
    ),
}


@pytest.mark.parametrize("name", TAPS)
def test_taps_of_a_pass(name):
    inside, taps, outside, others = TAPS[name]
    assert (part_of(inside, ARCH35).taps, part_of(outside, ARCH35).taps) == (taps, others)


@pytest.mark.parametrize(
    ("width", "kernel", "reduction"), [(4060, (3, 3), 9 * 16), (8168, (1, 3), 3 * 16), (8169, (1, 1), 16)]
)
def test_a_pass_reduces_the_channels_under_its_taps(width, kernel, reduction):
    part = part_of(layer((1, 16, 4, width), (16, 16, 3, 3), 1, 1), ARCH35)
    assert part.layer.kernel[1:] == kernel
    assert (part.reduction, part.window) == (reduction, reduction)


@pytest.mark.parametrize(
    ("given", "base_k"),
    [
        # 257 rows of taps reach 256 beyond the image. Blocks begin with 512 pixels then, which leave 32 of k.
        (layer((1, 32, 512, 4), (64, 32, 257, 1)), 32),
        # 200 rows reach 199. L1 is short of the 215 that 1024 pixels see, but blocks begin with so many.
        (layer((1, 32, 512, 64), (64, 32, 200, 1)), 16),
    ],
)
def test_kernels_that_reach_far_begin_with_smaller_blocks(given, base_k):
    assert part_of(given, ARCH35).taps == "kh"
    # A tile of few taps has 256 pixels in the end.
    assert base(dgrad(given)) == (256, 32, base_k)


@pytest.mark.parametrize(("dtype", "most"), [("float16", 27), ("float32", 13)])
def test_groups_are_merged_while_ub_holds_their_weights_twice(dtype, most):
    # 24 channels a group: two are 48 x 48 weights a tap, of which two copies are 9216 or 18432 bytes. 256
    # more are for what is beside them, and UB has 253952.
    for taps, factor in ((most, 2), (most + 1, 1)):
        given = layer((1, 48, 1, 32), (48, 24, 1, taps), groups=2, dtype=dtype)
        assert dgrad(given).group_merge == factor


# --- grad_input of 910_95: kernels that the stride splits

SPLITS = {
    # A half of 12 columns: of 23 as of 24.
    "narrow": (square(64, 64, 23, 2, 2, padding=0), "hw", square(64, 64, 22, 2, 2, padding=0), ""),
    "taps": (square(64, 64, 32, 4, 2), "hw", square(64, 64, 32, 5, 2), "h"),
    "not square": (
        *(layer((1, 64, 32, 32), (64, 64, 3, 3), 2, 1), "hw"),
        *(layer((1, 64, 32, 32), (64, 64, 3, 2), 2, 1), "h"),
    ),
    "steps": (
        *(layer((1, 64, 32, 32), (64, 64, 3, 3), 2, 1), "hw"),
        *(layer((1, 64, 32, 32), (64, 64, 3, 3), (2, 3), 1), "h"),
    ),
    "one tap of few pixels": (
        *(layer((1, 64, 128, 128), (64, 64, 1, 1), 2), "hw"),
        *(layer((1, 64, 127, 128), (64, 64, 1, 1), 2), ""),
    ),
    "layouts": (square(64, 64, 32, 3, 2), "hw", square(64, 64, 32, 3, 2, layouts=LAST), "h"),
    "gaps": (square(64, 64, 32, 3, 2), "hw", square(64, 64, 32, 3, 2, padding=2, dilation=2), ""),
    "padding": (
        *(layer((1, 64, 32, 32), (64, 64, 4, 4), 2, (1, 1, 1, 1)), "hw"),
        *(layer((1, 64, 32, 32), (64, 64, 4, 4), 2, (1, 2, 1, 1)), ""),
    ),
    "width of rows": (
        *(layer((1, 16, 32, 32), (16, 16, 3, 3), (2, 1), 1), "h"),
        *(layer((1, 16, 32, 31), (16, 16, 3, 3), (2, 1), 1), ""),
    ),
    "rows of taps": (
        *(layer((1, 16, 32, 32), (16, 16, 16, 1), (2, 1), (8, 0)), "h"),
        *(layer((1, 16, 32, 32), (16, 16, 17, 1), (2, 1), (8, 0)), ""),
    ),
    "a step beyond the taps": (
        *(layer((1, 16, 33, 32), (16, 16, 3, 1), (3, 1)), "h"),
        *(layer((1, 16, 33, 32), (16, 16, 3, 1), (4, 1)), ""),
    ),
    "no step": (
        *(layer((1, 16, 32, 32), (16, 16, 3, 3), (2, 1), 1), "h"),
        *(layer((1, 16, 32, 32), (16, 16, 3, 3), (1, 2), 1), ""),
    ),
    "channels in": (
        *(layer((1, 16, 32, 32), (16, 16, 3, 3), (2, 1), 1), "h"),
        *(layer((1, 15, 32, 32), (16, 15, 3, 3), (2, 1), 1), ""),
    ),
    "channels out": (
        *(layer((1, 16, 32, 32), (16, 16, 3, 3), (2, 1), 1), "h"),
        *(layer((1, 16, 32, 32), (15, 16, 3, 3), (2, 1), 1), ""),
    ),
}


@pytest.mark.parametrize("name", SPLITS)
def test_kernels_that_the_stride_splits(name):
    inside, split, outside, other = SPLITS[name]
    assert (dgrad(inside).kernel_split, dgrad(outside).kernel_split) == (split, other)


def test_phases_of_a_split_along_rows_are_tasks_of_their_own():
    # Three phases of 11 rows of 32 pixels: a block has 352 of them. 16 images make 48 tasks.
    found = dgrad(layer((16, 16, 33, 32), (16, 16, 3, 1), (3, 1)))
    assert (found.base_m, found.tasks) == (352, 48)


def test_both_operands_of_a_split_kernel_stay_whole_up_to_256_channels():
    whole, parts = (dgrad(square(16, out, 24, 2, 2, padding=0)) for out in (256, 257))
    assert (whole.al1_buffers, whole.bl1_buffers) == (1, 1)
    assert parts.al1_buffers == 2


@pytest.mark.parametrize(
    ("height", "width", "channels", "through"),
    [
        # A half of 16 columns; a block of 256 pixels has 16 rows: 4 x 16 x 16 x 112 x 2 bytes are 229376 of
        # UB's 253952, and with 128 channels 262144.
        (32, 32, 112, False),
        (32, 32, 128, True),
        # 8 rows of 32 take as much as 16 of 16.
        (16, 64, 112, False),
        (16, 64, 128, True),
        # A half of 17 columns is no whole fractal.
        (34, 34, 16, True),
    ],
)
def test_phases_are_interleaved_in_memory_where_ub_cannot(height, width, channels, through):
    found = dgrad(layer((1, channels, height, width), (64, channels, 4, 4), 2, 1))
    assert found.kernel_split == "hw"
    assert found.through_gm == through


@pytest.mark.parametrize(
    ("l1", "columns", "copies"),
    [(53249, 64, (2, 2)), (53248, 64, (2, 1)), (45057, 64, (2, 1)), (45056, 32, (2, 1))],
)
def test_split_kernels_give_up_a_copy_of_the_weights_then_columns(l1, columns, copies):
    # All 24 x 24 pixels of a phase with 16 channels are 18432 bytes, 64 columns of a window of 4 taps 8192.
    # L1 always has a byte more than tiles take. With 48 columns there are two blocks, so 32 for each.
    given = square(64, 512, 48, 4, 2, padding=1)
    found = plan(given, "grad_input", ARCH35._replace(l1=l1))
    assert (found.kernel_split, base(found)) == ("hw", (576, columns, 16))
    assert (found.al1_buffers, found.bl1_buffers) == copies


def test_split_kernels_take_a_shorter_k_where_no_tile_ends_on_a_window():
    # Phases of one row of three taps: two windows of 48 for 24 channels. A block begins with 32 of k, of
    # which a tile of half of the reduction has no whole number.
    found = dgrad(layer((16, 256, 128, 128), (24, 256, 3, 3), (3, 1), (3, 1)))
    assert (found.kernel_split, base(found)) == ("h", (512, 128, 16))
    assert (found.step_ka, found.al1_buffers, found.bl1_buffers) == (3, 2, 2)


# --- grad_input of 910_95: strategies


STRATEGIES = {
    # 31 images of one tile are fewer than a round, 32 are a whole one.
    "whole rounds": (rows(8, 8, 16, 16, 31), "small_shape", rows(8, 8, 16, 16, 32), "full_load"),
    "long reductions": (rows(8, 8, 16, 32768, 1), "small_shape", rows(8, 8, 16, 32769, 1), "inner_product"),
    "more pixels than channels": (
        *(rows(8, 8, 48, 64), "full_load"),
        *(rows(8, 8, 64, 64), "inner_product"),
    ),
    "width": (rows(2, 512, 16, 16), "full_load", rows(2, 513, 16, 16), "inner_product"),
    # 768 channels: pixels x 768 < 512 x (pixels + 768) up to 1535.
    "loads": (rows(5, 307, 768, 144), "full_load", rows(3, 512, 768, 144), "inner_product"),
    # As many pixels again, but so short a reduction that writing bounds it.
    "short reductions": (rows(3, 512, 768, 128), "full_load", rows(3, 512, 768, 129), "inner_product"),
    # 2 x 512 x 256 columns x 2 bytes are all of L1; under several taps 128 columns count.
    "columns of one tap": (rows(18, 32, 256, 512), "full_load", rows(18, 32, 256, 513), "inner_product"),
    "columns of several taps": (
        *(layer((128, 256, 18, 32), (320, 256, 1, 3), 1, (0, 1)), "full_load"),
        *(layer((128, 256, 18, 32), (352, 256, 1, 3), 1, (0, 1)), "inner_product"),
    ),
    # Of fewer than 256 columns those that there are: 2 x 1024 x 128 x 2 bytes.
    "weights": (rows(16, 16, 128, 1024), "full_load", rows(16, 16, 128, 1025), "inner_product"),
    "fewer weights": (rows(16, 16, 112, 1168), "full_load", rows(16, 16, 112, 1171), "inner_product"),
    "depth": (
        *(layer((128, 16, 2, 8, 8), (16, 16, 1, 1, 1)), "full_load"),
        *(layer((128, 16, 2, 8, 8), (16, 16, 2, 1, 1)), "inner_product"),
    ),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_strategies_of_grad_input(name):
    inside, strategy, outside, other = STRATEGIES[name]
    assert (dgrad(inside).strategy, dgrad(outside).strategy) == (strategy, other)


@pytest.mark.parametrize(
    ("channels", "out", "sides"),
    [
        # Columns of 1024 bytes up to a reduction of 256, then 512, 256, 128. L0C's 65536 sums leave the rest
        # to pixels, of which an image has 576.
        (512, 256, (128, 512)),
        (512, 272, (256, 256)),
        (512, 512, (256, 256)),
        (128, 528, (512, 128)),
        (96, 1024, (576, 96)),
        (112, 1040, (576, 64)),
    ],
)
def test_columns_of_resident_weights_by_the_length_of_the_reduction(channels, out, sides):
    found = dgrad(rows(18, 32, channels, out))
    assert found.strategy == "full_load"
    assert (found.base_m, found.base_n) == sides


@pytest.mark.parametrize(
    ("channels", "out", "base_m", "copies"),
    [
        # Half of L0C for short reductions with as many columns as twice their length, or 128.
        (128, 128, 256, 2),
        (112, 128, 576, 1),
        (128, 144, 512, 1),
        (64, 32, 512, 2),
        (48, 32, 1024, 1),
        # The tallest block: 1024 pixels, and half of them beside one fractal of columns.
        (32, 144, 1024, 2),
        (16, 144, 512, 2),
    ],
)
def test_blocks_of_short_reductions_leave_half_of_l0c(channels, out, base_m, copies):
    found = dgrad(rows(64, 64, channels, out))
    assert found.strategy == "full_load"
    assert (found.base_m, found.cl0_buffers) == (base_m, copies)


@pytest.mark.parametrize(
    ("given", "segment"),
    [
        # 32 images of one tile are no small shape, nor are 64 pixels more than 64 channels.
        (rows(8, 8, 64, 32768, 32), 32768),
        (rows(8, 8, 64, 32767, 32), 0),
        # Nine taps: 32768 / 9 = 3640 channels in groups of 16.
        (square(64, 3641, 8, batch=32), 3632),
        (square(64, 3640, 8, batch=32), 0),
        (rows(8, 8, 64, 2048, 32, dtype="float32"), 2048),
        (rows(8, 8, 64, 2047, 32, dtype="float32"), 0),
        (rows(8, 8, 64, 2048, 32, dtype="float32", layouts=LAST), 0),
        # A row of taps at a time: 8192.
        (layer((1, 16, 257, 1), (8192, 16, 257, 1)), 8192),
        (layer((1, 16, 257, 1), (8191, 16, 257, 1)), 0),
        # Small shapes, full load and split kernels are whole.
        (rows(8, 8, 16, 32768, 1), 0),
        (rows(16, 32, 16, 2048, 32, dtype="float32"), 0),
        (square(64, 2048, 32, stride=2, dtype="float32"), 0),
    ],
)
def test_reductions_that_are_cut_into_segments(given, segment):
    assert dgrad(given).k_segment == segment


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        # Several taps: 512 x 128, and half of L0A, 16384 elements, leaves 32 of k. That is no row of taps,
        # 48, and no part of a window, 144. One C0 group would be, but is passed over for what the block began
        # with: 64 bytes.
        (rows(64, 64, 512, 512, 9, 3), (512, 128, 32)),
        (rows(64, 64, 512, 528, 9, 3), (512, 128, 32)),
        # The same of float32, where a block begins with 16 of k; half of L0A leaves 16.
        (rows(64, 64, 512, 200, 9, 3, dtype="float32", layouts=LAST), (512, 128, 16)),
        # 10 to 45 tasks for each of 32 cores, 8 x 4 for each image: 10 images are 320, 45 are 1440. A block
        # of 256 leaves 64 of k, of which rows of taps take 48, even where 64 divides the whole reduction.
        (rows(64, 64, 512, 512, 10, 3), (256, 128, 48)),
        (rows(64, 64, 512, 528, 10, 3), (256, 128, 48)),
        (rows(64, 64, 512, 512, 45, 3), (256, 128, 48)),
        (rows(64, 64, 512, 512, 46, 3), (512, 128, 32)),
        # 512 pixels at least: 4 tasks for each of 80 images.
        (rows(16, 32, 512, 512, 80, 3), (256, 128, 48)),
        (rows(7, 73, 512, 512, 80, 3), (512, 128, 32)),
        # One tap: 256 x 256 x 64.
        (rows(64, 64, 2048, 2048, 9), (256, 256, 64)),
    ],
)
def test_base_blocks_of_grad_input(given, sizes):
    found = dgrad(given)
    assert found.strategy == "inner_product"
    assert base(found) == sizes


@pytest.mark.parametrize(
    ("given", "order"),
    [
        # One block of 16 x 16 pixels and 8 of channels: the weights change last. Not so where rows of taps
        # overlap, nor where pixels have more blocks than channels.
        (rows(16, 16, 2048, 512), "d n m"),
        (layer((128, 2048, 16, 16), (512, 2048, 1, 3), 1, (0, 1)), "d n m"),
        (layer((128, 2048, 16, 16), (512, 2048, 3, 1), 1, (1, 0)), "d m n"),
        (rows(32, 32, 1024, 2048), "d n m"),
        (rows(32, 40, 1024, 2048), "d m n"),
        # Kernel depths meet the same depths again, block of pixels by block.
        (layer((128, 64, 4, 16, 16), (64, 64, 2, 1, 1)), "m d n"),
    ],
)
def test_the_order_of_tasks(given, order):
    assert dgrad(given).order == ("batch", "group", *order.split())


def test_four_channels_a_tap_are_reduced_in_whole_fractals():
    # Nine taps of 4 channels are 36, 48 in fractals, which one product takes. The fewest pixels that one
    # round allows load least: 64 of 256.
    assert base(dgrad(square(16, 4, 16))) == (64, 16, 48)


def test_two_copies_of_one_channel_group_fit_in_l0a():
    # 16 KiB are 2 x 256 pixels of 32 bytes. What fewer pixels leave of L0C goes to columns.
    found = plan(rows(64, 64, 512, 512, 9, 3), "grad_input", ARCH35._replace(l0a=16384))
    assert base(found) == (256, 256, 16)


@pytest.mark.parametrize(
    ("given", "single_m"),
    [
        # 15 images of 48 x 48 pixels in tasks of 512 or fewer: ten rows of 48 make as many tasks, 5 for each.
        (rows(48, 48, 512, 512, 15, 3), 480),
        # 8 rows of 300: eight tasks for five.
        (rows(8, 300, 512, 512, 15, 3), 512),
        # Rows longer than a block.
        (rows(8, 600, 512, 512, 4, 3), 512),
        # Blocks of 256 only under one tap: 16 images make 10 tasks for each core. 45 x 48 pixels are 9 of 256
        # as of 240, 48 x 48 are 10 of 240.
        (rows(48, 48, 512, 512, 16, 3), 256),
        (rows(45, 48, 2048, 2048, 16), 240),
        (rows(48, 48, 2048, 2048, 16), 256),
        # 13 rows of 37. L1 has room for one window of 49 taps, which 16 of k cut and 32 do not: tasks stay.
        (layer((64, 384, 16, 37), (1280, 384, 7, 7), 1, 3), 481),
    ],
)
def test_tasks_take_whole_rows_where_that_makes_none_more(given, single_m):
    assert dgrad(given).single_core_m == single_m


# --- grad_input of 910_95: weights that are turned before

BLOCK = VendorPlan("inner_product", 256, 128, 64, 2, 2, single_core_k=512)
DEEP = layer((1, 32, 4, 16, 16), (512, 32, 3, 1, 1), 1, (1, 0, 0))


@pytest.mark.parametrize(
    ("changed", "before", "turned"),
    [
        ({}, {}, True),
        ({"groups": 2}, {}, False),
        ({"layouts": Layouts("NCDHW", "NDHWC", "NCDHW")}, {}, False),
        ({}, {"taps": "c04"}, False),
        # Fractals: 16 channels, or 32 and more.
        ({"ci": 16}, {}, True),
        ({"ci": 17}, {}, False),
        ({"ci": 31}, {}, False),
        # More channels than taps.
        ({"ci": 32, "kernel": (3, 4, 8)}, {}, False),
        ({"ci": 33, "kernel": (3, 4, 8)}, {}, True),
        # Two bytes: only with depths on both sides.
        ({"kernel": (1, 1, 1)}, {}, False),
        ({"input": (1, 16, 16)}, {}, False),
        ({"kernel": (1, 1, 1), "itemsize": 4}, {}, True),
        # Blocks of which the cube would hide it: 384 pixels of two bytes under up to nine taps.
        ({}, {"base_m": 383}, True),
        ({}, {"base_m": 384}, False),
        ({"kernel": (3, 3, 3)}, {"base_m": 384}, False),
        ({"kernel": (3, 2, 5)}, {"base_m": 384}, True),
        ({"kernel": (3, 2, 5)}, {"base_m": 511}, True),
        ({"kernel": (3, 2, 5)}, {"base_m": 512}, False),
        # HF32, 512; float32, 256.
        ({"itemsize": 4}, {"base_m": 511}, True),
        ({"itemsize": 4}, {"base_m": 512}, False),
        ({"itemsize": 4, "true_fp32": True}, {"base_m": 255}, True),
        ({"itemsize": 4, "true_fp32": True}, {"base_m": 256}, False),
        # Weights that come whole for each task, 8 x 64 = 512: turned whatever the block is, unless they stay.
        ({}, {"base_m": 512, "step_kb": 8}, True),
        ({}, {"base_m": 512, "step_kb": 7}, False),
        ({}, {"base_m": 256, "step_kb": 8, "bl1_buffers": 1}, False),
        ({}, {"base_m": 512, "step_kb": 4, "k_segment": 256}, True),
        # Split kernels, unless both operands stay.
        ({}, {"kernel_split": "hw", "base_m": 512}, True),
        ({}, {"kernel_split": "hw", "al1_buffers": 1, "bl1_buffers": 1}, False),
        ({}, {"kernel_split": "hw", "bl1_buffers": 1}, True),
        ({}, {"kernel_split": "h", "al1_buffers": 1, "bl1_buffers": 1}, True),
    ],
)
def test_weights_that_vector_cores_turn_first(changed, before, turned):
    assert turned_first(replace(BLOCK, **before), DEEP._replace(**changed)) == turned


@pytest.mark.parametrize(
    ("out", "layouts", "cores"),
    [
        # Two phases of 32 x 32 pixels, 512 in a block: four tasks. Each of the two vector cores beside a cube
        # core turns 16 channels of input for one of 16, 17 or 128.
        (16, None, 8),
        (17, None, 9),
        (128, None, 32),
        # Weights that the copy takes as they are.
        (128, Layouts(weight="NDHWC"), 4),
    ],
)
def test_cores_without_a_task_turn_weights(out, layouts, cores):
    found = dgrad(layer((1, 16, 64, 32), (out, 16, 3, 3), (2, 1), 1, layouts=layouts))
    assert (found.tasks, found.transpose_first) == (4, layouts is None)
    assert found.used_cores == cores


def test_only_taps_that_are_left_out_ask_for_zeros():
    # Segments of a reduction are added by the core that stores the first of them.
    assert not dgrad(rows(8, 8, 64, 32768, 32)).zero_first
    assert dgrad(layer((1, 16, 257, 1), (16, 16, 257, 1))).zero_first
