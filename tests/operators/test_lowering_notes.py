"""Does a result say where the product's operator would compute other bits than ours?"""

from dataclasses import replace

import pytest

from ascendsim import ConvProblem, estimate


def notes(problem, dtype="float32", product="910_95", **options):
    result = estimate(problem, dtype, product=product, **options)
    return [note for note in result.notes if note.startswith("The operator may compute")]


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


def test_one_tap_of_more_than_128_mib_is_a_convolution_of_the_operator_too():
    # 64 channels in and out of 2 bytes: weights of 8 KiB, and 256 bytes a pixel. 524,256 pixels are 128 MiB.
    most = ConvProblem((1, 64, 128, 4095), (64, 64, 1, 1))
    assert (2 * 64 * 128 * 4095 + 64 * 64) * 2 <= 2**27
    told = notes(most, "float16", tiling="search", output_mask=(True, False, False))
    assert [note.split()[4] for note in told] == ["grad_input"]
    wider = replace(most, input=(1, 64, 128, 4096))
    assert not notes(wider, "float16", tiling="search", output_mask=(True, False, False))


def test_placements_side_by_side_make_grad_input_a_matrix_product():
    patches = ConvProblem((2, 8, 8, 8), (6, 8, 2, 2), 2)
    assert not notes(patches, "float16", "910B")
    # By a search, and where a row is left over, it is a convolution here.
    for note in notes(patches, "float16", "910B", tiling="search"):
        assert note.split()[4] == "grad_input"
    (note,) = notes(replace(patches, input=(2, 8, 9, 8)), "float16", "910B")
    assert note.split()[4] == "grad_input"
    assert not notes(replace(patches, stride=1), "float16", "910B")
    # 910_95 has a kernel for a stride of 2 along both axes.
    assert not notes(patches, tiling="search")
    assert len(notes(replace(patches, weight=(6, 8, 4, 4), stride=4), tiling="search")) == 1


def test_generations_whose_operator_was_not_read_say_nothing():
    assert not notes(ConvProblem((4, 8, 5, 3), (6, 8, 5, 3)), "float16", "310P")
