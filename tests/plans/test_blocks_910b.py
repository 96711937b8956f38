"""Are the base blocks, grids and thresholds of 910B and 910_93 those of the operators' rules?"""

import pytest

from ascendsim.ops.tiling.vendor.arch22.wgrad_blocks import takes_basic_blocks
from tests.helpers.outside_records import differences, layer_of, machine_of, records, told, vectors
from tests.helpers.slow_tilings import ARCH22, base, layer, plan, rows, square

# --- Are the basic blocks and grids of 910B and 910_93 those of the operators' rules? ------------------
# Thresholds are tried at the value and one further. With the outside data every field of all computed plans
# and unit tests is held against ours.

GRADIENTS = {"dX": "grad_input", "dW": "grad_weight"}
BLOCKS = ("basic_block", "core_grid", "basic_mk", "basic_nk", "basic_mn", "basic_det")


def plan_of(record):
    return plan(
        layer_of(record),
        GRADIENTS[record["op"]],
        machine_of(record),
        record["dtype"],
        deterministic=bool(record.get("deterministic", False)),
    )


@pytest.mark.parametrize(("op", "count"), [("dX", 50), ("dW", 64)])
def test_every_field_of_computed_plans_is_equal(data_dir, op, count):
    of_blocks = [(at, one) for at, one in vectors(data_dir, op, "arch22") if one["strategy"] in BLOCKS]
    assert len(of_blocks) == count
    differing = {at: differences(plan_of(one), one) for at, one in of_blocks}
    assert {at: fields for at, fields in differing.items() if fields} == {}


@pytest.mark.parametrize(("op", "count"), [("dX", 9), ("dW", 14)])
def test_every_field_of_unit_tests_is_equal(data_dir, op, count):
    # Fields that describe the layer are not the plan's; of grids the records say 0 for shares of tasks.
    equal = 0
    for one in records(data_dir, op, "arch22"):
        # Of several groups of grad_input the closed library has its own plans.
        if not one["success"] or (op == "dX" and one["groups"] > 1):
            continue
        found = plan_of(one)
        if found.strategy not in BLOCKS:
            continue
        said = {**one["expected"], "block_dim": one["block_dim"]}
        ours = {**told(found, op), "block_dim": found.used_cores}
        zero = {name for name, value in said.items() if name.startswith("single") and not value}
        assert {name: ours[name] for name in ours if name in said and name not in zero} == {
            name: said[name] for name in ours if name in said and name not in zero
        }, one["case"]
        equal += 1
    assert equal == count


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
        # The same of rows that are whole fractals; not where a row and a block divide, or up to 64 pixels.
        (rows(66, 80, 1024, 512, 1), 22 * 80),
        (rows(66, 128, 1024, 512, 1), 2 * 128),
        (rows(66, 62, 1024, 512, 1), 4 * 62),
        # 144 MiB are 3,145,728 elements of 16 bits for each of 24 cores. 128 columns x 4608 and a block of
        # 256 x 128 are 622,592 of them; each row has 66 x 512 of grad_output and 66 x 128 of the result: 59
        # rows are 2,492,160, and 60 too many, so that halves are taken.
        (rows(59, 66, 512, 512, 24, 3), 59 * 66),
        (rows(60, 66, 512, 512, 24, 3), 30 * 66),
        # Images keep all cores busy: two blocks, three and so on, 4 rows each, as far as they divide the
        # image. 128 x 512 weights and a block leave 3,047,424 elements, 4761 pixels of 512 + 128: 64 rows.
        (rows(256, 64, 128, 512, 24), 64 * 64),
        # Of 130 rows the divisors below 74 are 65, 26, 13, 10, 5, none of which is a multiple of 4.
        (rows(130, 64, 128, 512, 24), 4 * 64),
        # Half an image of two rows: 16 pixels are a block, and the start, of 12 pixels.
        (rows(3, 4, 128, 512, 1), 16),
    ],
)
def test_pixels_of_a_task(given, single_m):
    assert dgrad(given).single_core_m == single_m


