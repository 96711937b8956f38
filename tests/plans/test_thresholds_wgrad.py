"""Is every threshold of grad_weight on 910_95 where the operator has it: the value, and one further?"""

import pytest

from ascendsim.ops.tiling.vendor.arch35.wgrad import beyond_load3d, merge_factor, takes_winograd
from ascendsim.ops.tiling.vendor.layer import Layouts
from ascendsim.ops.tiling.vendor.names import FOLLOWS
from tests.helpers.outside_records import differences, layer_of, machine_of, records, vectors
from tests.helpers.slow_tilings import ARCH35, LAST, base, layer, plan, rows, square


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
        # Four taps: 5 x 16 x 4 columns are two parts of 160, which hold two windows of 64.
        (layer((32, 80, 32, 32), (256, 80, 2, 2)), (256, 128, 64)),
        # 25 taps: a window of 400 columns is longer than a block, which stays half of it, in whole fractals.
        (layer((32, 16, 36, 36), (256, 16, 5, 5)), (256, 208, 64)),
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
        # copies are 512 KiB; three 384; two 256. One slice never has two copies: one copy of two takes 128,
        # of one 64.
        (524288, 4, 2),
        (524287, 3, 2),
        (262144, 2, 2),
        (262143, 2, 1),
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
    ("l1", "steps", "copies"),
    # Two slices in two copies are 139264 bytes. In one copy 16 are 126976, 14 less by 4 x 2048, one 65536.
    [(139264, 2, 2), (139263, 16, 1), (126975, 14, 1), (69631, 1, 1)],
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
    # 16 groups of one channel make a block of 16 x 144, in L0C once, of 4 bytes. UB holds it, a copy with 16
    # places for the 9 taps of a channel, and 256 bytes: 16 x (144 + 256) x 4 + 256.
    [(25856, 9216, 16), (25855, 9216, 1), (25856, 9215, 1)],
)
def test_groups_are_merged_while_buffers_hold_their_block(ub, l0c, factor):
    depthwise = layer((1, 32, 8, 8), (32, 1, 3, 3), 1, 1, groups=32)
    assert merge_factor(depthwise, ARCH35._replace(ub=ub, l0c=l0c)) == factor


@pytest.mark.parametrize(
    ("depth", "ub", "factor"), [(1, 18688, 2), (1, 18687, 1), (3, 18688, 1), (3, 25856, 2)]
)
def test_taps_of_eight_channels_lie_in_one_piece(depth, ub, factor):
    # 72 floats of a group are whole pieces of 32 bytes: 16 x (144 + 144) x 4 + 256. Depths lie between them.
    pairs = layer((1, 32, 4, 8, 8), (32, 8, depth, 3, 3), 1, 1, groups=4)
    assert merge_factor(pairs, ARCH35._replace(ub=ub)) == factor


@pytest.mark.parametrize(("l1", "factor"), [(43008, 16), (43007, 1)])
def test_groups_are_merged_where_l1_holds_a_slice_of_both(l1, factor):
    # Half of L0B holds 16384 / 144 = 113 pixels, 112 in fractals, of 8 x 32 = 256. Of grad_output these are
    # 112 x 16 x 2 bytes. They touch up to 112 / 32 + 2 = 5 rows, so 7 of input: 7 x 34 x 16 x 2.
    depthwise = layer((1, 32, 10, 34), (32, 1, 3, 3), groups=32)
    assert 112 * 16 * 2 + 7 * 34 * 16 * 2 == 11200
    assert merge_factor(depthwise, ARCH35._replace(l1=l1 - 43008 + 11200)) == factor


def test_only_weights_that_lie_channels_first_are_merged():
    depthwise = layer((1, 32, 8, 8), (32, 1, 3, 3), 1, 1, groups=32)
    for weight, factor in (("NCDHW", 16), ("NDHWC", 1), ("DHWCN", 1)):
        assert merge_factor(depthwise._replace(layouts=Layouts(weight=weight)), ARCH35) == factor


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
        # Of 28 x 28 tiles 20 x 20 are more than half; of 27 x 27 (54 pixels) 19 x 19 are less.
        (square(256, 256, 41, padding=8, **WIDE), True),
        (square(256, 256, 40, padding=8, **WIDE), False),
        (square(256, 256, 80, padding=9, **WIDE), False),
        (square(256, 256, 16, layouts=LAST, **WIDE), False),
        (layer((1, 256, 16, 16), (256, 256, 3, 3), 1, (1, 1, 1, 1), **WIDE), True),
        (layer((1, 256, 16, 16), (256, 256, 3, 3), 1, (0, 1, 1, 1), **WIDE), False),
        # 512000 tiles of 2 x 2: 8 x 8 in an image of 16 x 16, of 8000 images.
        (square(256, 256, 16, batch=8000, **WIDE), True),
        (square(256, 256, 16, batch=8001, **WIDE), False),
        # 2 x 3 of 3 x 4 tiles are half, 2 x 2 of 3 x 3 less. Images of two rows have none but for padding.
        (layer((1, 256, 5, 8), (256, 256, 3, 3), 1, 1, **WIDE), True),
        (layer((1, 256, 5, 6), (256, 256, 3, 3), 1, 1, **WIDE), False),
        (layer((1, 256, 2, 64), (256, 256, 3, 3), 1, 1, **WIDE), False),
    ],
)
def test_what_is_computed_by_winograd(given, taken):
    assert takes_winograd(given) == taken


# --- few tasks


