"""Is every threshold of grad_input on 910_95 where the operator has it: the value itself, and one further?

Each row has two layers on either side of one threshold, and what tells their plans apart. Source: how the
host code of the public operators chooses, as the rules' own modules say.
"""

import pytest

from ascendsim.ops.tiling.vendor.arch35.dgrad import part_of, turned_first
from ascendsim.ops.tiling.vendor.arch35.dgrad_block import Dgrad35Block, Dgrad35Part
from ascendsim.ops.tiling.vendor.layer import Layouts
from tests.helpers.outside_records import differences, layer_of, machine_of, records, vectors
from tests.helpers.slow_tilings import ARCH35, LAST, base, layer, plan, rows, square


def dgrad(layer, machine=ARCH35):
    return plan(layer, "grad_input", machine)


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
    assert part.kernel == kernel
    assert (part.reduction, part.window) == (reduction, reduction)


@pytest.mark.parametrize(
    ("given", "base_m", "base_k"),
    [
        # 257 rows of taps reach 256 beyond the image. Blocks have up to 512 pixels then, which leave 32 of k.
        (layer((1, 32, 512, 4), (64, 32, 257, 1)), 512, 32),
        # 200 rows reach 199. L1 is short of the 215 that 1024 pixels see, but blocks have so many.
        (layer((1, 32, 512, 64), (64, 32, 200, 1)), 1024, 16),
        # Of columns of one pixel there is no window, and 256 pixels in a tile.
        (layer((1, 32, 512, 1), (64, 32, 257, 1)), 256, 32),
    ],
)
def test_kernels_that_reach_far_have_smaller_blocks(given, base_m, base_k):
    assert dgrad(given).taps == "kh"
    assert base(dgrad(given)) == (base_m, 32, base_k)


@pytest.mark.parametrize(("dtype", "most"), [("float16", 27), ("float32", 13)])
def test_groups_are_merged_while_ub_holds_their_weights_twice(dtype, most):
    # 24 channels a group: two are 48 x 48 weights a tap, of which two copies are 9216 or 18432 bytes. 256
    # more are for what is beside them, and UB has 253952.
    for taps, factor in ((most, 2), (most + 1, 1)):
        given = layer((1, 48, 1, 32), (48, 24, 1, taps), groups=2, dtype=dtype)
        assert dgrad(given).group_merge == factor


# --- grad_input of 910_95: kernels that the stride splits

