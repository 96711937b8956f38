"""Are grids and tiles of the 910 and 310P what the rules of their operators give, worked out by hand?"""

from dataclasses import replace
from itertools import product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascendsim import ConvProblem, estimate, estimate_layer, layer_problem
from ascendsim.errors import UnsupportedError
from ascendsim.ops.tiling.request import PlanRequest
from ascendsim.ops.tiling.vendor.first import all_dgrads, all_wgrads, divisors, has_entry, last_of
from ascendsim.profile import load_profile
from tests.helpers.conv_cases import call_of
from tests.helpers.slow_tilings import LAYER, OLD, first_rule, grid_of, tiling_of

# --- grids


def test_images_are_dealt_to_as_many_blocks_as_there_are_cores():
    # 32 images on 30 cores: two each, so that 16 cores have work and 14 have none.
    tiling = tiling_of(LAYER, "grad_input")
    assert grid_of(tiling) == (30, 1, 1, 30)
    dealt = call_of(LAYER, profile=OLD, tilings={"grad_input": tiling}).schedule("grad_input").dealt()
    assert [len({task.image for task in tasks}) for tasks in dealt] == [2] * 16


def test_grad_weight_has_32_blocks_also_on_30_cores():
    tiling = tiling_of(LAYER, "grad_weight")
    assert grid_of(tiling) == (32, 1, 1, 30)
    dealt = call_of(LAYER, profile=OLD, tilings={"grad_weight": tiling}).schedule("grad_weight").dealt()
    # Blocks 30 and 31 come in a second round, on cores 0 and 1.
    assert [sorted({task.part for task in tasks}) for tasks in dealt[:3]] == [[0, 30], [1, 31], [2]]


@pytest.mark.parametrize(
    ("changed", "gradient", "cores", "blocks"),
    [
        # 32 images on 30 blocks are two each: 14 blocks are launched and find nothing to do.
        ({}, "grad_input", 16, 30),
        # 32 blocks on 30 cores: two wait for a core.
        ({}, "grad_weight", 30, 32),
        # On part of the chip no block waits: 8 cores go over all 32 cells.
        ({"used_cores": 8}, "grad_weight", 8, 8),
    ],
)
def test_the_launch_counts_the_blocks_of_the_grid_not_the_cores_with_work(changed, gradient, cores, blocks):
    tiling = replace(tiling_of(LAYER, gradient), **changed)
    mask = gradient == "grad_input", gradient == "grad_weight", False
    found = estimate(LAYER, product=OLD, output_mask=mask, tiling={gradient: tiling})
    kernel = next(kernel for kernel in found.kernels if kernel.name == gradient)
    assert (kernel.cores_used, kernel.kernel.blocks) == (cores, blocks)
    # 0.9 us, and 0.04 us for each block.
    assert kernel.launch_us + kernel.cycles / OLD.clock.cube_mhz == pytest.approx(kernel.time_us)
    assert kernel.launch_us == pytest.approx(0.9 + 0.04 * blocks)


def test_what_images_leave_of_the_cores_goes_to_columns_and_rows():
    # 2 images leave 15 blocks for each. 8 groups of channels have the divisors 1, 2, 4, 8, for which rows
    # take 15, 7, 3 and 1: none leaves more than two cores idle.
    tiling = tiling_of(replace(LAYER, input=(2, 128, 40, 40)), "grad_input")
    assert tiling.batch_dim == 2
    assert tiling.n_dim * tiling.m_dim <= 15
    assert tiling.used_cores >= 28


def test_half_of_the_cores_stay_idle_rather_than_load_an_operand_twice():
    # 16 images on 30 cores leave one block for each, as 17 of 21 measured kernels show.
    assert grid_of(tiling_of(replace(LAYER, input=(16, 128, 40, 40)), "grad_weight")) == (16, 1, 1, 16)