@pytest.mark.parametrize(
    ("given", "sizes", "tasks", "tail"),
    [
        # 768 rows are three tasks, and 32 cores no three times as many. 48 fractals in 32 to 24 parts are 24
        # tasks of 32 rows; in 23 parts 16 of 48, two cores for each, with 16 images. 128 pixels are two rows.
        (layer((32, 48, 64, 64), (768, 48, 1, 1), dtype="float32"), (48, 48, 128), 16, (2, "batch_depth")),
        # 17 x 256 columns and a fractal of rows: 17 tasks for 32 cores. Columns in 32 parts
        # are 31 tasks of 9 fractals, beside which half of L0B holds 112 pixels, a row of 64.
        (rows(8, 64, 4352, 16, 1), (16, 144, 64), 31, (1, "")),
        # A window of nine taps is not cut.
        (rows(8, 64, 320, 16, 1, 3), (16, 144, 64), 20, (1, "")),
    ],
)
def test_few_tasks_have_shorter_sides(given, sizes, tasks, tail):
    found = wgrad(given)
    assert (base(found), found.tasks) == (sizes, tasks)
    assert (found.stream_ways, found.stream_axis) == tail


@pytest.mark.parametrize(
    ("images", "height", "tail"),
    [
        # One task for 32 cores. 32 images and 32 rows make as many parts, images first; 31 images one less.
        (32, 32, (32, "batch_depth")),
        (31, 32, (32, "height")),
        # 47 images are 24 parts of 2, the last of 1, a half. 94 rows are 32 parts of 3; 46 are 23 parts of 2.
        (47, 94, (32, "height")),
        (47, 46, (24, "batch_depth")),
        # 71 are 24 parts of 3, of the last of which two thirds are there.
        (47, 71, (24, "height")),
        (71, 47, (24, "batch_depth")),
        # So images give way even if they have more parts: 32 of 2, the last a half. Whole parts do not.
        (63, 71, (24, "height")),
        (64, 71, (32, "batch_depth")),
    ],
)
def test_of_as_many_parts_those_whose_last_is_fuller(images, height, tail):
    found = wgrad(rows(height, 64, 16, 16, images))
    assert found.tasks == 1
    assert (found.stream_ways, found.stream_axis) == tail


# --- L1 that does not hold a block


@pytest.mark.parametrize(
    ("l1", "sizes"),
    [
        # One slice of 256 x 256 x 64 is 64 KiB. 16 KiB too many are 16 pixels of both sides; but 48 pixels
        # touch two rows of 64, so 32 follow: 16 KiB of grad_output, and a row of 256 channels, 32 KiB.
        (49152, (256, 256, 32)),
        # A byte less: two times 16 pixels, and again 16.
        (49151, (256, 256, 16)),
        # 16 pixels with a row are 40 KiB. A byte less takes 16 from both sides, of 512 + 2048 bytes together.
        # What is free is 2559 bytes, four times 16 rows of 16 pixels: more than the 16 that there are.
        (40959, (256, 240, 16)),
    ],
)
def test_a_block_shrinks_its_reduction_first_and_then_both_sides(l1, sizes):
    found = plan(rows(64, 64, 256, 256, 32), "grad_weight", ARCH35._replace(l1=l1), by_winograd=False)
    assert base(found) == sizes
    assert (found.step_ka, found.al1_buffers, found.strip_w, found.taps) == (1, 1, 0, "all")


def test_strips_come_after_the_block_has_shrunk():
    # Three taps, 100 rows apart, see 201 rows: of 512 columns, or 128, and 16 channels more than L1 holds. In
    # strips of 64 half of L0B holds 341 pixels of 48 columns: five rows, 320. A row of input is 2048 bytes,
    # and one of grad_output as many: s slices take 200 + 5 s + 5 s of 256 rows. So four do, in one copy.
    tall = layer((1, 16, 300, 512), (16, 16, 3, 1), 1, (100, 0), (100, 1))
    found = wgrad(tall)
    assert base(found) == (16, 48, 320)
    assert (found.step_ka, found.al1_buffers, found.strip_w, found.taps) == (4, 1, 64, "all")


# --- computed records


def test_every_field_of_computed_plans_is_ours(data_dir):
    found = vectors(data_dir, "dW", "arch35")
    assert len(found) == 75
    for at, record in found:
        made = plan(layer_of(record), "grad_weight", machine_of(record), record["dtype"])
        assert differences(made, record) == {}, at


def test_every_field_that_unit_tests_expect_is_ours(data_dir):
    found = [record for record in records(data_dir, "dW", "arch35") if record["success"]]
    assert len(found) == 14
    for record in found:
        made = plan(layer_of(record), "grad_weight", machine_of(record))
        unread = {"usedCoreNum", *FOLLOWS - dict(made.host).keys()}
        other = differences(made, {**record, "strategy": made.strategy})
        assert {name: pair for name, pair in other.items() if name not in unread} == {}, record["case"]


def test_strips_that_are_wider_than_a_row_cut_nothing():
    # 16 pixels of one column see 16 + 250 rows: of 63 columns and 16 channels in 2 bytes more than L1 holds.
    # Strips count all of their columns, so that none fits until taps are loaded one by one, in strips of 16.
    assert ARCH35.l1 < 266 * 63 * 16 * 2
    found = wgrad(layer((1, 16, 400, 63), (16, 16, 2, 1), (1, 63), 0, (250, 1)))
    assert (found.taps, dict(found.host)["splitWo"], found.strip_w) == ("khkw", 16, 0)