SPLITS = {
    # 12 columns, or more than 16 unless a phase has more than 256 pixels: 43 x 6 = 258 where 42 x 6 = 252.
    "narrow": (
        *(layer((1, 64, 90, 12), (272, 64, 2, 2), 2), "hw"),
        *(layer((1, 64, 90, 11), (272, 64, 2, 2), 2), ""),
    ),
    "narrow with few pixels": (
        *(layer((1, 64, 86, 12), (272, 64, 2, 2), 2), "hw"),
        *(layer((1, 64, 84, 12), (272, 64, 2, 2), 2), ""),
    ),
    "wider with few pixels": (
        *(layer((1, 64, 12, 17), (272, 64, 2, 2), 2), "hw"),
        *(layer((1, 64, 12, 16), (272, 64, 2, 2), 2), ""),
    ),
    # Whole operands from three columns on.
    "whole and narrow": (
        *(layer((1, 16, 128, 3), (32, 16, 2, 2), 2), "hw"),
        *(layer((1, 16, 128, 2), (32, 16, 2, 2), 2), ""),
    ),
    "odd and wide": (
        *(layer((1, 16, 32, 511), (16, 16, 2, 2), 2), "hw"),
        *(layer((1, 16, 32, 513), (16, 16, 2, 2), 2), "h"),
    ),
    # 16 x 16 are not fewer than 256 pixels, 15 x 17 are; of more channels that does not matter.
    "one group of few pixels": (
        *(layer((1, 16, 16, 16), (16, 16, 2, 2), 2), "hw"),
        *(layer((1, 16, 15, 17), (16, 16, 2, 2), 2), ""),
    ),
    "two groups of few pixels": (
        *(layer((1, 16, 15, 17), (17, 16, 2, 2), 2), "hw"),
        *(layer((1, 16, 15, 17), (16, 16, 2, 2), 2), ""),
    ),
    "one channel": (
        *(layer((1, 2, 32, 32), (1, 2, 2, 2), 2), "hw"),
        *(layer((1, 1, 32, 32), (1, 1, 2, 2), 2), ""),
    ),
    "one channel, more taps": (
        *(layer((1, 1, 32, 32), (1, 1, 3, 3), 2, 1), "hw"),
        *(layer((1, 1, 32, 32), (1, 1, 2, 2), 2), ""),
    ),
    "groups": (
        *(layer((1, 64, 32, 32), (64, 64, 3, 3), 2, 1), "hw"),
        *(layer((1, 64, 32, 32), (64, 32, 3, 3), 2, 1, groups=2), ""),
    ),
    # Weights with channels last, but not of one channel, nor of whole operands.
    "layout of weights": (
        *(square(64, 272, 32, 3, 2, layouts=Layouts(weight="NDHWC")), "hw"),
        *(square(64, 64, 32, 3, 2, layouts=Layouts(weight="NDHWC")), "h"),
    ),
    "no split for its layout": (
        *(square(64, 272, 32, 3, 2, layouts=Layouts(weight="NDHWC")), "hw"),
        *(square(64, 272, 32, 3, 2, layouts=Layouts(weight="DHWCN")), ""),
    ),
    "taps": (square(64, 64, 32, 4, 2), "hw", square(64, 64, 32, 5, 2), "h"),
    "not square": (
        *(layer((1, 64, 32, 32), (64, 64, 3, 3), 2, 1), "hw"),
        *(layer((1, 64, 32, 32), (64, 64, 3, 2), 2, 1), "h"),
    ),
    "steps": (
        *(layer((1, 64, 32, 32), (64, 64, 3, 3), 2, 1), "hw"),
        *(layer((1, 64, 32, 32), (64, 64, 3, 3), (2, 3), 1), "h"),
    ),
    # One tap of so many pixels and channels that neither loads nor writes bound it: 16384 x 1024 are more
    # than 512 x 17408. No taller than wide, and no more channels in than out.
    "one tap": (
        *(layer((1, 1024, 128, 128), (1024, 1024, 1, 1), 2), "hw"),
        *(layer((1, 1024, 129, 128), (1024, 1024, 1, 1), 2), ""),
    ),
    "one tap of fewer channels": (
        *(layer((1, 1024, 128, 128), (1024, 1024, 1, 1), 2), "hw"),
        *(layer((1, 1024, 128, 128), (1023, 1024, 1, 1), 2), ""),
    ),
    # 528 x P against 512 x (P + 528) from 16896 pixels on.
    "one tap that loads bound": (
        *(layer((1, 528, 132, 128), (528, 528, 1, 1), 2), ""),
        *(layer((1, 528, 128, 132), (528, 528, 1, 1), 2), "hw"),
    ),
    "layouts": (
        *(square(64, 64, 32, 3, 2), "hw"),
        *(square(64, 64, 32, 3, 2, layouts=Layouts("NDHWC", "NCDHW", "NDHWC")), "h"),
    ),
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
    ("l1", "sides", "copies", "steps"),
    [
        # Two copies of both are 53248 bytes.
        (53248, (576, 64, 16), (2, 2), (4, 4)),
        # One of grad_output in half of L1 leaves room for four channel groups of weights: two, twice.
        (53247, (576, 64, 16), (1, 2), (4, 8)),
        # One of each.
        (26624, (576, 64, 16), (1, 1), (4, 4)),
        # Pixels give way until 22 rows see 23: 528 of them. Two tasks of 12 rows share the image anew.
        (26623, (288, 64, 16), (1, 1), (4, 4)),
    ],
)
def test_split_kernels_give_up_copies_then_pixels(l1, sides, copies, steps):
    # All 24 x 24 pixels of a phase with 16 channels are 18432 bytes, 64 columns of a window of 4 taps 8192.
    found = plan(square(64, 512, 48, 4, 2, padding=1), "grad_input", ARCH35._replace(l1=l1))
    assert (found.strategy, base(found)) == ("kernel_split_hw", sides)
    assert (found.al1_buffers, found.bl1_buffers) == copies
    assert (found.step_ka, found.step_kb) == steps


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
    # 768 channels: pixels x 768 < 512 x (pixels + 768) below 1536, of whole fractals up to 1520.
    "loads": (rows(5, 304, 768, 144), "full_load", rows(3, 512, 768, 144), "inner_product"),
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
        # to pixels, of which an image has 576; and what these leave goes to columns again.
        (512, 256, (128, 512)),
        (512, 272, (256, 256)),
        (512, 512, (256, 256)),
        (128, 528, (512, 128)),
        (96, 1024, (576, 96)),
        (112, 1040, (576, 112)),
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
        (rows(8, 8, 64, 32769, 32), 32768),
        (rows(8, 8, 64, 32768, 32), 0),
        # Nine taps: 32768 / 9 = 3640 channels in groups of 16, of which 228 are 32832 of k and 227 32688.
        (square(64, 3633, 8, batch=32), 3632),
        (square(64, 3632, 8, batch=32), 0),
        (rows(8, 8, 64, 2049, 32, dtype="float32"), 2048),
        (rows(8, 8, 64, 2048, 32, dtype="float32"), 0),
        (rows(8, 8, 64, 2049, 32, dtype="float32", layouts=LAST), 0),
        # A row of taps at a time: 8192, of float32 2048 as well.
        (layer((1, 16, 257, 1), (8193, 16, 257, 1)), 8192),
        (layer((1, 16, 257, 1), (8192, 16, 257, 1)), 0),
        (layer((1, 16, 257, 1), (2049, 16, 257, 1), dtype="float32"), 2048),
        # Small shapes, full load and split kernels are whole.
        (rows(8, 8, 16, 2049, 1, dtype="float32"), 0),
        (rows(16, 32, 16, 2049, 32, dtype="float32"), 0),
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
        # Of float32 10 to 45 tasks for each of 32 cores, 8 x 4 of an image: 10 images make 320, 45 make 1440.
        # A block of 256 leaves 32 of k, of which rows of taps take 24.
        (rows(64, 64, 512, 200, 10, 3, dtype="float32", layouts=LAST), (256, 128, 24)),
        (rows(64, 64, 512, 200, 45, 3, dtype="float32", layouts=LAST), (256, 128, 24)),
        (rows(64, 64, 512, 200, 46, 3, dtype="float32", layouts=LAST), (512, 128, 16)),
        # Not of two bytes, and not of a transposed convolution's forward pass.
        (rows(64, 64, 512, 512, 10, 3), (512, 128, 32)),
        (
            rows(64, 64, 512, 200, 10, 3, dtype="float32", layouts=LAST)._replace(transposed_forward=True),
            (512, 128, 16),
        ),
        # 512 pixels at least: 4 tasks for each of 80 images.
        (rows(16, 32, 512, 200, 80, 3, dtype="float32", layouts=LAST), (256, 128, 24)),
        (rows(7, 73, 512, 200, 80, 3, dtype="float32", layouts=LAST), (512, 128, 16)),
        # Ten rows of 48 are less than 512, and five times as many are the image. One row of 300 is less, too,
        # but five of them are not.
        (rows(48, 48, 512, 200, 16, 3, dtype="float32", layouts=LAST), (480, 128, 16)),
        (rows(8, 300, 512, 200, 16, 3, dtype="float32", layouts=LAST), (256, 128, 24)),
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
        (rows(8, 600, 512, 512, 4, 3), 600),
        # Blocks of 256 only under one tap. 45 x 48 pixels are 9 of 256 as of 240, 48 x 48 are 10 of 240.
        (rows(8, 300, 512, 200, 16, 3, dtype="float32", layouts=LAST), 256),
        (rows(45, 48, 2048, 2048, 16), 240),
        (rows(48, 48, 2048, 2048, 16), 256),
        # 13 rows of 37 are 481, so the block 496. L1 has room for one window of 49 taps, which 16 of k cut
        # and 32 do not: with that tasks are made anew, and the block is below 512.
        (layer((64, 384, 16, 37), (1280, 384, 7, 7), 1, 3), 496),
    ],
)
def test_tasks_take_whole_rows_where_that_makes_none_more(given, single_m):
    assert dgrad(given).single_core_m == single_m


