"""Is every threshold of grad_weight on 910_95 where the operator has it: the value, and one further?"""

import pytest

from ascendsim.ops.tiling.vendor.arch35.wgrad import beyond_load3d, merge_factor
from ascendsim.ops.tiling.vendor.arch35.winograd import takes_winograd
from tests.helpers.vendor_layers import ARCH35, LAST, base, layer, plan, rows, square


def wgrad(layer, **more):
    return plan(layer, "grad_weight", ARCH35, by_winograd=False, **more)


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        # Sides of up to 256 are whole, longer ones cut in equal parts, in whole fractals: 272 in two of 136,
        # 528 in three of 176. With 256 rows or columns half of L0A, 16384 elements, leaves 64 pixels.
        (rows(32, 32, 256, 256, 32), (256, 256, 64)),
        (rows(32, 32, 256, 257, 32), (144, 256, 64)),
        (rows(32, 32, 272, 256, 32), (256, 144, 64)),
        (rows(32, 32, 4096, 528, 32), (176, 256, 64)),
        # Nine taps: two equal parts of 288 columns are 144, a window; three of 576 are 192, floored to it.
        (rows(32, 32, 32, 256, 32, 3), (256, 144, 64)),
        (rows(32, 32, 64, 256, 32, 3), (256, 144, 64)),
        # Four taps: fractals. 5 x 16 x 4 columns are two parts of 160.
        (layer((32, 80, 32, 32), (256, 80, 2, 2)), (256, 160, 64)),
        # Pixels: 1024 beside 16 rows and 16 columns, whole rows of 48 where these are whole fractals, and no
        # more than there are.
        (rows(64, 64, 16, 16, 32), (16, 16, 1024)),
        (rows(48, 48, 16, 16, 32), (16, 16, 1008)),
        (rows(56, 56, 16, 16, 32), (16, 16, 1024)),
        (rows(14, 14, 16, 16, 32), (16, 16, 208)),
        (rows(2, 1024, 16, 16, 32), (16, 16, 1024)),
    ],
)
def test_base_blocks_of_grad_weight(given, sizes):
    assert base(wgrad(given)) == sizes


@pytest.mark.parametrize(
    ("l1", "steps", "copies"),
    [
        # 64 pixels, one row, of 256 channels of either side are 32 KiB each. Four slices of both in two
        # copies are 512 KiB; three 384; one 128, and in one copy 64. Below that half of the pixels.
        (524288, 4, 2),
        (524287, 3, 2),
        (131072, 1, 2),
        (131071, 1, 1),
        (65536, 1, 1),
    ],
)
def test_tiles_are_as_deep_as_l1_holds(l1, steps, copies):
    found = plan(rows(64, 64, 256, 256, 32), "grad_weight", ARCH35._replace(l1=l1), by_winograd=False)
    assert base(found) == (256, 256, 64)
    assert (found.step_ka, found.step_kb) == (steps, steps)
    assert (found.al1_buffers, found.bl1_buffers) == (copies, copies)


@pytest.mark.parametrize(
    ("l1", "steps", "copies"), [(131072, 1, 2), (131071, 8, 1), (81920, 5, 1), (81919, 4, 1)]
)
def test_tall_kernels_have_deep_tiles_in_one_copy(l1, steps, copies):
    # A slice is a row of 64 pixels: 2048 bytes of grad_output, and of input as many for each of the rows that
    # 31 taps and further slices see. So s slices take 2048 x (s + 30 + s).
    tall = layer((128, 16, 64, 64), (16, 16, 31, 1))
    found = plan(tall, "grad_weight", ARCH35._replace(l1=l1), by_winograd=False)
    assert base(found) == (16, 256, 64)
    assert (found.step_ka, found.step_kb, found.al1_buffers) == (steps, steps, copies)


def test_no_tile_has_more_slices_than_there_are_nor_than_eight():
    # 3 slices of 1024 pixels, and 9.
    assert wgrad(rows(48, 64, 16, 16, 32)).step_ka == 3
    endless = ARCH35._replace(l1=1 << 30)
    assert plan(rows(144, 64, 16, 16, 32), "grad_weight", endless, by_winograd=False).step_ka == 8


@pytest.mark.parametrize(("out", "copies"), [(128, 2), (144, 1)])
def test_two_tiles_of_sums_where_l0c_holds_them(out, copies):
    # 128 x 256 sums of 4 bytes are half of 256 KiB.
    found = wgrad(rows(32, 32, 256, out, 32))
    assert (found.base_m, found.base_n, found.cl0_buffers) == (out, 256, copies)


@pytest.mark.parametrize(("width", "strip"), [(512, 0), (513, 128)])
def test_rows_of_more_than_512_pixels_are_worked_on_in_strips(width, strip):
    assert wgrad(layer((1, 16, width), (16, 16, 1))).strip_w == strip


