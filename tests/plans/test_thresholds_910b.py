"""Is every threshold of 910B's and 910_93's plans where the operators have it: the value, and one further?"""

import pytest

from ascendsim import ConvProblem, load_profile
from ascendsim.ops.tiling.vendor.arch22.wgrad_block import takes_basic_blocks
from tests.helpers.requests import operators_plan
from tests.helpers.vendor_layers import ARCH22, base, layer, plan, rows, square

# --- grad_input of 16 bits: basic blocks


def dgrad(layer, dtype="float16"):
    return plan(layer, "grad_input", ARCH22, dtype)


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        # The long side along the longer one, pixels if both are equal: 256 x 128, and half of L0A, 16384
        # elements, leaves 64 of k.
        (rows(64, 64, 512, 512, 1), (256, 128, 64)),
        (rows(16, 16, 256, 512, 1), (256, 128, 64)),
        (rows(16, 16, 257, 512, 1), (128, 256, 64)),
        # A short side is what there is; with 64 of k the other one stays.
        (rows(64, 64, 64, 512, 1), (256, 64, 64)),
        # 32 of k leave room: 16384 / 32 = 512; L0C, 32768 sums, has 256 beside 128 and 512 beside 64.
        (rows(64, 64, 512, 32, 1), (256, 128, 32)),
        (rows(64, 64, 64, 32, 1), (512, 64, 32)),
        (rows(8, 8, 512, 32, 1), (64, 512, 32)),
        (rows(8, 8, 320, 32, 1), (64, 320, 32)),
        # Nine taps: of 144 the largest part up to 64 is 48, which leaves 336; L0C has 256 beside 128.
        (rows(64, 64, 512, 512, 1, 3), (256, 128, 48)),
        (rows(64, 64, 64, 512, 1, 3), (336, 64, 48)),
    ],
)
def test_basic_blocks_of_grad_input(given, sizes):
    assert base(dgrad(given)) == sizes


@pytest.mark.parametrize(
    ("given", "single_m"),
    [
        # Rows of a block: 256 / 64 of them; whole images where images alone keep all 24 cores busy.
        (rows(64, 64, 128, 512, 23), 256),
        (rows(64, 64, 128, 512, 24), 4096),
        (rows(64, 64, 128, 512, 25), 256),
        # Rows of more than 64 pixels, no whole fractals: 8 blocks of channels with 3 parts of 22 rows.
        (rows(66, 66, 1024, 512, 1), 22 * 66),
        (rows(65, 65, 1024, 512, 1), 22 * 65),
        (rows(66, 66, 128, 512, 24), 66 * 66),
        # No number of parts up to 22, of 3 rows each, gives a multiple of 24.
        (rows(66, 66, 128, 512, 1), 3 * 66),
        # Fractals, or no more than 64: not looked at.
        (rows(66, 80, 1024, 512, 1), 3 * 80),
        (rows(66, 62, 1024, 512, 1), 4 * 62),
        # 24 cores touch 2 bytes of 512 x 512 x 9 weights and of 512 + 512 channels of 45 x 66 pixels each,
        # together less than 144 MiB; of 46 x 66 more, so that halves are taken.
        (rows(45, 66, 512, 512, 24, 3), 45 * 66),
        (rows(46, 66, 512, 512, 24, 3), 23 * 66),
    ],
)
def test_pixels_of_a_task(given, single_m):
    assert dgrad(given).single_core_m == single_m


@pytest.mark.parametrize(
    ("l1", "sizes"),
    # Two copies of 64 channels of 128 pixels, 16 KiB each, and of 256 columns of them, 32 KiB each. Of equal
    # sides the columns give way.
    [(98304, (128, 256, 64)), (98303, (128, 240, 64)), (65536, (128, 128, 64)), (65535, (128, 112, 64))],
)
def test_the_longer_side_loses_a_fractal_where_l1_is_full(l1, sizes):
    found = plan(rows(8, 16, 512, 512, 1), "grad_input", ARCH22._replace(l1=l1))
    assert base(found) == sizes


def test_shares_of_l1_are_counted_in_slices():
    # 64 of k are four groups of channels. A quarter of L1, 131,072 bytes, holds 10 groups of 5 rows of 80
    # pixels, two slices, and all 12 groups of the weights, three: of these two, which two divide.
    found = dgrad(layer((1, 17, 8, 200, 80), (192, 17, 2, 1, 1)))
    assert base(found) == (256, 32, 64)
    assert (found.step_ka, found.step_kb) == (2, 2)