# --- grad_input of 910_95: weights that are turned before

# 16 images of 4 depths load the weights 64 times. A reduction of 512 channels at each of three kernel depths.
DEEP = layer((16, 32, 4, 16, 16), (512, 32, 3, 1, 1), 1, (1, 0, 0))
BLOCK = {"base_m": 256, "base_n": 32, "base_k": 64, "single_m": 256, "steps": (2, 2)}
FLAT = {"itemsize": 4, "kernel": (1, 1, 2)}


@pytest.mark.parametrize(
    ("changed", "block", "turned"),
    [
        ({}, {}, True),
        ({"groups": 2}, {}, False),
        ({"layouts": Layouts("NCDHW", "NDHWC", "NCDHW")}, {}, False),
        ({}, {"taps": "c04"}, False),
        ({}, {"taps": "kh"}, False),
        # Fractals: 16 channels, or 32 and more, which are counted in 16 bits.
        ({"ci": 16}, {}, True),
        ({"ci": 17}, {}, False),
        ({"ci": 31}, {}, False),
        ({"ci": 65535}, {}, True),
        ({"ci": 65536}, {}, False),
        # More channels than taps.
        ({"ci": 32, "kernel": (3, 4, 8)}, {}, False),
        ({"ci": 33, "kernel": (3, 4, 8)}, {}, True),
        # UB holds two copies of 16 channels of all taps: 3968 x 16 x 2 x 2 = 253952 bytes; of 8 bits four.
        ({"ci": 1400, "kernel": (3, 1, 1322)}, {}, True),
        ({"ci": 1400, "kernel": (3, 1, 1323)}, {}, False),
        ({"ci": 1400, "kernel": (3, 1, 1322), "itemsize": 1}, {}, True),
        ({"ci": 1400, "kernel": (3, 1, 1323), "itemsize": 1}, {}, False),
        # More than one tap; of two bytes only with depths on both sides.
        ({**FLAT, "kernel": (1, 1, 1)}, {}, False),
        (FLAT, {}, True),
        ({"kernel": (1, 1, 2)}, {}, False),
        ({"input": (1, 16, 16)}, {}, False),
        # Of two bytes as many loads as tasks, and one of three. 8 loads of weights for 16 tasks; for 8.
        ({"batch": 2, "ci": 64, "co": 16}, {}, False),
        ({"batch": 2, "ci": 64, "co": 16}, {"base_n": 64}, True),
        # 64 vector cores turn 32 x 2 blocks of 16 channels at once, 33 x 2 in two turns.
        ({"batch": 1, "co": 32}, {}, True),
        ({"batch": 1, "co": 33}, {}, False),
        # 32 cores load 32 times once, 36 times more than once.
        ({"batch": 8}, {}, False),
        ({"batch": 9}, {}, True),
        # Blocks a fifth as tall as they are wide.
        ({"batch": 8, "ci": 80}, {"base_m": 16, "base_n": 80}, True),
        ({"batch": 8, "ci": 64}, {"base_m": 16, "base_n": 64}, False),
        # Blocks of which the cube would hide it: 384 pixels of two bytes under up to three taps either way.
        ({}, {"base_m": 383}, True),
        ({}, {"base_m": 384}, False),
        ({"kernel": (3, 3, 3)}, {"base_m": 384}, False),
        ({"kernel": (3, 1, 4)}, {"base_m": 384}, True),
        ({"kernel": (3, 2, 5)}, {"base_m": 511}, True),
        ({"kernel": (3, 2, 5)}, {"base_m": 512}, False),
        # HF32, 512; float32, 256; 8 bits, never.
        ({"itemsize": 4}, {"base_m": 511}, True),
        ({"itemsize": 4}, {"base_m": 512}, False),
        ({"itemsize": 4, "true_fp32": True}, {"base_m": 255}, True),
        ({"itemsize": 4, "true_fp32": True}, {"base_m": 256}, False),
        ({"itemsize": 1}, {"base_m": 512}, True),
        # Nothing is to be hidden behind where weights come once for a task: 16 slices of 64 are the 1024 of
        # two taps, 8 the 512 of one. Further depths load them again.
        (FLAT, {"base_m": 512, "steps": (2, 16)}, True),
        (FLAT, {"base_m": 512, "steps": (2, 15)}, False),
        ({"itemsize": 4, "input": (1, 16, 16)}, {"base_m": 512, "steps": (2, 8)}, True),
        ({"itemsize": 4}, {"base_m": 512, "steps": (2, 8)}, False),
        # Split kernels, unless both operands stay, and with more than one tap.
        ({}, {"split": "hw", "base_m": 512}, True),
        ({}, {"split": "hw", "strategy": "kernel_split_full"}, False),
        ({}, {"split": "h", "base_m": 512}, True),
        ({"kernel": (1, 1, 1)}, {"split": "hw"}, False),
    ],
)
def test_weights_that_vector_cores_turn_first(changed, block, turned):
    given = DEEP._replace(**changed)
    told = {"taps": "all", "split": "", "strategy": "", **BLOCK, **block}
    part = Dgrad35Part(given, ARCH35, told.pop("taps"), told.pop("split"))
    assert turned_first(given, told.pop("strategy"), Dgrad35Block(part, **told)) == turned


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