def test_the_lines_of_an_image_are_shared_where_channels_are_too_few_for_the_cores():
    def cuts(big, weight, product="910B_old_1001", **options):
        tiling = tiling_of(ConvProblem(big, weight, **options), "grad_weight", load_profile(product))
        return tiling.batch_dim, tiling.m_dim, tiling.n_dim, tiling.k_dim

    # Bytes of a block: 128 rows and 128 columns of 64 pixels in 16 bits are 32,768, their products in 32 bits
    # 65,536. Half of the rows and three parts of 8 lines would be 256 and 128 of 24: 18,432, and 131,072.
    assert cuts((1, 512, 8, 8), (512, 512, 1, 1)) == (1, 4, 4, 0)
    # 3 channels are one group; 96 filters are 6, which leave ten of 16 cores idle. A third of the filters, of
    # 11 lines of 55 pixels, for which 51 lines of 224 are read: 38,720 + 365,568 + 247,808 bytes. Half of
    # them, of 7 lines, for which 35 are read: 36,960 + 250,880 + 371,712.
    assert cuts((2, 3, 224, 224), (96, 3, 11, 11), "910A", stride=4, padding=2) == (2, 3, 1, 5)
    # One group on both sides leaves lines alone: of 10 each of 5 blocks gets two, as would 8.
    assert cuts((1, 16, 10, 10), (16, 16, 1, 1), "310P3") == (1, 1, 1, 5)


def test_rows_or_columns_are_cut_where_less_is_loaded_by_all_images():
    # 12 images leave two blocks for each: halves of the rows load the weights 24 times and grad_output once,
    # halves of the columns 12 times and twice. The weights of 3x3 from 256 to 256 have 590 thousand elements,
    # grad_output on 56x56 has 9.6 million: 24 x 0.59 + 9.6 is less than 12 x 0.59 + 19.3. 13 images do alike.
    for batch in (12, 13):
        layer = ConvProblem((batch, 256, 56, 56), (256, 256, 3, 3), 1, 1)
        assert grid_of(tiling_of(layer, "grad_input")) == (batch, 1, 2, 2 * batch)
    # Of 128 to 128 on 28x28 the weights have 147 thousand, grad_output 1.2 million: 24 x 0.147 + 1.2 = 4.7 is
    # more than 12 x 0.147 + 2.4 = 4.2. In the product both would be 9 times as large as they lie in memory.
    layer = ConvProblem((12, 128, 28, 28), (128, 128, 3, 3), 1, 1)
    assert grid_of(tiling_of(layer, "grad_input")) == (12, 2, 1, 24)


def test_a_strided_grad_input_loads_grad_output_without_the_zeros_between_its_pixels():
    # 3 images leave ten blocks for each. 512 x 256 weights are 131 thousand, grad_output of 512 x 28 x 28
    # pixels 1.2 million for all images: 30 x 0.131 + 1.2 = 5.1 for ten parts of the rows, but for five parts
    # and halves of the columns 15 x 0.131 + 2.4 = 4.4. On the 56 x 56 pixels of grad_input it would be four
    # times as much, and ten parts less. Both make three passes: tiles of 8 fractals of rows for 20 of them
    # and all 16 groups of columns, and tiles of 16 for 40, with the 8 groups of a half.
    layer = ConvProblem((3, 256, 56, 56), (512, 256, 1, 1), 2)
    assert grid_of(tiling_of(layer, "grad_input")) == (3, 2, 5, 30)


def test_the_fewest_passes_over_l0c_come_before_the_most_blocks():
    # 2 images leave 15 blocks for each; 56 x 56 pixels are 196 fractals, 512 channels are 32 groups, and of a
    # single (group, tap) pair 128 fractals of sums are all that limits a tile. 15 parts of the rows have 14
    # fractals: tiles of 14 x 8 load 32 + 4 x 14 of both, no others less, and make 1 x 4 passes. 7 parts and
    # halves of the columns have 28 x 16: tiles of 16 x 8 load 2 x 16 + 2 x 28 and make 2 x 2 passes, as many;
    # they are 28 blocks, though, and not 30.
    layer = ConvProblem((2, 512, 56, 56), (16, 512, 1, 1))
    tiling = tiling_of(layer, "grad_input")
    assert grid_of(tiling) == (2, 1, 15, 30)
    assert (tiling.base_m, tiling.base_n) == (14 * 16, 8 * 16)