@pytest.mark.parametrize(
    ("given", "strip"),
    [
        # 256 taps in a row are loaded one by one, in strips as others are.
        (layer((1, 16, 767), (16, 16, 256)), 0),
        (layer((1, 16, 768), (16, 16, 256)), 128),
        # So are three taps of which padding is 256; every eighth of 1538 and 512 pixels makes 256 columns.
        (layer((1, 16, 1538), (16, 16, 3), 8, 256), 0),
        (layer((1, 16, 1539), (16, 16, 3), 8, 256), 128),
        (layer((1, 16, 1541), (16, 16, 3), 8, 255), 0),
    ],
)
def test_single_taps_of_wide_rows_are_worked_on_in_strips(given, strip):
    found = wgrad(given)
    assert (found.taps, found.strip_w) == ("all" if given.pads[2][0] == 255 else "khkw", strip)


def test_a_reduction_of_one_row_is_cut_along_no_axis():
    one, two = (wgrad(layer((1, 16, height, 8), (16, 16, 1, 1))) for height in (1, 2))
    assert (one.stream_ways, one.stream_axis) == (1, "")
    assert (two.stream_ways, two.stream_axis) == (2, "height")


@pytest.mark.parametrize(
    ("changed", "beyond"),
    [
        ({}, False),
        *[({"kernel": (1, *kernel)}, over) for kernel, over in [((255, 1), 0), ((256, 1), 1), ((1, 256), 1)]],
        *[({"dilation": (1, *gap)}, over) for gap, over in [((255, 255), 0), ((256, 1), 1), ((1, 256), 1)]],
        *[({"stride": (1, *step)}, over) for step, over in [((63, 63), 0), ((64, 1), 1), ((1, 64), 1)]],
        ({"pads": ((0, 0), (255, 255), (255, 255))}, False),
        ({"pads": ((0, 0), (256, 0), (0, 0))}, True),
        ({"pads": ((0, 0), (0, 0), (0, 256))}, True),
        # Depth is looped over: nothing there goes into a load3d.
        ({"kernel": (256, 1, 1), "stride": (64, 1, 1), "pads": ((256, 0), (0, 0), (0, 0))}, False),
        # 16 channels of 64 x 64 taps are 65536.
        ({"kernel": (1, 64, 64)}, False),
        ({"kernel": (1, 64, 65)}, True),
    ],
)
def test_what_one_load3d_can_say(changed, beyond):
    assert beyond_load3d(square(16, 16, 16)._replace(**changed)) == bool(beyond)


@pytest.mark.parametrize(
    ("ub", "l0c", "factor"),
    # 16 groups of one channel make a block of 16 x 144: in UB twice, of 4 bytes, and 256 bytes; in L0C once.
    [(18688, 9216, 16), (18687, 9216, 1), (18688, 9215, 1)],
)
def test_groups_are_merged_while_buffers_hold_their_block(ub, l0c, factor):
    depthwise = layer((1, 32, 8, 8), (32, 1, 3, 3), 1, 1, groups=32)
    assert merge_factor(depthwise, ARCH35._replace(ub=ub, l0c=l0c)) == factor


def test_merged_blocks_have_at_most_256_columns():
    # 16 groups under 16 taps: 256; under 17: 272.
    huge = ARCH35._replace(ub=1 << 20, l0c=1 << 20)
    for taps, factor in ((16, 16), (17, 1)):
        depthwise = layer((1, 32, 1, 32), (32, 1, 1, taps), groups=32)
        assert merge_factor(depthwise, huge) == factor


WIDE = {"dtype": "float32"}
WINOGRAD = square(256, 256, 16, **WIDE)


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        (WINOGRAD, True),
        # 4 x 4 whole blocks of 64 x 64 channels.
        (square(255, 256, 16, **WIDE), False),
        (square(320, 255, 16, **WIDE), False),
        (square(1024, 64, 16, **WIDE), True),
        (square(320, 192, 16, **WIDE), False),
        (square(256, 256, 16), False),
        (square(256, 256, 16, **WIDE, hf32=True), False),
        (square(256, 256, 16, 2, **WIDE), False),
        (square(256, 256, 16, stride=2, **WIDE), False),
        (square(256, 256, 16, dilation=2, padding=2, **WIDE), False),
        (square(256, 256, 16, padding=8, **WIDE), True),
        (square(256, 256, 16, padding=9, **WIDE), False),
        (square(256, 256, 16, layouts=LAST, **WIDE), False),
        (layer((1, 256, 16, 16), (256, 256, 3, 3), 1, (1, 1, 1, 1), **WIDE), True),
        (layer((1, 256, 16, 16), (256, 256, 3, 3), 1, (0, 1, 1, 1), **WIDE), False),
        # 512000 tiles of 2 x 2: 8 x 8 in an image of 16 x 16, of 8000 images.
        (square(256, 256, 16, batch=8000, **WIDE), True),
        (square(256, 256, 16, batch=8001, **WIDE), False),
        # Tiles come in clusters of 32. One of 2 x 16 covers 16 of a row of 32 pixels, half of the cluster;
        # 15 of a row of 30 are less.
        (layer((1, 256, 2, 32), (256, 256, 3, 3), 1, 1, **WIDE), True),
        (layer((1, 256, 2, 30), (256, 256, 3, 3), 1, 1, **WIDE), False),
    ],
)
def test_what_is_computed_by_winograd(given, taken):
    assert takes_winograd(given) == taken