def test_sides_are_cut_before_copies_even_where_k_cannot_be():
    # Of 121 taps x 16 channels no part up to 64 is longer than 16. In one copy L1 holds the weights of 128
    # columns, 495,616 bytes, but both are to have two: those of 64 columns, and of grad_output 15 rows of
    # 16 x 16 channels for 5 rows of pixels, together 510,976 bytes.
    found = dgrad(rows(16, 16, 128, 64, 1, 11))
    assert base(found) == (80, 64, 16)
    assert (found.al1_buffers, found.bl1_buffers) == (2, 2)


@pytest.mark.parametrize(
    ("width", "copies"),
    # 16 channels of weights, 61,952 bytes, stand beside 11 rows of grad_output, or 12 where 16 pixels reach
    # into a second row: 230,400, 281,600, 422,400 and 537,600 bytes.
    [(600, (2, 1)), (800, (1, 2)), (1200, (1, 1)), (1400, None)],
)
def test_copies_of_the_smallest_block_go_one_by_one(width, copies):
    found = dgrad(rows(16, width, 16, 32, 1, 11))
    assert (found and (base(found), found.al1_buffers, found.bl1_buffers)) == (
        copies and ((16, 16, 16), *copies)
    )


# --- grad_input of float32: grids of cores


def wide(*sizes, **more):
    return rows(*sizes, dtype="float32", **more)


@pytest.mark.parametrize(
    ("given", "grid"),
    [
        # A part has 128 pixels at least: 24 parts of a row of 128.
        (wide(24, 128, 64, 64, 1), (1, 1, 24, 1)),
        # 12 of two rows, if both parts of the channels then have 256.
        (wide(24, 127, 512, 64, 1), (1, 1, 12, 2)),
        # Else fewer cores, down to 60 %, which 15 of 24 are and 14 are not.
        (wide(24, 127, 511, 64, 1), None),
        (wide(15, 128, 64, 64, 1), (1, 1, 15, 1)),
        (wide(14, 128, 64, 64, 1), None),
        # Divisors of the cores, first of depths, then of images.
        (wide(24, 128, 64, 64, 9), (1, 3, 8, 1)),
        (layer((6, 64, 4, 24, 128), (64, 64, 1, 1, 1), dtype="float32"), (4, 6, 1, 1)),
    ],
)
def test_grids_of_cores(given, grid):
    found = dgrad(given, "float32")
    assert (found and tuple(dict(found.grid).values())) == grid


@pytest.mark.parametrize(
    ("width", "copies"),
    # Four groups of 8 channels of two rows, of 4 bytes: a quarter of L1 less 128 bytes has them of up to 511
    # pixels, twice; half of it, once, of up to 1023. There is no room for longer rows.
    [(511, (2, 2)), (513, (1, 2)), (1023, (1, 2)), (1025, None)],
)
def test_copies_that_a_grid_gives_up(width, copies):
    found = dgrad(wide(4, width, 64, 64, 24), "float32")
    assert (found and (found.al1_buffers, found.bl1_buffers)) == copies


@pytest.mark.parametrize(
    ("given", "sizes", "steps"),
    [
        # More pixels than channels: the long side along them. 8192 / 256 = 32 of k, four groups of 8.
        (wide(16, 16, 240, 64, 24), (256, 128, 32), (2, 2)),
        (wide(16, 16, 256, 64, 24), (128, 256, 32), (2, 2)),
        # 24 channels are three groups, all of which one slice takes.
        (wide(16, 16, 64, 24, 24), (256, 64, 24), (1, 1)),
        # Of nine taps a row of three, 24. Groups of 8 come in pairs: of three two, with 2 x 72 / 24 slices.
        (wide(16, 16, 64, 24, 24, kernel=3), (256, 64, 24), (6, 6)),
        # Of a single group, 8 channels, there is no pair: 72 / 24 slices.
        (wide(16, 16, 64, 8, 24, kernel=3), (256, 64, 24), (3, 3)),
        # Three taps in a row: a window of 24, all eight groups of either side.
        (layer((24, 64, 16, 16), (64, 64, 1, 3), 1, (0, 1), dtype="float32"), (256, 64, 24), (8, 8)),
        # A quarter of all but 128 bytes of L1 is 131040 bytes: 7 groups of weights, of 64 x 72 x 4, so 6;
        # 15 of 16 x 16 pixels, so 12, which 6 divide.
        (wide(16, 16, 64, 128, 24, kernel=3), (256, 64, 24), (36, 18)),
    ],
)
def test_blocks_of_a_grid(given, sizes, steps):
    found = dgrad(given, "float32")
    assert (base(found), (found.step_ka, found.step_kb)) == (sizes, steps)


