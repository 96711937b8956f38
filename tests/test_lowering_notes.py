"""Does a result say where the product's operator would compute other bits than ours?"""

from dataclasses import replace

import pytest

from ascendsim import ConvProblem, estimate

WIDE = ConvProblem((1, 256, 16, 16), (256, 256, 3, 3), 1, 1)


def notes(problem, dtype="float32", product="910_95", **options):
    result = estimate(problem, dtype, product=product, **options)
    return [note for note in result.notes if note.startswith("The operator may compute")]


def winograd(problem, **options):
    return any("Winograd" in note for note in notes(problem, **options))


def test_a_wide_float32_3x3_on_950_may_be_winograd():
    # 256 / 64 = 4 blocks of channels on both sides, 4 * 4 = 16 together: just enough.
    (note,) = notes(WIDE)
    assert note.startswith("The operator may compute this grad_weight by Winograd")


@pytest.mark.parametrize(
    "problem",
    [
        ConvProblem((1, 255, 16, 16), (256, 255, 3, 3), 1, 1),  # 3 * 4 blocks
        ConvProblem((1, 256, 16, 16), (256, 256, 3, 3), 2, 1),
        ConvProblem((1, 256, 16, 16), (256, 256, 3, 3), 1, 2, dilation=2),
        ConvProblem((1, 256, 16, 16), (256, 256, 1, 1)),
        ConvProblem((1, 256, 16, 16), (256, 256, 3, 3), 1, (1, 2, 1, 1)),
        ConvProblem((1, 512, 16, 16), (512, 256, 3, 3), 1, 1, groups=2),
        ConvProblem((1, 256, 2, 16, 16), (256, 256, 1, 3, 3), 1, (0, 1, 1)),
    ],
    ids=["channels", "stride", "dilation", "kernel", "uneven", "groups", "3-D"],
)
def test_each_condition_on_the_shapes_counts(problem):
    assert not winograd(problem, output_mask=(False, True, False))


def test_so_does_each_condition_on_the_formats():
    assert not winograd(WIDE, cube_math_type=3)
    assert not winograd(WIDE, dtype="float16")
    assert not winograd(WIDE, product="910B")
    assert not winograd(WIDE, output_mask=(True, False, False))


def test_a_large_batch_of_tiles_is_left_to_the_direct_kernel():
    # 512,000 tiles of 2 x 2 are the most: 8000 images of 8 x 8 tiles, the last ones half full.
    at_most = ConvProblem((8000, 256, 15, 15), (256, 256, 3, 3), 1, 1)
    assert winograd(at_most, output_mask=(False, True, False))
    one_more = replace(at_most, input=(8001, 256, 15, 15))
    assert not winograd(one_more, output_mask=(False, True, False))


@pytest.mark.parametrize("product", ["910B", "910_95"])
def test_one_placement_of_the_kernel_is_told_where_a_search_makes_a_convolution_of_it(product):
    whole = ConvProblem((4, 8, 5, 3), (6, 8, 5, 3))
    assert not notes(whole, "float16", product)
    told = notes(whole, "float16", product, tiling="search")
    assert [note.split()[4] for note in told] == ["grad_input", "grad_weight"]
    assert not any("HF32" in note for note in told)
    in_hf32 = notes(whole, "float32", product, cube_math_type=3, tiling="search")
    assert all("in HF32 rounds ties away" in note for note in in_hf32)
    assert not notes(replace(whole, input=(4, 8, 6, 3)), "float16", product)
    assert not notes(replace(whole, input=(4, 8, 4, 3), padding=(1, 0, 0, 0)), "float16", product)


def test_one_tap_is_one_for_a_single_image_of_950():
    tap = ConvProblem((1, 8, 5, 3), (6, 8, 1, 1))
    assert not notes(tap)
    assert len(notes(tap, tiling="search")) == 2
    assert not notes(tap, product="910B", tiling="search")
    assert not notes(replace(tap, input=(2, 8, 5, 3)), tiling="search")


def test_placements_side_by_side_make_grad_input_a_matrix_product():
    patches = ConvProblem((2, 8, 8, 8), (6, 8, 2, 2), 2)
    (note,) = notes(patches, "float16", "910B")
    assert note.split()[4] == "grad_input"
    assert not notes(replace(patches, stride=1), "float16", "910B")


def test_generations_whose_operator_was_not_read_say_nothing():
    assert not notes(ConvProblem((4, 8, 5, 3), (6, 8, 5, 3)), "float16", "310P")