@pytest.mark.parametrize(
    ("given", "zeros"),
    [
        # Segments of a reduction are added by the core that stores the first of them.
        (rows(8, 8, 64, 32769, 32), False),
        # A row of taps at a time.
        (layer((1, 16, 257, 1), (16, 16, 257, 1)), True),
        # Two rows are left over and no padding hides them; two and padding hides one; one and it hides that.
        # Columns do not count.
        (layer((1, 16, 11, 12), (16, 16, 3, 3), (3, 1)), True),
        (layer((1, 16, 12, 12), (16, 16, 3, 3), (3, 1), 1), True),
        (layer((1, 16, 11, 12), (16, 16, 3, 3), (3, 1), 1), False),
        (layer((1, 16, 12, 11), (16, 16, 3, 3), (1, 3)), False),
        # Steps over rows, and over depths.
        (layer((1, 16, 12, 12), (16, 16, 1, 3), (2, 1)), True),
        (layer((1, 16, 4, 12, 12), (16, 16, 1, 3, 3), (2, 1, 1)), True),
        (layer((1, 16, 5, 12, 12), (16, 16, 2, 3, 3), (2, 1, 1)), True),
        (layer((1, 16, 4, 12, 12), (16, 16, 2, 3, 3), (2, 1, 1)), False),
        # Gaps between depths.
        (layer((1, 16, 5, 12, 12), (16, 16, 2, 3, 3), 1, 0, (2, 1, 1)), True),
    ],
)
def test_results_that_meet_no_tap_are_cleared(given, zeros):
    assert dgrad(given).zero_first == zeros