def test_a_batch_of_one_image_more_does_not_idle_most_cores():
    # 7 images leave 4 blocks for each, which cut both sides; 8 and 10 leave 3, each of a third of the lines.
    used = [tiling_of(replace(LAYER, input=(n, 128, 40, 40)), "grad_weight").used_cores for n in (7, 8, 10)]
    assert used == [28, 24, 30]


@pytest.mark.parametrize(
    ("batch", "channels", "grid"),
    [
        # 16 images on 30 cores: one round of whole images, or two of halves, are as long. Thirds are two of a
        # third, if channels of either side have them; 1x1 of 96 columns and 128 rows loads 128 + 32, not 43.
        (16, (128, 128), (16, 1, 1)),
        (16, (96, 128), (16, 1, 3)),
        (16, (128, 96), (16, 3, 1)),
        # Of both sides those of the rows leave 32 + 192 channels to load, those of the columns 96 + 64.
        (16, (192, 96), (16, 1, 3)),
        # Thirds of 21 images would be three rounds. 15 fill the cores with halves, 14 nearly.
        (21, (96, 96), (21, 1, 1)),
        (15, (96, 96), (15, 1, 2)),
        # 30 images are one round; more than cores have no parts.
        (30, (96, 96), (30, 1, 1)),
        (31, (96, 96), (31, 1, 1)),
    ],
)
def test_batches_below_the_cores_are_cut_by_halves_or_thirds_where_that_ends_earlier(batch, channels, grid):
    into, out = channels
    layer = ConvProblem((batch, into, 40, 40), (out, into, 1, 1))
    assert grid_of(tiling_of(layer, "grad_weight"))[:3] == (grid[0], grid[2], grid[1])


def test_nothing_stays_in_l1_where_a_block_has_several_images():
    # 7 x 7 pixels are four fractals. A base block has 16 more on either side, 32 KiB, so that L1 holds all
    # four of the rows and both of the columns. Of two images each comes anew.
    for batch, copies in ((32, (4, 2)), (64, (2, 2))):
        tiling = tiling_of(ConvProblem((batch, 512, 7, 7), (1024, 512, 1, 1)), "grad_weight")
        assert (tiling.base_m, tiling.base_n) == (256, 256)
        assert (tiling.al1_buffers, tiling.bl1_buffers) == copies


def test_a_grid_has_the_blocks_that_are_asked_for():
    # 32 blocks for 16 images, of 128 to 128 channels under 9 taps. Halves of the columns load 128 + 64
    # channels of 784 pixels, 301,056 bytes in 16 bits, and add 128 x 64 x 9 in 32: 595,968 together. Two
    # images with halves of both sides load twice 64 + 64, 401,408, and add half as much: 548,864. Four with
    # quarters of one side load four times 32 + 64: 602,112 alone.
    layer = ConvProblem((16, 128, 28, 28), (128, 128, 3, 3), 1, 1)
    tiling = first_rule(layer, "grad_weight", "float16", OLD, blocks=32).tiling
    assert (tiling.batch_dim, tiling.m_dim, tiling.n_dim, tiling.k_dim) == (8, 2, 2, 0)
    assert tiling.used_cores == 30
    # 20 blocks for 32 images of 160 rows: 4 parts of 8 images and 5 of 32 rows are as even as 20 parts can
    # be. 2 parts and 10, or 20 of the rows alone, load and add as much: most parts of the batch. Halves of a
    # side load the other operand of twice as many pixels.
    layer = ConvProblem((32, 64, 160, 160), (64, 64, 1, 1))
    tiling = first_rule(layer, "grad_weight", "float16", OLD, blocks=20).tiling
    assert (tiling.batch_dim, tiling.m_dim, tiling.n_dim, tiling.k_dim) == (4, 1, 1, 5)

    # grad_input takes as many parts of the batch as there can be: of 16 images 15, so that two remain for
    # columns or rows. Halves of the rows load 64 x 64 weights 30 times and not 15, halves of the columns all
    # 16 x 64 x 3136 of grad_output twice: the rows are cut.
    layer = replace(layer, input=(16, 64, 56, 56))
    tiling = first_rule(layer, "grad_input", "float16", OLD, blocks=30).tiling
    assert grid_of(tiling) == (15, 1, 2, 30)
    # Where the rules take as many blocks, they are the same.
    assert first_rule(LAYER, "grad_input", "float16", OLD, blocks=30) == first_rule(
        LAYER, "grad_input", "float16", OLD
    )