# --- grad_weight


def wgrad(layer, dtype="float16", **more):
    return plan(layer, "grad_weight", ARCH22, dtype, **more)


@pytest.mark.parametrize(
    ("height", "steps", "single_k", "tasks"),
    # 128 x 128 x 128: rows of 128 pixels, three apart in rows of 384 of input, of which L1 holds twice
    # one row. Two slices of grad_output give a task for each pair of rows; where those are fewer than 24, one
    # slice gives one for each row.
    [(48, (2, 1), 256, 24), (46, (1, 1), 128, 46)],
)
def test_tiles_are_as_deep_as_leaves_all_cores_a_task(height, steps, single_k, tasks):
    found = wgrad(layer((1, 128, 3 * height, 384), (128, 128, 1, 1), 3))
    assert base(found) == (128, 128, 128)
    assert ((found.step_ka, found.step_kb), found.single_core_k, found.tasks) == (steps, single_k, tasks)
    assert (found.al1_buffers, found.bl1_buffers) == (2, 2)


@pytest.mark.parametrize(
    ("channels", "size", "grid"),
    [
        # Five images leave four cores for each. A quarter of 32 rows loads 8 rows of 16 channels and 10 of
        # input, a quarter of the channels 32 rows of either and two more: 128 + 2560 to 512 + 64 x 34 lines
        # of 256 channels, as many. Of 320 a quarter is less, 512 + 80 x 34 to 128 + 3200.
        (256, 32, (5, 1, 4)),
        (320, 32, (5, 4, 1)),
        (48, 4, (5, 1, 4)),
        # Three rows are no four parts, nor are 3 x 16 channels; of neither the library takes it.
        (64, 3, (5, 4, 1)),
        (48, 3, None),
    ],
)
def test_cores_that_images_leave_go_to_rows_or_channels(channels, size, grid):
    given = square(channels, 16, size, batch=5, dtype="bfloat16")
    found = plan(given, "grad_weight", ARCH22._replace(cores=20), "bfloat16")
    assert found.strategy == ("core_grid" if grid else "library")
    if grid:
        parts = dict(found.grid)
        assert (parts["batch"], parts["n"], parts["k"]) == grid


@pytest.mark.parametrize(
    ("images", "cores"),
    # Images of one row and one fractal of either side: 64 are three a core for 22 of 24. 50 are three for 17,
    # and 25 two for 13: less than 80 %, but no divisor keeps as many at work.
    [(48, 24), (64, 22), (50, 17), (25, 13)],
)
def test_images_for_which_no_divisor_keeps_cores_busy(images, cores):
    found = wgrad(layer((images, 16, 1, 1, 64), (16, 16, 1, 1, 2)))
    assert (found.strategy, found.used_cores) == ("library", cores)
    assert dict(found.grid)["batch"] == cores


@pytest.mark.parametrize(
    ("dilation", "groups", "parts"),
    # Kernel depths of one group are columns, unless there are gaps between them. One image and depth of one
    # row leaves nothing else to cut; of two groups and 12 depths, which take as long, depths are preferred.
    [(1, 1, (1, 1, 24)), (2, 1, (24, 1, 1)), (1, 2, (24, 1, 1))],
)
def test_kernel_depths_of_one_group_are_columns(dilation, groups, parts):
    depth = 23 * dilation + 1
    given = layer(
        (1, 16 * groups, depth, 1, 16),
        (16 * groups, 16, 24, 1, 1),
        1,
        0,
        (dilation, 1, 1),
        groups=groups,
        dtype="float32",
    )
    grid = dict(wgrad(given, "float32").grid)
    assert (grid["kd"], grid["group"], grid["n"]) == parts