@pytest.mark.parametrize(
    ("l1", "sizes"),
    # Two copies of 64 channels of 128 pixels, 16 KiB each, and of 256 columns of them, 32 KiB each. Of equal
    # sides the columns give way. Then base_k is looked for below what L0 holds: 64 of 240 columns, so 48; 128
    # of 128 pixels, of which L1 holds 64.
    [(98304, (128, 256, 64)), (98303, (128, 240, 48)), (65536, (128, 128, 64)), (65535, (128, 112, 64))],
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
    # 16 x 16 channels for 5 rows of pixels, together 510,976 bytes. Of 80 pixels L0 holds 192 of k; below it
    # 176 is an eleventh of a window.
    found = dgrad(rows(16, 16, 128, 64, 1, 11))
    assert (base(found), found.step_ka, found.step_kb) == ((80, 64, 176), 11, 11)
    assert (found.al1_buffers, found.bl1_buffers) == (2, 2)


@pytest.mark.parametrize(
    ("width", "found"),
    # 16 channels of weights are 61,952 bytes; 1024 pixels reach into 13 rows of grad_output, 249,600 bytes of
    # 600 pixels. Pixels are not cut below a row, nor is base_k below 16. What 592 pixels are found to hold
    # with one copy of the weights is put back, as no shorter base_k goes with it; two copies of the weights
    # and one of grad_output hold it as it is, 373,504 bytes, and still one copy of both is what remains.
    [(600, ((1024, 16, 16), 1, 1)), (800, ((1024, 16, 16), 1, 1)), (1200, None)],
)
def test_a_plan_that_gives_up_a_copy_ends_with_one_of_both(width, found):
    made = dgrad(rows(16, width, 16, 32, 1, 11))
    assert (made and (base(made), made.al1_buffers, made.bl1_buffers)) == found


def test_what_fits_with_two_copies_of_grad_output_alone_is_where_the_next_try_begins():
    # 91 taps x 16 channels of weights are 46,592 bytes; 1024 pixels reach into all 16 rows of grad_output,
    # 256,000 bytes, and 496 into 14, 224,000. Two copies of both never fit. With one of the weights 496 do,
    # 494,592 bytes, and of the 32 of k that L0 holds beside them 16 are a shorter one. With one copy of both
    # 1024 would fit as well.
    found = dgrad(layer((1, 16, 16, 500), (16, 16, 13, 7), 1, (6, 3)))
    assert (base(found), found.al1_buffers, found.bl1_buffers) == ((496, 16, 16), 1, 1)


# --- grad_input of float32: grids of cores


def wide(*sizes, **more):
    return rows(*sizes, dtype="float32", **more)


@pytest.mark.parametrize(
    ("given", "grid"),
    [
        # A part has 128 pixels at least: 24 parts of a row of 128.
        (wide(24, 128, 64, 64, 1), (1, 1, 24, 1)),
        # 24 parts of 3048 pixels are too short, and 8 of the channels, which gcd(24, 64) gives, too. 22 do
        # not divide them but are long enough; only 12 of two rows come out, less than 60 %.
        (wide(24, 127, 512, 64, 1), None),
        # 24 parts, which do not divide 6016 pixels: two rows each.
        (wide(47, 128, 64, 64, 1), (1, 1, 24, 1)),
        # 16 of 64 pixels, or of 1024 groups of channels: a part of pixels would have 4, one of channels 512.
        (wide(4, 16, 8192, 64, 1), (1, 1, 1, 16)),
        # Fewer cores, down to 60 %, which 15 of 24 are and 14 are not.
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
    # The weights are whole in their quarter: one copy, 16,384 bytes. A slice of 32 channels of two rows, of 4
    # bytes, twice, has the rest of L1 less 128 bytes up to 991 pixels: 512 bytes each.
    [(511, (2, 1)), (991, (2, 1)), (992, None)],
)
def test_a_grid_is_refused_where_one_slice_does_not_fit(width, copies):
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
        # Of nine taps a row of three, 24. Three groups, 9 slices, are whole in L1; the weights are turned in
        # pairs of them, 12 slices, which the largest number up to 9 that divides them is 6.
        (wide(16, 16, 64, 24, 24, kernel=3), (256, 64, 24), (6, 12)),
        # Of a single group, 8 channels, a pair of the weights: 72 / 24 slices, and twice as many.
        (wide(16, 16, 64, 8, 24, kernel=3), (256, 64, 24), (3, 6)),
        # 10 groups of 1 x 1: 80 is no multiple of 32, so that base_k is one group. L1 holds all of both.
        (wide(16, 16, 64, 80, 24), (256, 64, 8), (10, 10)),
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
    ("channels", "size", "batch", "grid"),
    [
        # Five images leave four cores for each: to the rows, as 1024 pixels are 16 times 64, and 2304 columns
        # nine times 256, 4032 sixteen times; or to the channels, of 4608.
        (256, 32, 5, (5, 1, 4)),
        (448, 32, 5, (5, 1, 4)),
        (512, 32, 5, (5, 4, 1)),
        # 196 pixels are no four parts of 64. 128 channels are four parts of 256 columns, 112 are not.
        (128, 14, 5, (5, 4, 1)),
        (112, 14, 5, None),
        # 15 rows are five parts of three, 12 are four of them, as 16 groups of channels are four of four.
        (256, 30, 4, (4, 1, 5)),
        (256, 24, 4, None),
        # Two images keep fewer than four cores at work.
        (256, 32, 2, None),
    ],
)
def test_cores_that_images_leave_go_to_rows_or_channels(channels, size, batch, grid):
    given = square(channels, 16, size, batch=batch, dtype="bfloat16")
    if batch == 4:
        given = layer((4, channels, size, 64), (16, channels, 3, 3), (2, 1), 1, dtype="bfloat16")
    found = plan(given, "grad_weight", ARCH22._replace(cores=20), "bfloat16")
    assert found.strategy == ("core_grid" if grid else "library")
    if grid:
        parts = dict(found.grid)
        assert (parts["batch"], parts["n"], parts["k"]) == grid
        # Depths and images take a divisor of 20, and the rest is cut in as many parts as are left.
        assert (found.used_cores, found.tasks) == (20, 20)


def test_a_grid_of_20_cores_is_for_two_copies_of_its_tiles():
    # A core has 8 rows of 32 pixels of 16 channels, and 10 rows of input, of which 32 fractals of columns
    # touch six windows of nine: 4,096 and 30,720 elements, all of its share. L1 is strictly larger.
    given = square(256, 16, 32, batch=5, dtype="bfloat16")
    need = 2 * (4096 + 30720) * 2
    found = [
        plan(given, "grad_weight", ARCH22._replace(cores=20, l1=l1 + 128), "bfloat16")
        for l1 in (need + 1, need)
    ]
    assert [one.strategy for one in found] == ["core_grid", "library"]
    assert (base(found[0]), found[0].step_ka, found[0].step_kb) == ((16, 512, 32), 8, 8)
    assert dict(found[0].host)["bl1Bound"] == 30720


@pytest.mark.parametrize(
    ("out", "channels", "sizes"),
    [
        # 16384 elements beside 256 rows are 64; 32 columns would have 256 of 8192, but the shorter counts.
        (256, 32, (256, 32, 64)),
        # 8192 beside 32 rows, and 16384 beside 256 columns; beside 32 of both 256 and 512.
        (32, 256, (32, 256, 64)),
        (32, 32, (32, 32, 256)),
        # Four rows are no whole fractal; columns come in groups of 16.
        (4, 20, (16, 32, 512)),
    ],
)
def test_a_short_side_makes_a_longer_slice(out, channels, sizes):
    given = layer((1, channels, 28, 28), (out, channels, 1, 1))
    assert base(wgrad(given, deterministic=True)) == sizes


def test_columns_of_float32_are_counted_in_groups_of_eight():
    # A window of nine taps has 72 columns, for which a block takes whole fractals.
    found = wgrad(layer((1, 4, 28, 28), (16, 4, 3, 3), dtype="float32"), "float32", deterministic=True)
    assert (found.base_n, found.single_core_n) == (80, 72)


@pytest.mark.parametrize(("out", "channels", "split"), [(512, 1024, "mk"), (1024, 512, "nk")])
def test_what_an_image_leaves_of_a_resident_tile_goes_to_more_blocks(out, channels, split):
    # 64 pixels are one slice, where a tile of depth 8 in two copies has four. Four blocks of 128 make one
    # task of each of 16 images; with depth 4 two blocks make 32 tasks for 24 cores.
    found = wgrad(layer((16, channels, 8, 8), (out, channels, 1, 1)))
    assert (found.strategy, base(found)) == (f"basic_{split}", (128, 128, 64))
    assert (found.step_ka, found.step_kb, found.tasks) == (1, 1, 32)
    blocks = {"mk": dict(found.host)["stepM"], "nk": found.step_n}
    assert blocks[split] == 2
    assert (found.single_core_m, found.single_core_n) == {"mk": (256, 1024), "nk": (1024, 256)}[split]


def test_groups_that_are_merged_into_one_have_basic_blocks():
    found = wgrad(layer((1, 16, 8, 8), (16, 8, 1, 1), groups=2))
    assert (found.strategy, found.group_merge, base(found)) == ("basic_mk", 2, (16, 16, 64))


@pytest.mark.parametrize(
    ("l1", "base_k"),
    # 128 x 128 x 128 of rows of 16 pixels: 32 KiB of either operand. 16 of k are 4 KiB of grad_output, and
    # of input as much: of 16 KiB that are lacking 32 make room, and a byte more takes 48.
    [(65536, 128), (49152, 96), (49151, 80)],
)
def test_the_reduction_is_cut_first_where_l1_is_full(l1, base_k):
    given = layer((1, 128, 16, 16), (128, 128, 1, 1))
    found = plan(given, "grad_weight", ARCH22._replace(l1=l1), "float16")
    assert base(found) == (128, 128, base_k)
    assert (found.step_ka, found.step_kb, found.al1_buffers, found.bl1_buffers) == (1, 1, 1, 1)


def test_wide_rows_make_columns_fewer_and_the_slice_long_again():
    # Two rows of 1071 pixels of 128 channels are 548,352 bytes, however short the slice. Of 112 channels they
    # are 479,808; beside them 44,480 bytes hold 347 of k of 64 rows, L0B 146 of 112 columns.
    given = layer((2, 186, 3, 727, 1071), (64, 186, 3, 1, 1), (2, 1, 1), dtype="bfloat16")
    found = wgrad(given, "bfloat16")
    assert (found.strategy, base(found)) == ("basic_mk", (64, 112, 144))


def test_l1_that_holds_no_slice_refuses_basic_blocks():
    # 16 rows x 16 pixels and two rows of 1071 x 16 channels are the smallest: 512 + 68,544 bytes.
    given = layer((2, 186, 3, 727, 1071), (64, 186, 3, 1, 1), (2, 1, 1), dtype="bfloat16")
    for deterministic in (False, True):
        short = ARCH22._replace(l1=68544)
        assert plan(given, "grad_weight", short, "bfloat16", deterministic=deterministic) is None


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
        # half of the cores, and so not cut. Of two windows each there are 8, cut in three; but their 288
        # columns end in two fractals beside two tiles of eight. So tiles are one window wide, of 128 rows,
        # and so are strips: 32 tasks, of which the last 8 are cut in three.
        (256, 28, 144, 3, 24),
        # 17 windows: in pairs 9 tasks, in threes 6, cut in four.
        (272, 28, 432, 4, 24),
        # Two rows are one slice, which nothing cuts; a window of nine fractals ends in one beside a tile of
        # eight: tiles one window wide, of 128 rows. 32 tasks, the last 8 of them whole; 12 windows are 24.
        (256, 2, 144, 1, 24),
        (192, 2, 144, 1, 24),
    ],
)
def test_strips_are_widened_until_their_parts_keep_all_cores_busy(channels, height, single_n, ways, cores):
    found = wgrad(layer((1, channels, height, 28), (256, channels, 3, 3), 1, 1), deterministic=True)
    assert (found.single_core_n, found.stream_ways, found.used_cores) == (single_n, ways, cores)