def test_of_grids_with_equal_work_the_one_that_moves_the_least_is_taken():
    # 4 blocks for 3 images: two parts of the batch would have 2 images and a half of the rest, a single one 3
    # and a quarter, which is less. Of 16 rows of 16 pixels and 8 x 8 groups a quarter of the rows loads
    # 3 x 4 x 16 x (8 + 8) groups of 32 bytes and adds 64 KiB, 160 KiB in all; halves of rows and columns of
    # the product load 3 x 16 x 16 x (4 + 4) and add 16 KiB, 208; halves of the image and of one side 176.
    layer = ConvProblem((3, 128, 16, 16), (128, 128, 1, 1))
    tiling = tiling_of(layer, "grad_weight", blocks=4)
    assert (tiling.batch_dim, tiling.m_dim, tiling.n_dim, tiling.k_dim) == (1, 1, 1, 4)


def test_a_grid_may_cut_rows_down_to_one_fractal_of_pixels():
    # Two blocks for one image of 32 pixels and one group of channels: a fractal each.
    layer = ConvProblem((1, 16, 4, 8), (16, 16, 1, 1))
    assert grid_of(tiling_of(layer, "grad_input", blocks=2)) == (1, 1, 2, 2)
    assert first_rule(layer, "grad_input", "float16", OLD, blocks=3) is None


@pytest.mark.parametrize("gradient", ["grad_input", "grad_weight"])
def test_no_grid_has_more_blocks_than_there_is_to_share(gradient):
    # A prime: all of it would have to be images, rows or channels, of which there are fewer.
    assert first_rule(LAYER, gradient, "float16", OLD, blocks=7919) is None


# --- tiles


def test_base_blocks_load_l0_the_least():
    # m = 100 fractals of pixels, n = 8 groups of channels, k = 72 (group, tap) pairs. n0 = 8 loads the left
    # operand once; k0 = 4 of the divisors of 72 leaves m0 = 64 / 4 = 16, and 16 x 8 is half of L0C.
    tiling = tiling_of(LAYER, "grad_input")
    assert (tiling.base_m, tiling.base_n, tiling.base_k, tiling.cl0_buffers) == (256, 128, 64, 2)


def test_grad_weight_takes_all_of_l0c_where_that_loads_less():
    # m = 16 groups of channels, n = 16 x 9: with 16 x 12 sums the right operand is loaded once, the left one
    # 12 times; half of L0C, 8 x 12, would load the right one twice. k0 = 64 / 16 = 4 fractals of pixels.
    problem = ConvProblem((32, 256, 40, 40), (256, 256, 3, 3), 2, 1)
    tiling = tiling_of(problem, "grad_weight")
    assert (tiling.base_m, tiling.base_n, tiling.base_k, tiling.cl0_buffers) == (256, 192, 64, 1)


def test_tiles_divide_the_share_of_a_block():
    # One image: 4 x 4 blocks of 2 of 8 groups of rows and 18 of 72 columns, which one tile takes whole. Half
    # of L0B has 56 pixels beside 288 columns, so three fractals.
    tiling = tiling_of(replace(LAYER, input=(1, 128, 10, 10)), "grad_weight")
    assert (tiling.m_dim, tiling.n_dim) == (4, 4)
    assert (tiling.base_m, tiling.base_n, tiling.base_k) == (2 * 16, 18 * 16, 48)