# --- grad_input of 910_95: whole plans


@pytest.mark.parametrize(
    ("batch", "base_m", "tasks"),
    [
        # 256 pixels as 256, 128, 96 and 64: four images are up to 16 tasks, all in one round of 32.
        (4, 64, 16),
        # 12 images: two parts of an image are 24 tasks, three would be 36.
        (12, 128, 24),
        # 16: two parts are a round.
        (16, 128, 32),
    ],
)
def test_small_shapes_take_the_most_tasks_of_the_fewest_rounds(batch, base_m, tasks):
    found = dgrad(rows(16, 16, 64, 64, batch))
    assert (found.strategy, base(found)) == ("small_shape", (base_m, 64, 64))
    assert (found.tasks, found.used_cores, found.cl0_buffers) == (tasks, tasks, 2)


def test_rows_of_resident_weights_are_cut_as_few_times_as_cores_stay_busy():
    # 3 x 333 rows are no multiple of 32. In 10 parts of 34 rows they are 30 tasks; in 11 parts 33, which two
    # rounds would be half empty for, and in 18 54, which are full enough but two rounds.
    found = dgrad(rows(333, 512, 16, 16, 3))
    assert (found.strategy, found.single_core_m) == ("full_load", 34 * 512)
    assert (found.tasks, found.used_cores) == (30, 30)


def test_a_split_kernel_of_which_l1_holds_one_window_of_weights():
    # 8 x 16 taps of a phase are 2048 of k for 16 channels, with 96 of input 393216 bytes: half of L1 holds
    # none. What one leaves holds 11 rows of 2 x 55 pixels three times: two copies of one.
    found = dgrad(layer((1, 192, 2, 124, 124), (64, 192, 1, 16, 16), (1, 2, 2)))
    assert (found.strategy, base(found)) == ("kernel_split_h", (496, 96, 32))
    assert (found.step_ka, found.step_kb, found.al1_buffers, found.bl1_buffers) == (64, 64, 2, 1)


def test_sides_give_way_before_copies():
    # 15 x 15 taps are 3600 of k for 16 channels. Of those L1 holds two copies with 32 columns (460800 bytes),
    # beside two of 17 rows of 32 pixels. Pixels go down to the columns and from there on in turn with them,
    # to 48. Of k half of L0 holds 336 then, and 240 is the longest below with which tiles end on a window.
    found = dgrad(layer((2, 128, 32, 32), (512, 128, 15, 15), 1, 7))
    assert (found.strategy, base(found), found.single_core_m) == ("inner_product", (48, 32, 240), 48)
    assert (found.step_ka, found.step_kb, found.al1_buffers, found.bl1_buffers) == (15, 15, 2, 2)


def test_computed_plans_are_ours_in_every_field(data_dir):
    found = vectors(data_dir, "dX", "arch35")
    assert len(found) == 75
    differing = {at: differences(dgrad(layer_of(record), machine_of(record)), record) for at, record in found}
    assert {at: fields for at, fields in differing.items() if fields} == {}


def test_unit_tests_say_the_same_of_what_no_nest_reads(data_dir):
    found = [record for record in records(data_dir, "dX", "arch35") if record["success"]]
    assert len(found) == 42
    for record in found:
        host = dict(dgrad(layer_of(record), machine_of(record)).host)
        assert len(host) == 6
        assert host == {name: record["expected"][name] for name in host}, record["case"]