def test_a_grid_of_20_cores_has_two_copies_of_its_share_where_l1_holds_them():
    # A core has 8 rows of 32 pixels of 16 channels, and 10 rows of input, of which 32 fractals of columns cut
    # five windows of nine: all of its share at a time. With a byte less there is one copy.
    given = square(256, 16, 32, batch=5, dtype="bfloat16")
    need = 2 * (8 * 32 * 16 + 10 * 32 * 5 * 16) * 2
    copies = [
        plan(given, "grad_weight", ARCH22._replace(cores=20, l1=l1), "bfloat16").al1_buffers
        for l1 in (need, need - 1)
    ]
    assert copies == [2, 1]


def test_the_last_round_leaves_the_cores_of_the_rounds_before_in_use():
    # 29 blocks of 256 rows for 24 cores: 5 in the last round, 4 ways each, as 16 rows of grad_output have 4
    # parts. That are 20 cores, and 24 before.
    given = layer((1, 4, 32, 32), (29 * 256, 4, 2, 2), 2)
    found = wgrad(given, deterministic=True)
    assert (found.tasks, found.stream_ways, found.used_cores) == (29, 4, 24)


@pytest.mark.parametrize(
    ("channels", "height", "single_n", "ways", "cores"),
    [
        # 256 rows in one strip, and a window of 144 columns for every 16 channels: 16 tasks are more than
        # half of the cores, and so not cut. Of two windows each there are 8, cut in three.
        (256, 28, 288, 3, 24),
        # 17 windows: in pairs 9 tasks, in threes 6, cut in four.
        (272, 28, 432, 4, 24),
        # Two rows have two parts, and no strips make 12 tasks of 16 windows: narrow strips on as many cores.
        (256, 2, 144, 1, 16),
        # 12 windows are cut in two as they are.
        (192, 2, 144, 2, 24),
    ],
)
def test_strips_are_widened_until_their_parts_keep_all_cores_busy(channels, height, single_n, ways, cores):
    found = wgrad(layer((1, channels, height, 28), (256, channels, 3, 3), 1, 1), deterministic=True)
    assert (found.single_core_n, found.stream_ways, found.used_cores) == (single_n, ways, cores)


def test_two_tiles_of_sums_where_l0c_holds_them():
    found = [
        wgrad(square(channels, out, size, dtype="float32"), "float32")
        for channels in (16, 48, 64, 256)
        for out in (16, 64, 128, 512)
        for size in (7, 14)
    ]
    assert {one.strategy for one in found} == {"library"}
    assert {one.cl0_buffers for one in found} == {1, 2}
    for one in found:
        assert one.cl0_buffers == (2 if 2 * one.base_m * one.base_n * 4 <= ARCH22.l0c else 1)


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        # One tap, whatever the sides; 4, 9 and 16 taps with 128 of either side at least, in whole fractals.
        (square(16, 16, 16, 1), True),
        (square(128, 113, 16, 3), True),
        (square(128, 112, 16, 3), False),
        # Columns: 16 channels under 9 taps, and 32 under 4 taps where 16 are but 64.
        (square(15, 128, 16, 3), True),
        (square(17, 128, 16, 2), True),
        (square(16, 128, 16, 2), False),
        (square(128, 128, 16, 2), True),
        (square(128, 128, 16, 4), True),
        (square(128, 128, 16, 5), False),
        (layer((1, 128, 16, 16), (128, 128, 1, 9)), True),
        (layer((1, 128, 16, 16), (128, 128, 1, 8)), False),
        (square(128, 128, 16, 3, dtype="float32"), False),
        (layer((1, 128, 16, 16), (128, 64, 3, 3), groups=2), False),
        # Gaps in depth, where there is more than one kernel depth.
        (layer((1, 16, 4, 8, 8), (16, 16, 2, 1, 1), 1, 0, (2, 1, 1)), False),
        (layer((1, 16, 4, 8, 8), (16, 16, 1, 1, 1), 1, 0, (2, 1, 1)), True),
    ],
)
def test_layers_of_basic_blocks(given, taken):
    assert takes_basic_blocks(given) == taken


def test_a_small_l0_makes_the_blocks_of_a_deterministic_grad_weight_smaller():
    # Half of 16,384 bytes holds 16 pixels of 128 channels in float32, not of 256, with which a block begins.
    small = load_profile("910B2", overrides={"buffers.L0A.capacity_bytes": 16384})
    given = ConvProblem((5, 256, 20, 20), (256, 256, 3, 3), padding=1)
    found = operators_plan(given, "grad_weight", "float32", small, deterministic=True)
    assert (found.strategy, *base(found)) == ("stream_k", 128, 16, 16)