def test_a_tile_of_whole_windows_touches_no_channels_but_theirs():
    # 4 groups of rows beside 36 (group, tap) columns, four whole windows of nine: of 31 rows of 64 pixels L1
    # holds 64 channels of grad_output and 33 rows of four groups of input, both twice, to the last byte.
    tiling = tiling_of(ConvProblem((32, 128, 64, 64), (64, 128, 3, 3), 1, 1), "grad_weight")
    assert (tiling.base_m, tiling.base_n, tiling.base_k) == (64, 36 * 16, 16)
    assert OLD.buffers["L1"].capacity_bytes == 2 * (31 * 64 * 64 * 2 + 33 * 64 * 4 * 16 * 2)
    assert tiling.step_ka == 31 * 64 // 16


def test_a_run_of_columns_touches_a_group_more_where_it_begins_inside_one():
    # One image, 4 x 4 blocks of 8 groups of rows and 8 of input channels, 72 columns. Tiles of 8 x 24 load
    # 72 + 3 x 8, no others less, and half of L0B has two fractals of pixels beside 24 columns. The second run
    # is columns 24 to 47 of windows of 9: groups 2 to 5, four, where 24 / 9 would be three.
    tiling = tiling_of(ConvProblem((1, 512, 40, 40), (512, 512, 3, 3), 1, 1), "grad_weight")
    assert (tiling.base_m, tiling.base_n, tiling.base_k) == (8 * 16, 24 * 16, 2 * 16)

    # n steps are n x 32 pixels of 128 channels, and so many rows of 40 pixels of four groups: one more
    # as the run is cut at both ends, and two more under the kernel. Both twice.
    def taken(steps, rows):
        return 2 * (steps * 32 * 128 * 2 + (rows + 1 + 2) * 40 * 4 * 16 * 2)

    # 41 x 32 / 40 is 32.8, 42 x 32 / 40 is 33.6.
    assert taken(41, 33) <= OLD.buffers["L1"].capacity_bytes < taken(42, 34)
    assert (tiling.step_ka, tiling.step_kb) == (41, 41)


def test_a_tile_holds_no_more_pixels_than_an_image_has():
    # 49 pixels are four fractals, where half of L0A has room for eight beside 128 channels.
    tiling = tiling_of(ConvProblem((32, 128, 7, 7), (128, 128, 1, 1)), "grad_weight")
    assert (tiling.base_m, tiling.base_n, tiling.base_k, tiling.step_ka) == (128, 128, 4 * 16, 1)


def test_both_operands_of_grad_weight_stay_for_a_block_where_both_fit():
    # 16 groups of rows, 64 columns in four tiles of 16 that load 64 + 4 x 16. Seven steps of 64 pixels have
    # all 400: 256 channels of 448 pixels, and 40 x 40 of four groups, the second four times, fill L1 to the
    # last byte.
    tiling = tiling_of(ConvProblem((32, 256, 40, 40), (256, 256, 2, 2), 2), "grad_weight")
    assert (tiling.base_m, tiling.base_n, tiling.base_k, tiling.step_ka) == (256, 256, 64, 7)
    assert OLD.buffers["L1"].capacity_bytes == 256 * 448 * 2 + 4 * 40 * 40 * 64 * 2
    assert (tiling.al1_buffers, tiling.bl1_buffers) == (1, 4)


def test_the_right_operand_of_grad_weight_stays_where_both_do_not_fit():
    # 32 groups of rows, 36 columns: two tiles of 16 by three of 12 load 2 x 36 + 3 x 32, no others less. 13
    # steps of 64 pixels are all 784: 256 channels of 832 pixels, and 28 x 28 of the three groups that runs of
    # 12 touch. Two of the first and three of the second are 1,077,760 bytes, more than L1; one and three fit.
    tiling = tiling_of(ConvProblem((12, 64, 28, 28), (512, 64, 3, 3), 1, 1), "grad_weight")
    assert (tiling.base_m, tiling.base_n, tiling.base_k, tiling.step_ka) == (256, 192, 64, 13)
    left, right = 256 * 832 * 2, 28 * 28 * 48 * 2
    assert left + 3 * right <= OLD.buffers["L1"].capacity_bytes < 2 * left + 3 * right
    assert (tiling.al1_buffers, tiling.bl1_buffers) == (1, 3)


