"""Do tilings of the 910 and 310P follow the rules of their operators, on any problem and any product?"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ascendsim import Tiling, convolution_backward, estimate
from ascendsim.errors import ConfigError
from ascendsim.ops.lowering.lower import lower
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.ops.tiling.choose import choose_tiling
from ascendsim.ops.tiling.vendor.first.fractals import last_of
from ascendsim.ops.tiling.vendor.first.plans import first_plan
from ascendsim.profile import load_profile
from ascendsim.vector.zero_insertion import CopyUbToL1, SpreadPixels
from tests.conv_cases import UNIFIED, call_of, problems

OLD = load_profile("910B_old_1001")
# 128 <- 128 channels of 3x3 on 40x40, 32 images.
LAYER = ConvProblem((32, 128, 40, 40), (128, 128, 3, 3), 1, 1)


def tiling_of(problem, gradient, profile=OLD):
    return first_plan(problem, gradient, "float16", profile).tiling


def grid_of(tiling):
    return tiling.batch_dim, tiling.n_dim, tiling.m_dim, tiling.used_cores


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
    launch_us = kernel.time_us - kernel.cycles / OLD.clock.cube_mhz
    assert launch_us == pytest.approx(0.9 + 0.04 * blocks)


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
    # 12 images leave two blocks for each. Halves of the rows load the weights 24 times, 24 x 256 columns, and
    # each image once, 12 x 3136 pixels; halves of the columns 12 x 256 and 24 x 3136. 13 images do alike.
    for batch in (12, 13):
        layer = ConvProblem((batch, 256, 56, 56), (256, 256, 3, 3), 1, 1)
        assert grid_of(tiling_of(layer, "grad_input")) == (batch, 1, 2, 2 * batch)


def test_a_batch_of_one_image_more_does_not_idle_most_cores():
    # 7 images leave 4 blocks for each, which cut both sides; 8 and 10 leave 3, each of a third of the lines.
    used = [tiling_of(replace(LAYER, input=(n, 128, 40, 40)), "grad_weight").used_cores for n in (7, 8, 10)]
    assert used == [28, 24, 30]


def test_a_grid_has_the_blocks_that_are_asked_for():
    # 32 blocks for 16 images: two for each. Rows of dW are 8 groups of channels, columns 8 of input channels;
    # halves of the columns load 4 + 8 groups for 28 x 28 pixels and add half of the result, as halves of the
    # rows do. The first found of equal ones cuts the columns.
    layer = ConvProblem((16, 128, 28, 28), (128, 128, 3, 3), 1, 1)
    tiling = first_plan(layer, "grad_weight", "float16", OLD, blocks=32).tiling
    assert (tiling.batch_dim, tiling.m_dim, tiling.n_dim, tiling.k_dim) == (16, 1, 2, 0)
    assert tiling.used_cores == 30
    # 20 blocks for 32 images of 160 rows: 4 parts of 8 images and 5 of 32 rows are as even as 20 parts can
    # be; of those that are as even the one with the most parts of the batch is taken.
    layer = ConvProblem((32, 64, 160, 160), (64, 64, 1, 1))
    tiling = first_plan(layer, "grad_weight", "float16", OLD, blocks=20).tiling
    assert (tiling.batch_dim, tiling.m_dim, tiling.n_dim, tiling.k_dim) == (4, 1, 1, 5)

    # grad_input takes as many parts of the batch as there can be: of 16 images 15, so that two remain for
    # columns or rows. Halves of the rows load the weights twice as often, 15 x 2 x 64, halves of the columns
    # the image, 2 x 3136: the rows are cut.
    layer = replace(layer, input=(16, 64, 56, 56))
    tiling = first_plan(layer, "grad_input", "float16", OLD, blocks=30).tiling
    assert grid_of(tiling) == (15, 1, 2, 30)
    # Where the rules take as many blocks, they are the same.
    assert first_plan(LAYER, "grad_input", "float16", OLD, blocks=30) == first_plan(
        LAYER, "grad_input", "float16", OLD
    )


@pytest.mark.parametrize("gradient", ["grad_input", "grad_weight"])
def test_no_grid_has_more_blocks_than_there_is_to_share(gradient):
    # A prime: all of it would have to be images, rows or channels, of which there are fewer.
    assert first_plan(LAYER, gradient, "float16", OLD, blocks=7919) is None


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


def test_weights_stay_in_l1_where_they_fit():
    # 1x1, 512 <- 512 on 20x20: the four tiles of 128 columns take 128 KiB each, the image tile of 256 pixels
    # 256 KiB: with all four there is room for one.
    tiling = tiling_of(ConvProblem((32, 512, 20, 20), (512, 512, 1, 1)), "grad_input")
    assert (tiling.base_n, tiling.bl1_buffers, tiling.al1_buffers) == (128, 4, 1)


@given(least=st.integers(0, 50), most=st.integers(0, 50))
def test_the_last_number_that_fits_is_found(least, most):
    assert last_of(most, lambda number: number <= least) == min(least, most)


# --- any problem, any product


@pytest.mark.parametrize("gradient", ["grad_input", "grad_weight"])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(problem=problems(most_channels=80, most_pixels=300), share=st.sampled_from([1, 2, 4]), data=st.data())
def test_plans_fit_the_buffers_of_any_product(gradient, problem, share, data):
    capacity = OLD.buffers["L1"].capacity_bytes // share
    cores = data.draw(st.integers(1, 40))
    profile = load_profile("910A", {"buffers.L1.capacity_bytes": capacity, "cores.cube": cores})
    plan = first_plan(problem, gradient, "float16", profile)
    if plan is None:
        return
    call = call_of(problem, profile=profile, tilings={gradient: plan})
    # Building refuses what does not fit.
    for phase in call.schedule(gradient).phases():
        for work in phase.work:
            work.build()


@pytest.mark.parametrize("problem", [
    ConvProblem((2, 32, 8, 8), (32, 16, 3, 3), 1, 1, groups=2),
    ConvProblem((2, 32, 8, 8), (32, 16, 3, 3), 1, 1, transposed=True),
], ids=["groups", "transposed"])  # fmt: skip
def test_where_no_rule_is_known_the_search_plans(problem):
    assert first_plan(problem, "grad_input", "float16", OLD) is None
    made = choose_tiling(problem, "grad_input", "float16", OLD)
    assert made == choose_tiling(problem, "grad_input", "float16", OLD, strategy="search")


def test_the_strategy_is_the_products_unless_another_is_asked_for():
    product = choose_tiling(LAYER, "grad_input", "float16", OLD)
    assert product == first_plan(LAYER, "grad_input", "float16", OLD)
    assert choose_tiling(LAYER, "grad_input", "float16", OLD, strategy="search") != product
    with pytest.raises(ConfigError, match="strategy is 'fast'; it must be one of product, search"):
        choose_tiling(LAYER, "grad_input", "float16", OLD, strategy="fast")


def test_a_call_takes_the_strategy_as_its_tiling_and_says_whose_it_is():
    small = ConvProblem((2, 32, 8, 8), (32, 32, 3, 3), 1, 1)
    mask = (True, False, False)
    product, searched = (
        estimate(small, product="910A", output_mask=mask, tiling=tiling) for tiling in ("product", "search")
    )
    dealt = [[k.plan.tiling.batch_dim for k in made.kernels if k.plan] for made in (product, searched)]
    assert dealt == [[2], [0]]
    assert any("rules of the product's operators" in note for note in product.notes)
    assert any("this simulator's own" in note for note in searched.notes)
    one = estimate(small, product="910A", output_mask=mask, tiling={"grad_input": "search"})
    assert one.cycles == searched.cycles


def notes_of(problem, dtype, product, **options):
    found = estimate(problem, dtype, product=product, output_mask=(True, True, False), **options).notes
    return [note for note in found if note.startswith("Tilings")]


def test_a_result_says_whose_each_tiling_is():
    small = ConvProblem((2, 32, 8, 8), (32, 32, 3, 3), 1, 1)
    [note] = notes_of(small, "float16", "910A")
    assert note.startswith("Tilings follow the rules of the product's operators")
    # The library of 2-D gradients is known for one group alone.
    [note] = notes_of(replace(small, weight=(32, 16, 3, 3), groups=2), "float16", "910B2")
    assert note == "Tilings are this simulator's own; the product's operators choose their own."
    # A transposed convolution's grad_input is another operator's, of which no rule is known.
    transposed = ConvProblem((2, 32, 8, 8), (32, 32, 3, 3), 1, 1, transposed=True)
    product, own = notes_of(transposed, "float16", "910A")
    assert product.startswith("Tilings of grad_weight follow")
    assert own.startswith("Tilings of grad_input are this simulator's own")
    # The operator of 910_95 plans both gradients.
    [note] = notes_of(small, "float16", "950PR_9589")
    assert note.startswith("Tilings follow the rules of the product's operators")
    # Who gives them knows whose they are.
    given = {"grad_input": Tiling(16, 16, 16), "grad_weight": Tiling(16, 16, 16)}
    assert notes_of(small, "float16", "910A", tiling=given) == []


def test_a_product_plan_that_is_not_taken_is_told_with_the_reason():
    layer, narrow = ConvProblem((1, 16, 16, 16), (32, 16, 3, 3), padding=1), "hifloat8"
    options = {"product": "950PR_9589", "output_mask": (True, False, False), "rules": "hardware"}
    made = estimate(layer, narrow, **options)
    [reason] = [note for note in made.notes if note.startswith("Not taken")]
    assert reason == (
        "Not taken: the product's plan of grad_input on 950PR_9589: small_shape with blocks that end inside "
        "a group of 32 channels has no loop nest here."
    )
    # Asked for a search, nobody misses a plan.
    searched = estimate(layer, narrow, **options, tiling="search")
    assert not any(note.startswith("Not taken") for note in searched.notes)
    # The plan that stands in for the refused one is the search's own.
    plans = [found.plans["grad_input"] for found in (made, searched)]
    assert plans[0] == plans[1]
    assert [plan.chosen_by for plan in plans] == ["search", "search"]


VOLUME = ConvProblem((1, 16, 4, 6, 6), (16, 16, 3, 3, 3), 1, 1)


def plans_of(**options):
    made = estimate(VOLUME, product="910B2", output_mask=(True, True, False), **options)
    return {
        kernel.name: kernel.kernel.facts["plan"] for kernel in made.kernels if "plan" in kernel.kernel.facts
    }


def test_a_deterministic_3d_gradient_streams_instead_of_keeping_every_image_apart():
    assert plans_of()["grad_weight"].schedule == "wgrad_shares"
    assert plans_of(deterministic=True)["grad_weight"].schedule == "wgrad_stream"


def test_a_tiling_without_a_nest_is_for_the_usual_one():
    tiling = Tiling(16, 16, 16, k_split=2, used_cores=2)
    given = plans_of(tiling={"grad_weight": tiling})["grad_weight"]
    assert (given.schedule, given.tiling, given.chosen_by) == ("wgrad", tiling, "")


# --- schedules


def test_a_strided_grad_input_goes_through_ub_on_unified_cores_alone():
    strided = ConvProblem((2, 24, 10, 12), (20, 24, 3, 3), 2, 1)
    for name, through_ub in (("910A", True), ("310P3", True), ("910B2", False)):
        call = call_of(strided, profile=load_profile(name))
        [kernel] = [kernel for kernel in lower(call, (True, False, False)).kernels if kernel.macs]
        kinds = {type(i) for phase in kernel.phases for work in phase.work for i in work.build().instructions}
        assert ({SpreadPixels, CopyUbToL1} <= kinds) == through_ub, name


def test_the_way_through_ub_gives_what_a_strided_copy_gives():
    # One order of additions on both: the unified 910A spreads pixels in UB, the 910B2 in L1.
    problem = ConvProblem((5, 20, 7, 8), (40, 20, 3, 3), 2, 1)
    rng = np.random.default_rng(3)
    tensors = [
        rng.standard_normal(shape).astype(np.float16)
        for shape in (problem.grad_output, problem.input, problem.weight)
    ]
    made = [
        convolution_backward(
            *tensors, None, (2, 2), (1, 1), (1, 1), False, (0, 0), 1, (True, False, False), 0,
            product=product, tiling=Tiling(16, 16, 48, 3, 3, used_cores=3),
        ).grad_input
        for product in ("910A", "910B2")
    ]  # fmt: skip
    np.testing.assert_array_equal(*made)


def test_rows_of_float32_that_are_no_whole_fractal_take_the_room_of_one():
    # 8 rows of 48 pixels in the room of 16, and 43 pixels of 8 channels: 3072 + 1376 bytes, twice, are more
    # than 8 KiB. 2 slices of 16 pixels take 2048 + 1024.
    line = ConvProblem((1, 1, 43), (1, 1, 1))
    tiling = first_plan(line, "grad_weight", "float32", UNIFIED).tiling
    assert (tiling.base_m, tiling.base_k, tiling.step_ka, tiling.step_kb) == (8, 16, 2, 2)
    assert UNIFIED.buffers["L1"].capacity_bytes == 8192
    call = call_of(line, "float32", profile=UNIFIED, tilings={"grad_weight": tiling})
    for work in call.schedule("grad_weight").phases()[-1].work:
        work.build()


def test_toy_cores_are_planned_by_the_same_rules():
    # The random problems of the operators' tests run on them, so these rules are tried on all of them.
    assert first_plan(ConvProblem((2, 8, 5, 6), (12, 8, 3, 3), 1, 1), "grad_input", "float16", UNIFIED)