def test_a_strip_that_ends_in_a_thin_tile_takes_as_many_whole_windows_as_a_block():
    # 144 windows of 48 columns are 24 strips of six, 288 columns, which end in two fractals beside a tile of
    # 16. Six windows are 18 fractals, more than a block has; five are 15. Half of L0B holds 68 of k for them.
    found = wgrad(layer((1, 2304, 4, 4), (16, 2304, 1, 3), 1, (0, 1)), deterministic=True)
    assert (base(found), found.single_core_n) == ((16, 240, 64), 240)


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


@pytest.mark.parametrize(
    ("blocks", "ways", "cores"),
    # Half of the cores and more have a task each; fewer tasks are all cut, on all cores.
    [(13, 1, 13), (12, 2, 24), (23, 1, 23), (24, 1, 24)],
)
def test_tasks_on_more_than_half_of_the_cores_are_not_cut(blocks, ways, cores):
    found = wgrad(layer((1, 4, 32, 32), (blocks * 256, 4, 2, 2), 2), deterministic=True)
    assert (found.tasks, found.stream_ways, found.used_cores) == (blocks, ways, cores)


@pytest.mark.parametrize(
    ("size", "axis"),
    # Two parts of five images: three, and two thirds of that. Two of 15 rows: eight, and seven eighths of
    # that, which is fuller; 16 rows have no remainder, which counts as none.
    [(30, "height"), (32, "batch_depth")],
)
def test_of_equally_many_parts_the_fuller_remainder_counts(size, axis):
    found = wgrad(layer((5, 4, size, size), (12 * 256, 4, 2, 2), 2), deterministic=True)
    assert (found.tasks, found.stream_ways, found.stream_axis) == (12, 2, axis)


def test_a_small_l0_refuses_deterministic_blocks():
    # Half of 16,384 bytes holds 8 pixels of 256 channels in float32, less than a fractal.
    given = layer((5, 256, 20, 20), (256, 256, 3, 3), 1, 1, dtype="float32")
    assert plan(given, "grad_weight", ARCH22._replace(l0a=16384), "float32", deterministic=True) is None


# --- Is every threshold of the library of 910B's and 910_93's grad_weight where the operator has it? ---


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
    # row leaves nothing else to cut; 24 depths of both groups and 12 of each take as long, and of these two
    # the fewer parts of depths come first.
    [(1, 1, (1, 1, 24)), (2, 1, (24, 1, 1)), (1, 2, (12, 2, 1))],
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