def test_one_operand_of_two_tiles_is_kept_like_those_of_more():
    # 16 groups of rows and 32 columns, two tiles of 16 that load 2 x 16 + 32. All 49 pixels, 64 as slices go,
    # are in one step, and both operands fit whole: the left one in one copy, the right one in two.
    tiling = tiling_of(ConvProblem((32, 512, 7, 7), (256, 512, 1, 1)), "grad_weight")
    assert (tiling.base_m, tiling.base_n, tiling.step_ka) == (256, 256, 1)
    assert (tiling.al1_buffers, tiling.bl1_buffers) == (1, 2)


def test_a_single_tile_has_a_second_copy_for_the_next_image():
    tiling = tiling_of(ConvProblem((32, 16, 7, 7), (16, 16, 1, 1)), "grad_weight")
    assert (tiling.base_m, tiling.base_n) == (16, 16)
    assert (tiling.al1_buffers, tiling.bl1_buffers) == (2, 2)


def test_two_image_tiles_lie_beside_weights_that_stay_if_there_is_room():
    # 128 x 9 x 128 weights once; 256 pixels are up to 8 rows of 40, with two more under the kernel.
    assert OLD.buffers["L1"].capacity_bytes >= 128 * 9 * 128 * 2 + 2 * 10 * 40 * 128 * 2
    tiling = tiling_of(LAYER, "grad_input")
    assert (tiling.al1_buffers, tiling.bl1_buffers) == (2, 1)


def test_weights_come_in_parts_that_divide_the_channels_beside_a_whole_image_tile():
    # 49 fractals of pixels, 16 groups of columns, 16 x 25 pairs: tiles of 8 x 16 load 7 x 16 + 49 and leave
    # room for k0 = 4. Beside 10 rows of 28 pixels of all channels two copies of two groups of weights fit, of
    # four they do not. Two groups are 50 pairs: 13 slices of 4, with which L1 holds no third group.
    tiling = tiling_of(ConvProblem((32, 256, 28, 28), (256, 256, 5, 5), 1, 2), "grad_input")
    assert (tiling.base_m, tiling.base_n, tiling.base_k) == (128, 256, 64)
    image, weights = 10 * 28 * 256 * 2, 25 * 16 * 256 * 2
    assert image + 2 * 2 * weights <= OLD.buffers["L1"].capacity_bytes < image + 2 * 4 * weights
    assert (tiling.step_ka, tiling.step_kb) == (16 * 25 // 4, 13)
    assert (tiling.al1_buffers, tiling.bl1_buffers) == (1, 2)


def test_both_operands_come_in_parts_of_whole_slices():
    # 16 fractals of pixels and one group of columns, 150 groups to add: k0 = 3 divides them. A group of 256
    # pixels and 16 columns is 8704 bytes, so that two copies of 60 fit. 50 of the divisors of 150 do, but are
    # no whole slices of three; 30 are ten.
    tiling = tiling_of(ConvProblem((32, 16, 16, 16), (2400, 16, 1, 1)), "grad_input")
    assert (tiling.base_m, tiling.base_n, tiling.base_k) == (256, 16, 48)
    assert 2 * 60 * 8704 <= OLD.buffers["L1"].capacity_bytes < 2 * 61 * 8704
    assert (tiling.step_ka, tiling.step_kb) == (10, 10)
    assert (tiling.al1_buffers, tiling.bl1_buffers) == (2, 2)


def test_weights_stay_in_l1_where_they_fit():
    # 1x1, 512 <- 512 on 20x20: the four tiles of 128 columns take 128 KiB each, the image tile of 256 pixels
    # 256 KiB: with all four there is room for one.
    tiling = tiling_of(ConvProblem((32, 512, 20, 20), (512, 512, 1, 1)), "grad_input")
    assert (tiling.base_n, tiling.bl1_buffers, tiling.al1_buffers) == (128, 4, 1)


@given(least=st.integers(0, 50), most=st.integers(0, 50))
def test_the_last_number_that_fits_is_found(least, most):
    assert last_of(most, lambda number: number <= least) == min(least, most)


def test_divisors_are_those_that_leave_no_rest():
    for number in range(1, 500):
        assert divisors(number) == [part for part in range(1, number + 1) if number % part == 0]


# --- blocks that a caller gives


@pytest.mark.parametrize(
    ("blocks", "grids"),
    [
        # What the rules take themselves: 30 parts of 32 images, and 32.
        (30, {"grad_input": (30, 1, 1, 0)}),
        (32, {"grad_weight": (32, 1, 1, 0)}),
        # Parts of images and channels, as many as there are in both.
        (16, {"grad_input": (16, 1, 1, 0), "grad_weight": (16, 1, 1, 0)}),
        # 28 parts of 32 images are two each, of which 12 are empty; the rules launch as many all the same.
        (28, {"grad_input": (28, 1, 1, 0)}),
        (48, {"grad_input": (24, 1, 2, 0)}),
    ],
)
def test_the_blocks_of_a_call_are_the_cells_of_its_grid(blocks, grids):
    for gradient, grid in grids.items():
        mask = gradient == "grad_input", gradient == "grad_weight", False
        tiling = {gradient: {"block_dim": blocks}}
        found = estimate(LAYER, product=OLD, output_mask=mask, tiling=tiling)
        made, kernel = found.plans[gradient], next(k for k in found.kernels if k.name == gradient)
        t = made.tiling
        assert (t.batch_dim, t.n_dim, t.m_dim, t.k_dim) == grid
        assert (kernel.kernel.blocks, t.used_cores) == (blocks, min(blocks, 30))
        assert made.chosen_by == "user, rest product"
        # The same as the rules have for as many blocks.
        assert t == first_rule(LAYER, gradient, "float16", OLD, blocks=blocks).tiling


# --- tuned entries


def entry(problem, gradient, profile=OLD, **more):
    return has_entry(PlanRequest(problem, gradient, "float16", profile, **more))


STAGE = ConvProblem((32, 1024, 14, 14), (256, 1024, 1, 1))


@pytest.mark.parametrize(
    ("problem", "gradients"),
    [
        (STAGE, ("grad_input", "grad_weight")),
        # Of 64 images grad_input follows the rules, of 16 both do.
        (replace(STAGE, input=(64, 1024, 14, 14)), ("grad_weight",)),
        (replace(STAGE, input=(16, 1024, 14, 14)), ()),
        (ConvProblem((32, 3, 224, 224), (64, 3, 7, 7), 2, 3), ("grad_input", "grad_weight")),
        (ConvProblem((32, 256, 56, 56), (512, 256, 1, 1), 2), ("grad_input", "grad_weight")),
        (ConvProblem((32, 512, 14, 14), (512, 512, 3, 3), 2, 1), ("grad_input", "grad_weight")),
        # Layers of no ResNet-50: other channels, sizes, pads.
        (replace(STAGE, weight=(512, 1024, 1, 1)), ("grad_input", "grad_weight")),
        (replace(STAGE, weight=(384, 1024, 1, 1)), ()),
        (replace(STAGE, input=(32, 1024, 28, 28)), ()),
        (ConvProblem((32, 512, 14, 14), (512, 512, 3, 3), 2, 0), ()),
        (ConvProblem((32, 512, 14, 7), (512, 512, 3, 3), 1, 1), ()),
    ],
    ids=str,
)
def test_layers_of_resnet_50_have_entries_from_32_images_on(problem, gradients):
    assert tuple(name for name in ("grad_input", "grad_weight") if entry(problem, name)) == gradients


def test_entries_are_told_of_the_part_with_30_cores_alone():
    assert not any(entry(STAGE, "grad_weight", load_profile(name)) for name in ("910A", "310P3"))
    # 30 blocks of grad_input are those of whole images.
    assert not entry(STAGE, "grad_input", blocks=30)
    assert entry(STAGE, "grad_input", blocks=32)


SMALL = ConvProblem((8, 64, 5, 5), (32, 64, 1, 1))


@pytest.mark.parametrize("gradient", ["grad_input", "grad_weight"])
def test_a_tuned_grid_is_the_fastest_of_all_on_32_cores(gradient):
    mask = gradient == "grad_input", gradient == "grad_weight", False
    sibling = load_profile("910B_old_1001", {"cores.cube": 32})
    options = {"output_mask": mask, "l2_start": "warm"}
    tuned = estimate(SMALL, product=sibling, tiling="tuned", **options)
    assert tuned.plans[gradient].chosen_by == "tuned"
    assert any("fastest of all grids" in note for note in tuned.notes)
    request = PlanRequest(SMALL, gradient, "float16", sibling)
    grids = (all_dgrads if gradient == "grad_input" else all_wgrads)(request.gemm, sibling, 0)
    tilings = [tiling for _, tiling in grids]
    assert len(tilings) > 20
    times = [
        next(kernel.time_us for kernel in made.kernels if kernel.name == gradient)
        for made in (
            estimate(SMALL, product=sibling, tiling={gradient: tiling}, **options) for tiling in tilings
        )
    ]
    assert next(k.time_us for k in tuned.kernels if k.name == gradient) == min(times)
    # On 30 cores the grid is the same.
    here = estimate(SMALL, product=OLD, tiling="tuned", **options).plans[gradient].tiling
    assert replace(here, used_cores=32) == replace(tuned.plans[gradient].tiling, used_cores=32)


@pytest.mark.parametrize("blocks", [0, 1, 8, 20])
def test_tuned_grids_are_all_that_cut_the_images_evenly_on_so_many_cores(blocks):
    # 8 images; 5 lines of pixels on either side; 4 groups of input channels, 2 of output channels. L1 holds
    # the tiles of all: 25 pixels of 64 channels.
    allowed = [blocks] if blocks else range(1, OLD.cores.cube + 1)

    def all_of(*sides):
        parts = [[part for part in range(1, side + 1) if side % part == 0] for side in sides]
        return {grid for grid in product(*parts, range(1, 6)) if prod(grid) in allowed}

    requests = [PlanRequest(SMALL, name, "float16", OLD) for name in ("grad_input", "grad_weight")]
    dgrads = [t for _, t in all_dgrads(requests[0].gemm, OLD, blocks)]
    wgrads = [t for _, t in all_wgrads(requests[1].gemm, OLD, blocks)]
    grids = [(t.batch_dim, t.n_dim, t.m_dim) for t in dgrads]
    assert sorted(grids) == sorted(all_of(8, 4))
    # An image whose lines are not cut has a 0.
    grids = [(t.batch_dim, t.m_dim, t.n_dim, t.k_dim or 1) for t in wgrads]
    assert sorted(grids) == sorted(all_of(8, 2, 4))


def test_no_bound_of_a_grid_is_above_what_it_takes():
    request = PlanRequest(SMALL, "grad_weight", "float16", OLD)
    for least, tiling in all_wgrads(request.gemm, OLD, 0):
        found = estimate(SMALL, product=OLD, output_mask=(False, True, False), tiling={"grad_weight": tiling})
        assert next(k.cycles for k in found.kernels if k.name == "grad_weight") >= least


def test_a_search_for_entries_is_refused_where_there_is_none():
    with pytest.raises(UnsupportedError, match="only convolutions of one group on 910 and 310P"):
        estimate(SMALL, product="910B2", tiling="tuned")


def test_a_matrix_product_has_no_tuned_plan_and_says_so():
    # A network whose convolutions have tuned plans ends in linear layers.
    layer = layer_problem(kind="linear", input=(4, 64), weight=(32, 64))
    usual, tuned = (estimate_layer(layer, product=OLD, tiling=tiling) for tiling in ("product", "tuned"))
    assert tuned.cycles == usual.cycles
    assert [note for note in tuned.notes if note not in usual.notes] == [
        f"Not taken: the tuned plan of a matrix product on {OLD.variant}: only convolutions have one."
    ]
    with pytest.raises(UnsupportedError, match="only convolutions of one group on 910 and 310P"):
        estimate_layer(layer, product="910B2", tiling="tuned")
